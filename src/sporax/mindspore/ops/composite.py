"""`mindspore.ops.composite`, which scripts import as ``C``: what applies functions to structures, clips and draws."""

from typing import Any

import jax

from sporax.mindspore._names.missing import answer_missing_names
from sporax.mindspore.common.transforms import GradOperation
from sporax.mindspore.ops._core.operator import FUNCTIONS, PRIMITIVES
from sporax.mindspore.ops.control.debug import is_tensor

__path__: list[str] = []  # a package in MindSpore, see `sporax.mindspore._names.module_paths`

__all__ = [
    "GradOperation",
    *("add_flags", "core", "ones_like", "zeros_like"),
    *("HyperMap", "Map", "MultitypeFuncGraph"),
    *("batch_dot", "count_nonzero", "cummin", "dot", "matmul", "mm", "repeat_elements", "repeat_interleave"),
    *("sequence_mask", "tensor_dot", "vecdot"),
    *("clip_by_global_norm", "clip_by_value", "gamma", "laplace", "multinomial", "normal", "poisson", "uniform"),
]


def ones_like(x: Any) -> Any:
    """Ones in the shape and dtype of a Tensor, or of every Tensor in tuples, lists and dicts."""
    return jax.tree.map(FUNCTIONS["ones_like"], x, is_leaf=is_tensor)


def zeros_like(x: Any) -> Any:
    """Zeros in the shape and dtype of a Tensor, or of every Tensor in tuples, lists and dicts."""
    return jax.tree.map(FUNCTIONS["zeros_like"], x, is_leaf=is_tensor)


def add_flags(fn: Any = None, **flags: Any) -> Any:
    """Keep settings of MindSpore's compiler with a function or Cell, in its ``_func_graph_flags``.

    Args:
        fn: function or Cell; without it, a decorator is returned.
        flags: what is kept. Nothing here reads them.
    """
    if fn is None:
        return lambda function: add_flags(function, **flags)
    # A Cell keeps the flags in its own way as well.
    if hasattr(fn, "add_flags"):
        fn.add_flags(**flags)
    # Past `Cell.__setattr__`, which would register a child or Parameter.
    object.__setattr__(fn, "_func_graph_flags", {**getattr(fn, "_func_graph_flags", {}), **flags})
    return fn


def core(fn: Any = None, **flags: Any) -> Any:
    """`add_flags` with the flag ``core``."""
    return add_flags(fn, core=True, **flags)


_OPERATORS = {**FUNCTIONS, **PRIMITIVES}
globals().update({name: _OPERATORS[name] for name in __all__ if name not in globals()})

answer_missing_names(__name__)
