"""A planned step next to the step on one device."""

import re
from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import sporax
from sporax.base.errors import SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.lowering.execute import redistribute
from sporax.planner.communication.moves import MoveKind
from sporax.runtime.planned.verification import VerifiedFirst, _leaf
from sporax.runtime.session import SESSION

RANDOM = np.random.default_rng(0)
PARAMS = {
    name: jnp.asarray(RANDOM.normal(size=shape), jnp.float32) for name, shape in (("up", (16, 32)), ("down", (32, 16)))
}
BATCH = jnp.asarray(RANDOM.normal(size=(16, 16)), jnp.float32)


def train_step(params, batch):
    def loss(params):
        with jax.named_scope("net"):
            hidden = jax.nn.relu(batch @ params["up"])
        return ((hidden @ params["down"] - batch) ** 2).mean() + 1.0

    value, slopes = jax.value_and_grad(loss)(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, slopes), value, batch.argmax()


@pytest.fixture(scope="module")
def planned():
    return sporax.plan(train_step, PARAMS, BATCH, carry={0: 0}, fixed={1: (8, 1)})


@pytest.fixture
def wrong_sums(monkeypatch):
    """All-reduces give a little too much."""
    right = redistribute._MOVES[MoveKind.ALL_REDUCE]
    monkeypatch.setitem(redistribute._MOVES, MoveKind.ALL_REDUCE, lambda x, *other: right(x, *other) * 1.01)


def test_steps_that_are_equal_are_listed(planned):
    found = planned.verify(PARAMS, BATCH, steps=2)
    assert [leaf.name for leaf in found.leaves] == ["result[0]['down']", "result[0]['up']", "result[1]", "result[2]"]
    assert str(found).startswith(
        "2 steps are equal to one device in 4 results\n  result[0]['down'] (float32[32, 16]): "
    )
    assert all(leaf.difference < 1e-4 for leaf in found.leaves)
    assert found.leaves[3].limit == 0  # integers are not rounded


@pytest.mark.usefixtures("wrong_sums")
def test_the_first_operator_that_differs_is_named(planned):
    with pytest.raises(SporaxRuntimeError, match="3 of 4 differ beyond rounding: result") as raised:
        planned.verify(PARAMS, BATCH)
    first = re.search(r"first operator that differs is number (\d+)", str(raised.value))[1]
    assert planned.graph.operators[int(first)].name == "reduce_sum"  # of the loss: products before it are complete
    assert "sum over" in str(raised.value)


@pytest.mark.usefixtures("wrong_sums")
def test_the_first_run_is_verified_where_that_is_requested(planned, monkeypatch):
    monkeypatch.setenv("SPORAX_VERIFY_PLAN", "1")
    monkeypatch.setattr(SESSION, "verified_plan", False)
    step = planned.function()
    with pytest.raises(SporaxRuntimeError, match="those of one device"):
        step(PARAMS, BATCH)
    assert SESSION.verified_plan
    step(PARAMS, BATCH)  # the first run only


def test_a_verified_run_is_reported_once(planned, monkeypatch, capsys):
    monkeypatch.setenv("SPORAX_VERIFY_PLAN", "1")
    step = planned.function()
    for _ in range(2):
        step(PARAMS, BATCH)
    assert capsys.readouterr().err.count("sporax: verified: 1 step is equal to one device in 4 results") == 1
    assert VerifiedFirst(step, None).__name__ == step.__name__


def test_special_values_and_keys_are_compared_as_they_are():
    planned = sporax.plan(lambda x, key: (x, 1 / x, jax.random.split(key)), BATCH, jax.random.key(1), fixed={0: (8, 1)})
    found = planned.verify(BATCH.at[0, :2].set(np.nan).at[1, 1].set(0), jax.random.key(3))
    assert [leaf.difference for leaf in found.leaves] == [0, 0, 0]


def test_an_argument_that_does_not_fit_is_refused(planned):
    with pytest.raises(SporaxTypeError, match="must have the structure"):
        planned.verify(PARAMS)
    with pytest.raises(SporaxValueError, match="'steps' must be 1 or more, but got 0"):
        planned.verify(PARAMS, BATCH, steps=0)


def test_half_precision_rounds_more():
    x = jnp.linspace(0, 1, 64, dtype=jnp.bfloat16).reshape(8, 8)
    found = sporax.plan(lambda x: (x @ x).sum(), x, fixed={0: (8, 1)}).verify(x)
    assert found.leaves[0].limit > 1


def test_constraints_are_of_the_plan_alone():
    mesh = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    planned = sporax.plan(lambda x: jax.lax.with_sharding_constraint(x * 2, rows).sum() + 1, BATCH, devices=mesh)
    assert len(planned.verify(BATCH).leaves) == 1


