"""Steps of small networks as operator graphs, for the tests of the searches."""

from __future__ import annotations

from functools import cache, cached_property, partial

import jax
import jax.numpy as jnp

from sporax.ir.graph import Role
from sporax.lowering.ingest.ingest import Ingested, ingest

F32 = jnp.float32


class _Traced:
    """A network that is traced when something of it is used first: tests are collected by processes that run only some of them."""

    def __init__(self, trace):
        self._trace = trace

    def __getattr__(self, name):
        return getattr(self._ingested, name)

    @cached_property
    def _ingested(self):
        return self._trace()


def _network(function):
    """Trace the network of the same arguments once, and not before it is used."""
    return cache(lambda *arguments, **options: _Traced(partial(function, *arguments, **options)))


def _shape(*dims, dtype=F32):
    return jax.ShapeDtypeStruct(dims, dtype)


def _trace(step, parameters, data, with_loss=True):
    """The step `(parameters, *data) -> (parameters, loss)`, ingested; without its loss if so wished."""
    leaves, tree = jax.tree.flatten(parameters)

    def flat(*arguments):
        updated, loss = step(jax.tree.unflatten(tree, arguments[: len(leaves)]), *arguments[len(leaves) :])
        return (*jax.tree.leaves(updated), *([loss] if with_loss else []))

    jaxpr = jax.make_jaxpr(flat)(*leaves, *data)
    roles = [(Role.PARAMETER, f"w{n}") for n in range(len(leaves))]
    roles += [(Role.DATA, f"data {n}") for n in range(len(data))]
    return ingest(jaxpr, roles, [(n, n) for n in range(len(leaves))])


def _mlp_loss(ws, x, y):
    for layer, w in enumerate(ws):
        x = x @ w
        if layer < len(ws) - 1:
            x = jax.nn.relu(x)
    return jnp.mean((x - y) ** 2)


def sgd(loss, parameters, *data, rate=0.01):
    value, gradients = jax.value_and_grad(loss)(parameters, *data)
    return jax.tree.map(lambda w, g: w - rate * g, parameters, gradients), value


@_network
def mlp(layers: int, batch: int, width: int, with_loss: bool = True) -> Ingested:
    """Matrix products with ReLU between, mean squared error, SGD."""
    return _trace(partial(sgd, _mlp_loss), [_shape(width, width)] * layers, [_shape(batch, width)] * 2, with_loss)


@_network
def mlp_by_batch(layers: int, batch: int, width: int, mesh: tuple[int, ...]) -> Ingested:
    """As `mlp`, with activations that the program keeps sharded by batch over all axes of a mesh."""
    names = tuple(f"axis{number}" for number in range(len(mesh)))
    axes = jax.make_mesh(mesh, names, axis_types=(jax.sharding.AxisType.Auto,) * len(mesh))
    by_batch = jax.sharding.NamedSharding(axes, jax.sharding.PartitionSpec(names))

    def loss(ws, x, y):
        for w in ws:
            x = jax.lax.with_sharding_constraint(jax.nn.relu(x @ w), by_batch)
        return jnp.mean((x - y) ** 2)

    return _trace(partial(sgd, loss), [_shape(width, width)] * layers, [_shape(batch, width)] * 2)


@_network
def mlp_forward(layers: int, batch: int, width: int) -> Ingested:
    """The forward pass alone."""

    def forward(*arguments):
        *ws, x = arguments
        for layer, w in enumerate(ws):
            x = x @ w
            if layer < layers - 1:
                x = jax.nn.relu(x)
        return x

    return ingest(jax.make_jaxpr(forward)(*[_shape(width, width)] * layers, _shape(batch, width)))


def attention_of(x, wq, wk, wv, wo, heads):
    batch, length, width = x.shape
    q, k, v = ((x @ w).reshape(batch, length, heads, width // heads) for w in (wq, wk, wv))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / (width // heads) ** 0.5
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)
    return mixed.reshape(batch, length, width) @ wo


@_network
def attention(batch: int, length: int, width: int, heads: int) -> Ingested:
    """Multi-head attention, forward."""
    jaxpr = jax.make_jaxpr(partial(attention_of, heads=heads))(
        _shape(batch, length, width), *[_shape(width, width)] * 4
    )
    return ingest(jaxpr, [(Role.DATA, "x")] + [(Role.PARAMETER, f"w{n}") for n in range(4)])


def _norm(x, scale):
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * scale


def _adam(loss, state, *data):
    parameters, first, second = state
    value, gradients = jax.value_and_grad(loss)(parameters, *data)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
    second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, second, gradients)
    parameters = jax.tree.map(lambda w, m, v: w - 0.01 * m / (jnp.sqrt(v) + 1e-6), parameters, first, second)
    return (parameters, first, second), value


