"""`jax.shard_map` inside of planned functions: the body runs as it is, and equals the function without a plan."""

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, Mesh, PartitionSpec as P

import sporax
from sporax.base.errors import SporaxNotImplementedError, SporaxValueError
from sporax.ir.placement import Placement

W, X = (
    jnp.linspace(-1, 1, 64).reshape(8, 8).astype(jnp.float32),
    jnp.linspace(0, 1, 128).reshape(16, 8).astype(jnp.float32),
)
GRID = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))
RING = Mesh(np.array(jax.devices()), ("x",))


def summed(a):
    return jax.shard_map(lambda a: lax.psum((a**2).sum(), "x"), mesh=RING, in_specs=P("x"), out_specs=P())(a)


@jax.shard_map(
    mesh=GRID,
    in_specs=(P("data"), P(None, "model")),
    out_specs=(P(("data", "model"), None), P("data", "model")),
    check_vma=False,
)
def traded(a, w):
    y = lax.ppermute(a @ w, "data", [(0, 1), (1, 0)])
    whole = lax.all_gather(y, "model", axis=1, tiled=True) * (1 + lax.axis_index("model"))
    return whole, lax.psum_scatter(a, "model", scatter_dimension=1, tiled=True)


def trained(w, x):
    return sum((part**2).mean() for part in traded(jnp.tanh(x @ w), w))


@jax.shard_map(mesh=GRID, in_specs=(P("data", "model"), P("model", None)), out_specs=P("data"))
def layer(h, w):
    return jnp.tanh(lax.psum(h @ w, "model"))


def scanned(w, x):
    return lax.scan(jax.checkpoint(lambda h, w: (layer(h, w), h.sum())), x, jnp.stack([w, 0.3 * w]))[0].sum()


@jax.shard_map(mesh=RING, in_specs=P("x"), out_specs=(P("x"), P()), check_vma=False)
def controlled(a):
    def turn(c, _):
        return lax.ppermute(c, "x", [(i, (i + 1) % 8) for i in range(8)]) + lax.pmean(c, "x"), c.sum()

    c, sums = lax.scan(turn, a, None, length=2)
    c = lax.cond(lax.axis_index("x") % 2 == 0, lambda q: q * 2, lambda q: q, c)
    return lax.fori_loop(0, 2, lambda _, v: v + lax.pmax(v, "x"), c), lax.psum(sums, "x")


@jax.shard_map(mesh=GRID, in_specs=(P(None, "data"), P("data")), out_specs=P(), axis_names={"data"})
def partly(a, w):
    return lax.psum(a @ w, "data")


@jax.shard_map(mesh=GRID, in_specs=P("data"), out_specs=P("data"), axis_names={"data"})
def nested(a):
    inner = jax.shard_map(
        lambda z: lax.psum(z, "model"), in_specs=P(None, "model"), out_specs=P(None, None), axis_names={"model"}
    )
    return inner(a) * 2 + lax.axis_index("data")


def both_axes(x):
    pairs = [(i, (i + 3) % 8) for i in range(8)]
    return jax.shard_map(
        lambda a: lax.ppermute(a, ("data", "model"), pairs) + lax.axis_index(("data", "model")),
        mesh=GRID, in_specs=P(("data", "model")), out_specs=P(("data", "model")), check_vma=False,
    )(x)  # fmt: skip


@jax.shard_map(mesh=RING, in_specs=P("x"), out_specs=(P(), P("x")))
def partial_by_type(a):
    partial = lax.pcast(jnp.sin(a.T), "x", to="unreduced")
    return lax.psum(partial, "x"), lax.psum_scatter(partial, "x", scatter_dimension=0, tiled=True)


def typed(a):
    total, scattered = partial_by_type(a)
    return total * 2 + scattered


@jax.shard_map(mesh=RING, in_specs=(P(), P("x")), out_specs=P())
def reduced_inside(w, x):
    def loss(w):
        return jnp.tanh(x @ lax.pcast(w, "x", to="varying")).sum()

    return lax.psum(jax.grad(loss)(lax.pcast(w, "x", to="reduced")), "x")


