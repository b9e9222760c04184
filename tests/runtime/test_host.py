"""Arrays go from the host to a device, or are copied, with buffers of their own."""

import jax
import jax.numpy as jnp
import numpy as np

from sporax.runtime.host import copied, to_device


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
