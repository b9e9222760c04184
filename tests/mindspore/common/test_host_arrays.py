"""Arrays go from the host to a device, or are copied, with buffers of their own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sporax.mindspore.common._host_arrays import copied, taken_over, to_device


def test_a_numpy_array_becomes_an_array_of_the_device():
    array = to_device(np.arange(3, dtype=np.float32))
    assert isinstance(array, jax.Array)
    np.testing.assert_array_equal(array, [0, 1, 2])


def test_a_copy_survives_the_deletion_of_its_original():
    original = jnp.arange(4)
    copy = copied(original)
    original.delete()
    np.testing.assert_array_equal(copy, [0, 1, 2, 3])


def test_inside_a_compiled_step_a_copy_is_an_operator():
    assert "copy" in str(jax.make_jaxpr(copied)(jnp.arange(2)))


@pytest.mark.parametrize("offset", [0, 3])
def test_what_is_taken_over_has_memory_of_its_own(offset):
    """Also when a step is given its buffer, as those of Parameters are."""
    source = np.arange(4 * 1024 + 3).astype(np.uint8)[offset : offset + 4096].reshape(64, 64)
    expected = source.copy()
    array = taken_over(source)
    source[:] = 0
    np.testing.assert_array_equal(array, expected)
    changed = jax.jit(lambda x: x + 1, donate_argnums=0)(array)
    np.testing.assert_array_equal(changed, expected + 1)


def test_shapes_without_values_and_without_dimensions_are_taken_over():
    assert taken_over(np.zeros((0, 3), np.int8)).shape == (0, 3)
    assert taken_over(np.full((), 2, np.float32)) == 2
