"""This process in a job with parameter servers: its role, and the exchange inside compiled steps.

A worker's step is one compiled program. Where its optimizer would move a parameter that servers keep, the program calls
the host instead (`jax.experimental.io_callback`): gradients go out, values come back through the `ServerConnection` of the
session.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from sporax.base.errors import SporaxRuntimeError
from sporax.ir.config.placement_config import PsConfig
from sporax.ir.variables import read
from sporax.ps.worker.row_cache import RowCache
from sporax.ps.worker.server_connection import Part, ServerConnection
from sporax.runtime import world
from sporax.runtime.session import SESSION

if TYPE_CHECKING:
    from sporax.ps.client.store import Store

ROLES = ("MS_SCHED", "MS_PSERVER", "MS_SERVER", "MS_WORKER")


def connection() -> ServerConnection | None:
    """This worker's place in a job with parameter servers; None in other jobs and before `start`."""
    return SESSION.servers


def start(config: PsConfig, environ: Mapping[str, str] = os.environ, *, with_ranks: bool) -> tuple[int, int]:
    """Take this process's role. Schedulers and servers serve here until the job is over, then exit.

    Args:
        config: the settings of `set_ps_context`.
        environ: MS_ROLE and its relatives.
        with_ranks: workers also exchange data with each other (parallel modes with collectives).

    Returns:
        Rank and number of workers.

    Raises:
        SporaxRuntimeError: no role, settings that differ from the job's, or no scheduler.
    """
    # Imported here: jobs without parameter servers never load pyzmq.
    from sporax.ps import process as ps_main
    from sporax.ps.client.store import Store
    from sporax.ps.environment import PsEnvironment
    from sporax.ps.sockets.security import keys_for

    environ = with_config(config, environ)
    role = environ.get("MS_ROLE", "")
    if role not in ROLES:
        raise SporaxRuntimeError(
            f"For 'init', 'MS_ROLE' must be one of {list(ROLES)} when enable_ps is True, but got '{role}'. Start the job "
            "with `sporax run --server_num=S --worker_num=W`, or set the variables yourself."
        )
    # The scheduler of servers also serves the ranks of a job that has both.
    if role == "MS_SCHED" and with_ranks:
        from sporax.ps.mixed_mode import serve_ranks

        serve_ranks(environ)
    if role != "MS_WORKER":
        sys.exit(ps_main.main("scheduler" if role == "MS_SCHED" else "server", environ))
    # A second `init` changes nothing.
    if SESSION.servers is not None:
        return SESSION.servers.store.rank, _workers(environ)
    place = PsEnvironment.read(environ)
    rank = int(environ["RANK_ID"]) if environ.get("RANK_ID") else -1
    if with_ranks and place.worker_num > 1:
        # The ranks join by themselves: their scheduler must not wait for the servers.
        rank = world.start({**environ, "MS_SERVER_NUM": "0"}).rank
    timeout = place.receive_timeout
    store = Store(place.scheduler, node=place.node, rank=rank, keys=keys_for(place.host, environ), timeout=timeout)
    _check_agrees(config, store)
    # The scheduler knows with how many the job began; a pod that is made later has the job's present size in its environment.
    first_workers = store.first_workers or max(1, place.worker_num)
    SESSION.servers = ServerConnection(store, first_workers=first_workers, step_seconds=timeout)
    atexit.register(SESSION.servers.close)
    return store.rank, _workers(environ)


def _workers(environ: Mapping[str, str]) -> int:
    number: int = read(environ, "MS_WORKER_NUM")
    return max(number, (SESSION.servers.store.rank + 1) if SESSION.servers else 1)


