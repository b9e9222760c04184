"""Operators: `mindspore.ops`.

Importing this package makes all operators (see `_core.operator`) and gives their forms names here: functions such as
`ops.matmul` and primitive classes such as `ops.MatMul`.
"""

import sporax.mindspore.autograph  # tensors in Python's control flow
from sporax.mindspore._names.missing import answer_missing_names, homes
from sporax.mindspore.common.tensor import Tensor as Tensor  # scripts import it from here as well
from sporax.mindspore.common.transforms import (
    GradOperation,
    get_grad,
    grad,
    jacfwd,
    jacrev,
    jvp,
    value_and_grad,
    vjp,
    vmap,
)  # fmt: skip

# Importing a family registers its operators.
from sporax.mindspore.ops import _collectives, array, control, image, linalg, math, nn, random, sparse
from sporax.mindspore.ops._core.operator import FUNCTIONS, PRIMITIVES, Primitive
from sporax.mindspore.ops._core.sharded_call import shard

# Names and methods made of what the families registered.
from sporax.mindspore.ops import aliases, tensor_methods, tensor_operators  # isort: skip
from sporax.mindspore.ops import method_overloads  # isort: skip

# Inner operators, made of the public ones and registered with those of `_generated`.
from sporax.mindspore.ops.nn import experts, fused_inference, quantization, rotary  # isort: skip

# Made of the registers that the modules above have filled.
from sporax.mindspore.ops import auto_generate, composite, functional, operations  # isort: skip

from sporax.mindspore.ops.composite import add_flags, core  # isort: skip
from sporax.mindspore.ops.control.custom import PrimitiveWithInfer, prim_attr_register  # isort: skip

globals().update(FUNCTIONS)
globals().update(PRIMITIVES)

_OTHERS = """
    add_flags core GradOperation get_grad grad jacfwd jacrev jvp shard value_and_grad vjp vmap Primitive
    PrimitiveWithInfer prim_attr_register
""".split()

__all__ = [*FUNCTIONS, *PRIMITIVES, *_OTHERS]

answer_missing_names(
    __name__,
    homes("sporax.mindspore.parallel.function", "reshard")
    | homes(
        "sporax.mindspore.ops.auto_generate", "Dense Geqrf LerpScalar LogSoftmaxExt TransposeExtView TransposeView"
    ),
)
