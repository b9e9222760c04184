"""Normalisation layers."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from sporax.base.errors import For, SporaxTypeError
from sporax.mindspore import ops
from sporax.mindspore._declared import setting
from sporax.mindspore.common import DType, Parameter, Tensor, dtypes, wrap
from sporax.mindspore.common.initializer import initializer
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn._arguments import ImageFormat
from sporax.mindspore.nn.cell import Cell, Layer
from sporax.mindspore.ops._core import Array, check, operator, taking
from sporax.mindspore.ops.nn.normalization import (
    batch_moments,
    batch_norm_eval,
    batch_norm_shared,
    batch_norm_train,
    standardized,
)
from sporax.runtime.ranks import Group, collectives, groups

_FORMATS = ("NCHW", "NHWC")


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

    _in_repr = "normalized_shape"

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
        For("LayerNorm").typed("normalized_shape", normalized_shape, "a tuple or list", tuple | list)
        For("LayerNorm").refuse(not normalized_shape, "'normalized_shape' must not be empty")
        self.normalized_shape = tuple(normalized_shape)
        self.gamma = Parameter(initializer(gamma_init, self.normalized_shape, dtype), name="gamma")
        self.beta = Parameter(initializer(beta_init, self.normalized_shape, dtype), name="beta")
        # The primitive can have a strategy.
        self.layer_norm = ops.LayerNorm(begin_norm_axis, begin_params_axis, epsilon)

    def construct(self, input_x: Tensor) -> Tensor:
        """`input_x` of any shape that ends with normalized_shape."""
        gamma, beta = argument.cast_like(self, input_x, self.gamma, self.beta)
        return self.layer_norm(input_x, gamma, beta)[0]


class RMSNorm(Cell):
    """Divides by the root mean square over the last dimensions (Zhang & Sennrich 2019); not among MindSpore 2.10's layers.

    Args:
        normalized_shape: shape of `gamma`: the last dimensions; an int for one.
        gamma_init: initializer.
        epsilon: added to the mean square.
        dtype: element type of the Parameter.
    """

    _in_repr = "normalized_shape"

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...] | list[int],
        gamma_init: Any = "ones",
        epsilon: float = 1e-6,
        dtype: DType = dtypes.float32,
    ) -> None:
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
        For("RMSNorm").typed("normalized_shape", shape, "an int, tuple or list", tuple | list)
        self.normalized_shape = tuple(argument.positive_int("RMSNorm", "normalized_shape", size) for size in shape)
        self.epsilon = argument.number("RMSNorm", "epsilon", epsilon)
        self.gamma = Parameter(initializer(gamma_init, self.normalized_shape, dtype), name="gamma")

    def construct(self, x: Tensor) -> Tensor:
        """`x` of any shape that ends with normalized_shape."""
        if x.shape[x.ndim - len(self.normalized_shape) :] != self.normalized_shape:
            raise For("RMSNorm").error(f"the input must end with {self.normalized_shape}, but its shape is {x.shape}")
        (gamma,) = argument.cast_like(self, x, self.gamma)
        return ops.rms_norm(x, gamma, self.epsilon)[0]


class GroupNorm(Layer):
    """Normalises each group of channels of each sample over channels and space (Wu & He 2018).

    Args:
        gamma_init, beta_init: initializers.

    Raises:
        SporaxValueError: the groups do not divide the channels, or the input has other channels.
    """

    num_groups: int = setting(argument.positive_int, "number of groups.")
    num_channels: int = setting(argument.positive_int, "number of channels, a multiple of it.")
    eps: float = setting(argument.number, "added to the variance.", default=1e-5)
    affine: bool = setting(argument.boolean, "whether `gamma` and `beta` are trained.", default=True)
    gamma_init: Any = setting(default="ones", attribute=False)
    beta_init: Any = setting(default="zeros", attribute=False)
    dtype: DType = setting(None, "element type of the Parameters.", default=dtypes.float32, attribute=False)

    _in_repr = "num_groups num_channels"

    def _prepare(self, gamma_init: Any, beta_init: Any, dtype: DType) -> None:
        if self.num_channels % self.num_groups:
            raise For("GroupNorm").error(
                f"'num_channels' must be a multiple of 'num_groups', but got {self.num_channels} and {self.num_groups}"
            )
        # Parameters in any case: MindSpore's checkpoints have them also without `affine`.
        self.gamma = Parameter(
            initializer(gamma_init, (self.num_channels,), dtype), name="gamma", requires_grad=self.affine
        )
        self.beta = Parameter(
            initializer(beta_init, (self.num_channels,), dtype), name="beta", requires_grad=self.affine
        )

    def construct(self, x: Tensor) -> Tensor:
        """`x`: (N, num_channels, …)."""
        return normalize_groups(x, self.gamma, self.beta, self.num_groups, self.eps, "GroupNorm")[0]


@operator(function="")
def normalize_groups(
    x: Array, gamma: Array, beta: Array, groups: int, epsilon: float, layer: str
) -> tuple[Array, Array, Array]:
    """`x` (N, C, …) normalised over each of `groups` groups of channels of each sample.

    Also gives mean and unbiased variance of each group, averaged over the samples.
    """
    check.floating(layer, x=x)
    if x.ndim < 2 or x.shape[1] != gamma.shape[0]:
        raise For(layer).error(f"the input must have {gamma.shape[0]} channels, but its shape is {x.shape}")
    # In float32 at least: the variance of float16 numbers loses too much.
    values = x.astype(jnp.promote_types(x.dtype, jnp.float32)).reshape(x.shape[0], groups, -1)
    normed, mean, variance = standardized(values, (-1,), epsilon)
    normed = normed.reshape(x.shape)
    spread = (-1,) + (1,) * (x.ndim - 2)
    scaled = normed * gamma.reshape(spread) + beta.reshape(spread)
    count = values.shape[-1]
    # Unbiased (count - 1), as MindSpore's moving statistics are.
    return scaled.astype(x.dtype), jnp.mean(mean, (0, 2)), jnp.mean(variance, (0, 2)) * (count / max(count - 1, 1))


def check_rank(layer: str, x: Tensor, ranks: tuple[int, ...]) -> None:
    """Raise SporaxValueError unless `x` has one of these numbers of dimensions."""
    For(layer).refuse(
        x.ndim not in ranks, f"the input must have {' or '.join(map(str, ranks))} dimensions, but got shape {x.shape}"
    )


def normalized_by_batch(
    x: Tensor, scale: Tensor, shift: Tensor, channel: int, epsilon: float, group: Group | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The batch normalised by its own statistics, or those of all ranks of a group; and mean and unbiased variance.

    Args:
        x: the batch.
        scale, shift: one number for each channel.
        channel: the dimension of channels.
        epsilon: added to the variance.
        group: the ranks whose batches count as one.
    """
    # Alone the rank has all that there is.
    if group is None or group.size == 1:
        return batch_norm_train(x, scale, shift, channel, epsilon)
    moments = wrap(collectives.run(collectives.AllGather(group), batch_moments(x, channel).array))
    return batch_norm_shared(x, moments, scale, shift, channel, epsilon)


