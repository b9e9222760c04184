"""Values that the backward pass of a loop computes again, since that costs less than keeping them for every round.

Problem. What the forward pass leaves for the backward pass is written to a stack in each round of a loop, and read from it in
another loop. Outside of loops the compiler fuses a fast operation into what reads its result, so the result is never written;
between two loops it cannot, and a transposed weight or each factor of a derivative is copied twice.

Method. A value that goes from blocks of one run to the backward pass is *derived* if fast operations lead to it from values
that are there anyway: arguments, what other readers keep, or values of a small part of its size. These operations are written
again before the first reader. Values are looked at from the last one to the first, so that what is derived is never needed to
derive another one. Where several values lack the same one, that one is kept in their place.

Which equations of a program can stand for each other: the same operation with the same settings on the same types.

Problem: to find repeated blocks, thousands of equations are compared, some with long parameters (bodies, marks).
Method: each equation gets a number, by a dictionary of what distinguishes equations. Names of layers count without their
digits, so that `blocks.3` and `blocks.4` are isomorphic.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import TypeAlias

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Var

from sporax.base.identity import ByIdentity
from sporax.ir.graph import MARK
from sporax.ir.marks import DerivativeMark, LayoutMark, OperatorMark
from sporax.ir.operation import with_newer
from sporax.lowering.marks.host_transfer import HOST, space_of
from sporax.lowering.rewriter import Atom, JaxprRewriter, in_backward, num_bytes, runs_backward, stack_of, variables

_FAST = with_newer(
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
    """The same program; blocks derive what is of low cost from what they read.

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
    # Values that lack one common value cost less as a group: that one is kept instead of them.
    for var in crossing:
        lacks = _way(var, eqns, run_of, maker, (crossing | free) - {var})[1]
        if len(lacks) == 1:
            lacking[lacks[0]] = lacking.get(lacks[0], 0) + num_bytes(var)
    crossing |= {var for var, size in lacking.items() if size > num_bytes(var)}
    ways: dict[Var, list[int]] = {}
    # Last to first, so that what is derived is not needed to derive another one.
    for var in sorted(crossing, key=lambda variable: -maker[variable]):
        crossing.discard(var)
        way, lacks = _way(var, eqns, run_of, maker, crossing | free)
        if lacks:
            crossing.add(var)
        else:
            ways[var] = way
    return _Deriving(program, ways).run() if ways else program


def _crossing(eqns: Sequence[JaxprEqn], run_of: dict[int, int], maker: dict[Var, int]) -> set[Var]:
    """What blocks of runs make in the forward pass and the backward pass reads, in another run or outside of runs."""
    return {
        var
        for position, eqn in enumerate(eqns)
        if runs_backward(eqn)
        for var in variables(eqn.invars)
        if maker.get(var) in run_of
        and run_of[maker[var]] != run_of.get(position)
        and not runs_backward(eqns[maker[var]])
    }


def _way(
    var: Var, eqns: Sequence[JaxprEqn], run_of: dict[int, int], maker: dict[Var, int], there: set[Var]
) -> tuple[list[int], list[Var]]:
    """The positions of fast equations that lead to a value, in order, and the values that they lack."""
    # A value that is much smaller than the derived one may be kept in its place.
    least = max(num_bytes(var) / _SMALL, _SCALAR)
    positions: set[int] = set()
    lacks: dict[Var, None] = {}
    open_ = [var]
    while open_:
        value = open_.pop()
        position = maker.get(value)
        if value is not var and (value in there or position is None or num_bytes(value) <= least):
            continue
        assert position is not None
        eqn = eqns[position]
        # Values of another run leave its loop as stacks, so they are kept in any case.
        if str(eqn.primitive.name) not in _FAST or eqn.effects or run_of.get(position) != run_of.get(maker[var]):
            lacks[value] = None
        elif position not in positions:
            positions.add(position)
            open_ += variables(eqn.invars)
    return sorted(positions), list(lacks)


