"""How a program takes its variables and gives them back: one protocol for all forms in which they are stored between steps.

Problem: between two steps a variable may be an array of this process, a joint array of all ranks, a file, a row of a stack, or
blocks of a table over devices; the program that runs must not care. Method: a compiled program has one `VariableStorage`. It
fetches the arrays that the program takes and stores those that it returns. Reading ``raw`` of a variable from outside leads from
any form back to the array (`sporax.runtime.ranks.joint_arrays.change_form`).

| storage | form between steps |
|---|---|
| `InMemory` | an array of this process, on a device or in host memory (`host_memory`), or one over the devices of all ranks |
| `filed_variables.Filed` | some are in files |
| `stacked_variables.Stacks` | some are rows of one array |
| `placed_variables.Placed` | sharded by a plan, tables in uneven parts as blocks |
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Protocol

import jax

from sporax.base.lazy_members import dataclass

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
