"""Distributions of weights: what is believed before training, and what training adjusts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sporax.base.errors import SporaxTypeError
from sporax.mindspore import ops
from sporax.mindspore.common import dtype as dtypes
from sporax.mindspore.common.dtype import DType
from sporax.mindspore.common.parameter import Parameter
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.nn.probability.distribution import Normal

# Keeps the logarithm of the deviation finite.
_LEAST_DEVIATION = 1e-6


class NormalPrior(Cell):
    """A normal distribution that stays.

    Args:
        dtype: of its parameters.
        mean, std: mean and standard deviation.
    """

    def __init__(self, dtype: DType = dtypes.float32, mean: float = 0, std: float = 0.1) -> None:
        super().__init__()
        self.normal = Normal(mean, std, dtype=dtype)

    def construct(self, *inputs: Any) -> Any:
        """A function of the distribution, by its name."""
        return self.normal(*inputs)


class NormalPosterior(Cell):
    """A normal distribution of every element of a weight, with Parameters.

    Args:
        name: prefix of the Parameters' names.
        shape: of the weight.
        dtype: of the Parameters.
        loc_mean, loc_std: mean and deviation that the first means are drawn with.
        untransformed_scale_mean, untransformed_scale_std: the same of the first deviations, before softplus.

    Raises:
        SporaxTypeError: an argument is of another type, or a deviation is negative.
    """

    def __init__(
        self,
        name: str,
        shape: Sequence[int],
        dtype: DType = dtypes.float32,
        loc_mean: float = 0,
        loc_std: float = 0.1,
        untransformed_scale_mean: float = -5,
        untransformed_scale_std: float = 0.1,
    ) -> None:
        super().__init__()
        if not isinstance(name, str) or not isinstance(shape, tuple | list):
            raise SporaxTypeError(
                f"For 'NormalPosterior', 'name' must be a string and 'shape' a tuple or list, but got "
                f"{type(name).__name__} and {type(shape).__name__}."
            )
        numbers = {"loc_mean": loc_mean, "untransformed_scale_mean": untransformed_scale_mean}
        deviations = {"loc_std": loc_std, "untransformed_scale_std": untransformed_scale_std}
        for what, value in {**numbers, **deviations}.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or (what in deviations and value < 0):
                raise SporaxTypeError(
                    f"For 'NormalPosterior', '{what}' must be a number{', not negative' if what in deviations else ''}, "
                    f"but got {value!r}."
                )
        # By numpy's stream, as in MindSpore.
        means = np.random.normal(loc_mean, loc_std, shape)
        scales = np.random.normal(untransformed_scale_mean, untransformed_scale_std, shape)
        self.mean = Parameter(Tensor(means, dtype=dtype), name=f"{name}_mean")
        self.untransformed_std = Parameter(Tensor(scales, dtype=dtype), name=f"{name}_untransformed_std")
        self.normal = Normal()

    def construct(self, *inputs: Any) -> Any:
        """A function of the distribution, by its name."""
        # Softplus, so that the deviation is positive whatever training does.
        deviation = _LEAST_DEVIATION - ops.logsigmoid(-self.untransformed_std)
        return self.normal(*inputs, mean=self.mean, sd=deviation)


def normal_post_fn(name: str, shape: Sequence[int]) -> NormalPosterior:
    """A `NormalPosterior` as it is by default."""
    return NormalPosterior(name=name, shape=shape)
