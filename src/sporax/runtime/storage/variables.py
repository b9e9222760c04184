"""How a program takes its variables and gives them back: one protocol for all forms in which they are stored between steps.

Problem: between two steps a variable may be an array of this process, a joint array of all ranks, a file, a row of a stack, or
blocks of a table over devices; the program that runs must not care. Method: a compiled program has one `VariableStorage`. It
fetches the arrays that the program takes and stores those that it returns. Reading ``raw`` of a variable from outside leads from
any form back to the array (`sporax.runtime.ranks.joint_arrays.change_form`).

| storage | form between steps |
|---|---|
| `InMemory` | an array of this process, on a device or in host memory (`host_memory`), or one over the devices of all ranks |
| `block_files.Filed` | some are in files |
| `Stacks` | some are rows of one array |
| `placed_variables.PlacedVariables` | sharded by a plan, tables in uneven parts as blocks |

`Stacks`: a step whose blocks run in a loop takes and returns their Parameters, and the state of these, as stacks
(`sporax.lowering.passes.repeat.stacked_arguments`). Between steps each variable has a `RowInStack` in slot ``row`` and no array
of its own. Whoever reads ``raw`` (printing, a checkpoint, another program) gets a copy of the row, and the variable is in
local form again, until a step with stacks takes it; what is assigned to a variable likewise is in local form. So a variable is in
one form at a time, as in `sporax.runtime.ranks.joint_arrays`.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any, Protocol

import jax
import jax.numpy as jnp

from sporax.base.lazy_members import dataclass

if TYPE_CHECKING:
    from sporax.lowering.passes.repeat.stacked_arguments import Stacked

Fetched = tuple[list[jax.Array], list[jax.Array]]
"""What a program takes for the variables that it updates, and for those that it only reads."""


class VariableStorage(Protocol):
    """The variables of one program, as it takes them and returns them."""

    def fetch(self) -> Fetched:
        """What the program takes."""

    def store(self, arrays: Sequence[jax.Array]) -> None:
        """Give the updated variables what the program returned for them."""

    def names(self) -> tuple[list[str], list[str]]:
        """Names of what `fetch` gives."""


@dataclass(frozen=True, slots=True)
class InMemory:
    """Arrays in memory, all in one form.

    Attributes:
        updated, read: the variables.
        slot: attribute that brings a variable to the form and has its array: ``"raw"`` for an array of this process, ``"joint"``
            for one over the devices of all ranks.
    """

    updated: Sequence[Any] = ()
    read: Sequence[Any] = ()
    slot: str = "raw"

    def fetch(self) -> Fetched:
        """Their arrays."""
        array_of = attrgetter(self.slot)
        return list(map(array_of, self.updated)), list(map(array_of, self.read))

    def store(self, arrays: Sequence[jax.Array]) -> None:
        """Set the arrays."""
        for variable, array in zip(self.updated, arrays, strict=True):
            setattr(variable, self.slot, array)

    def names(self) -> tuple[list[str], list[str]]:
        """Names of the variables."""
        return names_of(self.updated), names_of(self.read)


def names_of(variables: Sequence[Any]) -> list[str]:
    """Names of variables."""
    return [variable.name for variable in variables]


_row = attrgetter("row")
_raw = attrgetter("raw")


@dataclass(slots=True, eq=False)
class Stack:
    """An array whose rows are variables.

    Attributes:
        variables: they, in order.
        array: their values now.
    """

    variables: tuple[Any, ...]
    array: jax.Array


@dataclass(frozen=True, slots=True)
class RowInStack:
    """Where a variable is."""

    stack: Stack
    index: int

    def full(self) -> jax.Array:
        """The values, as an array of their own."""
        with jax.ensure_compile_time_eval():  # a step that reads it may be being traced
            array: jax.Array = _taken(self.stack.array, self.index)
            return array


# Compiled with the index as an argument: one program serves all rows.
@jax.jit
def _taken(stack: jax.Array, index: int) -> jax.Array:
    row: jax.Array = jax.lax.dynamic_index_in_dim(stack, index, keepdims=False)
    return row


@jax.jit
def _stacked(*rows: jax.Array) -> jax.Array:
    return jnp.stack(rows)


@dataclass(slots=True)
class StackedVariables:
    """Variables that a program takes as a stack; remembers the stack that they were in last."""

    variables: tuple[Any, ...]
    stack: Stack | None = None

    def take(self) -> jax.Array:
        """The stack of their values; they are rows of it from now on."""
        stack = self._present()
        # At least one of them was assigned or read: the stack is built again from all.
        if stack is None:
            stack = Stack(self.variables, _stacked(*map(_raw, self.variables)))
            for index, variable in enumerate(self.variables):
                variable.row = RowInStack(stack, index)
                del variable.raw
        self.stack = stack
        return stack.array

    def _present(self) -> Stack | None:
        """The stack that all of them are in; None where one has been read or assigned to."""
        try:
            rows = list(map(_row, self.variables))
        except AttributeError:
            return None
        stack: Stack = rows[0].stack
        # Comparing tuples by identity is much quicker than their elements, and the usual case.
        same = stack.variables is self.variables or all(map(is_, stack.variables, self.variables))
        if len(stack.variables) != len(rows) or not same:
            return None
        return stack if all(row.stack is stack for row in rows) else None

    def put(self, array: jax.Array) -> None:
        """Give them new values, as a stack."""
        assert self.stack is not None  # they were taken for the step that ended
        # Rows follow by themselves: each one looks into the stack when it is read.
        self.stack.array = array


@dataclass(frozen=True, slots=True)
class Stacks:
    """Variables of a program some of which are rows of stacks.

    Attributes:
        updated, read: groups.
        alone_updated, alone_read: the other variables.
    """

    updated: tuple[StackedVariables, ...]
    alone_updated: tuple[Any, ...]
    read: tuple[StackedVariables, ...]
    alone_read: tuple[Any, ...]

    def fetch(self) -> Fetched:
        """Stacks, and the arrays of the other variables."""
        updated = [*(group.take() for group in self.updated), *map(_raw, self.alone_updated)]
        return updated, [*(group.take() for group in self.read), *map(_raw, self.alone_read)]

    def names(self) -> tuple[list[str], list[str]]:
        """A stack has the names of its first and its last variable."""

        def of(groups: Sequence[StackedVariables], alone: Sequence[Any]) -> list[str]:
            stacks = (f"{group.variables[0].name} ... {group.variables[-1].name}" for group in groups)
            return [*stacks, *names_of(alone)]

        return of(self.updated, self.alone_updated), of(self.read, self.alone_read)

    def store(self, arrays: Sequence[jax.Array]) -> None:
        """Set the stacks, and the arrays of the other variables."""
        # More values follow than there are groups: those of the variables that stand alone.
        for group, array in zip(self.updated, arrays, strict=False):
            group.put(array)
        for variable, array in zip(self.alone_updated, arrays[len(self.updated) :], strict=True):
            variable.raw = array


def stacks_of(stacked: Stacked, written: Sequence[Any], read: Sequence[Any]) -> Stacks:
    """The groups of a program over its variables."""

    def divided(variables: Sequence[Any], groups: Sequence[Sequence[int]]) -> tuple[Any, Any]:
        inside = {number for group in groups for number in group}
        complete = tuple(StackedVariables(tuple(variables[number] for number in group)) for group in groups)
        return complete, tuple(variable for number, variable in enumerate(variables) if number not in inside)

    return Stacks(*divided(written, stacked.updated), *divided(read, stacked.read))


def may_be_row(variable: Any) -> bool:
    """Whether a variable may be held as a row: a Parameter in device memory."""
    # Rows of a stack are in device memory together, so none may be on the host.
    return hasattr(type(variable), "row") and not getattr(variable, "on_host", False)
