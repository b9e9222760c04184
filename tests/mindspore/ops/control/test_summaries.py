"""Values that summary operators put aside, also from compiled steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sporax.mindspore.ops.control import summary


@pytest.fixture(autouse=True)
def nothing_kept():
    summary.take()
    yield
    summary.take()


def test_the_last_value_of_a_name_counts_and_is_taken_once():
    for value in (1, 2):
        summary.keep("scalar", "loss", np.float32(value))
    summary.keep("tensor", "loss", np.arange(3))
    taken = summary.take()
    assert float(taken["scalar", "loss"]) == 2
    np.testing.assert_array_equal(taken["tensor", "loss"], [0, 1, 2])
    assert summary.take() == {}


def test_values_of_a_running_step_are_waited_for():
    @jax.jit
    def step(x):
        jax.debug.callback(lambda value: summary.keep("scalar", "sum", value), x.sum())
        return x

    step(jnp.ones(1000))
    assert float(summary.take()["scalar", "sum"]) == 1000
