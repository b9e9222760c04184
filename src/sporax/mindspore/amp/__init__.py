"""Mixed precision: `mindspore.amp`.

`_precision` decides which Cells compute in half precision; `_scalers` keeps small gradients from vanishing there;
`_training` builds a whole training step of both.
"""

from typing import TYPE_CHECKING

from sporax.mindspore._names.missing import missing_names
from sporax.mindspore.amp._precision import auto_mixed_precision, custom_mixed_precision, get_black_list, get_white_list
from sporax.mindspore.amp._scalers import (
    DynamicLossScaleManager,
    DynamicLossScaler,
    FixedLossScaleManager,
    LossScaleManager,
    LossScaler,
    StaticLossScaler,
    all_finite,
)
from sporax.mindspore.amp._training import build_train_network

__all__ = [
    "DynamicLossScaleManager",
    "DynamicLossScaler",
    "FixedLossScaleManager",
    "LossScaleManager",
    "LossScaler",
    "StaticLossScaler",
    "all_finite",
    "auto_mixed_precision",
    "build_train_network",
    "custom_mixed_precision",
    "get_black_list",
    "get_white_list",
]

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = missing_names(__name__)
