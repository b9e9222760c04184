"""What does the facade cost over hand-written JAX?

Four training steps (forward, backward, Momentum) are written twice: with MindSpore's names on Sporax, and by hand with
`jax.jit` on a dictionary of arrays, with the same maths and the same donated buffers. Both run in one process and take
turns in blocks of ten steps; the ratio is that of neighbouring blocks. Then the dispatch of single eager operators
against `jax.numpy`, and the import time against `import jax`.

Where a program's buffers lie moves a step by several percent either way, for as long as the program lives. So each model
is built several times, in random order and with other memory taken each time; the table gives the median ratio over the
builds. A second copy of the hand-written step, built and measured like the others, is the control: its ratio to the
first, which would be 1 on a perfect machine, says how much of a difference means nothing.

    python benchmarks/facade_overhead.py [--builds N] [--rounds N] [--clock cpu] [--model TEXT] [--json FILE]

Goals: ratio of steps <= 1.02, of eager operators <= 1.3, of imports <= 1.3.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from _timing import blocks
from rich.console import Console
from rich.live import Live
from rich.table import Table

import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, nn, ops

Arrays = dict[str, jax.Array]
RATE, MOMENTUM = 0.01, 0.9
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


class Mlp(nn.Cell):
    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.layers = nn.CellList([nn.Dense(width, width) for _ in range(layers)])
        self.head = nn.Dense(width, 10)

    def construct(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = ops.relu(layer(x))
        return self.head(x)


def mlp_by_hand(layers: int) -> Callable[[Arrays, jax.Array], jax.Array]:
    def forward(p: Arrays, x: jax.Array) -> jax.Array:
        for i in range(layers):
            x = jax.nn.relu(x @ p[f"layers.{i}.weight"].T + p[f"layers.{i}.bias"])
        return x @ p["head.weight"].T + p["head.bias"]

    return forward


class LeNet(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, pad_mode="valid", has_bias=True)
        self.conv2 = nn.Conv2d(6, 16, 5, pad_mode="valid", has_bias=True)
        self.pool = nn.MaxPool2d(2, 2)
        self.flatten = nn.Flatten()
        self.fc1 = nn.Dense(16 * 4 * 4, 120)
        self.fc2 = nn.Dense(120, 84)
        self.fc3 = nn.Dense(84, 10)

    def construct(self, x: Tensor) -> Tensor:
        x = self.pool(ops.relu(self.conv1(x)))
        x = self.flatten(self.pool(ops.relu(self.conv2(x))))
        return self.fc3(ops.relu(self.fc2(ops.relu(self.fc1(x)))))


def lenet_by_hand(p: Arrays, x: jax.Array) -> jax.Array:
    def conv(x: jax.Array, name: str) -> jax.Array:
        y = jax.lax.conv_general_dilated(
            x, p[f"{name}.weight"], (1, 1), "VALID", dimension_numbers=("NCHW", "OIHW", "NCHW")
        )
        y = jax.nn.relu(y + p[f"{name}.bias"].reshape(1, -1, 1, 1))
        return jax.lax.reduce_window(y, np.float32(-np.inf), jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")

    def dense(x: jax.Array, name: str) -> jax.Array:
        return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]

    x = conv(conv(x, "conv1"), "conv2").reshape(x.shape[0], -1)
    return dense(jax.nn.relu(dense(jax.nn.relu(dense(x, "fc1")), "fc2")), "fc3")


class Block(nn.Cell):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm((width,), epsilon=1e-5), nn.LayerNorm((width,), epsilon=1e-5)
        self.q, self.k, self.v, self.o = (nn.Dense(width, width) for _ in range(4))
        self.up, self.down = nn.Dense(width, 4 * width), nn.Dense(4 * width, width)
        self.heads, self.size = heads, width // heads

    def split(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        return ops.transpose(ops.reshape(x, (batch, length, self.heads, self.size)), (0, 2, 1, 3))

    def construct(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        q, k, v = self.split(self.q(y)), self.split(self.k(y)), self.split(self.v(y))
        scores = ops.softmax(ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) * (self.size**-0.5), axis=-1)
        mixed = ops.reshape(ops.transpose(ops.matmul(scores, v), (0, 2, 1, 3)), x.shape)
        x = x + self.o(mixed)
        return x + self.down(ops.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Transformer(nn.Cell):
    def __init__(self, layers: int, width: int, heads: int, vocab: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.blocks = nn.CellList([Block(width, heads) for _ in range(layers)])
        self.head = nn.Dense(width, vocab)
        self.vocab = vocab

    def construct(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return ops.reshape(self.head(x), (-1, self.vocab))


def transformer_by_hand(layers: int, heads: int) -> Callable[[Arrays, jax.Array], jax.Array]:
    def forward(p: Arrays, ids: jax.Array) -> jax.Array:
        def dense(x: jax.Array, name: str) -> jax.Array:
            return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]

        def norm(x: jax.Array, name: str) -> jax.Array:
            mean, var = jnp.mean(x, -1, keepdims=True), jnp.var(x, -1, keepdims=True)
            return (x - mean) * jax.lax.rsqrt(var + 1e-5) * p[f"{name}.gamma"] + p[f"{name}.beta"]

        x = jnp.take(p["embed.embedding_table"], ids, axis=0, mode="fill", fill_value=0)
        batch, length, width = x.shape

        def split(y: jax.Array) -> jax.Array:
            return y.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3)

        for i in range(layers):
            at = f"blocks.{i}."
            y = norm(x, at + "norm1")
            q, k, v = (split(dense(y, at + name)) for name in "qkv")
            scores = jax.nn.softmax(q @ k.transpose(0, 1, 3, 2) * (width // heads) ** -0.5, -1)
            x = x + dense((scores @ v).transpose(0, 2, 1, 3).reshape(x.shape), at + "o")
            x = x + dense(jax.nn.gelu(dense(norm(x, at + "norm2"), at + "up"), approximate=True), at + "down")
        return dense(x, "head").reshape(batch * length, -1)

    return forward


class ManyParameters(nn.Cell):
    """300 small Parameters: what the bookkeeping costs."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.count = count
        for index in range(count):
            setattr(self, f"w{index}", Parameter(Tensor(np.full((width,), 0.5, np.float32)), name=f"w{index}"))
        self.head = nn.Dense(width, 10)

    def construct(self, x: Tensor) -> Tensor:
        for index in range(self.count):
            x = x * getattr(self, f"w{index}") + x
        return self.head(ops.tanh(x))


