"""Values that summary operators put aside, also from compiled steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sporax.mindspore.ops.control import debug


@pytest.fixture(autouse=True)
def nothing_kept():
    debug.take()
    yield
    debug.take()


def test_the_last_value_of_a_name_counts_and_is_taken_once():
    for value in (1, 2):
        debug.keep("scalar", "loss", np.float32(value))
    debug.keep("tensor", "loss", np.arange(3))
    taken = debug.take()
    assert float(taken["scalar", "loss"]) == 2
    np.testing.assert_array_equal(taken["tensor", "loss"], [0, 1, 2])
    assert debug.take() == {}


def test_values_of_a_running_step_are_waited_for():
    @jax.jit
    def step(x):
        jax.debug.callback(lambda value: debug.keep("scalar", "sum", value), x.sum())
        return x

    step(jnp.ones(1000))
    assert float(debug.take()["scalar", "sum"]) == 1000
