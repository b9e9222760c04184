"""What of communication shows."""

import numpy as np

from sporax.planner.cost.evaluate import exposed


def test_transfers_hide_behind_a_share_of_computing():
    assert exposed(3.0, 4.0, 0.5) == 1.0
    assert exposed(1.0, 4.0, 0.5) == 0.0
    assert exposed(3.0, 4.0, 0.0) == 3.0


def test_several_steps_are_arrays():
    assert np.array_equal(exposed(np.array([3.0, 1.0]), np.array([4.0, 4.0]), 0.5), [1.0, 0.0])
