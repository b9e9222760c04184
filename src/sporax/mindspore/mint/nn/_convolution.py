"""Convolutions of `sporax.mindspore.mint.nn`; pooling layers of `sporax.mindspore.mint.nn`."""

from __future__ import annotations

from typing import Any

from sporax.base.errors import For, SporaxNotImplementedError, SporaxValueError, named
from sporax.mindspore.common import DType, Tensor, dtypes
from sporax.mindspore.mint.nn import functional as F
from sporax.mindspore.mint.nn._layer import FunctionLayer, layer
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.cell import Cell

Sizes = int | tuple[int, ...]


class _Convolution(Cell):
    """What all convolutions share: sizes, `weight` and `bias`.

    `weight` is (out_channels, in_channels / groups, *kernel), or (in_channels, out_channels / groups, *kernel) for a
    transposed one; both Parameters start uniform on ±1/√(its elements but those of dim 0).
    """

    dims = 2

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Sizes, stride: Sizes, dilation: Sizes, groups: int,
        bias: bool, transposed: bool, dtype: DType | None,
    ) -> None:  # fmt: skip
        super().__init__()
        name = type(self).__name__
        self.in_channels = argument.positive_int(name, "in_channels", in_channels)
        self.out_channels = argument.positive_int(name, "out_channels", out_channels)
        self.groups = argument.positive_int(name, "groups", groups)
        self.kernel_size = argument.ints(name, "kernel_size", kernel_size, self.dims)
        self.stride = argument.ints(name, "stride", stride, self.dims)
        self.dilation = argument.ints(name, "dilation", dilation, self.dims)
        # Each group has the same number of channels.
        for what, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
            if channels % groups:
                raise For(name).error(f"{named(what)} must be a multiple of 'groups'", f"{channels} and {groups}")
        first, second = (in_channels, out_channels) if transposed else (out_channels, in_channels)
        shape = (first, second // groups, *self.kernel_size)
        has_bias = argument.boolean(name, "bias", bias)
        self.weight, self.bias = argument.weight_and_bias(name, shape, out_channels, dtype or dtypes.float32, has_bias)

    def extend_repr(self) -> str:
        """Settings."""
        return (
            f"in_channels={self.in_channels}, out_channels={self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}, dilation={self.dilation}, groups={self.groups}, bias={self.bias is not None}"
        )


class Conv2d(_Convolution):
    """Cross-correlation of images (n, in_channels, h, w), or of one without n.

    Args:
        in_channels, out_channels: multiples of `groups`.
        kernel_size: size of the kernels.
        stride: step of the kernel.
        padding: cells around, one int or one for each dim; ``"valid"``: none; ``"same"``: so that the size stays (with
            stride 1 only).
        dilation: distance between the cells the kernel looks at.
        groups: the channels are divided into so many independent groups.
        bias: whether a number is added to each channel.
        padding_mode: what the cells around hold: ``"zeros"``, or as in `nn.functional.pad` ``"reflect"``,
            ``"replicate"``, ``"circular"``.
        dtype: element type of the Parameters; float32 by default.

    Raises:
        SporaxTypeError, SporaxValueError: settings that are no such sizes or words, or do not fit together.
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Sizes, stride: Sizes = 1, padding: Sizes | str = 0,
        dilation: Sizes = 1, groups: int = 1, bias: bool = True, padding_mode: str = "zeros",
        dtype: DType | None = None,
    ) -> None:  # fmt: skip
        super().__init__(in_channels, out_channels, kernel_size, stride, dilation, groups, bias, False, dtype)
        name = type(self).__name__
        self.padding_mode = argument.one_of(
            name, "padding_mode", padding_mode, ("zeros", "reflect", "replicate", "circular")
        )
        if not isinstance(padding, str):
            self.padding: Any = argument.ints(name, "padding", padding, self.dims, 0)
            return
        self.padding = argument.one_of(name, "padding", padding, ("same", "valid"))
        # With a larger stride the size does not stay.
        For(name).refuse(padding == "same" and max(self.stride) > 1, "padding 'same' needs 'stride' 1", stride)

    def construct(self, input: Tensor) -> Tensor:
        """`input`: (n, in_channels, …) or (in_channels, …)."""
        weight, bias = argument.cast_like(self, input, self.weight, self.bias)
        padding: Any = self.padding
        # Other cells than zeros are put there before, so the convolution pads nothing.
        if self.padding_mode != "zeros":
            input, padding = F.pad(input, self._edges(), mode=self.padding_mode), 0
        return self._convolve(input, weight, bias, self.stride, padding, self.dilation, self.groups)

    _convolve = staticmethod(F.conv2d)

    def _edges(self) -> tuple[int, ...]:
        """Cells at both ends of each dimension, the last one first."""
        if self.padding == "same":
            padding_total = [gap * (size - 1) for gap, size in zip(self.dilation, self.kernel_size, strict=True)]
            return tuple(side for total in reversed(padding_total) for side in (total // 2, total - total // 2))
        edge = (0,) * self.dims if self.padding == "valid" else self.padding
        return tuple(side for size in reversed(edge) for side in (size, size))


class Conv1d(Conv2d):
    """Cross-correlation of sequences (n, in_channels, length), or of one without n; arguments as `Conv2d`."""

    dims = 1
    _convolve = staticmethod(F.conv1d)


class Conv3d(Conv2d):
    """Cross-correlation of volumes (n, in_channels, d, h, w), or of one without n; arguments as `Conv2d`."""

    dims = 3
    _convolve = staticmethod(F.conv3d)


class ConvTranspose2d(_Convolution):
    """Transposed convolution of images (n, in_channels, h, w): the gradient of `Conv2d` with respect to its input.

    Args:
        in_channels, out_channels: multiples of `groups`.
        kernel_size, stride, padding, dilation, groups: of the convolution it is the transpose of.
        output_padding: rows and columns added at the bottom and right of the output, fewer than `stride` or `dilation`.
        bias: whether a number is added to each channel.
        padding_mode: ``"zeros"``, the only one there is.
        dtype: element type of the Parameters; float32 by default.

    Raises:
        SporaxTypeError, SporaxValueError: settings that are no such sizes, or do not fit together.
        SporaxNotImplementedError: another `padding_mode`.
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Sizes, stride: Sizes = 1, padding: Sizes = 0,
        output_padding: Sizes = 0, groups: int = 1, bias: bool = True, dilation: Sizes = 1,
        padding_mode: str = "zeros", dtype: DType | None = None,
    ) -> None:  # fmt: skip
        super().__init__(in_channels, out_channels, kernel_size, stride, dilation, groups, bias, True, dtype)
        if padding_mode != "zeros":
            raise For("ConvTranspose2d").fault(
                SporaxNotImplementedError, "'padding_mode' must be 'zeros'", repr(padding_mode)
            )
        self.padding = argument.ints("ConvTranspose2d", "padding", padding, 2, 0)
        self.output_padding = argument.ints("ConvTranspose2d", "output_padding", output_padding, 2, 0)

    def construct(self, input: Tensor, output_size: Any = None) -> Tensor:
        """`input`: (n, in_channels, h, w). `output_size`: height and width requested, in place of `output_padding`."""
        weight, bias = argument.cast_like(self, input, self.weight, self.bias)
        extra = self.output_padding if output_size is None else self._missing(input, output_size)
        return F.conv_transpose2d(input, weight, bias, self.stride, self.padding, extra, self.groups, self.dilation)

    def _missing(self, input: Tensor, output_size: Any) -> tuple[int, ...]:
        sizes = argument.ints("ConvTranspose2d", "output_size", output_size, 2)
        least = [
            (size - 1) * step - 2 * edge + gap * (kernel - 1) + 1
            for size, step, edge, gap, kernel in zip(
                input.shape[-2:], self.stride, self.padding, self.dilation, self.kernel_size, strict=True
            )
        ]
        extra = tuple(goal - low for goal, low in zip(sizes, least, strict=True))
        # A whole stride more would be the size for the next larger input.
        if any(not 0 <= more < step for more, step in zip(extra, self.stride, strict=True)):
            raise SporaxValueError(
                f"For 'ConvTranspose2d', 'output_size' must be at least {tuple(least)} and less than 'stride' more for an "
                f"input of shape {input.shape}, but got {sizes}."
            )
        return extra


