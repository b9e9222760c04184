"""The primitive behind marks: an identity that carries a value through tracing.

    mark[OperatorMark(MatMul, …)] a b        a, b unchanged

Derivatives of marked tensors are marked too: on its way back a cotangent passes the mark that its tensor passed, and
the plan brings it to the placement of that tensor. Without a plan a mark compiles to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from sporax.ir.graph import MARK
from sporax.ir.marks import DerivativeMark, GradientMark, LossMark, Mark, RankSumMark, RowsMark, SavedMark, WeightMark

mark_p = Primitive(MARK)
# A mark may join several tensors, such as all operands of an operator.
mark_p.multiple_results = True


def apply_mark(arrays: Sequence[Array], mark: Mark | SavedMark | RowsMark) -> list[Array]:
    """The same arrays, marked."""
    return list(mark_p.bind(*arrays, mark=mark)) if arrays else []


def _run(*arrays: Array, mark: Mark) -> list[Array]:
    return list(arrays)


def _abstract(*avals: Any, mark: Mark) -> list[Any]:
    return list(avals)


# Called and not written as decorators, which have no types.
mark_p.def_impl(_run)
mark_p.def_abstract_eval(_abstract)


def _jvp(primals: Sequence[Array], tangents: Sequence[Array], *, mark: Mark) -> tuple[list[Array], list[Array]]:
    positions = tuple(number for number, tangent in enumerate(tangents) if not isinstance(tangent, ad.Zero))
    # These speak of values of the first pass alone: a tangent passes without one.
    if isinstance(mark, GradientMark | SavedMark | LossMark | RowsMark | WeightMark):
        return apply_mark(primals, mark), list(tangents)
    beyond: Mark
    # A derivative of a derivative keeps the mark of the first pass, with fewer positions.
    if isinstance(mark, DerivativeMark):
        beyond = replace(mark, positions=tuple(mark.positions[number] for number in positions))
    elif isinstance(mark, RankSumMark):  # the derivative of a sum over ranks is one
        beyond = mark
    else:
        beyond = DerivativeMark(mark, positions)
    marked = list(tangents)
    for number, tangent in zip(
        positions, apply_mark([tangents[position] for position in positions], beyond), strict=True
    ):
        marked[number] = tangent
    return apply_mark(primals, mark), marked


def _transpose(cotangents: Sequence[Array], *operands: Array, mark: DerivativeMark | RankSumMark) -> list[Array]:
    """Cotangents go back through the mark."""
    if isinstance(mark, RankSumMark):
        return [array if isinstance(array, ad.Zero) else apply_mark([array], mark)[0] for array in cotangents]
    # Symbolic zeros stay unmarked, so that no operator is made for them.
    nonzero = [number for number, cotangent in enumerate(cotangents) if not isinstance(cotangent, ad.Zero)]
    positions = tuple(mark.positions[number] for number in nonzero)
    # Each transposition turns the direction around.
    beyond = replace(mark, positions=positions, backward=not mark.backward)
    marked = list(cotangents)
    for number, array in zip(nonzero, apply_mark([cotangents[number] for number in nonzero], beyond), strict=True):
        marked[number] = array
    return marked


def _batch(arrays: Sequence[Array], dims: Sequence[Any], *, mark: Mark) -> tuple[list[Array], Sequence[Any]]:
    """Under `vmap` there is one dimension more than the mark knows of, so it says nothing."""
    return list(arrays), dims


ad.primitive_jvps[mark_p] = _jvp
ad.primitive_transposes[mark_p] = _transpose
batching.primitive_batchers[mark_p] = _batch
# An identity: in compiled programs nothing is left of it.
mlir.register_lowering(mark_p, mlir.lower_fun(_run, multiple_results=True))
