"""The exchange of a worker with parameter servers, inside compiled steps.

A worker's step is one compiled program. Where its optimizer would move a parameter that servers keep, the program calls
the host instead (`jax.experimental.io_callback`): gradients go out, values come back through the `ServerConnection` of the
session.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from sporax.base.errors import SporaxRuntimeError
from sporax.runtime.session import SESSION

if TYPE_CHECKING:
    from sporax.ps.worker.row_cache import RowCache
    from sporax.ps.worker.server_connection import ServedPart, ServerConnection

ROLES = ("MS_SCHED", "MS_PSERVER", "MS_SERVER", "MS_WORKER")


def connection() -> ServerConnection | None:
    """This worker's place in a job with parameter servers; None in other jobs and before `server_start.start`."""
    return SESSION.servers


def sample_ranges(total: int, size: int) -> Iterator[range]:
    """Ranges of sample numbers, each for exactly one training step of this worker; see `ps.worker.server_connection.StepLeases`.

    Every sample below `total` counts exactly once in the parameters on the servers, whichever processes are killed.

    Args:
        total: number of samples of the whole job, all epochs together.
        size: samples of one worker's step.

    Raises:
        SporaxRuntimeError: this process is not a worker of a job with parameter servers, or has several optimizers.
    """
    servers = SESSION.servers
    if servers is None:
        raise SporaxRuntimeError(
            "For 'sample_ranges', this process must be a worker of a job with parameter servers, but is not: call init() "
            "after set_ps_context(enable_ps=True)."
        )
    return servers.leases.ranges(total, size, servers.step_seconds)


def exchange_in_program(
    servers: ServerConnection, part: ServedPart, before: jax.Array, rates: jax.Array, gradients: Sequence[jax.Array]
) -> list[jax.Array]:
    """`ServerConnection.exchange` as part of a compiled program; gives the new dense values, and a number that grows.

    Each call waits for the number of the one `before`: JAX lowers ordered callbacks neither in programs of several processes
    nor next to host memory.
    """
    from jax.experimental import io_callback

    shapes = [jax.ShapeDtypeStruct(shape, np.float32) for shape in part.shapes]

    def call(_: object, rates: Any, *gradients: Any) -> tuple[Any, ...]:
        values = servers.exchange(part, np.asarray(rates), [np.asarray(gradient) for gradient in gradients])
        # Below 2**16 every whole number is exact in float32.
        return (*values, np.float32(servers.store.clock % 65536))

    # The clock is a result that later lookups can depend on.
    return list(io_callback(call, (*shapes, jax.ShapeDtypeStruct((), np.float32)), before, rates, *gradients))


def lookup_in_program(servers: ServerConnection, cache: RowCache, table: jax.Array, ids: jax.Array) -> jax.Array:
    """Rows of a served table; the gradient goes to the rows' places in the cache.

    Args:
        table: the cache's parameter, shape (capacity, width); it takes part so that lookups wait for the last update.
        ids: integers of any shape.
    """
    shapes = (jax.ShapeDtypeStruct(ids.shape, np.int32), jax.ShapeDtypeStruct((*ids.shape, cache.width), np.float32))

    def call(ids: Any, _: Any) -> Any:
        with servers.lock:
            return cache.positions(servers, np.asarray(ids).astype(np.int64))

    def read(ids: Any, _: Any) -> Any:
        with servers.lock:
            return cache.rows(servers, np.asarray(ids).astype(np.int64))

    @jax.custom_vjp
    def look_up(table: jax.Array, ids: jax.Array) -> jax.Array:
        # Reading one element of the table makes the lookup wait for the update before it.
        rows: jax.Array = jax.pure_callback(read, shapes[1], ids, table[0, 0])  # without a gradient: nothing to keep
        return rows.astype(table.dtype)

    def forward(table: jax.Array, ids: jax.Array) -> tuple[jax.Array, jax.Array]:
        positions, rows = jax.pure_callback(call, shapes, ids, table[0, 0])
        return rows.astype(table.dtype), positions

    def backward(positions: jax.Array, gradient: jax.Array) -> tuple[jax.Array, None]:
        flat = gradient.reshape(-1, cache.width)
        # Rows that a step looks up twice get the sum of both gradients.
        zeros = jax.numpy.zeros((cache.capacity, cache.width), gradient.dtype)
        return zeros.at[positions.reshape(-1)].add(flat), None

    look_up.defvjp(forward, backward)
    return look_up(table, ids)
