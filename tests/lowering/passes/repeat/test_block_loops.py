"""Runs of equal equations become loops, and nothing else changes."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxpr_as_fun

from sporax.lowering.passes.repeat.block_loops import Run, find_runs, looped
from sporax.lowering.rewriter import flat


def run_both(function, *args):
    """What a function gives with and without loops, and how many loops there are."""
    plain = flat(jax.make_jaxpr(function)(*args))
    written = looped(plain).program
    loops = [eqn for eqn in written.jaxpr.eqns if eqn.primitive.name == "scan"]
    leaves = jax.tree.leaves(args)
    return jaxpr_as_fun(plain)(*leaves), jaxpr_as_fun(written)(*leaves), loops


def layer(x, weights):
    w, b = weights
    return jnp.tanh(x @ w + b) * 0.5 + jnp.cos(x) + x


def weights(count, width=4):
    draw = np.random.default_rng(0)
    return [
        (jnp.asarray(draw.normal(size=(width, width)), jnp.float32), jnp.asarray(draw.normal(size=width), jnp.float32))
        for _ in range(count)
    ]


X = jnp.linspace(-1.0, 1.0, 12, dtype=jnp.float32).reshape(3, 4)


def test_periods_are_found_with_what_stands_around():
    """A stretch of 5 blocks of 6 between other numbers."""
    numbers = np.array([90, 91, *([1, 2, 3, 4, 5, 6] * 5), 92, 93])
    assert find_runs(numbers) == [Run(2, 6, 5)]


def test_layers_of_a_forward_pass_become_one_loop():
    def network(all_weights, x):
        for weight in all_weights:
            x = layer(x, weight)
        return x.sum()

    plain, in_loops, loops = run_both(network, weights(5), X)
    assert [eqn.params["length"] for eqn in loops] == [5]
    np.testing.assert_allclose(in_loops[0], plain[0], rtol=1e-6)


def test_a_backward_pass_takes_the_stacks_of_the_forward_pass():
    """Two loops, and no residual is stacked or taken apart in between."""

    def network(all_weights, x):
        for item in all_weights:
            x = layer(x, item)
        return x.sum()

    plain, in_loops, loops = run_both(jax.grad(network), weights(6), X)
    assert len(loops) == 2
    for after, before in zip(in_loops, plain, strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6)


def test_tied_weights_and_literals_that_differ():
    """A weight that all layers read is a constant of the loop; numbers that differ are its rows."""

    def network(tied, all_weights, x):
        for number, item in enumerate(all_weights):
            x = layer(x @ tied, item) * (1.0 + number)
        return x.sum()

    plain, in_loops, loops = run_both(jax.grad(network, (0, 1)), jnp.eye(4, dtype=jnp.float32), weights(5), X)
    assert loops
    for after, before in zip(in_loops, plain, strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-3)


def test_layers_that_differ_stay_out():
    """A layer with another operation in the middle parts the run."""

    def network(all_weights, x):
        for number, item in enumerate(all_weights):
            x = layer(x, item)
            if number == 4:
                x = jnp.exp(-x)
        return x

    plain, in_loops, loops = run_both(network, weights(9), X)
    assert sorted(eqn.params["length"] for eqn in loops) == [4, 4] or sorted(eqn.params["length"] for eqn in loops) == [
        4,
        5,
    ]
    np.testing.assert_allclose(in_loops[0], plain[0], rtol=1e-6)


@pytest.mark.parametrize("count", [1, 2])
def test_too_few_layers_stay(count):
    def network(all_weights, x):
        for item in all_weights:
            x = layer(x, item)
        return x

    assert not re.search("scan", str(looped(flat(jax.make_jaxpr(network)(weights(count), X))).program))
