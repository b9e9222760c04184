"""Operators: `mindspore.ops`.

Importing this package casts all operators (see `_operator`) and gives their forms names here: functions such as
`ops.matmul` and primitive classes such as `ops.MatMul`.
"""

import sporax.autograph  # tensors in Python's control flow
from sporax.common.transforms import GradOperation, get_grad, grad, jvp, value_and_grad, vjp
from sporax.common.vectorize import jacfwd, jacrev, vmap
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
    banded,
    bessel,
    boxes,
    candidates,
    colours,
    composing,
    control,
    conversions,
    convolution,
    counting,
    criteria,
    debug,
    elementwise,
    factors,
    filling,
    fractional_pooling,
    gathering,
    image,
    linalg,
    linear_algebra,
    loss,
    methods,
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
    sequences,
    shaping,
    signal,
    sorting,
    spatial,
    special,
    statistics,
    updates,
)
from sporax.ops._operator import FUNCTIONS, PRIMITIVES, Primitive
from sporax.ops._shard import shard

# Made of the registers that the modules above have filled.
from sporax.ops import composite, functional, operations  # isort: skip

globals().update(FUNCTIONS)
globals().update(PRIMITIVES)

_OTHERS = (
    "GradOperation",
    "get_grad",
    "grad",
    "jacfwd",
    "jacrev",
    "jvp",
    "shard",
    "value_and_grad",
    "vjp",
    "vmap",
    "Primitive",
)

__all__ = [*FUNCTIONS, *PRIMITIVES, *_OTHERS]


__getattr__ = missing_names(__name__)
