"""This process in a job with parameter servers: its role, and exchanges inside compiled steps."""

import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sporax.base.errors import SporaxRuntimeError
from sporax.ir.config.placement_config import PsConfig
from sporax.ps.worker.row_cache import RowCache
from sporax.ps.worker.server_connection import FIRST_TABLE_KEY, ServedPart, ServerConnection
from sporax.runtime.ranks import server_exchange, server_start
from sporax.runtime.ranks.server_exchange import exchange_in_program, lookup_in_program
from sporax.runtime.session import SESSION


class Servers:
    """A connection that notes what is exchanged."""

    def __init__(self, staleness=0, durability="memory"):
        self.exchanged, self.closed = [], []
        options = SimpleNamespace(staleness=staleness, durability=durability)
        self.store = SimpleNamespace(clock=0, options=options, close=lambda finished: self.closed.append(finished))

    def exchange(self, part, rates, gradients):
        self.exchanged.append(([*rates], [gradient.copy() for gradient in gradients]))
        self.store.clock += 1
        return [np.full(shape, 10.0 * self.store.clock, np.float32) for shape in part.shapes]


def test_settings_fill_what_the_environment_leaves_open():
    config = PsConfig(ms_role="MS_WORKER", worker_num=3, scheduler_port=7000, staleness=0, durability="disk")
    filled = server_start.with_config(config, {"MS_SCHED_PORT": "8000", "HOME": "/root"})
    assert filled == {
        "MS_ROLE": "MS_WORKER",
        "MS_WORKER_NUM": "3",
        "MS_SCHED_HOST": "127.0.0.1",
        "MS_SCHED_PORT": "8000",  # the environment is the launcher's
        "MS_PS_STALENESS": "0",
        "MS_PS_DURABILITY": "disk",
        "HOME": "/root",
    }


def test_encryption_without_keys_and_processes_without_role_are_refused():
    with pytest.raises(SporaxRuntimeError, match=r"^For 'set_ps_context', enable_ssl=True needs the keys of the job"):
        server_start.with_config(PsConfig(enable_ssl=True), {})
    assert server_start.with_config(PsConfig(enable_ssl=True), {"MS_PS_KEYS": "/keys"})["MS_PS_KEYS"] == "/keys"
    with pytest.raises(
        SporaxRuntimeError,
        match=re.escape("For 'init', 'MS_ROLE' must be one of ['MS_SCHED', 'MS_PSERVER', 'MS_SERVER'"),
    ):
        server_start.start(PsConfig(enable_ps=True), {}, with_ranks=False)


def test_a_worker_that_has_started_keeps_its_place(monkeypatch):
    monkeypatch.setattr(SESSION, "servers", SimpleNamespace(store=SimpleNamespace(rank=2)))
    environ = {"MS_ROLE": "MS_WORKER", "MS_WORKER_NUM": "4"}
    assert server_start.start(PsConfig(), environ, with_ranks=False) == (2, 4)
    assert server_start.start(PsConfig(), {"MS_ROLE": "MS_WORKER"}, with_ranks=False) == (2, 3)
    assert server_exchange.connection() is SESSION.servers


def test_settings_that_differ_from_the_jobs_end_the_connection():
    servers = Servers(staleness=2)
    server_start._check_agrees(PsConfig(staleness=2, durability="memory"), servers.store)
    server_start._check_agrees(PsConfig(), servers.store)
    assert servers.closed == []
    with pytest.raises(
        SporaxRuntimeError,
        match=r"^For 'set_ps_context', 'staleness' must be what the job was started with, 2, but got 0\. Start it with "
        "`sporax run --staleness=0` or MS_PS_STALENESS=0",
    ):
        server_start._check_agrees(PsConfig(staleness=0), servers.store)
    assert servers.closed == [False]


def test_a_compiled_step_sends_gradients_and_receives_values_in_order():
    servers, part = Servers(), ServedPart(0, [(2,), ()], [])

    @jax.jit
    def two_steps(gradient):
        first, _, clock = server_exchange.exchange_in_program(
            servers, part, jnp.zeros(()), jnp.array([0.1]), [gradient, gradient.sum()]
        )
        # Of nothing but the clock of the first.
        second = server_exchange.exchange_in_program(
            servers, part, clock, jnp.array([0.2]), [gradient * 20, gradient[0]]
        )
        # Next to host memory, with which JAX lowers no ordered callbacks.
        return jax.device_put(first, jax.memory.Space.Host), clock, second

    first, clock, (second, _, later) = two_steps(jnp.array([1.0, 2.0]))
    np.testing.assert_array_equal(first, [10, 10])
    np.testing.assert_array_equal(second, [20, 20])
    assert (float(clock), float(later)) == (1, 2)
    (rates, gradients), (_, later_gradients) = servers.exchanged
    assert rates == pytest.approx([0.1])
    np.testing.assert_array_equal(gradients[0], [1, 2])
    assert float(gradients[1]) == 3
    np.testing.assert_array_equal(later_gradients[0], [20, 40])


