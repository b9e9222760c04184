"""Distributions of transformed values: any by an invertible function, and the two that MindSpore names."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sporax.base.errors import For, SporaxValueError
from sporax.mindspore import ops
from sporax.mindspore.common import DType, Tensor, dtypes
from sporax.mindspore.nn.probability.bijector import Bijector, Exp, GumbelCDF, Invert, parameter
from sporax.mindspore.nn.probability.distribution._continuous import Normal, Uniform
from sporax.mindspore.nn.probability.distribution._distribution import Distribution, check_positive, formula

Pair = tuple[Tensor, Tensor]


class TransformedDistribution(Distribution):
    """The distribution of ``bijector(x)`` where x has another distribution.

    Args:
        bijector: the invertible function.
        distribution: of its input; its dtype must be floating.
        seed, name: see `Distribution`.

    Raises:
        SporaxTypeError: one of both is of another kind.

    Example:
        >>> TransformedDistribution(Exp(), Normal(0.0, 1.0)).prob(Tensor([1.0]))
    """

    def __init__(
        self,
        bijector: Bijector,
        distribution: Distribution,
        seed: int | None = None,
        name: str = "transformed_distribution",
    ) -> None:
        for what, value, kind in (("bijector", bijector, Bijector), ("distribution", distribution, Distribution)):
            For(name).refuse_type(not isinstance(value, kind), f"'{what}' must be a {kind.__name__}", value, show=repr)
        super().__init__(seed, distribution.dtype, name, {})
        self._bijector, self._distribution = bijector, distribution
        # Calls give the parameters of the input's distribution.
        self.parameter_names = distribution.parameter_names
        self.parameter_type = distribution.parameter_type
        self._is_scalar_batch = distribution.is_scalar_batch and bijector.is_scalar_batch
        self._batch_shape = distribution.batch_shape
        shapes = (distribution.batch_shape, bijector.batch_shape)
        self._broadcast_shape = None if None in shapes else np.broadcast_shapes(*filter(None, shapes))

    bijector = parameter("_bijector", "The invertible function.")
    distribution = parameter("_distribution", "The distribution of its input.")

    @property
    def is_linear_transformation(self) -> bool:
        """Whether the function is affine, so that it maps means to means."""
        return self._bijector.is_constant_jacobian

    def _default(self, name: str) -> Tensor | None:
        return self._distribution._default(name)

    def _cdf(self, value: Tensor, *parameters: Tensor) -> Tensor:
        return self._distribution.cdf(self._bijector.inverse(value), *parameters)

    def _log_prob(self, value: Tensor, *parameters: Tensor) -> Tensor:
        before = self._distribution.log_prob(self._bijector.inverse(value), *parameters)
        # Change of variables: the density is multiplied by the derivative of the inverse.
        return before + self._bijector.inverse_log_jacobian(value)

    def _mean(self, *parameters: Tensor) -> Tensor:
        if not self.is_linear_transformation:
            # The mean of a function is the function of the mean only for affine ones.
            raise SporaxValueError(f"For '{self.name}', 'mean' needs a linear bijector, but got {self._bijector.name}.")
        return self._bijector.forward(self._distribution.mean(*parameters))

    def _draw(self, shape: tuple[int, ...], *parameters: Tensor) -> Tensor:
        # The input's distribution adds its batch itself.
        outer = shape[: len(shape) - len(self._distribution._event_batch(parameters))]
        return self._bijector.forward(self._distribution.sample(outer, *parameters))


class Gumbel(TransformedDistribution):
    """The Gumbel distribution, that of the largest of many values.

    Args:
        loc, scale: place and width, which must be positive; always given here, never at calls.
        seed, dtype, name: see `Distribution`.
    """

    def __init__(
        self, loc: Any, scale: Any, seed: int = 0, dtype: DType = dtypes.float32, name: str = "Gumbel"
    ) -> None:
        function = GumbelCDF(loc, scale)
        super().__init__(Invert(function), Uniform(0.0, 1.0, dtype=dtype), seed, name)
        self._function = function
        self.parameter_names = ()
        self._loc, self._scale = self._own(loc, "loc"), self._own(scale, "scale")
        # `_own` has added names, but calls give none.
        self.parameter_names = ()
        self._broadcast_shape = function.batch_shape

    def _own(self, value: Any, name: str) -> Tensor:
        added = super()._add_parameter(value, name)
        assert added is not None
        return added

    loc = parameter("_loc", "The place.")
    scale = parameter("_scale", "The width.")

    def _check_param_type(self, *args: Any) -> Any:
        return ()

    def get_dist_args(self, *args: Any, **kwargs: Any) -> tuple[Tensor | None, ...]:
        """Place and width."""
        return self.loc, self.scale

    def _wide(self, value: Tensor) -> Tensor:
        return ops.broadcast_to(value, self._function.batch_shape or ())

    def _mean(self) -> Tensor:
        return self.loc + self.scale * np.euler_gamma

    def _mode(self) -> Tensor:
        return self._wide(self.loc)

    def _sd(self) -> Tensor:
        return self._wide(self.scale) * (math.pi / math.sqrt(6.0))

    def _entropy(self) -> Tensor:
        return 1.0 + ops.log(self._wide(self.scale)) + np.euler_gamma

    def _log_prob(self, value: Tensor, *parameters: Tensor) -> Tensor:
        z = (value - self.loc) / self.scale
        return -(z + ops.exp(-z)) - ops.log(self.scale)

    def _cdf(self, value: Tensor, *parameters: Tensor) -> Tensor:
        return self._function.forward(value)

    def _pair(self, dist: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        # `_pair` reads the names; calls otherwise give none.
        self.parameter_names = ("loc", "scale")
        try:
            return (), super()._pair(dist, args, kwargs)[1]
        finally:
            self.parameter_names = ()

    def _divergence(self, own: Any, other: Pair) -> Tensor:
        loc, scale = other
        ratio, apart = self.scale / scale, (loc - self.loc) / scale
        tail = ops.expm1(apart + ops.lgamma(ratio + 1.0))
        return -ops.log(ratio) + np.euler_gamma * (ratio - 1.0) - apart + tail

    def _draw(self, shape: tuple[int, ...], *parameters: Tensor) -> Tensor:
        return self._bijector.forward(self._noise("uniform", shape + (self._function.batch_shape or ())))


class LogNormal(TransformedDistribution):
    """The distribution of ``exp(x)`` where x is normal.

    Args:
        loc, scale: mean and standard deviation of x; None: to be given at every call.
        seed, dtype, name: see `Distribution`.
    """

    def __init__(
        self, loc: Any = None, scale: Any = None, seed: int = 0, dtype: DType = dtypes.float32, name: str = "LogNormal"
    ) -> None:
        super().__init__(Exp(), Normal(loc, scale, dtype=dtype), seed, name)
        self.parameter_names = ()
        self._loc, self._scale = self._add_parameter(loc, "loc"), self._add_parameter(scale, "scale")
        check_positive(self._scale, "Standard deviation")

    loc = parameter("_loc", "Mean of the logarithm.")
    scale = parameter("_scale", "Standard deviation of the logarithm.")

    def _default(self, name: str) -> Tensor | None:
        return Distribution._default(self, name)

    _mean = formula(lambda loc, scale: ops.exp(loc + 0.5 * ops.square(scale)))
    _mode = formula(lambda loc, scale: ops.exp(loc - ops.square(scale)))
    _entropy = formula(lambda loc, scale: loc + 0.5 + ops.log(scale) + 0.5 * math.log(2 * math.pi))

    def _var(self, loc: Tensor, scale: Tensor) -> Tensor:
        var = ops.square(scale)
        return ops.expm1(var) * ops.exp(2.0 * loc + var)

    def _cdf(self, value: Tensor, *parameters: Tensor) -> Tensor:
        # exp(x) is never 0 or less.
        below = super()._cdf(value, *parameters)
        return ops.where(value > 0, below, ops.zeros_like(below))

    def _divergence(self, own: Pair, other: Pair) -> Tensor:
        return self._distribution.kl_loss("Normal", *other, *own)

    def _draw(self, shape: tuple[int, ...], loc: Tensor, scale: Tensor) -> Tensor:
        return ops.exp(self._noise("normal", shape) * scale + loc)


def _transformed_by(self: Distribution, bijector: Bijector) -> TransformedDistribution:
    """The distribution of the function's values."""
    return TransformedDistribution(bijector, self)


Distribution.transformed_by = _transformed_by  # type: ignore[attr-defined]  # built of distributions, so defined after them
