"""Pooling whose windows do not tile evenly: adaptive, at slightly irregular places (Graham 2014), or with a pad mode.

Of adaptive pooling the size of the result is given, and windows follow from it: they differ in size by one and may overlap where
the sizes do not divide, see `_bounds`. XLA's `reduce_window` and its derivative, a scatter, are slow on CPUs; windows that do not
overlap are small slices instead, which are compared directly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For, SporaxValueError
from sporax.mindspore.common import Tensor, dtypes
from sporax.mindspore.ops._core import FUNCTIONS, Array, ImageFormat, check, known, operator, pair, promote
from sporax.mindspore.ops.nn.window_dims import POOLING
from sporax.mindspore.ops.random.dropout import rand

Sizes = int | tuple[int | None, ...] | None


def _bounds(length: int, size: int) -> list[tuple[int, int]]:
    """Cell i covers the elements floor(i·whole/size) up to ceil((i+1)·whole/size)."""
    return [(cell * length // size, -(-(cell + 1) * length // size)) for cell in range(size)]


def _by_cells(x: Array, goal: Sequence[int], reduce: Callable[..., Array]) -> Array:
    """`x` whose last dims have the sizes `goal`, a reduction of each cell."""
    # Dim by dim: means of means and maxima of maxima are exact here, as cells are boxes.
    for dim, size in enumerate(goal, start=x.ndim - len(goal)):
        cells = [jax.lax.slice_in_dim(x, *bound, axis=dim) for bound in _bounds(x.shape[dim], size)]
        x = jnp.concatenate([reduce(cell, axis=dim, keepdims=True) for cell in cells], dim)
    return x


def _goal_of_image(name: str, x: Array, output_size: Any) -> list[int]:
    """Height and width after pooling an image of any dtype."""
    check.rank(name, (3, 4), x=x)
    sizes = (output_size,) * 2 if isinstance(output_size, int) or output_size is None else output_size
    if len(sizes) != 2 or min(size for size in (*sizes, 1) if size is not None) < 1:
        raise SporaxValueError(f"For '{name}', 'output_size' must be one or two sizes >= 1, but got {output_size}.")
    return [length if target is None else target for target, length in zip(sizes, x.shape[-2:], strict=True)]


@operator(function="adaptive_avg_pool2d", mint="nn.functional.adaptive_avg_pool2d")
def adaptive_avg_pool2d(input: Array, output_size: Sizes) -> Array:
    """Means that bring height and width to `output_size`; None keeps a size."""
    return _by_cells(input, _goal_of_image("adaptive_avg_pool2d", input, output_size), jnp.mean)


@operator(function="adaptive_max_pool2d")
def adaptive_max_pool2d(input: Array, output_size: Sizes, return_indices: bool = False) -> Any:
    """Maxima that bring height and width to `output_size`; None keeps a size.

    With `return_indices` also where they are: int64 positions in the flattened image.
    """
    # The first of equal maxima has the gradient, as in MindSpore.
    values, positions = _with_positions(input, _goal_of_image("adaptive_max_pool2d", input, output_size))
    return (values, positions) if return_indices else values


def _goal(name: str, x: Array, output_size: Any, dims: int) -> tuple[int, ...]:
    check.rank(name, (dims + 1, dims + 2), x=x)
    # Volumes may hold integers in MindSpore.
    (check.numeric if dims == 3 else check.floating)(name, x=x)
    goal = output_size if isinstance(output_size, tuple) else (output_size,) * dims
    if len(goal) != dims or any(size is not None and size < 1 for size in goal):
        raise SporaxValueError(f"For '{name}', 'output_size' must be ints >= 1 or None, but got {output_size}.")
    return tuple(length if size is None else size for size, length in zip(goal, x.shape[-dims:], strict=True))


def _adaptive_mean(name: str, x: Array, output_size: Any, dims: int) -> Array:
    # Integers are rounded towards 0.
    return _by_cells(promote.inexact(x), _goal(name, x, output_size, dims), jnp.mean).astype(x.dtype)


def _with_positions(x: Array, goal: Sequence[int]) -> tuple[Array, Array]:
    """Maxima, dim by dim from the last, with the positions carried along (the first of equals in row-major order)."""
    spatial = x.shape[-len(goal) :]
    # Positions are carried along, as each dim moves elements.
    positions = jnp.broadcast_to(jnp.arange(math.prod(spatial), dtype=jnp.int64).reshape(spatial), x.shape)
    # From the last dim, so that the first of equals in row-major order wins.
    for dim in reversed(range(x.ndim - len(goal), x.ndim)):
        picked = []
        for bound in _bounds(x.shape[dim], goal[dim - x.ndim]):
            cell, where = (jax.lax.slice_in_dim(array, *bound, axis=dim) for array in (x, positions))
            best = jnp.argmax(cell, dim, keepdims=True)
            picked.append([jnp.take_along_axis(array, best, dim) for array in (cell, where)])
        x, positions = (jnp.concatenate(parts, dim) for parts in zip(*picked, strict=True))
    return x, positions


def _adaptive_max(name: str, x: Array, output_size: Any, dims: int, index: bool) -> Any:
    values, positions = _with_positions(x, _goal(name, x, output_size, dims))
    # int32 for volumes, as MindSpore gives it.
    return (values, positions.astype(jnp.int32) if dims == 3 else positions) if index else values


def _adaptive_forms(dims: int) -> None:
    mean, top = f"adaptive_avg_pool{dims}d", f"adaptive_max_pool{dims}d"

    def average(input: Array, output_size: Sizes) -> Array:
        return _adaptive_mean(mean, input, output_size, dims)

    def maximum(input: Array, output_size: Sizes) -> Array:
        return _adaptive_max(top, input, output_size, dims, False)

    def with_indices(input: Array, output_size: Sizes, return_indices: bool = False) -> Any:
        return _adaptive_max(top, input, output_size, dims, return_indices)

    for form in (average, maximum, with_indices):
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
def _adaptive_avg_pool2d(input_x: Array, output_size: Sizes) -> Array:
    """Means that bring the last 2 dims to `output_size`; None keeps a size."""
    return _adaptive_mean("AdaptiveAvgPool2D", input_x, output_size, 2)


@operator("AdaptiveAvgPool3D(output_size)", function="")
def _adaptive_avg_pool3d(x: Array, output_size: Sizes) -> Array:
    """Means that bring the last 3 dims to `output_size`; None keeps a size."""
    return _adaptive_mean("AdaptiveAvgPool3D", x, output_size, 3)


@operator("AdaptiveMaxPool2D(output_size)", function="")
def _adaptive_max_pool2d(input: Array, output_size: Sizes) -> tuple[Array, Array]:
    """Maxima that bring the last 2 dims to `output_size`, and their positions in the flattened image."""
    return _adaptive_max("AdaptiveMaxPool2D", input, output_size, 2, True)


@operator("AdaptiveMaxPool3D()", function="", composed=True)
def _adaptive_max_pool3d_class(x: Any, output_size: Any) -> Any:
    """Maxima that bring the last 3 dims to `output_size`, and their positions (int32) in the flattened volume."""
    # A Tensor in MindSpore's class; it decides the shape.
    sizes = tuple(known("AdaptiveMaxPool3D", "output_size", output_size).tolist())
    values, positions = FUNCTIONS["adaptive_max_pool3d"](x, sizes, True)
    return values, positions.astype(dtypes.int32)


def _starts(sample: Array, size: int, window: int, count: int) -> Array:
    """Where the windows along one dim begin; `sample` in [0, 1) moves them, (…,) gives (…, count)."""
    # The last window always ends at the edge.
    last = jnp.full((*sample.shape, 1), size - window, jnp.int32)
    if count == 1:
        return last
    # The mean distance of windows; the sample moves all of them together.
    ratio = (size - window) / (count - 1)
    inner = jnp.floor((np.arange(count - 1) + sample[..., None]) * ratio) - jnp.floor(sample[..., None] * ratio)
    return jnp.concatenate([inner.astype(jnp.int32), last], -1)


def _pooled(
    name: str, x: Array, samples: Array, window: tuple[int, ...], output: tuple[int, ...]
) -> tuple[Array, Array]:
    """The largest values and their places, counted through the image.

    The first of two random samples moves windows along the width; of three, along the depth, as in MindSpore.
    """
    dims = len(window)
    check.rank(name, dims + 2, x=x)
    sizes = x.shape[2:]
    if samples.shape != (*x.shape[:2], dims):
        raise For(name).error(f"the random samples must have shape {(*x.shape[:2], dims)}", samples.shape)
    # Windows start at different places only if there are so many.
    if any(count + edge - 1 > size for count, edge, size in zip(output, window, sizes, strict=True)):
        raise SporaxValueError(
            f"For '{name}', windows of {window} at {output} places need an input of at least "
            f"{tuple(c + w - 1 for c, w in zip(output, window, strict=True))}, but its sizes are {sizes}."
        )
    # Which sample moves which dim is MindSpore's choice.
    order = range(dims) if dims == 3 else range(dims - 1, -1, -1)
    at: Any = jnp.zeros((), jnp.int32)
    for dim, sample in zip(range(dims), order, strict=True):
        start = _starts(samples[..., sample], sizes[dim], window[dim], output[dim])
        reached = start[..., None] + jnp.arange(window[dim])  # (n, c, count, window)
        # Output dims in front, window dims behind, so that all dims broadcast to every combination.
        spread = [1] * (2 * dims)
        spread[dim], spread[dims + dim] = output[dim], window[dim]
        at = at + reached.reshape(*x.shape[:2], *spread) * math.prod(sizes[dim + 1 :])
    cells = at.reshape(*x.shape[:2], -1)
    values = jnp.take_along_axis(x.reshape(*x.shape[:2], -1), cells, -1)
    values = values.reshape(*x.shape[:2], *output, -1)
    best = jnp.argmax(values, -1)[..., None]
    positions = jnp.take_along_axis(cells.reshape(values.shape), best, -1)
    return jnp.take_along_axis(values, best, -1)[..., 0], positions[..., 0].astype(jnp.int64)


def _sizes(name: str, what: str, value: Any, dims: int) -> tuple[int, ...]:
    """One int for all dims, or one for each; of a tuple with the sizes of samples and channels too, the last ones."""
    values = check.shape(name, value, what)
    values = values * dims if len(values) == 1 else values[-dims:]
    For(name).refuse(len(values) != dims or min(values) < 1, f"'{what}' must be one or {dims} ints >= 1", value)
    return values


@operator("FractionalMaxPoolWithFixedKsize(ksize, output_shape, data_format)", function="")
def _fractional_2d(
    input_x: Array,
    random_samples: Array,
    ksize: int | tuple[int, ...],
    output_shape: int | tuple[int, ...],
    data_format: str = "NCHW",
) -> tuple[Array, Array]:
    """Largest values (n, c, h, w) over windows of `ksize`, and their places; `random_samples`: (n, c, 2) in [0, 1)."""
    name = "FractionalMaxPoolWithFixedKsize"
    check.one_of(name, data_format, ("NCHW",), "data_format")
    window, output = _sizes(name, "ksize", ksize, 2), _sizes(name, "output_shape", output_shape, 2)
    return _pooled(name, input_x, random_samples, window, output)


@operator("FractionalMaxPool3DWithFixedKsize(ksize, output_shape, data_format)", function="")
def _fractional_3d(
    x: Array,
    random_samples: Array,
    ksize: int | tuple[int, ...],
    output_shape: int | tuple[int, ...],
    data_format: str = "NCDHW",
) -> tuple[Array, Array]:
    """Largest values (n, c, d, h, w) over windows of `ksize`, and their places; `random_samples`: (n, c, 3) in [0, 1)."""
    name = "FractionalMaxPool3DWithFixedKsize"
    check.one_of(name, data_format, ("NCDHW",), "data_format")
    window, output = _sizes(name, "ksize", ksize, 3), _sizes(name, "output_shape", output_shape, 3)
    return _pooled(name, x, random_samples, window, output)


def _register(dims: int, kernel: Any) -> None:
    name = f"fractional_max_pool{dims}d"

    def function(
        input: Any,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Any = None,
    ) -> Any:
        if input.ndim not in (dims + 1, dims + 2):
            raise For(name).error(f"'input' must have {dims + 1} or {dims + 2} dimensions, but got shape {input.shape}")
        if (output_size is None) == (output_ratio is None):
            raise For(name).error("give either 'output_size' or 'output_ratio'", output_size, output_ratio)
        if output_size is None:
            ratios = output_ratio if isinstance(output_ratio, tuple) else (output_ratio,) * dims
            # Rounded down, as in MindSpore.
            output_size = tuple(int(size * ratio) for size, ratio in zip(input.shape[-dims:], ratios, strict=True))
        batched: Tensor = input if input.ndim == dims + 2 else input.expand_dims(0)
        if _random_samples is None:
            _random_samples = rand(*batched.shape[:2], dims, dtype=batched.dtype)
        values, positions = kernel(batched, _random_samples, kernel_size, output_size)
        if batched is not input:
            values, positions = values[0], positions[0]
        return (values, positions) if return_indices else values

    function.__name__ = name
    function.__doc__ = f"""Largest values over windows at random places in {dims} dims.

    Args:
        input: (n, c, …) or (c, …), {dims} spatial dims.
        kernel_size: size of a window, an int or one for each dim.
        output_size: number of windows, likewise.
        output_ratio: number of windows as a share of the input's size, in (0, 1), instead.
        return_indices: give the places of the values too, counted through the image.
        _random_samples: (n, c, {dims}), numbers in [0, 1) that give the places of the windows; None: drawn.
    """
    operator(function=name, composed=True)(function)


_register(2, _fractional_2d)
_register(3, _fractional_3d)

PoolPadding = Literal["same", "valid", "SAME", "VALID"]
_LARGEST_TILE = 8
"""Edge of the largest window for which `_tile_maxima` compares slice by slice."""


def _window(
    name: str, x: Array, kernel_size: Any, strides: Any, data_format: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    check.rank(name, 4, x=x)
    size, step = pair(name, kernel_size, "kernel_size"), pair(name, strides, "strides")
    # Leading ones: neither samples nor channels are pooled.
    if data_format == "NCHW":
        return (1, 1, *size), (1, 1, *step)
    return (1, *size, 1), (1, *step, 1)


def _fits(name: str, result: Array, x: Array, kernel_size: Any) -> Array:
    For(name).refuse(0 in result.shape, f"the window {kernel_size} does not fit into 'x' of shape {x.shape}")
    return result


@operator("MaxPool", function="", dims=POOLING)
def _max_pool(
    x: Array,
    kernel_size: int | tuple[int, ...] = 1,
    strides: int | tuple[int, ...] = 1,
    pad_mode: PoolPadding = "valid",
    data_format: ImageFormat = "NCHW",
) -> Array:
    """Largest value in each window. `x` is (N, C, H, W), or (N, H, W, C) for NHWC."""
    window, step = _window("MaxPool", x, kernel_size, strides, data_format)
    # A rest only exists with "same", where it would need padding.
    divides = all(length % size == 0 for length, size in zip(x.shape, window, strict=True))
    if window == step and max(window) <= _LARGEST_TILE and (divides or pad_mode.upper() == "VALID"):
        return _fits("MaxPool", _tile_maxima(x, window), x, kernel_size)
    # Padding never wins.
    lowest = np.asarray(-np.inf if jnp.issubdtype(x.dtype, jnp.floating) else jnp.iinfo(x.dtype).min, x.dtype)
    result = jax.lax.reduce_window(x, lowest, jax.lax.max, window, step, pad_mode.upper())
    return _fits("MaxPool", result, x, kernel_size)


def _tile_maxima(x: Array, window: tuple[int, ...]) -> Array:
    """Largest value in each of the tiles that `x` is divided into; a rest at the edges that fills no tile is left out.

    Comparing slices is 2 to 8 times faster on CPUs than `reduce_window`, and its derivative, which needs no scatter, 5 to
    16 times. Columns are compared before rows, so that of equal values the first in memory gets the derivative.
    """
    for dim in reversed(range(x.ndim)):
        size, count = window[dim], x.shape[dim] // window[dim]
        if size > 1:
            shortened = jax.lax.slice_in_dim(x, 0, count * size, axis=dim)
            tiles = shortened.reshape(*x.shape[:dim], count, size, *x.shape[dim + 1 :])
            x, *others = (jax.lax.index_in_dim(tiles, place, dim + 1, keepdims=False) for place in range(size))
            for other in others:
                x = jnp.where((other > x) | (other != other), other, x)  # NaN wins, as everywhere
    return x


@operator("AvgPool", function="", dims=POOLING)
def _avg_pool(
    x: Array,
    kernel_size: int | tuple[int, ...] = 1,
    strides: int | tuple[int, ...] = 1,
    pad_mode: PoolPadding = "VALID",
    data_format: ImageFormat = "NCHW",
) -> Array:
    """Mean of each window, counting only cells inside the image. `x` is (N, C, H, W), or (N, H, W, C) for NHWC."""
    window, step = _window("AvgPool", x, kernel_size, strides, data_format)

    def total(values: Array) -> Array:
        return jax.lax.reduce_window(values, np.asarray(0, x.dtype), jax.lax.add, window, step, pad_mode.upper())

    # Divided by the cells inside of the image, as MindSpore counts.
    return _fits("AvgPool", total(x) / total(jnp.ones_like(x)), x, kernel_size)
