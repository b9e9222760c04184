"""Loops and branches, differentiated, in every search and for every profile: the matrix of what plans must take.

The two compilers of the planner's memory model, searches and questions meet loops in different ways: a plan, a summary, a
report, explanations and alternatives are read of each.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name

import sporax
from sporax.ir.hardware import load_profile
from sporax.planner import peak_bytes
from sporax.runtime.planned.compiled_plans import device_bytes

PROFILES = ("cpu", "h100", "tpu-v5p", "ascend910", "own")
MODES = ("dynamic", "ilp", "recursive", "propagation", "repeated_blocks")
RNG = np.random.default_rng(0)


def floats(*shape):
    return jnp.asarray(RNG.normal(size=shape) * 0.3, jnp.float32)


STACKED, SQUARE, X = floats(4, 16, 16), floats(16, 16), floats(32, 16)
KEY = jax.random.key(0)


def descent(loss):
    """A step of gradient descent."""
    return lambda w, *data: jax.tree.map(lambda p, g: p - 0.1 * g, w, jax.grad(loss)(w, *data))


def layer(h, q):
    return jnp.tanh(h @ q), None


def named(h, q):
    return checkpoint_name(jnp.tanh(h @ q), "hidden"), None


def through(body, *, made=0, **options):
    """The mean square of what a scan over stacked weights makes: 0 of its last carry, 1 of its stack."""
    return descent(lambda w, x: (lax.scan(body, x, w, **options)[made] ** 2).mean())


def dropped(w, x, key):
    def body(carry, q):
        h, key = carry
        key, used = jax.random.split(key)
        return (jnp.tanh(h @ q) * jax.random.bernoulli(used, 0.9, h.shape), key), None

    return lax.scan(body, (x, key), w)[0][0].mean()


def recurrent(w, x):
    def cell(h, row):
        h = jnp.tanh(row @ w["in"] + h @ w["hidden"])
        return h, h

    return (lax.scan(cell, jnp.zeros((8, 16)), x.reshape(4, 8, 16))[1] ** 2).mean()


def accumulated(w, x):
    def micro(total, rows):
        return total + jax.grad(lambda w: (jnp.tanh(rows @ w) ** 2).mean())(w), None

    return w - 0.1 * lax.scan(micro, jnp.zeros_like(w), x.reshape(4, 8, 16))[0]


def until_large(w, x):
    limit = jnp.abs(w).sum() + 3
    return jax.vmap(lambda row: lax.while_loop(lambda h: jnp.abs(h).sum() < limit, lambda h: h * 2 + 1, row))(x)


def branching(h, q):
    return lax.cond(h.sum() > 0, lambda h: jnp.tanh(h @ q), lambda h: 2 * h, h), None


def nested(h, q):
    return lax.scan(lambda g, i: (jnp.tanh(g @ q) + i, None), h, jnp.arange(2, dtype="float32"))[0], None


def steps_of_a_filter(w, x):
    decay = jax.nn.sigmoid(x @ w)
    return (lax.associative_scan(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (decay, x))[1] ** 2).mean()


def swapped(w, x):
    return lax.scan(lambda pair, q: ((pair[1], pair[0] + 1), (q.sum(), 1.0)), (x, 2 * x), w)[1][0].sum()


POLICIES = jax.checkpoint_policies
PROGRAMS = {
    "layers": (through(layer), STACKED, X),
    "what is stacked": (through(lambda h, q: (jnp.tanh(h @ q), h.sum()), made=1), STACKED, X),
    "what enters is made before": (
        descent(lambda w, x: lax.scan(layer, jnp.sin(x), 2 * jnp.tanh(w))[0].sum()),
        STACKED,
        X,
    ),
    "checkpoint": (through(jax.checkpoint(layer)), STACKED, X),
    "a policy": (through(jax.checkpoint(layer, policy=POLICIES.dots_saveable)), STACKED, X),
    "names": (through(jax.checkpoint(named, policy=POLICIES.save_only_these_names("hidden"))), STACKED, X),
    "reversed and unrolled": (through(layer, reverse=True, unroll=2), STACKED, X),
    "a branch in a loop": (through(branching), STACKED, X),
    "a loop in a loop": (through(nested), STACKED, X),
    "a loop in a branch": (
        descent(lambda w, x: lax.cond(x.sum() > 0, lambda h: lax.scan(layer, h, w)[0], lambda h: 2 * h, x).sum()),
        STACKED,
        X,
    ),
    "sliced weights": (descent(lambda w, x: lax.fori_loop(0, 4, lambda i, h: jnp.tanh(h @ w[i]), x).sum()), STACKED, X),
    "carries that are swapped": (descent(swapped), STACKED, X),
    "over time": (descent(recurrent), {"in": SQUARE, "hidden": SQUARE}, X),
    "micro batches": (accumulated, SQUARE, X),
    "map": (descent(lambda w, x: (lax.map(lambda row: jnp.tanh(row @ w), x, batch_size=8) ** 2).mean()), SQUARE, X),
    "associative scan": (descent(steps_of_a_filter), SQUARE, X[:8]),
    "keys": (descent(dropped), STACKED, X, KEY),
    "while": (
        lambda w, x: lax.while_loop(lambda h: jnp.abs(h).max() > 0.1, lambda h: 0.5 * jnp.tanh(h @ w), x),
        SQUARE,
        X,
    ),
    "a batch of whiles": (until_large, SQUARE, X),
}


@pytest.fixture(scope="module")
def profiles(tmp_path_factory):
    """The names of profiles: one is a file."""
    path = tmp_path_factory.mktemp("profiles") / "own.json"
    path.write_text(load_profile("h100").to_json())
    return [*PROFILES[:-1], str(path)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("program", PROGRAMS)
def test_every_search_plans_loops_for_every_profile(program, profiles, tmp_path):
    function, *args = PROGRAMS[program]
    compilers, others = ("cpu", "tpu-v5p"), [name for name in profiles if name not in ("cpu", "tpu-v5p")]
    # Profiles of one compiler differ in numbers alone: each of them has one mode, which is another for each program.
    turns = zip(others, MODES[list(PROGRAMS).index(program) % 3 :], strict=False)
    for number, (hardware, mode) in enumerate([*itertools.product(compilers, MODES), *turns]):
        planned = sporax.plan(function, *args, devices=8, hardware=hardware, mode=mode)
        assert "peak memory" in str(planned.summary())
        assert 0 < planned.search.cost_seconds < 1
        # Questions depend on the compiler and not on the search: one of each is enough.
        if number in (0, len(MODES)):
            assert str(planned.explain("[0]"))
            planned.report(tmp_path / "plan.html")
            assert all(str(other.summary()) for other in planned.alternatives(count=1, seconds=0))


@pytest.mark.parametrize("program", ["layers", "a branch in a loop", "keys", "a batch of whiles", "over time"])
def test_eight_devices_compute_what_one_does(program):
    function, *args = PROGRAMS[program]
    planned = sporax.plan(function, *args, devices=8, hardware="h100", fixed={1: (8, 1)})
    got, expected = planned.function()(*jax.device_put(tuple(args), planned.in_shardings)), function(*args)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6), got, expected)


def rounds(body):
    return lambda c, *data: lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, body(s[1], *data)), (0, c))[1]


CARRIES = {
    "elementwise": rounds(lambda c: jnp.tanh(c * 0.5)),
    "with another": rounds(lambda c, w: c + w),
    "product": rounds(lambda c: c @ c),
    "roll": rounds(lambda c: jnp.roll(c, 1, 0)),
    "reduced": rounds(lambda c: c - c.sum(0)),
    "scanned": lambda c, w: lax.scan(lambda c, _: (c * 0.9 + w, None), c, None, length=5)[0],
    "gradients": lambda w, x: lax.scan(lambda g, x: (g + jax.grad(lambda w: (x @ w).sum())(w), None), w * 0, x)[0],
}
"""What a loop does with what it carries."""


@pytest.mark.parametrize("kind", CARRIES)
def test_memory_of_what_a_loop_carries_is_that_of_the_compiled_program(kind):
    """Updated in place where the compiler can, next to the old value where it cannot; copied where others read the old value."""
    step, carry = CARRIES[kind], jax.ShapeDtypeStruct((64, 64), jnp.float32)
    more = [jax.ShapeDtypeStruct((4, 64, 64), jnp.float32) if kind == "gradients" else carry]
    arguments = [carry] if kind in ("elementwise", "product", "roll", "reduced") else [carry, *more]
    ways = {
        "not donated": (step, ()),
        "donated": (step, (0,)),
        "made before": (lambda c, *data: step(c * 2, *data), ()),
    }
    for name, (function, donated) in ways.items():
        planned = sporax.plan(function, *arguments, devices=1, donate_argnums=donated)
        compiled = device_bytes(planned.jitted(donated).lower(*arguments).compile())
        assert peak_bytes(planned.result) == pytest.approx(compiled, rel=0.025), name


def repeated(w, rows):
    """The loss of a layer that is applied four times: all rounds read a row of what is stacked."""
    return (lax.fori_loop(0, 4, lambda i, h: jnp.tanh(h @ w[0]), rows).astype(jnp.float32) ** 2).mean()


def summed(w, x):
    """Gradients of four micro batches of a weight that is made before."""
    rows = x.reshape(4, -1, x.shape[-1])
    return lax.scan(lambda g, part: (g + jax.grad(repeated)(w, part), None), jnp.zeros_like(w), rows)[0]


HANDED = {
    "an argument": (summed, "float32"),
    "made before": (lambda w, x: summed(w * 2, x), "float32"),
    "a copy in float32": (lambda w, x: lax.scan(lambda h, w: (jax.nn.softmax(h @ w), None), x, w)[0], "bfloat16"),
}


@pytest.mark.parametrize("kind", HANDED)
def test_memory_of_what_loops_are_handed_is_that_of_the_compiled_program(kind):
    """What all rounds read is there until the last one: also a view, a copy in float32, and what loops compute before."""
    step, dtype = HANDED[kind]
    arguments = jax.ShapeDtypeStruct((3, 128, 128), dtype), jax.ShapeDtypeStruct((256, 128), dtype)
    planned = sporax.plan(step, *arguments, devices=1)
    compiled = device_bytes(planned.jitted(()).lower(*arguments).compile())
    assert peak_bytes(planned.result) == pytest.approx(compiled, rel=0.1)


def micro_batches(layer):
    """A step whose gradients are those of four micro batches, which are added up; `state` is handed through."""

    def step(ws, state, x):
        def loss(ws, x):
            return (lax.scan(lambda x, w: (layer(x, w), None), x, ws)[0] ** 2).mean()

        parts = x.reshape(4, -1, x.shape[-1])
        total = lax.scan(lambda g, part: (g + jax.grad(loss)(ws, part), None), jnp.zeros_like(ws), parts)[0]
        return ws - 0.1 * total, state

    return step


def dropped(x, w):
    """Two thirds of the elements stay, in every layer others: the key is an element of the layer's weight."""
    key = jax.random.fold_in(jax.random.key(0), lax.bitcast_convert_type(w[0, 0], "uint32"))
    return jnp.where(jax.random.bernoulli(key, 0.7, x.shape), jax.nn.relu(x @ w), 0)


