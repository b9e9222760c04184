"""Transposed convolutions: the gradients of convolutions with respect to their inputs, as layers."""

from __future__ import annotations

from typing import Any

from sporax.base.errors import SporaxValueError
from sporax.mindspore import ops
from sporax.mindspore.common import dtype as dtypes
from sporax.mindspore.common.dtype import DType
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn._arguments import PadMode
from sporax.mindspore.nn.convolution import _Convolution


class _Transposed(_Convolution):
    transposed = True

    def _output_size(self, x: Tensor) -> tuple[int, ...]:
        """Spatial shape of the result: what the convolution with these settings maps to the shape of `x`."""
        self._check_rank(x)
        sizes = []
        for size, kernel, step, spread, (before, after) in zip(
            x.shape[2:], self.kernel_size, self.stride, self.dilation, self._sides, strict=True
        ):
            extent = spread * (kernel - 1) + 1
            # "same" makes the output a multiple of the input.
            if self.pad_mode == "same":
                sizes.append(size * step)
            elif self.pad_mode == "valid":
                sizes.append(size * step + max(extent - step, 0))
            else:
                sizes.append((size - 1) * step + extent - before - after)
        return tuple(sizes)

    def _check_output_padding(self, value: Any) -> tuple[int, ...]:
        name = type(self).__name__
        extra = argument.ints(name, "output_padding", value, self.spatial, 0)
        for more, step, spread in zip(extra, self.stride, self.dilation, strict=True):
            # More would be a whole further step, which an input of the next size gives.
            if more >= max(step, spread):
                raise SporaxValueError(
                    f"For '{name}', 'output_padding' must be below 'stride' or 'dilation' ({step}, {spread}), but got {value}."
                )
        if any(extra) and self.pad_mode != "pad":
            raise SporaxValueError(
                f"For '{name}', 'output_padding' needs the pad_mode 'pad', but that is '{self.pad_mode}'."
            )
        return extra

    def _make_operator(self) -> None:
        """The primitive; a signal is an image of height 1, and `out_channel` is that of the convolution forwards."""
        height: tuple[int, ...] = (1,) * (2 - self.spatial)
        sides = tuple(side for pair in ((0, 0),) * len(height) + self._sides for side in pair)
        self.conv2d_transpose = ops.Conv2DTranspose(
            # The primitive is the gradient of a convolution, whose outputs are this layer's inputs.
            out_channel=self.in_channels,
            kernel_size=height + self.kernel_size,
            pad_mode=self.pad_mode,
            pad=sides if self.pad_mode == "pad" else 0,
            stride=height + self.stride,
            dilation=height + self.dilation,
            group=self.group,
        )


class Conv1dTranspose(_Transposed):
    """Transpose of `Conv1d`, which enlarges signals (N, C, L).

    Args:
        in_channels, out_channels: channels of the input and of the output.
        kernel_size, stride, dilation: of the convolution this is the transpose of.
        pad_mode: ``"same"``: the output is `stride` times as long; ``"valid"``; or ``"pad"``: `padding` cells less on both sides.
        padding: see above.
        group: number of independent groups of channels.
        has_bias: add one bias per output channel.
        weight_init: initializer of `weight`, (in_channels, out_channels / group, 1, kernel_size), or a Tensor without the 1.
        bias_init: initializer of `bias`, (out_channels,).
        dtype: element type of the Parameters.

    Raises:
        SporaxTypeError, SporaxValueError: sizes that do not fit together.
    """

    spatial = 1

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        pad_mode: PadMode = "same",
        padding: int = 0,
        dilation: int = 1,
        group: int = 1,
        has_bias: bool = False,
        weight_init: Any = None,
        bias_init: Any = None,
        dtype: DType = dtypes.float32,
    ) -> None:
        super().__init__()
        self._take_settings(
            in_channels, out_channels, kernel_size, stride, pad_mode, padding, dilation, group, has_bias
        )
        self._make_parameters(weight_init, bias_init, dtype, extra=(1,))
        self._make_operator()

    def construct(self, x: Tensor) -> Tensor:
        """`x`: (N, in_channels, L)."""
        # The size is given, since several sizes have the same input.
        size = (x.shape[0], self.out_channels, 1, *self._output_size(x))
        weight, bias = argument.cast_like(self, x, self.weight, self.bias)
        return self._biased(ops.squeeze(self.conv2d_transpose(ops.expand_dims(x, 2), weight, size), 2), bias)


