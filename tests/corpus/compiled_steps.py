"""Programs whose compiled steps are compared with a text: one line for each collective, in the order of the program.

The texts are in `compiled_steps/`, one file a program. `make golden` writes them again; a refactoring leaves them as they are.
A line says the kind, how it combines, what a device enters it with, which devices it joins (or from where to where it sends),
how often the loop around it runs, and the scopes of the operator that it comes from:

    all-reduce add f32[16,32] f32[16] {0,4}{1,5}{2,6}{3,7} loop of 2: net/fc/MatMul
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pipeline_cases
from corpus_programs import PROGRAMS as TRAINING, floats
from jax import lax
from jax.sharding import Mesh, PartitionSpec as P

import sporax
import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, communication, nn, ops
from sporax.mindspore.common.initializer import initializer
from sporax.mindspore.parallel._transformer import MoEConfig, TransformerOpParallelConfig
from sporax.mindspore.parallel._transformer.moe import MoE
from sporax.runtime.process.compiled_text import COLLECTIVES, CompiledText, groups_of

GOLDEN = Path(__file__).with_name("compiled_steps")
DEVICES = 8
_ARRAY = re.compile(r"\b((?:pred|bf16|[sufc]\d+)\w*\[[\d,]*\])")
_GROUP = re.compile(r"\{([\d,]+)\}")
_JIT = re.compile(r"\bp?jit\([^()]*\)")
_WORDS_OF_JAX = frozenset(
    "shard_map jvp transpose vmap checkpoint remat rematted_computation closed_call custom_jvp_call custom_vjp_call while body "
    "cond scan communication psum pmax pmin all_gather reduce_scatter all_to_all ppermute jit pjit".split()
)
"""How XLA names what JAX wraps around operators, and its collectives: versions of JAX differ in it."""


# ------------------------------------------------------------------------------------------------------------ lines of a text


def lines(text: str) -> Iterator[str]:
    """A line for each collective of a compiled program, in the order in which they run."""
    program = CompiledText.of(text)
    yield from _within(program, program.entry, ())


def _within(program: CompiledText, name: str, loops: tuple[str, ...]) -> Iterator[str]:
    inside = program.computations[name]
    for one in inside.values():
        if one.opcode in ("while", "conditional", "call"):
            trips = f"loop of {one.trips or '?'}"
            around = {"while": (*loops, trips), "conditional": (*loops, "branch"), "call": loops}[one.opcode]
            for called in one.called:
                yield from _within(program, called, around)
        if one.opcode in COLLECTIVES:
            arrays = " ".join(array for operand in one.operands for array in _ARRAY.findall(inside[operand].result))
            groups = "".join(f"{{{','.join(map(str, group))}}}" for group in groups_of(one, DEVICES))
            place = " in ".join(reversed(loops))
            yield f"{' '.join([one.opcode, *_combination(program, one), arrays, groups, place]).strip()}: {_scope(one)}"


def _combination(program: CompiledText, one) -> list[str]:
    """The operation by which it combines what devices have: the last one of its computation."""
    bodies = [program.computations[name] for name in one.called if name in program.computations]
    return [[*body.values()][-1].opcode for body in bodies]


def _scope(one) -> str:
    """Cells and operators that it belongs to, without the words of JAX; each once where several are fused."""
    words = re.split(r"[/():]+", _JIT.sub("", one.op_name))
    return " ".join(dict.fromkeys(word for word in words if word and word not in _WORDS_OF_JAX)) or "?"


def without_versions(text: str) -> str:
    """The kinds of each program with how many devices they join and how many numbers go in: equal for all versions of JAX."""
    found = []
    for part in text.split("\n= ")[1:]:
        title, _, rest = part.partition("\n")
        numbers: Counter[str] = Counter()
        for line in rest.splitlines():
            kind, members = line.partition(" ")[0], _GROUP.search(line)[1].count(",") + 1
            sizes = [math.prod(map(int, filter(None, dims.split(",")))) for dims in re.findall(r"\[([\d,]*)\]", line)]
            numbers[f"{kind} over {members}"] += sum(sizes) * math.prod(map(int, re.findall(r"loop of (\d+)", line)))
        found += [f"= {title}", *(f"{key}: {count}" for key, count in sorted(numbers.items()))]
    return "\n".join(found)


# ------------------------------------------------------------------------------------------------- programs of MindSpore's kind


def _draw(*shape: int) -> Tensor:
    return Tensor(np.random.default_rng(0).normal(size=shape).astype(np.float32))


def _numbers(*shape: int, below: int) -> Tensor:
    return Tensor(np.random.default_rng(1).integers(0, below, shape).astype(np.int32))


def _weight(name: str, *shape: int) -> Parameter:
    return Parameter(initializer("normal", [*shape], ms.float32), name=name)


def _step(net: nn.Cell, *data: Tensor, optimizer=nn.Momentum, **settings) -> Iterator[tuple[str, str]]:
    """The text of the step that trains a network."""
    ms.set_auto_parallel_context(device_num=DEVICES, **settings)
    rates = (0.1, 0.9) if optimizer is nn.Momentum else (0.1,)
    step = nn.TrainOneStepCell(net, optimizer(net.trainable_params(), *rates)).set_train()
    step(*data)
    yield "step", step.program.executable.as_text()


SEMI_AUTO = {"parallel_mode": "semi_auto_parallel", "dataset_strategy": "full_batch"}
OPTIMIZER_PARALLEL = {"enable_parallel_optimizer": True}


def lenet():
    """Data parallelism: the gradients of all layers, fused."""
    communication.init()
    net = nn.SequentialCell(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2, 2), nn.Flatten(), nn.Dense(64, 8)
    )
    loss = nn.WithLossCell(net, nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"))
    return _step(loss, _draw(16, 1, 8, 8), _numbers(16, below=8), parallel_mode="data_parallel", gradients_mean=True)


class Block(nn.Cell):
    """Attention and a feed-forward layer, sharded by heads and columns over 2 x 4 devices as Megatron does."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm((16,))
        for name in ("q", "k", "v", "o"):
            setattr(self, f"w{name}", _weight(f"w{name}", 16, 16))
        self.up, self.down = _weight("up", 16, 32), _weight("down", 32, 16)
        columns, rows = ((2, 1), (1, 4)), ((2, 4), (4, 1))
        self.query, self.key, self.value, self.first = (ops.MatMul().shard(columns) for _ in range(4))
        self.out, self.second = (ops.MatMul().shard(rows) for _ in range(2))
        by_heads = ((2, 4, 1, 1), (2, 4, 1, 1))
        self.scores, self.mix = ops.BatchMatMul(transpose_b=True).shard(by_heads), ops.BatchMatMul().shard(by_heads)
        self.softmax, self.gelu = ops.Softmax(-1).shard(by_heads[:1]), ops.GeLU().shard(((2, 4),))

    def construct(self, x):
        y = self.norm(x)
        q, k, v = (
            ops.transpose(ops.reshape(product(y, weight), (-1, 4, 4, 4)), (0, 2, 1, 3))
            for product, weight in ((self.query, self.wq), (self.key, self.wk), (self.value, self.wv))
        )
        mixed = self.mix(self.softmax(self.scores(q, k) * 0.5), v)
        x = x + self.out(ops.reshape(ops.transpose(mixed, (0, 2, 1, 3)), (-1, 16)), self.wo)
        return x + self.second(self.gelu(self.first(x, self.up)), self.down)


