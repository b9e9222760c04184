"""Small things around tensors: numbers made tensors, shapes as tensors, parts and places in MindSpore's class forms."""

from __future__ import annotations

from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from sporax.common import dtype as dtypes
from sporax.common.dtype import DType
from sporax.common.tensor import Tensor, wrap, wrap_numpy
from sporax.ir.errors import SporaxTypeError, SporaxValueError
from sporax.ops._core import check
from sporax.ops._core.operator import FUNCTIONS, Array, export, operator
from sporax.ops.array.padding import _batch_to_space, _space_to_batch, fold
from sporax.ops.array.scatter import written
from sporax.ops.array.shaping import logspace
from sporax.ops.array.sorting import known
from sporax.ops.image.resize import interpolate
from sporax.ops.image.sampling import affine_grid

_NUMBERS = (bool, int, float)

# ---------------------------------------------------------------------------------------------- numbers, shapes, tensors


@operator("ScalarToTensor()", function="", composed=True)
def _scalar_to_tensor_class(x: Any, dtype: DType = dtypes.float32) -> Any:
    """A number as a tensor without dimensions."""
    return scalar_to_tensor(x, dtype)


@operator(function="scalar_to_tensor", composed=True)
def scalar_to_tensor(input_x: Any, dtype: DType = dtypes.float32) -> Any:
    """A number as a tensor without dimensions."""
    if not isinstance(input_x, _NUMBERS):
        raise SporaxTypeError(
            f"For 'ScalarToTensor', 'input_x' must be a number, but got {type(input_x).__name__}: {input_x!r}."
        )
    return Tensor(input_x, dtype)


@operator("ScalarCast()", function="scalar_cast", composed=True)
def scalar_cast(input_x: Any, input_y: DType) -> Any:
    """A number as a number of the kind that `input_y` (int64, float64 or bool) names."""
    if not isinstance(input_x, _NUMBERS):
        raise SporaxTypeError(
            f"For 'ScalarCast', 'input_x' must be a number, but got {type(input_x).__name__}: {input_x!r}."
        )
    check.one_of("ScalarCast", input_y, (dtypes.int64, dtypes.float64, dtypes.bool_), "input_y")
    return input_y.np_dtype.type(input_x).item()


@operator("TupleToArray()", function="tuple_to_array", composed=True)
def tuple_to_array(input_x: Any) -> Any:
    """A tuple of numbers of one kind as a vector: int32, float32 for floats."""
    if not isinstance(input_x, tuple) or not input_x or len({type(each) for each in input_x}) > 1:
        raise SporaxTypeError(
            f"For 'TupleToArray', 'input_x' must be a tuple of numbers of one type, but got {input_x!r}."
        )
    return Tensor(input_x, dtypes.float32 if isinstance(input_x[0], float) else dtypes.int32)


@operator("TensorShape()", function="dyn_shape", composed=True)
def dyn_shape(input_x: Any) -> Any:
    """The shape as a vector (int64)."""
    check.tensor("TensorShape", input_x=input_x.array)
    return wrap_numpy(np.asarray(input_x.shape, np.int64))


def typeof(value: Any) -> str:
    """What kind of value it is, as text: ``Tensor[Float32]``."""
    return f"Tensor[{value.dtype}]" if isinstance(value, Tensor) else type(value).__name__


def is_nonzero(input: Tensor) -> bool:
    """Whether the only element is not zero.

    Raises:
        SporaxTypeError: not a Tensor.
        SporaxValueError: it has another number of elements.
    """
    value = known("is_nonzero", "input", input)
    if value.size != 1:
        raise SporaxValueError(f"For 'is_nonzero', 'input' must have one element, but its shape is {input.shape}.")
    return bool(value.item())


def expand_as(input: Tensor, other: Tensor) -> Tensor:
    """`input` broadcast to the shape of `other`."""
    return input.broadcast_to(other.shape)


def subtract(input: Any, other: Any, *, alpha: float = 1) -> Any:
    """``input - alpha · other``."""
    return FUNCTIONS["sub"](input, other if alpha == 1 else other * alpha)


export(typeof, is_nonzero, expand_as, subtract)


