"""Normalisation layers."""

from __future__ import annotations

from typing import Any

from sporax import ops
from sporax.common import dtype as dtypes
from sporax.common.dtype import DType
from sporax.common.initializer import initializer
from sporax.common.parameter import Parameter
from sporax.common.tensor import Tensor
from sporax.ir.errors import SporaxTypeError, SporaxValueError
from sporax.nn import _arguments as argument
from sporax.nn.cell import Cell
from sporax.ops.normalization import batch_norm_eval, batch_norm_train


class LayerNorm(Cell):
    """Normalises over the dimensions from `begin_norm_axis` on.

    Args:
        normalized_shape: shape of `gamma` and `beta`, which cover the dimensions from `begin_params_axis` on.
        begin_norm_axis, begin_params_axis: first dimensions.
        gamma_init, beta_init: initializers.
        epsilon: added to the variance.
        dtype: element type of the Parameters.

    Raises:
        SporaxTypeError: `normalized_shape` is not a tuple or list.
    """

    def __init__(
        self,
        normalized_shape: tuple[int, ...] | list[int],
        begin_norm_axis: int = -1,
        begin_params_axis: int = -1,
        gamma_init: Any = "ones",
        beta_init: Any = "zeros",
        epsilon: float = 1e-7,
        dtype: DType = dtypes.float32,
    ) -> None:
        super().__init__()
        if not isinstance(normalized_shape, tuple | list):
            raise SporaxTypeError(
                f"For 'LayerNorm', 'normalized_shape' must be a tuple or list, but got {type(normalized_shape).__name__}."
            )
        if not normalized_shape:
            raise SporaxValueError("For 'LayerNorm', 'normalized_shape' must not be empty.")
        self.normalized_shape = tuple(normalized_shape)
        self.gamma = Parameter(initializer(gamma_init, self.normalized_shape, dtype), name="gamma")
        self.beta = Parameter(initializer(beta_init, self.normalized_shape, dtype), name="beta")
        self.layer_norm = ops.LayerNorm(begin_norm_axis, begin_params_axis, epsilon)

    def construct(self, input_x: Tensor) -> Tensor:
        """`input_x` of any shape that ends with normalized_shape."""
        gamma, beta = argument.cast_like(self, input_x, self.gamma, self.beta)
        return self.layer_norm(input_x, gamma, beta)[0]

    def extend_repr(self) -> str:
        """Shape."""
        return f"normalized_shape={self.normalized_shape}"


class _BatchNorm(Cell):
    """Normalises each channel: by the batch while training, by moving statistics otherwise.

    Args:
        num_features: number of channels.
        eps: added to the variance.
        momentum: share of the old moving statistics that a step keeps.
        affine: scale and shift by `gamma` and `beta`.
        gamma_init, beta_init, moving_mean_init, moving_var_init: initializers.
        use_batch_statistics: True, False, or None to follow ``training``.
        data_format: ``"NCHW"``, or ``"NHWC"`` with channels last.
        dtype: element type of the Parameters.

    Raises:
        SporaxValueError: `num_features` below 1, `momentum` outside [0, 1], input of another rank or channel count.
    """

    ranks: tuple[int, ...] = ()

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.9,
        affine: bool = True,
        gamma_init: Any = "ones",
        beta_init: Any = "zeros",
        moving_mean_init: Any = "zeros",
        moving_var_init: Any = "ones",
        use_batch_statistics: bool | None = None,
        data_format: str = "NCHW",
        dtype: DType = dtypes.float32,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        self.num_features = argument.positive_int(name, "num_features", num_features)
        self.eps = argument.number(name, "eps", eps)
        self.momentum = argument.number(name, "momentum", momentum)
        if not 0 <= self.momentum <= 1:
            raise SporaxValueError(
                f"For '{name}', the 'momentum' must be a number in range [0, 1], but got {momentum}."
            )
        self.use_batch_statistics = use_batch_statistics
        self.channels_last = data_format == "NHWC"

        def statistic(init: Any, attribute: str, trained: bool) -> Parameter:
            return Parameter(initializer(init, (num_features,), dtype), name=attribute, requires_grad=trained)

        self.moving_mean = statistic(moving_mean_init, "mean", False)
        self.moving_variance = statistic(moving_var_init, "variance", False)
        self.gamma = statistic(gamma_init, "gamma", affine)
        self.beta = statistic(beta_init, "beta", affine)
        # MindSpore names them by their attributes once the layer is part of a Cell; so do we, from the start.
        self.moving_mean.name, self.moving_variance.name = "moving_mean", "moving_variance"

    def construct(self, x: Tensor) -> Tensor:
        """`x` with the channels in dim 1 (last for NHWC)."""
        if x.ndim not in self.ranks:
            raise SporaxValueError(
                f"For '{type(self).__name__}', the input must have {' or '.join(map(str, self.ranks))} dimensions, "
                f"but got shape {x.shape}."
            )
        channel = x.ndim - 1 if self.channels_last else 1
        by_batch = self.training if self.use_batch_statistics is None else self.use_batch_statistics
        if not by_batch:
            return batch_norm_eval(x, self.moving_mean, self.moving_variance, self.gamma, self.beta, channel, self.eps)
        result, mean, variance = batch_norm_train(x, self.gamma, self.beta, channel, self.eps)
        kept = self.momentum
        for moving, now in ((self.moving_mean, mean), (self.moving_variance, variance)):
            ops.assign(moving, ops.stop_gradient(kept * moving + (1 - kept) * now.astype(moving.dtype)))
        return result

    def extend_repr(self) -> str:
        """Settings."""
        return f"num_features={self.num_features}, eps={self.eps}, momentum={self.momentum}"


class BatchNorm1d(_BatchNorm):
    """Batch normalisation of (N, C) or (N, C, L)."""

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalisation of (N, C, H, W)."""

    ranks = (4,)
