"""Shardings in users' programs: they are kept by every search, and run as they are."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

import sporax
from sporax.base.errors import SporaxRuntimeError, SporaxValueError
from sporax.ir.marks import LayoutMark
from sporax.ir.placement import Placement
from sporax.lowering.ingest.constraints import Constraints

MODES = ("dynamic", "ilp", "recursive", "propagation", "repeated_blocks")
W, X = (
    jnp.linspace(-1, 1, 64).reshape(8, 8).astype(jnp.float32),
    jnp.linspace(0, 1, 128).reshape(16, 8).astype(jnp.float32),
)
ROWS, BOTH = Placement(((0,), ())), Placement(((0,), (1, 2)))


def mesh(*types):
    return Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"), axis_types=types or (AxisType.Auto,) * 2)


def constrained(x, *spec):
    return lax.with_sharding_constraint(x, NamedSharding(mesh(), P(*spec)))


def kept(planned):
    """Where the tensors behind constraints are, in loops and branches as well."""

    def walk(graph, plan):
        for operator, step in zip(graph.operators, plan.operators, strict=True):
            if operator.constraint:
                resharded = plan.reshardings.get(operator.results[0])
                yield step.results[0] if resharded is None else resharded.placement
            for pair in zip(operator.bodies, step.bodies, strict=True):
                yield from walk(*pair)

    return [*walk(planned.graph, planned.plan)]


def runs_as_alone(planned, function, *args):
    got = planned.function()(*jax.device_put(args, planned.in_shardings))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), got, function(*args))


def scanned(ws, x):
    @jax.checkpoint
    def layer(h, w):
        return constrained(jnp.tanh(h @ w), "data", "model"), None

    return lax.scan(layer, x, ws)[0].sum()


def looped(w, x):
    return lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, constrained(c[1] @ w, "data", "model")), (0, x))[1]


def branched(w, x):
    return lax.cond(x.sum() > 0, lambda: constrained(x @ w, "data", "model"), lambda: constrained(x, "data", "model"))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("function", "count"),
    [
        (lambda w, x: constrained(jnp.tanh(x @ w), "data", "model") @ w, 1),
        (jax.grad(lambda w, x: (constrained(jnp.tanh(x @ w), "data", "model") ** 2).mean()), 2),
        (lambda w, x: jax.jit(lambda a: a * 2, out_shardings=NamedSharding(mesh(), P("data", "model")))(x @ w), 1),
        (lambda w, x: jax.device_put(x @ w, NamedSharding(mesh(), P("data", "model"))), 1),
        (looped, 1),
        (branched, 2),
    ],
    ids=["forward", "gradient", "jit", "device_put", "while", "cond"],
)
def test_every_search_keeps_a_constraint(mode, function, count):
    planned = sporax.plan(function, W, X, devices=mesh(), mode=mode)
    assert kept(planned) == [BOTH] * count


@pytest.mark.parametrize("mode", MODES)
def test_a_constraint_in_a_scanned_layer_holds_in_both_passes_and_again(mode):
    planned = sporax.plan(jax.value_and_grad(scanned), jnp.stack([W, W]), X, devices=mesh(), mode=mode)
    # Forward, the forward pass that is computed again, and the cotangent.
    assert kept(planned)[:2] == [BOTH] * 2 and {*kept(planned)} == {BOTH}
    if mode in ("dynamic", "propagation"):
        runs_as_alone(planned, jax.value_and_grad(scanned), jnp.stack([W, W]), X)


def test_results_equal_one_device_and_moves_are_those_of_the_constraints():
    def function(x):
        return constrained(constrained(x * 2, "data", None) + 1, None, "data")

    planned = sporax.plan(function, X, devices=mesh(), in_shardings=P("data"))
    runs_as_alone(planned, function, X)
    text = planned.function().lower(*jax.device_put((X,), planned.in_shardings)).compile().as_text()
    assert text.count(" all-to-all(") + text.count(" all-to-all-start(") == 1


@pytest.mark.parametrize("mode", MODES)
def test_unconstrained_dimensions_are_left_to_the_search(mode):
    def loss(w, x):
        return (constrained(jnp.tanh(x @ w), P.UNCONSTRAINED, "model") ** 2).mean()

    planned = sporax.plan(loss, W, X, devices=mesh(), mode=mode, hardware="h100", in_shardings=(None, P("data")))
    assert all(place.dims[1] == (1, 2) for place in kept(planned))
    runs_as_alone(planned, loss, W, X)
    batch = sporax.plan(
        lambda w, x: constrained(x @ w, P.UNCONSTRAINED, None), W, X, devices=mesh(), mode=mode, out_shardings=P("data")
    )
    assert {*kept(batch)} <= {ROWS, Placement.replicated(2)}


def test_axes_are_those_of_the_plan_by_name():
    spec = NamedSharding(mesh(), P("data", ("model",)))
    (layout,) = Constraints({"model": 4, "data": 2, "one": 1}, range(8)).mark(spec, 2, "reshard").layouts
    assert str(layout) == "(data, model) on [model=4, data=2]"
    (layout,) = Constraints(ranks=range(8)).mark(spec, 3, "reshard").layouts
    assert layout.shardings == ((0,), (1,), ())


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ({"data": 4, "model": 2}, "that of the plan, data=4, model=2, but got data=2, model=4"),
        ({"x": 8}, "that of the plan, x=8, but got data=2, model=4"),
        (4, "that of the plan, of 4 devices, but got 8 devices"),
        (64, "that of the plan, of 64 devices, but got 8 devices"),
    ],
)
def test_another_mesh_is_refused_with_both(devices, message):
    with pytest.raises(SporaxValueError, match=f"For 'with_sharding_constraint', the mesh must be {message}"):
        sporax.plan(lambda x: constrained(x, "data"), X, devices=devices, hardware="h100")


def test_other_devices_are_refused():
    half = Mesh(np.array(jax.devices()[4:]), ("data",))
    with pytest.raises(SporaxValueError, match=r"of the devices \[0, 1, 2, 3\], but got \[4, 5, 6, 7\]"):
        Constraints({"data": 4}, range(4)).mark(NamedSharding(half, P("data")), 1, "reshard")


def test_names_alone_are_axes_of_the_plan_and_uneven_slices_are_refused():
    planned = sporax.plan(
        lambda x: lax.with_sharding_constraint(x * 2, P("data")), X, devices={"data": 16}, hardware="h100"
    )
    assert planned.out_shardings.mesh.shape == {"data": 16} and planned.out_shardings.spec == P("data", None)
    with pytest.raises(
        SporaxRuntimeError, match=r"'with_sharding_constraint', .* shape \(16, 8\) must be divisible by its 32"
    ):
        sporax.plan(lambda x: lax.with_sharding_constraint(x, P("data")), X, devices={"data": 32}, hardware="h100")


def test_the_constraint_is_the_users_in_summaries_and_explanations():
    planned = sporax.plan(lambda w, x: constrained(x @ w, None, "model") * 2, W, X, devices=mesh())
    row = next(line for line in str(planned.summary()).splitlines() if "with_sharding_constraint" in line)
    assert "(1,4) *" in row
    (one,) = planned.explain("with_sharding_constraint")
    assert one.chosen.results == (Placement(((), (1, 2))),) and len(one.alternatives) > 2
    assert "the user's program says this sharding" in str(one)


def test_a_parameter_may_be_stored_otherwise_than_a_constraint_reads_it():
    def step(w, x):
        return w - 0.1 * jax.grad(lambda w: ((x @ constrained(w, None, None)) ** 2).mean())(w)

    planned = sporax.plan(step, W, X, devices=mesh(), carry={0: 0}, in_shardings=(P("data"), P("data")))
    assert planned.in_shardings[0].spec == P("data", None) == planned.out_shardings.spec
    runs_as_alone(planned, step, W, X)


def test_a_mark_that_leaves_dimensions_open_is_another_mark():
    marks = [Constraints().mark(NamedSharding(mesh(), P("data", last)), 2, "") for last in (None, P.UNCONSTRAINED)]
    assert [mark.free for mark in marks] == [(), (1,)] and all(isinstance(mark, LayoutMark) for mark in marks)
    assert all(first.layouts == second.layouts for first, second in pairwise(marks))
