"""MindSpore's other name of `sporax.mindspore.amp`."""

from typing import TYPE_CHECKING

from sporax.mindspore._names.missing import missing_names
from sporax.mindspore.amp import (
    auto_mixed_precision,
    build_train_network,
    custom_mixed_precision,
    get_black_list,
    get_white_list,
)

__all__ = ["auto_mixed_precision", "build_train_network", "custom_mixed_precision", "get_black_list", "get_white_list"]
if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = missing_names(__name__)
