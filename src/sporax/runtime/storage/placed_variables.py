"""Variables of a planned step: every device has its slices between steps; tables in uneven parts are in blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import Sharding

from sporax.lowering.passes.uneven_tables import Blocked
from sporax.runtime.ranks import joint_arrays
from sporax.runtime.storage import blocked_variables
from sporax.runtime.storage.variables import Fetched, names_of


@dataclass(frozen=True, slots=True)
class PlacedVariables:
    """Arrays that a plan shards.

    Attributes:
        updated, read: the variables.
        shardings: where the program takes them, the updated ones first.
        blocked: by position those in blocks.
        on_host: positions of those in host memory between steps.
    """

    updated: Sequence[Any]
    read: Sequence[Any]
    shardings: Sequence[Sharding]
    blocked: Mapping[int, Blocked]
    on_host: frozenset[int]

    def bring(self) -> None:
        """Bring variables to where the program takes them; lazy ones are made there, each device its own slices.

        Updated variables would come to be there by themselves, those that are only read would be sent at every step.
        """
        variables = (*self.updated, *self.read)
        ready: list[tuple[Any, Sharding]] = []
        for number, (variable, sharding) in enumerate(zip(variables, self.shardings, strict=True)):
            # Other programs that read it, such as a prediction, must know.
            if number in self.on_host:
                variable.on_host = True
            if number in self.blocked:
                blocked_variables.stored(variable, self.blocked[number], sharding)
            elif getattr(variable, "unmade", None) is not None:
                variable.make_at(sharding)
            else:
                ready.append((variable, sharding))
        arrays = joint_arrays.place_all([variable.raw for variable, _ in ready], [sharding for _, sharding in ready])
        for (variable, _), array in zip(ready, arrays, strict=True):
            variable.raw = array

    def fetch(self) -> Fetched:
        """Their arrays; variables that have been read as rows are in blocks again."""
        arrays = [self._array(number, variable) for number, variable in enumerate((*self.updated, *self.read))]
        return arrays[: len(self.updated)], arrays[len(self.updated) :]

    def _array(self, number: int, variable: Any) -> jax.Array:
        if number in self.blocked:
            return blocked_variables.stored(variable, self.blocked[number], self.shardings[number])
        array: jax.Array = variable.raw
        return array

    def store(self, arrays: Sequence[jax.Array]) -> None:
        """Set the arrays, or the blocks."""
        for number, (variable, array) in enumerate(zip(self.updated, arrays, strict=True)):
            if number in self.blocked:
                blocked_variables.keep(variable, array, self.blocked[number])
            else:
                variable.raw = array

    def names(self) -> tuple[list[str], list[str]]:
        """Names of the variables."""
        return names_of(self.updated), names_of(self.read)
