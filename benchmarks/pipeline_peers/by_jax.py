"""The transformer as an SPMD pipeline written by hand in JAX: one program, a scan over ticks, a ppermute per tick.

sporax run --worker_num 2 by_jax.py STEPS WIDTH MICRO     (the launcher only starts the processes and binds them to cores)

Stage s runs micro batch t - s at tick t. Differentiation turns the loop around (GPipe). What a stage computes at ticks
without a micro batch falls into the bubble and costs no time. Only the ends embed tokens and compute the loss.
"""

import json
import os
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

STEPS, WIDTH, MICRO = map(int, sys.argv[1:4])
STAGES, BLOCKS, HEADS, LENGTH, VOCABULARY, ROWS = 2, 8, 4, 64, 256, 4
RANK, SIZE = int(os.environ["RANK_ID"]), int(os.environ["RANK_SIZE"])


def dense(rng, inputs, outputs):
    bound = inputs**-0.5
    return {
        "w": rng.uniform(-bound, bound, (outputs, inputs)).astype(np.float32),
        "b": rng.uniform(-bound, bound, outputs).astype(np.float32),
    }


def apply(layer, x):
    return x @ layer["w"].T + layer["b"]


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


def loss_of(params, x, labels):
    logits = apply(params["head"], x).reshape(-1, VOCABULARY)
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels.reshape(-1, 1), 1).mean()


def pipeline(params, tokens, labels):
    """Mean loss of all micro batches; `params["blocks"]` are those of this stage."""
    stage = lax.axis_index("stage")
    own = [jax.tree.map(lambda leaf, n=n: leaf[n], params["blocks"]) for n in range(BLOCKS // STAGES)]

    def tick(carry, t):
        x, total = carry
        first = jnp.clip(t, 0, MICRO - 1)
        x = lax.cond(stage == 0, lambda x: params["tokens"][tokens[first]], lambda x: x, x)
        for p in own:
            x = block(p, x)
        last = t - (STAGES - 1)
        at_end = (stage == STAGES - 1) & (last >= 0)
        total += lax.cond(at_end, lambda: loss_of(params, x, labels[jnp.clip(last, 0)]), lambda: 0.0)
        return (lax.ppermute(x, "stage", [(n, n + 1) for n in range(STAGES - 1)]), total), None

    start = jnp.zeros((ROWS, LENGTH, WIDTH)), jnp.zeros(())
    (_, total), _ = lax.scan(tick, start, jnp.arange(MICRO + STAGES - 1))
    return total / MICRO


def step(params, velocity, tokens, labels):
    loss, grads = jax.value_and_grad(pipeline)(params, tokens, labels)
    ends = {name: lax.psum(grads[name], "stage") for name in ("tokens", "head")}
    grads = {**grads, **ends}
    velocity = jax.tree.map(lambda v, g: 0.9 * v + g, velocity, grads)
    return jax.tree.map(lambda p, v: p - 0.01 * v, params, velocity), velocity, lax.psum(loss, "stage")


jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"127.0.0.1:{os.environ['BENCHMARK_PORT']}", SIZE, RANK)
mesh = Mesh(np.array(jax.devices()), ("stage",), axis_types=(AxisType.Auto,))
rng = np.random.default_rng(1)
ones = {"g": np.ones(WIDTH, np.float32), "b": np.zeros(WIDTH, np.float32)}
sizes = {"up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
sizes |= dict.fromkeys(("query", "key", "value", "project"), (WIDTH, WIDTH))
blocks = [{"norm1": ones, "norm2": ones} | {k: dense(rng, *s) for k, s in sizes.items()} for _ in range(BLOCKS)]
start = {
    "tokens": rng.normal(0, 0.02, (VOCABULARY, WIDTH)).astype(np.float32),
    "head": dense(rng, WIDTH, VOCABULARY),
    "blocks": jax.tree.map(lambda *leaves: np.stack(leaves), *blocks),
}
specs = {"tokens": P(), "head": P(), "blocks": P("stage")}


def place(tree):
    def put(value, spec):
        return jax.make_array_from_callback(value.shape, NamedSharding(mesh, spec), lambda index: value[index])

    return {name: jax.tree.map(lambda v, name=name: put(v, specs[name]), part) for name, part in tree.items()}


mapped = jax.shard_map(
    step, mesh=mesh, in_specs=(specs, specs, P(), P()), out_specs=(specs, specs, P()), check_vma=False
)
run = jax.jit(mapped, donate_argnums=(0, 1))
params, velocity = place(start), place(jax.tree.map(np.zeros_like, start))
batch = np.random.default_rng(0).integers(0, VOCABULARY, (MICRO, ROWS, LENGTH)).astype(np.int32)
batch = jax.make_array_from_callback(batch.shape, NamedSharding(mesh, P()), lambda index: batch[index])
for _ in range(10):
    params, velocity, loss = run(params, velocity, batch, batch)
    loss.block_until_ready()
walls, computed = [], time.process_time()
for _ in range(STEPS):
    started = time.perf_counter()
    params, velocity, loss = run(params, velocity, batch, batch)
    loss.block_until_ready()
    walls.append(1e3 * (time.perf_counter() - started))
processor = 1e3 * (time.process_time() - computed) / STEPS
print(f"rank {RANK} milliseconds {json.dumps(walls)} processor {processor}", flush=True)