def _pool(name: str, function: Any, what: str) -> type[Cell]:
    return layer(
        name, function, f"{what} over windows of spatial dims; settings as `nn.functional.{function.__name__}`."
    )


AvgPool1d = _pool("AvgPool1d", F.avg_pool1d, "Means")
AvgPool2d = _pool("AvgPool2d", F.avg_pool2d, "Means")
AvgPool3d = _pool("AvgPool3d", F.avg_pool3d, "Means")
MaxPool2d = layer(
    "MaxPool2d",
    F.max_pool2d,
    "Maxima over windows of images, and their positions with `return_indices`; settings as `nn.functional.max_pool2d`.",
    takes="kernel_size stride padding dilation return_indices ceil_mode",
    kernel_size=1,
)


def _adaptive(name: str, function: Any, what: str) -> type[Cell]:
    return layer(name, function, f"{what} of cells that bring the spatial dims to `output_size`; None keeps a size.")


AdaptiveAvgPool1d = _adaptive("AdaptiveAvgPool1d", F.adaptive_avg_pool1d, "Means")
AdaptiveAvgPool2d = _adaptive("AdaptiveAvgPool2d", F.adaptive_avg_pool2d, "Means")
AdaptiveAvgPool3d = _adaptive("AdaptiveAvgPool3d", F.adaptive_avg_pool3d, "Means")
AdaptiveMaxPool1d = _adaptive("AdaptiveMaxPool1d", F.adaptive_max_pool1d, "Maxima")
AdaptiveMaxPool2d = _adaptive("AdaptiveMaxPool2d", F.adaptive_max_pool2d, "Maxima")


class _Unpool(FunctionLayer):
    def construct(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        """`input` put at `indices` (as `MaxPool2d` gives them) of an image of zeros of size `output_size`."""
        settings = {name: getattr(self, name) for name in self.settings}
        return self.function(input, indices, **settings, output_size=output_size)


MaxUnpool2d = layer(
    "MaxUnpool2d",
    F.max_unpool2d,
    "The inverse of `MaxPool2d`, with zeros where no maximum was.",
    _Unpool,
    takes="kernel_size stride padding",
)