class _Deriving(JaxprRewriter):
    """Derives these values before their first readers in the backward pass."""

    def __init__(self, program: ClosedJaxpr, ways: dict[Var, list[int]]) -> None:
        super().__init__(program)
        self.ways = ways

    def run(self) -> ClosedJaxpr:
        self.walk()
        return self.finish(self.program.jaxpr.outvars)

    def visit(self, eqn: JaxprEqn) -> None:
        if not runs_backward(eqn):
            # Only readers in the backward pass get the copy; the forward pass has the value anyway.
            self.eqns.append(eqn)
            return
        self._derive(eqn.invars)
        self.keep(eqn)

    def _derive(self, atoms: Sequence[Atom]) -> None:
        """Write the equations that lead to values, and those that lead to derived values which these read."""
        for var in variables(atoms):
            for place in self.ways.get(var, ()) if var not in self.names else ():
                eqn = self.program.jaxpr.eqns[place]
                if not all(made in self.names for made in eqn.outvars):
                    self._derive(eqn.invars)
                    operands = [self.read(atom) for atom in eqn.invars]
                    self.rename(eqn.outvars, self.write(eqn, operands, source_info=in_backward(eqn)))


_DIGITS = re.compile(r"\d+")

Kind: TypeAlias = tuple[Hashable, ...]
"""What is equal for equations that can stand for each other."""


def numbered(eqns: Sequence[JaxprEqn], known: dict[ByIdentity, Kind] | None = None) -> np.ndarray:
    """A number for each equation, equal for those that can stand for each other.

    Args:
        known: what is known of equations by identity, from an earlier look at a program that shares them.
    """
    known = {} if known is None else known
    first_numbers: dict[int | Kind, int] = {}
    numbers = np.empty(len(eqns), np.int64)
    for place, eqn in enumerate(eqns):
        # A loop runs on the device, so what reads or writes host memory stays where it is.
        if eqn.effects or any(space_of(var) == HOST for var in (*eqn.invars, *eqn.outvars)):
            numbers[place] = first_numbers.setdefault(place, len(first_numbers))
            continue
        key = ByIdentity(eqn)
        own = known.get(key)
        if own is None:
            own = known[key] = _class_of(eqn)
        numbers[place] = first_numbers.setdefault(own, len(first_numbers))
    return numbers


def _class_of(eqn: JaxprEqn) -> Kind:
    params = tuple((name, comparable(eqn.params[name])) for name in sorted(eqn.params))
    avals = tuple(_type_of(var) for var in (*eqn.invars, *eqn.outvars))
    where = _without_numbers(stack_of(eqn))
    # The host and the device may not share a loop body.
    return eqn.primitive, params, avals, where, eqn.ctx.compute_type


@lru_cache(maxsize=4096)
def _without_numbers(stack: str) -> str:
    # Layers differ by numbers in their paths and in nothing else.
    return _DIGITS.sub("#", stack)


def _type_of(atom: Atom) -> Hashable:
    """What distinguishes types of values."""
    aval = atom.aval
    if type(aval) is not jax.core.ShapedArray:
        return str(aval)
    return aval.shape, aval.dtype, aval.weak_type, aval.memory_space


def comparable(value: object) -> Hashable:
    """A parameter of an equation as a value that is equal for equal ones."""
    if isinstance(value, OperatorMark):
        return ("mark", value.operator, value.side, value.in_strategy, value.out_strategy, value.attributes)
    # The number of the call is left out: it differs from layer to layer.
    if isinstance(value, LayoutMark):
        return ("layout", value.requester, value.layouts, value.bprop)
    if isinstance(value, DerivativeMark):
        return ("derivative", comparable(value.of), value.positions, value.backward)
    if isinstance(value, np.ndarray | jax.Array):
        return (value.shape, str(value.dtype), np.asarray(value).tobytes())
    if isinstance(value, ClosedJaxpr):
        # Constants of bodies are compared by identity, since comparing values may take long.
        return (str(value.jaxpr), tuple(map(id, value.consts)))
    if isinstance(value, Jaxpr):
        return str(value)
    if isinstance(value, tuple | list):
        return tuple(map(comparable, value))
    return repr(value)
