"""Loops of unknown length have gradients, also with more rounds than states are kept."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sporax.mindspore.autograph import _loops


@pytest.mark.parametrize("rounds", [0, 1, 5, 3 * _loops.CHECKPOINTS + 1])
def test_value_and_gradient_of_a_loop(rounds):
    def function(x):
        test = jax.make_jaxpr(lambda value, count: count < rounds)(jnp.asarray(0.0), jnp.asarray(0))
        body = jax.make_jaxpr(lambda value, count: (value * 1.01, count + 1))(jnp.asarray(0.0), jnp.asarray(0))
        return _loops.while_loop(test, body, [x, jnp.asarray(0)])[0]

    value, slope = jax.value_and_grad(function)(jnp.asarray(2.0))
    np.testing.assert_allclose(value, 2 * 1.01**rounds, rtol=1e-5)
    np.testing.assert_allclose(slope, 1.01**rounds, rtol=1e-5)
