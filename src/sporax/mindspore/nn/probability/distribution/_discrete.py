"""Discrete distributions. Their values are whole numbers, in any dtype."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from sporax.base.errors import For, SporaxValueError
from sporax.mindspore import ops
from sporax.mindspore.common import Parameter, Tensor, dtypes
from sporax.mindspore.nn.probability.bijector import parameter
from sporax.mindspore.nn.probability.distribution._distribution import (
    Distribution,
    check_probabilities,
    constructor,
    formula,
)


def _zero_below(value: Tensor, result: Tensor) -> Tensor:
    return ops.where(value < 0, ops.zeros_like(result), result)


class _OfProbability(Distribution):
    """A distribution with one parameter, a probability."""

    is_discrete = True

    __init__ = constructor("probs", dtype=dtypes.int32)

    def _check_parameters(self, param: Mapping[str, Any]) -> None:
        check_probabilities(self._probs)

    probs = parameter("_probs", "The probability.")


class Bernoulli(_OfProbability):
    """One with a probability, else zero.

    Args:
        probs: probability of a one, between 0 and 1.
        seed, dtype, name: see `Distribution`.
    """

    _mean = formula(lambda p: p)
    _var = formula(lambda p: p * (1.0 - p))
    _entropy = formula(lambda p: -(1.0 - p) * ops.log(1.0 - p) - p * ops.log(p))

    def _mode(self, p: Tensor) -> Tensor:
        return ops.cast(p > 0.5, self.dtype)

    def _log_prob(self, value: Tensor, p: Tensor) -> Tensor:
        # Logarithms of 0 are avoided.
        least = float(np.finfo(dtypes.dtype_to_nptype(p.dtype)).eps)
        p = ops.clip_by_value(p, least, 1.0 - least)
        return ops.log(p) * value + ops.log(1.0 - p) * (1.0 - value)

    def _cdf(self, value: Tensor, p: Tensor) -> Tensor:
        below_one = _zero_below(value, 1.0 - p + ops.zeros_like(value))
        return ops.where(ops.floor(value) < 1, below_one, ops.ones_like(below_one))

    def _divergence(self, own: tuple[Tensor], other: tuple[Tensor]) -> Tensor:
        (a,), (b,) = own, other
        return a * ops.log(a / b) + (1.0 - a) * ops.log((1.0 - a) / (1.0 - b))

    def _draw(self, shape: tuple[int, ...], p: Tensor) -> Tensor:
        return self._noise("uniform", shape) < p


class Geometric(_OfProbability):
    """Number of failures before the first success.

    Args:
        probs: probability of a success, between 0 and 1.
        seed, dtype, name: see `Distribution`.
    """

    _mean = formula(lambda p: (1.0 - p) / p)
    _var = formula(lambda p: (1.0 - p) / ops.square(p))
    _entropy = formula(lambda p: (-(1.0 - p) * ops.log(1.0 - p) - p * ops.log(p)) / p)
    _prob = formula(lambda value, p: _zero_below(value, ops.exp(ops.log(1.0 - p) * ops.floor(value) + ops.log(p))))
    _cdf = formula(lambda value, p: _zero_below(value, 1.0 - ops.pow(1.0 - p, ops.floor(value) + 1.0)))

    def _mode(self, p: Tensor) -> Tensor:
        return ops.cast(ops.zeros_like(p), self.dtype)

    def _divergence(self, own: tuple[Tensor], other: tuple[Tensor]) -> Tensor:
        (a,), (b,) = own, other
        return ops.log(a / b) + (1.0 - a) / a * ops.log((1.0 - a) / (1.0 - b))

    def _draw(self, shape: tuple[int, ...], p: Tensor) -> Tensor:
        # The inverse of the distribution function, rounded down.
        return ops.floor(ops.log(self._noise("uniform", shape)) / ops.log(1.0 - p))


class Categorical(_OfProbability):
    """One of several categories, numbered from 0.

    Args:
        probs: probabilities of the categories along the last dim, which sum to 1.
        seed, dtype, name: see `Distribution`.

    Raises:
        SporaxValueError: they are a number, or do not sum to 1.
    """

    def _check_parameters(self, param: Mapping[str, Any]) -> None:
        if self._probs is None:
            return
        For(self.name).refuse(not self._probs.shape, "'probs' must have at least one dimension", "none")
        super()._check_parameters(param)
        if not isinstance(self._probs, Parameter):
            # Sums in float32 are not exact.
            total, least = self._probs.asnumpy().sum(-1), np.finfo(np.float32).eps
            if not np.allclose(total, 1.0, rtol=10 * least, atol=least):
                raise SporaxValueError(f"For '{self.name}', 'probs' must sum to 1, but got {total}.")
        # The last dimension holds the categories and is no batch.
        self._is_scalar_batch = self._probs.ndim == 1
        self._broadcast_shape = self._probs.shape[:-1]

    def _event_batch(self, parameters: tuple[Tensor, ...]) -> tuple[int, ...]:
        return parameters[0].shape[:-1]

    _mean = formula(lambda p: (ops.arange(p.shape[-1]).astype(p.dtype) * p).sum(-1, keepdims=True))
    _entropy = formula(lambda p: -(ops.log(p) * p).sum(-1))

    def _var(self, p: Tensor) -> Tensor:
        squares = ops.square(ops.arange(p.shape[-1]).astype(p.dtype))
        return (squares * p).sum(-1, keepdims=True) - ops.square(self._mean(p))

    def _mode(self, p: Tensor) -> Tensor:
        return ops.cast(p.argmax(-1), self.dtype)

    def _log_prob(self, value: Tensor, p: Tensor) -> Tensor:
        place, inside = self._positions(value, p)
        chosen = _category(ops.log(p), place)
        return ops.where(inside, chosen, ops.full_like(chosen, math.nan))

    def _cdf(self, value: Tensor, p: Tensor) -> Tensor:
        place, _ = self._positions(value, p)
        chosen = _category(ops.cumsum(p, -1), place)
        return ops.where(value <= -1.0, ops.zeros_like(chosen), chosen)

    def _positions(self, value: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        """Categories of values, and which of them exist; from -1 on, values count as 0."""
        integral = ops.where(ops.logical_and(value < 0, value > -1.0), ops.zeros_like(value), ops.floor(value))
        last = p.shape[-1] - 1
        # Clipped, since the lookup needs a valid place; the second result says which are real.
        return ops.clip_by_value(integral, 0, last).astype(dtypes.int32), ops.logical_and(
            integral >= 0, integral <= last
        )

    def _divergence(self, own: tuple[Tensor], other: tuple[Tensor]) -> Tensor:
        (a,), (b,) = own, other
        weights, log_a, log_b = ops.softmax(ops.log(a)), ops.log_softmax(ops.log(a)), ops.log_softmax(ops.log(b))
        return (weights * (log_a - log_b)).sum(-1)

    def _draw(self, shape: tuple[int, ...], p: Tensor) -> Tensor:
        return self._noise("categorical", shape, p)


def _category(table: Tensor, place: Tensor) -> Tensor:
    """Elements of the last dim by number; batches of `table` and `place` broadcast."""
    shape = np.broadcast_shapes(table.shape[:-1], place.shape)
    rows = ops.broadcast_to(table, (*shape, table.shape[-1]))
    positions = ops.broadcast_to(place, shape)
    return ops.gather_elements(rows, -1, ops.expand_dims(positions, -1)).squeeze(-1)


class Poisson(Distribution):
    """Number of events in a time in which `rate` of them are expected.

    Args:
        rate: expected number, positive; a list, array or Tensor.
        seed, dtype, name: see `Distribution`.

    Raises:
        SporaxTypeError: `rate` is a Python number.
    """

    is_discrete = True

    __init__ = constructor("rate", "rate", "Poisson")

    def _check_parameters(self, param: Mapping[str, Any]) -> None:
        rate = param["rate"]
        For(self.name).refuse_type(isinstance(rate, int | float), "'rate' must not be a scalar", rate)

    rate = parameter("_rate", "The expected number.")

    _mean = formula(lambda rate: rate)
    _mode = formula(lambda rate: ops.floor(rate))
    _var = formula(lambda rate: rate)

    def _log_prob(self, value: Tensor, rate: Tensor) -> Tensor:
        # lgamma has poles at whole numbers below 1.
        safe = ops.where(value < 0, ops.zeros_like(value), value)
        weight = ops.log(rate) * safe - ops.lgamma(safe + 1.0)
        return ops.where(value < 0, ops.full_like(weight, -math.inf), weight) - rate

    def _cdf(self, value: Tensor, rate: Tensor) -> Tensor:
        safe = ops.where(value < 0, ops.zeros_like(value), value)
        return _zero_below(value, 1.0 - ops.igamma(1.0 + safe, rate))

    def _draw(self, shape: tuple[int, ...], rate: Tensor) -> Tensor:
        return self._noise("poisson", shape, rate)
