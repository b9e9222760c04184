"""Optimizers."""

from sporax.mindspore._names.doors import door
from sporax.mindspore._names.missing import homes_in

_HOMES = homes_in(
    __name__,
    """
    _helpers: opt_init_args_register
    _optimizer: Optimizer
    adagrad: AdaFactor Adagrad ProximalAdagrad Adadelta RMSProp FTRL
    adam: Adam AdamOffload AdamWeightDecay LazyAdam AdaMax Lamb LARS
    momentum: SGD Momentum ASGD Rprop
    optax: OptaxOptimizer
    thor: thor
    """,
)

__all__ = [*_HOMES]
__getattr__, __dir__ = door(__name__, _HOMES)