def many_by_hand(count: int) -> Callable[[Arrays, jax.Array], jax.Array]:
    def forward(p: Arrays, x: jax.Array) -> jax.Array:
        for index in range(count):
            x = x * p[f"w{index}"] + x
        return jnp.tanh(x) @ p["head.weight"].T + p["head.bias"]

    return forward


Forward = Callable[[Arrays, jax.Array], jax.Array]
Step = Callable[[], Any]


def by_hand(net: nn.Cell, forward: Forward, x: Any, y: Any) -> Step:
    """The step in plain JAX, from the weights of `net`."""
    params = {name: jnp.array(p.asnumpy()) for name, p in net.parameters_dict().items()}
    velocity = {name: jnp.zeros_like(p) for name, p in params.items()}

    def loss_of(p: Arrays, x: jax.Array, y: jax.Array) -> jax.Array:
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(forward(p, x), -1), y[:, None], -1))

    def step(p: Arrays, v: Arrays, x: jax.Array, y: jax.Array) -> tuple[Arrays, Arrays, jax.Array]:
        loss, grads = jax.value_and_grad(loss_of)(p, x, y)
        v = jax.tree.map(lambda v, g: MOMENTUM * v + g, v, grads)
        return jax.tree.map(lambda p, v: p - RATE * v, p, v), v, loss

    compiled = jax.jit(step, donate_argnums=(0, 1))
    held: list[Any] = [params, velocity]
    x_array, y_array = jnp.asarray(x), jnp.asarray(y)

    def run() -> Any:
        held[0], held[1], loss = compiled(held[0], held[1], x_array, y_array)
        return loss

    return run