@operator(function="view_as_real")
def view_as_real(input: Array) -> Array:
    """Complex numbers as pairs of real ones, in a new last dim."""
    check.tensor("view_as_real", input=input)
    if not jnp.iscomplexobj(input):
        raise SporaxTypeError(f"For 'view_as_real', 'input' must be complex, but got {check.describe(input)}.")
    return jnp.stack([input.real, input.imag], -1)


@operator("IdentityN()", function="")
def _identity_n(x: tuple[Array, ...]) -> tuple[Array, ...]:
    """Copies of several tensors."""
    return tuple(jnp.array(each, copy=True) for each in x)


@operator("LogSpace(steps, base, dtype)", function="")
def _log_space(start: Array, end: Array, steps: int = 10, base: int = 10, dtype: DType = dtypes.float32) -> Array:
    """`steps` numbers from base^start to base^end, whose logarithms are at equal distances."""
    result: Array = logspace.kernel(start, end, steps, base, dtype=dtype)
    return result


# ------------------------------------------------------------------------------------------------------ parts and places


@operator("SplitV(size_splits, split_dim, num_split)", function="")
def _split_v(input_x: Array, size_splits: tuple[int, ...], split_dim: int, num_split: int) -> tuple[Array, ...]:
    """Parts of the sizes `size_splits` along `split_dim`; one of them may be -1, which takes what is left."""
    name = "SplitV"
    dim = check.axis(name, split_dim, input_x.ndim, "split_dim")
    sizes, whole = list(size_splits), input_x.shape[dim]
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = whole - sum(sizes) - 1
    if len(sizes) != num_split or min(sizes, default=-1) < 0 or sum(sizes) != whole:
        raise SporaxValueError(
            f"For '{name}', 'size_splits' must be {num_split} sizes that add up to {whole}, the size of dim {dim}, but got "
            f"{tuple(size_splits)}."
        )
    return tuple(jnp.split(input_x, np.cumsum(sizes)[:-1], dim))


@operator("FillDiagonal(fill_value, wrap)", function="")
def _fill_diagonal(input_x: Array, fill_value: float, wrap: bool = False) -> Array:
    """The tensor with one value on its diagonal; `wrap` goes on in tall matrices, a row below each corner."""
    name = "FillDiagonal"
    check.rank(name, range(2, 9), input_x=input_x)
    if input_x.ndim > 2 and len(set(input_x.shape)) > 1:
        raise SporaxValueError(f"For '{name}', more than 2 dims must have one size, but the shape is {input_x.shape}.")
    if input_x.ndim > 2:
        at = jnp.arange(input_x.shape[0])
        return input_x.at[(at,) * input_x.ndim].set(jnp.asarray(fill_value, input_x.dtype))
    rows, columns = input_x.shape
    places = np.arange(0, rows * columns if wrap else min(rows, columns) * columns, columns + 1)
    filled = input_x.reshape(-1).at[places].set(jnp.asarray(fill_value, input_x.dtype))
    return filled.reshape(input_x.shape)


@operator("InplaceUpdateV2()", function="", composed=True)
def _inplace_update_v2(x: Any, indices: Any, v: Any) -> Any:
    """`x` with the rows `indices` (an int, a tuple or a Tensor) replaced by those of `v`."""
    rows = tuple(known("InplaceUpdateV2", "indices", indices).tolist()) if isinstance(indices, Tensor) else indices
    return FUNCTIONS["inplace_update"](x, v, rows)


@operator("InplaceIndexAdd(axis)", function="", composed=True)
def _inplace_index_add_class(var: Any, indices: Any, updates: Any, axis: int) -> Any:
    """Adds slices to those of a Parameter; see `ops.inplace_index_add`."""
    return inplace_index_add(var, indices, updates, axis)


@operator(function="inplace_index_add", composed=True)
def inplace_index_add(var: Any, indices: Any, updates: Any, axis: int) -> Any:
    """Adds the slices of `updates` to those of a Parameter at `indices` (int32) along `axis`; returns the new value."""
    return written("InplaceIndexAdd", var, _with_added(var, indices, updates, axis))


@operator(function="")
def _with_added(var: Array, indices: Array, updates: Array, axis: int) -> Array:
    """`var` with the slices of `updates` added at `indices` along `axis`."""
    name = "InplaceIndexAdd"
    check.integral(name, indices=indices)
    check.same_dtype(name, var=var, updates=updates)
    where = check.axis(name, axis, var.ndim)
    expected = (*var.shape[:where], indices.size, *var.shape[where + 1 :])
    if updates.shape != expected:
        raise SporaxValueError(f"For '{name}', 'updates' must have shape {expected}, but got {updates.shape}.")
    return var.at[(slice(None),) * where + (indices,)].add(updates, mode="drop")