@pytest.mark.parametrize(("planned", "is_equal"), [((1.0, 2.0), True), ((np.nan, 2.0), True), ((1.0, 5.0), False)])
def test_a_value_that_rounding_makes_nan_hides_no_other(planned, is_equal):
    alone, moved = jnp.array([1.0, 2.0], jnp.float32), jnp.array([np.nan, 2.0], jnp.float32)
    leaf = _leaf("x", jnp.array(planned, jnp.float32), alone, moved, float(jnp.finfo("float32").eps))
    assert leaf.is_equal == is_equal


def test_an_island_is_compared_with_jit_on_all_devices():
    """As `jax.pmap` makes one: it names devices, so one device cannot run it."""

    def step(params, rows):
        slopes = jax.grad(lambda p: ((jnp.tanh(rows @ p["up"]) @ p["down"] - rows) ** 2).mean())(params)
        slopes = jax.lax.pmean(slopes, "rows")
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, slopes)

    each = jax.pmap(step, axis_name="rows", in_axes=(None, 0), out_axes=None)
    planned = sporax.plan(each, PARAMS, BATCH.reshape(8, 2, 16), donate_argnums=0)
    assert all(leaf.is_equal for leaf in planned.verify(PARAMS, BATCH.reshape(8, 2, 16)).leaves)
    with pytest.raises(SporaxValueError, match=r"of 16 devices, but got 8 devices. .*`jax.pmap` is such a mesh"):
        sporax.plan(each, PARAMS, BATCH.reshape(8, 2, 16), devices=16, hardware="h100")
    # The same function, of all rows: what it reduces over is one group.
    whole = sporax.plan(jax.vmap(step, axis_name="rows", axis_size=1, in_axes=None, out_axes=None), PARAMS, BATCH)
    got = whole.function()(PARAMS, BATCH)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), got, planned.alone(PARAMS, BATCH.reshape(8, 2, 16))
    )


@pytest.mark.parametrize("where", ["in the context", "outside"])
def test_programs_on_explicit_axes_are_verified(where):
    typed = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)
    w, x = jnp.linspace(-1, 1, 64).reshape(8, 8), jnp.linspace(0, 1, 128).reshape(16, 8)
    w, x = jax.device_put((w, x), (NamedSharding(typed, P()), NamedSharding(typed, P("data"))))

    def step(w, x):
        y = jnp.einsum("bd,df->bf", x, w, out_sharding=NamedSharding(typed, P("data", "model")))
        few = (y < 0.3).astype(jnp.float32)
        return jnp.cumsum(jax.sharding.reshard(jnp.tanh(y) + few, NamedSharding(typed, P("data", None))), axis=1)

    with jax.set_mesh(typed) if where == "in the context" else nullcontext():
        done = sporax.plan(step, w, x, devices=typed).verify(w, x)
    assert done and len(done.leaves) == 1


@pytest.mark.parametrize("where", ["in the context", "outside"])
def test_an_island_on_explicit_axes_is_verified(where):
    typed = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)
    x = jax.device_put(jnp.linspace(0, 1, 128).reshape(16, 8), NamedSharding(typed, P("data")))

    def step(x):
        y = x[:0].sum(0) + jnp.tanh(x)
        rows = jax.shard_map(
            lambda y: y * jax.lax.psum(y.sum(), "data"), mesh=typed, in_specs=P("data"), out_specs=P("data")
        )
        return rows(y) + x

    with jax.set_mesh(typed) if where == "in the context" else nullcontext():
        planned = sporax.plan(step, x, devices=typed)
        assert len(planned.verify(x).leaves) == 1
        np.testing.assert_allclose(planned.function()(x), np.tanh(x) * np.tanh(x).sum() + x, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "bfloat16"])
def test_arguments_of_eight_bit_are_verified(dtype):
    x = jnp.linspace(-2, 2, 128).reshape(16, 8).astype(dtype)
    planned = sporax.plan(lambda x: x.astype(jnp.float32).sum(0), x, fixed={0: (8, 1)})
    assert planned.verify(x).leaves[0].is_equal


@pytest.mark.parametrize("has_64_bits", [True, False])
def test_numbers_in_a_program_under_named_axes_are_on_no_mesh(has_64_bits):
    """A constraint in a loop has all traced under the plan's axes; literals then say so in their types."""

    def step(key, x):
        constrained = jax.lax.scan(
            lambda c, row: (jax.lax.with_sharding_constraint(c + row, P("data")), None), x, jnp.stack([x, x])
        )[0]
        return constrained, jax.random.fold_in(key, 1), x * 2.0 + 1, x.astype(jnp.bfloat16) * 0.5

    with jax.enable_x64(has_64_bits):
        args = jax.random.key(0), jnp.ones((8, 4), jnp.float32)
        planned = sporax.plan(step, *args, devices={"data": 4, "model": 2}, mode="propagation")
        assert not any(
            isinstance(value, jax.Array) for one in planned.step.equations for value in one.literals.values()
        )
        assert [leaf.dtype for leaf in planned.verify(*args).leaves] == ["float32", "key<fry>", "float32", "bfloat16"]
