"""Optimizers."""

from sporax.mindspore._names.doors import door
from sporax.mindspore._names.missing import homes

_HOMES = {
    **homes("sporax.mindspore.nn.optim._helpers", "opt_init_args_register"),
    **homes("sporax.mindspore.nn.optim._optimizer", "Optimizer"),
    **homes("sporax.mindspore.nn.optim.adadelta", "Adadelta"),
    **homes("sporax.mindspore.nn.optim.adafactor", "AdaFactor"),
    **homes("sporax.mindspore.nn.optim.adagrad", "Adagrad ProximalAdagrad"),
    **homes("sporax.mindspore.nn.optim.adam", "Adam AdamOffload AdamWeightDecay LazyAdam"),
    **homes("sporax.mindspore.nn.optim.adamax", "AdaMax"),
    **homes("sporax.mindspore.nn.optim.asgd", "ASGD"),
    **homes("sporax.mindspore.nn.optim.ftrl", "FTRL"),
    **homes("sporax.mindspore.nn.optim.lamb", "Lamb"),
    **homes("sporax.mindspore.nn.optim.lars", "LARS"),
    **homes("sporax.mindspore.nn.optim.momentum", "SGD Momentum"),
    **homes("sporax.mindspore.nn.optim.optax", "OptaxOptimizer"),
    **homes("sporax.mindspore.nn.optim.rmsprop", "RMSProp"),
    **homes("sporax.mindspore.nn.optim.rprop", "Rprop"),
    **homes("sporax.mindspore.nn.optim.thor", "thor"),
}

__all__ = [*_HOMES]
__getattr__, __dir__ = door(__name__, _HOMES)
