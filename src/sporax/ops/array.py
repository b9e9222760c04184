"""Operators that make, reshape, join and cut tensors."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.common import dtype as dtypes
from sporax.common.dtype import DType, to_dtype
from sporax.common.tensor import Tensor, wrap
from sporax.ir.errors import SporaxTypeError, SporaxValueError
from sporax.ops import _check as check
from sporax.ops._operator import Array, Operand, export, operator

# ------------------------------------------------------------------------------------------------------------ shape


@operator("Reshape()", method="", mint="reshape")
def reshape(input: Array, shape: tuple[int, ...]) -> Array:
    """The same elements in row-major order in another shape; one size may be -1."""
    check.tensor("Reshape", input=input)
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


@operator("Transpose()", function="", mint="")
def _transpose(input: Array, input_perm: tuple[int, ...]) -> Array:
    """Dimensions in the order `input_perm`."""
    check.tensor("Transpose", input=input)
    order = check.shape("Transpose", input_perm, "input_perm")
    if len(order) != input.ndim:
        raise SporaxValueError(
            f"For 'Transpose', 'input_perm' must name all {input.ndim} dimensions of 'input', but got {order}."
        )
    return jnp.transpose(input, check.axes("Transpose", order, input.ndim, "input_perm") or None)


@operator("ExpandDims()", function="expand_dims", method="expand_dims", mint="")
def expand_dims(input_x: Array, axis: int) -> Array:
    """A dimension of size 1 more, at `axis`."""
    check.tensor("ExpandDims", input_x=input_x)
    return jnp.expand_dims(input_x, check.axis("ExpandDims", axis, input_x.ndim + 1))


@operator(function="unsqueeze", method="unsqueeze", mint="unsqueeze")
def unsqueeze(input: Array, dim: int) -> Array:
    """A dimension of size 1 more, at `dim`."""
    return jnp.expand_dims(input, check.axis("unsqueeze", dim, input.ndim + 1, "dim"))


@operator("Squeeze", method="squeeze", mint="squeeze(dim=axis)")
def squeeze(input: Array, axis: int | tuple[int, ...] | None = None) -> Array:
    """Without the dimensions of size 1: all of them, or those of `axis`.

    Raises:
        SporaxValueError: a dimension of `axis` is not of size 1.
    """
    check.tensor("Squeeze", input=input)
    where = check.axes("Squeeze", axis, input.ndim)
    for dim in where or ():
        if input.shape[dim] != 1:
            raise SporaxValueError(f"For 'Squeeze', dim {dim} must be of size 1, but the shape is {input.shape}.")
    return jnp.squeeze(input, where)


@operator("Flatten", function="")
def _flatten(input_x: Array) -> Array:
    """All dimensions but the first made into one."""
    check.tensor("Flatten", input_x=input_x)
    return jnp.reshape(input_x, (input_x.shape[0] if input_x.ndim else 1, -1))


@operator(function="flatten", method="flatten", mint="flatten")
def flatten(input: Array, order: str = "C", start_dim: int = 1, end_dim: int = -1) -> Array:
    """Dimensions `start_dim` to `end_dim` made into one."""
    check.one_of("flatten", order, ("C", "F"), "order")
    first = check.axis("flatten", start_dim, input.ndim, "start_dim") if input.ndim > 1 or start_dim < 0 else 0
    last = check.axis("flatten", end_dim, input.ndim, "end_dim")
    if last < first:
        raise SporaxValueError(
            f"For 'flatten', 'start_dim' must not be after 'end_dim', but got {start_dim}, {end_dim}."
        )
    middle = jnp.reshape(input, (*input.shape[:first], -1, *input.shape[last + 1 :]))
    return middle if order == "C" else jnp.reshape(input, middle.shape, order="F")


@operator("Tile()", method="tile", mint="tile(dims=reps)", function="tile")
def tile(input: Array, reps: tuple[int, ...]) -> Array:
    """The tensor repeated `reps` times along each dimension."""
    return jnp.tile(input, check.shape("Tile", reps, "reps"))


@operator("BroadcastTo", method="broadcast_to", mint="broadcast_to")
def broadcast_to(input: Array, shape: tuple[int, ...]) -> Array:
    """The tensor repeated to `shape`; -1 keeps the size of a dimension."""
    sizes = check.shape("BroadcastTo", shape)
    lead = len(sizes) - input.ndim
    full = tuple(input.shape[dim - lead] if size == -1 and dim >= lead else size for dim, size in enumerate(sizes))
    check.broadcast("BroadcastTo", input, np.empty(full, np.bool_))
    return jnp.broadcast_to(input, full)


def transpose(input: Any, *input_perm: Any) -> Any:
    """Dimensions in another order: `ops.transpose(x, (1, 0))`; ``mint.transpose(x, dim0, dim1)`` swaps two."""
    order = input_perm[0] if len(input_perm) == 1 and isinstance(input_perm[0], tuple | list) else input_perm
    return _transpose(input, tuple(order) or tuple(range(input.ndim))[::-1])


def swapaxes(input: Any, axis0: int, axis1: int) -> Any:
    """Two dimensions exchanged."""
    order = list(range(input.ndim))
    one, other = check.axis("swapaxes", axis0, input.ndim), check.axis("swapaxes", axis1, input.ndim)
    order[one], order[other] = order[other], order[one]
    return _transpose(input, tuple(order))


def permute(input: Any, *axis: Any) -> Any:
    """Dimensions in another order."""
    return transpose(input, *axis)


def view(self: Any, *shape: Any) -> Any:
    """Same as `reshape`."""
    return reshape(self, _sizes(shape))


def _sizes(shape: tuple[Any, ...]) -> Any:
    return tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape


# ----------------------------------------------------------------------------------------------------- joining, cutting


def _check_joined(name: str, arrays: Any, axis: int | None) -> None:
    if not isinstance(arrays, tuple) or not arrays:
        raise SporaxTypeError(
            f"For '{name}', the input must be a non-empty tuple or list of Tensors, but got {arrays!r}."
        )
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


@operator("Concat", function="concat", mint="concat(tensors=input_x, dim=axis); cat(tensors=input_x, dim=axis)")
def concat(input_x: Array, axis: int = 0) -> Array:
    """Tensors joined along an existing dimension.

    Args:
        input_x: tuple or list of tensors that agree in all other dimensions.
        axis: the dimension.
    """
    if not isinstance(input_x, tuple) or not input_x:
        _check_joined("Concat", input_x, None)
    where = check.axis("Concat", axis, input_x[0].ndim)
    _check_joined("Concat", input_x, where)
    return jnp.concatenate(input_x, where)


def cat(tensors: Any, axis: int = 0) -> Any:
    """Same as `concat`."""
    return concat(tensors, axis)


@operator("Stack", function="stack", mint="stack(dim=axis)")
def stack(tensors: Array, axis: int = 0) -> Array:
    """Tensors of one shape joined along a new dimension."""
    _check_joined("Stack", tensors, None)
    return jnp.stack(tensors, check.axis("Stack", axis, tensors[0].ndim + 1))


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
        bounds = range(split_size_or_sections, size, split_size_or_sections)
    else:
        if sum(split_size_or_sections) != size:
            raise SporaxValueError(
                f"For 'split', the sections {split_size_or_sections} must add up to {size}, the size of dim {where}."
            )
        bounds = np.cumsum(split_size_or_sections)[:-1].tolist()
    return tuple(jnp.split(tensor, list(bounds), where))


@operator("Unstack", function="unstack", method="")
def unstack(input_x: Array, axis: int = 0) -> tuple[Array, ...]:
    """The slices along `axis`, without that dimension."""
    where = check.axis("Unstack", axis, input_x.ndim)
    return tuple(jnp.moveaxis(input_x, where, 0))


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
    """``input_x[begin:end:strides]`` per dimension. Bit i of a mask: begin, end: ignore that bound; ellipsis: this
    position stands for all dims left over; new axis: a dimension of size 1; shrink: take one element and drop the dim.
    """
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
    """The block that starts at `begin` and has sizes `size`; a size of -1 reaches to the end."""
    sizes = tuple(
        whole - start if length == -1 else length
        for whole, start, length in zip(input_x.shape, begin, size, strict=True)
    )
    for dim, (whole, start, length) in enumerate(zip(input_x.shape, begin, sizes, strict=True)):
        if start < 0 or length < 0 or start + length > whole:
            raise SporaxValueError(
                f"For 'Slice', begin {start} and size {length} leave the range of dim {dim}, which has size {whole}."
            )
    return jax.lax.dynamic_slice(input_x, begin, sizes)


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


@operator("OneHot(axis)", function="")
def _one_hot(indices: Array, depth: int, on_value: Operand, off_value: Operand, axis: int = -1) -> Array:
    """`on_value` at the positions in `indices`, `off_value` elsewhere, along a new dimension of size `depth`."""
    check.integral("OneHot", indices=indices)
    where = check.axis("OneHot", axis, indices.ndim + 1)
    on = jnp.asarray(on_value)
    on = on.astype(jnp.float32) if isinstance(on_value, float) else on
    hot = jnp.expand_dims(indices, where) == jnp.arange(depth, dtype=indices.dtype).reshape(
        [-1 if dim == where else 1 for dim in range(indices.ndim + 1)]
    )
    return jnp.where(hot, on, jnp.asarray(off_value, on.dtype))


@operator(function="one_hot", mint="")
def one_hot(indices: Array, depth: int, on_value: Operand = 1, off_value: Operand = 0, axis: int = -1) -> Array:
    """`on_value` at the positions in `indices`, `off_value` elsewhere, along a new dimension of size `depth`."""
    return _one_hot.kernel(indices, depth, on_value, off_value, axis)


# ---------------------------------------------------------------------------------------------------------- dtype, filling


@operator("Cast()", function="cast", method="")
def cast(input: Operand, dtype: DType) -> Array:
    """The elements in another dtype."""
    return jnp.asarray(input).astype(to_dtype(dtype).np_dtype)


def astype(self: Any, dtype: Any, copy: bool = True) -> Any:
    """The elements in another dtype; takes dtypes, numpy dtypes and names."""
    return cast(self, to_dtype(dtype))


def _conversion(name: str, dtype: DType) -> None:
    def method(self: Tensor) -> Tensor:
        return cast(self, dtype)

    method.__name__, method.__doc__ = name, f"The elements as {dtype}."
    setattr(Tensor, name, method)


for _name, _dtype in (
    ("float", dtypes.float32),
    ("half", dtypes.float16),
    ("bfloat16", dtypes.bfloat16),
    ("double", dtypes.float64),
    ("int", dtypes.int32),
    ("long", dtypes.int64),
    ("bool", dtypes.bool_),
    ("byte", dtypes.uint8),
):
    _conversion(_name, _dtype)


@operator("ZerosLike", method="", mint="zeros_like", function="zeros_like")
def zeros_like(input: Array, dtype: DType | None = None) -> Array:
    """Zeros in the shape and dtype of `input`."""
    return jnp.zeros(input.shape, input.dtype if dtype is None else dtype.np_dtype)


@operator("OnesLike", method="", mint="ones_like", function="ones_like")
def ones_like(input: Array, dtype: DType | None = None) -> Array:
    """Ones in the shape and dtype of `input`."""
    return jnp.ones(input.shape, input.dtype if dtype is None else dtype.np_dtype)


@operator("Identity", function="deepcopy", method="copy, clone")
def deepcopy(input_x: Array) -> Array:
    """A copy."""
    return jnp.array(input_x, copy=True)


@operator("StopGradient", function="stop_gradient")
def stop_gradient(value: Array) -> Array:
    """The values, as a constant for differentiation."""
    return jax.lax.stop_gradient(value)


@operator("Tril", function="tril", method="tril", mint="tril")
def tril(input: Array, diagonal: int = 0) -> Array:
    """The lower triangle of the last two dimensions; zeros above `diagonal`."""
    return jnp.tril(input, diagonal)


@operator("Triu", function="triu", method="triu", mint="triu")
def triu(input: Array, diagonal: int = 0) -> Array:
    """The upper triangle of the last two dimensions; zeros below `diagonal`."""
    return jnp.triu(input, diagonal)


def zeros(size: Any, dtype: DType | None = None) -> Tensor:
    """Zeros; float32 by default."""
    return full(size, 0, dtype=dtype or dtypes.float32)


def ones(shape: Any, dtype: DType | None = None) -> Tensor:
    """Ones; float32 by default."""
    return full(shape, 1, dtype=dtype or dtypes.float32)


def full(size: Any, fill_value: Any, *, dtype: DType | None = None) -> Tensor:
    """A tensor of one value, which also gives the dtype when there is none."""
    sizes = check.shape("full", tuple(size) if isinstance(size, list) else size, "size")
    value = Tensor(fill_value, dtype)
    return wrap(jnp.full(sizes, value.array))


def full_like(input: Any, fill_value: Any, *, dtype: DType | None = None) -> Tensor:
    """A tensor of one value in the shape (and dtype) of `input`."""
    return full(input.shape, fill_value, dtype=dtype or input.dtype)


def arange(start: Any = 0, end: Any = None, step: Any = 1, *, dtype: DType | None = None) -> Tensor:
    """Numbers from `start` up to `end` (without it); int64, or float32 when a float is among the arguments."""
    first, last = (0, start) if end is None else (start, end)
    whole = all(isinstance(value, int | np.integer) for value in (first, last, step))
    kind = dtype or (dtypes.int64 if whole else dtypes.float32)
    return wrap(jnp.arange(first, last, step).astype(kind.np_dtype))


def eye(n: int, m: int | None = None, dtype: DType | None = None) -> Tensor:
    """Ones on the diagonal of an n × m matrix."""
    return wrap(jnp.eye(n, m, dtype=(dtype or dtypes.float32).np_dtype))


def linspace(start: float, end: float, steps: int) -> Tensor:
    """`steps` numbers at equal distances, both ends included."""
    return wrap(jnp.linspace(start, end, steps, dtype=jnp.float32))


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


export(transpose, swapaxes, permute, cat, zeros, ones, full, full_like, arange, eye, linspace, shape, rank, size)
for _function in (transpose, swapaxes, permute, astype, view):
    setattr(Tensor, _function.__name__, _function)
Tensor.reshape = view  # type: ignore[attr-defined]
Tensor.to = astype  # type: ignore[attr-defined]
