"""Convolution and pooling layers over images in NCHW order."""

from __future__ import annotations

import math
from typing import Any

from sporax import ops
from sporax.common import dtype as dtypes
from sporax.common.dtype import DType
from sporax.common.initializer import HeUniform, Uniform, initializer
from sporax.common.parameter import Parameter
from sporax.common.tensor import Tensor
from sporax.ir.errors import SporaxTypeError, SporaxValueError
from sporax.nn import _arguments as argument
from sporax.nn.cell import Cell
from sporax.ops.convolution import pair


class Conv2d(Cell):
    """Two-dimensional convolution (cross-correlation) with learned kernels.

    Args:
        in_channels: channels of the input.
        out_channels: number of kernels.
        kernel_size: height and width.
        stride: step of the kernel.
        pad_mode: ``"same"``, ``"valid"`` or ``"pad"``.
        padding: cells on all sides, or (top, bottom, left, right); only with ``"pad"``.
        dilation: distance between the cells the kernel looks at.
        group: number of independent groups of channels.
        has_bias: add one bias per kernel.
        weight_init: initializer of `weight`, (out_channels, in_channels / group, h, w); None: He uniform, slope √5.
        bias_init: initializer of `bias`, (out_channels,); None: uniform on ±1/√fan_in.
        data_format: ``"NCHW"`` or ``"NHWC"``.
        dtype: element type of the Parameters.

    Raises:
        SporaxTypeError, SporaxValueError: sizes that do not fit together; the message names both.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, ...] = 1,
        pad_mode: str = "same",
        padding: int | tuple[int, ...] = 0,
        dilation: int | tuple[int, ...] = 1,
        group: int = 1,
        has_bias: bool = False,
        weight_init: Any = None,
        bias_init: Any = None,
        data_format: str = "NCHW",
        dtype: DType = dtypes.float32,
    ) -> None:
        super().__init__()
        self.in_channels = argument.positive_int("Conv2d", "in_channels", in_channels)
        self.out_channels = argument.positive_int("Conv2d", "out_channels", out_channels)
        self.kernel_size = _kernel("Conv2d", kernel_size)
        self.stride = pair("Conv2d", stride, "stride")
        self.dilation = pair("Conv2d", dilation, "dilation")
        self.group = argument.positive_int("Conv2d", "group", group)
        self.has_bias = argument.boolean("Conv2d", "has_bias", has_bias)
        self.pad_mode, self.padding = _checked_padding("Conv2d", pad_mode, padding)
        if data_format not in ("NCHW", "NHWC"):
            raise SporaxValueError(f"For 'Conv2d', 'data_format' must be 'NCHW' or 'NHWC', but got '{data_format}'.")
        self.data_format = data_format
        if in_channels % group or out_channels % group:
            raise SporaxValueError(
                f"For 'Conv2d', 'group' {group} must divide 'in_channels' {in_channels} and 'out_channels' {out_channels}."
            )
        per_group = in_channels // group
        shape = (out_channels, per_group, *self.kernel_size)
        fan_in = per_group * math.prod(self.kernel_size)
        if data_format == "NHWC":
            shape = (out_channels, *self.kernel_size, per_group)
        weight_init = HeUniform(math.sqrt(5)) if weight_init is None else weight_init
        self.weight = Parameter(initializer(weight_init, shape, dtype), name="weight")
        self.bias = None
        if has_bias:
            bias_init = Uniform(1 / math.sqrt(fan_in)) if bias_init is None else bias_init
            self.bias = Parameter(initializer(bias_init, (out_channels,), dtype), name="bias")
        self.conv2d = ops.Conv2D(
            out_channel=out_channels,
            kernel_size=self.kernel_size,
            pad_mode=pad_mode,
            pad=padding,
            stride=self.stride,
            dilation=self.dilation,
            group=group,
            data_format=data_format,
        )

    def construct(self, x: Tensor) -> Tensor:
        """`x`: (N, in_channels, H, W)."""
        weight, bias = argument.cast_like(self, x, self.weight, self.bias)
        result = self.conv2d(x, weight)
        return result if bias is None else ops.bias_add(result, bias, self.data_format)

    def extend_repr(self) -> str:
        """Settings."""
        return (
            f"input_channels={self.in_channels}, output_channels={self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}, pad_mode={self.pad_mode}, padding={self.padding}, dilation={self.dilation}, "
            f"group={self.group}, has_bias={self.has_bias}"
        )


def _kernel(layer: str, value: Any) -> tuple[int, int]:
    if isinstance(value, tuple) and len(value) != 2:
        raise SporaxTypeError(f"For '{layer}', 'kernel_size' must be an int or a tuple of two ints, but got {value}.")
    return pair(layer, value, "kernel_size")


def _checked_padding(layer: str, pad_mode: str, padding: Any) -> tuple[str, Any]:
    if pad_mode not in ("same", "valid", "pad"):
        raise SporaxValueError(
            f"For '{layer}', 'pad_mode' must be one of 'same', 'valid', 'pad', but got '{pad_mode}'."
        )
    sides = (padding,) if isinstance(padding, int) else padding
    if not isinstance(sides, tuple) or any(not isinstance(side, int) for side in sides):
        raise SporaxTypeError(f"For '{layer}', 'padding' must be an int or a tuple of ints, but got {padding!r}.")
    if min(sides) < 0 or len(sides) not in (1, 4):
        raise SporaxValueError(f"For '{layer}', 'padding' must be one or four ints >= 0, but got {padding}.")
    if pad_mode != "pad" and any(sides):
        raise SporaxValueError(
            f"For '{layer}', 'padding' must be 0 when 'pad_mode' is '{pad_mode}', but got {padding}."
        )
    return pad_mode, padding


class _Pool(Cell):
    """Window, stride and padding of a pooling layer; (C, H, W) images are taken as a batch of one."""

    def __init__(
        self,
        kernel_size: int | tuple[int, int] = 1,
        stride: int | tuple[int, int] = 1,
        pad_mode: str = "valid",
        data_format: str = "NCHW",
    ) -> None:
        super().__init__()
        name = type(self).__name__
        self.kernel_size = pair(name, kernel_size, "kernel_size")
        self.stride = pair(name, stride, "stride")
        if pad_mode.lower() not in ("same", "valid"):
            raise SporaxValueError(f"For '{name}', 'pad_mode' must be 'same' or 'valid', but got '{pad_mode}'.")
        self.pad_mode = pad_mode
        self.data_format = data_format

    def _pooled(self, pool: Any, x: Tensor) -> Tensor:
        return ops.squeeze(pool(ops.expand_dims(x, 0)), 0) if x.ndim == 3 else pool(x)

    def extend_repr(self) -> str:
        """Settings."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, pad_mode={self.pad_mode}"


