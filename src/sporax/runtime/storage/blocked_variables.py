"""Variables that are kept in blocks between steps: tables in uneven parts, and their moments (`sporax.ir.uneven`).

Like the joint form (`sporax.runtime.ranks.joint_arrays`) this is a form a variable is in for a while: a step in the global view
leaves it in slot ``parts``, and whoever asks for ``raw`` (printing, checkpoints, another program) gets the table in rows, as
its user knows it. A loop whose step works on blocks never changes the form.
"""

from __future__ import annotations

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
