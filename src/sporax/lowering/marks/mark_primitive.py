"""Two identities that carry a fact through tracing.

`mark` says something of its operands:

    mark[OperatorMark(MatMul, …)] a b        a, b unchanged

Derivatives of marked tensors are marked too: on its way back a cotangent passes the mark that its tensor passed, and
the plan brings it to the placement of that tensor. Without a plan a mark compiles to nothing.

`read_variable` says that a value is that of the variable with a number: a first trace finds out which variables a step reads, so
they cannot be arguments of it. `with_arguments` makes arguments of these numbers afterwards, which saves a second trace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Primitive, Var
from jax.interpreters import ad, batching, mlir

from sporax.ir.graph import MARK
from sporax.ir.marks import DerivativeMark, GradientMark, LossMark, Mark, RankSumMark, RowsMark, SavedMark, WeightMark
from sporax.lowering.rewriter import Called, JaxprRewriter, bodies_of, flat, variables

mark_p = Primitive(MARK)
# A mark may join several tensors, such as all operands of an operator.
mark_p.multiple_results = True


def apply_mark(arrays: Sequence[Array], mark: Mark | SavedMark | RowsMark) -> list[Array]:
    """The same arrays, marked."""
    return list(mark_p.bind(*arrays, mark=mark)) if arrays else []


def _run(*arrays: Any, mark: Mark) -> list[Any]:
    """The arrays, or their shapes and dtypes, as they are."""
    return list(arrays)


# Called and not written as decorators, which have no types.
mark_p.def_impl(_run)
mark_p.def_abstract_eval(_run)


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


_read_p = Primitive("read_variable")


def mark_read(array: Any, number: int) -> jax.Array:
    """The array as a tracer, of which is known that it is the value of a variable."""
    return _read_p.bind(array, number=number)


def mark_shape(shape: Sequence[int], dtype: Any, number: int) -> jax.Array:
    """As `mark_read`, of a variable of which the trace needs its shape and dtype alone: nothing of its array is in the trace."""
    # One element with strides of zero, which takes no memory whatever the shape.
    return mark_read(np.broadcast_to(np.zeros((), dtype), tuple(shape)), number)


def number_of_read(eqn: JaxprEqn) -> int | None:
    """The number of the variable that an equation reads; None where it reads none."""
    return int(eqn.params["number"]) if eqn.primitive is _read_p else None


def _run_read(array: Any, number: int) -> Any:
    return array


# Called and not written as decorators, which have no types.
_read_p.def_impl(_run_read)
_read_p.def_abstract_eval(_run_read)


def with_arguments(
    closed: ClosedJaxpr, numbers: Sequence[int], shapes: Sequence[Any], called: Called | None = None
) -> ClosedJaxpr | None:
    """The program, flat, with variables as its first arguments; None where one is read inside of a loop or branch.

    Args:
        closed: reads variables by `mark_read`.
        numbers: of the variables that become arguments, in order; all that are read are among them.
        shapes: their shapes and dtypes.
        called: the calls that are written out, as for `flat`.
    """
    arguments = [Var(jax.core.ShapedArray(shape.shape, shape.dtype)) for shape in shapes]
    writer = _WithArguments(flat(closed, called), dict(zip(numbers, arguments, strict=True)))
    try:
        return writer.run()
    except _NoArgumentError:
        return None


class _NoArgumentError(Exception):
    """A read cannot become an argument."""


class _WithArguments(JaxprRewriter):
    def __init__(self, program: ClosedJaxpr, argument_of: Mapping[int, Var]) -> None:
        super().__init__(program)
        self.argument_of = argument_of

    def visit(self, eqn: JaxprEqn) -> None:
        if eqn.primitive is _read_p:
            argument = self.argument_of[eqn.params["number"]]
            value: Any = eqn.outvars[0].aval
            taken: Any = argument.aval
            # A weakly typed array or another dtype would change the program when it becomes an argument.
            if (value.shape, value.dtype, value.weak_type) != (taken.shape, taken.dtype, False):
                raise _NoArgumentError
            self.rename(eqn.outvars, [argument])
        # Inside of a loop the read would have to become an input of the loop.
        elif any(map(_reads, bodies_of(eqn))):
            raise _NoArgumentError
        else:
            self.keep(eqn)

    def run(self) -> ClosedJaxpr:
        self.walk()
        results = list(map(self.read, self.program.jaxpr.outvars))
        # Without the values that variables have now, which would stay alive with the program.
        used = set(variables([*results, *(atom for eqn in self.eqns for atom in eqn.invars)]))
        self.constants = {var: value for var, value in self.constants.items() if var in used}
        return self.finish(results, [*self.argument_of.values(), *self.program.jaxpr.invars])


def _reads(jaxpr: Jaxpr) -> bool:
    """Whether variables are read in it."""
    return any(eqn.primitive is _read_p or any(map(_reads, bodies_of(eqn))) for eqn in jaxpr.eqns)