class Mean(nn.Cell):
    """The mean of the squares of what a network gives."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def construct(self, x):
        y = self.net(x)
        return ops.reduce_mean(ops.square(y[0] if isinstance(y, tuple) else y))


def transformer():
    """Operators with strategies: partial sums of tensor parallelism, gradients over the copies."""
    return _step(Mean(Block()), _draw(32, 16), **SEMI_AUTO)


def recomputed():
    """The same block, recomputed in the backward pass but for its communication."""
    block = Block()
    block.recompute(mp_comm_recompute=False)
    return _step(Mean(block), _draw(32, 16), **SEMI_AUTO)


def accumulated():
    """Slices of gradients and optimizer states, summed over micro batches in slices."""
    config = {"parallel_optimizer_threshold": 0, "gradient_accumulation_shard": True, "optimizer_level": "level2"}
    net = Mean(nn.SequentialCell(nn.Dense(16, 16), nn.Tanh(), nn.Dense(16, 16, has_bias=False)))
    cell = nn.GradAccumulationCell(net, 4)
    return _step(
        cell, _draw(64, 16), parallel_mode="semi_auto_parallel", parallel_optimizer_config=config, **OPTIMIZER_PARALLEL
    )


def experts():
    """Experts on groups of devices, to which tokens are sent and from which they come back."""
    config = TransformerOpParallelConfig(data_parallel=4, model_parallel=2, expert_parallel=4)
    moe = MoE(
        16, 0.0, 32, moe_config=MoEConfig(4), parallel_config=config.moe_parallel_config, compute_dtype=ms.float32
    )
    return _step(Mean(moe), _draw(32, 16), **SEMI_AUTO)


class Lookup(nn.Cell):
    """Rows of a table that is sharded by rows."""

    def __init__(self):
        super().__init__()
        self.table = _weight("table", 32, 16)
        self.gather = ops.Gather().shard(((8, 1), (1, 1)))
        self.head = nn.Dense(16, 8)

    def construct(self, ids):
        return self.head(self.gather(self.table, ids, 0))


def table_by_rows():
    """A lookup in a table by rows: what is found is a partial sum."""
    return _step(Mean(Lookup()), _numbers(8, 4, below=32), optimizer=nn.Adam, **SEMI_AUTO)


def pipeline():
    """Two stages of four devices with operators sharded inside, a text for each program of each stage."""
    pipeline_cases.settings(2)
    _, _, step = pipeline_cases.losses(pipeline_cases.straight(2), 4, steps=1, sharded=True)
    for name, executable in sorted(step.program.executable.executables.items()):
        yield name, executable.as_text()


# ---------------------------------------------------------------------------------------------------------- programs of JAX

_COLUMNS, _ROWS = P(None, None, "model"), P(None, "model")
_BLOCKS = dict.fromkeys("qkv", _COLUMNS) | {"up": _COLUMNS, "gate": _COLUMNS, "down": _ROWS, "o": _ROWS}


def _planned(fn, *args, **options) -> Iterator[tuple[str, str]]:
    planned = sporax.plan(
        fn, *args, **{"devices": {"data": 2, "model": 4}, "hardware": "h100", "carry": {0: 0}, **options}
    )
    placed = jax.device_put(args, planned.in_shardings)
    yield "step", planned.function().lower(*placed).compile().as_text()


def _spread(name: str, weights: str, **data: P):
    """A program whose plan spreads from the layers' weights at a path, as Megatron shards them, and from the data."""

    def make():
        program = TRAINING[name]
        fixed = {f"{weights}['{key}']": spec for key, spec in _BLOCKS.items()} | dict.fromkeys(
            [1] if data else [], data.get("data")
        )
        return _planned(program.step, *program.args, mode="propagation", fixed=fixed)

    return make


