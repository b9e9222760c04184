"""Random small networks in pipeline stages train as on one device: linear losses, penalties, tied weights, all step cells."""

import numpy as np
import pytest
from random_pipelines import Case, assert_as_on_one_device, draw, train

SOAKED = 1000


def test_the_gradient_of_a_bias_under_a_linear_loss_counts_for_every_micro_batch():
    blocks = (("tanh", (0, 0), False), ("square", (1, 0), False))
    case = Case(0, 2, 4, blocks, "mean", "", False, -1, "plain", "SGD")
    before = np.random.default_rng(1).normal(0.5, 0.5, 8)
    _, weights = train(case, True)
    # Two steps of 0.1 * 4 micro batches * 1/8 each.
    np.testing.assert_allclose(weights["blocks.1.w"], before - 0.1, rtol=1e-5)


def test_a_product_in_no_stage_with_a_strategy():
    """Its backward operators are in the stage where it is, also when a later stage sends their cotangents."""
    blocks = (
        ("scale", (0, 0), False),
        ("scale", (1, 0), False),
        ("dense", (1, 0), True),
        ("scale", (2, 0), False),
        ("dense", (3, 0), True),
    )
    assert_as_on_one_device(Case(1, 4, 4, blocks, "squares", "", False, 2, "both", "SGD"))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", [0, 3, 7, 9, 13, 18])
def test_a_few(number):
    assert_as_on_one_device(draw(number))


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore:With search_mode='recursive_programming'")  # which replaces strategies, and says so
@pytest.mark.parametrize("first", range(0, SOAKED, 50))
def test_many(first):
    for number in range(first, first + 50):
        assert_as_on_one_device(draw(number))
