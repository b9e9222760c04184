"""Layers that put cells around their input."""

from __future__ import annotations

from typing import Any

from sporax.base.errors import SporaxTypeError, SporaxValueError, check_type
from sporax.mindspore import ops
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.cell import Cell


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
        check_type("Pad", "paddings", paddings, "a tuple", tuple)
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
            raise SporaxValueError.must(name, "padding", f"be one or {2 * self.spatial} ints", padding)
        # Negative numbers of cells take cells away, which only constant padding can.
        SporaxValueError.raise_if(self.mode != "constant" and min(sides) < 0, name, "padding", "be >= 0", padding)
        return sides

    _exact = True
    value = 0.0

    def construct(self, x: Tensor) -> Tensor:
        """`x`: (N, C, spatial…) or (C, spatial…)."""
        if x.ndim < self.spatial or (self.mode != "constant" and x.ndim not in (self.spatial + 1, self.spatial + 2)):
            raise SporaxValueError(
                f"For '{type(self).__name__}', the input must have {self.spatial + 1} or {self.spatial + 2} dimensions, "
                f"but got shape {x.shape}."
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


class ConstantPad2d(_Constant):
    """`value` around the last two dimensions: `padding` is an int or (left, right, top, bottom)."""

    spatial = 2


class ConstantPad3d(_Constant):
    """`value` around the last three dimensions: `padding` is an int or (left, right, top, bottom, front, back)."""

    spatial = 3


class ZeroPad2d(_Around):
    """Zeros around the last two dimensions: `padding` is an int or (left, right, top, bottom)."""

    spatial = 2
    _exact = False


class ReflectionPad1d(_Around):
    """The input mirrored at both ends, without the edge: `padding` is an int or (left, right)."""

    mode = "reflect"


class ReflectionPad2d(ReflectionPad1d):
    """The input mirrored on all sides: `padding` is an int or (left, right, top, bottom)."""

    spatial = 2


class ReflectionPad3d(ReflectionPad1d):
    """The input mirrored on all sides: `padding` is an int or (left, right, top, bottom, front, back)."""

    spatial = 3


class ReplicationPad1d(_Around):
    """The edges repeated: `padding` is an int or (left, right)."""

    mode = "replicate"


class ReplicationPad2d(ReplicationPad1d):
    """The edges repeated on all sides: `padding` is an int or (left, right, top, bottom)."""

    spatial = 2


class ReplicationPad3d(ReplicationPad1d):
    """The edges repeated on all sides: `padding` is an int or (left, right, top, bottom, front, back)."""

    spatial = 3
