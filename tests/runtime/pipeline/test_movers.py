import jax
import jax.numpy as jnp
import numpy as np

from sporax.runtime.pipeline.movers import Once


def test_an_array_that_no_step_changes_is_brought_once():
    brought = []
    once = Once(lambda array: brought.append(array) or (jax.device_put(array, jax.devices()[1]),), 1)
    first, second = jnp.ones(2), jnp.zeros(2)

    def step(variable, array):
        once.begin([None, variable])
        return once(array)

    assert step(first, first) is step(first, jnp.ones(2))  # the same variable, brought to its place once more
    np.testing.assert_array_equal(step(second, second)[0], [0, 0])
    assert [array is first for array in brought] == [True, False]


def test_a_process_that_holds_nothing_of_a_variable_takes_part_whenever_it_is_sent():
    received = []
    once = Once(lambda array: received.append(array) or (jnp.ones(2),), 0)
    for placeholder in [first := object(), first, object()]:
        once.begin([placeholder])
        once(None)
    assert received == [None, None]
