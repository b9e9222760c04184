"""Operators under the names and signatures of `mindspore.mint`, which follow PyTorch's."""

import sporax.ops  # casts the operators, which registers their mint forms
from sporax.ir.missing import missing_names
from sporax.mint import nn
from sporax.ops._operator import MINT

globals().update({name: function for name, function in MINT.items() if "." not in name})

__all__ = ["nn", *(name for name in MINT if "." not in name)]

__getattr__ = missing_names(__name__)
