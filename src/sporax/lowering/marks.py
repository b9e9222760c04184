"""The primitive behind marks: an identity that carries a value through tracing.

    mark[OperatorMark(MatMul, …)] a b        a, b unchanged

Derivatives pass marks by: a tangent or cotangent has none of its own, since what follows from a mark for the forward pass
also holds, through the tensors it keeps, for the backward pass. Outside plans a mark compiles to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from sporax.ir.graph import MARK
from sporax.ir.marks import Mark

Array = Any
"""A jax.Array or a tracer."""

mark_p = Primitive(MARK)
mark_p.multiple_results = True


def apply_mark(arrays: Sequence[Array], mark: Mark) -> list[Array]:
    """The same arrays, marked."""
    return list(mark_p.bind(*arrays, mark=mark)) if arrays else []


@mark_p.def_impl
def _run(*arrays: Array, mark: Mark) -> list[Array]:
    return list(arrays)


@mark_p.def_abstract_eval
def _abstract(*avals: Any, mark: Mark) -> list[Any]:
    return list(avals)


def _jvp(primals: Sequence[Array], tangents: Sequence[Array], *, mark: Mark) -> tuple[list[Array], list[Array]]:
    return apply_mark(primals, mark), list(tangents)


def _batch(arrays: Sequence[Array], dims: Sequence[Any], *, mark: Mark) -> tuple[list[Array], Sequence[Any]]:
    """Under `vmap` there is one dimension more than the mark knows of, so it says nothing."""
    return list(arrays), dims


ad.primitive_jvps[mark_p] = _jvp
batching.primitive_batchers[mark_p] = _batch
mlir.register_lowering(mark_p, mlir.lower_fun(_run, multiple_results=True))
