"""Adaptive pooling: the size of the result is given, and windows follow from it.

Windows differ in size by one and may overlap where the sizes do not divide, see `_bounds`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import SporaxValueError
from sporax.mindspore.common import dtype as dtypes
from sporax.mindspore.ops._core import check, extremes
from sporax.mindspore.ops._core.check import Pair, known
from sporax.mindspore.ops._core.operator import FUNCTIONS, Array, operator


def _adaptive(name: str, reduce: Callable[..., Array]) -> Callable[[Array, Any], Array]:
    """Pooling to a given output size: cell i covers rows floor(i·H/h) up to ceil((i+1)·H/h)."""

    def pool(x: Array, output_size: Any) -> Array:
        check.rank(name, (3, 4), x=x)
        sizes = (output_size,) * 2 if isinstance(output_size, int) or output_size is None else output_size
        if len(sizes) != 2 or min(size for size in (*sizes, 1) if size is not None) < 1:
            raise SporaxValueError(f"For '{name}', 'output_size' must be one or two sizes >= 1, but got {output_size}.")
        # None keeps the size of a dim.
        goal = [length if target is None else target for target, length in zip(sizes, x.shape[-2:], strict=True)]
        for axis, target in zip((-2, -1), goal, strict=True):
            # Dim by dim: means of means and maxima of maxima are exact here, as cells are boxes.
            x = jnp.concatenate(list(_cells(x, axis, target, reduce)), axis)
        return x

    return pool


def _cells(x: Array, axis: int, size: int, reduce: Callable[..., Array]) -> Any:
    length = x.shape[axis]
    for cell in range(size):
        # Cells may overlap by one element where sizes do not divide.
        first, last = cell * length // size, -(-(cell + 1) * length // size)
        yield reduce(jax.lax.slice_in_dim(x, first, last, axis=axis), axis=axis, keepdims=True)


@operator(function="adaptive_avg_pool2d", mint="nn.functional.adaptive_avg_pool2d")
def adaptive_avg_pool2d(input: Array, output_size: int | tuple[int | None, ...] | None) -> Array:
    """Means that bring height and width to `output_size`; None keeps a size."""
    return _adaptive("adaptive_avg_pool2d", jnp.mean)(input, output_size)


@operator(function="adaptive_max_pool2d")
def adaptive_max_pool2d(
    input: Array, output_size: int | tuple[int | None, ...] | None, return_indices: bool = False
) -> Any:
    """Maxima that bring height and width to `output_size`; None keeps a size.

    With `return_indices` also where they are: int64 positions in the flattened image.
    """
    values = _adaptive("adaptive_max_pool2d", extremes.largest)(input, output_size)
    if not return_indices:
        return values
    height, width = input.shape[-2:]
    # Positions in the flattened image, for every element.
    positions = jnp.broadcast_to(jnp.arange(height * width).reshape(height, width), input.shape)
    sizes = values.shape[-2:]
    rows = [
        jnp.stack([_place_of_largest(input, positions, (row, column), sizes) for column in range(sizes[1])], -1)
        for row in range(sizes[0])
    ]
    return values, jnp.stack(rows, -2)


def _place_of_largest(x: Array, positions: Array, cell: Pair, sizes: tuple[int, ...]) -> Array:
    """Of cell (row, column) of a pooling to `sizes`: the position of its first largest element."""
    (top, bottom), (left, right) = (
        (index * length // size, -(-(index + 1) * length // size))
        for index, size, length in zip(cell, sizes, x.shape[-2:], strict=True)
    )
    flat = (*x.shape[:-2], (bottom - top) * (right - left))
    values, indices = (array[..., top:bottom, left:right].reshape(flat) for array in (x, positions))
    # The first of equal elements, in row-major order.
    return jnp.take_along_axis(indices, jnp.argmax(values, -1, keepdims=True), -1)[..., 0]


def _bounds(length: int, size: int) -> list[tuple[int, int]]:
    """Cell i covers the elements floor(i·whole/size) up to ceil((i+1)·whole/size)."""
    return [(cell * length // size, -(-(cell + 1) * length // size)) for cell in range(size)]


def _goal(name: str, x: Array, output_size: Any, dims: int) -> tuple[int, ...]:
    check.rank(name, (dims + 1, dims + 2), x=x)
    check.floating(name, x=x)
    goal = output_size if isinstance(output_size, tuple) else (output_size,) * dims
    if len(goal) != dims or any(size is not None and size < 1 for size in goal):
        raise SporaxValueError(f"For '{name}', 'output_size' must be ints >= 1 or None, but got {output_size}.")
    return tuple(length if size is None else size for size, length in zip(goal, x.shape[-dims:], strict=True))


def _adaptive_mean(name: str, x: Array, output_size: Any, dims: int) -> Array:
    for dim, size in enumerate(_goal(name, x, output_size, dims), start=x.ndim - dims):
        cells = [jax.lax.slice_in_dim(x, *bound, axis=dim) for bound in _bounds(x.shape[dim], size)]
        x = jnp.concatenate([jnp.mean(cell, dim, keepdims=True) for cell in cells], dim)
    return x


def _adaptive_max(name: str, x: Array, output_size: Any, dims: int, index: bool) -> Any:
    """Maxima, dim by dim from the last, with the positions carried along (the first of equals in row-major order)."""
    goal = _goal(name, x, output_size, dims)
    spatial = x.shape[-dims:]
    # Positions are carried along, as each dim moves elements.
    positions = jnp.broadcast_to(jnp.arange(int(np.prod(spatial)), dtype=jnp.int64).reshape(spatial), x.shape)
    # From the last dim, so that the first of equals in row-major order wins.
    for dim in reversed(range(x.ndim - dims, x.ndim)):
        picked = []
        for bound in _bounds(x.shape[dim], goal[dim - x.ndim]):
            cell, where = (jax.lax.slice_in_dim(array, *bound, axis=dim) for array in (x, positions))
            best = jnp.argmax(cell, dim, keepdims=True)
            picked.append([jnp.take_along_axis(array, best, dim) for array in (cell, where)])
        x, positions = (jnp.concatenate(parts, dim) for parts in zip(*picked, strict=True))
    # int32 for volumes, as MindSpore gives it.
    return (x, positions.astype(jnp.int32) if dims == 3 else positions) if index else x


def _adaptive_forms(dims: int) -> None:
    size_type = int | tuple[int | None, ...] | None
    mean, top = f"adaptive_avg_pool{dims}d", f"adaptive_max_pool{dims}d"

    def average(input: Array, output_size: size_type) -> Array:
        return _adaptive_mean(mean, input, output_size, dims)

    def maximum(input: Array, output_size: size_type) -> Array:
        return _adaptive_max(top, input, output_size, dims, False)

    def with_indices(input: Array, output_size: size_type, return_indices: bool = False) -> Any:
        return _adaptive_max(top, input, output_size, dims, return_indices)

    for form in (average, maximum, with_indices):
        # Set afterwards: annotations of these functions are text otherwise.
        form.__annotations__["output_size"] = size_type
        form.__name__ = mean if form is average else top
        form.__doc__ = f"{'Means' if form is average else 'Maxima'} that bring the last {dims} dims to `output_size`."
    if dims != 2:
        operator(function=mean, mint=f"nn.functional.{mean}")(average)
        # Which names take indices differs by dims, as in MindSpore.
        operator(function=top)(maximum if dims == 1 else with_indices)
    if dims < 3:
        operator(function="", mint=f"nn.functional.{top}")(with_indices)


for _dims in (1, 2, 3):
    _adaptive_forms(_dims)


@operator("AdaptiveAvgPool2D(output_size)", function="")
def _adaptive_avg_pool2d(input_x: Array, output_size: int | tuple[int | None, ...] | None) -> Array:
    """Means that bring the last 2 dims to `output_size`; None keeps a size."""
    return _adaptive_mean("AdaptiveAvgPool2D", input_x, output_size, 2)


@operator("AdaptiveAvgPool3D(output_size)", function="")
def _adaptive_avg_pool3d(x: Array, output_size: int | tuple[int | None, ...] | None) -> Array:
    """Means that bring the last 3 dims to `output_size`; None keeps a size."""
    return _adaptive_mean("AdaptiveAvgPool3D", x, output_size, 3)


@operator("AdaptiveMaxPool2D(output_size)", function="")
def _adaptive_max_pool2d(input: Array, output_size: int | tuple[int | None, ...] | None) -> tuple[Array, Array]:
    """Maxima that bring the last 2 dims to `output_size`, and their positions in the flattened image."""
    return _adaptive_max("AdaptiveMaxPool2D", input, output_size, 2, True)


@operator("AdaptiveMaxPool3D()", function="", composed=True)
def _adaptive_max_pool3d_class(x: Any, output_size: Any) -> Any:
    """Maxima that bring the last 3 dims to `output_size`, and their positions (int32) in the flattened volume."""
    # A Tensor in MindSpore's class; it decides the shape.
    sizes = tuple(known("AdaptiveMaxPool3D", "output_size", output_size).tolist())
    values, positions = FUNCTIONS["adaptive_max_pool3d"](x, sizes, True)
    return values, positions.astype(dtypes.int32)