class Conv2dTranspose(_Transposed):
    """Transpose of `Conv2d`, which enlarges images (N, C, H, W); arguments as `Conv1dTranspose`.

    Args:
        padding: cells on all sides, or (top, bottom, left, right); only with the pad_mode ``"pad"``.
        output_padding: rows and columns of zeros added at the bottom and at the right.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        pad_mode: PadMode = "same",
        padding: int | tuple[int, ...] = 0,
        output_padding: int | tuple[int, int] = 0,
        dilation: int | tuple[int, int] = 1,
        group: int = 1,
        has_bias: bool = False,
        weight_init: Any = None,
        bias_init: Any = None,
        dtype: DType = dtypes.float32,
    ) -> None:
        super().__init__()
        self._take_settings(
            in_channels, out_channels, kernel_size, stride, pad_mode, padding, dilation, group, has_bias
        )
        self.output_padding = self._check_output_padding(output_padding)
        self._make_parameters(weight_init, bias_init, dtype)
        self._make_operator()

    def construct(self, x: Tensor) -> Tensor:
        """`x`: (N, in_channels, H, W)."""
        size = (x.shape[0], self.out_channels, *self._output_size(x))
        weight, bias = argument.cast_like(self, x, self.weight, self.bias)
        result = self._biased(self.conv2d_transpose(x, weight, size), bias)
        down, right = self.output_padding
        return ops.pad(result, (0, right, 0, down)) if down or right else result


class Conv3dTranspose(_Transposed):
    """Transpose of `Conv3d`, which enlarges volumes (N, C, D, H, W); arguments as `Conv1dTranspose`.

    Args:
        padding: cells on all sides, or (head, tail, top, bottom, left, right); only with the pad_mode ``"pad"``.
        output_padding: how much larger the output is than the smallest one that fits.
        data_format: ``"NCDHW"``; there is no other.
    """

    spatial = 3

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int, int],
        stride: int | tuple[int, int, int] = 1,
        pad_mode: PadMode = "same",
        padding: int | tuple[int, ...] = 0,
        dilation: int | tuple[int, int, int] = 1,
        group: int = 1,
        output_padding: int | tuple[int, int, int] = 0,
        has_bias: bool = False,
        weight_init: Any = None,
        bias_init: Any = None,
        data_format: str = "NCDHW",
        dtype: DType = dtypes.float32,
    ) -> None:
        super().__init__()
        argument.one_of("Conv3dTranspose", "data_format", data_format, ("NCDHW",))
        self._take_settings(
            in_channels, out_channels, kernel_size, stride, pad_mode, padding, dilation, group, has_bias
        )
        self.output_padding = self._check_output_padding(output_padding)
        self._make_parameters(weight_init, bias_init, dtype)
        self.conv3d_transpose = ops.Conv3DTranspose(
            in_channel=in_channels,
            out_channel=out_channels,
            kernel_size=self.kernel_size,
            pad_mode=pad_mode,
            pad=padding,
            stride=self.stride,
            dilation=self.dilation,
            group=group,
            output_padding=self.output_padding,
        )

    def construct(self, x: Tensor) -> Tensor:
        """`x`: (N, in_channels, D, H, W)."""
        self._check_rank(x)
        weight, bias = argument.cast_like(self, x, self.weight, self.bias)
        return self._biased(self.conv3d_transpose(x, weight), bias)