@operator("Coalesce()", function="coalesce", composed=True)
def coalesce(x_indices: Any, x_values: Any, x_shape: Any) -> Any:
    """The elements of a sparse tensor in order, with those at one position added up.

    The result's shape depends on the values, so this cannot be part of a compiled step.

    Args:
        x_indices: (dims, elements), int64.
        x_values: (elements,).
        x_shape: (dims,), int64.
    """
    places, values = known("Coalesce", "x_indices", x_indices), known("Coalesce", "x_values", x_values)
    if places.ndim != 2 or values.shape != places.shape[1:] or x_shape.shape != places.shape[:1]:
        raise SporaxValueError(
            "For 'Coalesce', 'x_indices' must be (dims, elements), 'x_values' (elements,) and 'x_shape' (dims,), but got "
            f"{places.shape}, {values.shape} and {x_shape.shape}."
        )
    found, inverse = np.unique(places, axis=1, return_inverse=True)
    sums = np.zeros(found.shape[1], values.dtype)
    np.add.at(sums, inverse.reshape(-1), values)
    return wrap_numpy(found), wrap_numpy(sums), wrap(x_shape.array)


# ----------------------------------------------------------------------------------------------- images in class forms


@operator("SpaceToBatch(block_size, paddings)", function="")
def _space_to_batch_class(input_x: Array, block_size: int, paddings: tuple[tuple[int, ...], ...]) -> Array:
    """Height and width of (n, c, h, w), padded with zeros, cut into blocks whose cells become samples."""
    check.rank("SpaceToBatch", 4, input_x=input_x)
    return _space_to_batch("SpaceToBatch", input_x, (block_size, block_size), paddings)


@operator("BatchToSpace(block_size, crops)", function="")
def _batch_to_space_class(input_x: Array, block_size: int, crops: tuple[tuple[int, ...], ...]) -> Array:
    """Samples of (n, c, h, w) made into the cells of blocks, then `crops` cut off; undoes SpaceToBatch."""
    check.rank("BatchToSpace", 4, input_x=input_x)
    return _batch_to_space("BatchToSpace", input_x, (block_size, block_size), crops)


Pair = int | tuple[int, ...]


@operator("Col2Im(kernel_size, dilation, padding, stride)", function="", composed=True)
def _col2im_class(
    x: Any, output_size: Any, kernel_size: Pair, dilation: Pair = 1, padding: Pair = 0, stride: Pair = 1
) -> Any:
    """Patches added up to images; see `ops.col2im`."""
    return col2im(x, output_size, kernel_size, dilation, padding, stride)


@operator(function="col2im", method="col2im", composed=True)
def col2im(input_x: Any, output_size: Any, kernel_size: Pair, dilation: Pair, padding_value: Pair, stride: Pair) -> Any:
    """Patches (n, c, kernel cells, places) added up to images (n, c, *output_size); see `fold`."""
    if input_x.ndim != 4:
        raise SporaxValueError(f"For 'Col2Im', 'input_x' must have 4 dimensions, but its shape is {input_x.shape}.")
    n, c, cells, places = input_x.shape
    return fold(input_x.reshape((n, c * cells, places)), output_size, kernel_size, dilation, padding_value, stride)


@operator("AffineGrid(align_corners)", function="")
def _affine_grid_class(theta: Array, output_size: tuple[int, ...], align_corners: bool = False) -> Array:
    """The grid that samples an affine image of the output; see `ops.affine_grid`."""
    result: Array = affine_grid.kernel(theta, output_size, align_corners)
    return result


@operator("AdaptiveMaxPool3D()", function="", composed=True)
def _adaptive_max_pool3d_class(x: Any, output_size: Any) -> Any:
    """Maxima that bring the last 3 dims to `output_size`, and their positions (int32) in the flattened volume."""
    sizes = tuple(known("AdaptiveMaxPool3D", "output_size", output_size).tolist())
    values, places = FUNCTIONS["adaptive_max_pool3d"](x, sizes, True)
    return values, places.astype(dtypes.int32)


