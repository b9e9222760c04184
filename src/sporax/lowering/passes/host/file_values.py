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
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback
from jax.extend.core import ClosedJaxpr, JaxprEqn, Var

from sporax.lowering.rewriter import Atom, JaxprRewriter, aval_of, runs_backward, variables

TOKEN = jax.ShapeDtypeStruct((), jnp.int32)
"""What stands for a value in a file."""


class ArrayInFile(Protocol):
    """An array in a file; see `runtime.storage.block_files`."""

    shape: tuple[int, ...]
    dtype: np.dtype

    def read(self) -> np.ndarray:
        """The values."""

    def write(self, array: np.ndarray) -> None:
        """Keep these values."""

    def prefetch(self) -> None:
        """Begin to read."""


NewFile = Callable[[str, tuple[int, ...], np.dtype], ArrayInFile]
"""Makes a file for an array: name, shape, dtype."""


@dataclass(slots=True)
class Reads:
    """The reads of a step in their order: each begins the next one."""

    order: list[ArrayInFile] = field(default_factory=list)

    def read(self, writer: JaxprRewriter, filed: ArrayInFile, waits_for: Sequence[Atom]) -> tuple[Atom, Atom]:
        """Write the equations that read an array; gives the array and a token.

        Args:
            waits_for: scalars or arrays that are there before.
        """
        place = len(self.order)
        self.order.append(filed)

        def call(*_: np.ndarray) -> tuple[np.ndarray, np.int32]:
            # The callback may run in another thread; `ArrayInFile` has a lock of its own.
            values = filed.read()
            # The next read starts while the program uses this value.
            if place + 1 < len(self.order):
                self.order[place + 1].prefetch()
            return values, np.int32(0)

        struct = jax.ShapeDtypeStruct(filed.shape, filed.dtype)
        array, token = writer.emit(lambda *waits: io_callback(call, (struct, TOKEN), *waits), *waits_for)
        return array, token


def write(writer: JaxprRewriter, filed: ArrayInFile, value: Atom, tokens: Sequence[Atom]) -> Atom:
    """Write the equations that write an array to its file; gives a token.

    Args:
        tokens: of what comes before.
    """

    def call(array: np.ndarray, *_: np.ndarray) -> np.int32:
        filed.write(array)
        return np.int32(0)

    (token,) = writer.emit(lambda *values: io_callback(call, TOKEN, *values), value, *tokens)
    return token


def first_element(writer: JaxprRewriter, value: Atom) -> Atom:
    """Take one element of an array: to wait for it, without handing all of it over."""
    return writer.emit(lambda array: array[(slice(0, 1),) * array.ndim].reshape(()), value)[0]


def with_filed_arguments(
    program: ClosedJaxpr, filed: Mapping[int, ArrayInFile], num_updated: int, num_variables: int
) -> ClosedJaxpr:
    """The same program, whose arguments at these positions are tokens, as are the results that take their places.

    Args:
        program: flat.
        filed: arrays by position of the argument.
        num_updated: how many arguments are updated: results take their places.
        num_variables: how many arguments are variables; what follows is data.
    """
    return _WithFiles(program, filed, num_updated, num_variables).run()


class _WithFiles(JaxprRewriter):
    """Reads and writes the files of a step.

    Attributes:
        filed: the array of each variable in a file.
        tokens: what stands for it among the arguments.
        seen: tokens of its reads and writes, in order.
        updates: by new value the variable.
        of_data: values that depend on data.
        latest: the last of these so far.
        written: token of the last write.
        parts: for each part of the step what variables are called there.
    """

    def __init__(
        self, program: ClosedJaxpr, filed: Mapping[int, ArrayInFile], num_updated: int, num_variables: int
    ) -> None:
        super().__init__(program)
        jaxpr = program.jaxpr
        self.num_updated = num_updated
        self.filed = {jaxpr.invars[position]: file for position, file in filed.items()}
        # Tokens are int32 scalars: small enough that handing them over costs nothing.
        self.tokens: dict[Var, Var] = {var: Var(jax.core.ShapedArray((), jnp.int32)) for var in self.filed}
        self.seen: dict[Var, list[Atom]] = {var: [self.tokens[var]] for var in self.filed}
        # A variable that comes out unchanged needs no write.
        self.updates: dict[Atom, Var] = {
            jaxpr.outvars[position]: jaxpr.invars[position]
            for position in filed
            if position < num_updated and jaxpr.outvars[position] is not jaxpr.invars[position]
        }
        self.of_data = set(jaxpr.invars[num_variables:])
        self.latest: Var | None = None
        self.written: Atom | None = None
        self.reads = Reads()
        self.parts: tuple[dict[Var, Atom], ...] = ({}, {}, {})

    def run(self) -> ClosedJaxpr:
        jaxpr = self.program.jaxpr
        late = [number for number, eqn in enumerate(jaxpr.eqns) if runs_backward(eqn)]
        # Three parts of the step: forward, backward, and the update behind the last backward equation.
        first, last = (late[0], late[-1]) if late else (len(jaxpr.eqns), len(jaxpr.eqns))
        for number, eqn in enumerate(jaxpr.eqns):
            self.names = self.parts[(number >= first) + (number > last)]
            self.visit(eqn)
        self.names = self.parts[2]
        outvars = [self._result(position, var) for position, var in enumerate(jaxpr.outvars)]
        return self.finish(outvars, [self.tokens.get(var, var) for var in jaxpr.invars])

    def visit(self, eqn: JaxprEqn) -> None:
        read = variables(eqn.invars)
        for var in read:
            self._read(var, eqn)
        self.keep(eqn)
        # Values that depend on data show how far the step is; others may be computed at its start.
        if not self.of_data.isdisjoint(read):
            self.of_data.update(eqn.outvars)
            self.latest = next((var for var in eqn.outvars if _is_real(var)), self.latest)
        for var in eqn.outvars:
            if var in self.updates:
                self._write(var)

    def _result(self, position: int, var: Atom) -> Atom:
        """What the program returns in place of a result."""
        if not isinstance(var, Var):
            return var
        for own in self.program.jaxpr.invars[position : position + 1] if position < self.num_updated else ():
            # An unchanged variable keeps the token of its last read, so that a later write waits for it.
            if own in self.filed and own in (var, self.updates.get(var)):
                return self.seen[own][-1]
        if var not in self.filed:
            return var
        # A result that is a variable itself must be read, since the caller wants values.
        self.names.pop(var, None)
        self._read(var, self.program.jaxpr.eqns[-1])
        return self.read(var)

    def _read(self, var: Var, reader: JaxprEqn) -> None:
        """Read a variable for this part of the step, if that is not done yet, and not before the step is here."""
        if var not in self.filed or var in self.names:
            return
        waits: list[Atom] = [self.seen[var][-1]]
        if self.written is not None:
            waits.append(self.written)
        # The read waits for the present moment of the step, so memory is not taken earlier.
        if self.latest is not None:
            waits.append(first_element(self, self.barrier([self.latest], reader)[0]))
        self.names[var], token = self.reads.read(self, self.filed[var], waits)
        self.seen[var].append(token)

    def _write(self, new: Var) -> None:
        """Write the new value of a variable, after all reads of the old one."""
        var = self.updates[new]
        # A file has room for one value: no reader of the old one may be left.
        self.written = write(self, self.filed[var], new, self.seen[var])
        self.seen[var].append(self.written)


def _is_real(var: Atom) -> bool:
    return bool(getattr(var.aval, "size", 0)) and getattr(aval_of(var).dtype, "kind", "") in "fV"