def _momentum(name: str, what: str, value: object) -> float:
    momentum = argument.number(name, what, value)
    For(name).refuse(not 0 <= momentum <= 1, "the 'momentum' must be a number in range [0, 1]", value)
    return momentum


class _BatchNorm(Layer):
    """Normalises each channel: by the batch while training, by moving statistics otherwise.

    Args:
        gamma_init, beta_init, moving_mean_init, moving_var_init: initializers.

    Attributes:
        momentum: share of the new statistics, as MindSpore's attribute; `bn_train` and `bn_infer` have it.
        bn_train, bn_infer: primitives that can have a strategy, used while training and otherwise.

    Raises:
        SporaxValueError: `num_features` below 1, `momentum` outside [0, 1], input of another rank or channel count.
    """

    num_features: int = setting(argument.positive_int, "number of channels.")
    eps: float = setting(argument.number, "added to the variance.", default=1e-5)
    momentum: float = setting(_momentum, "share of the old moving statistics that a step keeps.", default=0.9)
    affine: bool = setting(None, "scale and shift by `gamma` and `beta`.", default=True, attribute=False)
    gamma_init: Any = setting(default="ones", attribute=False)
    beta_init: Any = setting(default="zeros", attribute=False)
    moving_mean_init: Any = setting(default="zeros", attribute=False)
    moving_var_init: Any = setting(default="ones", attribute=False)
    use_batch_statistics: bool | None = setting(
        argument.one_of, "True, False, or None to follow ``training``.", default=None, allowed=(True, False, None)
    )
    data_format: ImageFormat = setting(
        argument.one_of,
        '``"NCHW"``, or ``"NHWC"`` with channels last.',
        default="NCHW",
        attribute=False,
        allowed=_FORMATS,
    )
    dtype: DType = setting(None, "element type of the Parameters.", default=dtypes.float32, attribute=False)

    _in_repr = "num_features eps momentum=_share"
    ranks: tuple[int, ...] = ()

    def _prepare(self, affine: bool, data_format: ImageFormat, dtype: DType, **first: object) -> None:
        # MindSpore's operators take both now; scripts that assign other numbers later change nothing.
        self._eps, self._share = self.eps, self.momentum
        self.momentum = 1.0 - self._share
        self.format = data_format

        def statistic(init: Any, attribute: str, trained: bool) -> Parameter:
            return Parameter(initializer(init, (self.num_features,), dtype), name=attribute, requires_grad=trained)

        # "mean" and "variance" get the layer's path in front.
        self.moving_mean = statistic(first["moving_mean_init"], "mean", False)
        self.moving_variance = statistic(first["moving_var_init"], "variance", False)
        self.gamma = statistic(first["gamma_init"], "gamma", affine)
        self.beta = statistic(first["beta_init"], "beta", affine)
        self.bn_train = ops.BatchNorm(True, self.eps, self.momentum, data_format)
        self.bn_infer = ops.BatchNorm(False, self.eps, self.momentum, data_format)

    def construct(self, x: Tensor) -> Tensor:
        """`x` with the channels in dim 1 (last for NHWC)."""
        check_rank(type(self).__name__, x, self.ranks)
        channel = x.ndim - 1 if self.format == "NHWC" else 1
        by_batch = self.training if self.use_batch_statistics is None else self.use_batch_statistics
        # A strategy belongs to one of both primitives.
        primitive = self.bn_train if by_batch else self.bn_infer
        if argument.configured(primitive):
            return primitive(x, self.gamma, self.beta, self.moving_mean, self.moving_variance)[0]
        if not by_batch:
            return batch_norm_eval(x, self.moving_mean, self.moving_variance, self.gamma, self.beta, channel, self._eps)
        result, mean, variance = self._by_batch(x, channel)
        for moving, now in ((self.moving_mean, mean), (self.moving_variance, variance)):
            # Statistics are no part of the loss.
            following = self._share * moving + (1 - self._share) * now.astype(moving.dtype)
            ops.assign(moving, ops.stop_gradient(following))
        return result

    def _by_batch(self, x: Tensor, channel: int) -> tuple[Tensor, Tensor, Tensor]:
        """The batch normalised by its own statistics, and these: mean and unbiased variance of each channel."""
        return normalized_by_batch(x, self.gamma, self.beta, channel, self._eps)