def _max_unpool_class(dims: int, layout: str) -> None:
    name = f"MaxUnpool{dims}D"

    @operator(f"{name}(ksize, strides, pads, output_shape, data_format)", function="", composed=True)
    def kernel(
        x: Array, argmax: Array, ksize: Pair, strides: Pair = 0, pads: Pair = 0, output_shape: tuple[int, ...] = (),
        data_format: str = layout,
    ) -> Any:  # fmt: skip
        """Values put back to where max pooling took them from, zeros elsewhere; `strides` 0: as `ksize`."""
        check.one_of(name, data_format, (layout,), "data_format")
        step = None if strides == 0 or strides == (0,) * dims else strides
        return FUNCTIONS[f"max_unpool{dims}d"](x, argmax, ksize, step, pads, output_shape or None)


_max_unpool_class(2, "NCHW")
_max_unpool_class(3, "NCDHW")


@operator("UpsampleNearest3D()", function="", composed=True)
def _upsample_nearest(x: Any, output_size: Any = None, scales: Any = None) -> Any:
    """Volumes (n, c, d, h, w) resized to `output_size`, or by the factors `scales`, with the nearest elements."""
    return interpolate(x, output_size, None if scales is None else tuple(scales), "nearest")


@operator("UpsampleTrilinear3D(align_corners)", function="", composed=True)
def _upsample_trilinear(x: Any, output_size: Any = None, scales: Any = None, align_corners: bool = False) -> Any:
    """Volumes (n, c, d, h, w) resized to `output_size`, or by the factors `scales`, interpolated linearly."""
    return interpolate(x, output_size, None if scales is None else tuple(scales), "trilinear", align_corners)


@operator("ResizeLinear1D(coordinate_transformation_mode)", function="", composed=True)
def _resize_linear(
    x: Any,
    size: Any,
    coordinate_transformation_mode: Literal["align_corners", "half_pixel"] = "align_corners",
) -> Any:
    """Signals (n, c, w) resized to `size`, interpolated linearly."""
    sizes = known("ResizeLinear1D", "size", size).reshape(-1).tolist() if isinstance(size, Tensor) else size
    corners = coordinate_transformation_mode == "align_corners"
    return interpolate(x, check.shape("ResizeLinear1D", sizes, "size"), None, "linear", corners)


# -------------------------------------------------------------------------------------------------- layouts of images


def _layouts(name: str, source: str, target: str) -> list[int]:
    """For each letter of the target where it is in the source."""
    if sorted(source) != sorted(target) or len(set(source)) < len(source):
        raise SporaxValueError(
            f"For '{name}', 'src_format' and 'dst_format' must have the same letters, but got {source} and {target}."
        )
    return [source.index(letter) for letter in target]


@operator("DataFormatDimMap(src_format, dst_format)", function="")
def _format_dim_map(input_x: Array, src_format: str = "NHWC", dst_format: str = "NCHW") -> Array:
    """Numbers of dims in one layout as numbers of the same dims in the other."""
    check.integral("DataFormatDimMap", input_x=input_x)
    order = _layouts("DataFormatDimMap", dst_format, src_format)
    return jnp.asarray(order, input_x.dtype)[input_x % len(order)]


@operator("DataFormatVecPermute(src_format, dst_format)", function="")
def _format_permute(input_x: Array, src_format: str = "NHWC", dst_format: str = "NCHW") -> Array:
    """A vector (4,) with a number for each dim, or (4, 2), in the order of the other layout."""
    order = _layouts("DataFormatVecPermute", src_format, dst_format)
    check.rank("DataFormatVecPermute", (1, 2), input_x=input_x)
    if input_x.shape[0] != len(order):
        raise SporaxValueError(
            f"For 'DataFormatVecPermute', 'input_x' must have {len(order)} rows, but its shape is {input_x.shape}."
        )
    return input_x[jnp.asarray(order)]


@operator("IndexPut(accumulate)", function="", composed=True)
def _index_put_class(x1: Any, x2: Any, indices: Any, accumulate: int = 0) -> Any:
    """`x1` with `x2` put to, or added at (`accumulate` 1), the positions that `indices` names, one tensor for each dim."""
    check.one_of("IndexPut", accumulate, (0, 1), "accumulate")
    return x1.index_put(tuple(indices), x2, bool(accumulate))
