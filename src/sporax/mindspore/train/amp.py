"""MindSpore's other name of `sporax.mindspore.amp`."""

from sporax.mindspore._names.missing import answer_missing_names
from sporax.mindspore.amp import (
    auto_mixed_precision,
    build_train_network,
    custom_mixed_precision,
    get_black_list,
    get_white_list,
)

__all__ = ["auto_mixed_precision", "build_train_network", "custom_mixed_precision", "get_black_list", "get_white_list"]
answer_missing_names(__name__)
