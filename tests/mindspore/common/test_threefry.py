"""Random numbers on the host are those of `jax.random`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sporax.mindspore.common import _threefry as threefry
from sporax.mindspore.common._random_streams import key_of

TICKETS = [(11, 0), (2**40 + 5, 7)]


@pytest.mark.parametrize("ticket", TICKETS)
def test_keys_and_their_splits_are_those_of_jax(ticket):
    key, own = key_of(ticket), threefry.key_of(*ticket)
    assert tuple(jax.random.key_data(key).tolist()) == own
    assert [tuple(row) for row in jax.random.key_data(jax.random.split(key)).tolist()] == list(threefry.split(own))


@pytest.mark.parametrize("ticket", TICKETS)
def test_draws_are_those_of_jax(ticket):
    key, own, shape = key_of(ticket), threefry.key_of(*ticket), (3, 77, 100)
    np.testing.assert_allclose(
        threefry.uniform(own, shape, -0.3, 0.3), jax.random.uniform(key, shape, jnp.float32, -0.3, 0.3), atol=6e-8
    )
    np.testing.assert_allclose(
        threefry.normal(own, shape), jax.random.normal(key, shape, jnp.float32), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(
        threefry.truncated_normal(own, shape, -2.0, 2.0),
        jax.random.truncated_normal(key, -2.0, 2.0, shape, jnp.float32),
        rtol=1e-5,
        atol=1e-6,
    )


def test_large_arrays_are_the_same_in_pieces_and_threads():
    whole = threefry.normal((1, 2), (20 * 16384 + 5,))
    np.testing.assert_array_equal(whole[:1000], threefry.normal((1, 2), (1000,)))
    assert whole.std() == pytest.approx(1, rel=0.01)


@pytest.mark.parametrize(
    ("whole", "start", "shape"),
    [
        ((7,), (2,), (4,)),
        ((6, 5), (2, 0), (3, 5)),
        ((6, 5), (0, 1), (6, 3)),
        ((4, 6, 5), (1, 2, 0), (2, 3, 5)),
        ((4, 6, 5), (1, 2, 3), (3, 4, 2)),
        ((4, 6, 5), (3, 0, 0), (1, 6, 5)),
        ((), (), ()),
    ],
)
def test_a_block_has_the_bits_that_it_has_in_the_whole(whole, start, shape):
    block = tuple(slice(first, first + size) for first, size in zip(start, shape, strict=True))
    expected = np.arange(np.prod(whole, dtype=int)).reshape(whole)[block].ravel()
    region = threefry.Region(whole, start, shape)
    np.testing.assert_array_equal(region.positions(0, expected.size), expected)
    np.testing.assert_array_equal(
        region.positions(expected.size // 2, expected.size // 2), expected[expected.size // 2 :][: expected.size // 2]
    )
    for draw, bounds in ((threefry.normal, ()), (threefry.uniform, (-1, 1)), (threefry.truncated_normal, (-2, 2))):
        assert draw((1, 2), region, *bounds).tobytes() == draw((1, 2), whole, *bounds)[block].tobytes()
