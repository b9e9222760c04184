"""Operators that reshape, join and cut tensors, and pick from them."""

from __future__ import annotations

import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from sporax.common.tensor import Tensor
from sporax.ir.errors import SporaxTypeError, SporaxValueError
from sporax.ops._core import check
from sporax.ops._core import promotion as promote
from sporax.ops._core.operator import Array, Operand, export, operator

# ------------------------------------------------------------------------------------------------------------ shape


@operator("Reshape()", mint="reshape")
def reshape(input: Array, shape: tuple[int, ...]) -> Array:
    """The same elements in row-major order in another shape; one size may be -1, for what is left.

    Raises:
        SporaxValueError: the number of elements differs.
    """
    sizes = check.shape("Reshape", shape)
    known = math.prod(size for size in sizes if size != -1)
    inferred = sum(size == -1 for size in sizes)
    if inferred > 1 or min(sizes, default=1) < -1:
        raise SporaxValueError(f"For 'Reshape', 'shape' may hold one -1 and no other negative size, but got {sizes}.")
    fits = input.size % known == 0 if inferred and known else known == input.size
    if not fits:
        raise SporaxValueError(
            f"For 'Reshape', the shape of 'input' is {input.shape} ({input.size} elements), "
            f"which does not fit into 'shape' {sizes}."
        )
    return jnp.reshape(input, sizes)


@operator("Transpose()", function="transpose")
def transpose(input: Array, dims: tuple[int, ...]) -> Array:
    """The dimensions in the order `dims`.

    Raises:
        SporaxValueError: `dims` does not name every dimension once.
    """
    if len(dims) != input.ndim:
        raise SporaxValueError(
            f"For 'Transpose', 'dims' must name all {input.ndim} dimensions of 'input', but got {dims}."
        )
    return jnp.transpose(input, check.axes("Transpose", dims, input.ndim, "dims") or None)


@operator(function="permute", mint="permute(dims=axis)")
def permute(input: Array, axis: tuple[int, ...]) -> Array:
    """Same as `transpose`."""
    return transpose.kernel(input, axis)


@operator(function="swapaxes", method="swapaxes")
def swapaxes(input: Array, axis0: int, axis1: int) -> Array:
    """Two dimensions exchanged."""
    one, other = (check.axis("swapaxes", axis, input.ndim) for axis in (axis0, axis1))
    return jnp.swapaxes(input, one, other)


@operator(function="", mint="transpose")
def _mint_transpose(input: Array, dim0: int, dim1: int) -> Array:
    """Two dimensions exchanged."""
    return swapaxes.kernel(input, dim0, dim1)


@operator("ExpandDims()", function="expand_dims", method="expand_dims")
def expand_dims(input_x: Array, axis: int) -> Array:
    """A dimension of size 1 more, at `axis`."""
    return jnp.expand_dims(input_x, check.axis("ExpandDims", axis, input_x.ndim + 1))


@operator(function="unsqueeze", method="unsqueeze", mint="unsqueeze")
def unsqueeze(input: Array, dim: int) -> Array:
    """A dimension of size 1 more, at `dim`."""
    return jnp.expand_dims(input, check.axis("unsqueeze", dim, input.ndim + 1, "dim"))


def _squeezed(input: Array, axis: int | tuple[int, ...] | None) -> Array:
    where = check.axes("Squeeze", axis, input.ndim)
    for dim in where or ():
        if input.shape[dim] != 1:
            raise SporaxValueError(f"For 'Squeeze', dim {dim} must be of size 1, but the shape is {input.shape}.")
    return jnp.squeeze(input, where)


@operator("Squeeze", function="")
def _squeeze(input: Array, axis: int | tuple[int, ...] = ()) -> Array:
    """Without the dimensions of size 1: those of `axis`, or all of them when it is empty.

    Raises:
        SporaxValueError: a dimension of `axis` is not of size 1.
    """
    return _squeezed(input, axis)


@operator(function="squeeze", method="squeeze", mint="squeeze(dim=axis)")
def squeeze(input: Array, axis: int | tuple[int, ...] | None = None) -> Array:
    """Without the dimensions of size 1: those of `axis`, or all of them when it is None.

    Raises:
        SporaxValueError: a dimension of `axis` is not of size 1.
    """
    return _squeezed(input, axis)


@operator("Flatten", function="")
def _flatten(input_x: Array) -> Array:
    """All dimensions but the first made into one.

    Raises:
        SporaxValueError: `input_x` has no dimension.
    """
    if not input_x.ndim:
        raise SporaxValueError("For 'Flatten', 'input_x' must have at least one dimension, but its shape is ().")
    return jnp.reshape(input_x, (input_x.shape[0], math.prod(input_x.shape[1:])))


