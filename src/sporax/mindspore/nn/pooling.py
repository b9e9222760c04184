"""Pooling layers. Inputs are (N, C, spatial…), or (C, spatial…) for a single image."""

from __future__ import annotations

from typing import Any

from sporax.base.errors import For, SporaxValueError
from sporax.mindspore import ops
from sporax.mindspore._declared import setting
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn._arguments import ImageFormat, PadMode
from sporax.mindspore.nn.cell import Cell, Layer
from sporax.mindspore.ops._core import pair, taking
from sporax.mindspore.ops.nn.convolution import Edges, resolved_edges
from sporax.mindspore.ops.nn.pooling import maxima, mean_of_windows, positions_of_maxima


class _Windowed(Cell):
    """What pooling layers share: window, stride and padding.

    Sizes are attributes as MindSpore has them, as they were given or with dimensions in front; the layer goes by its own, which
    scripts that assign others later do not change.

    Args:
        kernel_size: size of the window.
        stride: step of the window.
        pad_mode: ``"same"``, ``"valid"`` or ``"pad"``.
    """

    _in_repr = "kernel_size stride pad_mode"
    spatial = 2
    format: ImageFormat = "NCHW"

    def _take_window(self, kernel_size: Any, stride: Any, pad_mode: PadMode, padding: Any) -> None:
        name = type(self).__name__
        self._window, self._step = self._sizes("kernel_size", kernel_size), self._sizes("stride", stride)
        For(name).typed("pad_mode", pad_mode, "a string", str)
        self._mode = argument.one_of(name, "pad_mode", pad_mode.lower(), ("same", "valid", "pad"))
        self._padding = argument.ints(name, "padding", padding, self.spatial, 0)
        self.kernel_size, self.stride, self.pad_mode = kernel_size, stride, self._mode.upper()
        if self._mode != "pad" and any(self._padding):
            raise SporaxValueError(
                f"For '{name}', 'padding' must be 0 unless 'pad_mode' is 'pad', but got {padding} with '{pad_mode}'."
            )
        # A wider padding would give windows without a real cell.
        too_wide = [2 * pad > size for pad, size in zip(self._padding, self._window, strict=True)]
        For(name).refuse(any(too_wide), f"'padding' must be at most half of 'kernel_size' {self._window}", padding)

    def _sizes(self, what: str, value: Any) -> tuple[int, ...]:
        return argument.ints(type(self).__name__, what, value, self.spatial)

    def _around(self, x: Tensor) -> Edges:
        sizes = x.shape[-self.spatial :]
        return resolved_edges(type(self).__name__, self._mode, self._padding, sizes, self._window, self._step)

    def _check_rank(self, x: Tensor) -> None:
        if x.ndim not in (self.spatial + 1, self.spatial + 2):
            raise For(type(self).__name__).error(
                f"the input must have {self.spatial + 1} or {self.spatial + 2} dimensions, but got shape {x.shape}"
            )


