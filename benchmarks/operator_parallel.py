"""What does a plan cost over sharding by hand?

One training step (forward, backward, Momentum) of a Megatron-style transformer on a grid of 2 x 4 devices: the batch in two
slices, the matrices of attention and of the feed-forward part in four, by columns and then by rows. It is written twice: with
strategies on Sporax's operators, and in JAX with `NamedSharding` and `with_sharding_constraint` under `jax.jit`, the same
maths on the same cuts. Both run in one process and take turns in blocks; the ratio is that of neighbouring blocks. A second
copy of the hand-written step is the control: its ratio to the first says how much of a difference means nothing.

    sporax run benchmarks/operator_parallel.py [--rounds N] [--layers N] [--hidden N] [--fusion MB] [--processor]

Goal: ratio <= 1.02, with memory that is kept between steps (not SPORAX_KEEP_MEMORY=0). Also compares losses and prints the
collectives of both compiled programs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8".strip()

import jax
import jax.numpy as jnp
import numpy as np
from _timing import blocks
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from rich.console import Console

import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, nn, ops
from sporax.mindspore.communication import init

Arrays = dict[str, jax.Array]
DP, MP = 2, 4
RATE, MOMENTUM, EPSILON = 0.01, 0.9, 1e-5


@dataclass(frozen=True)
class Sizes:
    layers: int
    hidden: int
    heads: int = 8
    batch: int = 16
    length: int = 64
    classes: int = 64


def weights(sizes: Sizes) -> dict[str, np.ndarray]:
    """Initial values of all parameters."""
    rng = np.random.default_rng(0)
    found: dict[str, np.ndarray] = {}

    def matrix(name: str, rows: int, columns: int) -> None:
        found[name] = (rng.normal(size=(rows, columns)) / np.sqrt(rows)).astype(np.float32)
        found[f"{name}_bias"] = np.zeros(columns, np.float32)

    hidden = sizes.hidden
    for layer in range(sizes.layers):
        for norm in ("norm1", "norm2"):
            found[f"{layer}_{norm}_gamma"] = np.ones(hidden, np.float32)
            found[f"{layer}_{norm}_beta"] = np.zeros(hidden, np.float32)
        for name in "qkvo":
            matrix(f"{layer}_{name}", hidden, hidden)
        matrix(f"{layer}_up", hidden, 4 * hidden)
        matrix(f"{layer}_down", 4 * hidden, hidden)
    matrix("head", hidden, sizes.classes)
    return found


# ----------------------------------------------------------------------------------------------------------- on Sporax


class Matrix(nn.Cell):
    """``x @ weight + bias`` with strategies of its own."""

    def __init__(self, values: dict[str, np.ndarray], name: str, cuts: tuple[int, int]) -> None:
        super().__init__()
        rows, columns = cuts
        self.weight = Parameter(Tensor(values[name]), name=name)
        self.bias = Parameter(Tensor(values[f"{name}_bias"]), name=f"{name}_bias")
        self.matmul = ops.MatMul().shard(((DP, rows), (rows, columns)))
        self.add = ops.Add().shard(((DP, columns), (columns,)))

    def construct(self, x: Tensor) -> Tensor:
        return self.add(self.matmul(x, self.weight), self.bias)


class Block(nn.Cell):
    def __init__(self, sizes: Sizes, values: dict[str, np.ndarray], layer: int) -> None:
        super().__init__()
        self.sizes = sizes
        for norm in ("norm1", "norm2"):
            for what in ("gamma", "beta"):
                name = f"{layer}_{norm}_{what}"
                setattr(self, f"{norm}_{what}", Parameter(Tensor(values[name]), name=name))
        self.q, self.k, self.v, self.up = (Matrix(values, f"{layer}_{name}", (1, MP)) for name in ("q", "k", "v", "up"))
        self.o, self.down = (Matrix(values, f"{layer}_{name}", (MP, 1)) for name in ("o", "down"))
        self.norm = ops.LayerNorm(1, 1, EPSILON).shard(((DP, 1), (1,), (1,)))
        self.split = ops.Transpose().shard(((DP, 1, MP, 1),))
        self.merge = ops.Transpose().shard(((DP, MP, 1, 1),))
        self.scores = ops.BatchMatMul(transpose_b=True).shard(((DP, MP, 1, 1), (DP, MP, 1, 1)))
        self.scale = ops.Mul().shard(((DP, MP, 1, 1), ()))
        self.softmax = ops.Softmax().shard(((DP, MP, 1, 1),))
        self.mix = ops.BatchMatMul().shard(((DP, MP, 1, 1), (DP, MP, 1, 1)))
        self.gelu = ops.GeLU().shard(((DP, MP),))
        self.add = ops.Add().shard(((DP, 1), (DP, 1)))

    def construct(self, x: Tensor) -> Tensor:
        sizes = self.sizes
        width = sizes.hidden // sizes.heads
        y = self.norm(x, self.norm1_gamma, self.norm1_beta)[0]
        q, k, v = (
            self.split(ops.reshape(each(y), (sizes.batch, sizes.length, sizes.heads, width)), (0, 2, 1, 3))
            for each in (self.q, self.k, self.v)
        )
        scores = self.softmax(self.scale(self.scores(q, k), width**-0.5))
        mixed = self.merge(self.mix(scores, v), (0, 2, 1, 3))
        x = self.add(x, self.o(ops.reshape(mixed, x.shape)))
        y = self.norm(x, self.norm2_gamma, self.norm2_beta)[0]
        return self.add(x, self.down(self.gelu(self.up(y))))


class Transformer(nn.Cell):
    """Loss of a batch: `x` (batch * length, hidden), `labels` (batch * length, classes) one-hot."""

    def __init__(self, sizes: Sizes, values: dict[str, np.ndarray]) -> None:
        super().__init__()
        self.blocks = nn.CellList([Block(sizes, values, layer) for layer in range(sizes.layers)])
        self.head = Matrix(values, "head", (1, 1))
        self.loss = ops.SoftmaxCrossEntropyWithLogits().shard(((DP, 1), (DP, 1)))
        self.mean = ops.ReduceMean().shard(((DP,),))

    def construct(self, x: Tensor, labels: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.mean(self.loss(self.head(x), labels)[0])


def on_sporax(sizes: Sizes, values: dict[str, np.ndarray], x: np.ndarray, labels: np.ndarray) -> Any:
    """The training step, and its arguments."""
    net = Transformer(sizes, values)
    step = nn.TrainOneStepCell(net, nn.Momentum(net.trainable_params(), RATE, MOMENTUM))
    return step, (Tensor(x), Tensor(labels))


# ------------------------------------------------------------------------------------------------------------- by hand


def mesh_by_hand() -> Mesh:
    return Mesh(np.array(jax.devices()).reshape(DP, MP), ("dp", "mp"), axis_types=(AxisType.Auto,) * 2)


def spec_of(name: str) -> PartitionSpec:
    """How a parameter is cut."""
    kind = name.partition("_")[2]
    if kind in ("q", "k", "v", "up"):
        return PartitionSpec(None, "mp")
    if kind in ("q_bias", "k_bias", "v_bias", "up_bias"):
        return PartitionSpec("mp")
    return PartitionSpec("mp", None) if kind in ("o", "down") else PartitionSpec()


def loss_by_hand(sizes: Sizes, mesh: Mesh) -> Callable[[Arrays, jax.Array, jax.Array], jax.Array]:
    def cut(x: jax.Array, *axes: str | None) -> jax.Array:
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, PartitionSpec(*axes)))

    def dense(p: Arrays, name: str, x: jax.Array, *axes: str | None) -> jax.Array:
        return cut(x @ p[name], *axes) + p[f"{name}_bias"]

    def norm(p: Arrays, name: str, x: jax.Array) -> jax.Array:
        mean = jnp.mean(x, -1, keepdims=True)
        centred = x - mean
        variance = jnp.mean(centred * centred, -1, keepdims=True)
        return centred * jax.lax.rsqrt(variance + EPSILON) * p[f"{name}_gamma"] + p[f"{name}_beta"]

    def block(p: Arrays, layer: int, x: jax.Array) -> jax.Array:
        width = sizes.hidden // sizes.heads
        y = norm(p, f"{layer}_norm1", x)
        q, k, v = (
            cut(
                dense(p, f"{layer}_{name}", y, "dp", "mp")
                .reshape(sizes.batch, sizes.length, sizes.heads, width)
                .transpose(0, 2, 1, 3),
                "dp",
                "mp",
            )
            for name in "qkv"
        )
        scores = jax.nn.softmax((q @ k.transpose(0, 1, 3, 2)) * width**-0.5, -1)
        mixed = cut((scores @ v).transpose(0, 2, 1, 3).reshape(x.shape), "dp", "mp")
        x = x + dense(p, f"{layer}_o", mixed, "dp", None)
        y = norm(p, f"{layer}_norm2", x)
        hidden = jax.nn.gelu(dense(p, f"{layer}_up", y, "dp", "mp"), approximate=True)
        return x + dense(p, f"{layer}_down", hidden, "dp", None)

    def loss(p: Arrays, x: jax.Array, labels: jax.Array) -> jax.Array:
        for layer in range(sizes.layers):
            x = block(p, layer, x)
        logits = dense(p, "head", x, "dp", None)
        return -jnp.mean(jnp.sum(labels * jax.nn.log_softmax(logits, -1), -1))

    return loss


def by_hand(sizes: Sizes, values: dict[str, np.ndarray], x: np.ndarray, labels: np.ndarray) -> Any:
    """The compiled step, and a call of it on arrays that it keeps."""
    mesh = mesh_by_hand()
    loss_of = loss_by_hand(sizes, mesh)

    def step(p: Arrays, v: Arrays, x: jax.Array, labels: jax.Array) -> tuple[Arrays, Arrays, jax.Array]:
        loss, gradients = jax.value_and_grad(loss_of)(p, x, labels)
        v = jax.tree.map(lambda v, g: MOMENTUM * v + g, v, gradients)
        return jax.tree.map(lambda p, v: p - RATE * v, p, v), v, loss

    shardings = {name: NamedSharding(mesh, spec_of(name)) for name in values}
    params = {name: jax.device_put(value, shardings[name]) for name, value in values.items()}
    velocity = {name: jax.device_put(np.zeros_like(value), shardings[name]) for name, value in values.items()}
    data = NamedSharding(mesh, PartitionSpec("dp"))
    inputs = jax.device_put(x, data), jax.device_put(labels, data)
    whole = NamedSharding(mesh, PartitionSpec())
    jitted = jax.jit(step, donate_argnums=(0, 1), out_shardings=(shardings, shardings, whole))
    compiled = jitted.lower(params, velocity, *inputs).compile()
    held: list[Any] = [params, velocity]

    def run() -> jax.Array:
        held[0], held[1], loss = compiled(held[0], held[1], *inputs)
        return loss

    return compiled, run


# ----------------------------------------------------------------------------------------------------------- measuring

_COLLECTIVE = re.compile(r" = (.*?) (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\(")
_SHAPE = re.compile(r"f32\[([\d,]*)\]")


def collectives(text: str) -> str:
    """Number and result bytes of the float32 collectives in a compiled program, by kind."""
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for found in _COLLECTIVE.finditer(re.sub(r"/\*.*?\*/", "", text)):
        shapes = _SHAPE.findall(found.group(1))
        counts[found.group(2)] += 1
        sizes[found.group(2)] += sum(4 * int(np.prod([int(n) for n in shape.split(",") if n])) for shape in shapes)
    return ", ".join(f"{count} {kind} ({sizes[kind] / 1e6:.2f} MB)" for kind, count in sorted(counts.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40, help="blocks of each way")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--fusion", type=int, metavar="MB", help="fuse gradients in buffers of this size")
    parser.add_argument(
        "--processor", action="store_true", help="measure processor time: for machines with other work to do"
    )
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    console = Console()
    sizes = Sizes(options.layers, options.hidden)
    rng = np.random.default_rng(1)
    x = rng.normal(size=(sizes.batch * sizes.length, sizes.hidden)).astype(np.float32)
    labels = np.eye(sizes.classes, dtype=np.float32)[rng.integers(0, sizes.classes, len(x))]
    values = weights(sizes)
    ms.set_context(mode=ms.GRAPH_MODE)
    init()
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=DP * MP)
    ms.set_auto_parallel_context(dataset_strategy=((DP, 1), (DP, 1)))
    if options.fusion:
        ms.set_auto_parallel_context(comm_fusion={"allreduce": {"mode": "size", "config": options.fusion}})
    step, arguments = on_sporax(sizes, values, x, labels)
    compiled, hand = by_hand(sizes, values, x, labels)
    _, control = by_hand(sizes, values, x, labels)
    ways = {"sporax": lambda: step(*arguments).array, "jax": hand, "control": control}
    losses = {name: [float(run()) for _ in range(3)] for name, run in ways.items()}
    difference = max(abs(a - b) / abs(b) for a, b in zip(losses["sporax"], losses["jax"], strict=True))
    console.print(f"three losses, largest difference {difference:.1e} of their value")
    console.print(f"sporax: {collectives(step.program.lower(*arguments).compile().as_text())}", highlight=False)
    console.print(f"jax:    {collectives(compiled.as_text())}", highlight=False)
    clock = time.process_time if options.processor else time.perf_counter
    times = blocks(ways, options.rounds, size=5, clock=clock)
    figures = {name: statistics.median(each) * 1e3 for name, each in times.items()}
    for name in ("sporax", "control"):
        pairs = [mine / theirs for mine, theirs in zip(times[name], times["jax"], strict=True)]
        figures[f"{name} / jax"] = statistics.median(pairs)
    console.print(
        f"sporax {figures['sporax']:.1f} ms, jax {figures['jax']:.1f} ms: ratio {figures['sporax / jax']:.3f}; "
        f"control {figures['control / jax']:.3f} (medians of {options.rounds} pairs of blocks)"
    )
    if options.json:
        with open(options.json, "w") as file:
            json.dump({**figures, "largest loss difference": difference}, file, indent=2)


if __name__ == "__main__":
    main()
