"""Layers of `sporax.mindspore.mint.nn` that rearrange, resize, drop or pass on.

Padding layers of `sporax.mindspore.mint.nn`: cells around the last dimensions.
"""

from __future__ import annotations

from typing import Any

from sporax.base.errors import SporaxTypeError, SporaxValueError, check_type
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.mint.nn import functional as F
from sporax.mindspore.mint.nn._layer import layer
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.nn.padding import _Around

Flatten = layer("Flatten", F.flatten, "Dimensions `start_dim` to `end_dim` made into one.", start_dim=1)
PixelShuffle = layer("PixelShuffle", F.pixel_shuffle, "Channels laid out as finer pixels (Shi et al. 2016).")
Unfold = layer("Unfold", F.unfold, "Patches of images as columns: (n, c, h, w) gives (n, c · kernel cells, places).")
Fold = layer("Fold", F.fold, "Patches added up to images of `output_size`: the transpose of `Unfold`.")
Upsample = layer(
    "Upsample",
    F.interpolate,
    "Tensors (n, c, …) resized in their spatial dims; settings as `nn.functional.interpolate`.",
)


def _nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    return F.interpolate(input, size, scale_factor, "nearest")


def _bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    return F.interpolate(input, size, scale_factor, "bilinear", True)


UpsamplingNearest2d = layer("UpsamplingNearest2d", _nearest, "Images resized by taking the nearest pixel.")
UpsamplingBilinear2d = layer(
    "UpsamplingBilinear2d",
    _bilinear,
    "Images resized by bilinear interpolation; the centres of the corner pixels coincide.",
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

    _in_repr = "p inplace"
    _drop = staticmethod(F.dropout)

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        self.p = argument.within(type(self).__name__, "p", p, 0.0, 1.0)
        self.inplace = argument.boolean(type(self).__name__, "inplace", inplace)

    def construct(self, input: Tensor) -> Tensor:
        """`input` of any shape."""
        return self._drop(input, self.p, self.training, self.inplace)


class Dropout2d(Dropout):
    """Zeroes whole channels of (n, c, h, w) or (c, h, w) at random while training; settings as `Dropout`."""

    _drop = staticmethod(F.dropout2d)


class _Padding(_Around):
    """Base of the padding layers.

    Args:
        padding: cells on every side, or (left, right, top, bottom, …), the last dimension first.

    Raises:
        SporaxTypeError: no ints.
        SporaxValueError: another number of them; or negative ones, unless the cells are constant.
    """

    def _sides(self, padding: int | tuple[int, ...] | list[int]) -> tuple[int, ...]:
        name, count = type(self).__name__, 2 * self.spatial
        sides = tuple(padding) if isinstance(padding, tuple | list) else (padding,) * count
        if any(isinstance(side, bool) or not isinstance(side, int) for side in sides):
            raise SporaxTypeError(f"For '{name}', 'padding' must be an int or {count} ints, but got {padding!r}.")
        SporaxValueError.raise_if(len(sides) != count, name, "padding", f"be one int or {count}", padding)
        SporaxValueError.raise_if(self.mode != "constant" and min(sides) < 0, name, "padding", "be >= 0", padding)
        return sides

    def construct(self, input: Tensor) -> Tensor:
        """`input` with as many trailing dimensions as the layer pads."""
        return F.pad(input, self.padding, mode=self.mode)


class _ConstantPadding(_Padding):
    """Base of the layers that pad with one number.

    Args:
        padding: cells on every side, or (left, right, top, bottom, …); negative ones take cells away.
        value: what they hold.
    """

    _in_repr = "padding value"

    def __init__(self, padding: int | tuple[int, ...] | list[int], value: float) -> None:
        super().__init__(padding)
        self.value = check_type(type(self).__name__, "value", value, "a number", int | float, takes_bool=False)

    def construct(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, mode=self.mode, value=self.value)


def _layer(name: str, base: type[_Padding], dims: int, what: str, mode: str = "constant") -> Any:
    doc = f"The last {dims} dims with {what} around." if dims > 1 else f"The last dim with {what} at both ends."
    return type(
        name, (base,), {"spatial": dims, "mode": mode, "__doc__": doc, "__module__": "sporax.mindspore.mint.nn"}
    )


ConstantPad1d = _layer("ConstantPad1d", _ConstantPadding, 1, "cells of one value")
ConstantPad2d = _layer("ConstantPad2d", _ConstantPadding, 2, "cells of one value")
ConstantPad3d = _layer("ConstantPad3d", _ConstantPadding, 3, "cells of one value")
ZeroPad1d = _layer("ZeroPad1d", _Padding, 1, "zeros")
ZeroPad2d = _layer("ZeroPad2d", _Padding, 2, "zeros")
ZeroPad3d = _layer("ZeroPad3d", _Padding, 3, "zeros")
ReflectionPad1d = _layer("ReflectionPad1d", _Padding, 1, "the cells mirrored at the edge", "reflect")
ReflectionPad2d = _layer("ReflectionPad2d", _Padding, 2, "the cells mirrored at the edge", "reflect")
ReflectionPad3d = _layer("ReflectionPad3d", _Padding, 3, "the cells mirrored at the edge", "reflect")
ReplicationPad1d = _layer("ReplicationPad1d", _Padding, 1, "the edge repeated", "replicate")
ReplicationPad2d = _layer("ReplicationPad2d", _Padding, 2, "the edge repeated", "replicate")
ReplicationPad3d = _layer("ReplicationPad3d", _Padding, 3, "the edge repeated", "replicate")
