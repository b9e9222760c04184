"""Layers around single functions that MindSpore has replaced by the functions: `Range`, `Roll`, `Moments`."""

from __future__ import annotations

from typing import Any

import numpy as np

from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.mindspore import ops
from sporax.mindspore.common import dtype as dtypes
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.cell import Cell


class Range(Cell):
    """The numbers from `start` up to `limit` in steps of `delta`: int32, or float32 where one of them is a float.

    Args:
        start: first number; with `start` alone the numbers go from 0 to it.
        limit: end, which is not one of them.
        delta: step.

    Raises:
        SporaxValueError: `delta` is 0.
    """

    def __init__(self, start: float, limit: float | None = None, delta: float = 1) -> None:
        super().__init__()
        if delta == 0:
            raise SporaxValueError("For 'Range', 'delta' must not be 0, but got 0.")
        numbers = np.arange(0, start, delta) if limit is None else np.arange(start, limit, delta)
        # MindSpore has no float64 here.
        self.numbers = Tensor(numbers, dtypes.float32 if numbers.dtype == np.float64 else dtypes.int32)

    def construct(self) -> Tensor:
        """The numbers."""
        return self.numbers


class Roll(Cell):
    """Elements moved along dims; those that fall off the end come in at the start.

    Args:
        shift: how far, one number or one per dim of `axis`.
        axis: dim, or dims.

    Raises:
        SporaxTypeError: neither ints nor tuples or lists of ints.
        SporaxValueError: not as many shifts as dims.
    """

    def __init__(self, shift: int | tuple[int, ...] | list[int], axis: int | tuple[int, ...] | list[int]) -> None:
        super().__init__()
        self.shift, self.axis = _ints("shift", shift), _ints("axis", axis)
        if len(self.shift) != len(self.axis):
            raise SporaxValueError(
                f"For 'Roll', 'shift' and 'axis' must have the same length, but got {len(self.shift)} and {len(self.axis)}."
            )

    def construct(self, input_x: Tensor) -> Tensor:
        """`input_x` of any shape."""
        return ops.roll(input_x, self.shift, self.axis)


class Moments(Cell):
    """Mean and variance.

    Args:
        axis: dim or dims; all by default.
        keep_dims: keep them with size 1.

    Raises:
        SporaxTypeError: an argument, or at the call the dtype, is not valid: float16 or float32.
    """

    def __init__(self, axis: int | tuple[int, ...] | None = None, keep_dims: bool | None = None) -> None:
        super().__init__()
        if axis is not None and not isinstance(axis, int | tuple):
            raise SporaxTypeError(f"For 'Moments', 'axis' must be an int or a tuple, but got {type(axis).__name__}.")
        self.axis = () if axis is None else axis
        self.keep_dims = argument.boolean("Moments", "keep_dims", bool(keep_dims) if keep_dims is None else keep_dims)

    def construct(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """`x` of any shape; mean and variance."""
        if x.dtype not in (dtypes.float16, dtypes.float32):
            raise SporaxTypeError(f"For 'Moments', 'x' must be float16 or float32, but got {x.dtype}.")
        # Means of float16 numbers would lose digits.
        wide = x.astype(dtypes.float32)
        mean = ops.mean(wide, self.axis, True)
        # The mean counts as a constant: its derivative cancels anyway.
        variance = ops.mean(ops.square(wide - ops.stop_gradient(mean)), self.axis, True)
        if not self.keep_dims:
            dims = tuple(range(x.ndim)) if self.axis == () else self.axis
            mean, variance = ops.squeeze(mean, dims), ops.squeeze(variance, dims)
        return mean.astype(x.dtype), variance.astype(x.dtype)


def _ints(what: str, value: Any) -> tuple[int, ...]:
    values = tuple(value) if isinstance(value, tuple | list) else (value,)
    for item in values:
        if isinstance(item, bool) or not isinstance(item, int):
            raise SporaxTypeError.must("Roll", what, "be an int, or a tuple or list of ints", repr(value))
    return values
