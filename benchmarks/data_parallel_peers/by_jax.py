"""The models written by hand in JAX: one fused all-reduce of all gradients, donated state, one program per step.

sporax run --worker_num 2 by_jax.py MODEL STEPS     (the launcher only starts the processes and binds them to cores)
"""

import os
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

MODELS = {
    "mlp": (12, 128, 64),
    "mlp-deep": (48, 128, 64),
    "mlp-wide": (4, 1024, 64),
    "lenet": None,
    "transformer": None,
}
WIDTH, HEADS, LENGTH, BLOCKS, VOCABULARY = 128, 4, 64, 4, 256
RANK, SIZE = int(os.environ["RANK_ID"]), int(os.environ["RANK_SIZE"])
ADDRESS = f"127.0.0.1:{os.environ['BENCHMARK_PORT']}"


def dense(rng, inputs, outputs):
    bound = inputs**-0.5
    return {
        "w": rng.uniform(-bound, bound, (outputs, inputs)).astype(np.float32),
        "b": rng.uniform(-bound, bound, outputs).astype(np.float32),
    }


def apply(layer, x):
    return x @ layer["w"].T + layer["b"]


def mlp(params, x):
    for layer in params:
        x = jax.nn.relu(apply(layer, x))
    return x


def conv(layer, x):
    y = lax.conv_general_dilated(x, layer["w"], (1, 1), "VALID", dimension_numbers=("NCHW", "OIHW", "NCHW"))
    y = jax.nn.relu(y + layer["b"][:, None, None])
    return lax.reduce_window(y, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")


def lenet(params, x):
    x = conv(params["conv2"], conv(params["conv1"], x)).reshape(x.shape[0], -1)
    x = jax.nn.relu(apply(params["fc1"], x))
    return apply(params["fc3"], jax.nn.relu(apply(params["fc2"], x)))


def norm(layer, x):
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-7) * layer["g"] + layer["b"]


def heads(x):
    return x.reshape(-1, LENGTH, HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3)


def block(p, x):
    y = norm(p["norm1"], x)
    query, key, value = (heads(apply(p[name], y)) for name in ("query", "key", "value"))
    mixed = jax.nn.softmax(query @ key.swapaxes(-1, -2) * (WIDTH // HEADS) ** -0.5, -1) @ value
    x = x + apply(p["project"], mixed.transpose(0, 2, 1, 3).reshape(-1, LENGTH, WIDTH))
    return x + apply(p["down"], jax.nn.relu(apply(p["up"], norm(p["norm2"], x))))


def transformer(params, tokens):
    x = params["tokens"][tokens]
    for p in params["blocks"]:
        x = block(p, x)
    return apply(params["head"], x).reshape(-1, VOCABULARY)


def cross_entropy(logits, labels):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).mean()


def build(name):
    """Forward function, loss, parameters, one batch."""
    rng, own = np.random.default_rng(1), np.random.default_rng(RANK)
    if name == "lenet":
        x, y = own.normal(size=(32, 1, 32, 32)).astype(np.float32), own.integers(0, 10, 32).astype(np.int32)
        kernels = {
            f"conv{i}": {"w": rng.normal(0, 0.1, shape).astype(np.float32), "b": np.zeros(shape[0], np.float32)}
            for i, shape in ((1, (6, 1, 5, 5)), (2, (16, 6, 5, 5)))
        }
        sizes = ((400, 120), (120, 84), (84, 10))
        return lenet, cross_entropy, kernels | {f"fc{i + 1}": dense(rng, *s) for i, s in enumerate(sizes)}, x, y
    if name == "transformer":
        x = own.integers(0, VOCABULARY, (8, LENGTH)).astype(np.int32)
        ones = {"g": np.ones(WIDTH, np.float32), "b": np.zeros(WIDTH, np.float32)}
        sizes = {"up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
        sizes |= dict.fromkeys(("query", "key", "value", "project"), (WIDTH, WIDTH))
        blocks = [{"norm1": ones, "norm2": ones} | {k: dense(rng, *s) for k, s in sizes.items()} for _ in range(BLOCKS)]
        tokens = rng.normal(0, 0.02, (VOCABULARY, WIDTH)).astype(np.float32)
        params = {"tokens": tokens, "blocks": blocks, "head": dense(rng, WIDTH, VOCABULARY)}
        return transformer, cross_entropy, params, x, x.reshape(-1)
    layers, width, batch = MODELS[name]
    x = own.normal(size=(batch, width)).astype(np.float32)
    return mlp, lambda y, t: ((y - t) ** 2).mean(), [dense(rng, width, width) for _ in range(layers)], x, 0 * x


jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(ADDRESS, SIZE, RANK)
mesh = Mesh(np.array(jax.devices()), ("rank",), axis_types=(AxisType.Auto,))
forward, loss_fn, start, inputs, targets = build(sys.argv[1])


def place(tree, spec):
    sharding = NamedSharding(mesh, spec)
    return jax.tree.map(lambda value: jax.make_array_from_process_local_data(sharding, value), tree)


def step(params, velocity, x, y):
    loss, grads = jax.value_and_grad(lambda p: loss_fn(forward(p, x), y))(params)
    flat, unravel = ravel_pytree(grads)
    grads = unravel(lax.psum(flat, "rank") / SIZE)
    velocity = jax.tree.map(lambda v, g: 0.9 * v + g, velocity, grads)
    return jax.tree.map(lambda p, v: p - 0.01 * v, params, velocity), velocity, loss[None]


mapped = jax.shard_map(
    step, mesh=mesh, in_specs=(P(), P(), P("rank"), P("rank")), out_specs=(P(), P(), P("rank")), check_vma=False
)
run = jax.jit(mapped, donate_argnums=(0, 1))
params, velocity = place(start, P()), place(jax.tree.map(np.zeros_like, start), P())
x, y = place(inputs, P("rank")), place(targets, P("rank"))
for _ in range(20):
    params, velocity, loss = run(params, velocity, x, y)
    loss.block_until_ready()
started, computed = time.perf_counter(), time.process_time()
for _ in range(int(sys.argv[2])):
    params, velocity, loss = run(params, velocity, x, y)
loss.block_until_ready()
wall, processor = (
    1e3 * (now - before) / int(sys.argv[2])
    for now, before in ((time.perf_counter(), started), (time.process_time(), computed))
)
print(f"rank {RANK} milliseconds {wall} processor {processor}", flush=True)
