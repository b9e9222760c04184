"""Callbacks of the host in a program of many devices: once a call, as in a program of one.

Problem: inside of `shard_map` every device would call the host, so logs and counters would be manifold. Method: callbacks have
whole operands everywhere. The first device of each process calls; the results of the first device of all are sent to the others,
bit by bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.experimental import io_callback

from sporax.lowering.execute.local_task import Array, LocalTask

HOST_CALLS = frozenset(["pure_callback", "io_callback", "debug_callback", "debug_print"])
"""Primitives that run Python on the host."""


def call_once(task: LocalTask, names: tuple[str, ...], operands: Sequence[Array]) -> list[Array]:
    """The results of a callback, on every device those of the first one.

    Args:
        task: the callback.
        names: of the axes of the surrounding `shard_map`, all of them.
        operands: whole.
    """
    place, specs, params = jax.lax.axis_index(names), task.operation.results, task.operation.params

    def call(arrays: Sequence[Array]) -> list[Array]:
        # JAX has ordered callbacks of this kind for one device alone.
        if "Ordered" in type(params.get("effect")).__name__ and "debug" in task.operation.name:
            return list(io_callback(lambda *values: tuple(params["callback"](*values)), (), *arrays, ordered=True))
        return task.bind(arrays, params)

    def nothing(arrays: Sequence[Array]) -> list[Array]:
        return [jnp.zeros(spec.shape, spec.dtype) for spec in specs]

    calls = jnp.isin(place, jnp.asarray(_first_of_processes(task.mesh.ranks), place.dtype))
    results: list[Array] = jax.lax.cond(calls, call, nothing, list(operands))
    return [_of_first(result, place == 0, names) for result in results]


def _first_of_processes(ranks: Sequence[int]) -> list[int]:
    """The place of each process's first device among those of a mesh."""
    devices = jax.devices()
    firsts: dict[int, int] = {}
    for place, rank in enumerate(ranks):
        firsts.setdefault(devices[rank].process_index, place)
    return [*firsts.values()]


def _of_first(x: Array, is_first: Array, names: tuple[str, ...]) -> Array:
    """The first device's array, in a sum of bits to which no other device adds."""
    if jnp.iscomplexobj(x):
        return jax.lax.complex(_of_first(x.real, is_first, names), _of_first(x.imag, is_first, names))
    # What is narrower than 32 bits is widened, since not every backend adds it up.
    width = jnp.dtype(f"uint{8 * x.dtype.itemsize}")
    bits = x.astype(width) if x.dtype == bool else jax.lax.bitcast_convert_type(x, width)
    wide = jnp.where(is_first, bits.astype(jnp.promote_types(width, jnp.uint32)), 0)
    sent = jax.lax.psum(wide, names).astype(width)
    return sent.astype(bool) if x.dtype == bool else jax.lax.bitcast_convert_type(sent, x.dtype)
