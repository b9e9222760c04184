"""Operators: `mindspore.ops`.

Importing this package makes all operators (see `_core.operator`) and gives their forms names here: functions such as
`ops.matmul` and primitive classes such as `ops.MatMul`.
"""

from typing import TYPE_CHECKING

import sporax.autograph  # tensors in Python's control flow
from sporax.common.tensor import Tensor as Tensor  # scripts import it from here as well
from sporax.common.transforms import GradOperation, get_grad, grad, jvp, value_and_grad, vjp
from sporax.common.vectorize import jacfwd, jacrev, vmap
from sporax.ir.missing import missing_names

# Importing a family registers its operators.
from sporax.ops import _collectives, array, control, image, linalg, math, nn, random, sparse
from sporax.ops._core.operator import FUNCTIONS, PRIMITIVES, Primitive
from sporax.ops._core.shard import shard

# Names and methods made of what the families registered.
from sporax.ops import aliases, tensor_methods, tensor_operators  # isort: skip
from sporax.ops import method_overloads  # isort: skip

# Made of the registers that the modules above have filled.
from sporax.ops import auto_generate, composite, functional, operations  # isort: skip

from sporax.ops.composite import add_flags, core  # isort: skip

globals().update(FUNCTIONS)
globals().update(PRIMITIVES)

_OTHERS = (
    "add_flags",
    "core",
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


if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = missing_names(__name__)
