"""What `jax.shard_map` holds in between, next to the memory of compiled programs."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType, PartitionSpec as P

import sporax
from sporax.planner import peak_bytes
from sporax.runtime.planned.compiled_plans import device_bytes

MESH = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))


def layers(x, w):
    return jnp.tanh(jnp.tanh(x @ w) @ w.T) @ w


def gathered(x, w):
    return x @ jax.lax.all_gather(w, "x", tiled=True)


def attention(x, w):
    return jax.nn.softmax(x @ w.T) @ w


def rounds(x, w):
    return jax.lax.scan(lambda x, _: (jnp.tanh(x @ w), None), x, None, length=4)[0]


def exchanged(x, w):
    h = jax.lax.all_to_all(jnp.tanh(x @ w).reshape(8, -1, w.shape[1]), "x", 0, 0)
    return (h @ w.T).reshape(x.shape)


def passed(x, w):
    """What is sent on is read by the next round, though nothing reads what the last one sends."""

    def one(carry, _):
        total, w = carry
        return (total + x @ w, jax.lax.ppermute(w, "x", [(k, (k + 1) % 8) for k in range(8)])), None

    zeros = jax.lax.pcast(jnp.zeros((x.shape[0], w.shape[1])), ("x",), to="varying")
    return jax.lax.scan(one, (zeros, w), None, length=8)[0][0]


BODIES = {
    "layers": (layers, (4096, 128), (128, 1024), P()),
    "a gathered weight": (gathered, (1024, 1024), (1024, 1024), P("x")),
    "attention": (attention, (4096, 128), (4096, 128), P()),
    "a loop": (rounds, (8192, 256), (256, 256), P()),
    "slices that are exchanged": (exchanged, (4096, 256), (256, 1024), P()),
    "a ring": (passed, (1024, 1024), (1024, 4096), P(None, "x")),
}


def planned(function, *shapes, hardware="cpu"):
    structs = [jax.ShapeDtypeStruct(shape, "float32") for shape in shapes]
    return sporax.plan(function, *structs, devices={"x": 8}, hardware=hardware, memory=None), structs


@pytest.mark.parametrize("name", BODIES)
def test_predicted_bytes_of_an_island_are_those_of_the_compiled_program(name):
    body, x, w, spec = BODIES[name]
    function = jax.shard_map(body, mesh=MESH, in_specs=(P("x"), spec), out_specs=P("x"))
    assert_as_compiled(*planned(function, x, w), 0.05)


@pytest.mark.parametrize(("name", "error"), [("layers", 0.05), ("a loop", 0.01)])
def test_what_is_around_an_island_is_compiled_with_it(name, error):
    """Its gradient is another one, which reads what the first has made."""
    body, x, w, spec = BODIES[name]
    function = jax.shard_map(body, mesh=MESH, in_specs=(P("x"), spec), out_specs=P("x"))
    assert_as_compiled(*planned(lambda x, w: jax.grad(lambda w: (function(jnp.cos(x), w) ** 2).sum())(w), x, w), error)


def assert_as_compiled(plan, structs, error):
    placed = [
        jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=to) for s, to in zip(structs, plan.in_shardings, strict=True)
    ]
    compiled = device_bytes(plan.jitted(()).lower(*placed).compile())
    assert peak_bytes(plan.result) == pytest.approx(compiled, rel=error)


def test_other_devices_hold_what_the_body_computes_too():
    """No compiler is known to fuse this product's scores away."""
    function = jax.shard_map(lambda x: jnp.tanh(x @ x.T) @ x, mesh=MESH, in_specs=P("x"), out_specs=P("x"))
    plan, _ = planned(function, (4096, 128), hardware="h100")
    x, scores = 512 * 128 * 4, 512 * 512 * 4
    assert peak_bytes(plan.result) >= 2 * x + scores


def test_operands_that_nothing_else_reads_make_room():
    body = jax.shard_map(lambda h: jnp.sort(jnp.sort(h) * 2), mesh=MESH, in_specs=P("x"), out_specs=P("x"))
    alone, _ = planned(lambda x: body(jnp.sort(x)).sum(), (4096, 256))
    shared, _ = planned(lambda x: ((h := jnp.sort(x)) * body(h)).sum(), (4096, 256))
    assert peak_bytes(shared.result) - peak_bytes(alone.result) >= 512 * 256 * 4


def test_what_a_loop_carries_is_needed_by_its_next_round_though_nothing_reads_the_last_one():
    """The gradient of the activations, whose last one, that of the argument, is not requested."""

    def layer(h, w):
        return ((h - h.mean(-1, keepdims=True)) * jax.lax.rsqrt(h.var(-1, keepdims=True) + 1e-5)) @ w

    def loss(w, x):
        return (jax.lax.fori_loop(0, 4, lambda _, h: layer(h, w), x) ** 2).mean()

    assert_as_compiled(*planned(lambda w, x: w - jax.grad(loss)(w, x), (128, 128), (4096, 128)), 0.02)