def of_each(layer):
    """As `micro_batches`, with layers one by one."""

    def step(ws, state, x):
        def loss(ws, x):
            for w in ws:
                x = layer(x, w)
            return (x**2).mean()

        parts = x.reshape(4, -1, x.shape[-1])
        total = lax.scan(lambda g, part: (g + jax.grad(loss)(ws, part), None), jnp.zeros_like(ws), parts)[0]
        return ws - 0.1 * total, state

    return step


BROUGHT = {
    "to a loop": (micro_batches(lambda x, w: jnp.tanh(x @ w)), {0: (1, 8, 1), 2: (8, 1)}),
    "to each layer of a round": (of_each(dropped), {0: (1, 1, 8), 2: (1, 1)}),
}


@pytest.mark.parametrize("kind", BROUGHT)
def test_memory_of_what_is_brought_to_a_loop_is_that_of_the_compiled_program(kind):
    """Weights are gathered once before the loop, not for each of their readers; each device takes its slices before, too."""
    step, fixed = BROUGHT[kind]
    arguments = [jax.ShapeDtypeStruct(shape, "float32") for shape in [(3, 256, 256)] * 2 + [(256, 256)]]
    planned = sporax.plan(step, *arguments, devices=8, hardware="cpu", donate_argnums=(0, 1), fixed=fixed)
    compiled = device_bytes(planned.jitted((0, 1)).lower(*arguments).compile())
    assert peak_bytes(planned.result) == pytest.approx(compiled, rel=0.02)


