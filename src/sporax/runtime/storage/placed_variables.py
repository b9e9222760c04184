"""Variables of a planned step: every device has its slices between steps; tables in uneven parts are in blocks.

Variables that are kept in blocks between steps: tables in uneven parts, and their moments (`sporax.ir.uneven`).

Like the joint form (`sporax.runtime.ranks.joint_arrays`) this is a form a variable is in for a while: a step in the global view
leaves it in slot ``parts``, and whoever reads ``raw`` (printing, checkpoints, another program) gets the table in rows, as
its user knows it. A loop whose step works on blocks never changes the form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Sharding

from sporax.lowering.passes.uneven_tables import Blocked
from sporax.runtime.ranks import joint_arrays
from sporax.runtime.state import frames
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
                stored(variable, self.blocked[number], sharding)
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
            return stored(variable, self.blocked[number], self.shardings[number])
        array: jax.Array = variable.raw
        return array

    def store(self, arrays: Sequence[jax.Array]) -> None:
        """Set the arrays, or the blocks."""
        for number, (variable, array) in enumerate(zip(self.updated, arrays, strict=True)):
            if number in self.blocked:
                keep(variable, array, self.blocked[number])
            else:
                variable.raw = array

    def names(self) -> tuple[list[str], list[str]]:
        """Names of the variables."""
        return names_of(self.updated), names_of(self.read)


@dataclass(frozen=True, slots=True)
class BlockedArray:
    """An array in blocks, spread over devices.

    Attributes:
        array: the blocks.
        how: which of their rows mean something.
    """

    array: jax.Array
    how: Blocked

    def full(self) -> jax.Array:
        """The array in rows, on one device (with several processes: of every process)."""
        dim, rows = self.how.dim, self.how.rows
        # Every block has room for the largest part; rows behind the end of a smaller part are padding.
        real = np.concatenate([np.arange(size) + rows.block * number for number, size in enumerate(rows.rows)])
        with jax.ensure_compile_time_eval():  # a step that reads it may be being traced
            return jnp.asarray(np.take(np.asarray(joint_arrays.replicated(self.array)), real, dim))


def stored(variable: Any, how: Blocked, sharding: Sharding) -> jax.Array:
    """The blocks of a variable, each on its device; it takes this form if it has another."""
    parts: BlockedArray | None = frames.slot(variable, "parts")
    array: jax.Array
    if parts is not None and parts.how == how:
        return parts.array if parts.array.sharding == sharding else joint_arrays.place(parts.array, sharding)
    # A lazy table is created in blocks, so no device ever holds all of it.
    if getattr(variable, "unmade", None) is not None:
        variable.make_at(sharding, how.blocks)
        array = variable.raw
    else:
        array = joint_arrays.place(_in_blocks(np.asarray(joint_arrays.replicated(variable.raw)), how), sharding)
    keep(variable, array, how)
    return array


def keep(variable: Any, array: jax.Array, how: Blocked) -> None:
    """Leave a variable in blocks."""
    variable.parts = BlockedArray(array, how)
    # One form at a time: a second one would be out of date after the next write.
    with suppress(AttributeError):  # it was in this form already
        object.__delattr__(variable, "raw")


def _in_blocks(table: np.ndarray[Any, Any], how: Blocked) -> np.ndarray[Any, Any]:
    # The unused rows at the end of smaller parts must have some value; zeros are never read.
    blocks = np.zeros(how.shape(table.shape), table.dtype)
    source, target = np.moveaxis(table, how.dim, 0), np.moveaxis(blocks, how.dim, 0)
    for number, (start, size) in enumerate(zip(how.rows.starts, how.rows.rows, strict=True)):
        target[number * how.rows.block :][:size] = source[start : start + size]
    return blocks
