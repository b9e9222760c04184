"""Layers that resize, crop and rearrange images."""

from __future__ import annotations

import math
from typing import Any

from sporax.base.errors import SporaxTypeError, SporaxValueError, check_type
from sporax.mindspore import ops
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.cell import Cell


class ResizeBilinear(Cell):
    """Images resized by bilinear interpolation, to a size or by a factor given at the call.

    Args:
        half_pixel_centers: pixels are squares with their centres at half positions.
    """

    def __init__(self, half_pixel_centers: bool = False) -> None:
        super().__init__()
        self.half_pixel_centers = argument.boolean("ResizeBilinear", "half_pixel_centers", half_pixel_centers)

    def construct(
        self, x: Tensor, size: Any = None, scale_factor: int | None = None, align_corners: bool = False
    ) -> Tensor:
        """`x`: (N, C, H, W); either `size` (H, W) or the int `scale_factor`; `align_corners`: corner pixels keep their values.

        Raises:
            SporaxValueError: not exactly one of `size` and `scale_factor`, or align_corners together with half_pixel_centers.
        """
        if (size is None) == (scale_factor is None):
            raise SporaxValueError(
                f"For 'ResizeBilinear', give either 'size' or 'scale_factor', but got {size} and {scale_factor}."
            )
        if align_corners and self.half_pixel_centers:
            raise SporaxValueError(
                "For 'ResizeBilinear', 'align_corners' and 'half_pixel_centers' can not both be True."
            )
        if size is None:
            factor = argument.positive_int("ResizeBilinear", "scale_factor", scale_factor)
            # With aligned corners, distances between pixels are multiplied, not sizes.
            size = tuple((length - 1) * factor + 1 if align_corners else length * factor for length in x.shape[2:])
        return ops.ResizeBilinear(tuple(size), align_corners, self.half_pixel_centers)(x)


class Upsample(Cell):
    """Signals, images or volumes (N, C, spatial…) resized.

    Args:
        size: target size, an int or one for each spatial dimension.
        scale_factor: factor instead of `size`.
        mode: ``"nearest"``, ``"linear"``, ``"bilinear"``, ``"bicubic"``, ``"trilinear"``, ``"area"``.
        align_corners: corner pixels keep their values.
        recompute_scale_factor: use the factor that the rounded target size amounts to.
    """

    def __init__(
        self,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        self.size = size
        self.scale_factor = scale_factor
        self.mode = mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def construct(self, x: Tensor) -> Tensor:
        """`x`: (N, C, spatial…)."""
        return ops.interpolate(
            x, self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor
        )


class PixelShuffle(Cell):
    """Channels spread over space: (…, C·r², H, W) to (…, C, H·r, W·r) (Shi et al. 2016)."""

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = argument.positive_int("PixelShuffle", "upscale_factor", upscale_factor)

    def construct(self, input: Tensor) -> Tensor:
        """`input`: (…, C·r², H, W)."""
        return ops.pixel_shuffle(input, self.upscale_factor)


class PixelUnshuffle(Cell):
    """Space gathered into channels: (…, C, H·r, W·r) to (…, C·r², H, W)."""

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = argument.positive_int("PixelUnshuffle", "downscale_factor", downscale_factor)

    def construct(self, input: Tensor) -> Tensor:
        """`input`: (…, C, H·r, W·r)."""
        return ops.pixel_unshuffle(input, self.downscale_factor)


class ChannelShuffle(Cell):
    """Channels (dim 1) dealt out by `groups` groups (Zhang et al. 2018)."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = argument.positive_int("ChannelShuffle", "groups", groups)

    def construct(self, x: Tensor) -> Tensor:
        """`x`: (N, C, …)."""
        return ops.channel_shuffle(x, self.groups)


class CentralCrop(Cell):
    """The middle of an image.

    Args:
        central_fraction: share of height and width that stays, in (0, 1].
    """

    def __init__(self, central_fraction: float) -> None:
        super().__init__()
        self.central_fraction = argument.exactly_float(
            "CentralCrop", "central_fraction", central_fraction, 0.0, 1.0, "(]"
        )

    def construct(self, image: Tensor) -> Tensor:
        """`image`: (C, H, W) or (N, C, H, W)."""
        if image.ndim not in (3, 4):
            raise SporaxValueError.must("CentralCrop", "image", "have 3 or 4 dimensions", f"shape {image.shape}")
        if self.central_fraction == 1.0:
            # Nothing to remove.
            return image
        spans = []
        for size in image.shape[-2:]:
            # Rounded down, as in MindSpore.
            start = int((size - size * self.central_fraction) / 2)
            spans.append(slice(start, size - start))
        return image[(..., *spans)]


class ImageGradients(Cell):
    """Differences of neighbouring pixels in vertical and horizontal direction; the last row and column are zero."""

    def construct(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """`images`: (N, C, H, W)."""
        if images.ndim != 4:
            raise SporaxValueError.must("ImageGradients", "images", "have 4 dimensions", f"shape {images.shape}")
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
    if img1.dtype != img2.dtype:
        raise SporaxTypeError(f"For '{name}', both images must have one dtype, but got {img1.dtype} and {img2.dtype}.")
    if img1.shape != img2.shape or img1.ndim != 4:
        raise SporaxValueError(
            f"For '{name}', both images must have one shape (N, C, H, W), but got {img1.shape} and {img2.shape}."
        )


class PSNR(Cell):
    """Peak signal-to-noise ratio of two batches of images, one number per image.

    Args:
        max_val: largest value a pixel can have.
    """

    def __init__(self, max_val: float = 1.0) -> None:
        super().__init__()
        self.max_val = argument.within("PSNR", "max_val", max_val, 0.0, math.inf, "()")

    def construct(self, img1: Tensor, img2: Tensor) -> Tensor:
        """`img1`, `img2`: (N, C, H, W)."""
        check_equal_images("PSNR", img1, img2)
        error = ops.reduce_mean(ops.square(img1 - img2), (1, 2, 3))
        return 10 * ops.log(self.max_val**2 / error) / math.log(10)


class Unfold(Cell):
    """Windows of an image, each laid out along the channels.

    Args:
        ksizes: ``[1, rows, columns, 1]`` of the window.
        strides: ``[1, rows, columns, 1]`` between windows.
        rates: ``[1, rows, columns, 1]`` between the pixels of a window.
        padding: ``"same"`` or ``"valid"``.

    Raises:
        SporaxTypeError, SporaxValueError: settings of another form.
    """

    def __init__(self, ksizes: Any, strides: Any, rates: Any, padding: str = "valid") -> None:
        super().__init__()
        for what, value in (("ksizes", ksizes), ("strides", strides), ("rates", rates)):
            check_type("Unfold", what, value, "a tuple or list", tuple | list)
            if len(value) != 4 or value[0] != 1 or value[3] != 1 or min(value) < 1:
                raise SporaxValueError(f"For 'Unfold', '{what}' must be [1, rows, columns, 1], but got {value}.")
        self.ksizes, self.strides, self.rates = (tuple(value[1:3]) for value in (ksizes, strides, rates))
        self.padding = argument.one_of("Unfold", "padding", padding.lower(), ("same", "valid"))

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
