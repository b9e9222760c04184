"""Pooling over one, two and three spatial dims: means, maxima with their positions, powers; and undoing maxima."""

from __future__ import annotations

import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For, SporaxValueError
from sporax.mindspore.common import DType, dtypes
from sporax.mindspore.ops._core import FUNCTIONS, Array, check, operator, other_form, per_dim, promote
from sporax.mindspore.ops.nn.convolution import Edges, PadMode, Setting, edges, resolved_edges
from sporax.mindspore.ops.nn.window_dims import POOLING

Window = int | tuple[int, ...]


def with_ceil(sizes: Any, window: Any, stride: Any, around: Edges) -> Edges:
    """Padding enlarged behind so that a last, partial window fits, unless it would start in the padding."""
    grown = []
    for size, reach, step, (low, high) in zip(sizes, window, stride, around, strict=True):
        count = -(-(size + low + high - reach) // step) + 1
        if (count - 1) * step >= size + low:
            count -= 1
        grown.append((low, max((count - 1) * step + reach - size - low, high)))
    return tuple(grown)


def _over_windows(x: Any, start: Any, combine: Any, window: Any, stride: Any, around: Edges, gap: Any = None) -> Any:
    # Samples and channels have windows of size 1.
    lead = (1,) * (jax.tree.leaves(x)[0].ndim - len(window))
    sizes, steps, gaps = ((*lead, *setting) for setting in (window, stride, gap or (1,) * len(window)))
    padding = [(0, 0)] * len(lead) + list(around)
    return jax.lax.reduce_window(x, start, combine, sizes, steps, padding, window_dilation=gaps)


def _summed(x: Array, window: Any, stride: Any, around: Edges) -> Array:
    return _over_windows(x, np.asarray(0, x.dtype), jax.lax.add, window, stride, around)


def fits(name: str, result: Array, x: Array, window: tuple[int, ...]) -> Array:
    """`result`, unless XLA made it empty: where a window does not fit."""
    For(name).refuse(0 in result.shape[-len(window) :], f"the window {window} does not fit into 'x' of shape {x.shape}")
    return result


@operator(function="")
def mean_of_windows(
    x: Array, window: Any, stride: Any, around: Edges, ceil: bool, include_pad: bool, divisor: int | None, name: str
) -> Array:
    """Means of windows; the divisor is `divisor`, or the number of cells, with or without the padding."""
    grown = with_ceil(x.shape[-len(window) :], window, stride, around) if ceil else around
    total = fits(name, _summed(x, window, stride, grown), x, window)
    if divisor:
        return total / divisor
    sizes = x.shape[-len(window) :]
    # numpy: the counts are constants of the program.
    ones = np.ones(sizes, x.dtype)
    if include_pad:
        # Cells of the padding count, but not those added by `ceil`.
        ones, grown = (
            np.pad(ones, around, constant_values=1),
            tuple((low - before, high - other) for (low, high), (before, other) in zip(grown, around, strict=True)),
        )
    return total / _summed(jnp.asarray(ones), window, stride, grown)


def _lowest(x: Array) -> Any:
    # Padding never wins.
    return np.asarray(-np.inf if jnp.issubdtype(x.dtype, jnp.floating) else jnp.iinfo(x.dtype).min, x.dtype)


def _around_dilated(x: Array, window: Any, stride: Any, around: Edges, gap: Any, ceil: bool) -> Edges:
    reach = tuple((size - 1) * wide + 1 for size, wide in zip(window, gap, strict=True))
    return with_ceil(x.shape[-len(window) :], reach, stride, around) if ceil else around


def _at(x: Array, positions: Array, dims: int) -> Array:
    # Picked by position, so that the gradient goes to one cell.
    lead = x.shape[: x.ndim - dims]
    flat = jnp.take_along_axis(x.reshape(*lead, -1), positions.reshape(*lead, -1), -1)
    return flat.reshape(positions.shape)


@operator(function="")
def maxima(x: Array, window: Any, stride: Any, around: Edges, gap: Any, ceil: bool, name: str) -> Array:
    """Largest value in each window; `gap`: distance between the cells of a window."""
    if max(gap) > 1:  # XLA has no gradient for windows with gaps, so the places are found first
        return _at(x, positions_of_maxima.kernel(x, window, stride, around, gap, ceil, name), len(window))
    grown = _around_dilated(x, window, stride, around, gap, ceil)
    return fits(name, _over_windows(x, _lowest(x), jax.lax.max, window, stride, grown), x, window)


@operator(function="")
def positions_of_maxima(x: Array, window: Any, stride: Any, around: Edges, gap: Any, ceil: bool, name: str) -> Array:
    """Where in the flattened image the largest value of each window is (the first, among equals). int64."""
    grown = _around_dilated(x, window, stride, around, gap, ceil)
    shape = x.shape[-len(window) :]
    cells = jnp.broadcast_to(jnp.arange(math.prod(shape), dtype=jnp.int64).reshape(shape), x.shape)

    def larger(left: Any, right: Any) -> Any:
        (one, here), (other, there) = left, right
        # The first of equal values, as in MindSpore; NaN wins, as everywhere.
        equal = (one == other) | ((one != one) & (other != other))
        keep = jnp.where(equal, here < there, (one > other) | (one != one))
        return jnp.where(keep, one, other), jnp.where(keep, here, there)

    start = _lowest(x), np.asarray(np.iinfo(np.int64).max, np.int64)
    # The places are integers, through which no gradient passes.
    operands = (jax.lax.stop_gradient(x), cells)
    return fits(name, _over_windows(operands, start, larger, window, stride, grown, gap)[1], x, window)


def _with_positions(name: str, x: Array, window: Any, stride: Any, around: Edges, gap: Any, ceil: bool) -> Any:
    positions = positions_of_maxima.kernel(x, window, stride, around, gap, ceil, name)
    return _at(x, positions, len(window)), positions


def _nothing(dims: int) -> Edges:
    return ((0, 0),) * dims


def _avg_pool(dims: int) -> None:
    name = f"avg_pool{dims}d"

    def compute(
        x: Array, kernel_size: Any, stride: Any, padding: Any, ceil: bool, include: bool, divisor: Any
    ) -> Array:
        check.rank(name, (dims + 1, dims + 2), x=x)
        check.floating(name, x=x)
        window, step = per_dim(name, "kernel_size", kernel_size, dims), per_dim(name, "stride", stride, dims)
        return mean_of_windows.kernel(x, window, step, edges(name, padding, dims), ceil, include, divisor, name)

    def flat(
        input_x: Array,
        kernel_size: Setting = 1,
        stride: Setting = 1,
        padding: Setting = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> Array:
        return compute(input_x, kernel_size, stride, padding, ceil_mode, count_include_pad, 0)

    def deep(
        input_x: Array,
        kernel_size: Setting = 1,
        stride: Setting = 1,
        padding: Setting = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int = 0,
    ) -> Array:
        return compute(input_x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)

    def mint_flat(
        input: Array,
        kernel_size: Setting,
        stride: Setting | None = None,
        padding: Setting = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> Array:
        # PyTorch's step is the size of the window.
        step = kernel_size if stride is None else stride
        return compute(input, kernel_size, step, padding, ceil_mode, count_include_pad, 0)

    def mint_deep(
        input: Array,
        kernel_size: Setting,
        stride: Setting | None = None,
        padding: Setting = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Array:
        step = kernel_size if stride is None else stride
        return compute(input, kernel_size, step, padding, ceil_mode, count_include_pad, divisor_override)

    doc = (
        f"Means over windows of {dims} spatial dims.\n\n"
        "    Args:\n"
        "        kernel_size, stride: size and step of the window{}.\n"
        "        padding: cells of zeros around.\n"
        "        ceil_mode: let the last window reach over the end.\n"
        "        count_include_pad: the zeros count as cells.\n"
    )
    # One dim has no `divisor_override` in MindSpore.
    plain, torch_like = (flat, mint_flat) if dims == 1 else (deep, mint_deep)
    for form, default in ((plain, ""), (torch_like, "; the step is the size by default")):
        form.__name__ = name
        last = "" if dims == 1 else "        divisor_override: divide by this instead of the number of cells.\n"
        form.__doc__ = doc.format(default) + last
    operator(function=name)(plain)
    operator(function="", mint=f"nn.functional.{name}")(torch_like)


for _dims in (1, 2, 3):
    _avg_pool(_dims)


@operator(
    "AvgPool3D(kernel_size, strides, pad_mode, pad, ceil_mode, count_include_pad, divisor_override, data_format)",
    function="",
    dims=POOLING,
)
def _avg_pool3d(
    x: check.Float,
    kernel_size: Setting = 1,
    strides: Setting = 1,
    pad_mode: PadMode = "valid",
    pad: Setting = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int = 0,
    data_format: Literal["NCDHW"] = "NCDHW",
) -> Array:
    """Means over windows of volumes (n, c, d, h, w)."""
    check.rank("AvgPool3D", 5, x=x)
    window, step = per_dim("AvgPool3D", "kernel_size", kernel_size, 3), per_dim("AvgPool3D", "strides", strides, 3)
    around = resolved_edges("AvgPool3D", pad_mode, pad, x.shape[2:], window, step)
    return mean_of_windows.kernel(x, window, step, around, ceil_mode, count_include_pad, divisor_override, "AvgPool3D")


def _lp_pool(dims: int) -> None:
    name = f"lp_pool{dims}d"

    def kernel(
        x: Array, norm_type: float, kernel_size: Setting, stride: Setting | None = None, ceil_mode: bool = False
    ) -> Array:
        check.rank(name, (dims + 1, dims + 2), x=x)
        window = per_dim(name, "kernel_size", kernel_size, dims)
        step = window if stride is None else per_dim(name, "stride", stride, dims)
        around = _nothing(dims)
        grown = with_ceil(x.shape[-dims:], window, step, around) if ceil_mode else around
        total = fits(name, _summed(promote.inexact(x) ** norm_type, window, step, grown), x, window)
        # The root's slope at 0 is infinite; a 1 in its place keeps the gradient finite.
        positive = jnp.where(total == 0, jnp.ones((), total.dtype), total)
        return jnp.where(total == 0, jnp.zeros((), total.dtype), jnp.power(positive, 1 / norm_type))

    kernel.__name__ = name
    kernel.__doc__ = f"The `norm_type`-th root of the sum of powers over windows of {dims} spatial dims."
    operator(function=name)(kernel)


_lp_pool(1)
_lp_pool(2)


def _max_function(
    name: str, dims: int, x: Array, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil: bool, index: bool
) -> Any:
    check.rank(name, (dims + 1, dims + 2), x=x)
    window = per_dim(name, "kernel_size", kernel_size, dims)
    step = window if stride is None else per_dim(name, "stride", stride, dims)
    gap, around = per_dim(name, "dilation", dilation, dims), edges(name, padding, dims)
    # PyTorch's rule: more would make windows of padding alone.
    if any(2 * max(pair) > size for pair, size in zip(around, window, strict=True)):
        raise SporaxValueError(f"For '{name}', 'padding' must be at most half the window, but got {padding}.")
    if index:
        return _with_positions(name, x, window, step, around, gap, ceil)
    return maxima.kernel(x, window, step, around, gap, ceil, name)


@operator(function="max_pool2d")
def max_pool2d(
    x: Array,
    kernel_size: Setting,
    stride: Setting | None = None,
    padding: Setting = 0,
    dilation: Setting = 1,
    return_indices: bool = False,
    ceil_mode: bool = False,
) -> Any:
    """Maxima over windows of images (n, c, h, w).

    Args:
        x: images.
        kernel_size: size of the window.
        stride: step of the window; its size by default.
        padding: cells around that never win; at most half the window.
        dilation: distance between the cells of a window.
        return_indices: also give the positions (int64) in the flattened image.
        ceil_mode: let the last window reach over the end.
    """
    return _max_function("max_pool2d", 2, x, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


other_form(
    max_pool2d,
    None,
    "input=x kernel_size stride padding dilation ceil_mode return_indices",
    mint="nn.functional.max_pool2d",
)


@operator(function="max_pool3d")
def max_pool3d(
    x: Array,
    kernel_size: Setting,
    stride: Setting | None = None,
    padding: Setting = 0,
    dilation: Setting = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Maxima over windows of volumes (n, c, d, h, w); see `ops.max_pool2d`."""
    return _max_function("max_pool3d", 3, x, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@operator("MaxPool3D(kernel_size, strides, pad_mode, pad_list, ceil_mode, data_format)", function="", dims=POOLING)
def _max_pool3d(
    x: check.Rank5,
    kernel_size: Setting = 1,
    strides: Setting = 1,
    pad_mode: PadMode = "VALID",
    pad_list: Setting = 0,
    ceil_mode: bool | None = None,
    data_format: Literal["NCDHW"] = "NCDHW",
) -> Array:
    """Maxima over windows of volumes (n, c, d, h, w)."""
    window, step = per_dim("MaxPool3D", "kernel_size", kernel_size, 3), per_dim("MaxPool3D", "strides", strides, 3)
    around = resolved_edges("MaxPool3D", pad_mode, pad_list, x.shape[2:], window, step)
    return maxima.kernel(x, window, step, around, (1, 1, 1), bool(ceil_mode), "MaxPool3D")


@operator("MaxPoolWithArgmax(kernel_size, strides, pad_mode, data_format)", function="")
def _max_pool_with_argmax(
    x: check.Rank4,
    kernel_size: Setting = 1,
    strides: Setting = 1,
    pad_mode: Literal["same", "valid", "SAME", "VALID"] = "valid",
    data_format: Literal["NCHW"] = "NCHW",
) -> tuple[Array, Array]:
    """Maxima over windows of images (n, c, h, w), and their positions (int32) in the flattened image."""
    name = "MaxPoolWithArgmax"
    window, step = per_dim(name, "kernel_size", kernel_size, 2), per_dim(name, "strides", strides, 2)
    around = resolved_edges(name, pad_mode, 0, x.shape[2:], window, step)
    values, positions = _with_positions(name, x, window, step, around, (1, 1), False)
    return values, positions.astype(jnp.int32)


@operator("MaxPoolWithArgmaxV2(kernel_size, strides, pads, dilation, ceil_mode, argmax_type)", function="")
def _max_pool_with_argmax_v2(
    x: Array,
    kernel_size: Setting,
    strides: Setting | None = None,
    pads: Setting = 0,
    dilation: Setting = (1, 1),
    ceil_mode: bool = False,
    argmax_type: DType = dtypes.int64,
) -> tuple[Array, Array]:
    """Maxima over windows of images (n, c, h, w), and their positions in the flattened image."""
    values, positions = _max_function(
        "MaxPoolWithArgmaxV2", 2, x, kernel_size, strides, pads, dilation, ceil_mode, True
    )
    return values, positions.astype(argmax_type.np_dtype)


@operator("MaxPool3DWithArgmax(ksize, strides, pads, dilation, ceil_mode, data_format, argmax_type)", function="")
def _max_pool3d_with_argmax(
    x: Array,
    ksize: Setting,
    strides: Setting,
    pads: Setting,
    dilation: Setting = (1, 1, 1),
    ceil_mode: bool = False,
    data_format: Literal["NCDHW"] = "NCDHW",
    argmax_type: DType = dtypes.int64,
) -> tuple[Array, Array]:
    """Maxima over windows of volumes (n, c, d, h, w), and their positions in the flattened volume."""
    values, positions = _max_function("MaxPool3DWithArgmax", 3, x, ksize, strides, pads, dilation, ceil_mode, True)
    return values, positions.astype(argmax_type.np_dtype)


def _max_unpool(dims: int) -> None:
    name = f"max_unpool{dims}d"

    def kernel(
        x: Array,
        indices: Array,
        kernel_size: Setting,
        stride: Setting | None = None,
        padding: Setting = 0,
        output_size: tuple[int, ...] | None = None,
    ) -> Array:
        check.rank(name, (dims + 1, dims + 2), x=x)
        check.integral(name, indices=indices)
        window = per_dim(name, "kernel_size", kernel_size, dims)
        step = window if stride is None else per_dim(name, "stride", stride, dims)
        around = per_dim(name, "padding", padding, dims, 0)
        sizes = tuple(
            (size - 1) * jump - 2 * pad + reach
            for size, jump, pad, reach in zip(x.shape[-dims:], step, around, window, strict=True)
        )
        sizes = sizes if output_size is None else output_size[-dims:]
        lead = x.shape[:-dims]
        rows, index = x.reshape(-1, int(np.prod(x.shape[-dims:]))), indices.reshape(-1, int(np.prod(x.shape[-dims:])))
        flat = jnp.zeros((rows.shape[0], int(np.prod(sizes))), x.dtype)
        # "drop": positions out of range are left out.
        return flat.at[jnp.arange(rows.shape[0])[:, None], index].set(rows, mode="drop").reshape(*lead, *sizes)

    kernel.__name__ = name
    kernel.__doc__ = (
        f"Values put back to the positions that max pooling over {dims} dims took them from, zeros elsewhere.\n\n"
        "    Args:\n"
        "        x, indices: what the pooling gave, with ``return_indices=True``.\n"
        "        kernel_size, stride, padding: of the pooling.\n"
        "        output_size: shape of the result, where it does not follow from these.\n"
    )
    mint = "nn.functional.max_unpool2d(input=x)" if dims == 2 else ""
    operator(function=name, mint=mint)(kernel)


for _dims in (1, 2, 3):
    _max_unpool(_dims)


def _max_unpool_class(dims: int, layout: str) -> None:
    name = f"MaxUnpool{dims}D"

    @operator(f"{name}(ksize, strides, pads, output_shape, data_format)", function="", composed=True)
    def kernel(
        x: Array, argmax: Array, ksize: Window, strides: Window = 0, pads: Window = 0, output_shape: tuple[int, ...] = (),
        data_format: str = layout,
    ) -> Any:  # fmt: skip
        """Values put back to where max pooling took them from, zeros elsewhere; `strides` 0: as `ksize`."""
        check.one_of(name, data_format, (layout,), "data_format")
        # 0 is MindSpore's way to leave the step out.
        step = None if strides == 0 or strides == (0,) * dims else strides
        return FUNCTIONS[f"max_unpool{dims}d"](x, argmax, ksize, step, pads, output_shape or None)


_max_unpool_class(2, "NCHW")
_max_unpool_class(3, "NCDHW")
