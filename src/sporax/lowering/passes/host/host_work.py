"""What the host computes works on values in host memory, and what travels is written down.

Problem. `run_on_host` only says who computes. Values of such equations keep the type of device memory, so a table in host memory
would be fetched whole, handed to the host, and returned whole.

Method. An equation of the host takes its operands from host memory: a value that came from there is taken where it is, any other
is sent once, when the first equation of the host reads it. Its results are in host memory and are fetched once, when the first
equation of the device reads them. So the transfers of the program are those that are needed, and `host.transfers` counts them.

Equations whose lowering makes arrays of its own, and those with bodies (loops, branches), keep values in device memory, and the
compiler brings these to the host: JAX refuses to mix both memories in one operation.
"""

from __future__ import annotations

from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Var

from sporax.lowering.flat_program import closed_jaxpr
from sporax.lowering.marks.host_transfer import DEVICE, HOST, moves, runs_on_host, space_of

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
    return _Writer(program).run()


class _Writer:
    def __init__(self, program: ClosedJaxpr) -> None:
        self.program = program
        self.places: dict[Any, dict[Any, Any]] = {HOST: {}, DEVICE: {}}
        self.result: list[JaxprEqn] = []
        # For each value the variable that holds it in each memory, as far as it was needed there.
        for var in (*program.jaxpr.invars, *program.jaxpr.constvars):
            self.places[space_of(var)][var] = var

    def run(self) -> ClosedJaxpr:
        jaxpr = self.program.jaxpr
        for eqn in jaxpr.eqns:
            if moves(eqn):
                self._move(eqn)
            elif runs_on_host(eqn) and _stays_there(eqn):
                self._compute(eqn)
            else:
                self.result.append(eqn.replace(invars=[self._as_typed(var) for var in eqn.invars]))
                for var in eqn.outvars:
                    self.places[space_of(var)][var] = var
        outvars = [self._as_typed(var) for var in jaxpr.outvars]
        return closed_jaxpr(jaxpr.constvars, self.program.consts, jaxpr.invars, outvars, self.result)

    def _move(self, eqn: JaxprEqn) -> None:
        """A transfer that the program has already; it is left out where the value is there."""
        (before,), (after,) = eqn.invars, eqn.outvars
        target = space_of(after)
        # The value is in host memory already, so the transfer falls away.
        if target == HOST and before in self.places[HOST]:
            self.places[HOST][after] = self.places[HOST][before]
            return
        for space in (HOST, DEVICE):
            if not isinstance(before, Literal) and before in self.places[space]:
                self.places[space][after] = self.places[space][before]
        self.result.append(eqn.replace(invars=[self._as_typed(before)]))
        self.places[target][after] = after

    def _compute(self, eqn: JaxprEqn) -> None:
        # An operation on literals alone would be typed for device memory.
        scalars = all(isinstance(var, Literal) for var in eqn.invars)
        invars = [var if isinstance(var, Literal) and not scalars else self._value(var, HOST) for var in eqn.invars]
        outvars = []
        for var in eqn.outvars:
            aval: Any = var.aval
            outvars.append(Var(aval.update(memory_space=HOST)))
            self.places[HOST][var] = outvars[-1]
        self.result.append(eqn.replace(invars=invars, outvars=outvars))

    def _as_typed(self, var: Any) -> Any:
        return var if isinstance(var, Literal) else self._value(var, space_of(var))

    def _value(self, atom: Any, space: Any) -> Any:
        """A value in one of the memories."""
        if isinstance(atom, Literal):
            return self._sent(atom, space)
        there = self.places[space]
        if atom not in there:
            there[atom] = self._sent(self.places[DEVICE if space == HOST else HOST][atom], space)
        return there[atom]

    def _sent(self, atom: Any, space: Any) -> Var:
        eqn, result = transfer(atom, space)
        self.result.append(eqn)
        return result


def transfer(atom: Any, space: Any) -> tuple[JaxprEqn, Var]:
    """An equation that brings a value to a memory, and its result."""
    # JAX builds the equation, so that its parameters fit the version of JAX.
    sub = jax.make_jaxpr(lambda array: jax.device_put(array, space))(
        jax.ShapeDtypeStruct(atom.aval.shape, atom.aval.dtype)
    )
    (eqn,) = sub.jaxpr.eqns
    result = Var(eqn.outvars[0].aval)
    return eqn.replace(invars=[atom], outvars=[result]), result


def _stays_there(eqn: JaxprEqn) -> bool:
    name = str(eqn.primitive.name)
    if name in _BY_POSITION:
        # Other modes make constants for indices out of range, which JAX types as device memory.
        return eqn.params["mode"] == jax.lax.GatherScatterMode.PROMISE_IN_BOUNDS
    return name in _PLAIN and bool(eqn.invars)
