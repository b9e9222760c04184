"""Continuous distributions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from sporax.base.errors import For, SporaxTypeError, SporaxValueError
from sporax.mindspore import ops
from sporax.mindspore.common import Parameter, Tensor
from sporax.mindspore.nn.probability.bijector import parameter
from sporax.mindspore.nn.probability.distribution._distribution import Distribution, constructor, formula

Pair = tuple[Tensor, Tensor]
_LOG_2PI = math.log(2 * math.pi)


def _lbeta(x: Tensor, y: Tensor) -> Tensor:
    return ops.lgamma(x) + ops.lgamma(y) - ops.lgamma(x + y)


def _where_inside(inside: Tensor, value: Tensor, outside: float) -> Tensor:
    return ops.where(inside, value, ops.full_like(value, outside))


class _LocationScale(Distribution):
    """A distribution with a place and a positive width, whose default names are ``mean`` and ``sd``."""

    __init__ = constructor("mean sd", "sd=Standard deviation", attribute="_{}_value")


class Normal(_LocationScale):
    """The normal distribution.

    Args:
        mean, sd: mean and standard deviation, which must be positive; None: to be given at every call.
        seed, dtype, name: see `Distribution`.

    Example:
        >>> Normal(0.0, 1.0).log_prob(Tensor([0.0]))
    """

    _mean = formula(lambda mean, sd: mean)
    _mode = formula(lambda mean, sd: mean)
    _sd = formula(lambda mean, sd: sd)
    _entropy = formula(lambda mean, sd: 0.5 * (_LOG_2PI + 1.0) + ops.log(sd))
    _log_prob = formula(lambda value, mean, sd: -0.5 * ops.square((value - mean) / sd) - 0.5 * _LOG_2PI - ops.log(sd))
    _cdf = formula(lambda value, mean, sd: 0.5 * (1.0 + ops.erf((value - mean) / (sd * math.sqrt(2.0)))))

    def _divergence(self, own: Pair, other: Pair) -> Tensor:
        (mean_a, sd_a), (mean_b, sd_b) = own, other
        wider = ops.log(sd_a) - ops.log(sd_b)
        apart = ops.square((mean_a - mean_b) / sd_b)
        # expm1, since both deviations are usually close.
        return 0.5 * apart + 0.5 * ops.expm1(2.0 * wider) - wider

    def _draw(self, shape: tuple[int, ...], mean: Tensor, sd: Tensor) -> Tensor:
        return self._noise("normal", shape) * sd + mean


class HalfNormal(_LocationScale):
    """The right half of a normal distribution; densities only, as in MindSpore.

    Args:
        mean, sd: of the whole distribution.
        seed, dtype, name: see `Distribution`.
    """

    def _prob(self, value: Tensor, mean: Tensor, sd: Tensor) -> Tensor:
        density = math.sqrt(2.0 / math.pi) / sd * ops.exp(-0.5 * ops.square((value - mean) / sd))
        # Below the place there is no half.
        return _where_inside(value >= 0, density, 0.0)


class Laplace(_LocationScale):
    """The Laplace distribution; densities only, as in MindSpore.

    Args:
        mean, sd: place and scale.
        seed, dtype, name: see `Distribution`.
    """

    _log_prob = formula(lambda value, mean, sd: -ops.abs((value - mean) / sd) - ops.log(2.0 * sd))


class StudentT(Distribution):
    """Student's t-distribution; densities only, as in MindSpore.

    Args:
        df: degrees of freedom, positive.
        mean, sd: place and scale, which must be positive.
        seed, dtype, name: see `Distribution`.
    """

    __init__ = constructor("df mean sd", "sd=Standard deviation, df=Degrees of freedom", "StudentT", "_{}_value")

    def _log_prob(self, value: Tensor, df: Tensor, mean: Tensor, sd: Tensor) -> Tensor:
        weight = -0.5 * (df + 1.0) * ops.log1p(ops.square((value - mean) / sd) / df)
        norm = ops.log(sd) + 0.5 * ops.log(df) + 0.5 * math.log(math.pi)
        return weight - norm - ops.lgamma(0.5 * df) + ops.lgamma(0.5 * (df + 1.0))


class Uniform(Distribution):
    """The uniform distribution between two bounds.

    Args:
        low, high: the bounds.
        seed, dtype, name: see `Distribution`.
    """

    __init__ = constructor("low high", name="Uniform")

    def _check_parameters(self, param: Mapping[str, Any]) -> None:
        bounds = (self._low, self._high)
        # Parameters may change, so only fixed bounds are compared.
        if all(isinstance(bound, Tensor) and not isinstance(bound, Parameter) for bound in bounds):
            lower, upper = (np.asarray(bound) for bound in bounds)
            if not (lower < upper).all():
                raise For(self.name).error("'low' must be less than 'high'", param["low"], param["high"])

    low = parameter("_low", "The lower bound.")
    high = parameter("_high", "The upper bound.")

    _mean = formula(lambda low, high: (low + high) / 2.0)
    _var = formula(lambda low, high: ops.square(high - low) / 12.0)
    _entropy = formula(lambda low, high: ops.log(high - low))
    _cdf = formula(lambda value, low, high: ops.clip_by_value((value - low) / (high - low), 0.0, 1.0))

    def _prob(self, value: Tensor, low: Tensor, high: Tensor) -> Tensor:
        inside = ops.logical_and(value >= low, value <= high)
        return ops.where(inside, 1.0 / (high - low), ops.zeros_like(value))

    def _divergence(self, own: Pair, other: Pair) -> Tensor:
        (low_a, high_a), (low_b, high_b) = own, other
        wider = ops.log(high_b - low_b) - ops.log(high_a - low_a)
        # Infinite where this one has values that the other cannot have.
        return _where_inside(ops.logical_and(low_b <= low_a, high_a <= high_b), wider, math.inf)

    def _draw(self, shape: tuple[int, ...], low: Tensor, high: Tensor) -> Tensor:
        return (high - low) * self._noise("uniform", shape) + low


class Exponential(Distribution):
    """The exponential distribution.

    Args:
        rate: one over the mean, positive.
        seed, dtype, name: see `Distribution`.
    """

    __init__ = constructor("rate", "rate", "Exponential")

    rate = parameter("_rate", "One over the mean.")

    _mean = formula(lambda rate: 1.0 / rate)
    _mode = formula(lambda rate: ops.zeros_like(rate))
    _sd = formula(lambda rate: 1.0 / rate)
    _entropy = formula(lambda rate: 1.0 - ops.log(rate))
    _log_prob = formula(lambda value, rate: _where_inside(value >= 0, ops.log(rate) - rate * value, -math.inf))
    _cdf = formula(lambda value, rate: _where_inside(value >= 0, 1.0 - ops.exp(-rate * value), 0.0))
    _log_survival = formula(lambda value, rate: _where_inside(value >= 0, -rate * value, 0.0))

    def _divergence(self, own: tuple[Tensor], other: tuple[Tensor]) -> Tensor:
        (a,), (b,) = own, other
        return ops.log(a) - ops.log(b) + b / a - 1.0

    # Minus the logarithm of a uniform number is exponential.
    def _draw(self, shape: tuple[int, ...], rate: Tensor) -> Tensor:
        return -ops.log(self._noise("uniform", shape)) / rate


class Gamma(Distribution):
    """The gamma distribution.

    Args:
        concentration, rate: shape and one over the scale, positive; lists, arrays or Tensors.
        seed, dtype, name: see `Distribution`.

    Raises:
        SporaxTypeError: a parameter is a Python number.
    """

    __init__ = constructor("concentration rate", "concentration, rate", "Gamma")

    def _check_parameters(self, param: Mapping[str, Any]) -> None:
        _no_numbers(self.name, **param)

    concentration = parameter("_concentration", "The shape of the distribution.")
    rate = parameter("_rate", "One over the scale.")

    _mean = formula(lambda concentration, rate: concentration / rate)
    _var = formula(lambda concentration, rate: concentration / ops.square(rate))
    # Below 1 the density has no largest value.
    _mode = formula(
        lambda concentration, rate: _where_inside(concentration > 1.0, (concentration - 1.0) / rate, math.nan)
    )
    _cdf = formula(lambda value, concentration, rate: ops.igamma(concentration, rate * value))

    def _entropy(self, concentration: Tensor, rate: Tensor) -> Tensor:
        spread = ops.lgamma(concentration) + (1.0 - concentration) * ops.digamma(concentration)
        return concentration - ops.log(rate) + spread

    def _log_prob(self, value: Tensor, concentration: Tensor, rate: Tensor) -> Tensor:
        weight = (concentration - 1.0) * ops.log(value) - rate * value
        return weight - ops.lgamma(concentration) + concentration * ops.log(rate)

    def _divergence(self, own: Pair, other: Pair) -> Tensor:
        (shape_a, rate_a), (shape_b, rate_b) = own, other
        shapes = (shape_a - shape_b) * ops.digamma(shape_a) + ops.lgamma(shape_b) - ops.lgamma(shape_a)
        rates = shape_b * (ops.log(rate_a) - ops.log(rate_b)) + shape_a * (rate_b / rate_a - 1.0)
        return shapes + rates

    # Drawn with rate 1, and scaled.
    def _draw(self, shape: tuple[int, ...], concentration: Tensor, rate: Tensor) -> Tensor:
        return self._noise("gamma", shape, concentration) / rate


class Beta(Distribution):
    """The beta distribution.

    Args:
        concentration1, concentration0: of ones and of zeros, positive; lists, arrays or Tensors.
        seed, dtype, name: see `Distribution`.

    Raises:
        SporaxTypeError: a parameter is a float.
    """

    __init__ = constructor("concentration1 concentration0", "concentration1, concentration0", "Beta")

    def _check_parameters(self, param: Mapping[str, Any]) -> None:
        _no_numbers(self.name, **param)

    concentration1 = parameter("_concentration1", "The concentration of ones.")
    concentration0 = parameter("_concentration0", "The concentration of zeros.")

    _mean = formula(lambda ones, zeros: ones / (ones + zeros))
    _mode = formula(
        lambda ones, zeros: _where_inside(
            ops.logical_and(ones > 1.0, zeros > 1.0), (ones - 1.0) / (ones + zeros - 2.0), math.nan
        )
    )

    def _var(self, ones: Tensor, zeros: Tensor) -> Tensor:
        total = ones + zeros
        return ones * zeros / (ops.square(total) * (total + 1.0))

    def _entropy(self, ones: Tensor, zeros: Tensor) -> Tensor:
        apart = (ones - 1.0) * ops.digamma(ones) + (zeros - 1.0) * ops.digamma(zeros)
        return _lbeta(ones, zeros) - apart + (ones + zeros - 2.0) * ops.digamma(ones + zeros)

    def _log_prob(self, value: Tensor, ones: Tensor, zeros: Tensor) -> Tensor:
        weight = (ones - 1.0) * ops.log(value) + (zeros - 1.0) * ops.log1p(-value)
        return weight - _lbeta(ones, zeros)

    def _divergence(self, own: Pair, other: Pair) -> Tensor:
        (ones_a, zeros_a), (ones_b, zeros_b) = own, other
        more = ops.digamma(ones_a) * (ones_b - ones_a) + ops.digamma(zeros_a) * (zeros_b - zeros_a)
        total = ops.digamma(ones_a + zeros_a) * (ones_b + zeros_b - ones_a - zeros_a)
        return _lbeta(ones_b, zeros_b) - _lbeta(ones_a, zeros_a) - more + total

    def _draw(self, shape: tuple[int, ...], ones: Tensor, zeros: Tensor) -> Tensor:
        # Two gamma numbers give a beta number.
        first, second = self._noise("gamma", shape, ones), self._noise("gamma", shape, zeros)
        return first / (first + second)


class _LocScale(Distribution):
    """A distribution with a place and a positive width that are called ``loc`` and ``scale``."""

    __init__ = constructor("loc scale", "scale")

    loc = parameter("_loc", "The place.")
    scale = parameter("_scale", "The width.")


class Cauchy(_LocScale):
    """The Cauchy distribution, which has no mean and no variance.

    Args:
        loc, scale: place and width, which must be positive.
        seed, dtype, name: see `Distribution`.
    """

    def _refuse(self, what: str) -> NoReturn:
        raise SporaxValueError(f"For '{self.name}', the {what} is undefined.")

    def _mean(self, loc: Tensor, scale: Tensor) -> Tensor:
        self._refuse("mean")

    def _sd(self, loc: Tensor, scale: Tensor) -> Tensor:
        self._refuse("standard deviation")

    def _var(self, loc: Tensor, scale: Tensor) -> Tensor:
        self._refuse("variance")

    _mode = formula(lambda loc, scale: loc)
    _entropy = formula(lambda loc, scale: ops.log(scale) + math.log(4 * math.pi))
    _log_prob = formula(
        lambda value, loc, scale: -ops.log1p(ops.square((value - loc) / scale)) - ops.log(math.pi * scale)
    )
    _cdf = formula(lambda value, loc, scale: ops.atan((value - loc) / scale) / math.pi + 0.5)
    _log_cdf = formula(
        lambda value, loc, scale: ops.log1p(2.0 * ops.atan((value - loc) / scale) / math.pi) - math.log(2.0)
    )

    def _divergence(self, own: Pair, other: Pair) -> Tensor:
        (loc_a, scale_a), (loc_b, scale_b) = own, other
        apart = ops.square(scale_a + scale_b) + ops.square(loc_a - loc_b)
        return ops.log(apart) - math.log(4.0) - ops.log(scale_a) - ops.log(scale_b)

    def _draw(self, shape: tuple[int, ...], loc: Tensor, scale: Tensor) -> Tensor:
        # The inverse of the distribution function.
        return loc + scale * ops.tan(math.pi * (self._noise("uniform", shape) - 0.5))


class Logistic(_LocScale):
    """The logistic distribution.

    Args:
        loc, scale: place and width, which must be positive.
        seed, dtype, name: see `Distribution`.
    """

    _mean = formula(lambda loc, scale: loc)
    _mode = formula(lambda loc, scale: loc)
    _sd = formula(lambda loc, scale: scale * (math.pi / math.sqrt(3.0)))
    _entropy = formula(lambda loc, scale: ops.log(scale) + 2.0)
    _cdf = formula(lambda value, loc, scale: ops.sigmoid((value - loc) / scale))
    _log_cdf = formula(lambda value, loc, scale: ops.logsigmoid((value - loc) / scale))
    _survival_function = formula(lambda value, loc, scale: ops.sigmoid((loc - value) / scale))
    _log_survival = formula(lambda value, loc, scale: ops.logsigmoid((loc - value) / scale))

    def _log_prob(self, value: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
        z = (value - loc) / scale
        return -z + 2.0 * ops.logsigmoid(z) - ops.log(scale)

    def _draw(self, shape: tuple[int, ...], loc: Tensor, scale: Tensor) -> Tensor:
        drawn = self._noise("uniform", shape)
        return (ops.log(drawn) - ops.log1p(-drawn)) * scale + loc


def _no_numbers(name: str, **parameters: Any) -> None:
    for argument, value in parameters.items():
        if isinstance(value, float) or (name == "Gamma" and isinstance(value, int)):
            raise SporaxTypeError(f"For '{name}', '{argument}' must not be a scalar, but got {value}.")