FUNCTIONS = {
    "reduction": jax.value_and_grad(lambda w, x: summed(2 * (x @ w))),
    "every collective": jax.value_and_grad(trained),
    "scan and remat": jax.value_and_grad(scanned),
    "control flow": lambda w, x: controlled(x @ w),
    "some axes": jax.grad(lambda w, x: (partly(jnp.sin(x), w) ** 2).sum()),
    "an island in an island": lambda w, x: nested(x),
    "two axes": lambda w, x: both_axes(x),
    "exchange": lambda w, x: jax.shard_map(
        lambda a: lax.all_to_all(a, "x", 1, 0, tiled=True), mesh=RING, in_specs=P("x"), out_specs=P(None, "x")
    )(x),
    "partial sums by type": jax.value_and_grad(lambda w, x: typed(x @ w).sum()),
    "a weight whose gradient is partial": lambda w, x: reduced_inside(w, x),
    "vmap": lambda w, x: jax.vmap(
        jax.shard_map(lambda q: q - lax.pmean(q.mean(), "x"), mesh=RING, in_specs=P("x"), out_specs=P("x"))
    )(x.reshape(8, 16)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("devices", [GRID, 8, {"x": 8}, {"model": 4, "data": 2}], ids=["grid", "8", "ring", "turned"])
@pytest.mark.sampled(12)
def test_an_island_gives_what_it_gives_alone(name, devices):
    function = FUNCTIONS[name]
    planned = sporax.plan(function, W, X, devices=devices)
    got = planned.function()(*jax.device_put((W, X), planned.in_shardings))
    alone = jax.jit(function)(W, X)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), got, alone)


@pytest.mark.parametrize("mode", ["dynamic", "ilp", "recursive", "propagation", "repeated_blocks"])
@pytest.mark.parametrize("hardware", ["cpu", "h100"])
def test_every_search_keeps_the_specs_of_an_island(mode, hardware):
    planned = sporax.plan(lambda w, x: layer(jnp.sin(x), w) @ w, W, X, devices=GRID, mode=mode, hardware=hardware)
    (island,) = (
        step
        for operator, step in zip(planned.graph.operators, planned.plan.operators, strict=True)
        if operator.name == "shard_map"
    )
    assert island.operands == (Placement(((0,), (1, 2))), Placement(((1, 2), ())))
    assert island.results == (Placement(((0,), ())),)


def test_collectives_of_an_island_are_costed_and_shown_as_those_of_the_program():
    planned = sporax.plan(lambda w, x: traded(x, w), W, X, devices=GRID, in_shardings=(P(None, "model"), P("data")))
    summary = str(planned.summary())
    assert "shard_map  (2,1) (1,4) *" in summary
    assert all(f"{kind} over" in summary for kind in ("permute", "all_gather", "reduce_scatter"))
    text = planned.function().lower(*jax.device_put((W, X), planned.in_shardings)).compile().as_text()
    kinds = ("collective-permute", "all-gather", "reduce-scatter", "all-reduce", "all-to-all")
    assert Counter({kind: text.count(f" {kind}(") for kind in kinds}) == Counter(
        {"collective-permute": 1, "all-gather": 1, "reduce-scatter": 1, "all-reduce": 0, "all-to-all": 0}
    )
    silent = jax.shard_map(lambda a: a * 2, mesh=GRID, in_specs=P("data"), out_specs=P("data"))
    assert planned.predicted_seconds > sporax.plan(silent, X, devices=GRID).predicted_seconds
    (one,) = planned.explain("shard_map")
    assert len(one.alternatives) == 1 and "the user's program says this sharding" in str(one)


def test_islands_on_other_devices_are_refused():
    half = Mesh(np.array(jax.devices()[:4]), ("x",))
    with pytest.raises(
        SporaxValueError, match="For 'shard_map', the mesh must be that of the plan, of 8 devices, but got 4"
    ):
        sporax.plan(jax.shard_map(lambda a: a, mesh=half, in_specs=P("x"), out_specs=P("x")), X, devices=8)
    turned = Mesh(np.array(jax.devices()[:6]).reshape(3, 2), ("u", "v"))
    with pytest.raises(SporaxValueError, match=r"an arrangement of the plan's devices, \[2, 3\], but got \[u=3, v=2\]"):
        sporax.plan(
            jax.shard_map(lambda a: a, mesh=turned, in_specs=P("u"), out_specs=P("u")), jnp.ones((6, 6)), devices=6
        )


EXPLICIT = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Explicit,))


def contracted(w, x):
    partial = jnp.einsum("ab,bc->ac", x, w, out_sharding=P(unreduced={"x"}))
    return jax.reshard(partial, P("x"))


def gradient_of_reduced(w, x):
    weight = jax.reshard(w, P(reduced={"x"}))
    return jax.reshard(jax.grad(lambda w: jnp.sin(x.T @ w).sum())(weight), P())


def accumulated(w, x):
    def add(total, scale):
        weight = jax.reshard(w, P(reduced={"x"}))
        return total + jax.grad(lambda w: jnp.sin(scale * x.T @ w).sum())(weight), None

    total = jax.reshard(jnp.zeros_like(w), P(unreduced={"x"}))
    return jax.reshard(lax.scan(add, total, jnp.arange(1.0, 3.0, dtype=jnp.float32))[0], P())