class MaxPool2d(_Pool):
    """Largest value in each window.

    Args:
        kernel_size: height and width of the window.
        stride: step of the window.
        pad_mode: ``"same"`` or ``"valid"``.
        data_format: ``"NCHW"`` or ``"NHWC"``.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.max_pool = ops.MaxPool(self.kernel_size, self.stride, self.pad_mode, self.data_format)

    def construct(self, x: Tensor) -> Tensor:
        """`x`: (N, C, H, W) or (C, H, W)."""
        return self._pooled(self.max_pool, x)


class AvgPool2d(_Pool):
    """Mean of each window; arguments as `MaxPool2d`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.avg_pool = ops.AvgPool(self.kernel_size, self.stride, self.pad_mode, self.data_format)

    def construct(self, x: Tensor) -> Tensor:
        """`x`: (N, C, H, W) or (C, H, W)."""
        return self._pooled(self.avg_pool, x)


class AdaptiveAvgPool2d(Cell):
    """Means that bring height and width to `output_size`; None keeps a size."""

    def __init__(self, output_size: int | tuple[int | None, ...] | None) -> None:
        super().__init__()
        self.output_size = output_size

    def construct(self, x: Tensor) -> Tensor:
        """`x`: (N, C, H, W) or (C, H, W)."""
        return ops.adaptive_avg_pool2d(x, self.output_size)
