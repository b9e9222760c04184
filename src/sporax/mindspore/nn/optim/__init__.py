"""Optimizers."""

from sporax.mindspore._names.doors import door
from sporax.mindspore._names.missing import homes_in

_HOMES = homes_in(
    __name__,
    """
    _helpers: opt_init_args_register
    _optimizer: Optimizer
    adadelta: Adadelta
    adafactor: AdaFactor
    adagrad: Adagrad ProximalAdagrad
    adam: Adam AdamOffload AdamWeightDecay LazyAdam
    adamax: AdaMax
    asgd: ASGD
    ftrl: FTRL
    lamb: Lamb
    lars: LARS
    momentum: SGD Momentum
    optax: OptaxOptimizer
    rmsprop: RMSProp
    rprop: Rprop
    thor: thor
    """,
)

__all__ = [*_HOMES]
__getattr__, __dir__ = door(__name__, _HOMES)
