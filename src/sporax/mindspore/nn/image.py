"""Layers that resize, crop and rearrange images, and how similar two are: structurally, at one scale and at several.

Layers that put cells around their input.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from sporax.base.errors import For, SporaxTypeError, SporaxValueError
from sporax.mindspore import ops
from sporax.mindspore._declared import setting
from sporax.mindspore.common import DType, Tensor, dtypes
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.cell import Cell, Layer, PlainLayer, applied
from sporax.mindspore.nn.container import CellList
from sporax.mindspore.nn.convolution import Conv2d


class ResizeBilinear(Layer):
    """Images resized by bilinear interpolation, to a size or by a factor given at the call."""

    half_pixel_centers: bool = setting(
        argument.boolean, "pixels are squares with their centres at half positions.", default=False
    )

    def construct(
        self, x: Tensor, size: Any = None, scale_factor: int | None = None, align_corners: bool = False
    ) -> Tensor:
        """`x`: (N, C, H, W); either `size` (H, W) or the int `scale_factor`; `align_corners`: corner pixels keep their values.

        Raises:
            SporaxValueError: not exactly one of `size` and `scale_factor`, or align_corners together with half_pixel_centers.
        """
        For("ResizeBilinear").refuse(
            (size is None) == (scale_factor is None), "give either 'size' or 'scale_factor'", size, scale_factor
        )
        if align_corners and self.half_pixel_centers:
            raise For("ResizeBilinear").error("'align_corners' and 'half_pixel_centers' can not both be True")
        if size is None:
            factor = argument.positive_int("ResizeBilinear", "scale_factor", scale_factor)
            # With aligned corners, distances between pixels are multiplied, not sizes.
            size = tuple((length - 1) * factor + 1 if align_corners else length * factor for length in x.shape[2:])
        return ops.ResizeBilinear(tuple(size), align_corners, self.half_pixel_centers)(x)


class Upsample(Layer):
    """Signals, images or volumes (N, C, spatial…) resized."""

    size: Any = setting(None, "target size, an int or one for each spatial dimension.", default=None)
    scale_factor: Any = setting(None, "factor instead of `size`.", default=None)
    mode: str = setting(
        None,
        '``"nearest"``, ``"linear"``, ``"bilinear"``, ``"bicubic"``, ``"trilinear"``, ``"area"``.',
        default="nearest",
    )
    align_corners: bool | None = setting(None, "corner pixels keep their values.", default=None)
    recompute_scale_factor: bool | None = setting(
        None, "use the factor that the rounded target size amounts to.", default=None
    )

    construct = applied(
        ops.interpolate, "x", "`x`: (N, C, spatial…).", "size scale_factor mode align_corners recompute_scale_factor"
    )


class PixelShuffle(Layer):
    """Channels spread over space: (…, C·r², H, W) to (…, C, H·r, W·r) (Shi et al. 2016)."""

    upscale_factor: int = setting(argument.positive_int)
    construct = applied(ops.pixel_shuffle, "input", "`input`: (…, C·r², H, W).", "upscale_factor")


class PixelUnshuffle(Layer):
    """Space gathered into channels: (…, C, H·r, W·r) to (…, C·r², H, W)."""

    downscale_factor: int = setting(argument.positive_int)
    construct = applied(ops.pixel_unshuffle, "input", "`input`: (…, C, H·r, W·r).", "downscale_factor")


class ChannelShuffle(Layer):
    """Channels (dim 1) dealt out by `groups` groups (Zhang et al. 2018)."""

    groups: int = setting(argument.positive_int)
    construct = applied(ops.channel_shuffle, "x", "`x`: (N, C, …).", "groups")


class CentralCrop(Layer):
    """The middle of an image."""

    central_fraction: float = setting(
        argument.exactly_float, "share of height and width that stays, in (0, 1].", low=0.0, high=1.0, ends="(]"
    )

    def construct(self, image: Tensor) -> Tensor:
        """`image`: (C, H, W) or (N, C, H, W)."""
        if image.ndim not in (3, 4):
            raise For("CentralCrop").error("'image' must have 3 or 4 dimensions", f"shape {image.shape}")
        if self.central_fraction == 1.0:
            return image
        spans = []
        for size in image.shape[-2:]:
            # Rounded down, as in MindSpore.
            start = int((size - size * self.central_fraction) / 2)
            spans.append(slice(start, size - start))
        return image[(..., *spans)]


class ImageGradients(PlainLayer):
    """Differences of neighbouring pixels in vertical and horizontal direction; the last row and column are zero."""

    def construct(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """`images`: (N, C, H, W)."""
        For("ImageGradients").refuse(images.ndim != 4, "'images' must have 4 dimensions", f"shape {images.shape}")
        down = images[:, :, 1:, :] - images[:, :, :-1, :]
        right = images[:, :, :, 1:] - images[:, :, :, :-1]
        # Zeros at the end keep the shape.
        return ops.pad(down, (0, 0, 0, 1)), ops.pad(right, (0, 1, 0, 0))


def check_equal_images(name: str, img1: Tensor, img2: Tensor) -> None:
    """Check that two images have one dtype and one shape (N, C, H, W).

    Raises:
        SporaxTypeError: the dtypes differ.
        SporaxValueError: the shapes differ, or have not 4 dimensions.
    """
    For(name).refuse_type(img1.dtype != img2.dtype, "both images must have one dtype", img1.dtype, img2.dtype)
    if img1.shape != img2.shape or img1.ndim != 4:
        raise For(name).error(f"both images must have one shape (N, C, H, W), but got {img1.shape} and {img2.shape}")


class PSNR(Layer):
    """Peak signal-to-noise ratio of two batches of images, one number per image."""

    max_val: float = setting(
        argument.within, "largest value a pixel can have.", default=1.0, low=0.0, high=math.inf, ends="()"
    )

    def construct(self, img1: Tensor, img2: Tensor) -> Tensor:
        """`img1`, `img2`: (N, C, H, W)."""
        check_equal_images("PSNR", img1, img2)
        error = ops.reduce_mean(ops.square(img1 - img2), (1, 2, 3))
        return 10 * ops.log(self.max_val**2 / error) / math.log(10)


class Unfold(Layer):
    """Windows of an image, each laid out along the channels.

    Raises:
        SporaxTypeError, SporaxValueError: settings of another form.
    """

    ksizes: Any = setting(None, "``[1, rows, columns, 1]`` of the window.", attribute=False)
    strides: Any = setting(None, "``[1, rows, columns, 1]`` between windows.", attribute=False)
    rates: Any = setting(None, "``[1, rows, columns, 1]`` between the pixels of a window.", attribute=False)
    padding: str = setting(None, '``"same"`` or ``"valid"``.', default="valid", attribute=False)

    def _prepare(self, ksizes: Any, strides: Any, rates: Any, padding: str) -> None:
        for what, value in (("ksizes", ksizes), ("strides", strides), ("rates", rates)):
            For("Unfold").typed(what, value, "a tuple or list", tuple | list)
            if len(value) != 4 or value[0] != 1 or value[3] != 1 or min(value) < 1:
                raise SporaxValueError(f"For 'Unfold', '{what}' must be [1, rows, columns, 1], but got {value}.")
        self.ksizes, self.strides, self.rates = (tuple(value[1:3]) for value in (ksizes, strides, rates))
        self.padding = argument.word("Unfold", "padding", padding, ("same", "valid", "SAME", "VALID")).lower()

    def construct(self, input_x: Tensor) -> Tensor:
        """`input_x`: (N, C, H, W); gives (N, rows · columns · C, windows down, windows across)."""
        batch, channels, *sizes = input_x.shape
        settings = list(zip(sizes, self.ksizes, self.strides, self.rates, strict=True))
        if self.padding == "same":
            sides = []
            for size, window, step, rate in reversed(settings):
                # What is missing for the last window, half of it on each side.
                lack = max((-(-size // step) - 1) * step + rate * (window - 1) + 1 - size, 0)
                sides += [lack // 2, lack - lack // 2]
            input_x = ops.pad(input_x, tuple(sides))
            sizes = list(input_x.shape[2:])
            settings = list(zip(sizes, self.ksizes, self.strides, self.rates, strict=True))
        counts = tuple((size - rate * (window - 1) - 1) // step + 1 for size, window, step, rate in settings)
        columns = ops.unfold(input_x, self.ksizes, self.rates, 0, self.strides)
        area = self.ksizes[0] * self.ksizes[1]
        # MindSpore's order: position in the window first, then channel.
        by_channel = columns.reshape((batch, channels, area, *counts))
        return ops.transpose(by_channel, (0, 2, 1, 3, 4)).reshape((batch, area * channels, *counts))


def _window(size: int, sigma: float) -> Conv2d:
    """A convolution of one channel with a Gaussian; its weight is not trained."""
    at = np.arange(-size // 2 + 1, size // 2 + 1, dtype=np.float32)
    bell = np.exp(-np.square(at) / (2 * sigma**2))
    weight = np.outer(bell, bell) / np.square(bell.sum())
    blur = Conv2d(1, 1, size, pad_mode="valid", weight_init=Tensor(weight[None, None].astype(np.float32)))
    blur.weight.requires_grad = False
    return blur


class _Similarity(Layer):
    """What both indices share: settings, checks, and luminance and contrast at one scale."""

    max_val: float = setting(argument.within, low=0.0, high=math.inf, ends="()")
    filter_size: int = setting(argument.positive_int)
    filter_sigma: float = setting(argument.within, low=0.0, high=math.inf, ends="()")
    k1: float = setting(argument.exactly_float, low=-math.inf, high=math.inf)
    k2: float = setting(argument.exactly_float, low=-math.inf, high=math.inf)

    def pixels(self, **images: Tensor) -> tuple[float, list[Tensor]]:
        """The largest value and both images as float32 channels (N·C, 1, H, W); uint8 pixels become shares of 255."""
        name = type(self).__name__
        first, second = images.values()
        check_equal_images(name, first, second)
        if min(first.shape[2:]) < self.filter_size:
            raise For(name).error(f"height and width must be >= 'filter_size' = {self.filter_size}", first.shape[2:])
        largest = _largest(name, first.dtype)
        channels = [
            image.astype(dtypes.float32).reshape((-1, 1, *image.shape[2:])) / largest for image in images.values()
        ]
        return self.max_val / largest, channels

    def at_scale(self, blur: Cell, max_val: float, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        """Mean similarity and mean contrast of each channel (N·C,) (Wang et al. 2004, eq. 13)."""
        c1, c2 = (self.k1 * max_val) ** 2, (self.k2 * max_val) ** 2
        mean1, mean2 = blur(first), blur(second)
        # E[xy] - E[x]E[y], with the window's weights.
        covariance = blur(first * second) - mean1 * mean2
        variances = blur(first * first) + blur(second * second) - mean1 * mean1 - mean2 * mean2
        contrast = (2 * covariance + c2) / (variances + c2)
        luminance = (2 * mean1 * mean2 + c1) / (mean1 * mean1 + mean2 * mean2 + c1)
        return ops.mean(luminance * contrast, (1, 2, 3)), ops.mean(contrast, (1, 2, 3))


def _largest(name: str, dtype: DType) -> float:
    if dtype == dtypes.uint8:
        return 255.0
    if dtype not in (dtypes.float16, dtypes.float32, dtypes.float64):
        raise SporaxTypeError(f"For '{name}', the images must be float16, float32, float64 or uint8, but got {dtype}.")
    return 1.0


class SSIM(_Similarity):
    """Structural similarity of two batches of images (Wang et al. 2004), one number per image: 1 for equal ones.

    Args:
        max_val: largest value a pixel can have.
        filter_size: side of the Gaussian window.
        filter_sigma: its standard deviation.
        k1, k2: constants that keep the quotients of luminance and contrast stable.
    """

    def __init__(
        self, max_val: float = 1.0, filter_size: int = 11, filter_sigma: float = 1.5, k1: float = 0.01, k2: float = 0.03
    ) -> None:
        super().__init__(max_val, filter_size, filter_sigma, k1, k2)
        self.conv = _window(filter_size, filter_sigma)

    def construct(self, img1: Tensor, img2: Tensor) -> Tensor:
        """`img1`, `img2`: (N, C, H, W), floating or uint8; gives (N,)."""
        max_val, (first, second) = self.pixels(img1=img1, img2=img2)
        similarity, _ = self.at_scale(self.conv, max_val, first, second)
        return ops.mean(similarity.reshape(img1.shape[:2]), 1)


class MSSSIM(_Similarity):
    """Structural similarity at several scales (Wang et al. 2003), one number per image.

    Args:
        max_val: largest value a pixel can have.
        power_factors: exponent of each scale; between two scales the images are halved.
        filter_size, filter_sigma, k1, k2: as for `SSIM`.
    """

    def __init__(
        self,
        max_val: float = 1.0,
        power_factors: Sequence[float] = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333),
        filter_size: int = 11,
        filter_sigma: float = 1.5,
        k1: float = 0.01,
        k2: float = 0.03,
    ) -> None:
        super().__init__(max_val, filter_size, filter_sigma, k1, k2)
        if not isinstance(power_factors, tuple | list) or not power_factors:
            raise For("MSSSIM").type_error("'power_factors' must be a tuple or list of numbers", repr(power_factors))
        self.power_factors = tuple(float(factor) for factor in power_factors)
        self.multi_convs_list = CellList([_window(filter_size, filter_sigma) for _ in self.power_factors])

    def construct(self, img1: Tensor, img2: Tensor) -> Tensor:
        """`img1`, `img2`: (N, C, H, W), floating or uint8; gives (N,)."""
        max_val, images = self.pixels(img1=img1, img2=img2)
        product = Tensor(1.0, dtypes.float32)
        for place, (blur, power) in enumerate(zip(self.multi_convs_list, self.power_factors, strict=True)):
            similarity, contrast = self.at_scale(blur, max_val, *images)
            last = place == len(self.power_factors) - 1
            # Luminance counts at the coarsest scale only (Wang et al. 2003).
            product = product * ops.pow(ops.relu(similarity if last else contrast), power)
            images = [ops.avg_pool2d(image, 2, 2) for image in images]
        return ops.mean(product.reshape(img1.shape[:2]), 1)


class Pad(Cell):
    """Cells before and after each dimension.

    Args:
        paddings: for every dimension a pair of ints >= 0: cells before and after.
        mode: ``"CONSTANT"`` (zeros), ``"REFLECT"`` (mirrored without the edge) or ``"SYMMETRIC"`` (mirrored with it).

    Raises:
        SporaxTypeError, SporaxValueError: no such pairs or mode.
    """

    def __init__(self, paddings: tuple[tuple[int, int], ...], mode: str = "CONSTANT") -> None:
        super().__init__()
        argument.one_of("Pad", "mode", mode, ("CONSTANT", "REFLECT", "SYMMETRIC"))
        For("Pad").typed("paddings", paddings, "a tuple", tuple)
        if any(not isinstance(pair, tuple | list) or len(pair) != 2 for pair in paddings):
            raise SporaxValueError(f"For 'Pad', 'paddings' must hold pairs of ints, but got {paddings}.")
        self.paddings = tuple((first, last) for first, last in paddings)
        self.mode = mode
        self.pad: Any = ops.Pad(self.paddings) if mode == "CONSTANT" else ops.MirrorPad(mode)

    def construct(self, x: Tensor) -> Tensor:
        """`x` with one dimension per pair."""
        return self.pad(x) if self.mode == "CONSTANT" else self.pad(x, Tensor(self.paddings))


class _Around(Cell):
    """Padding of the last `spatial` dimensions, given as one int or as (left, right, top, bottom, …)."""

    _in_repr = "padding"
    spatial = 1
    mode = "constant"

    def __init__(self, padding: int | tuple[int, ...] | list[int]) -> None:
        super().__init__()
        self.padding = self._sides(padding)

    def _sides(self, padding: int | tuple[int, ...] | list[int]) -> tuple[int, ...]:
        """Cells at both ends of each dimension, the last one first."""
        name = type(self).__name__
        sides = (padding,) * (2 * self.spatial) if isinstance(padding, int) else padding
        if not isinstance(sides, tuple) or any(isinstance(s, bool) or not isinstance(s, int) for s in sides):
            raise SporaxTypeError(f"For '{name}', 'padding' must be an int or a tuple of ints, but got {padding!r}.")
        # Constant padding may be given for the last dimensions alone.
        if len(sides) % 2 or not 0 < len(sides) <= 2 * self.spatial or (self._exact and len(sides) != 2 * self.spatial):
            raise For(name).error(f"'padding' must be one or {2 * self.spatial} ints", padding)
        # Negative numbers of cells take cells away, which only constant padding can.
        For(name).refuse(self.mode != "constant" and min(sides) < 0, "'padding' must be >= 0", padding)
        return sides

    _exact = True
    value = 0.0

    def construct(self, x: Tensor) -> Tensor:
        """`x`: (N, C, spatial…) or (C, spatial…)."""
        if x.ndim < self.spatial or (self.mode != "constant" and x.ndim not in (self.spatial + 1, self.spatial + 2)):
            raise For(type(self).__name__).error(
                f"the input must have {self.spatial + 1} or {self.spatial + 2} dimensions, but got shape {x.shape}"
            )
        return ops.pad(x, self.padding, self.mode, self.value if self.mode == "constant" else None)


class _Constant(_Around):
    _exact = False

    def __init__(self, padding: int | tuple[int, ...], value: float) -> None:
        super().__init__(padding)
        self.value = argument.number(type(self).__name__, "value", value)


class ConstantPad1d(_Constant):
    """`value` around the last dimension; negative numbers of cells take cells away.

    Args:
        padding: cells on both sides, or (left, right).
        value: what the cells hold.
    """


_Padding = TypeVar("_Padding", bound=_Around)
_SIDES = ("left, right", "left, right, top, bottom", "left, right, top, bottom, front, back")


def _pad_layer(
    name: str, base: type[_Padding], spatial: int, what: str, mode: str = "constant", exact: bool = False
) -> type[_Padding]:
    """The layer that pads the last `spatial` dimensions: `what` says with which cells, `exact` that all sides must be given."""
    doc = f"{what}: `padding` is an int or ({_SIDES[spatial - 1]})."
    body = {"spatial": spatial, "mode": mode, "_exact": exact, "__doc__": doc, "__module__": __name__}
    made: type[_Padding] = type(name, (base,), body)
    return made


ConstantPad2d = _pad_layer("ConstantPad2d", _Constant, 2, "`value` around the last two dimensions")
ConstantPad3d = _pad_layer("ConstantPad3d", _Constant, 3, "`value` around the last three dimensions")
ZeroPad2d = _pad_layer("ZeroPad2d", _Around, 2, "Zeros around the last two dimensions")
_MIRRORED, _REPEATED = "The input mirrored on all sides", "The edges repeated on all sides"
_AT_ENDS = "The input mirrored at both ends, without the edge"
ReflectionPad1d = _pad_layer("ReflectionPad1d", _Around, 1, _AT_ENDS, "reflect", True)
ReflectionPad2d = _pad_layer("ReflectionPad2d", _Around, 2, _MIRRORED, "reflect", True)
ReflectionPad3d = _pad_layer("ReflectionPad3d", _Around, 3, _MIRRORED, "reflect", True)
ReplicationPad1d = _pad_layer("ReplicationPad1d", _Around, 1, "The edges repeated", "replicate", True)
ReplicationPad2d = _pad_layer("ReplicationPad2d", _Around, 2, _REPEATED, "replicate", True)
ReplicationPad3d = _pad_layer("ReplicationPad3d", _Around, 3, _REPEATED, "replicate", True)