@_network
def transformer(layers: int, batch: int, length: int, width: int, heads: int, vocabulary: int = 64) -> Ingested:
    """Embedding, pre-norm blocks with attention and GeLU MLP, cross entropy, Adam."""

    def loss(parameters, tokens, labels):
        table, blocks, last = parameters
        x = table[tokens]
        for scale1, q, k, v, o, scale2, up, down in blocks:
            x = x + attention_of(_norm(x, scale1), q, k, v, o, heads)
            x = x + jax.nn.gelu(_norm(x, scale2) @ up) @ down
        logits = jax.nn.log_softmax(_norm(x, last) @ table.T)
        return -jnp.take_along_axis(logits, labels[..., None], -1).mean()

    square = _shape(width, width)
    block = [
        _shape(width),
        square,
        square,
        square,
        square,
        _shape(width),
        _shape(width, 4 * width),
        _shape(4 * width, width),
    ]
    parameters = (_shape(vocabulary, width), [block] * layers, _shape(width))
    tokens = _shape(batch, length, dtype=jnp.int32)
    return _trace(partial(_adam, loss), (parameters, parameters, parameters), [tokens, tokens])


@_network
def convolutional(batch: int = 8) -> Ingested:
    """Two convolutions, pooling, a dense layer, SGD."""

    def loss(parameters, images, labels):
        first, second, dense = parameters
        x = images
        for kernel in (first, second):
            x = jax.nn.relu(jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME"))
            x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
        logits = jax.nn.log_softmax(x.reshape(batch, -1) @ dense)
        return -jnp.take_along_axis(logits, labels[:, None], 1).mean()

    parameters = [_shape(8, 3, 3, 3), _shape(16, 8, 3, 3), _shape(16 * 4 * 4, 16)]
    data = [_shape(batch, 3, 16, 16), _shape(batch, dtype=jnp.int32)]
    return _trace(partial(sgd, loss), parameters, data)


@_network
def looped(steps: int = 3) -> Ingested:
    """A scan over one weight and a branch: control flow among operators that can be cut."""

    def loss(ws, x, y):
        h, _ = jax.lax.scan(lambda h, _: (jnp.tanh(h @ ws[0]), None), x @ ws[1], None, length=steps)
        h = jax.lax.cond(h.sum() > 0, lambda h: h, lambda h: -h, h)
        return jnp.mean((h - y) ** 2)

    return _trace(partial(sgd, loss), [_shape(16, 16)] * 2, [_shape(16, 16)] * 2)


@_network
def layers(count: int, batch: int, length: int, width: int, loop: bool = True, again: bool = False) -> Ingested:
    """A transformer's layers (attention, GeLU MLP, norms) behind a projection, SGD.

    As a `scan` over stacked parameters, or written out one by one; `again` to compute every layer anew for its gradient.
    """

    def layer(x, weights):
        scales, q, k, v, o, up, down = weights
        x = x + attention_of(_norm(x, scales[0]), q, k, v, o, 8)
        return x + jax.nn.gelu(_norm(x, scales[1]) @ up) @ down

    run = jax.checkpoint(layer) if again else layer

    def loss(parameters, x, y):
        first, stacked = parameters
        x = x @ first
        if loop:
            x, _ = jax.lax.scan(lambda x, weights: (run(x, weights), None), x, stacked)
        else:
            for weights in stacked:
                x = run(x, weights)
        return jnp.mean((x - y) ** 2)

    shapes = [(2, width), *[(width, width)] * 4, (width, 4 * width), (4 * width, width)]
    item = [_shape(*shape) for shape in shapes]
    stacked = [_shape(count, *shape) for shape in shapes] if loop else [item] * count
    return _trace(partial(sgd, loss), (_shape(width, width), stacked), [_shape(batch, length, width)] * 2)


@_network
def two_products(inputs: int, hidden: int, outputs: int, batch: int) -> Ingested:
    """Two dense layers with biases and a mean, SGD: the network whose plans MindSpore's searches were recorded on."""

    def loss(parameters, x):
        w1, b1, w2, b2 = parameters
        return jnp.mean(jax.nn.relu(x @ w1 + b1) @ w2 + b2)

    parameters = [_shape(inputs, hidden), _shape(hidden), _shape(hidden, outputs), _shape(outputs)]
    return _trace(partial(sgd, loss), parameters, [_shape(batch, inputs)])


@_network
def mixture(batch: int, length: int, width: int, experts: int, hidden: int, layers: int = 1) -> Ingested:
    """Layers of experts, each token sent to one by products with a mask (GShard); the batch's first dimension groups, SGD."""
    capacity = max(2 * length // experts, 1)

    def layer(x, gate, up, down):
        gates = jax.nn.softmax(x @ gate)
        mask = jax.nn.one_hot(jnp.argmax(gates, -1), experts, dtype=F32)
        place = (jnp.cumsum(mask, 1) - 1) * mask
        dispatch = mask[..., None] * jax.nn.one_hot(place.astype(jnp.int32), capacity, dtype=F32)
        sent = jnp.einsum("gsec,gsm->egcm", jax.lax.stop_gradient(dispatch), x)
        actual = jnp.einsum("egch,ehm->egcm", jax.nn.relu(jnp.einsum("egcm,emh->egch", sent, up)), down)
        return x + jnp.einsum("gsec,egcm->gsm", gates[..., None] * dispatch, actual)

    def loss(parameters, x, y):
        for parameter in parameters:
            x = layer(x, *parameter)
        return jnp.mean((x - y) ** 2)

    block = [_shape(width, experts), _shape(experts, width, hidden), _shape(experts, hidden, width)]
    return _trace(partial(sgd, loss), [block] * layers, [_shape(batch, length, width)] * 2)


@_network
def recommendation(batch: int, rows: int, fields: int = 4, width: int = 16, hidden: int = 128) -> Ingested:
    """Wide and deep: a table per field, looked up and joined, three dense layers beside a wide one, SGD."""

    def loss(parameters, ids, dense, labels):
        tables, wide, layers = parameters
        deep = jnp.concatenate([*(table[ids[:, n]] for n, table in enumerate(tables)), dense], 1)
        for number, layer in enumerate(layers):
            deep = deep @ layer
            deep = jax.nn.relu(deep) if number < len(layers) - 1 else deep
        logits = deep[:, 0] + wide[ids].sum(1)
        return jnp.mean(jax.nn.softplus(logits) - labels * logits)

    layers = [_shape((fields + 1) * width, hidden), _shape(hidden, hidden), _shape(hidden, 1)]
    data = [_shape(batch, fields, dtype=jnp.int32), _shape(batch, width), _shape(batch)]
    return _trace(partial(sgd, loss), ([_shape(rows, width)] * fields, _shape(rows), layers), data)


@_network
def residual(batch: int, channels: int, size: int = 16, blocks: int = 2) -> Ingested:
    """A stem, residual blocks of two convolutions with batch normalisation, one that halves the picture, dense, SGD."""

    def convolved(x, kernel, stride=1):
        x = jax.lax.conv_general_dilated(x, kernel, (stride, stride), "SAME")
        x = x - x.mean((0, 2, 3), keepdims=True)
        return x * jax.lax.rsqrt((x * x).mean((0, 2, 3), keepdims=True) + 1e-5)

    def loss(parameters, images, labels):
        stem, chain, (first, second, short), dense = parameters
        x = jax.nn.relu(convolved(images, stem))
        for one, two in chain:
            x = jax.nn.relu(x + convolved(jax.nn.relu(convolved(x, one)), two))
        x = jax.nn.relu(convolved(x, short, 2) + convolved(jax.nn.relu(convolved(x, first, 2)), second))
        logits = jax.nn.log_softmax(x.mean((2, 3)) @ dense)
        return -jnp.take_along_axis(logits, labels[:, None], 1).mean()

    inner, wide = _shape(channels, channels, 3, 3), 2 * channels
    last = (_shape(wide, channels, 3, 3), _shape(wide, wide, 3, 3), _shape(wide, channels, 1, 1))
    parameters = (_shape(channels, 3, 3, 3), [(inner, inner)] * blocks, last, _shape(wide, 16))
    data = [_shape(batch, 3, size, size), _shape(batch, dtype=jnp.int32)]
    return _trace(partial(sgd, loss), parameters, data)


@_network
def bare_transformer(
    layers: int, batch: int, length: int, width: int, heads: int = 8, forward: bool = False
) -> Ingested:
    """What MindSpore's searches were timed on: attention and a ReLU MLP with additions, no norms; SGD, or forward alone."""

    def run(blocks, x):
        for *attention, up, down in blocks:
            x = x + attention_of(x, *attention, heads)
            x = x + jax.nn.relu(x @ up) @ down
        return x

    square = _shape(width, width)
    blocks = [[square] * 4 + [_shape(width, 4 * width), _shape(4 * width, width)]] * layers
    x = _shape(batch, length, width)
    if forward:
        leaves, tree = jax.tree.flatten(blocks)
        jaxpr = jax.make_jaxpr(lambda *a: run(jax.tree.unflatten(tree, a[:-1]), a[-1]))(*leaves, x)
        return ingest(jaxpr, [(Role.PARAMETER, f"w{n}") for n in range(len(leaves))] + [(Role.DATA, "x")])
    return _trace(partial(sgd, lambda w, x: run(w, x).sum()), blocks, [x], with_loss=False)
