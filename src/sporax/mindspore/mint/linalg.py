"""Linear algebra under the names of `mindspore.mint.linalg`."""

from sporax.mindspore import ops
from sporax.mindspore._names.missing import answer_missing_names
from sporax.mindspore.ops._core.parameters import renamed

inv = ops.inverse
norm = ops.norm
matrix_norm = renamed(ops.matrix_norm, {"dim": "axis", "keepdim": "keepdims"})
vector_norm = renamed(ops.vector_norm, {"dim": "axis", "keepdim": "keepdims"})
qr = renamed(ops.qr, {"A": "input"})

__all__ = ["inv", "matrix_norm", "norm", "qr", "vector_norm"]

answer_missing_names(__name__)