def on_sporax(net: nn.Cell, x: Any, y: Any) -> Step:
    """The step in MindSpore's names."""
    optimizer = nn.Momentum(net.trainable_params(), RATE, MOMENTUM)
    train = nn.TrainOneStepCell(
        nn.WithLossCell(net, nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")), optimizer
    )
    x_tensor, y_tensor = Tensor(x), Tensor(y)
    return lambda: train(x_tensor, y_tensor).array


@dataclass
class Case:
    """A model in both forms, with its inputs."""

    make: Callable[[], nn.Cell]
    forward: Forward
    x: Any
    y: Any

    def build(self, rng: random.Random) -> dict[str, Step]:
        """Both steps and the control, compiled and with buffers of their own, in random order."""
        net = self.make()
        makers: dict[str, Callable[[], Step]] = {
            "sporax": lambda: on_sporax(net, self.x, self.y),
            "jax": lambda: by_hand(net, self.forward, self.x, self.y),
            "control": lambda: by_hand(net, self.forward, self.x, self.y),
        }
        made = {}
        for name in rng.sample(list(makers), len(makers)):
            made[name] = makers[name]()
            jax.block_until_ready(made[name]())
        return made


def compare(case: Case, builds: int, rounds: int, clock: Callable[[], float]) -> dict[str, Any]:
    """Medians over all builds: seconds of both ways, and the ratios of each build to the hand-written step."""
    rng = random.Random(0)
    seconds: dict[str, list[float]] = {"sporax": [], "jax": []}
    ratios: dict[str, list[float]] = {"sporax": [], "control": []}
    for _ in range(builds):
        taken = [bytearray(rng.randrange(1 << 10, 1 << 20)) for _ in range(20)]  # moves what is allocated from here on
        times = blocks(case.build(rng), rounds, clock=clock)
        del taken
        for name, each in seconds.items():
            each.append(statistics.median(times[name]))
        for name, each in ratios.items():
            pairs = zip(times[name], times["jax"], strict=True)
            each.append(statistics.median(ours / by_hand for ours, by_hand in pairs))
    return {"seconds": seconds, "ratios": ratios}


def cases(rng: np.random.Generator) -> dict[str, Case]:
    """The four models with their inputs."""

    def floats(*shape: int) -> Any:
        return rng.normal(size=shape).astype(np.float32)

    def labels(count: int, classes: int) -> Any:
        return rng.integers(0, classes, count).astype(np.int32)

    ids = rng.integers(0, 64, (8, 32)).astype(np.int32)
    return {
        "MLP, 12 layers of 128, batch 64": Case(lambda: Mlp(12, 128), mlp_by_hand(12), floats(64, 128), labels(64, 10)),
        "transformer, 4 layers of 128": Case(
            lambda: Transformer(4, 128, 4, 64), transformer_by_hand(4, 4), ids, labels(ids.size, 64)
        ),
        "LeNet, 28x28, batch 32": Case(LeNet, lenet_by_hand, floats(32, 1, 28, 28), labels(32, 10)),
        "300 parameters of 64": Case(
            lambda: ManyParameters(300, 64), many_by_hand(300), floats(64, 64) * 1e-30, labels(64, 10)
        ),
    }


def eager_ratios() -> dict[str, float]:
    """Dispatch of single operators on small arrays: ours over `jax.numpy`."""
    a, b = Tensor(np.ones((4, 4), np.float32)), Tensor(np.ones((4, 4), np.float32))
    x, y = a.array, b.array
    primitive = ops.MatMul()
    pairs: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "add": (lambda: ops.add(a, b), lambda: jnp.add(x, y)),
        "a + b": (lambda: a + b, lambda: x + y),
        "a * 2.0": (lambda: a * 2.0, lambda: x * 2.0),
        "matmul": (lambda: ops.matmul(a, b), lambda: jnp.matmul(x, y)),
        "MatMul()": (lambda: primitive(a, b), lambda: jnp.matmul(x, y)),
        "exp": (lambda: ops.exp(a), lambda: jnp.exp(x)),
        "sum": (lambda: ops.sum(a, 1), lambda: jnp.sum(x, 1)),
        "softmax": (lambda: ops.softmax(a, axis=-1), lambda: jax.nn.softmax(x, -1)),
        "reshape": (lambda: ops.reshape(a, (2, 8)), lambda: jnp.reshape(x, (2, 8))),
        "concat": (lambda: ops.concat((a, b)), lambda: jnp.concatenate((x, y))),
        "a[0]": (lambda: a[0], lambda: x[0]),
    }
    return {name: _ratio(ours, theirs) for name, (ours, theirs) in pairs.items()}


