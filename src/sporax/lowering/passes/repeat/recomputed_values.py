"""Values that the backward pass of a loop computes again, since that costs less than keeping them for every round.

Problem. What the forward pass leaves for the backward pass is written to a stack in each round of a loop, and read from it in
another loop. Outside of loops the compiler fuses a cheap operation into what reads its result, so the result is never written;
between two loops it cannot, and a transposed weight or each factor of a derivative is copied twice.

Method. A value that goes from blocks of one run to the backward pass is *derived* if cheap operations lead to it from values
that are there anyway: arguments, what other readers keep, or values of a small part of its size. These operations are written
again before the first reader. Values are looked at from the last one to the first, so that what is derived is never needed to
derive another one. Where several values lack the same one, that one is kept in their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Var

from sporax.ir.graph import MARK
from sporax.ir.newer_primitives import with_newer
from sporax.lowering.flat_program import closed_jaxpr, is_backward, stack_of

_CHEAP = with_newer(
    [
        *("add", "sub", "mul", "div", "neg", "abs", "max", "min", "sign", "square", "integer_pow", "select_n"),
        *("eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not", "convert_element_type", "stop_gradient"),
        *("broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "copy", MARK),
    ]
)
"""What compilers compute for each reader."""
_SMALL = 16
"""A value of this share of the size of what is derived from it may be kept in its place."""
_SCALAR = 8
"""Bytes that are never worth computing again."""


def with_derived_values(program: ClosedJaxpr, runs: Sequence[tuple[int, int]]) -> ClosedJaxpr:
    """The same program; blocks derive what is cheap from what they read.

    Args:
        program: flat.
        runs: first position and position behind the last of each run of blocks.
    """
    eqns = program.jaxpr.eqns
    run_of = {position: number for number, (start, stop) in enumerate(runs) for position in range(start, stop)}
    maker = {var: position for position, eqn in enumerate(eqns) for var in eqn.outvars}
    crossing = _crossing(eqns, run_of, maker)
    free = {*program.jaxpr.invars, *program.jaxpr.constvars}
    lacking: dict[Var, int] = {}
    # Values that lack one common value are cheaper as a group: that one is kept instead of them.
    for var in crossing:
        lacks = _way(var, eqns, run_of, maker, (crossing | free) - {var})[1]
        if len(lacks) == 1:
            lacking[lacks[0]] = lacking.get(lacks[0], 0) + _num_bytes(var)
    crossing |= {var for var, num_bytes in lacking.items() if num_bytes > _num_bytes(var)}
    ways: dict[Var, list[int]] = {}
    # Last to first, so that what is derived is not needed to derive another one.
    for var in sorted(crossing, key=lambda variable: -maker[variable]):
        crossing.discard(var)
        way, lacks = _way(var, eqns, run_of, maker, crossing | free)
        if lacks:
            crossing.add(var)
        else:
            ways[var] = way
    return _written(program, run_of, ways) if ways else program


def _crossing(eqns: Sequence[JaxprEqn], run_of: dict[int, int], maker: dict[Var, int]) -> set[Var]:
    """What blocks of runs make in the forward pass and the backward pass reads, in another run or outside of runs."""
    return {
        var
        for position, eqn in enumerate(eqns)
        if is_backward(stack_of(eqn))
        for var in eqn.invars
        if isinstance(var, Var)
        and maker.get(var) in run_of
        and run_of[maker[var]] != run_of.get(position)
        and not is_backward(stack_of(eqns[maker[var]]))
    }


def _way(
    var: Var, eqns: Sequence[JaxprEqn], run_of: dict[int, int], maker: dict[Var, int], there: set[Var]
) -> tuple[list[int], list[Var]]:
    """The positions of cheap equations that lead to a value, in order, and the values that they lack."""
    # A value that is much smaller than the derived one may be kept in its place.
    least = max(_num_bytes(var) / _SMALL, _SCALAR)
    positions: set[int] = set()
    lacks: dict[Var, None] = {}
    open_ = [var]
    while open_:
        value = open_.pop()
        position = maker.get(value)
        if value is not var and (value in there or position is None or _num_bytes(value) <= least):
            continue
        assert position is not None
        eqn = eqns[position]
        # Values of another run leave its loop as stacks, so they are kept in any case.
        if str(eqn.primitive.name) not in _CHEAP or eqn.effects or run_of.get(position) != run_of.get(maker[var]):
            lacks[value] = None
        elif position not in positions:
            positions.add(position)
            open_ += [invar for invar in eqn.invars if isinstance(invar, Var)]
    return sorted(positions), list(lacks)


def _written(program: ClosedJaxpr, run_of: dict[int, int], ways: dict[Var, list[int]]) -> ClosedJaxpr:
    """The program with these values derived before their first readers in the backward pass."""
    jaxpr = program.jaxpr
    copies: dict[Var, Var] = {}
    result: list[JaxprEqn] = []
    for eqn in jaxpr.eqns:
        if is_backward(stack_of(eqn)):
            for var in eqn.invars:
                if isinstance(var, Var) and var in ways:
                    _derive(var, jaxpr.eqns, ways, copies, result)
            # Only readers in the backward pass get the copy; the forward pass has the value anyway.
            if any(not isinstance(var, Literal) and var in copies for var in eqn.invars):
                invars = [var if isinstance(var, Literal) else copies.get(var, var) for var in eqn.invars]
                eqn = eqn.replace(invars=invars)
        result.append(eqn)
    return closed_jaxpr(jaxpr.constvars, program.consts, jaxpr.invars, jaxpr.outvars, result)


def _derive(
    var: Var, eqns: Sequence[JaxprEqn], ways: dict[Var, list[int]], copies: dict[Var, Var], result: list[JaxprEqn]
) -> None:
    """Write the equations that lead to a value, and those that lead to derived values which these read."""
    if var in copies:
        return
    for place in ways[var]:
        eqn = eqns[place]
        if all(atom in copies for atom in eqn.outvars):
            continue
        for atom in eqn.invars:
            if isinstance(atom, Var) and atom in ways and atom not in copies:
                _derive(atom, eqns, ways, copies, result)
        results = [Var(atom.aval) for atom in eqn.outvars]
        invars = [atom if isinstance(atom, Literal) else copies.get(atom, atom) for atom in eqn.invars]
        copies.update(zip(eqn.outvars, results, strict=True))
        # The copy belongs to the backward pass, which later passes read from the name stack.
        info = eqn.source_info.replace(name_stack=eqn.source_info.name_stack.transform("transpose"))
        result.append(eqn.replace(invars=invars, outvars=results, source_info=info))


def _num_bytes(var: Any) -> int:
    return int(getattr(var.aval, "size", 0) * getattr(getattr(var.aval, "dtype", None), "itemsize", 0))
