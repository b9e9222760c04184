"""MindSpore's other name of `sporax.amp`."""

from sporax.amp import auto_mixed_precision, build_train_network, custom_mixed_precision, get_black_list, get_white_list
from sporax.ir.missing import missing_names

__all__ = [
    "auto_mixed_precision",
    "build_train_network",
    "custom_mixed_precision",
    "get_black_list",
    "get_white_list",
]
__getattr__ = missing_names(__name__)
