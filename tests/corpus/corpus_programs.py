"""Training steps of the shapes that public JAX code has: `PROGRAMS` gives the step, its arguments and how it is planned.

Sizes are as small as shardings over eight devices allow. Every step is jitted, so that plans of many searches trace it once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

RNG = np.random.default_rng(0)
WIDTH, HEADS, TOKENS, VOCABULARY, LAYERS = 16, 4, 8, 32, 2


class Program(NamedTuple):
    """A step, its arguments, and what result is carried to which argument."""

    step: Callable[..., Any]
    args: tuple[Any, ...]
    carry: dict[int, int] = {0: 0}


def floats(*shape, dtype="float32"):
    return jnp.asarray(RNG.normal(size=shape) * 0.3, dtype)


def ones(*shape):
    return jnp.ones(shape, "float32")


def numbers(*shape, below=VOCABULARY):
    return jnp.asarray(RNG.integers(0, below, shape), "int32")


def sgd(loss):
    """Gradient descent."""

    def step(params, *data):
        value, grads = jax.value_and_grad(loss)(params, *data)
        return jax.tree.map(lambda p, g: (p - 0.1 * g).astype(p.dtype), params, grads), value

    return step


def adam(loss, *, clip=None, average=False):
    """Adam by hand, with bias correction, clipping by the global norm, and an average of the parameters."""

    def step(state, *data):
        value, grads = jax.value_and_grad(loss)(state["params"], *data)
        count = state["count"] + 1
        if clip is not None:
            norm = jnp.sqrt(sum((g**2).sum() for g in jax.tree.leaves(grads)))
            grads = jax.tree.map(lambda g: g * jnp.minimum(1.0, clip / (norm + 1e-6)), grads)
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["mean"], grads)
        square = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g**2, state["square"], grads)
        scale = 0.01 * jnp.sqrt(1 - 0.99**count) / (1 - 0.9**count)
        params = jax.tree.map(lambda p, m, v: p - scale * m / (jnp.sqrt(v) + 1e-8), state["params"], mean, square)
        new = {"params": params, "mean": mean, "square": square, "count": count}
        if average:
            new["average"] = jax.tree.map(lambda a, p: 0.99 * a + 0.01 * p, state["average"], params)
        return new, value

    def state(params):
        zeros = jax.tree.map(jnp.zeros_like, params)
        extra = {"average": params} if average else {}
        return {"params": params, "mean": zeros, "square": zeros, "count": jnp.zeros((), "float32"), **extra}

    return step, state


# ----------------------------------------------------------------------------------------------------- decoders


def norm(x, scale):
    return x * lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-6) * scale


def rotated(x):
    half = x.shape[-1] // 2
    angle = jnp.arange(x.shape[1], dtype=x.dtype)[:, None] * 0.5 ** jnp.arange(half, dtype=x.dtype)
    sine, cosine = jnp.sin(angle)[None, :, None], jnp.cos(angle)[None, :, None]
    left, right = jnp.split(x, 2, -1)
    return jnp.concatenate([left * cosine - right * sine, right * cosine + left * sine], -1)


def attention(w, x, num_keys=HEADS):
    q = jnp.einsum("btd,dhk->bthk", x, w["q"])
    k, v = (jnp.einsum("btd,dhk->bthk", x, w[name]) for name in ("k", "v"))
    q, k = rotated(q), rotated(k)
    k, v = (jnp.repeat(part, HEADS // num_keys, 2) for part in (k, v))
    scores = jnp.einsum("bthk,bshk->bhts", q, k) / 2.0
    scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e9)
    out = jnp.einsum("bhts,bshk->bthk", jax.nn.softmax(scores.astype("float32")).astype(x.dtype), v)
    return jnp.einsum("bthk,hkd->btd", out, w["o"])


def gated(w, x):
    return (jax.nn.silu(x @ w["gate"]) * (x @ w["up"])) @ w["down"]


def block_weights(*leading, num_keys=HEADS):
    size = WIDTH // HEADS
    return {
        "q": floats(*leading, WIDTH, HEADS, size),
        "k": floats(*leading, WIDTH, num_keys, size),
        "v": floats(*leading, WIDTH, num_keys, size),
        "o": floats(*leading, HEADS, size, WIDTH),
        "gate": floats(*leading, WIDTH, 32),
        "up": floats(*leading, WIDTH, 32),
        "down": floats(*leading, 32, WIDTH),
        "norm": ones(*leading, 2, WIDTH),
    }


def block(w, x, num_keys=HEADS, feed=gated):
    x = x + attention(w, norm(x, w["norm"][0]), num_keys)
    return x + feed(w, norm(x, w["norm"][1]))


def cross_entropy(logits, labels):
    logits = logits.astype("float32")
    picked = jnp.take_along_axis(logits, labels[..., None], -1)[..., 0]
    return (jax.nn.logsumexp(logits, -1) - picked).mean()


def decoder(blocks, *, tied=True, dtype=None):
    """The loss of a decoder whose blocks are applied by `blocks(weights, x)`."""

    def loss(params, tokens):
        if dtype is not None:
            params = jax.tree.map(lambda p: p.astype(dtype), params)
        x = blocks(params["blocks"], params["embed"][tokens])
        head = params["embed"].T if tied else params["head"]
        return cross_entropy(norm(x, params["norm"])[:, :-1] @ head, tokens[:, 1:])

    return loss


def decoder_weights(blocks, *, tied=True):
    head = {} if tied else {"head": floats(WIDTH, VOCABULARY)}
    return {"embed": floats(VOCABULARY, WIDTH), "norm": ones(WIDTH), "blocks": blocks, **head}


def in_turn(weights, x, **options):
    for w in weights:
        x = block(w, x, **options)
    return x


def scanned(body=block, **options):
    return lambda weights, x: lax.scan(lambda h, w: (body(w, h), None), x, weights, **options)[0]


LISTED = decoder_weights([block_weights() for _ in range(LAYERS)])
STACKED = decoder_weights(block_weights(LAYERS))
GROUPED = decoder_weights(block_weights(LAYERS, num_keys=2), tied=False)
TEXT = numbers(8, TOKENS)
POLICIES = jax.checkpoint_policies


def experts_by_capacity(w, x):
    flat = x.reshape(-1, WIDTH)
    probabilities = jax.nn.softmax(flat @ w["router"])
    chosen = jax.nn.one_hot(probabilities.argmax(-1), 4, dtype=x.dtype)
    place = (jnp.cumsum(chosen, 0) - 1) * chosen
    dispatch = chosen[..., None] * jax.nn.one_hot(place.sum(-1).astype("int32"), 24, dtype=x.dtype)[:, None]
    inside = jnp.einsum("tec,td->ecd", dispatch, flat)
    out = jnp.einsum("ecf,efd->ecd", jax.nn.gelu(jnp.einsum("ecd,edf->ecf", inside, w["in"])), w["out"])
    weight = dispatch * probabilities.max(-1)[:, None, None]
    return jnp.einsum("tec,ecd->td", weight, out).reshape(x.shape)


def experts_by_groups(w, x):
    flat = x.reshape(-1, WIDTH)
    chosen = (flat @ w["router"]).argmax(-1)
    order, sizes = jnp.argsort(chosen), jnp.bincount(chosen, length=4).astype("int32")
    hidden = jax.nn.gelu(lax.ragged_dot(flat[order], w["in"], sizes))
    return jnp.zeros_like(flat).at[order].set(lax.ragged_dot(hidden, w["out"], sizes)).reshape(x.shape)


EXPERTS = {"router": floats(WIDTH, 4), "in": floats(4, WIDTH, 32), "out": floats(4, 32, WIDTH)}
MIXTURE = decoder_weights([{**block_weights(), **EXPERTS} for _ in range(LAYERS)])


def accumulated(loss):
    """Gradients of four micro batches in a loop, then one update."""

    def step(params, tokens):
        def micro(total, rows):
            return jax.tree.map(jnp.add, total, jax.grad(loss)(params, rows)), None

        zeros = jax.tree.map(jnp.zeros_like, params)
        total, _ = lax.scan(micro, zeros, tokens.reshape(4, -1, TOKENS))
        return jax.tree.map(lambda p, g: p - 0.025 * g, params, total)

    return step


def dropped(params, tokens, key):
    def body(carry, w):
        x, key = carry
        key, used = jax.random.split(key)
        return (jnp.where(jax.random.bernoulli(used, 0.9, x.shape), block(w, x) / 0.9, 0), key), None

    (x, _), _ = lax.scan(body, (params["embed"][tokens], key), params["blocks"])
    return cross_entropy(x[:, :-1] @ params["embed"].T, tokens[:, 1:])


# --------------------------------------------------------------------------------------------- images, time, graphs


def patches(params, images, labels):
    x = (
        images.reshape(8, 2, 4, 2, 4, 3).transpose(0, 1, 3, 2, 4, 5).reshape(8, 4, 48) @ params["patch"]
        + params["place"]
    )
    return cross_entropy(in_turn(params["blocks"], x).mean(1) @ params["head"], labels)


def convolved(x, w, stride=1):
    return lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def batch_norm(state, images, labels):
    def loss(params):
        x = convolved(images, params["first"])
        mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
        x = jax.nn.relu((x - mean) * lax.rsqrt(variance + 1e-5) * params["scale"] + params["shift"])
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        x = convolved(x, params["second"], 2) + convolved(x, params["short"], 2)
        return cross_entropy(x.mean((1, 2)) @ params["head"], labels), (mean, variance)

    (value, seen), grads = jax.value_and_grad(loss, has_aux=True)(state["params"])
    running = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, state["running"], seen)
    params = jax.tree.map(lambda p, g: p - 0.1 * g, state["params"], grads)
    return {"params": params, "running": running}, value


def denoised(params, images, times, key):
    noise = jax.random.normal(key, images.shape, images.dtype)
    x = images * jnp.cos(times)[:, None, None, None] + noise * jnp.sin(times)[:, None, None, None]
    when = jnp.sin(times[:, None] * jnp.arange(8.0, dtype=x.dtype)) @ params["time"]
    down = jax.nn.silu(convolved(x, params["down"], 2) + when[:, None, None])
    middle = jax.nn.silu(convolved(down, params["middle"]))
    up = jax.image.resize(middle, (8, 8, 8, 8), "nearest")
    out = convolved(jnp.concatenate([up, x], -1), params["out"])
    return ((out - noise) ** 2).mean()


def recurrent(params, rows, labels):
    def cell(carry, x):
        h, c = carry
        i, f, g, o = jnp.split(x @ params["in"] + h @ params["hidden"], 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return ((jax.nn.sigmoid(o) * jnp.tanh(c), c), c.mean())

    zeros = jnp.zeros((8, WIDTH), rows.dtype)
    (h, _), _ = lax.scan(cell, (zeros, zeros), rows.swapaxes(0, 1))
    return cross_entropy(h @ params["head"], labels)


def state_space(params, x, labels):
    def joined(a, b):
        return a[0] * b[0], a[1] * b[0] + b[1]

    decay = jax.nn.sigmoid(x @ params["decay"])
    return cross_entropy(
        lax.associative_scan(joined, (decay, x @ params["in"]), axis=1)[1].mean(1) @ params["head"], labels
    )


def message_passing(params, nodes, senders, receivers, labels):
    for w in params["layers"]:
        messages = jax.nn.relu(nodes[senders] @ w["message"])
        summed = jax.ops.segment_sum(messages, receivers, num_segments=nodes.shape[0])
        nodes = jax.nn.relu(nodes @ w["own"] + summed)
    return cross_entropy(nodes @ params["head"], labels)


def returns(params, start, key):
    """A policy in an environment of its own making: a loop of steps, and episodes that end by themselves."""

    def policy(state):
        return jnp.tanh(state @ params["policy"])

    def act(carry, key):
        state, done = carry
        state = jnp.where(
            done[:, None], start, 0.9 * state + policy(state) + 0.1 * jax.random.normal(key, state.shape, state.dtype)
        )
        reward = lax.cond(done.any(), lambda s: -(s**2).sum(-1), lambda s: s.sum(-1), state)
        return (state, jnp.abs(state).max(-1) > 2.0), reward

    _, rewards = lax.scan(act, (start, jnp.zeros(8, bool)), jax.random.split(key, 4))
    discounted = lax.scan(
        lambda later, now: (now + 0.9 * later,) * 2, jnp.zeros(8, start.dtype), rewards, reverse=True
    )[1]
    value = start @ params["value"]
    return ((discounted[0] - value[:, 0]) ** 2).mean() - discounted.mean()


def settled(params, x):
    """A layer that is its own fixed point, found without derivatives, and one step of it with them."""
    found = lax.while_loop(
        lambda c: (c[0] < 5) & (jnp.abs(c[1] - c[2]).max() > 1e-3),
        lambda c: (c[0] + 1, jnp.tanh(x + c[1] @ params["w"]), c[1]),
        (0, jnp.zeros_like(x), jnp.ones_like(x)),
    )[1]
    return (jnp.tanh(x + lax.stop_gradient(found) @ params["w"]) ** 2).mean()


@jax.custom_vjp
def straight_through(x):
    return jnp.round(x)


straight_through.defvjp(lambda x: (jnp.round(x), None), lambda _, g: (jnp.clip(g, -1, 1),))


def quantized(params, x, y):
    x = straight_through(x @ params["in"]) @ params["out"]
    return ((x - y) ** 2).mean()


def contrasted(params, images, texts):
    a, b = (x @ params[name] for x, name in ((images, "image"), (texts, "text")))
    a, b = (x / jnp.linalg.norm(x, axis=-1, keepdims=True) for x in (a, b))
    logits, labels = a @ b.T * jnp.exp(params["scale"]), jnp.arange(8)
    return (cross_entropy(logits, labels) + cross_entropy(logits.T, labels)) / 2


def per_example(params, x, y):
    """Gradients of each example, clipped, as private training has them."""

    def loss(params, x, y):
        return ((jnp.tanh(x @ params["in"]) @ params["out"] - y) ** 2).mean()

    grads = jax.vmap(jax.grad(loss), (None, 0, 0))(params, x, y)
    sizes = jnp.sqrt(sum((g**2).sum((1, 2)) for g in jax.tree.leaves(grads)))
    scale = jnp.minimum(1.0, 0.1 / sizes)
    return jax.tree.map(lambda p, g: p - 0.1 * jnp.einsum("b...,b->...", g, scale) / 8, params, grads)


def adapted(params, x, y):
    """One step inside of the step: the gradient goes through a gradient."""

    def inner(params, x, y):
        return ((jnp.tanh(x @ params["in"]) @ params["out"] - y) ** 2).mean()

    fast = jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(inner)(params, x, y))
    return inner(fast, x[::-1], y[::-1])


def low_rank(params, frozen, x, y):
    return ((jnp.tanh(x @ (frozen + params["a"] @ params["b"])) - y) ** 2).mean()


def scaled_loss(state, x, y):
    """float16 with a scale of the loss that halves where gradients overflow."""

    def loss(params):
        half = jax.tree.map(lambda p: p.astype("float16"), params)
        return ((jnp.tanh(x.astype("float16") @ half["in"]) @ half["out"] - y) ** 2).mean().astype("float32") * state[
            "scale"
        ]

    grads = jax.tree.map(lambda g: g / state["scale"], jax.grad(loss)(state["params"]))
    finite = jnp.stack([jnp.isfinite(g).all() for g in jax.tree.leaves(grads)]).all()
    params = jax.tree.map(lambda p, g: jnp.where(finite, p - 0.1 * g, p), state["params"], grads)
    return {"params": params, "scale": jnp.where(finite, state["scale"], state["scale"] / 2)}


def of_optax(optimizer, loss, params, *data):
    """A step with an optimizer of optax, whose state goes with the parameters."""

    def step(state, *data):
        grads = jax.grad(loss)(state["params"], *data)
        updates, moments = optimizer.update(grads, state["moments"], state["params"])
        return {"params": optax.apply_updates(state["params"], updates), "moments": moments}

    return Program(step, ({"params": params, "moments": optimizer.init(params)}, *data))


def regression(params, x, y):
    return ((jnp.tanh(x @ params["in"]) @ params["out"] - y) ** 2).mean()


TWO = {"in": floats(WIDTH, 32), "out": floats(32, WIDTH)}
X, Y, LABELS, IMAGES = floats(8, WIDTH), floats(8, WIDTH), numbers(8), floats(8, 8, 8, 3)
KEY = jax.random.key(0)
FLAT = {"params": {"first": floats(3, 3, 3, 8), "scale": ones(8), "shift": 0 * ones(8), "second": floats(3, 3, 8, 16),
                   "short": floats(1, 1, 8, 16), "head": floats(16, VOCABULARY)}, "running": (0 * ones(8), ones(8))}  # fmt: skip


def with_adam(loss, params, *data, **options):
    step, state = adam(loss, **options)
    return Program(step, (state(params), *data))


_PROGRAMS = {
    "decoder": Program(sgd(decoder(in_turn)), (LISTED, TEXT)),
    "decoder, Adam with clipping": with_adam(decoder(in_turn), LISTED, TEXT, clip=1.0),
    "scanned decoder, Adam": with_adam(decoder(scanned()), STACKED, TEXT),
    "scanned decoder, average of parameters": with_adam(decoder(scanned()), STACKED, TEXT, average=True),
    "checkpointed scan": Program(sgd(decoder(scanned(jax.checkpoint(block)))), (STACKED, TEXT)),
    "scan with a policy": Program(
        sgd(decoder(scanned(jax.checkpoint(block, policy=POLICIES.dots_with_no_batch_dims_saveable)))), (STACKED, TEXT)
    ),
    "grouped queries, bfloat16": Program(
        sgd(decoder(scanned(lambda w, x: block(w, x, num_keys=2)), tied=False, dtype="bfloat16")), (GROUPED, TEXT)
    ),
    "unrolled scan": Program(sgd(decoder(scanned(unroll=2))), (STACKED, TEXT)),
    "accumulated gradients": Program(accumulated(decoder(scanned())), (STACKED, TEXT)),
    "dropout by keys": Program(sgd(dropped), (STACKED, TEXT, KEY)),
    "experts by capacity": Program(sgd(decoder(lambda w, x: in_turn(w, x, feed=experts_by_capacity))), (MIXTURE, TEXT)),
    "experts by groups": Program(sgd(decoder(lambda w, x: in_turn(w, x, feed=experts_by_groups))), (MIXTURE, TEXT)),
    "patches": Program(
        sgd(patches),
        ({"patch": floats(48, WIDTH), "place": floats(4, WIDTH), "head": floats(WIDTH, VOCABULARY), "blocks": LISTED["blocks"]},
         IMAGES, LABELS),
    ),
    "batch norm": Program(batch_norm, (FLAT, IMAGES, LABELS)),
    "diffusion": Program(
        sgd(denoised),
        ({"time": floats(8, 8), "down": floats(3, 3, 3, 8), "middle": floats(3, 3, 8, 8), "out": floats(3, 3, 11, 3)},
         IMAGES, floats(8), KEY),
    ),
    "recurrent": Program(
        sgd(recurrent),
        ({"in": floats(WIDTH, 64), "hidden": floats(WIDTH, 64), "head": floats(WIDTH, VOCABULARY)}, floats(8, 4, WIDTH), LABELS),
    ),
    "state space": Program(
        sgd(state_space),
        ({"decay": floats(WIDTH, WIDTH), "in": floats(WIDTH, WIDTH), "head": floats(WIDTH, VOCABULARY)}, floats(8, 4, WIDTH), LABELS),
    ),
    "graph": Program(
        sgd(message_passing),
        ({"layers": [{"message": floats(WIDTH, WIDTH), "own": floats(WIDTH, WIDTH)}] * 2, "head": floats(WIDTH, VOCABULARY)},
         floats(24, WIDTH), numbers(64, below=24), numbers(64, below=24), numbers(24)),
    ),
    "reinforcement": Program(sgd(returns), ({"policy": floats(WIDTH, WIDTH), "value": floats(WIDTH, 1)}, X, KEY)),
    "fixed point": Program(sgd(settled), ({"w": floats(WIDTH, WIDTH)}, X)),
    "straight through": Program(sgd(quantized), (TWO, X, Y)),
    "contrastive": Program(
        sgd(contrasted), ({"image": floats(WIDTH, 8), "text": floats(WIDTH, 8), "scale": 0 * ones()}, X, Y)
    ),
    "gradients per example": Program(per_example, (TWO, X, Y)),
    "a gradient of a gradient": Program(sgd(adapted), (TWO, X, Y)),
    "low rank": Program(sgd(low_rank), ({"a": floats(WIDTH, 4), "b": floats(4, WIDTH)}, floats(WIDTH, WIDTH), X, Y)),
    "scaled loss": Program(scaled_loss, ({"params": TWO, "scale": jnp.float32(1024)}, X, Y)),
    "AdamW with a schedule": of_optax(
        optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 0.1, 2, 10))),
        regression, TWO, X, Y,
    ),
    "updates of several steps": of_optax(optax.MultiSteps(optax.sgd(0.1, momentum=0.9), 2), regression, TWO, X, Y),
    "factored moments": of_optax(optax.adafactor(0.1, min_dim_size_to_factor=8), regression, TWO, X, Y),
    "two optimizers": of_optax(
        optax.multi_transform({"in": optax.lion(0.01), "out": optax.sgd(0.1)}, {"in": "in", "out": "out"}), regression, TWO, X, Y
    ),
}  # fmt: skip
PROGRAMS = {name: program._replace(step=jax.jit(program.step)) for name, program in _PROGRAMS.items()}
"""By name."""
