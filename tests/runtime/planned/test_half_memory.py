"""Predicted memory of steps in half precision next to the compiled program: CPUs compute it in float32."""

import jax
import jax.numpy as jnp
import pytest

import sporax

ROWS, WIDTH = 1024, 256


def layers(weights, x):
    for weight in weights:
        x = jnp.tanh(x @ weight)
    return x


def mixed(weights, x):
    for weight in weights:
        x = jax.nn.gelu(x @ weight.astype(jnp.bfloat16))
    return x


def looped(weights, x):
    return jax.lax.scan(lambda x, weight: (jnp.tanh(x @ weight), None), x, weights)[0]


def turned(weights, x):
    for weight in weights:
        x = (x @ weight) * jax.nn.sigmoid(x @ weight.T)
    return x


def normed(weights, x):
    def layer(x, weight):
        return ((x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-3)) @ weight, None

    return jax.lax.scan(layer, x, weights)[0]


def parts(weights, x):
    """The weights of every round are the same: their copies in float32, turned and not, are made once."""
    return jax.lax.map(lambda rows: turned(weights, rows), x.reshape(4, -1, WIDTH))


def step(network):
    def loss(weights, x):
        return (network(weights, x).astype(jnp.float32) ** 2).mean()

    def update(weights, x):
        gradients = jax.grad(loss)(weights, x)
        return jax.tree.map(lambda a, g: (a - 0.1 * g).astype(a.dtype), weights, gradients)

    return update


@pytest.mark.parametrize("dtype", ["bfloat16", pytest.param("float16", marks=pytest.mark.full)])
@pytest.mark.parametrize("network", [layers, looped, normed, parts, pytest.param(mixed, marks=pytest.mark.full)])
def test_predicted_memory_is_that_of_the_compiled_program(network, dtype):
    stored = jnp.float32 if network is mixed else dtype
    weights = [jax.ShapeDtypeStruct((WIDTH, WIDTH), stored)] * 4
    weights = jax.ShapeDtypeStruct((4, WIDTH, WIDTH), stored) if network in (looped, normed) else weights
    x = jax.ShapeDtypeStruct((ROWS, WIDTH), dtype)
    planned = sporax.plan(
        step(network), weights, x, devices=8, hardware="cpu", mode="recursive", carry={0: 0}, fixed={1: (8, 1)}
    )
    found = planned.jitted((0,)).lower(weights, x).compile().memory_analysis()
    compiled = found.argument_size_in_bytes + found.output_size_in_bytes + found.temp_size_in_bytes
    compiled -= found.alias_size_in_bytes
    assert planned.summary().headline.peak_bytes == pytest.approx(compiled, rel=0.1)