def one_head(x, w):
    rows = (x @ w).reshape(8, -1, x.shape[-1])
    return (jax.nn.softmax(rows @ rows.swapaxes(1, 2)) @ rows).reshape(x.shape)


def heads(x, w):
    rows = (x @ w).reshape(8, -1, 4, x.shape[-1] // 4)
    scores = jax.nn.softmax(jnp.einsum("bshd,bthd->bhst", rows, rows))
    return x + jnp.einsum("bhst,bthd->bshd", scores, rows).reshape(x.shape)


@pytest.mark.parametrize("devices", [1, pytest.param(8, marks=pytest.mark.full)])
def test_memory_of_batched_products_is_that_of_the_compiled_program(devices):
    """They read operands in any order; a batch of one is none, and its transposed operand is written."""

    def network(ws, x):
        for w in ws:
            x = one_head(x, w)
        return (x**2).mean()

    arguments = jax.ShapeDtypeStruct((3, 256, 256), "float32"), jax.ShapeDtypeStruct((1024, 256), "float32")
    planned = sporax.plan(jax.grad(network), *arguments, devices=devices, hardware="cpu", fixed={1: (devices, 1)})
    compiled = device_bytes(planned.jitted(()).lower(*arguments).compile())
    assert peak_bytes(planned.result) == pytest.approx(compiled, rel=0.05)


def test_memory_of_what_is_converted_to_float32_is_that_of_the_compiled_program():
    """A softmax in bfloat16 sums exponentials in float32: these are written as they are before they are rounded."""

    def network(ws, x):
        return lax.fori_loop(0, 4, lambda _, x: heads(x, ws[0]), x)

    arguments = jax.ShapeDtypeStruct((2, 256, 256), "bfloat16"), jax.ShapeDtypeStruct((4096, 256), "bfloat16")
    planned = sporax.plan(network, *arguments, devices=8, hardware="cpu", fixed={1: (4, 1)})
    compiled = device_bytes(planned.jitted(()).lower(*arguments).compile())
    assert peak_bytes(planned.result) == pytest.approx(compiled, rel=0.02)


def test_stacks_of_two_loops_are_those_of_the_compiled_program():
    """The second one's stack is there while the first loop runs."""

    def step(x, ws):
        h, first = jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), h), x, ws)
        return first.sum(), jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), h), h * 2, ws)[1].sum()

    arguments = jax.ShapeDtypeStruct((512, 64), jnp.float32), jax.ShapeDtypeStruct((8, 64, 64), jnp.float32)
    planned = sporax.plan(step, *arguments, devices=1, hardware="cpu")
    compiled = device_bytes(planned.jitted(()).lower(*arguments).compile())
    assert peak_bytes(planned.result) == pytest.approx(compiled, rel=0.05)


@pytest.mark.parametrize("donated", [(), (0,)])
def test_memory_of_what_is_handed_out_as_it_came_in(donated):
    state = {"frozen": jax.ShapeDtypeStruct((64, 64), jnp.float32), "tuned": jax.ShapeDtypeStruct((64,), jnp.float32)}
    planned = sporax.plan(
        lambda s, x: ({**s, "tuned": s["tuned"] * x}, x), state, 2.0, devices=1, donate_argnums=donated
    )
    compiled = device_bytes(planned.jitted(donated).lower(state, 2.0).compile())
    assert peak_bytes(planned.result) == pytest.approx(compiled, rel=0.01)
