"""Arguments and activations of a step that are in files: read where they are used, written where they are made.

Problem. A value on disk should be in memory only while it is needed, and a step needs its Parameters three times: in the forward
pass, in the backward pass, and for their update.

Method. The argument becomes a number (*token*). In each of the three parts of the step the value is read before its first
reader there; new values are written as soon as they are computed, and the token of that is the result. A read waits for the
latest value of the step and for the write before it, so nothing is read early; while it is used, the next one is read ahead
from the file. A write waits for all reads of the same value. Tokens connect one step with the next.

Callbacks do the reading and writing (`jax.experimental.io_callback`), so this works on all backends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Var

from sporax.lowering.flat_program import barrier, closed_jaxpr, equations_of, is_backward, stack_of

TOKEN = jax.ShapeDtypeStruct((), jnp.int32)
"""What stands for a value in a file."""


class Filed(Protocol):
    """An array in a file; see `runtime.storage.block_files`."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def read(self) -> np.ndarray[Any, Any]:
        """The values."""
        ...

    def write(self, array: Any) -> None:
        """Keep these values."""
        ...

    def prefetch(self) -> None:
        """Begin to read."""
        ...


NewFile = Callable[[str, tuple[int, ...], Any], Filed]
"""Makes a file for an array: name, shape, dtype."""


@dataclass(slots=True)
class Reads:
    """The reads of a step in their order: each begins the next one."""

    order: list[Filed] = field(default_factory=list)

    def read(self, filed: Filed, waits_for: Sequence[Any]) -> tuple[list[JaxprEqn], Var, Var, dict[Var, Any]]:
        """Equations that read an array: these, the array, a token, and constants.

        Args:
            filed: the array.
            waits_for: scalars or arrays that are there before.
        """
        place = len(self.order)
        self.order.append(filed)

        def call(*_: Any) -> tuple[Any, Any]:
            # The callback may run in another thread; `Filed` has a lock of its own.
            values = filed.read()
            # The next read starts while the program uses this value.
            if place + 1 < len(self.order):
                self.order[place + 1].prefetch()
            return values, np.int32(0)

        struct = jax.ShapeDtypeStruct(filed.shape, filed.dtype)
        eqns, (array, token), constants = equations_of(
            lambda *waits: io_callback(call, (struct, TOKEN), *waits), *waits_for
        )
        return eqns, array, token, constants


def write(filed: Filed, value: Any, tokens: Sequence[Var]) -> tuple[list[JaxprEqn], Var, dict[Var, Any]]:
    """Equations that write an array: these, a token, and constants.

    Args:
        filed: the array.
        value: its new values.
        tokens: of what comes before.
    """

    def call(array: Any, *_: Any) -> Any:
        filed.write(array)
        return np.int32(0)

    eqns, (token,), constants = equations_of(lambda *values: io_callback(call, TOKEN, *values), value, *tokens)
    return eqns, token, constants


def first_element(value: Any) -> tuple[list[JaxprEqn], Any]:
    """Equations that take one element of an array: to wait for it, without handing all of it over."""
    eqns, (element,), _ = equations_of(lambda array: array[(slice(0, 1),) * array.ndim].reshape(()), value)
    return eqns, element


def with_filed_arguments(
    program: ClosedJaxpr, filed: Mapping[int, Filed], num_updated: int, num_variables: int
) -> ClosedJaxpr:
    """The same program, whose arguments at these positions are tokens, as are the results that take their places.

    Args:
        program: flat.
        filed: arrays by position of the argument.
        num_updated: how many arguments are updated: results take their places.
        num_variables: how many arguments are variables; what follows is data.
    """
    return _Writer(program, filed, num_updated, num_variables).run()