@pytest.mark.parametrize("hardware", ["cpu", "h100", "tpu-v5p"])
@pytest.mark.parametrize("function", [contracted, gradient_of_reduced, accumulated])
def test_types_of_partial_sums_leave_them_to_the_plan(function, hardware):
    x = X.T[:, :8] if function is contracted else jnp.concatenate([X, X]).T[:8]
    with jax.set_mesh(EXPLICIT):
        arguments = jax.device_put(W, P("x") if function is contracted else P()), jax.device_put(x, P(None, "x"))
        alone = jax.jit(function)(*arguments)
        planned = sporax.plan(function, *arguments, devices=EXPLICIT, hardware=hardware)
        got = planned.function()(*arguments)
    np.testing.assert_allclose(got, alone, rtol=1e-5, atol=1e-6)
    assert jax.typeof(got) == jax.typeof(alone)


@pytest.mark.parametrize("dtype", [np.float32, np.bool_, np.int8, np.complex64])
@pytest.mark.parametrize(
    ("axes", "source", "from_rank"), [(("data", "model"), 6, 6), (("model", "data"), 6, 3), (("model",), 2, None)]
)
def test_a_broadcast_in_an_island_sends_the_source(axes, source, from_rank, dtype):
    """XLA compiles it for GPUs and TPUs alone, so that the expected arrays are made by hand."""
    values = (np.arange(16) % 5).astype(dtype)
    island = jax.shard_map(
        lambda a: lax.pbroadcast(a, axes, source),
        mesh=GRID,
        in_specs=P(("data", "model")),
        out_specs=P(("data", "model")),
    )
    planned = sporax.plan(island, values, devices=GRID)
    got = planned.function()(jax.device_put(values, planned.in_shardings[0]))
    parts = values.reshape(8, 2)
    rows = [from_rank] * 8 if from_rank is not None else [2] * 4 + [6] * 4
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, parts[rows].reshape(-1))


@pytest.mark.parametrize("hardware", ["cpu", "h100", "tpu-v5p"])
def test_rows_that_are_traded_unevenly_are_costed(hardware):
    """XLA compiles it for GPUs and TPUs alone."""
    counts, starts = jnp.full(8, 2, jnp.int32), 2 * jnp.arange(8, dtype=jnp.int32)

    def traded_unevenly(a):
        return lax.ragged_all_to_all(a, jnp.zeros_like(a), starts, counts, starts, counts, axis_name="x")

    def planned(body):
        island = jax.shard_map(body, mesh=RING, in_specs=P("x"), out_specs=P("x"), check_vma=False)
        return sporax.plan(island, jnp.zeros((128, 64)), devices=8, hardware=hardware)

    traded = planned(traded_unevenly)
    assert "all_to_all over" in str(traded.summary())
    assert traded.predicted_seconds > planned(lambda a: a * 2).predicted_seconds


@pytest.mark.parametrize(
    "unreduced", [{"in_specs": P(unreduced={"x"})}, {"out_specs": P(unreduced={"x"})}], ids=["in", "out"]
)
def test_an_island_takes_and_gives_what_is_complete(unreduced):
    specs = {"in_specs": P("x"), "out_specs": P("x"), **unreduced}
    to = {
        "in_specs": lambda a: lax.psum_scatter(a, "x", tiled=True),
        "out_specs": lambda a: lax.pcast(a, "x", to="unreduced"),
    }
    with jax.set_mesh(EXPLICIT):
        island = jax.shard_map(to[next(iter(unreduced))], **specs)
        start = P(unreduced={"x"}) if "in_specs" in unreduced else P("x")
        with pytest.raises(
            SporaxValueError, match=r"For 'shard_map', what passes its border must be complete, but got P\("
        ):
            sporax.plan(lambda a: jax.reshard(island(jax.reshard(a, start)), P()), jnp.arange(16.0), devices=EXPLICIT)


@pytest.mark.filterwarnings("ignore:jax.lax.psend is deprecated")
def test_what_names_axes_and_has_no_place_in_a_plan_is_refused():
    send = jax.shard_map(
        lambda a: (lax.psend(a, "x", [(0, 1)]), a)[1], mesh=RING, in_specs=P("x"), out_specs=P("x"), check_vma=False
    )
    with pytest.raises(SporaxNotImplementedError, match="For 'shard_map', 'psend' over x cannot be planned"):
        sporax.plan(send, X, devices=8)
