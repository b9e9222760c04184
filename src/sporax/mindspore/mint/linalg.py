"""Linear algebra under the names of `mindspore.mint.linalg`."""

from typing import TYPE_CHECKING

from sporax.mindspore import ops
from sporax.mindspore._names.missing import missing_names
from sporax.mindspore.ops._core.signatures import renamed

inv = ops.inverse
norm = ops.norm
matrix_norm = renamed(ops.matrix_norm, {"dim": "axis", "keepdim": "keepdims"})
vector_norm = renamed(ops.vector_norm, {"dim": "axis", "keepdim": "keepdims"})
qr = renamed(ops.qr, {"A": "input"})

__all__ = ["inv", "matrix_norm", "norm", "qr", "vector_norm"]

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = missing_names(__name__)
