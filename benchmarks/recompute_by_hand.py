"""A step with recomputed blocks next to the same step written by hand in JAX with `jax.checkpoint` around each block.

Both have the same network, the same words of dropout per element, Adam, and keep what enters each block. XLA on CPUs takes
barriers away before it merges equal expressions, so `jax.checkpoint` alone saves nothing there; the step by hand is compiled
with the same option as ours. Steps run in turns, and the least time of each is compared.

    python benchmarks/recompute_by_hand.py --layers 4
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import memory_features as features
import numpy as np

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn

Weights = dict[str, Any]
KEPT = {"xla_disable_hlo_passes": "cse_barrier_expander"}


def block_by_hand(weights: Weights, key: jax.Array, mask: jax.Array, x: jax.Array) -> jax.Array:
    def norm(name: str, x: jax.Array) -> jax.Array:
        centred = x - x.mean(-1, keepdims=True)
        scale = jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5)
        return centred * scale * weights[f"{name}.gamma"] + weights[f"{name}.beta"]

    def dense(name: str, x: jax.Array) -> jax.Array:
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    batch, length, width = x.shape
    parts = jnp.split(dense("joint", norm("norm1", x)), 3, axis=-1)
    q, k, v = (each.reshape((batch, length, features.HEADS, -1)).transpose((0, 2, 1, 3)) for each in parts)
    scores = jax.nn.softmax(q @ k.transpose((0, 1, 3, 2)) * (width // features.HEADS) ** -0.5 + mask, -1)
    scores = jnp.where(jax.random.bernoulli(key, 0.9, scores.shape), scores / np.float32(0.9), np.float32(0))
    x = x + dense("out", (scores @ v).transpose((0, 2, 1, 3)).reshape(x.shape))
    return x + dense("narrow", jax.nn.gelu(dense("wide", norm("norm2", x))))


def loss_by_hand(
    block: Callable[..., jax.Array],
    weights: Weights,
    seed: jax.Array,
    mask: jax.Array,
    ids: jax.Array,
    labels: jax.Array,
) -> jax.Array:
    x = weights["table"][ids]
    for number, layer in enumerate(weights["blocks"]):
        x = block(layer, jax.random.fold_in(seed, number), mask, x)
    logits = (x @ weights["table"].T).reshape((-1, features.VOCABULARY))
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels.reshape((-1, 1)), 1).mean()


def step_by_hand(
    block: Callable[..., jax.Array], mask: jax.Array, state: Any, ids: jax.Array, labels: jax.Array
) -> Any:
    weights, first, second, count = state
    value, gradients = jax.value_and_grad(partial(loss_by_hand, block))(
        weights, jax.random.fold_in(jax.random.key(0), count), mask, ids, labels
    )
    count = count + 1
    number = count.astype(jnp.float32)
    rate = 1e-3 * jnp.sqrt(1 - np.float32(0.999) ** number) / (1 - np.float32(0.9) ** number)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradients)
    weights = jax.tree.map(lambda w, m, v: w - rate * m / (jnp.sqrt(v) + 1e-8), weights, first, second)
    return (weights, first, second, count), value


def state_by_hand(net: features.Gpt) -> Any:
    """The weights of a network, zeros for Adam, and the count of steps."""

    def of(cell: Any) -> Weights:
        return {".".join(each.name.split(".")[-2:]): jnp.array(each.asnumpy()) for each in cell.get_parameters()}

    weights = {"table": jnp.array(net.table.embedding_table.asnumpy()), "blocks": [of(each) for each in net.blocks]}
    return weights, jax.tree.map(jnp.zeros_like, weights), jax.tree.map(jnp.zeros_like, weights), jnp.int32(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in {"layers": 4, "width": 128, "length": 128, "batch": 8, "rounds": 10}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    ms.set_context(mode=ms.GRAPH_MODE)
    draw = np.random.default_rng(0)
    shape = (options.batch, options.length)
    data = [Tensor(draw.integers(0, features.VOCABULARY, shape).astype(np.int32)) for _ in range(2)]
    runs: dict[str, Callable[[], Any]] = {}
    sizes: dict[str, int] = {}
    for recomputes in (False, True):
        ms.set_seed(0)
        net = features.Gpt(options.layers, options.width, options.length)
        optimizer = nn.Adam(net.trainable_params(), 1e-3)
        (features.recomputed if recomputes else features.nothing)(net, optimizer)
        step = nn.TrainOneStepCell(net, optimizer).set_train()
        name = "recomputed" if recomputes else "kept"
        runs[f"{name}, ours"] = lambda step=step: step(*data).asnumpy()
        sizes[f"{name}, ours"] = step.program.lower(*data).compile().memory_analysis().temp_size_in_bytes
        block = jax.checkpoint(block_by_hand) if recomputes else block_by_hand
        mask = jnp.array(net.mask.asnumpy())
        arrays = [jnp.array(each.asnumpy()) for each in data]
        state = [state_by_hand(net)]
        jitted = jax.jit(partial(step_by_hand, block, mask), donate_argnums=0)
        compiled = jitted.lower(state[0], *arrays).compile(KEPT if recomputes else {})
        sizes[f"{name}, by hand"] = compiled.memory_analysis().temp_size_in_bytes

        def by_hand(compiled: Any = compiled, state: list[Any] = state, arrays: list[jax.Array] = arrays) -> Any:
            state[0], value = compiled(state[0], *arrays)
            return np.asarray(value)

        runs[f"{name}, by hand"] = by_hand
    wall: dict[str, list[float]] = {name: [] for name in runs}
    busy: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(options.rounds + 1):
        for name, run in runs.items():
            started, used = time.perf_counter(), time.process_time()
            value = run()
            if number:
                wall[name].append(time.perf_counter() - started)
                busy[name].append(time.process_time() - used)
        if number == options.rounds:
            print(f"loss of {name}: {value}")
    for name in runs:
        other = name.split(",")[0] + ", by hand"
        print(
            f"{name:20} temporary {sizes[name] / 1e6:8.1f} MB   step {min(wall[name]) * 1e3:8.1f} ms "
            f"({min(wall[name]) / min(wall[other]):.3f}x by hand), CPU time {min(busy[name]) * 1e3:8.1f} ms "
            f"({min(busy[name]) / min(busy[other]):.3f}x)"
        )


if __name__ == "__main__":
    main()