class BatchNorm1d(_BatchNorm):
    """Batch normalisation of (N, C) or (N, C, L)."""

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalisation of (N, C, H, W)."""

    ranks = (4,)


class BatchNorm3d(Cell):
    """Batch normalisation of (N, C, D, H, W), by a `BatchNorm2d` that sees depth and height as one.

    Args: as `BatchNorm2d`, without `data_format`.

    Attributes:
        bn2d: the `BatchNorm2d`, which holds the Parameters, so that checkpoints have MindSpore's names.
    """

    @taking(_BatchNorm.__init__, "data_format")
    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.bn2d = BatchNorm2d(**settings)

    def construct(self, x: Tensor) -> Tensor:
        """`x`: (N, C, D, H, W)."""
        check_rank("BatchNorm3d", x, (5,))
        # Depth and height together: the statistics are the same.
        n, c, depth, height, width = x.shape
        flat: Tensor = self.bn2d(x.reshape((n, c, depth * height, width)))
        return flat.reshape(x.shape)


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation of (N, C) or (N, C, H, W) with the statistics of all ranks' batches together.

    While training, every rank of a group must call it; their batches may differ in size.

    Args:
        num_features, eps, momentum, affine, use_batch_statistics, dtype: as in `BatchNorm2d`.
        gamma_init, beta_init, moving_mean_init, moving_var_init: initializers.
        process_groups: lists of ranks that share statistics; None for all. A rank in none of them uses its own.

    Raises:
        SporaxTypeError: `process_groups` is not a list of lists of ints.
        SporaxValueError: it names a rank twice.
    """

    ranks = (2, 4)

    @taking(_BatchNorm.__init__, "data_format", before="dtype")
    def __init__(self, *, process_groups: list[list[int]] | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self.process_groups = _checked_groups(process_groups)

    def _by_batch(self, x: Tensor, channel: int) -> tuple[Tensor, Tensor, Tensor]:
        return normalized_by_batch(x, self.gamma, self.beta, channel, self._eps, self._group())

    def _group(self) -> Group:
        """The ranks this one shares statistics with."""
        if self.process_groups is None:
            return groups.find(None)
        rank = groups.this_rank()
        return Group("SyncBatchNorm", next((ranks for ranks in self.process_groups if rank in ranks), (rank,)))


def _checked_groups(process_groups: object) -> tuple[tuple[int, ...], ...] | None:
    """`process_groups` of `SyncBatchNorm` as tuples."""
    if process_groups is None:
        return None
    lists: list[Any] = process_groups if isinstance(process_groups, list) else [None]
    if any(not isinstance(ranks, list) or any(type(rank) is not int for rank in ranks) for ranks in lists):
        raise SporaxTypeError(
            f"For 'SyncBatchNorm', 'process_groups' must be a list of lists of ints, but got {process_groups!r}."
        )
    every = [rank for ranks in lists for rank in ranks]
    # A rank in two groups would wait in both.
    if len(set(every)) < len(every):
        raise For("SyncBatchNorm").error("'process_groups' must name each rank at most once", process_groups)
    return tuple(map(tuple, lists))


class _InstanceNorm(Layer):
    """Normalises each channel of each sample over space (Ulyanov et al. 2016).

    The moving statistics are kept for checkpoints, as MindSpore does; the result never depends on them. They move while
    training.

    Args:
        gamma_init, beta_init: initializers.

    Raises:
        SporaxValueError: `num_features` below 1, `momentum` outside [0, 1], input of another rank or channel count.
    """

    num_features: int = setting(argument.positive_int, "number of channels.")
    eps: float = setting(argument.number, "added to the variance.", default=1e-5)
    momentum: float = setting(
        argument.within, "share of the new statistics in the moving ones.", default=0.1, low=0.0, high=1.0
    )
    affine: bool = setting(argument.boolean, "whether `gamma` and `beta` are trained.", default=True, attribute=False)
    gamma_init: Any = setting(default="ones", attribute=False)
    beta_init: Any = setting(default="zeros", attribute=False)
    dtype: DType = setting(None, "element type of the Parameters.", default=dtypes.float32, attribute=False)

    _in_repr = "num_features eps momentum"
    rank = 0

    def _prepare(self, affine: bool, gamma_init: Any, beta_init: Any, dtype: DType) -> None:
        shape = (self.num_features,)
        self.moving_mean = Parameter(initializer("zeros", shape, dtype), name="mean", requires_grad=False)
        self.moving_variance = Parameter(initializer("ones", shape, dtype), name="variance", requires_grad=False)
        self.gamma = Parameter(initializer(gamma_init, shape, dtype), name="gamma", requires_grad=affine)
        self.beta = Parameter(initializer(beta_init, shape, dtype), name="beta", requires_grad=affine)

    def construct(self, x: Tensor) -> Tensor:
        """`x`: (N, num_features, spatial…)."""
        name = type(self).__name__
        check_rank(name, x, (self.rank,))
        result, mean, variance = normalize_groups(x, self.gamma, self.beta, self.num_features, self.eps, name)
        if self.training:
            for moving, now in ((self.moving_mean, mean), (self.moving_variance, variance)):
                following = (1 - self.momentum) * moving + self.momentum * now.astype(moving.dtype)
                ops.assign(moving, ops.stop_gradient(following))
        return result


class InstanceNorm1d(_InstanceNorm):
    """Instance normalisation of (N, C, L)."""

    rank = 3


class InstanceNorm2d(_InstanceNorm):
    """Instance normalisation of (N, C, H, W)."""

    rank = 4


class InstanceNorm3d(_InstanceNorm):
    """Instance normalisation of (N, C, D, H, W)."""

    rank = 5
