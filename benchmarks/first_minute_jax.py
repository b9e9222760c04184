"""The networks of `first_minute.py` written by hand in JAX: functions of dictionaries of arrays, and `jax.jit`."""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec


class Net:
    """Makes parameters while the network is described, and runs it on them.

    A call ``net.conv(x, …)`` adds its parameters at the first pass (`x` is None) and computes at the others, so that each
    network is written once.
    """

    def __init__(self):
        self.random = np.random.RandomState(0)
        self.parameters, self.statistics = {}, {}
        self.new_statistics = {}
        self.count = 0

    def begin(self, parameters, statistics):
        self.parameters, self.statistics, self.new_statistics, self.count = parameters, statistics, {}, 0

    def name(self, kind):
        self.count += 1
        return f"{kind}{self.count}"

    def weight(self, name, *shape, scale=0.1):
        self.parameters[name] = (self.random.randn(*shape) * scale).astype(np.float32)

    def conv(self, x, inputs, outputs, size, stride=1, groups=1):
        name = self.name("conv")
        if x is None:
            return self.weight(name, outputs, inputs // groups, size, size)
        return jax.lax.conv_general_dilated(
            x,
            self.parameters[name],
            (stride, stride),
            [(size // 2, size // 2)] * 2,
            dimension_numbers=("NCHW", "OIHW", "NCHW"),
            feature_group_count=groups,
        )

    def norm(self, x, width):
        name = self.name("norm")
        if x is None:
            self.parameters[name + "g"], self.parameters[name + "b"] = np.ones(width, "f4"), np.zeros(width, "f4")
            self.statistics[name + "m"], self.statistics[name + "v"] = np.zeros(width, "f4"), np.ones(width, "f4")
            return None
        mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3))
        for part, now in (("m", mean), ("v", var)):
            self.new_statistics[name + part] = 0.9 * self.statistics[name + part] + 0.1 * now
        scale = self.parameters[name + "g"] * jax.lax.rsqrt(var + 1e-5)
        return (x - mean[:, None, None]) * scale[:, None, None] + self.parameters[name + "b"][:, None, None]

    def layer_norm(self, x, width):
        name = self.name("norm")
        if x is None:
            self.parameters[name + "g"], self.parameters[name + "b"] = np.ones(width, "f4"), np.zeros(width, "f4")
            return None
        mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(var + 1e-7) * self.parameters[name + "g"] + self.parameters[name + "b"]

    def dense(self, x, inputs, outputs):
        name = self.name("dense")
        if x is None:
            self.parameters[name + "b"] = np.zeros(outputs, "f4")
            return self.weight(name, inputs, outputs, scale=0.02)
        return x @ self.parameters[name] + self.parameters[name + "b"]


def when(x, function):
    return None if x is None else function(x)


def resnet(blocks, bottleneck):
    def run(net, x):
        x = when(net.norm(net.conv(x, 3, 64, 7, 2), 64), jax.nn.relu)
        window = ((1, 1, 3, 3), (1, 1, 2, 2), "SAME")
        x = when(x, lambda x: jax.lax.reduce_window(x, np.float32(-np.inf), jax.lax.max, *window))
        inputs = 64
        for stage, count in enumerate(blocks):
            for number in range(count):
                width, stride = 64 << stage, 2 if stage and not number else 1
                outputs = width * (4 if bottleneck else 1)
                sizes = [(inputs, width, 1, 1), (width, width, 3, stride), (width, outputs, 1, 1)]
                sizes = sizes if bottleneck else [(inputs, width, 3, stride), (width, width, 3, 1)]
                y = x
                for place, (a, b, size, step) in enumerate(sizes):
                    y = net.norm(net.conv(y, a, b, size, step), b)
                    y = y if place == len(sizes) - 1 else when(y, jax.nn.relu)
                if stride != 1 or inputs != outputs:
                    x = net.norm(net.conv(x, inputs, outputs, 1, stride), outputs)
                x = None if x is None else jax.nn.relu(x + y)
                inputs = outputs
        return net.dense(when(x, lambda x: x.mean((2, 3))), inputs, 10)

    return run


def mobilenet_v3(rows):
    def run(net, x):
        x = when(net.norm(net.conv(x, 3, 16, 3, 2), 16), jax.nn.hard_swish)
        inputs = 16
        for width, outputs, stride, size in rows:
            y = when(net.norm(net.conv(x, inputs, width, 1), width), jax.nn.hard_swish)
            y = when(net.norm(net.conv(y, width, width, size, stride, width), width), jax.nn.hard_swish)
            weights = net.dense(when(y, lambda y: y.mean((2, 3))), width, width // 4)
            weights = net.dense(when(weights, jax.nn.relu), width // 4, width)
            y = None if x is None else y * jax.nn.hard_sigmoid(weights)[:, :, None, None]
            y = net.norm(net.conv(y, width, outputs, 1), outputs)
            x = y if x is None or stride != 1 or inputs != outputs else x + y
            inputs = outputs
        return net.dense(when(x, lambda x: x.mean((2, 3))), inputs, 10)

    return run


def transformer(layers, width, heads):
    def attention(q, k, v):
        batch, tokens, _ = q.shape
        q, k, v = (each.reshape(batch, tokens, heads, width // heads).transpose(0, 2, 1, 3) for each in (q, k, v))
        weights = jax.nn.softmax(q @ k.transpose(0, 1, 3, 2) / np.sqrt(width / heads).astype(np.float32))
        return (weights @ v).transpose(0, 2, 1, 3).reshape(batch, tokens, width)

    def run(net, x):
        for _ in range(layers):
            mixed = when(
                net.dense(net.layer_norm(x, width), width, 3 * width), lambda y: attention(*jnp.split(y, 3, 2))
            )
            y = net.dense(mixed, width, width)
            x = None if x is None else x + y
            y = when(net.dense(net.layer_norm(x, width), width, 4 * width), lambda y: jax.nn.gelu(y, approximate=True))
            y = net.dense(y, 4 * width, width)
            x = None if x is None else x + y
        return net.dense(when(x, lambda x: x.mean(1)), width, 10)

    return run


def on_devices(values, batch):
    """Parameters and state on every device, rows of the batch divided among them: data parallelism."""
    if jax.device_count() == 1:
        return jax.tree.map(jnp.asarray, values), batch
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    everywhere, rows = (NamedSharding(mesh, PartitionSpec(*names)) for names in ((), ("data",)))
    return jax.device_put(values, everywhere), jax.device_put(batch, rows)


def first_step(network, batch, clock=time.process_time):
    """Seconds to make the parameters, and to the end of the first step; on all devices of the process."""
    started = clock()
    net = Net()
    network(net, None)
    parameters, statistics = dict(net.parameters), dict(net.statistics)
    built = clock()

    def loss(parameters, statistics, x, y):
        net.begin(parameters, statistics)
        logits = network(net, x)
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1)), net.new_statistics

    def step(parameters, moments, statistics, x, y):
        (value, statistics), grads = jax.value_and_grad(loss, has_aux=True)(parameters, statistics, x, y)
        moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, grads)
        return value, jax.tree.map(lambda p, m: p - 0.01 * m, parameters, moments), moments, statistics

    zeros = {k: np.zeros_like(v) for k, v in parameters.items()}
    on_device, (x, y) = on_devices((parameters, zeros, statistics), batch)
    value = jax.jit(step, donate_argnums=(0, 1, 2))(*on_device, x, y)[0]
    assert np.isfinite(float(value))
    return {"build": built - started, "step": clock() - built}