def with_config(config: PsConfig, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment, where the settings of `set_ps_context` fill what it leaves open."""
    filled = {
        "MS_ROLE": "" if config.ms_role == "MS_NOT_PS" else config.ms_role,
        "MS_WORKER_NUM": str(config.worker_num or ""),
        "MS_SERVER_NUM": str(config.server_num or ""),
        "MS_SCHED_HOST": config.scheduler_ip,
        "MS_SCHED_PORT": str(config.scheduler_port),
        "MS_PS_STALENESS": "" if config.staleness is None else str(config.staleness),
        "MS_PS_DURABILITY": config.durability,
    }
    # What the environment says wins, since the launcher writes it for the whole job.
    result = {**{name: value for name, value in filled.items() if value}, **environ}
    if config.enable_ssl and not result.get("MS_PS_KEYS"):
        raise SporaxRuntimeError(
            "For 'set_ps_context', enable_ssl=True needs the keys of the job: make them with `sporax ps keys DIR` and set "
            "MS_PS_KEYS=DIR on every machine. The p12 files of 'config_file_path' are not used; connections are encrypted "
            "with CURVE."
        )
    return result


def _check_agrees(config: PsConfig, store: Store) -> None:
    options = store.options
    # The scheduler fixed these settings for the job; a worker with others would wait or read differently.
    for name, expected, there in (
        ("staleness", config.staleness, options.staleness),
        ("durability", config.durability or None, options.durability),
    ):
        if expected is not None and expected != there:
            # The other workers need not wait for this one.
            store.close(finished=False)
            raise SporaxRuntimeError(
                f"For 'set_ps_context', '{name}' must be what the job was started with, {there!r}, but got {expected!r}. "
                f"Start it with `sporax run --{name}={expected}` or MS_PS_{name.upper()}={expected}."
            )


def sample_ranges(total: int, size: int) -> Iterator[range]:
    """Ranges of sample numbers, each for exactly one training step of this worker; see `ps.worker.step_leases`.

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
    servers: ServerConnection, part: Part, rates: jax.Array, gradients: Sequence[jax.Array]
) -> list[jax.Array]:
    """`ServerConnection.exchange` as part of a compiled program; gives the new dense values, and a number that grows.

    The calls of one process keep the order of the program where it runs alone; over several processes XLA cannot keep
    that order, so there one optimizer with served parameters is the limit.
    """
    from jax.experimental import io_callback

    # XLA keeps the order of callbacks only in programs of one process.
    alone = not world.has_peers()
    shapes = [jax.ShapeDtypeStruct(shape, np.float32) for shape in part.shapes]

    def call(rates: Any, *gradients: Any) -> tuple[Any, ...]:
        values = servers.exchange(part, np.asarray(rates), [np.asarray(gradient) for gradient in gradients])
        # Below 2**16 every whole number is exact in float32.
        return (*values, np.float32(servers.store.clock % 65536))

    # The clock is a result that later lookups can depend on.
    results = io_callback(call, (*shapes, jax.ShapeDtypeStruct((), np.float32)), rates, *gradients, ordered=alone)
    return list(results)


def lookup_in_program(servers: ServerConnection, cache: RowCache, table: jax.Array, ids: jax.Array) -> jax.Array:
    """Rows of a served table; the gradient goes to the rows' places in the cache.

    Args:
        servers: this worker's connection.
        cache: of the table.
        table: the cache's parameter, shape (capacity, width); it takes part so that lookups wait for the last update.
        ids: integers of any shape.
    """
    shapes = (
        jax.ShapeDtypeStruct(ids.shape, np.int32),
        jax.ShapeDtypeStruct((*ids.shape, cache.width), np.float32),
    )

    def call(ids: Any, _: Any) -> Any:
        with servers.lock:
            return cache.places(servers, np.asarray(ids).astype(np.int64))

    def read(ids: Any, _: Any) -> Any:
        with servers.lock:
            return cache.rows(servers, np.asarray(ids).astype(np.int64))

    @jax.custom_vjp
    def look_up(table: jax.Array, ids: jax.Array) -> jax.Array:
        # Reading one element of the table makes the lookup wait for the update before it.
        rows: jax.Array = jax.pure_callback(read, shapes[1], ids, table[0, 0])  # without a gradient: nothing to keep
        return rows.astype(table.dtype)

    def forward(table: jax.Array, ids: jax.Array) -> tuple[jax.Array, jax.Array]:
        places, rows = jax.pure_callback(call, shapes, ids, table[0, 0])
        return rows.astype(table.dtype), places

    def backward(places: jax.Array, gradient: jax.Array) -> tuple[jax.Array, None]:
        flat = gradient.reshape(-1, cache.width)
        # Rows that a step looks up twice get the sum of both gradients.
        zeros = jax.numpy.zeros((cache.capacity, cache.width), gradient.dtype)
        return zeros.at[places.reshape(-1)].add(flat), None

    look_up.defvjp(forward, backward)
    return look_up(table, ids)
