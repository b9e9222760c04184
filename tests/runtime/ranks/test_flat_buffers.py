"""Arrays of one bucket travel as one buffer: who goes together, in which dtype, and that values are those of single arrays."""

import jax.numpy as jnp
import numpy as np

from sporax.runtime.ranks import flat_buffers
from sporax.runtime.ranks.flat_buffers import Reduction
from sporax.runtime.ranks.groups import Group

EVERYONE, ALONE = Group("all", tuple(range(8))), Group("alone", (0,))
DRAW = np.random.default_rng(0)
ARRAYS = [
    DRAW.integers(-4, 5, (8, 3, 2)).astype(np.float32),
    DRAW.integers(-4, 5, (8,)).astype(np.float32),
    DRAW.integers(-4, 5, (8, 4)).astype(np.float16),
    DRAW.integers(-4, 5, (8, 2)).astype(np.float32),
]


def test_equal_ids_and_dtypes_go_together_and_the_last_gradients_first():
    f32, f16 = jnp.float32, jnp.float16
    assert flat_buffers.buckets([1, 0, 2, 1, 2, 0], [f32] * 6) == ((5,), (2, 4), (1,), (0, 3))
    assert flat_buffers.buckets([1, 1, 1], [f32, f16, f32]) == ((1,), (0, 2))


def test_sums_of_a_bucket_are_those_of_its_arrays(on_ranks):
    reduction = Reduction(EVERYONE, ((2,), (0, 1)), scale=0.5)
    results = on_ranks(lambda *arrays: flat_buffers.reduce_buckets(reduction, arrays), *ARRAYS)
    for position in (0, 1, 2):
        expected = np.broadcast_to(ARRAYS[position].sum(0) * 0.5, ARRAYS[position].shape)
        assert results[position].dtype == ARRAYS[position].dtype
        np.testing.assert_array_equal(results[position], expected)
    np.testing.assert_array_equal(results[3], ARRAYS[3])  # it is in no bucket


def test_there_is_one_collective_per_bucket(traced):
    reduction = Reduction(EVERYONE, ((3,), (0, 1, 2)))
    closed, _ = traced(lambda *arrays: flat_buffers.reduce_buckets(reduction, arrays), *(array[0] for array in ARRAYS))
    assert str(closed).count("psum") == 2


def test_half_precision_is_summed_in_single_precision(on_ranks):
    small = np.full((8, 1), 2.0**-11, np.float16)
    small[0] = 1  # in half precision each addition of 2**-11 to 1 would be lost
    (total,) = on_ranks(lambda x: flat_buffers.reduce_buckets(Reduction(EVERYONE, ((0,),)), [x]), small)
    assert float(total[0, 0]) == np.float16(1 + 7 * 2.0**-11)
    assert flat_buffers.travelling_dtype(jnp.bfloat16) == jnp.float32
    assert flat_buffers.travelling_dtype(jnp.float64) == jnp.float64


def test_positions_that_travel_otherwise_leave_their_buckets():
    reduction = Reduction(ALONE, ((3,), (0, 1, 2)), scale=2.0)
    assert flat_buffers.without(reduction, {1, 3}) == Reduction(ALONE, ((0, 2),), scale=2.0)


def test_rows_of_all_members_are_gathered_and_scaled(on_ranks):
    indices, values = np.arange(16).reshape(8, 2), ARRAYS[3].reshape(8, 2, 1)
    everywhere, scaled = on_ranks(
        lambda i, v: flat_buffers.gather_rows(Reduction(EVERYONE, (), scale=0.25), i, v), indices, values
    )
    np.testing.assert_array_equal(everywhere[5], np.arange(16))
    np.testing.assert_array_equal(scaled[5], values.reshape(16, 1) * 0.25)


def test_arrays_of_the_root_arrive_in_one_buffer_per_dtype(on_ranks):
    only = [np.where((np.arange(8) == 3).reshape(8, *(1,) * (array.ndim - 1)), array, 0) for array in ARRAYS]
    results = on_ranks(lambda *arrays: flat_buffers.broadcast_buckets(EVERYONE, 3, arrays), *only, rank=3)
    for result, array in zip(results, ARRAYS, strict=True):
        np.testing.assert_array_equal(result, np.broadcast_to(array[3], array.shape))
