"""MindSpore's other place of the loss scale managers of `sporax.amp`."""

from sporax.amp import DynamicLossScaleManager, FixedLossScaleManager, LossScaleManager
from sporax.ir.missing import missing_names

__all__ = ["DynamicLossScaleManager", "FixedLossScaleManager", "LossScaleManager"]
__getattr__ = missing_names(__name__)
