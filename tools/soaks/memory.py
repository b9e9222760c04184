"""Random training steps, planned for eight CPU devices: predicted memory of a device next to that of the compiled program.

A step is drawn from the seed and its number alone: layers one by one, in a scan, a loop or a `jax.shard_map`, computed again
or not, with or without gradient, donated or not, in float32 or half precision. Plans are those of the searches; nothing is run.
Counted are steps above 1 MB; the aim is that 95 % of them are predicted within 10 %.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

os.environ.setdefault("SPORAX_NO_CACHE", "1")
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8".strip()

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

import sporax
from soaks.scenario import NotCountedError, Scenario, Trial
from sporax.planner import peak_bytes
from sporax.runtime.planned.compiled_plans import device_bytes

WITHIN, SHARE, LEAST_BYTES = 0.10, 0.95, 1_000_000
MODES = ("dynamic", "recursive", "propagation")
Layer = Callable[[Any, Any], Any]


def attention(x: Any, w: Any) -> Any:
    """One head; rows are 8 sequences."""
    rows = (x @ w).reshape(8, -1, x.shape[-1])
    return (jax.nn.softmax(rows @ rows.swapaxes(1, 2)) @ rows).reshape(x.shape)


def heads(x: Any, w: Any) -> Any:
    """Four heads."""
    rows = (x @ w).reshape(8, -1, 4, x.shape[-1] // 4)
    scores = jax.nn.softmax(jnp.einsum("bshd,bthd->bhst", rows, rows))
    return x + jnp.einsum("bhst,bthd->bshd", scores, rows).reshape(x.shape)


def dropped(x: Any, w: Any) -> Any:
    """A third of the elements is dropped, in every layer others."""
    key = jax.random.fold_in(jax.random.key(0), lax.bitcast_convert_type(w[0, 0].astype("float32"), "uint32"))
    return jnp.where(jax.random.bernoulli(key, 0.7, x.shape), jax.nn.relu(x @ w), 0)


LAYERS: dict[str, Layer] = {
    "tanh": lambda x, w: jnp.tanh(x @ w),
    "gelu": lambda x, w: x + jax.nn.gelu(x @ w),
    "norm": lambda x, w: ((x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)) @ w,
    "gated": lambda x, w: (x @ w) * jax.nn.sigmoid(x @ w.T),
    "softmax": lambda x, w: jax.nn.softmax(x @ w),
    "attention": attention,
    "heads": heads,
    "dropout": dropped,
}


def island(layer: Layer) -> Layer:
    """On rows of one device, as its author has sharded them."""

    def network(x: Any, ws: Any) -> Any:
        mesh = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
        return jax.shard_map(HOW["each"](layer), mesh=mesh, in_specs=(P("x"), P()), out_specs=P("x"))(x, ws)

    return network


HOW: dict[str, Callable[[Layer], Layer]] = {
    "each": lambda layer: lambda x, ws: [x := layer(x, w) for w in ws][-1],
    "scan": lambda layer: lambda x, ws: lax.scan(lambda x, w: (layer(x, w), None), x, ws)[0],
    "remat": lambda layer: lambda x, ws: lax.scan(jax.checkpoint(lambda x, w: (layer(x, w), None)), x, ws)[0],
    "checkpoint": lambda layer: HOW["each"](jax.checkpoint(layer)),
    "island": island,
    "fori": lambda layer: lambda x, ws: lax.fori_loop(0, 4, lambda i, x: layer(x, ws[0]), x),
}


def drawn(seed: int, number: int) -> tuple[str, Callable[..., Any], list[Any], dict[str, Any]]:
    """What is planned: a text, the step, shapes of weights, state and data, and options of the plan."""
    draw = random.Random(f"memory {seed} {number}")
    layer, how, kind = (
        draw.choice([*LAYERS]),
        draw.choice([*HOW]),
        draw.choice(["sgd", "momentum", "sum", "loop", "none"]),
    )
    dtype = draw.choices(["float32", "bfloat16", "float16"], [6, 3, 1])[0]
    count, rows, width = draw.choice([2, 3, 4]), draw.choice([256, 1024, 4096]), draw.choice([128, 256, 512])
    donated, mode, batch = draw.choice([(), (0, 1)]), draw.choice(MODES), draw.random() < 0.5
    network = HOW[how](LAYERS[layer])

    def loss(ws: Any, x: Any) -> Any:
        return (network(x, ws).astype(jnp.float32) ** 2).mean()

    def update(ws: Any, state: Any, x: Any) -> tuple[Any, Any]:
        gradient = jax.grad(loss)(ws, x)
        state = (0.9 * state + gradient).astype(state.dtype) if kind == "momentum" else state
        return (ws - 0.1 * (state if kind == "momentum" else gradient)).astype(ws.dtype), state

    def summed(ws: Any, state: Any, x: Any) -> tuple[Any, Any]:
        """Gradients of four micro batches are added up."""
        parts = x.reshape(4, -1, x.shape[-1])
        total = lax.scan(lambda g, part: (g + jax.grad(loss)(ws, part), None), jnp.zeros_like(ws), parts)[0]
        return (ws - 0.1 * total).astype(ws.dtype), state

    def looped(ws: Any, state: Any, x: Any) -> tuple[Any, Any]:
        """Several steps at once: weights are what the loop carries."""
        return lax.fori_loop(0, 3, lambda i, c: update(*c, x), (ws, state))

    steps = {
        "sgd": update,
        "momentum": update,
        "sum": summed,
        "loop": looped,
        "none": lambda ws, state, x: network(x, ws) * state[0, 0, 0],
    }
    donated = () if kind == "none" else donated
    shapes = [jax.ShapeDtypeStruct(shape, dtype) for shape in [(count, width, width)] * 2 + [(rows, width)]]
    text = f"{number}: {layer} {how} {kind} {dtype} {count}x{rows}x{width}{' donated' * bool(donated)} {mode}{' batch' * batch}"
    fixed = {2: (4, 1)} if batch and layer in ("attention", "heads") else {2: (8, 1)} if batch else {}
    return text, steps[kind], shapes, {"mode": mode, "donate_argnums": donated, "fixed": fixed}


def compared(number: int, seed: int) -> tuple[str, int, int]:
    """A text, predicted and compiled bytes."""
    text, step, shapes, options = drawn(seed, number)
    planned = sporax.plan(step, *shapes, devices=8, hardware="cpu", memory=None, **options)
    placed = [
        jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=where)
        for shape, where in zip(shapes, planned.in_shardings, strict=True)
    ]
    executable = planned.jitted(options["donate_argnums"]).lower(*placed).compile()
    return text, peak_bytes(planned.result), device_bytes(executable)


def predict(trial: Trial, text: str) -> str:
    """The predicted memory of a random training step is within 10 % of the compiled program's."""
    _, predicted, compiled = compared(trial.number, trial.seed)
    if compiled < LEAST_BYTES:
        raise NotCountedError("a small step")
    error = predicted / compiled - 1
    if abs(error) > WITHIN:
        raise AssertionError(f"{predicted} predicted, {compiled} compiled, {error:+.1%}")
    return f"within {WITHIN:.0%}"


MEMORY_SCENARIO = Scenario(
    "memory",
    predict,
    cases=200,
    case=lambda seed, number: drawn(seed, number)[0],
    kind=lambda text: "",
    tolerated=1 - SHARE,
)
