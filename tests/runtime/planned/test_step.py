"""A step of the global view: planned, lowered, run, and where its variables are between steps."""

import jax
import jax.numpy as jnp
import numpy as np

from sporax.ir.config.parallel_config import ParallelConfig
from sporax.ir.config.plan_settings import PlanSettings
from sporax.ir.graph import Role
from sporax.ir.placement import Placement
from sporax.lowering.marks.host_transfer import is_on_host
from sporax.runtime.devices.global_view import placement_of
from sporax.runtime.planned.planning import plan_program
from sporax.runtime.session import SESSION

X = np.arange(32, dtype=np.float32).reshape(8, 4)
W = np.ones((4, 2), np.float32)


class Variable:
    """A Parameter as small as can be; lazy where it has a shape and no array."""

    def __init__(self, name, raw=None, unmade=None, on_host=False):
        self.name, self.raw, self.unmade, self.on_host = name, raw, unmade, on_host
        self.requires_grad = True

    def make_at(self, sharding):
        self.raw, self.unmade = jax.device_put(np.full(self.unmade.shape, 3, np.float32), sharding), None


def update(written, read, data):
    (weight,), (rate,), (x,) = written, read, data
    return [weight - rate * (x.T @ (x @ weight))], [(x @ weight).sum(), 7.0]


def settings(**config):
    config = {"device_num": 8, "parallel_mode": "semi_auto_parallel", **config}
    return PlanSettings(ParallelConfig(**config))


def plan(weight=None, rate=None, **config):
    weight, rate = weight or Variable("w", jnp.asarray(W)), rate or Variable("rate", jnp.float32(0.5))
    return plan_program(update, [weight], [rate], [jax.ShapeDtypeStruct(X.shape, X.dtype)], settings(**config))


def test_a_step_updates_its_variables_and_gives_its_results():
    step = plan()
    compiled = step.lower().compile()
    weight, rate = jnp.asarray(W), jnp.float32(0.5)
    updated, total, number = step.run(compiled, [weight, rate], [X])
    np.testing.assert_allclose(updated, W - 0.5 * X.T @ (X @ W))
    np.testing.assert_allclose(total, (X @ W).sum())
    assert float(number) == 7
    assert placement_of(updated, step.plan.mesh) == step.plan.inputs[len(step.step.constants)]


def test_a_variable_that_is_elsewhere_is_brought_when_the_step_runs():
    step = plan()
    elsewhere = jax.device_put(W, jax.devices()[3])
    updated, *_ = step.run(step.lower().compile(), [elsewhere, jnp.float32(0.5)], [X])
    np.testing.assert_allclose(updated, W - 0.5 * X.T @ (X @ W))


def test_data_is_sharded_and_values_are_not_kept_alive():
    step = plan()
    assert step.plan.inputs[-1] == Placement(((0, 1, 2), ()))
    assert [(argument.role, argument.name) for argument in step.arguments] == [
        (Role.PARAMETER, "w"),
        (Role.PARAMETER, "rate"),
        (Role.DATA, "input 0"),
    ]
    assert all(isinstance(argument.array, jax.ShapeDtypeStruct) for argument in step.arguments)


def test_variables_are_brought_where_the_program_wants_them_and_lazy_ones_made_there():
    lazy = Variable("w", unmade=jax.ShapeDtypeStruct(W.shape, W.dtype))
    here = Variable("rate", jnp.float32(0.5))
    step = plan(lazy, here)
    step.bring([lazy], [here])
    storage = step.stored([lazy], [here])
    assert [variable.raw.sharding for variable in (lazy, here)] == [*step.shardings[:2]]
    (before,), (rate,) = storage.fetch()
    np.testing.assert_array_equal(before, np.full((4, 2), 3))
    storage.store([before + 1])
    np.testing.assert_array_equal(lazy.raw, np.full((4, 2), 4))
    assert here.raw is rate


def test_steps_that_are_only_planned_give_zeros(monkeypatch):
    step = plan()
    assert step.unrun() is None
    monkeypatch.setattr(SESSION, "plan_only", True)
    updated, total, number = step.unrun()
    np.testing.assert_array_equal(updated, np.zeros((4, 2)))
    assert (total.shape, float(number)) == ((), 7)


def test_every_plan_is_announced(monkeypatch):
    received = []
    monkeypatch.setattr(SESSION, "plan_listeners", [received.append])
    step = plan()
    (announced,) = received
    assert announced.plan is step.plan
    assert announced.graph is step.graph


def test_a_variable_on_the_host_is_fetched_and_returned_by_the_program():
    weight = Variable("w", jnp.asarray(W), on_host=True)
    step = plan(weight)
    step.bring([weight], [])
    assert is_on_host(weight.raw)
    assert step.plan.notes[-2:] == (
        "host memory of each device: 32 B of w",
        "every device sends 32 B to its host in 1 transfers a step, and fetches 32 B in 1",
    )
    (updated, *_) = step.run(step.lower().compile(), [weight.raw, jnp.float32(0.5)], [X])
    assert is_on_host(updated)
    np.testing.assert_allclose(updated, W - 0.5 * X.T @ (X @ W))


def test_listeners_are_notified_of_steps_and_sources_have_strategies(monkeypatch):
    received, queried = [], []
    monkeypatch.setattr(SESSION, "step_listeners", [lambda step, keeps: received.append((step, keeps(None)))])
    monkeypatch.setattr(SESSION, "strategy_sources", [lambda graph, config: queried.append(config) or {}])
    step = plan()
    assert received == [(step, True)]
    assert queried == [step.settings.parallel]
    monkeypatch.setattr(SESSION, "plans_all", True)  # planned for information only
    plan()
    assert len(received) == 1
