"""MindSpore's other place of the loss scale managers of `sporax.mindspore.amp`."""

from sporax.mindspore._names.missing import answer_missing_names
from sporax.mindspore.amp import DynamicLossScaleManager, FixedLossScaleManager, LossScaleManager

__all__ = ["DynamicLossScaleManager", "FixedLossScaleManager", "LossScaleManager"]
answer_missing_names(__name__)