class _MaxPool(_Windowed):
    def __init__(
        self,
        kernel_size: int | tuple[int, ...] = 1,
        stride: int | tuple[int, ...] = 1,
        pad_mode: PadMode = "valid",
        padding: int | tuple[int, ...] = 0,
        dilation: int | tuple[int, ...] = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        self._take_window(kernel_size, stride, pad_mode, padding)
        self._dilation = self._sizes("dilation", dilation)
        self.return_indices = argument.boolean(name, "return_indices", return_indices)
        self._ceil = argument.boolean(name, "ceil_mode", ceil_mode)
        # MindSpore pools in three dimensions there.
        padded = self._mode == "pad"
        if self.spatial == 1:
            ones = (1, 1) if padded else (1,)
            self.kernel_size, self.stride = ones + self._window, ones + self._step
        if padded and self.spatial < 3:
            self.padding = (0,) * (3 - self.spatial) + self._padding
        # The other modes compute their padding for dense windows.
        if not padded and (max(self._dilation) > 1 or return_indices or ceil_mode):
            raise SporaxValueError(
                f"For '{name}', 'dilation', 'return_indices' and 'ceil_mode' need the pad_mode 'pad', but got '{pad_mode}'."
            )

    def construct(self, x: Tensor) -> Any:
        """The maxima; with `return_indices` also where they are in the flattened image (int64)."""
        self._check_rank(x)
        around = self._around(x)
        settings = (self._window, self._step, around, self._dilation, self._ceil, type(self).__name__)
        if self.return_indices and self._mode == "pad":
            return maxima(x, *settings), positions_of_maxima(x, *settings)
        return maxima(x, *settings)


class MaxPool1d(_MaxPool):
    """Largest value in each window of (N, C, L).

    Args:
        kernel_size, stride: size and step of the window.
        pad_mode: ``"same"``, ``"valid"``, or ``"pad"`` for `padding` cells on both sides.
        padding: at most half the window.
        dilation: distance between the cells of a window.
        return_indices: also give the places of the maxima.
        ceil_mode: let the last window reach over the end.

    Raises:
        SporaxTypeError, SporaxValueError: sizes that do not fit together.
    """

    spatial = 1


class MaxPool3d(_MaxPool):
    """Largest value in each window of (N, C, D, H, W); arguments as `MaxPool1d`."""

    spatial = 3


class MaxPool2d(_MaxPool):
    """Largest value in each window of (N, C, H, W); arguments as `MaxPool1d`.

    Args:
        data_format: ``"NCHW"``, or ``"NHWC"`` where `pad_mode` is not ``"pad"``.
    """

    @taking(_MaxPool.__init__)
    def __init__(self, *, data_format: ImageFormat = "NCHW", **settings: Any) -> None:
        super().__init__(**settings)
        self.format = _image_format("MaxPool2d", data_format, self._mode)
        if self._mode != "pad":
            self.max_pool = ops.MaxPool(self._window, self._step, self._mode, data_format)

    def _sizes(self, what: str, value: Any) -> tuple[int, ...]:
        return pair(type(self).__name__, value, what)

    def construct(self, x: Tensor) -> Any:
        """As `MaxPool1d`."""
        return super().construct(x) if self._mode == "pad" else _batched(self.max_pool, x)


class _AvgPool(_Windowed):
    counts_same_padding = False
    """Whether the padding of ``"same"`` counts like any other."""

    def __init__(
        self,
        kernel_size: int | tuple[int, ...] = 1,
        stride: int | tuple[int, ...] = 1,
        pad_mode: PadMode = "valid",
        padding: int | tuple[int, ...] = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        self._take_window(kernel_size, stride, pad_mode, padding)
        self._ceil = argument.boolean(name, "ceil_mode", ceil_mode)
        self._counts_padding = argument.boolean(name, "count_include_pad", count_include_pad)
        if divisor_override is not None:
            argument.positive_int(name, "divisor_override", divisor_override)
        self._divisor = divisor_override
        # MindSpore pools in three dimensions otherwise.
        if self.spatial == 1 and self._mode != "pad" and count_include_pad and not ceil_mode:
            self.kernel_size, self.stride = (1, *self._window), (1, *self._step)

    def construct(self, x: Tensor) -> Tensor:
        """The means."""
        self._check_rank(x)
        return mean_of_windows(
            x,
            self._window,
            self._step,
            self._around(x),
            self._ceil,
            self._counts_padding and (self._mode != "same" or self.counts_same_padding),
            self._divisor,
            type(self).__name__,
        )


class AvgPool1d(_AvgPool):
    """Mean of each window of (N, C, L); arguments and errors as `MaxPool1d`.

    Args:
        count_include_pad: whether padding counts as zeros (``"same"`` never counts it).
    """

    spatial = 1

    @taking(_AvgPool.__init__, "divisor_override")
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)


class AvgPool3d(_AvgPool):
    """Mean of each window of (N, C, D, H, W); as `AvgPool1d`, and `divisor_override` divides the sum by that instead.

    Other than in one and two dimensions, the padding of ``"same"`` counts too, as in MindSpore.
    """

    spatial = 3
    counts_same_padding = True


class AvgPool2d(_AvgPool):
    """Mean of each window of (N, C, H, W); as `AvgPool3d`.

    Args:
        data_format: ``"NCHW"``, or ``"NHWC"`` where `pad_mode` is not ``"pad"``.
    """

    @taking(_AvgPool.__init__)
    def __init__(self, *, data_format: ImageFormat = "NCHW", **settings: Any) -> None:
        super().__init__(**settings)
        self.format = _image_format("AvgPool2d", data_format, self._mode)
        # The primitive has no other settings, and can have a strategy.
        self._plain_window = self._mode != "pad" and not self._ceil and self._divisor is None
        if self._plain_window:
            self.avg_pool = ops.AvgPool(self._window, self._step, self._mode, data_format)

    def _sizes(self, what: str, value: Any) -> tuple[int, ...]:
        return pair(type(self).__name__, value, what)

    def construct(self, x: Tensor) -> Tensor:
        """The means."""
        return _batched(self.avg_pool, x) if self._plain_window else super().construct(x)


def _image_format(layer: str, data_format: ImageFormat, pad_mode: str) -> ImageFormat:
    if argument.one_of(layer, "data_format", data_format, ("NCHW", "NHWC")) == "NHWC" and pad_mode == "pad":
        raise SporaxValueError(f"For '{layer}', 'pad_mode' must not be 'pad' with the data_format 'NHWC'.")
    return data_format


def _batched(pool: Any, x: Tensor) -> Tensor:
    """`pool` on a batch, or on a single image taken as one."""
    return ops.squeeze(pool(ops.expand_dims(x, 0)), 0) if x.ndim == 3 else pool(x)


class _Adaptive(Cell):
    """Layers that pool to a size, which is an attribute as it was given, or one number for each dimension (`expands`)."""

    _in_repr = "output_size"
    spatial = 2
    expands = True

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        sizes = output_size if isinstance(output_size, tuple | list) else (output_size,) * self.spatial
        name = type(self).__name__
        For(name).refuse(len(sizes) != self.spatial, f"'output_size' must have {self.spatial} elements", output_size)
        for size in sizes:
            if size is not None:
                argument.positive_int(name, "output_size", size)
        self.output_size = tuple(sizes) if self.expands else output_size

    def construct(self, x: Tensor) -> Any:
        """`x`: (N, C, spatial…) or (C, spatial…)."""
        return self.pool(x, self.output_size)

    pool: Any = None


class AdaptiveAvgPool1d(_Adaptive):
    """Means that bring the last dimension to `output_size`."""

    spatial, expands = 1, False
    pool = staticmethod(ops.adaptive_avg_pool1d)


class AdaptiveAvgPool2d(_Adaptive):
    """Means that bring height and width to `output_size`; None keeps a size."""

    pool = staticmethod(ops.adaptive_avg_pool2d)


class AdaptiveAvgPool3d(_Adaptive):
    """Means that bring depth, height and width to `output_size`; None keeps a size."""

    spatial = 3
    pool = staticmethod(ops.adaptive_avg_pool3d)


class AdaptiveMaxPool1d(_Adaptive):
    """Maxima that bring the last dimension to `output_size`."""

    spatial, expands = 1, False
    pool = staticmethod(ops.adaptive_max_pool1d)


class AdaptiveMaxPool2d(_Adaptive):
    """Maxima that bring height and width to `output_size`; None keeps a size.

    Args:
        output_size: an int, or one for each dimension.
        return_indices: also give the places of the maxima in the flattened image (int64).
    """

    pool = staticmethod(ops.adaptive_max_pool2d)
    expands = False

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = argument.boolean(type(self).__name__, "return_indices", return_indices)

    def construct(self, x: Tensor) -> Any:
        """`x`: (N, C, spatial…) or (C, spatial…)."""
        return self.pool(x, self.output_size, self.return_indices)


class AdaptiveMaxPool3d(AdaptiveMaxPool2d):
    """Maxima that bring depth, height and width to `output_size`; arguments as `AdaptiveMaxPool2d`."""

    spatial, expands = 3, True
    pool = staticmethod(ops.adaptive_max_pool3d)


class _LPPool(Cell):
    _in_repr = "norm_type kernel_size stride"
    spatial = 1

    def __init__(self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> None:
        super().__init__()
        name = type(self).__name__
        For(name).refuse(argument.number(name, "norm_type", norm_type) == 0, "'norm_type' must not be 0", norm_type)
        for what, value in (("kernel_size", kernel_size), ("stride", kernel_size if stride is None else stride)):
            argument.ints(name, what, value, self.spatial)
        self.norm_type, self.kernel_size, self.stride = norm_type, kernel_size, stride
        self.ceil_mode = argument.boolean(name, "ceil_mode", ceil_mode)

    def construct(self, x: Tensor) -> Tensor:
        """`x`: (N, C, spatial…) or (C, spatial…)."""
        pool = ops.lp_pool1d if self.spatial == 1 else ops.lp_pool2d
        return pool(x, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class LPPool1d(_LPPool):
    """``(sum of x ** norm_type) ** (1 / norm_type)`` over each window of (N, C, L).

    Args:
        norm_type: the power.
        kernel_size, stride: size and step of the window; the step is the size by default.
        ceil_mode: let the last window reach over the end.
    """


class LPPool2d(_LPPool):
    """As `LPPool1d`, over windows of (N, C, H, W)."""

    spatial = 2


class _MaxUnpool(Cell):
    spatial = 1

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        name = type(self).__name__
        # 0 stands for the default, as in MindSpore.
        stride = kernel_size if stride in (None, 0) else stride
        for what, value, least in (("kernel_size", kernel_size, 1), ("stride", stride, 1), ("padding", padding, 0)):
            argument.ints(name, what, value, self.spatial, least)
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding

    def construct(self, x: Tensor, indices: Tensor, output_size: tuple[int, ...] | None = None) -> Tensor:
        """`x` and `indices` as a max pool gave them; `output_size`: shape before pooling, computed when None."""
        pool = (ops.max_unpool1d, ops.max_unpool2d, ops.max_unpool3d)[self.spatial - 1]
        return pool(x, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool1d(_MaxUnpool):
    """Puts maxima back where `MaxPool1d` (with indices) found them; zeros elsewhere.

    Args:
        kernel_size, stride, padding: those of the pooling.
    """


class MaxUnpool2d(_MaxUnpool):
    """As `MaxUnpool1d` for `MaxPool2d`."""

    spatial = 2


class MaxUnpool3d(_MaxUnpool):
    """As `MaxUnpool1d` for `MaxPool3d`."""

    spatial = 3


class _FractionalMaxPool(Layer):
    """What the layers for two and for three dims share."""

    kernel_size: Any = setting()
    output_size: Any = setting(default=None)
    output_ratio: Any = setting(default=None)
    return_indices: bool = setting(argument.boolean, default=False)
    _random_samples: Tensor | None = setting(default=None)

    @property
    def _settings(self) -> tuple[Any, ...]:
        return self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples


class FractionalMaxPool2d(_FractionalMaxPool):
    """Largest values over windows at random places of images (Graham 2014).

    Args:
        kernel_size: size of a window, an int or one for each dimension.
        output_size: number of windows, likewise.
        output_ratio: number of windows as a share of the input's size, in (0, 1), instead.
        return_indices: give the places of the values too, counted through the image.
        _random_samples: (N, C, 2), numbers in [0, 1) that say where the windows are; None: drawn at every call.
    """

    def construct(self, input: Tensor) -> Any:
        """`input`: (N, C, H, W) or (C, H, W)."""
        return ops.fractional_max_pool2d(input, *self._settings)


class FractionalMaxPool3d(_FractionalMaxPool):
    """Largest values over windows at random places of volumes. Arguments as for `FractionalMaxPool2d`."""

    def construct(self, input: Tensor) -> Any:
        """`input`: (N, C, D, H, W) or (C, D, H, W)."""
        return ops.fractional_max_pool3d(input, *self._settings)
