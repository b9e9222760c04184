"""Training steps of the networks that Alpa's test-suite states plan costs for, as operator graphs. No loss leaves the steps."""

from __future__ import annotations

from functools import cache, partial

import jax
import jax.numpy as jnp
from networks import _trace as trace, sgd

from sporax.lowering.ingest.ingest import Ingested


def _shape(*dims, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(dims, dtype)


def _dense(inputs: int, outputs: int):
    return _shape(inputs, outputs), _shape(outputs)


def _norm(x, scale, bias):
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * scale + bias


def _attention(x, products, heads):
    """Queries, keys and values from one product, side by side for every head, or from a product each."""
    batch, length, width = x.shape
    *inner, (out, out_bias) = products
    if len(inner) == 1:
        ((packed, bias),) = inner
        q, k, v = jnp.split((x @ packed + bias).reshape(batch, length, heads, -1), 3, -1)
    else:
        q, k, v = ((x @ weight + bias).reshape(batch, length, heads, -1) for weight, bias in inner)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / (width // heads) ** 0.5
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)
    return mixed.reshape(batch, length, width) @ out + out_bias


@cache
def biased_mlp(layers: int, batch: int, width: int) -> Ingested:
    """Dense layers with biases and ReLU between, mean squared error, SGD."""

    def loss(parameters, x, y):
        for number, (weight, bias) in enumerate(parameters):
            x = x @ weight + bias
            x = jax.nn.relu(x) if number < layers - 1 else x
        return jnp.mean((x - y) ** 2)

    return trace(partial(sgd, loss), [_dense(width, width)] * layers, [_shape(batch, width)] * 2, with_loss=False)


@cache
def bert(layers: int, batch: int, length: int, width: int, heads: int, packed: bool = True) -> Ingested:
    """Post-norm transformer layers without an embedding, mean squared error, SGD; queries, keys and values `packed` in one."""

    def loss(parameters, x, y):
        for products, norm, up, down, last in parameters:
            x = _norm(x + _attention(x, products, heads), *norm)
            hidden = jax.nn.gelu(x @ up[0] + up[1])
            x = _norm(x + hidden @ down[0] + down[1], *last)
        return jnp.mean((x - y) ** 2)

    norm = (_shape(width), _shape(width))
    inner = [_dense(width, 3 * width)] if packed else [_dense(width, width)] * 3
    attention = [*inner, _dense(width, width)]
    layer = (attention, norm, _dense(width, 4 * width), _dense(4 * width, width), norm)
    data = [_shape(batch, length, width)] * 2
    return trace(partial(sgd, loss), [layer] * layers, data, with_loss=False)


@cache
def tied_embedding(vocabulary: int, width: int, batch: int, length: int) -> Ingested:
    """A table that looks tokens up and makes logits of them, cross entropy with one-hot labels, SGD."""

    def loss(table, tokens, labels):
        logits = jax.nn.log_softmax(table[tokens] @ table.T)
        return -(logits * jax.nn.one_hot(labels, vocabulary)).sum(-1).mean()

    tokens = _shape(batch, length, dtype=jnp.int32)
    return trace(partial(sgd, loss), _shape(vocabulary, width), [tokens, tokens], with_loss=False)


def _top_two(probabilities, capacity):
    """Tokens to the two likeliest experts of their group while there is room: weights [group, token, expert, place]."""
    experts = probabilities.shape[-1]
    taken = 0.0
    weights = 0.0
    left = probabilities
    for _ in range(2):
        mask = jax.nn.one_hot(jnp.argmax(left, -1), experts, dtype=jnp.float32)
        place = (jnp.cumsum(mask, 1) - mask + taken) * mask
        taken = taken + mask.sum(1, keepdims=True)
        room = mask * (place < capacity)
        slot = jax.nn.one_hot(place.sum(-1).astype(jnp.int32), capacity, dtype=jnp.float32)
        gate = (probabilities * room).sum(-1)
        weights = weights + (gate[..., None] * room)[..., None] * slot[:, :, None, :]
        left = left * (1 - mask)
    return weights


@cache
def mixture(batch: int, length: int, width: int, heads: int, experts: int, group: int) -> Ingested:
    """Attention, then a layer of experts with two per token (GShard), mean squared error, SGD."""
    capacity, hidden = 2 * group // experts, 4 * width

    def loss(parameters, x, y):
        products, norm, gate, up, down, last = parameters
        x = _norm(x + _attention(x, products, heads), *norm)
        tokens = x.reshape(-1, group, width)
        weights = _top_two(jax.nn.softmax(tokens @ gate), capacity)
        sent = jnp.einsum("gsec,gsm->egcm", (weights > 0).astype(jnp.float32), tokens)
        worked = jnp.einsum("egch,ehm->egcm", jax.nn.relu(jnp.einsum("egcm,emh->egch", sent, up)), down)
        mixed = jnp.einsum("gsec,egcm->gsm", weights, worked)
        x = _norm(x + mixed.reshape(batch, length, width), *last)
        return jnp.mean((x - y) ** 2)

    norm = (_shape(width), _shape(width))
    parameters = (
        [_dense(width, 3 * width), _dense(width, width)],
        norm,
        _shape(width, experts),
        _shape(experts, width, hidden),
        _shape(experts, hidden, width),
        norm,
    )
    return trace(partial(sgd, loss), parameters, [_shape(batch, length, width)] * 2, with_loss=False)


@cache
def convolutions(layers: int, batch: int, size: int, channels: int) -> Ingested:
    """Convolutions of equal channels with ReLU between, mean squared error, SGD."""

    def loss(parameters, x, y):
        for number, kernel in enumerate(parameters):
            x = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            x = jax.nn.relu(x) if number < layers - 1 else x
        return jnp.mean((x - y) ** 2)

    images = _shape(batch, size, size, channels)
    return trace(partial(sgd, loss), [_shape(3, 3, channels, channels)] * layers, [images] * 2, with_loss=False)
