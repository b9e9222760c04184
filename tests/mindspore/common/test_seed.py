"""The global seed."""

import numpy as np
import pytest

import sporax.mindspore as ms


def test_it_seeds_numpy_too():
    ms.set_seed(3)
    first = np.random.rand(2)
    ms.set_seed(3)
    np.testing.assert_array_equal(first, np.random.rand(2))
    assert ms.get_seed() == 3


@pytest.mark.parametrize(("seed", "kind"), [(-1, ValueError), (1.5, TypeError), (True, TypeError), ("a", TypeError)])
def test_seeds_that_make_no_sense_are_refused(seed, kind):
    before = ms.get_seed()
    with pytest.raises(kind, match="For 'set_seed', the argument 'seed' must be"):
        ms.set_seed(seed)
    assert ms.get_seed() == before
