"""Layers of `sporax.mindspore.mint.nn` that rearrange, resize, drop or pass on."""

from __future__ import annotations

from typing import Any

from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.mint.nn import functional as F
from sporax.mindspore.mint.nn._layer import REQUIRED, layer
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.cell import Cell

Flatten = layer("Flatten", F.flatten, "Dimensions `start_dim` to `end_dim` made into one.", start_dim=1, end_dim=-1)
PixelShuffle = layer(
    "PixelShuffle", F.pixel_shuffle, "Channels laid out as finer pixels (Shi et al. 2016).", upscale_factor=REQUIRED
)
Unfold = layer(
    "Unfold",
    F.unfold,
    "Patches of images as columns: (n, c, h, w) gives (n, c · kernel cells, places).",
    kernel_size=REQUIRED,
    dilation=1,
    padding=0,
    stride=1,
)
Fold = layer(
    "Fold",
    F.fold,
    "Patches added up to images of `output_size`: the transpose of `Unfold`.",
    output_size=REQUIRED,
    kernel_size=REQUIRED,
    dilation=1,
    padding=0,
    stride=1,
)
Upsample = layer(
    "Upsample",
    F.interpolate,
    "Tensors (n, c, …) resized in their spatial dims; settings as `nn.functional.interpolate`.",
    size=None,
    scale_factor=None,
    mode="nearest",
    align_corners=None,
    recompute_scale_factor=None,
)


def _nearest(input: Tensor, size: Any, scale_factor: Any) -> Tensor:
    return F.interpolate(input, size, scale_factor, "nearest")


def _bilinear(input: Tensor, size: Any, scale_factor: Any) -> Tensor:
    return F.interpolate(input, size, scale_factor, "bilinear", True)


UpsamplingNearest2d = layer(
    "UpsamplingNearest2d", _nearest, "Images resized by taking the nearest pixel.", size=None, scale_factor=None
)
UpsamplingBilinear2d = layer(
    "UpsamplingBilinear2d",
    _bilinear,
    "Images resized by bilinear interpolation; the centres of the corner pixels coincide.",
    size=None,
    scale_factor=None,
)


class Identity(Cell):
    """Gives its input back. Any settings are taken, so that it can stand in for another layer."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def construct(self, input: Any) -> Any:
        """Anything."""
        return input


class Dropout(Cell):
    """Zeroes elements at random while training, and scales the others so that the mean stays.

    Args:
        p: probability of an element to be zeroed, in [0, 1].
        inplace: write the result to the input.

    Raises:
        SporaxTypeError, SporaxValueError: no such probability or switch.
    """

    _drop = staticmethod(F.dropout)

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        self.p = argument.within(type(self).__name__, "p", p, 0.0, 1.0)
        self.inplace = argument.boolean(type(self).__name__, "inplace", inplace)

    def construct(self, input: Tensor) -> Tensor:
        """`input` of any shape."""
        return self._drop(input, self.p, self.training, self.inplace)

    def extend_repr(self) -> str:
        """Settings."""
        return f"p={self.p}, inplace={self.inplace}"


class Dropout2d(Dropout):
    """Zeroes whole channels of (n, c, h, w) or (c, h, w) at random while training; settings as `Dropout`."""

    _drop = staticmethod(F.dropout2d)
