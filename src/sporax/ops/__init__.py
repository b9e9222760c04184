"""Operators: `mindspore.ops`.

Importing this package casts all operators (see `_operator`) and gives their forms names here: functions such as
`ops.matmul` and primitive classes such as `ops.MatMul`.
"""

from sporax.common.transforms import GradOperation, get_grad, grad, jvp, value_and_grad, vjp
from sporax.ir.missing import missing_names
from sporax.ops import (
    _collectives,
    _messages,
    _tensor,
    activation,
    aliases,
    arithmetic,
    array,
    assign,
    boxes,
    composing,
    control,
    convolution,
    criteria,
    debug,
    elementwise,
    filling,
    gathering,
    image,
    linalg,
    linear_algebra,
    loss,
    nonlinear,
    normalization,
    normalizing,
    norms,
    pooling,
    products,
    random,
    rearranging,
    reduction,
    resizing,
    sampling,
    scattering,
    segment,
    shaping,
    sorting,
    spatial,
    special,
    statistics,
)
from sporax.ops._operator import FUNCTIONS, PRIMITIVES, Primitive

# Made of the registers that the modules above have filled.
from sporax.ops import composite, functional, operations  # isort: skip

globals().update(FUNCTIONS)
globals().update(PRIMITIVES)

_OTHERS = ("GradOperation", "get_grad", "grad", "jvp", "value_and_grad", "vjp", "Primitive")

__all__ = [*FUNCTIONS, *PRIMITIVES, *_OTHERS]


__getattr__ = missing_names(__name__)
