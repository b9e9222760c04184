"""Schedules of `mindspore.experimental.optim.lr_scheduler`: each changes the learning rates of an optimizer's groups.

The rates are Parameters, so compiled steps go on with new ones as they are.
"""

from sporax.mindspore._names.doors import door
from sporax.mindspore._names.missing import homes_in

_HOMES = homes_in(
    __name__.rpartition(".")[0],
    """
    _factors: ConstantLR CosineAnnealingLR CosineAnnealingWarmRestarts CyclicLR ExponentialLR LambdaLR LinearLR
        MultiplicativeLR MultiStepLR PolynomialLR StepLR
    _scheduler: LRScheduler ReduceLROnPlateau SequentialLR
    """,
)

__all__ = [*_HOMES]
__getattr__, __dir__ = door(__name__, _HOMES)