def _merged(input: Array, order: str, start_dim: int, end_dim: int) -> Array:
    first = check.axis("flatten", start_dim, input.ndim, "start_dim") if input.ndim > 1 or start_dim < 0 else 0
    last = check.axis("flatten", end_dim, input.ndim, "end_dim")
    if last < first:
        raise SporaxValueError(
            f"For 'flatten', 'start_dim' must not be after 'end_dim', but got {start_dim}, {end_dim}."
        )
    size = math.prod(input.shape[first : last + 1])
    return jnp.reshape(input, (*input.shape[:first], size, *input.shape[last + 1 :]), order=order)


@operator(function="flatten")
def flatten(input: Array, order: Literal["C", "F"] = "C", *, start_dim: int = 1, end_dim: int = -1) -> Array:
    """Dimensions `start_dim` to `end_dim` made into one, in row-major (C) or column-major (F) order."""
    return _merged(input, order, start_dim, end_dim)


@operator(function="", mint="flatten; nn.functional.flatten")
def _mint_flatten(input: Array, start_dim: int = 0, end_dim: int = -1) -> Array:
    """Dimensions `start_dim` to `end_dim` made into one: all of them, by default."""
    return _merged(input, "C", start_dim, end_dim)


@operator("Tile()", method="tile", mint="tile", function="tile")
def tile(input: Array, dims: tuple[int, ...]) -> Array:
    """The tensor repeated `dims` times along each dimension; missing dimensions are put in front.

    Raises:
        SporaxValueError: a number of repetitions is negative.
    """
    if min(dims, default=0) < 0:
        raise SporaxValueError(f"For 'Tile', the numbers in 'dims' must be >= 0, but got {dims}.")
    return jnp.tile(input, dims)


@operator("BroadcastTo", method="broadcast_to", mint="broadcast_to")
def broadcast_to(input: Array, shape: tuple[int, ...]) -> Array:
    """The tensor repeated to `shape`; -1 keeps the size of a dimension.

    Raises:
        SporaxValueError: `input` does not broadcast to `shape`.
    """
    lead = len(shape) - input.ndim
    full = tuple(input.shape[dim - lead] if size == -1 and dim >= lead else size for dim, size in enumerate(shape))
    fits = lead >= 0 and all(own in (1, size) for own, size in zip(input.shape, full[max(lead, 0) :], strict=False))
    if not fits or min(full, default=0) < 0:
        raise SporaxValueError(f"For 'BroadcastTo', 'input' of shape {input.shape} does not broadcast to {shape}.")
    return jnp.broadcast_to(input, full)


# What methods take as several arguments or as one.


