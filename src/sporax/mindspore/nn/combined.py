"""Layers of layers: convolution or Dense with normalisation and activation, and a layer at every time step."""

from __future__ import annotations

from typing import Any

from sporax.base.errors import For, SporaxTypeError
from sporax.mindspore import ops
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.activation import LeakyReLU, get_activation
from sporax.mindspore.nn.basic import Dense
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.nn.convolution import Conv2d
from sporax.mindspore.nn.normalization import BatchNorm1d, BatchNorm2d
from sporax.mindspore.ops._core import Primitive, taking


class _Followed(Cell):
    """A layer that is followed by normalisation over the batch and an activation, where settings set them."""

    def _follow(
        self, norm: type[BatchNorm1d | BatchNorm2d], channels: int, has_bn: bool, numbers: tuple[float, float],
        activation: tuple[Any, float], after_fake: bool,
    ) -> None:  # fmt: skip
        """Make both: the norm with its epsilon and momentum, the activation with its slope."""
        name = type(self).__name__
        self.has_bn = argument.boolean(name, "has_bn", has_bn)
        argument.boolean(name, "after_fake", after_fake)
        if has_bn:
            self.batchnorm = norm(channels, *numbers)
        self.activation = _activation(name, *activation)

    def _followed(self, x: Tensor) -> Tensor:
        x = self.batchnorm(x) if self.has_bn else x
        return x if self.activation is None else self.activation(x)


def _activation(layer: str, activation: Any, alpha: float) -> Any:
    """The activation a layer ends with, or None; `alpha` is the slope of ``"leakyrelu"``."""
    # The slope is an argument of its own, which `get_activation` does not take.
    if activation == "leakyrelu":
        return LeakyReLU(alpha)
    cell = get_activation(activation) if isinstance(activation, str) else activation
    if cell is not None and not isinstance(cell, Cell | Primitive):
        raise SporaxTypeError(
            f"For '{layer}', the 'activation' must be a string, a Cell or a Primitive, but got {type(activation).__name__}."
        )
    return cell


class Conv2dBnAct(_Followed):
    """Convolution, then (with `has_bn`) normalisation over the batch, then an activation.

    Args:
        in_channels, out_channels, kernel_size, stride, pad_mode, padding, dilation, group, has_bias, weight_init, bias_init:
            as for `Conv2d`.
        has_bn: normalise.
        momentum, eps: of `BatchNorm2d`.
        activation: name, Cell or Primitive; None for none.
        alpha: slope of the activation ``"leakyrelu"``.
        after_fake: belongs to quantised training, which is not offered; without meaning here, as in MindSpore 2.
    """

    @taking(Conv2d.__init__, "data_format dtype", weight_init="normal", bias_init="zeros")
    def __init__(
        self,
        *,
        has_bn: bool = False,
        momentum: float = 0.997,
        eps: float = 1e-5,
        activation: Any = None,
        alpha: float = 0.2,
        after_fake: bool = True,
        **settings: Any,
    ) -> None:
        super().__init__()
        self.conv = Conv2d(**settings)
        self._follow(BatchNorm2d, settings["out_channels"], has_bn, (eps, momentum), (activation, alpha), after_fake)

    def construct(self, x: Tensor) -> Tensor:
        """`x`: (N, C, H, W)."""
        return self._followed(self.conv(x))


class DenseBnAct(_Followed):
    """`Dense`, then (with `has_bn`) normalisation over the batch, then an activation.

    Args:
        in_channels, out_channels, weight_init, bias_init, has_bias: as for `Dense`.
        has_bn: normalise.
        momentum, eps: of `BatchNorm1d`.
        activation, alpha, after_fake: as for `Conv2dBnAct`.
    """

    @taking(Dense.__init__, "activation dtype", weight_init="normal", bias_init="zeros")
    def __init__(
        self,
        *,
        has_bn: bool = False,
        momentum: float = 0.9,
        eps: float = 1e-5,
        activation: Any = None,
        alpha: float = 0.2,
        after_fake: bool = True,
        **settings: Any,
    ) -> None:
        super().__init__()
        self.dense = Dense(**settings)
        self._follow(BatchNorm1d, settings["out_channels"], has_bn, (eps, momentum), (activation, alpha), after_fake)

    def construct(self, x: Tensor) -> Tensor:
        """`x`: (N, in_channels)."""
        return self._followed(self.dense(x))


class TimeDistributed(Cell):
    """A layer applied to every time step of a sequence.

    Args:
        layer: Cell or Primitive.
        time_axis: dimension of the time steps.
        reshape_with_axis: dimension the time steps are merged with, so that the layer runs once; None: it runs once a step,
            on inputs without the dimension (which batch normalisation needs).

    Raises:
        SporaxTypeError: `layer` is something else, or an axis is not an int.
    """

    def __init__(self, layer: Any, time_axis: int, reshape_with_axis: int | None = None) -> None:
        super().__init__()
        For("TimeDistributed").typed("the 'layer'", layer, "a Cell or a Primitive", Cell | Primitive)
        for name, value in (("time_axis", time_axis), ("reshape_with_axis", reshape_with_axis)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise SporaxTypeError(f"For 'TimeDistributed', '{name}' must be an int, but got {value!r}.")
        self.layer = layer
        self.time_axis = time_axis
        self.reshape_with_axis = reshape_with_axis

    def construct(self, inputs: Tensor) -> Tensor:
        """`inputs` of at least three dimensions; the result has the time steps in the same place."""
        For("TimeDistributed").refuse(
            inputs.ndim < 3, "the input must have at least 3 dimensions", f"shape {inputs.shape}"
        )
        time = self.time_axis % inputs.ndim
        # Step by step, for layers that look at the whole batch.
        if self.reshape_with_axis is None:
            return ops.stack([self.layer(part) for part in ops.unbind(inputs, time)], time)
        other = self.reshape_with_axis % inputs.ndim
        # The place of the other dimension after the time steps were taken out.
        merged = other - (time < other)
        # The time steps next to the other dimension, so that both can be merged.
        adjacent = ops.movedim(inputs, time, merged + 1)
        steps = adjacent.shape[merged : merged + 2]
        result = self.layer(adjacent.reshape((*adjacent.shape[:merged], -1, *adjacent.shape[merged + 2 :])))
        apart = result.reshape((*result.shape[:merged], *steps, *result.shape[merged + 1 :]))
        return ops.movedim(apart, merged + 1, time)
