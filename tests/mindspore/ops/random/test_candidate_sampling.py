"""Sampled classes: what is drawn, how often, and the expected counts."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, ops

TRUE = Tensor([[1], [3]], ms.int64)


def test_unique_samples_without_the_true_classes():
    sampler = ops.UniformCandidateSampler(1, 5, True, 9, seed=3, remove_accidental_hits=True)
    draws = [tuple(sampler(TRUE)[0].asnumpy()) for _ in range(6)]
    assert all(len(set(draw)) == 5 and not {1, 3} & set(draw) for draw in draws)
    assert len(set(draws)) > 1


def test_a_seed_repeats_the_function_and_the_stream_of_a_class():
    first, again = (ops.uniform_candidate_sampler(TRUE, 1, 3, False, 100, seed=5)[0] for _ in range(2))
    np.testing.assert_array_equal(first.asnumpy(), again.asnumpy())
    one, two = (ops.LogUniformCandidateSampler(1, 3, False, 100, seed=5) for _ in range(2))
    for _ in range(2):
        np.testing.assert_array_equal(one(TRUE)[0].asnumpy(), two(TRUE)[0].asnumpy())


def test_frequencies_and_expected_counts():
    sampled, expected_true, expected = ops.log_uniform_candidate_sampler(TRUE, 1, 4000, False, 6, seed=1)
    probability = np.diff(np.log(np.arange(1, 8))) / np.log(7)
    share = np.bincount(sampled.asnumpy(), minlength=6) / 4000
    np.testing.assert_allclose(share, probability, atol=0.03)
    np.testing.assert_allclose(expected_true.asnumpy(), 4000 * probability[[[1], [3]]], rtol=1e-5)
    np.testing.assert_allclose(expected.asnumpy(), 4000 * probability[sampled.asnumpy()], rtol=1e-5)


def test_expected_counts_of_unique_classes_come_from_the_tries():
    """All of 4 classes are drawn, which takes at least 4 tries; every class is then expected the more, the more they took."""
    _, expected, _ = ops.UniformCandidateSampler(1, 4, True, 4, seed=2)(TRUE)
    tries = np.log1p(-expected.asnumpy().astype(np.float64)) / np.log(3 / 4)
    np.testing.assert_allclose(tries, np.round(tries[0, 0]), atol=1e-3)
    assert tries[0, 0] > 4


def test_arguments_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"'true_classes' must have shape \(n, 2\)"):
        ops.UniformCandidateSampler(2, 3, True, 9)(TRUE)
    with pytest.raises(ValueError, match="5 classes cannot be sampled from 4"):
        ops.uniform_candidate_sampler(TRUE, 1, 5, True, 4)
    with pytest.raises(ValueError, match="2 when every true class is left out"):
        ops.uniform_candidate_sampler(TRUE, 1, 3, True, 4, remove_accidental_hits=True)
    with pytest.raises(TypeError, match="must be an integer type"):
        ops.uniform_candidate_sampler(Tensor([[1.0]]), 1, 2, True, 4)
