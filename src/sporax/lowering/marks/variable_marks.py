"""Variables that a trace read, as arguments of the traced program.

A first trace finds out which variables a step reads, so they cannot be arguments of it: what is read is the variable's array,
through an identity that carries the number of the variable. `with_arguments` makes arguments of these numbers afterwards, which
saves a second trace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Primitive, Var

from sporax.lowering.rewriter import Called, JaxprRewriter, bodies_of, flat, variables

_read_p = Primitive("read_variable")


def mark_read(array: Any, number: int) -> jax.Array:
    """The array as a tracer, of which is known that it is the value of a variable.

    Args:
        array: the value.
        number: of the variable.
    """
    return _read_p.bind(array, number=number)


def mark_shape(shape: Sequence[int], dtype: Any, number: int) -> jax.Array:
    """As `mark_read`, of a variable of which the trace needs its shape and dtype alone: nothing of its array is in the trace.

    Args:
        shape, dtype: of the value.
        number: of the variable.
    """
    # One element with strides of zero, which takes no memory whatever the shape.
    return mark_read(np.broadcast_to(np.zeros((), dtype), tuple(shape)), number)


def number_of_read(eqn: JaxprEqn) -> int | None:
    """The number of the variable that an equation reads; None where it reads none."""
    return int(eqn.params["number"]) if eqn.primitive is _read_p else None


def _run(array: jax.Array, number: int) -> jax.Array:
    return array


def _abstract(aval: Any, number: int) -> Any:
    return aval


# Called and not written as decorators, which have no types.
_read_p.def_impl(_run)
_read_p.def_abstract_eval(_abstract)


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
