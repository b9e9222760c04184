"""MindSpore's other place of the loss scale managers of `sporax.amp`."""

from typing import TYPE_CHECKING

from sporax.amp import DynamicLossScaleManager, FixedLossScaleManager, LossScaleManager
from sporax.ir.missing import missing_names

__all__ = ["DynamicLossScaleManager", "FixedLossScaleManager", "LossScaleManager"]
if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = missing_names(__name__)