def test_a_lookup_gives_rows_and_its_gradient_goes_to_their_positions():
    class Cache:
        width, capacity = 2, 4

        def positions(self, servers, ids):
            positions = (ids % 4).astype(np.int32)
            return positions, np.stack([ids, -ids], -1).astype(np.float32)

    class Lock:
        def __enter__(self):
            held.append(True)

        def __exit__(self, *_):
            held.append(False)

    held = []
    servers = SimpleNamespace(lock=Lock())
    ids = jnp.array([[5, 6], [5, 9]])

    def loss(table):
        rows = server_exchange.lookup_in_program(servers, Cache(), table, ids)
        return (rows * jnp.array([1.0, 10.0])).sum(), rows

    gradient, rows = jax.jit(jax.grad(loss, has_aux=True))(jnp.zeros((4, 2)))
    np.testing.assert_array_equal(rows[..., 1], -ids)
    np.testing.assert_array_equal(gradient, [[0, 0], [3, 30], [1, 10], [0, 0]])  # ids 5, 5 and 9 share a position
    assert held[:2] == [True, False]


class LateStore:
    """Servers whose answers come as late as they may: each event is noted, and an answer is when it is waited for."""

    def __init__(self, staleness, events):
        self.options = SimpleNamespace(staleness=staleness)
        self.link = SimpleNamespace(incarnation=1, dismissed=False)
        self.rank, self.clock, self.is_retired, self.is_member, self.events = 0, 0, False, True, events

    def push(self, gradients, rates, rows, part, dense=True, lease=-1, weight=1.0):
        self.events.append(f"push {self.clock}")
        self.clock += 1
        return self.clock - 1

    def wait(self, ticket):
        self.events.append(f"acknowledged {ticket}")
        return True

    def start_pull(self, rows=None, dense=True, part=0, ahead=0):
        self.events.append(f"get {'rows' if rows else 'values'} {self.clock + ahead}")
        return self.clock + ahead, rows or {}

    def finish_pull(self, plan):
        clock, rows = plan
        self.events.append(f"{'rows' if rows else 'values'} {clock}")
        return [np.full(2, clock, np.float32)], {key: np.zeros((len(ids), 2), np.float32) for key, ids in rows.items()}

    def pull(self, rows=None, dense=True, part=0):
        return self.finish_pull(self.start_pull(rows, dense, part))


def compiled_steps(staleness, steps, table=None):
    """The events of compiled steps: servers' and, as ``forward n``, the device's."""
    from jax.experimental import io_callback

    events = []
    servers = ServerConnection(LateStore(staleness, events))
    tables = [] if table is None else [table]
    if table is not None:
        table.key = FIRST_TABLE_KEY
    part = ServedPart(0, [(2,)], tables, [0] * len(tables))
    servers.parts.append(part)

    @jax.jit
    def step(weight, cache, ids):
        io_callback(lambda: events.append(f"forward {servers.store.clock}"), None, ordered=True)

        def loss(weight, cache):
            rows = lookup_in_program(servers, table, cache, ids).sum() if table is not None else 0.0
            return (weight**2).sum() + rows

        gradients = jax.grad(loss, (0, 1))(weight, cache)
        (weight, number) = exchange_in_program(servers, part, weight[0], jnp.ones(1), gradients[: 1 + len(tables)])
        return weight, cache.at[0, 0].set(number)

    weight, cache = jnp.ones(2), jnp.zeros((4, 2))
    batches = [np.array([number, number + 1]) for number in range(steps)]
    for number, ids in enumerate(batches):
        if number + 1 < steps:
            servers.next_batches.announce([ids], [batches[number + 1]])
        weight, cache = step(weight, cache, ids)
    jax.block_until_ready((weight, cache))
    return events


def test_with_staleness_pushes_and_pulls_are_on_their_way_while_the_next_step_runs():
    events = compiled_steps(1, 5)
    for number in range(1, 3):
        sent, pulled = events.index(f"push {number}"), events.index(f"get values {number + 1}")
        runs = events.index(f"forward {number + 1}")
        arrives, acknowledged = events.index(f"values {number + 1}"), events.index(f"acknowledged {number}")
        assert max(sent, pulled) < runs < min(arrives, acknowledged)
    waiting = compiled_steps(0, 5)
    assert waiting.index("acknowledged 1") < waiting.index("forward 2")


@pytest.mark.parametrize("staleness", [0, 1])
def test_the_next_rows_are_on_their_way_while_this_step_runs(staleness):
    events = compiled_steps(staleness, 4, RowCache("table", 2, 4))
    for number in (1, 2):
        assert (
            events.index(f"forward {number}") < events.index(f"get rows {number + 1}") < events.index(f"push {number}")
        )
    assert f"rows {0}" in events
    assert (
        sum(event.startswith("get rows") for event in events) == 4
    )  # the first step's own, then one ahead in each step
