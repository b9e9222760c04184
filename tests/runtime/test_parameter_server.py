"""This process in a job with parameter servers: its role, and exchanges inside compiled steps."""

import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sporax.ir.errors import SporaxRuntimeError
from sporax.ir.placement_config import PsConfig
from sporax.runtime import parameter_server
from sporax.runtime.server_connection import Part
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
    filled = parameter_server.with_config(config, {"MS_SCHED_PORT": "8000", "HOME": "/root"})
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
        parameter_server.with_config(PsConfig(enable_ssl=True), {})
    assert parameter_server.with_config(PsConfig(enable_ssl=True), {"MS_PS_KEYS": "/keys"})["MS_PS_KEYS"] == "/keys"
    with pytest.raises(
        SporaxRuntimeError,
        match=re.escape("For 'init', 'MS_ROLE' must be one of ['MS_SCHED', 'MS_PSERVER', 'MS_SERVER'"),
    ):
        parameter_server.start(PsConfig(enable_ps=True), {}, with_ranks=False)


def test_a_worker_that_has_started_keeps_its_place(monkeypatch):
    monkeypatch.setattr(SESSION, "servers", SimpleNamespace(store=SimpleNamespace(rank=2)))
    environ = {"MS_ROLE": "MS_WORKER", "MS_WORKER_NUM": "4"}
    assert parameter_server.start(PsConfig(), environ, with_ranks=False) == (2, 4)
    assert parameter_server.start(PsConfig(), {"MS_ROLE": "MS_WORKER"}, with_ranks=False) == (2, 3)
    assert parameter_server.connection() is SESSION.servers


def test_settings_that_differ_from_the_jobs_end_the_connection():
    servers = Servers(staleness=2)
    parameter_server._check_agrees(PsConfig(staleness=2, durability="memory"), servers.store)
    parameter_server._check_agrees(PsConfig(), servers.store)
    assert servers.closed == []
    with pytest.raises(
        SporaxRuntimeError,
        match=r"^For 'set_ps_context', 'staleness' must be what the job was started with, 2, but got 0\. Start it with "
        "`sporax run --staleness=0` or MS_PS_STALENESS=0",
    ):
        parameter_server._check_agrees(PsConfig(staleness=0), servers.store)
    assert servers.closed == [False]


def test_a_compiled_step_sends_gradients_and_receives_values_in_order():
    servers, part = Servers(), Part(0, [(2,), ()], [])

    @jax.jit
    def two_steps(gradient):
        first, scalar, clock = parameter_server.exchange_in_program(
            servers, part, jnp.array([0.1]), [gradient, gradient.sum()]
        )
        second = parameter_server.exchange_in_program(servers, part, jnp.array([0.2]), [first * 2, scalar])
        return first, clock, second

    first, clock, (second, _, later) = two_steps(jnp.array([1.0, 2.0]))
    np.testing.assert_array_equal(first, [10, 10])
    np.testing.assert_array_equal(second, [20, 20])
    assert (float(clock), float(later)) == (1, 2)
    (rates, gradients), (_, later_gradients) = servers.exchanged
    assert rates == pytest.approx([0.1])
    np.testing.assert_array_equal(gradients[0], [1, 2])
    assert float(gradients[1]) == 3
    np.testing.assert_array_equal(later_gradients[0], [20, 20])


def test_a_lookup_gives_rows_and_its_gradient_goes_to_their_places():
    class Cache:
        width, capacity = 2, 4

        def places(self, servers, ids):
            places = (ids % 4).astype(np.int32)
            return places, np.stack([ids, -ids], -1).astype(np.float32)

    class Lock:
        def __enter__(self):
            held.append(True)

        def __exit__(self, *_):
            held.append(False)

    held = []
    servers = SimpleNamespace(lock=Lock())
    ids = jnp.array([[5, 6], [5, 9]])

    def loss(table):
        rows = parameter_server.lookup_in_program(servers, Cache(), table, ids)
        return (rows * jnp.array([1.0, 10.0])).sum(), rows

    gradient, rows = jax.jit(jax.grad(loss, has_aux=True))(jnp.zeros((4, 2)))
    np.testing.assert_array_equal(rows[..., 1], -ids)
    np.testing.assert_array_equal(gradient, [[0, 0], [3, 30], [1, 10], [0, 0]])  # ids 5, 5 and 9 share a place
    assert held[:2] == [True, False]
