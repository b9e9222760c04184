"""The independent reference operators are held against: numpy in float64, and its finite differences."""

from __future__ import annotations

import numpy as np
import pytest

import sporax.mindspore as ms

STEP = 1e-6


def numbers(*shape, seed=0, low=-2.0, high=2.0):
    """Float64 values that are neither close to each other nor to 0, so that differences stay on one side of a kink."""
    count = int(np.prod(shape))
    steps = np.linspace(low, high, 2 * count + 1)[1::2]
    return np.random.default_rng(seed).permutation(steps).reshape(shape)


def as_tuple(value):
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def check(call, reference, *inputs, gradient=True, rtol=1e-12, atol=1e-12):
    """`call` on Tensors gives what `reference` gives on arrays, and has its derivative."""
    check_values(call, reference, inputs, rtol, atol)
    if gradient:
        check_gradient(call, reference, inputs)


def check_values(call, reference, inputs, rtol, atol):
    ours = as_tuple(call(*map(ms.Tensor, inputs)))
    theirs = as_tuple(reference(*inputs))
    assert len(ours) == len(theirs)
    for mine, expected in zip(ours, theirs, strict=True):
        assert mine.shape == np.shape(expected)
        np.testing.assert_allclose(mine.asnumpy(), expected, rtol, atol)


def check_gradient(call, reference, inputs, tolerance=1e-6):
    """The derivative of a weighted sum of the outputs in a random direction of all floating inputs."""
    rng = np.random.default_rng(1)
    weights = [rng.normal(size=np.shape(output)) for output in as_tuple(reference(*inputs))]
    places = tuple(place for place, value in enumerate(inputs) if value.dtype == np.float64)
    directions = [rng.normal(size=value.shape) if place in places else 0 for place, value in enumerate(inputs)]

    def objective(*tensors):
        return weighted_sum(as_tuple(call(*tensors)), list(map(ms.Tensor, weights)))

    def moved(sign):
        moves = zip(inputs, directions, strict=True)
        shifted = [value + sign * STEP * move if np.ndim(move) else value for value, move in moves]
        return weighted_sum(as_tuple(reference(*shifted)), weights)

    grads = as_tuple(ms.jit(ms.grad(objective, places))(*map(ms.Tensor, inputs)))
    ours = sum((grad.asnumpy() * directions[place]).sum() for grad, place in zip(grads, places, strict=True))
    expected = (moved(1) - moved(-1)) / (2 * STEP)
    assert ours == pytest.approx(expected, rel=tolerance, abs=10 * tolerance)


def weighted_sum(outputs, weights):
    return sum((output * weight).sum() for output, weight in zip(outputs, weights, strict=True))
