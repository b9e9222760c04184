"""Convolution layers over signals, images and volumes, and their transposes: gradients with respect to inputs, as layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sporax.base.errors import For, SporaxTypeError, SporaxValueError, named
from sporax.mindspore import ops
from sporax.mindspore.common import DType, Tensor, dtypes
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn._arguments import ImageFormat, PadMode
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.ops._core import pair, taking


class _Convolution(Cell):
    """Settings, weight and bias of a convolution.

    Sizes are attributes as MindSpore has them: a signal is an image of height 1, so those of `Conv1d` have two numbers, and the
    weight four dimensions.

    Attributes:
        spatial: number of spatial dimensions.
        bias_add: primitive that adds the bias; like the convolution's own one, it can have a strategy.
        transposed: the weight is (in_channels, out_channels / group, kernel…) instead of (out_channels, in_channels / group, …).
    """

    _in_repr = """input_channels=in_channels output_channels=out_channels kernel_size stride pad_mode padding dilation group
    has_bias"""
    spatial = 2
    transposed = False
    data_formats: tuple[str, ...] = ("NCHW", "NHWC")

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        pad_mode: PadMode = "same",
        padding: int | tuple[int, ...] = 0,
        dilation: int | tuple[int, ...] = 1,
        group: int = 1,
        has_bias: bool = False,
        weight_init: Any = None,
        bias_init: Any = None,
        data_format: ImageFormat = "NCHW",
        dtype: DType = dtypes.float32,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        self.in_channels = argument.positive_int(name, "in_channels", in_channels)
        self.out_channels = argument.positive_int(name, "out_channels", out_channels)
        self.kernel_size = self._sizes("kernel_size", kernel_size)
        self.stride = self._sizes("stride", stride)
        self.dilation = self._sizes("dilation", dilation)
        self.group = argument.positive_int(name, "group", group)
        self.has_bias = argument.boolean(name, "has_bias", has_bias)
        self.pad_mode, self.padding = checked_padding(name, pad_mode, padding, self.spatial)
        if self.spatial == 1:
            self.padding = (0, 0) + (padding if isinstance(padding, tuple) else (padding, padding))
        if in_channels % group or out_channels % group:
            raise SporaxValueError(
                f"For '{name}', 'group' {group} must divide 'in_channels' {in_channels} and 'out_channels' {out_channels}."
            )
        self.data_format = argument.one_of(name, "data_format", data_format, self.data_formats)
        self._make_parameters(weight_init, bias_init, dtype, channels_last=data_format == "NHWC")
        self._make_operator()

    def _sizes(self, what: str, value: Any) -> tuple[int, ...]:
        # A tuple of one is no int to MindSpore, either.
        if self.spatial == 1 and not isinstance(value, int):
            raise For(type(self).__name__).type_error(f"{named(what)} must be an int", type(value).__name__)
        return (1,) * (self.spatial == 1) + argument.ints(type(self).__name__, what, value, self.spatial)

    def _make_parameters(self, weight_init: Any, bias_init: Any, dtype: DType, channels_last: bool) -> None:
        # A transposed convolution swaps the roles of the channels.
        channels = self.out_channels, self.in_channels
        outer, inner = reversed(channels) if self.transposed else channels
        kernel, inner = self.kernel_size, inner // self.group
        shape = (outer, *kernel, inner) if channels_last else (outer, inner, *kernel)
        if isinstance(weight_init, Tensor) and self.spatial == 1:
            weight_init = ops.expand_dims(weight_init, 2)
        bias_init = bias_init if self.has_bias else None
        self.weight, self.bias = argument.weight_and_bias(
            type(self).__name__, shape, self.out_channels, dtype, self.has_bias, weight_init, bias_init
        )
        self.bias_add = ops.BiasAdd("NHWC" if channels_last else "NCDHW" if self.spatial == 3 else "NCHW")

    def _make_operator(self) -> None:
        raise NotImplementedError

    def _operator(self, kind: Callable[..., Any], **others: Any) -> Any:
        """A primitive with the settings of this layer, and `others`."""
        settings = {
            "out_channel": self.in_channels if self.transposed else self.out_channels,
            "kernel_size": self.kernel_size,
            "pad_mode": self.pad_mode,
            "pad": self.padding,
            "stride": self.stride,
            "dilation": self.dilation,
            "group": self.group,
        }
        return kind(**{**settings, **others})

    @property
    def _sides(self) -> tuple[tuple[int, int], ...]:
        """Padding before and after each dimension of the kernel, where `pad_mode` is ``"pad"``."""
        sides = self.padding if isinstance(self.padding, tuple) else (self.padding,) * (2 * len(self.kernel_size))
        return tuple(zip(sides[::2], sides[1::2], strict=True))

    def _check_rank(self, x: Tensor) -> None:
        For(type(self).__name__).refuse(
            x.ndim != self.spatial + 2, f"the input must have {self.spatial + 2} dimensions, but got shape {x.shape}"
        )

    def _weights(self, x: Tensor) -> tuple[Any, Any]:
        """Weight and bias for an input, the bias None where `has_bias` says so now."""
        weight, bias = argument.cast_like(self, x, self.weight, self.bias)
        return weight, bias if self.has_bias else None

    def _biased(self, result: Tensor, bias: Any) -> Tensor:
        if bias is None:
            return result
        if argument.configured(self.bias_add):
            return self.bias_add(result, bias)
        return result + bias.reshape((1, -1) + (1,) * self.spatial)


class Conv1d(_Convolution):
    """One-dimensional convolution (cross-correlation) with learned kernels over (N, C, L); arguments and errors as `Conv2d`.

    Args:
        kernel_size, stride, padding, dilation: one int each.
        weight_init: initializer of `weight`, (out_channels, in_channels / group, 1, kernel_size), or a Tensor without the 1.
    """

    spatial = 1

    @taking(_Convolution.__init__, "data_format")
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)

    def _make_operator(self) -> None:
        self.conv2d = self._operator(ops.Conv2D)

    def construct(self, x: Tensor) -> Tensor:
        """`x`: (N, in_channels, L)."""
        self._check_rank(x)
        weight, bias = self._weights(x)
        result = self.conv2d(ops.expand_dims(x, 2), weight)
        if bias is not None and argument.configured(self.bias_add):
            # With four dimensions, as plans expect.
            result, bias = self.bias_add(result, bias), None
        return self._biased(ops.squeeze(result, 2), bias)


class Conv2d(_Convolution):
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

    def _make_operator(self) -> None:
        self.conv2d = self._operator(ops.Conv2D, data_format=self.data_format)

    def _sizes(self, what: str, value: Any) -> tuple[int, ...]:
        if what == "kernel_size" and isinstance(value, tuple) and len(value) != 2:
            raise For("Conv2d").type_error("'kernel_size' must be an int or a tuple of two ints", value)
        return pair("Conv2d", value, what)

    def construct(self, x: Tensor) -> Tensor:
        """`x`: (N, in_channels, H, W)."""
        weight, bias = self._weights(x)
        result = self.conv2d(x, weight)
        return result if bias is None else self.bias_add(result, bias)


class Conv3d(_Convolution):
    """Three-dimensional convolution over (N, C, D, H, W); as `Conv2d`.

    Args:
        padding: cells on all sides, or (head, tail, top, bottom, left, right); only with the pad_mode ``"pad"``.
        data_format: ``"NCDHW"``; there is no other.
    """

    spatial = 3
    data_formats = ("NCDHW",)

    @taking(_Convolution.__init__, data_format="NCDHW")
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)

    def _make_operator(self) -> None:
        self.conv3d = self._operator(ops.Conv3D)

    def construct(self, x: Tensor) -> Tensor:
        """`x`: (N, in_channels, D, H, W)."""
        self._check_rank(x)
        weight, bias = self._weights(x)
        return self._biased(self.conv3d(x, weight), bias)


def checked_padding(layer: str, pad_mode: PadMode, padding: object, spatial: int) -> tuple[PadMode, Any]:
    """Both settings, if they fit together.

    Raises:
        SporaxTypeError, SporaxValueError: they do not.
    """
    argument.word(layer, "pad_mode", pad_mode, ("same", "valid", "pad"))
    sides = (padding,) if isinstance(padding, int) else padding
    if not isinstance(sides, tuple) or any(not isinstance(side, int) for side in sides):
        raise SporaxTypeError(f"For '{layer}', 'padding' must be an int or a tuple of ints, but got {padding!r}.")
    if min(sides) < 0 or len(sides) not in (1, 2 * spatial):
        raise SporaxValueError(f"For '{layer}', 'padding' must be one or {2 * spatial} ints >= 0, but got {padding}.")
    # Padding is computed in the other modes, so a number would be ignored.
    For(layer).refuse(pad_mode != "pad" and any(sides), f"'padding' must be 0 when 'pad_mode' is '{pad_mode}'", padding)
    return pad_mode, padding


class _Transposed(_Convolution):
    """What transposed convolutions share.

    `Conv2DTranspose` is the gradient of a convolution, whose outputs are this layer's inputs, so `out_channel` is `in_channels`.
    """

    transposed = True

    def _make_operator(self) -> None:
        # The length of outputs follows these, whatever a script makes of `pad_mode` later.
        self.is_valid, self.is_same, self.is_pad = (self.pad_mode == mode for mode in ("valid", "same", "pad"))
        pad = tuple(side for pair in self._sides for side in pair) if self.is_pad else 0
        self.conv2d_transpose = self._operator(ops.Conv2DTranspose, pad=pad)

    def _output_size(self, x: Tensor) -> tuple[int, ...]:
        """Spatial shape of the result: what the convolution with these settings maps to the shape of the image `x`."""
        sizes = []
        for size, kernel, step, spread, (before, after) in zip(
            x.shape[2:], self.kernel_size, self.stride, self.dilation, self._sides, strict=True
        ):
            extent = spread * (kernel - 1) + 1
            # "same" makes the output a multiple of the input.
            if self.is_same:
                sizes.append(size * step)
            elif self.is_valid:
                sizes.append(size * step + max(extent - step, 0))
            else:
                sizes.append((size - 1) * step + extent - before - after)
        return tuple(sizes)

    def _check_output_padding(self, value: Any) -> tuple[int, ...]:
        """Cells that are added behind each spatial dimension."""
        name = type(self).__name__
        extra = argument.ints(name, "output_padding", value, self.spatial, 0)
        for more, step, spread in zip(extra, self.stride, self.dilation, strict=True):
            # More would be a whole further step, which an input of the next size gives.
            if more >= max(step, spread):
                raise SporaxValueError(
                    f"For '{name}', 'output_padding' must be below 'stride' or 'dilation' ({step}, {spread}), but got {value}."
                )
        if any(extra) and self.pad_mode != "pad":
            raise For(name).error(f"'output_padding' needs the pad_mode 'pad', but that is '{self.pad_mode}'")
        return extra


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

    @taking(_Convolution.__init__, "data_format")
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)

    def construct(self, x: Tensor) -> Tensor:
        """`x`: (N, in_channels, L)."""
        self._check_rank(x)
        image = ops.expand_dims(x, 2)
        # The size is given, since several sizes have the same input.
        size = (x.shape[0], self.out_channels, *self._output_size(image))
        weight, bias = self._weights(x)
        return self._biased(ops.squeeze(self.conv2d_transpose(image, weight, size), 2), bias)


class Conv2dTranspose(_Transposed):
    """Transpose of `Conv2d`, which enlarges images (N, C, H, W); arguments as `Conv1dTranspose`.

    Args:
        padding: cells on all sides, or (top, bottom, left, right); only with the pad_mode ``"pad"``.
        output_padding: rows and columns of zeros added at the bottom and at the right.
    """

    @taking(_Convolution.__init__, "data_format", before="dilation")
    def __init__(self, *, output_padding: int | tuple[int, int] = 0, **settings: Any) -> None:
        super().__init__(**settings)
        self._check_output_padding(output_padding)
        self.output_padding = output_padding

    def construct(self, x: Tensor) -> Tensor:
        """`x`: (N, in_channels, H, W)."""
        self._check_rank(x)
        size = (x.shape[0], self.out_channels, *self._output_size(x))
        weight, bias = self._weights(x)
        result = self._biased(self.conv2d_transpose(x, weight, size), bias)
        down, right = self._check_output_padding(self.output_padding)
        return ops.pad(result, (0, right, 0, down)) if down or right else result


class Conv3dTranspose(_Transposed):
    """Transpose of `Conv3d`, which enlarges volumes (N, C, D, H, W); arguments as `Conv1dTranspose`.

    Args:
        padding: cells on all sides, or (head, tail, top, bottom, left, right); only with the pad_mode ``"pad"``.
        output_padding: how much larger the output is than the smallest one that fits.
        data_format: ``"NCDHW"``; there is no other.
    """

    spatial = 3
    data_formats = ("NCDHW",)

    @taking(_Convolution.__init__, before="has_bias", data_format="NCDHW")
    def __init__(self, *, output_padding: int | tuple[int, int, int] = 0, **settings: Any) -> None:
        super().__init__(**settings)
        self.output_padding = extra = self._check_output_padding(output_padding)
        channels = {"in_channel": self.in_channels, "out_channel": self.out_channels}
        self.conv3d_transpose = self._operator(ops.Conv3DTranspose, **channels, output_padding=extra)

    def _make_operator(self) -> None:
        """It needs `output_padding`, which is checked afterwards."""

    def construct(self, x: Tensor) -> Tensor:
        """`x`: (N, in_channels, D, H, W)."""
        self._check_rank(x)
        weight, bias = self._weights(x)
        return self._biased(self.conv3d_transpose(x, weight), bias)
