"""Which equations of a program can stand for each other: the same operation with the same settings on the same types.

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
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

from sporax.base.identity import ByIdentity
from sporax.ir.marks import DerivativeMark, LayoutMark, OperatorMark
from sporax.lowering.marks.host_transfer import HOST, space_of
from sporax.lowering.rewriter import Atom, stack_of

_DIGITS = re.compile(r"\d+")

Kind: TypeAlias = tuple[Hashable, ...]
"""What is equal for equations that can stand for each other."""


def numbered(eqns: Sequence[JaxprEqn], known: dict[ByIdentity, Kind] | None = None) -> np.ndarray:
    """A number for each equation, equal for those that can stand for each other.

    Args:
        eqns: the equations.
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
        return ("layout", value.requester, value.layouts)
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
