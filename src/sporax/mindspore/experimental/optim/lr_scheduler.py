"""Schedules of `mindspore.experimental.optim.lr_scheduler`: each changes the learning rates of an optimizer's groups.

The rates are Parameters, so compiled steps go on with new ones as they are.
"""

from typing import TYPE_CHECKING

from sporax.mindspore._names.missing import missing_names
from sporax.mindspore.experimental.optim._combined import ReduceLROnPlateau, SequentialLR
from sporax.mindspore.experimental.optim._cycles import CosineAnnealingLR, CosineAnnealingWarmRestarts, CyclicLR
from sporax.mindspore.experimental.optim._factors import (
    ConstantLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)
from sporax.mindspore.experimental.optim._scheduler import LRScheduler

__all__ = [
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = missing_names(__name__)
