"""Predicted memory of plans beside what XLA says of the compiled programs, for a suite of networks.

Every network's training step is planned for eight simulated devices with parameters whole (every device computes nearly
everything), whole with the batch cut, cut by columns, cut by rows with the batch cut, and as a search likes it that must use all
devices; and with parameters cut by rows for slow links, where moving activations is dear. The table has predicted / compiled,
where compiled is arguments + results + temporaries - what is donated. Nothing is run.

    python benchmarks/plan_memory.py [--only NAME …] [--json FILE]

Goal: within 10 %.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"

import jax
import jax.numpy as jnp
from _memory_table import arguments, show

from sporax.ir.hardware import load_profile
from sporax.ir.placement import Placement
from sporax.lowering.ingest.ingest import Ingested
from sporax.planner.cost import Roofline, link_costs
from sporax.planner.memory.peak import memory_of
from sporax.planner.memory.xla_cpu.kernel_fusion import XLA_CPU
from sporax.planner.search import SearchOptions, search
from sporax.runtime.devices.global_view import device_program
from sporax.runtime.planned.function import plan as plan_function

Loss = Callable[[Any, Any], Any]
Network = tuple[Loss, Any, Any]
"""A loss, the shapes of its parameters, and of its data."""

NHWC = ("NHWC", "HWIO", "NHWC")


def floats(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def ints(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.int32)


# ------------------------------------------------------------------------------------------------------------ optimizers


def sgd(loss: Loss) -> tuple[Callable[..., Any], int]:
    def step(parameters: Any, data: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(parameters, data)
        return jax.tree.map(lambda w, g: w - 0.01 * g, parameters, gradients), value

    return step, 1


def momentum(loss: Loss) -> tuple[Callable[..., Any], int]:
    def step(state: Any, data: Any) -> Any:
        parameters, moved = state
        value, gradients = jax.value_and_grad(loss)(parameters, data)
        moved = jax.tree.map(lambda m, g: 0.9 * m + g, moved, gradients)
        return (jax.tree.map(lambda w, m: w - 0.01 * m, parameters, moved), moved), value

    return step, 2


def adam(loss: Loss) -> tuple[Callable[..., Any], int]:
    def step(state: Any, data: Any) -> Any:
        parameters, first, second = state
        value, gradients = jax.value_and_grad(loss)(parameters, data)
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradients)
        new = jax.tree.map(lambda w, m, v: w - 0.01 * m / (jnp.sqrt(v) + 1e-8), parameters, first, second)
        return (new, first, second), value

    return step, 3


# ------------------------------------------------------------------------------------------------------------- networks


def mlp(layers: int, width: int, batch: int, activation: Any = jax.nn.gelu, biases: bool = False) -> Network:
    def loss(parameters: Any, data: Any) -> Any:
        x = data[0]
        for weight, *bias in parameters:
            x = activation(x @ weight + bias[0] if bias else x @ weight)
        return ((x - data[1]) ** 2).mean()

    layer = [floats(width, width), floats(width)] if biases else [floats(width, width)]
    return loss, [layer] * layers, [floats(batch, width)] * 2


def _norm(x: Any, scale: Any, bias: Any = None, by_root: bool = False) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred**2).mean(-1, keepdims=True) + 1e-5
    scaled = (centred / jnp.sqrt(variance) if by_root else centred * jax.lax.rsqrt(variance)) * scale
    return scaled if bias is None else scaled + bias


def _attention(q: Any, k: Any, v: Any) -> Any:
    batch, length, heads, width = q.shape
    scores = jnp.einsum("bthd,bshd->bhts", q, k) / width**0.5
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, jnp.float32(-1e9))
    return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores, -1), v).reshape(batch, length, heads * width)


def transformer(layers: int, batch: int, length: int, width: int = 128, heads: int = 8, words: int = 512) -> Network:
    """Blocks with products of their own for q, k and v; no biases; untied."""

    def loss(parameters: Any, data: Any) -> Any:
        table, out, blocks = parameters
        x = table[data[0]]
        for q, k, v, o, up, down, first, second in blocks:
            h = _norm(x, first)
            x = x + _attention(*((h @ each).reshape(batch, length, heads, -1) for each in (q, k, v))) @ o
            x = x + jax.nn.gelu(_norm(x, second) @ up) @ down
        logits = jax.nn.log_softmax(x @ out, -1)
        return -jnp.take_along_axis(logits, data[1][..., None], -1).mean()

    square, scale = floats(width, width), floats(width)
    block = [square, square, square, square, floats(width, 4 * width), floats(4 * width, width), scale, scale]
    return loss, [floats(words, width), floats(width, words), [block] * layers], [ints(batch, length)] * 2


def gpt(layers: int, batch: int, length: int, width: int, heads: int, words: int) -> Network:
    """Blocks with one product for q, k and v; biases, positions, a tied table, a loss of one-hot labels."""

    def dense(x: Any, layer: Any) -> Any:
        return x @ layer[0] + layer[1]

    def loss(parameters: Any, data: Any) -> Any:
        table, positions, last, blocks = parameters
        x = table[data[0]] + positions
        for packed, o, up, down, first, second in blocks:
            h = dense(_norm(x, *first, by_root=True), packed).reshape(batch, length, heads, -1)
            x = x + dense(_attention(*jnp.split(h, 3, -1)), o)
            x = x + dense(jax.nn.silu(dense(_norm(x, *second, by_root=True), up)), down)
        logits = jax.nn.log_softmax((x * last) @ table.T, -1)
        return -(logits * jax.nn.one_hot(data[1], words, dtype=jnp.float32)).sum(-1).mean()

    def layer(inputs: int, outputs: int) -> Any:
        return floats(inputs, outputs), floats(outputs)

    norm = (floats(width), floats(width))
    block = [layer(width, 3 * width), layer(width, width), layer(width, 4 * width), layer(4 * width, width), norm, norm]
    parameters = [floats(words, width), floats(length, width), floats(width), [block] * layers]
    return loss, parameters, [ints(batch, length)] * 2


def lenet(batch: int = 64) -> Network:
    def convolution(x: Any, kernel: Any) -> Any:
        x = jax.nn.relu(jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=NHWC))
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    def loss(parameters: Any, data: Any) -> Any:
        first, second, hidden, out = parameters
        x = convolution(convolution(data[0], first), second).reshape(batch, -1)
        logits = jax.nn.log_softmax(jax.nn.relu(x @ hidden) @ out)
        return -jnp.take_along_axis(logits, data[1][:, None], -1).mean()

    parameters = [floats(5, 5, 1, 8), floats(5, 5, 8, 16), floats(7 * 7 * 16, 128), floats(128, 16)]
    return loss, parameters, [floats(batch, 28, 28, 1), ints(batch)]


def residual(batch: int = 32, channels: int = 32, blocks: int = 3) -> Network:
    def convolution(x: Any, kernel: Any) -> Any:
        return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=NHWC)

    def loss(parameters: Any, data: Any) -> Any:
        first, out, pairs = parameters
        x = convolution(data[0], first)
        for a, b in pairs:
            x = jax.nn.relu(x + convolution(jax.nn.relu(convolution(x, a)), b))
        return ((x.mean((1, 2)) @ out - data[1]) ** 2).mean()

    pair = [floats(3, 3, channels, channels)] * 2
    parameters = [floats(3, 3, 8, channels), floats(channels, 16), [pair] * blocks]
    return loss, parameters, [floats(batch, 16, 16, 8), floats(batch, 16)]


def normalised(batch: int = 32, channels: int = 16) -> Network:
    """Convolutions with channels first, strides and batch normalisation."""
    sizes = [(channels, 2 * channels, 2), (2 * channels, 2 * channels, 1), (2 * channels, 4 * channels, 2)]

    def loss(parameters: Any, data: Any) -> Any:
        first, out, bias, layers = parameters
        x = jax.lax.conv_general_dilated(data[0], first, (1, 1), "SAME")
        for (kernel, scale, shift), (_, _, stride) in zip(layers, sizes, strict=True):
            x = jax.lax.conv_general_dilated(x, kernel, (stride, stride), "SAME")
            centred = x - x.mean((0, 2, 3), keepdims=True)
            variance = (centred**2).mean((0, 2, 3), keepdims=True)
            scale, shift = scale[None, :, None, None], shift[None, :, None, None]
            x = jax.nn.relu(centred * jax.lax.rsqrt(variance + 1e-5) * scale + shift)
        logits = jax.nn.log_softmax(x.mean((2, 3)) @ out + bias)
        return -jnp.take_along_axis(logits, data[1][:, None], -1).mean()

    layers = [[floats(outputs, inputs, 3, 3), floats(outputs), floats(outputs)] for inputs, outputs, _ in sizes]
    parameters = [floats(channels, 3, 3, 3), floats(4 * channels, 10), floats(10), layers]
    return loss, parameters, [floats(batch, 3, 32, 32), ints(batch)]


def autoencoder(batch: int = 16, channels: int = 16) -> Network:
    def loss(parameters: Any, data: Any) -> Any:
        a, b, c, d = parameters
        x = jax.lax.conv_general_dilated(data[0] + data[1], a, (2, 2), "SAME", dimension_numbers=NHWC)
        x = jax.lax.conv_general_dilated(jax.nn.relu(x), b, (2, 2), "SAME", dimension_numbers=NHWC)
        x = jax.lax.conv_transpose(jnp.tanh(x), c, (2, 2), "SAME", dimension_numbers=NHWC)
        x = jax.lax.conv_transpose(jax.nn.relu(x), d, (2, 2), "SAME", dimension_numbers=NHWC)
        return ((x - data[0]) ** 2).mean()

    pairs = [(4, channels), (channels, 2 * channels), (2 * channels, channels), (channels, 4)]
    return loss, [floats(3, 3, *pair) for pair in pairs], [floats(batch, 32, 32, 4)] * 2


def embedding(batch: int = 256, fields: int = 8, words: int = 4096, width: int = 32) -> Network:
    def loss(parameters: Any, data: Any) -> Any:
        table, inner, hidden, out = parameters
        x = jnp.tanh(table[data[0]] @ inner).reshape(batch, -1)
        return ((jax.nn.relu(x @ hidden) @ out - data[1]) ** 2).mean()

    parameters = [floats(words, width), floats(width, 256), floats(fields * 256, 128), floats(128, 16)]
    return loss, parameters, [ints(batch, fields), floats(batch, 16)]


def recommender(batch: int = 512, fields: int = 6, words: int = 2048, width: int = 16) -> Network:
    """Wide and deep."""

    def loss(parameters: Any, data: Any) -> Any:
        table, wide, a, a_bias, b, b_bias, c = parameters
        x = jnp.concatenate([table[data[0]].reshape(batch, -1), data[1]], -1)
        x = jax.nn.relu(jax.nn.relu(x @ a + a_bias) @ b + b_bias)
        x = (x @ c)[:, 0] + wide[data[0]].sum((1, 2))
        return (jax.nn.softplus(x) - x * data[2]).mean()

    first = [floats(words, width), floats(words, 1), floats(fields * width + 32, 256), floats(256)]
    parameters = [*first, floats(256, 128), floats(128), floats(128, 1)]
    return loss, parameters, [ints(batch, fields), floats(batch, 32), floats(batch)]


NETWORKS: dict[str, tuple[Any, Network]] = {
    "4 layers of 512, batch 128": (sgd, mlp(4, 512, 128)),
    "4 layers of 64, batch 1024": (sgd, mlp(4, 64, 1024)),
    "4 layers of 256, ReLU": (sgd, mlp(4, 256, 256, jax.nn.relu)),
    "4 layers of 256, Adam": (adam, mlp(4, 256, 256)),
    "12 layers of 512, batch 64": (sgd, mlp(12, 512, 64)),
    "12 layers of 128, batch 1024": (sgd, mlp(12, 128, 1024)),
    "12 layers of 256, tanh, momentum": (momentum, mlp(12, 256, 256, jnp.tanh)),
    "7 layers of 192, biases": (sgd, mlp(7, 192, 320, jax.nn.sigmoid, True)),
    "5 layers of 320, biases, momentum": (momentum, mlp(5, 320, 64, jax.nn.sigmoid, True)),
    "3 layers of 128, biases, Adam": (adam, mlp(3, 128, 512, jax.nn.sigmoid, True)),
    "transformer, 2 blocks": (sgd, transformer(2, 8, 64)),
    "transformer, 4 blocks, Adam": (adam, transformer(4, 16, 32)),
    "GPT, 2 blocks, Adam": (adam, gpt(2, 16, 48, 96, 4, 384)),
    "GPT, 3 blocks, long": (sgd, gpt(3, 8, 128, 64, 4, 256)),
    "embedding and 2 layers": (sgd, embedding()),
    "wide and deep, Adam": (adam, recommender()),
    "LeNet": (sgd, lenet()),
    "residual convolutions": (sgd, residual()),
    "convolutions, batch norm": (momentum, normalised()),
    "autoencoder": (sgd, autoencoder()),
}
CUTS = ("whole", "data parallel", "columns", "rows, batch", "searched", "rows, slow links")


def placement(shape: tuple[int, ...], cut: str, is_data: bool) -> Placement:
    """The placement of an argument."""
    dims: list[tuple[int, ...]] = [()] * len(shape)
    if is_data and cut in ("data parallel", "rows, batch", "rows, slow links"):
        dims[0] = (0, 1, 2)
    elif not is_data and cut == "columns" and len(shape) > 1 and shape[-1] % 8 == 0:
        dims[-1] = (0, 1, 2)
    elif not is_data and cut.startswith("rows"):
        first = next((dim for dim, size in enumerate(shape) if size % 8 == 0), None)
        if first is not None:
            dims[first] = (0, 1, 2)
    return Placement(tuple(dims))


def measured(step: Ingested, plan: Any, arguments: Any) -> int:
    """Bytes of one device, of the compiled program with the parameters donated."""
    donated = tuple(argument for _, argument in step.graph.aliases)
    program = jax.jit(device_program(step, plan, "planned"), donate_argnums=donated).lower(*arguments).compile()
    used = program.memory_analysis()
    total = used.argument_size_in_bytes + used.temp_size_in_bytes + used.output_size_in_bytes
    return int(total - used.alias_size_in_bytes)


def ratios(name: str) -> dict[str, float]:
    """Predicted / compiled for every cut of a network."""
    optimizer, (loss, parameters, data) = NETWORKS[name]
    step, copies = optimizer(loss)
    state = parameters if copies == 1 else (parameters,) * copies
    planned = plan_function(step, state, data, hardware="cpu", mode="recursive", carry={0: 0})
    arguments, kept = jax.tree.leaves((state, data)), len(jax.tree.leaves(state))
    graph, mesh = planned.graph, planned.plan.mesh
    found = {}
    for cut in CUTS:
        slow = cut in ("whole", "rows, slow links")
        profile = load_profile("cpu" if slow else "h200")
        places = [placement(each.shape, cut, number >= kept) for number, each in enumerate(arguments)]
        inputs = [each.tensor for each in graph.inputs[len(planned.step.constants) :]]
        fixed = {} if cut == "searched" else dict(zip(inputs, places, strict=True))
        options = SearchOptions(fully_use_devices=not slow, fixed=fixed)
        plan = search(graph, mesh, Roofline(profile, link_costs(profile, mesh)), "dynamic", options).plan
        found[cut] = memory_of(graph, plan, XLA_CPU).peak_bytes / measured(planned.step, plan, arguments)
        print(f"{name}, {cut}: {found[cut]:.3f}", file=sys.stderr, flush=True)
    return found


def main() -> None:
    options = arguments(__doc__, NETWORKS)
    show({name: ratios(name) for name in options.only}, options.json)


if __name__ == "__main__":
    main()