def island():
    """A part that the user wrote with `jax.shard_map`, inside of a planned step."""
    mesh = Mesh(np.array(jax.devices()[:DEVICES]).reshape(2, 4), ("data", "model"))

    @jax.shard_map(mesh=mesh, in_specs=(P("data", "model"), P("model", None)), out_specs=P("data"))
    def layer(h, w):
        return jnp.tanh(lax.psum(h @ w, "model"))

    def step(w, x):
        return w - 0.1 * jax.grad(lambda w: (layer(jnp.sin(x @ w), w) ** 2).mean())(w)

    return _planned(step, floats(16, 16), floats(32, 16), mode="propagation", fixed={1: P("data")})


def joint():
    """Shardings of all operators and of the state, chosen in one search under a limit of memory."""

    def loss(weights, x):
        for w in weights:
            x = jnp.tanh(x @ w)
        return (x**2).mean()

    def step(weights, x):
        return jax.tree.map(lambda w, g: w - 0.1 * g, weights, jax.grad(loss)(weights, x))

    return _planned(step, [floats(64, 64) for _ in range(2)], floats(512, 64), devices=8, memory=LIMIT, mode="ilp")


LIMIT = 120_000
"""Bytes of a device, of which the fastest plan of `joint` takes more."""

PROGRAMS: dict[str, Callable[[], Iterator[tuple[str, str]]]] = {
    "data_parallel_lenet": lenet,
    "semi_auto_transformer": transformer,
    "recomputed_transformer": recomputed,
    "optimizer_parallel_accumulation": accumulated,
    "pipeline_two_stages": pipeline,
    "experts": experts,
    "table_by_rows": table_by_rows,
    "jax_scan_over_layers": _spread("scanned decoder, Adam", "[0]['params']['blocks']", data=P("data")),
    "jax_accumulated_gradients": _spread("accumulated gradients", "[0]['blocks']"),
    "jax_shard_map_island": island,
    "jax_joint_plan": joint,
}


def golden_text(name: str) -> str:
    """What the file of a program holds."""
    parts = [f"= {title}\n" + "".join(f"{line}\n" for line in lines(text)) for title, text in PROGRAMS[name]()]
    return f"# JAX {jax.__version__}\n" + "".join(parts)