class _Writer:
    def __init__(self, program: ClosedJaxpr, filed: Mapping[int, Filed], num_updated: int, num_variables: int) -> None:
        self.program, jaxpr = program, program.jaxpr
        self.num_updated = num_updated
        self.filed = {jaxpr.invars[position]: file for position, file in filed.items()}
        self.tokens: dict[Var, Var] = {
            # Tokens are int32 scalars: small enough that handing them over costs nothing.
            jaxpr.invars[position]: Var(jax.core.ShapedArray((), jnp.int32))
            for position in filed
        }
        self.seen: dict[Var, list[Var]] = {var: [self.tokens[var]] for var in self.filed}
        self.updates: dict[Any, Var] = {}
        for position in filed:
            # A variable that comes out unchanged needs no write.
            if position < num_updated and jaxpr.outvars[position] is not jaxpr.invars[position]:
                self.updates[jaxpr.outvars[position]] = jaxpr.invars[position]
        self.of_data = set(jaxpr.invars[num_variables:])
        self.latest: Var | None = None
        self.written: Var | None = None
        self.reads = Reads()
        self.copies: dict[tuple[int, Var], Var] = {}
        self.result: list[JaxprEqn] = []
        self.constants: dict[Var, Any] = dict(zip(jaxpr.constvars, program.consts, strict=True))

    def run(self) -> ClosedJaxpr:
        jaxpr = self.program.jaxpr
        late = [number for number, eqn in enumerate(jaxpr.eqns) if is_backward(stack_of(eqn))]
        # Three parts of the step: forward, backward, and the update behind the last backward equation.
        first, last = (late[0], late[-1]) if late else (len(jaxpr.eqns), len(jaxpr.eqns))
        for number, eqn in enumerate(jaxpr.eqns):
            part = (number >= first) + (number > last)
            for var in eqn.invars:
                if isinstance(var, Var) and var in self.filed and (part, var) not in self.copies:
                    self._read(part, var, eqn)
            invars = [var if isinstance(var, Literal) else self.copies.get((part, var), var) for var in eqn.invars]
            self.result.append(eqn.replace(invars=invars))
            # Values that depend on data show how far the step is; others may be computed at its start.
            if any(isinstance(var, Var) and var in self.of_data for var in eqn.invars):
                self.of_data.update(eqn.outvars)
                self.latest = next((var for var in eqn.outvars if _is_real(var)), self.latest)
            for var in eqn.outvars:
                if var in self.updates:
                    self._write(var)
        outvars = []
        for position, var in enumerate(jaxpr.outvars):
            own = jaxpr.invars[position] if position < self.num_updated else None
            # An unchanged variable keeps the token of its last read, so that a later write waits for it.
            if isinstance(own, Var) and own in self.filed and (var is own or self.updates.get(var) is own):
                outvars.append(self.seen[own][-1])
            elif isinstance(var, Var) and var in self.filed:
                # A result that is a variable itself must be read, since the caller wants values.
                self._read(2, var, jaxpr.eqns[-1])
                outvars.append(self.copies[2, var])
            else:
                outvars.append(var)
        arguments: list[Var] = [self.tokens.get(var, var) for var in jaxpr.invars]
        return closed_jaxpr(list(self.constants), list(self.constants.values()), arguments, outvars, self.result)

    def _read(self, part: int, var: Var, reader: JaxprEqn) -> None:
        """Read a value for a part of the step, not before the step is here."""
        waits: list[Any] = [self.seen[var][-1]]
        if self.written is not None:
            waits.append(self.written)
        # The read waits for the present moment of the step, so memory is not taken earlier.
        if self.latest is not None:
            (latest,), through = barrier([self.latest], reader)
            self.result.append(through)
            eqns, element = first_element(latest)
            self.result += eqns
            waits.append(element)
        eqns, array, token, constants = self.reads.read(self.filed[var], waits)
        self.result += eqns
        self.constants.update(constants)
        self.copies[part, var] = array
        self.seen[var].append(token)

    def _write(self, new: Var) -> None:
        """Write the new value of a variable, after all reads of the old one."""
        var = self.updates[new]
        # A file has room for one value: nobody may still read the old one.
        eqns, token, constants = write(self.filed[var], new, self.seen[var])
        self.result += eqns
        self.constants.update(constants)
        self.seen[var].append(token)
        self.written = token


def _is_real(var: Any) -> bool:
    return bool(getattr(var.aval, "size", 0)) and getattr(var.aval.dtype, "kind", "") in "fV"
