"""What the host computes works on values in host memory, and transfers are written down.

Problem. `run_on_host` only says who computes. Values of such equations keep the type of device memory, so a table in host memory
would be fetched whole, handed to the host, and returned whole.

Method. An equation of the host takes its operands from host memory: a value that came from there is taken where it is, any other
is sent once, when the first equation of the host reads it. Its results are in host memory and are fetched once, when the first
equation of the device reads them. So the transfers of the program are those that are needed, and `host.transfers` counts them.

Equations whose lowering makes arrays of its own, and those with bodies (loops, branches), keep values in device memory, and the
compiler brings these to the host: JAX refuses to mix both memories in one operation.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Var

from sporax.lowering.marks.host_transfer import DEVICE, HOST, Space, moves, runs_on_host, space_of, transferred
from sporax.lowering.rewriter import Atom, JaxprRewriter, aval_of

_PLAIN = frozenset(
    "abs add add_any and broadcast_in_dim concatenate convert_element_type copy cos div dot_general eq erf exp expm1 floor ge gt "
    "integer_pow is_finite le log log1p logistic lt max min mul ne neg not or pow reduce_and reduce_max reduce_min reduce_or "
    "reduce_prod reduce_sum rem reshape round rsqrt select_n sign sin slice sqrt square squeeze sub tanh transpose xor".split()
)
"""Operations that compile for values in either memory."""
_BY_POSITION = frozenset(("gather", "scatter", "scatter-add"))
"""Operations that do so where positions are in range: what is done with others needs constants."""


def in_host_memory(program: ClosedJaxpr) -> ClosedJaxpr:
    """The same flat program; equations of the host read and leave values in host memory."""
    if not any(map(runs_on_host, program.jaxpr.eqns)):
        return program
    return _InHostMemory(program).run()


class _InHostMemory(JaxprRewriter):
    """Writes transfers.

    Attributes:
        held: by memory, and by value of the old program, the variable that holds it there, as far as it was needed.
    """

    def __init__(self, program: ClosedJaxpr) -> None:
        super().__init__(program)
        self.held: dict[Space, dict[Var, Atom]] = {HOST: {}, DEVICE: {}}
        self._computed([*program.jaxpr.invars, *program.jaxpr.constvars])

    def visit(self, eqn: JaxprEqn) -> None:
        if moves(eqn):
            self._move(eqn)
        elif runs_on_host(eqn) and _stays_there(eqn):
            self._compute(eqn)
        else:
            self.keep(eqn)
            self._computed(eqn.outvars)

    def read(self, atom: Atom) -> Atom:
        """A value in the memory that its type says."""
        return atom if isinstance(atom, Literal) else self._value(atom, space_of(atom))

    def _computed(self, values: Sequence[Var]) -> None:
        for var in values:
            self.held[space_of(var)][var] = var

    def _move(self, eqn: JaxprEqn) -> None:
        """A transfer that the program has already; it is left out where the value is there."""
        (before,), (after,) = eqn.invars, eqn.outvars
        target = space_of(after)
        # A literal is nowhere.
        there = {space: held[before] for space, held in self.held.items() if isinstance(before, Var) and before in held}
        if target == HOST and HOST in there:
            self.held[HOST][after] = there[HOST]
            return
        for space, value in there.items():
            self.held[space][after] = value
        self.keep(eqn)
        self.held[target][after] = after

    def _compute(self, eqn: JaxprEqn) -> None:
        # An operation on literals alone would be typed for device memory.
        scalars = all(isinstance(var, Literal) for var in eqn.invars)
        invars = [var if isinstance(var, Literal) and not scalars else self._value(var, HOST) for var in eqn.invars]
        outvars = [Var(aval.update(memory_space=HOST)) for aval in map(aval_of, eqn.outvars)]
        self.held[HOST].update(zip(eqn.outvars, outvars, strict=True))
        self.keep(eqn, invars=invars, outvars=outvars)

    def _value(self, atom: Atom, space: Space) -> Atom:
        """A value in one of the memories."""
        if isinstance(atom, Literal):
            return transferred(self, atom, space)
        there = self.held[space]
        if atom not in there:
            there[atom] = transferred(self, self.held[DEVICE if space == HOST else HOST][atom], space)
        return there[atom]


def _stays_there(eqn: JaxprEqn) -> bool:
    name = str(eqn.primitive.name)
    if name in _BY_POSITION:
        # Other modes make constants for indices out of range, which JAX types as device memory.
        return eqn.params["mode"] == jax.lax.GatherScatterMode.PROMISE_IN_BOUNDS
    return name in _PLAIN and bool(eqn.invars)