def _ratio(ours: Callable[[], Any], theirs: Callable[[], Any], rounds: int = 40, count: int = 300) -> float:
    """Best time of a short loop of one over that of the other; they take turns."""
    best = {ours: float("inf"), theirs: float("inf")}
    for _ in range(rounds):
        for run in best:
            start = time.perf_counter()
            for _ in range(count):
                run()
            best[run] = min(best[run], time.perf_counter() - start)
    return best[ours] / best[theirs]


def import_ratio(statement: str) -> float:
    """Best processor time of an import over that of ``import jax``, in fresh processes that take turns.

    Byte code is kept in a folder of its own, so the first import of each, which writes it, does not count.
    """
    best = {"import jax": float("inf"), statement: float("inf")}
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}
        for _ in range(6):
            for code in best:
                program = f"import time; t = time.process_time()\n{code}\nprint(time.process_time() - t)"
                command = [sys.executable, "-c", program]
                out = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
                best[code] = min(best[code], float(out))
    return best[statement] / best["import jax"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--builds", type=int, default=5, help="how often each model is built anew")
    parser.add_argument("--rounds", type=int, default=9, help="blocks of ten steps per build and way")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: time of all threads, for a busy machine")
    parser.add_argument("--model", default="", help="only models whose name contains this")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(0)
    console = Console()
    table = Table(title=f"One training step, {options.builds} builds, {options.clock} time ({jax.default_backend()})")
    for column in ("model", "Sporax, ms", "hand-written JAX, ms", "ratio (builds)", "control (builds)"):
        table.add_column(column, justify="left" if column == "model" else "right")
    figures: dict[str, Any] = {}
    with Live(table, console=console):
        for name, case in cases(np.random.default_rng(0)).items():
            if options.model in name:
                found = figures[name] = compare(case, options.builds, options.rounds, CLOCKS[options.clock])
                milliseconds = [f"{statistics.median(each) * 1e3:.3f}" for each in found["seconds"].values()]
                table.add_row(name, *milliseconds, *map(_shown, found["ratios"].values()))
    eager = eager_ratios()
    figures.update({f"eager {name}": ratio for name, ratio in eager.items()})
    console.print(
        "Eager operators over jax.numpy: " + ", ".join(f"{name} {ratio:.2f}" for name, ratio in eager.items())
    )
    for statement in ("import sporax", "from sporax.mindspore import Tensor, nn, ops"):
        figures[statement] = import_ratio(statement)
        console.print(f"{statement}: {figures[statement]:.2f}x of import jax")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(figures, file, indent=2)


def _shown(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.3f} ({min(ratios):.2f} - {max(ratios):.2f})"


if __name__ == "__main__":
    main()