def _sizes(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(values[0]) if len(values) == 1 and isinstance(values[0], tuple | list) else values


def _view(self: Tensor, *shape: Any) -> Tensor:
    """The same elements in another shape: ``x.view(2, 3)`` or ``x.view((2, 3))``. Same as `ops.reshape`."""
    return reshape(self, _sizes(shape))


def _transposed(self: Tensor, *axes: Any) -> Tensor:
    """The dimensions in another order, ``x.transpose(1, 0)`` or ``x.transpose((1, 0))``; reversed without arguments."""
    return transpose(self, _sizes(axes) or tuple(range(self.ndim))[::-1])


def _permuted(self: Tensor, *axis: Any) -> Tensor:
    """The dimensions in another order: ``x.permute(1, 0)`` or ``x.permute((1, 0))``."""
    return transpose(self, _sizes(axis))


# ----------------------------------------------------------------------------------------------------- joining, cutting


def _check_filled(name: str, arrays: Any) -> None:
    if not arrays:
        raise SporaxValueError(f"For '{name}', 'tensors' must hold at least one Tensor, but it is empty.")


def _check_joined(name: str, arrays: Any, axis: int | None) -> None:
    first = arrays[0]
    for index, each in enumerate(arrays[1:], start=1):
        if each.ndim != first.ndim:
            raise SporaxValueError(
                f"For '{name}', all tensors must have as many dimensions as the first ({first.ndim}), "
                f"but x[{index}] has shape {each.shape}."
            )
        for dim in range(first.ndim):
            if dim != axis and each.shape[dim] != first.shape[dim]:
                raise SporaxValueError(
                    f"For '{name}', all sizes but those of the axis must agree, but x[0].shape is {first.shape} "
                    f"and x[{index}].shape is {each.shape} (dim {dim})."
                )


def _joined(tensors: tuple[Array, ...], axis: int) -> Array:
    _check_filled("Concat", tensors)
    where = check.axis("Concat", axis, tensors[0].ndim)
    _check_joined("Concat", tensors, where)
    return jnp.concatenate(promote.together("Concat", tensors), where)


@operator("Concat", function="concat", mint="concat(dim=axis)")
def concat(tensors: tuple[Array, ...], axis: int = 0) -> Array:
    """Tensors joined along an existing dimension, in the dtype they have in common.

    Args:
        tensors: tuple or list of tensors that agree in all other dimensions.
        axis: the dimension.

    Raises:
        SporaxValueError: there are none, or their shapes do not fit together.
        SporaxTypeError: no common dtype.
    """
    return _joined(tensors, axis)


@operator(function="cat", mint="cat(dim=axis)")
def cat(tensors: tuple[Array, ...], axis: int = 0) -> Array:
    """Same as `concat`."""
    return _joined(tensors, axis)


@operator("Stack", function="stack", mint="stack(dim=axis)")
def stack(tensors: tuple[Array, ...], axis: int = 0) -> Array:
    """Tensors of one shape joined along a new dimension.

    Raises:
        SporaxValueError: there are none, or their shapes differ.
        SporaxTypeError: no common dtype.
    """
    _check_filled("Stack", tensors)
    _check_joined("Stack", tensors, None)
    return jnp.stack(promote.together("Stack", tensors), check.axis("Stack", axis, tensors[0].ndim + 1))


@operator("Split", function="")
def _split(input_x: Array, axis: int = 0, output_num: int = 1) -> tuple[Array, ...]:
    """`output_num` equal parts along `axis`.

    Raises:
        SporaxValueError: the size is not divisible.
    """
    where = check.axis("Split", axis, input_x.ndim)
    if output_num < 1 or input_x.shape[where] % output_num:
        raise SporaxValueError(
            f"For 'Split', dim {where} of size {input_x.shape[where]} must be divisible by 'output_num' {output_num}."
        )
    return tuple(jnp.split(input_x, output_num, where))


@operator(function="split", method="split", mint="split(dim=axis)")
def split(tensor: Array, split_size_or_sections: int | tuple[int, ...], axis: int = 0) -> tuple[Array, ...]:
    """Parts of a given size (the last may be smaller), or of the sizes in a tuple, along `axis`."""
    where = check.axis("split", axis, tensor.ndim)
    size = tensor.shape[where]
    if isinstance(split_size_or_sections, int):
        if split_size_or_sections < 1:
            raise SporaxValueError(
                f"For 'split', the size of parts must be positive, but got {split_size_or_sections}."
            )
        bounds: Any = range(split_size_or_sections, size, split_size_or_sections)
    else:
        if sum(split_size_or_sections) != size or min(split_size_or_sections, default=0) < 0:
            raise SporaxValueError(
                f"For 'split', the sections {split_size_or_sections} must add up to {size}, the size of dim {where}."
            )
        bounds = np.cumsum(split_size_or_sections)[:-1].tolist()
    return tuple(jnp.split(tensor, list(bounds), where))


def _slices(input_x: Array, axis: int) -> tuple[Array, ...]:
    where = check.axis("Unstack", axis, input_x.ndim)
    if not input_x.ndim:
        raise SporaxValueError("For 'Unstack', 'input_x' must have at least one dimension, but its shape is ().")
    return tuple(jnp.moveaxis(input_x, where, 0))


@operator("Unstack", function="")
def _unstack(input_x: Array, axis: int = 0, num: int | None = None) -> tuple[Array, ...]:
    """The slices along `axis`, without that dimension; `num`, if given, has to be their number."""
    slices = _slices(input_x, axis)
    if num not in (None, len(slices)):
        raise SporaxValueError(f"For 'Unstack', 'num' must be the size of dim {axis}, {len(slices)}, but got {num}.")
    return slices


@operator(function="unstack")
def unstack(input_x: Array, axis: int = 0) -> tuple[Array, ...]:
    """The slices along `axis`, without that dimension."""
    return _slices(input_x, axis)


@operator(
    "StridedSlice(begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask)", function="strided_slice"
)
def strided_slice(
    input_x: Array,
    begin: tuple[int, ...],
    end: tuple[int, ...],
    strides: tuple[int, ...],
    begin_mask: int = 0,
    end_mask: int = 0,
    ellipsis_mask: int = 0,
    new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
) -> Array:
    """``input_x[begin:end:strides]`` per dimension.

    Bit i of a mask is about position i: begin, end: ignore that bound; ellipsis: the position stands for all dims left
    over; new axis: a dimension of size 1; shrink axis: take the one element at `begin` and drop the dim.
    """
    if 0 in strides:
        raise SporaxValueError(f"For 'StridedSlice', the numbers in 'strides' must not be 0, but got {strides}.")
    if not len(begin) == len(end) == len(strides):
        raise SporaxValueError(
            f"For 'StridedSlice', 'begin', 'end' and 'strides' must have one length, but got {begin}, {end}, {strides}."
        )

    def part(index: int) -> Any:
        bit = 1 << index
        if ellipsis_mask & bit:
            return Ellipsis
        if new_axis_mask & bit:
            return None
        if shrink_axis_mask & bit:
            return begin[index]
        return slice(None if begin_mask & bit else begin[index], None if end_mask & bit else end[index], strides[index])

    return input_x[tuple(part(index) for index in range(len(begin)))]


@operator("Slice()", function="slice")
def slice_(input_x: Array, begin: tuple[int, ...], size: tuple[int, ...]) -> Array:
    """The block that starts at `begin` and has sizes `size`; a size of -1 reaches to the end.

    Raises:
        SporaxValueError: the block leaves the tensor, or the numbers of dimensions differ.
    """
    if not len(begin) == len(size) == input_x.ndim:
        raise SporaxValueError(
            f"For 'Slice', 'begin' and 'size' must have one number per dim of shape {input_x.shape}, but got {begin}, {size}."
        )
    sizes = tuple(
        whole - start if length == -1 else length
        for whole, start, length in zip(input_x.shape, begin, size, strict=True)
    )
    for dim, (whole, start, length) in enumerate(zip(input_x.shape, begin, sizes, strict=True)):
        if start < 0 or length < 0 or start + length > whole:
            raise SporaxValueError(
                f"For 'Slice', begin {start} and size {length} leave the range of dim {dim}, which has size {whole}."
            )
    return jax.lax.slice(input_x, begin, [start + length for start, length in zip(begin, sizes, strict=True)])


# ------------------------------------------------------------------------------------------------------- picking, counting


@operator("Gather(batch_dims)", function="gather")
def gather(input_params: Array, input_indices: Array, axis: int, batch_dims: int = 0) -> Array:
    """Slices of `input_params` along `axis` at `input_indices`; an index out of range gives zeros.

    Args:
        input_params: tensor that is looked up.
        input_indices: integer tensor of any shape; it takes the place of dim `axis`.
        axis: the dimension.
        batch_dims: how many leading dimensions the two have in common.
    """
    check.integral("Gather", input_indices=input_indices)
    where = check.axis("Gather", axis, input_params.ndim)

    def lookup(params: Array, indices: Array, dim: int) -> Array:
        return jnp.take(params, indices, dim, mode="fill", fill_value=0)

    function = lookup
    for _ in range(batch_dims):
        function = jax.vmap(function, in_axes=(0, 0, None))
    return function(input_params, input_indices, where - batch_dims)


def _hot(name: str, indices: Array, depth: int, on_value: Any, off_value: Any, axis: int) -> Array:
    check.integral(name, indices=indices)
    where = check.axis(name, axis, indices.ndim + 1)
    if depth < 0:
        raise SporaxValueError(f"For '{name}', 'depth' must be >= 0, but got {depth}.")
    on, off = promote.pair(name, on_value, off_value)
    classes = jnp.arange(depth, dtype=indices.dtype)
    spread = [-1 if dim == where else 1 for dim in range(indices.ndim + 1)]
    return jnp.where(jnp.expand_dims(indices, where) == classes.reshape(spread), on, off)


@operator("OneHot(axis)", function="")
def _one_hot(indices: Array, depth: int, on_value: Operand, off_value: Operand, axis: int = -1) -> Array:
    """`on_value` at the positions in `indices`, `off_value` elsewhere, along a new dimension of size `depth` at `axis`.

    A position outside [0, depth) gives `off_value` everywhere.
    """
    return _hot("OneHot", indices, depth, on_value, off_value, axis)


@operator(function="one_hot")
def one_hot(indices: Array, depth: int, on_value: Operand = 1, off_value: Operand = 0, axis: int = -1) -> Array:
    """As `OneHot`, with ones and zeros in int64 by default."""
    return _hot("one_hot", indices, depth, on_value, off_value, axis)


def shape(input_x: Any) -> tuple[int, ...]:
    """Sizes of the dimensions."""
    if not isinstance(input_x, Tensor):
        raise SporaxTypeError(f"For 'shape', 'input_x' must be a Tensor, but got {type(input_x).__name__}.")
    return input_x.shape


def rank(input_x: Any) -> int:
    """Number of dimensions."""
    return len(shape(input_x))


def size(input_x: Any) -> int:
    """Number of elements."""
    return math.prod(shape(input_x))


export(shape, rank, size)
for _name, _method in (("view", _view), ("reshape", _view), ("transpose", _transposed), ("permute", _permuted)):
    setattr(Tensor, _name, _method)
