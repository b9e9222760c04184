"""Variables that a trace read, as arguments of the traced program.

A first trace finds out which variables a step reads, so they cannot be arguments of it: what is read is the variable's array,
through an identity that carries the number of the variable. `with_arguments` makes arguments of these numbers afterwards, which
saves a second trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Primitive, Var

from sporax.lowering.flat_program import closed_jaxpr, flat

_read_p = Primitive("read_variable")


def mark_read(array: jax.Array, number: int) -> jax.Array:
    """The array as a tracer, of which is known that it is the value of a variable.

    Args:
        array: the value.
        number: of the variable.
    """
    traced: jax.Array = _read_p.bind(array, number=number)
    return traced


def number_of_read(eqn: JaxprEqn) -> int | None:
    """The number of the variable that an equation reads; None where it reads none."""
    return int(eqn.params["number"]) if eqn.primitive is _read_p else None


@_read_p.def_impl  # type: ignore[untyped-decorator]  # jax's decorator has no types
def _run(array: jax.Array, number: int) -> jax.Array:
    return array


@_read_p.def_abstract_eval  # type: ignore[untyped-decorator]  # jax's decorator has no types
def _abstract(aval: Any, number: int) -> Any:
    return aval


def with_arguments(closed: ClosedJaxpr, numbers: Sequence[int], shapes: Sequence[Any]) -> ClosedJaxpr | None:
    """The program, flat, with variables as its first arguments; None where one is read inside of a loop or branch.

    Args:
        closed: reads variables by `mark_read`.
        numbers: of the variables that become arguments, in order; all that are read are among them.
        shapes: their shapes and dtypes.
    """
    program = flat(closed)
    arguments = [Var(jax.core.ShapedArray(shape.shape, shape.dtype)) for shape in shapes]
    argument_of = dict(zip(numbers, arguments, strict=True))
    same: dict[Any, Var] = {}
    eqns: list[JaxprEqn] = []
    for eqn in program.jaxpr.eqns:
        if eqn.primitive is _read_p:
            argument = argument_of[eqn.params["number"]]
            aval: Any = eqn.outvars[0].aval
            given: Any = argument.aval
            # A weakly typed array or another dtype would change the program when it becomes an argument.
            if (aval.shape, aval.dtype, aval.weak_type) != (given.shape, given.dtype, False):
                return None
            same[eqn.outvars[0]] = argument
            continue
        # Inside of a loop the read would have to become an input of the loop.
        if any(map(_reads, _bodies(eqn))):
            return None
        if any(isinstance(var, Var) and var in same for var in eqn.invars):
            eqn = eqn.replace(invars=[same.get(var, var) if isinstance(var, Var) else var for var in eqn.invars])
        eqns.append(eqn)
    jaxpr = program.jaxpr
    outvars = [same.get(var, var) if isinstance(var, Var) else var for var in jaxpr.outvars]
    # Without the values that variables have now, which would stay alive with the program.
    used = {var for var in (*outvars, *(var for eqn in eqns for var in eqn.invars)) if isinstance(var, Var)}
    consts = {var: value for var, value in zip(jaxpr.constvars, program.consts, strict=True) if var in used}
    return closed_jaxpr(list(consts), list(consts.values()), [*arguments, *jaxpr.invars], outvars, eqns)


def _reads(jaxpr: Jaxpr) -> bool:
    """Whether variables are read in it."""
    return any(eqn.primitive is _read_p or any(map(_reads, _bodies(eqn))) for eqn in jaxpr.eqns)


def _bodies(eqn: JaxprEqn) -> Iterator[Jaxpr]:
    for value in eqn.params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, ClosedJaxpr):
                yield item.jaxpr
            elif isinstance(item, Jaxpr):
                yield item
