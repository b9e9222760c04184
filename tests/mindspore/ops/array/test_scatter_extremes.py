"""Gradient of the maximum of a position and its updates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, ops
from sporax.mindspore.ops.array import scatter_extremes

INDEX = (jnp.array([0, 0, 1, 1, 3]),)
TARGET = jnp.array([1.0, 2.0, 3.0, -1.0], jnp.float32)
UPDATES = jnp.array([5.0, 5.0, 2.0, 1.0, 9.0], jnp.float32)


def gradients(target, updates, upwards=True):
    def total(target, updates):
        return jnp.sum(
            scatter_extremes.extreme_at(target, INDEX, updates, upwards) * jnp.array([1.0, 10.0, 100.0, 1000.0])
        )

    return jax.grad(total, (0, 1))(target, updates)


def test_equal_elements_share_the_gradient():
    own, theirs = gradients(TARGET, UPDATES)
    np.testing.assert_allclose(own, [0, 5, 100, 0])
    np.testing.assert_allclose(theirs, [0.5, 0.5, 5, 0, 1000])


def test_the_minimum_mirrors_the_maximum():
    for one, other in zip(gradients(TARGET, UPDATES), gradients(-TARGET, -UPDATES, upwards=False), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("start", [None, jnp.finfo(jnp.float32).min, -jnp.inf])
@pytest.mark.parametrize("upwards", [True, False])
def test_a_result_rounded_in_another_way_loses_no_gradient(start, upwards):
    target = jnp.array([1.0, 2.5, 3.0, -1.0], jnp.float32) if start is None else jnp.full(4, start, jnp.float32)
    sign = 1 if upwards else -1
    target, updates = sign * target, sign * UPDATES
    exact = scatter_extremes.extreme_at(target, INDEX, updates, upwards)
    off = jnp.nextafter(exact, jnp.float32(sign * jnp.inf))
    own, theirs = scatter_extremes._shares(target, INDEX, updates, off, upwards)
    reached = np.asarray([0, 1, 3] if start is not None else [0, 1, 2, 3])
    np.testing.assert_allclose(np.asarray(own.at[INDEX].add(theirs))[reached], 1, rtol=1e-6)
    np.testing.assert_allclose(theirs, [0.5, 0.5, float(start is not None), 0, 1], atol=1e-6)


def test_positions_out_of_range_get_nothing():
    def total(updates):
        return jnp.sum(scatter_extremes.extreme_at(jnp.zeros(2, jnp.float32), (jnp.array([5, 1]),), updates, True))

    np.testing.assert_array_equal(jax.grad(total)(jnp.array([7.0, 8.0], jnp.float32)), [0, 1])


def test_segment_maximum_learns():
    ids = Tensor(np.array([0, 0, 2], np.int32))
    gradient = ms.grad(lambda x: ops.unsorted_segment_max(x, ids, 3)[0])(Tensor(np.array([1.0, 4.0, 2.0], np.float32)))
    np.testing.assert_array_equal(gradient.asnumpy(), [0, 1, 0])
