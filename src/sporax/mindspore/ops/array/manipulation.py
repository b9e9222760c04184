"""Operators that keep the elements: reshape, transpose, squeeze, tile, broadcast; concat, stack, split, chunk, unstack.

Sizes of -1 and negative dims are resolved here and not by JAX, so that messages name MindSpore's arguments.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For, SporaxValueError
from sporax.ir.operator_dims import Call, Dims, OperatorDims, Shapes, StrategyEntry
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.ops._core import Array, check, export, operator, other_form, promote
from sporax.mindspore.ops._core.dims import FOLLOWS, Along, position_by_position
from sporax.mindspore.ops.array.conversion import rank, shape, size


@operator("Reshape()", mint="reshape", dims=FOLLOWS)
def reshape(input: Array, shape: tuple[int, ...]) -> Array:
    """The same elements in row-major order in another shape; one size may be -1, for what is left.

    Raises:
        SporaxValueError: the number of elements differs.
    """
    sizes = check.shape("Reshape", shape)
    fixed = math.prod(size for size in sizes if size != -1)
    inferred = sum(size == -1 for size in sizes)
    if inferred > 1 or min(sizes, default=1) < -1:
        raise SporaxValueError(f"For 'Reshape', 'shape' may hold one -1 and no other negative size, but got {sizes}.")
    # A size of 0 leaves nothing to infer from.
    fits = input.size % fixed == 0 if inferred and fixed else fixed == input.size
    if not fits:
        raise For("Reshape").error(
            f"the shape of 'input' is {input.shape} ({input.size} elements), which does not fit into 'shape' {sizes}"
        )
    return jnp.reshape(input, sizes if fixed else [max(size, 0) for size in sizes])


@operator("Transpose()", function="transpose")
def transpose(input: Array, dims: tuple[int, ...]) -> Array:
    """The dimensions in the order `dims`.

    Raises:
        SporaxValueError: `dims` does not name every dimension once.
    """
    For("Transpose").refuse(len(dims) != input.ndim, f"'dims' must name all {input.ndim} dimensions of 'input'", dims)
    # None would reverse the dims: an empty tensor of dims has nothing to permute.
    return jnp.transpose(input, check.axes("Transpose", dims, input.ndim, "dims") or None)


@operator(function="swapaxes", method="swapaxes", mint="swapaxes")
def swapaxes(input: Array, axis0: int, axis1: int) -> Array:
    """Two dimensions exchanged."""
    one, other = (check.axis("swapaxes", axis, input.ndim) for axis in (axis0, axis1))
    return jnp.swapaxes(input, one, other)


@operator("ExpandDims()", function="expand_dims", method="expand_dims")
def expand_dims(input_x: Array, axis: int) -> Array:
    """A dimension of size 1 more, at `axis`."""
    # One more dim, so one position more is valid.
    return jnp.expand_dims(input_x, check.axis("ExpandDims", axis, input_x.ndim + 1))


@operator(function="unsqueeze", method="unsqueeze", mint="unsqueeze")
def unsqueeze(input: Array, dim: int) -> Array:
    """A dimension of size 1 more, at `dim`."""
    return jnp.expand_dims(input, check.axis("unsqueeze", dim, input.ndim + 1, "dim"))


@operator(function="squeeze", method="squeeze", mint="squeeze(dim=axis)")
def squeeze(input: Array, axis: int | tuple[int, ...] | None = None) -> Array:
    """Without the dimensions of size 1: those among `axis`, or all of them when it is None or empty."""
    where = check.axes("squeeze", axis, input.ndim)
    return jnp.squeeze(input, None if where is None else tuple(dim for dim in where if input.shape[dim] == 1))


@operator("Squeeze", function="", method="", mint="")
def _squeeze_primitive(input: Array, axis: int | tuple[int, ...] = ()) -> Array:
    """Without the dimensions `axis`, or all of size 1 when it is empty.

    Raises:
        SporaxValueError: a dimension of `axis` is not of size 1.
    """
    for dim in check.axes("Squeeze", axis, input.ndim) or ():
        For("Squeeze").refuse(input.shape[dim] != 1, f"dim {dim} must be of size 1, but the shape is {input.shape}")
    return squeeze.kernel(input, axis)


@operator("Flatten", function="", dims=FOLLOWS)
def _flatten(input_x: Array) -> Array:
    """All dimensions but the first made into one.

    Raises:
        SporaxValueError: `input_x` has no dimension.
    """
    For("Flatten").refuse(not input_x.ndim, "'input_x' must have at least one dimension, but its shape is ()")
    # `reshape` with -1 fails where the first size is 0.
    return jnp.reshape(input_x, (input_x.shape[0], math.prod(input_x.shape[1:])))


@operator(function="flatten", dims=FOLLOWS)
def flatten(input: Array, order: Literal["C", "F"] = "C", *, start_dim: int = 1, end_dim: int = -1) -> Array:
    """Dimensions `start_dim` to `end_dim` made into one, in row-major (C) or column-major (F) order."""
    # A vector has no dim 1, which is the default start.
    first = check.axis("flatten", start_dim, input.ndim, "start_dim") if input.ndim > 1 or start_dim < 0 else 0
    last = check.axis("flatten", end_dim, input.ndim, "end_dim")
    For("flatten").refuse(last < first, "'start_dim' must not be after 'end_dim'", f"{start_dim}, {end_dim}")
    size = math.prod(input.shape[first : last + 1])
    return jnp.reshape(input, (*input.shape[:first], size, *input.shape[last + 1 :]), order=order)


def _by_copies(call: Call, shapes: Shapes) -> Dims | None:
    """One entry, for the numbers of copies; where there is one copy, for the dimension itself."""
    copies = call.get("dims", call.get("multiples", ()))
    if not isinstance(copies, tuple) or len(copies) < len(shapes[0]):
        return None
    # Missing dimensions on the left count as copies of one element.
    lead = len(copies) - len(shapes[0])
    sizes = ((1,) * lead) + shapes[0]
    result = tuple(f"m{dim}" if count > 1 else f"d{dim}" for dim, count in enumerate(copies))
    entry = StrategyEntry(
        result, tuple(count if count > 1 else size for count, size in zip(copies, sizes, strict=True))
    )
    # Where there is one copy, the dimension of the result is that of the input.
    inputs = tuple(f"d{dim}" if copies[dim] == 1 else f"d{dim}!" for dim in range(lead, len(copies)))
    return Dims((inputs,), (entry,), result)


@operator("Tile()", method="tile", mint="tile", function="tile", dims=OperatorDims(_by_copies, takes_out_strategy=True))
def tile(input: Array, dims: tuple[int, ...]) -> Array:
    """The tensor repeated `dims` times along each dimension; missing dimensions are put in front.

    Raises:
        SporaxValueError: a number of repetitions is negative.
    """
    For("Tile").refuse(min(dims, default=0) < 0, "the numbers in 'dims' must be >= 0", dims)
    return jnp.tile(input, dims)


@operator("BroadcastTo", method="broadcast_to", mint="broadcast_to")
def broadcast_to(input: Array, shape: tuple[int, ...]) -> Array:
    """The tensor repeated to `shape`; -1 keeps the size of a dimension.

    Raises:
        SporaxValueError: `input` does not broadcast to `shape`.
    """
    lead = len(shape) - input.ndim
    # -1 keeps a size only where the input has the dim.
    full = tuple(input.shape[dim - lead] if size == -1 and dim >= lead else size for dim, size in enumerate(shape))
    fits = lead >= 0 and all(own in (1, size) for own, size in zip(input.shape, full[max(lead, 0) :], strict=False))
    if not fits or min(full, default=0) < 0:
        raise SporaxValueError(f"For 'BroadcastTo', 'input' of shape {input.shape} does not broadcast to {shape}.")
    return jnp.broadcast_to(input, full)


# MindSpore's methods take both ``x.view(2, 3)`` and ``x.view((2, 3))``.
# What methods take as several arguments or as one.


def _sizes(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(values[0]) if len(values) == 1 and isinstance(values[0], tuple | list | range) else values


def _view(self: Tensor, *shape: Any) -> Tensor:
    """The same elements in another shape: ``x.view(2, 3)`` or ``x.view((2, 3))``. Same as `ops.reshape`."""
    return reshape(self, _sizes(shape))


def _transposed(self: Tensor, *axes: Any) -> Tensor:
    """The dimensions in another order, ``x.transpose(1, 0)`` or ``x.transpose((1, 0))``; reversed without arguments."""
    # Reversed without arguments, as in MindSpore.
    return transpose(self, _sizes(axes) or tuple(range(self.ndim))[::-1])


def _permuted(self: Tensor, *axis: Any) -> Tensor:
    """The dimensions in another order: ``x.permute(1, 0)`` or ``x.permute((1, 0))``."""
    return transpose(self, _sizes(axis))


export(shape, rank, size)


for _name, _method in (("view", _view), ("reshape", _view), ("transpose", _transposed), ("permute", _permuted)):
    setattr(Tensor, _name, _method)


permute = other_form(transpose, None, "input axis=dims", function="permute", mint="permute(dims=axis)")
other_form(swapaxes, mint="transpose", parameters="input dim0=axis0 dim1=axis1")
other_form(flatten, method="flatten", start_dim=0)
other_form(flatten, mint="flatten; nn.functional.flatten", parameters="input start_dim end_dim", start_dim=0)


@operator(function="narrow", method="narrow", mint="narrow(dim=axis)")
def narrow(input: Array, axis: int, start: int, length: int) -> Array:
    """`length` slices along `axis` from `start` on.

    Raises:
        SporaxValueError: they are not all there.
    """
    where = check.axis("narrow", axis, input.ndim)
    size = input.shape[where]
    first = start + size if start < 0 else start
    if not (0 <= first <= size and 0 <= length <= size - first):
        raise For("narrow").error(f"'start' {start} and 'length' {length} must lie within dim {axis} of size {size}")
    return jax.lax.slice_in_dim(input, first, first + length, axis=where)


@operator(function="chunk", method="chunk", mint="chunk(dim=axis)", dims=Along("axis", 0))
def chunk(input: Array, chunks: int, axis: int = 0) -> tuple[Array, ...]:
    """At most `chunks` pieces along `axis`, all of one size but the last, which may be smaller."""
    if isinstance(chunks, bool) or not isinstance(chunks, int) or chunks < 1:
        raise SporaxValueError(f"For 'chunk', 'chunks' must be a positive int, but got {chunks!r}.")
    where = check.axis("chunk", axis, input.ndim)
    # Rounded up; at least 1, since a dim may be empty.
    size = max(-(-input.shape[where] // chunks), 1)
    return tuple(jnp.split(input, list(range(size, input.shape[where], size)), where))


@operator(function="tensor_split", method="tensor_split")
def tensor_split(input: Array, indices_or_sections: int | tuple[int, ...], axis: int = 0) -> tuple[Array, ...]:
    """A number of pieces along `axis` whose sizes differ by at most one, or the pieces between given positions."""
    if isinstance(indices_or_sections, int) and indices_or_sections < 1:
        raise SporaxValueError(f"For 'tensor_split', the number of pieces must be >= 1, but got {indices_or_sections}.")
    where = check.axis("tensor_split", axis, input.ndim)
    return tuple(jnp.array_split(input, indices_or_sections, where))


def _split_along(name: str, axis: int) -> None:
    def kernel(input: Array, indices_or_sections: int | tuple[int, ...]) -> tuple[Array, ...]:
        For(name).refuse(input.ndim <= axis, f"'input' must have more than {axis} dims", input.shape)
        # Vectors have dim 0 only, along which numpy's functions work as well.
        return tensor_split.kernel(input, indices_or_sections, axis if input.ndim > 1 else 0)

    kernel.__name__, kernel.__doc__ = name, f"As `tensor_split`, along dim {axis}."
    operator(function=name, method=name)(kernel)


@operator(function="hsplit", method="hsplit")
def hsplit(input: Array, indices_or_sections: int | tuple[int, ...]) -> tuple[Array, ...]:
    """As `tensor_split`, along dim 1 (dim 0 of a vector)."""
    return tensor_split.kernel(input, indices_or_sections, 1 if input.ndim > 1 else 0)


@operator(function="unbind", method="unbind", mint="unbind")
def unbind(input: Array, dim: int = 0) -> tuple[Array, ...]:
    """The slices along `dim`, without that dimension."""
    return tuple(jnp.moveaxis(input, check.axis("unbind", dim, input.ndim, "dim"), 0))


def _check_filled(name: str, arrays: Any) -> None:
    For(name).refuse(not arrays, "'tensors' must hold at least one Tensor, but it is empty")


def _check_joined(name: str, arrays: Any, axis: int | None) -> None:
    first = arrays[0]
    for index, array in enumerate(arrays[1:], start=1):
        if array.ndim != first.ndim:
            raise SporaxValueError(
                f"For '{name}', all tensors must have as many dimensions as the first ({first.ndim}), "
                f"but x[{index}] has shape {array.shape}."
            )
        for dim in range(first.ndim):
            if dim != axis and array.shape[dim] != first.shape[dim]:
                raise SporaxValueError(
                    f"For '{name}', all sizes but those of the axis must agree, but x[0].shape is {first.shape} "
                    f"and x[{index}].shape is {array.shape} (dim {dim})."
                )


@operator("Concat", function="concat", mint="concat(dim=axis)", dims=Along("axis", 0))
def concat(tensors: tuple[Array, ...], axis: int = 0) -> Array:
    """Tensors joined along an existing dimension, in the dtype they have in common.

    Args:
        tensors: tuple or list of tensors that agree in all other dimensions.
        axis: the dimension.

    Raises:
        SporaxValueError: there are none, or their shapes do not fit together.
        SporaxTypeError: no common dtype.
    """
    _check_filled("Concat", tensors)
    where = check.axis("Concat", axis, tensors[0].ndim)
    _check_joined("Concat", tensors, where)
    # Promoted pair by pair in order, as MindSpore does.
    return jnp.concatenate(promote.together("Concat", tensors), where)


cat = other_form(concat, function="cat", mint="cat(dim=axis)")


@operator("Stack", function="stack", mint="stack(dim=axis)", dims=position_by_position)
def stack(tensors: tuple[Array, ...], axis: int = 0) -> Array:
    """Tensors of one shape joined along a new dimension.

    Raises:
        SporaxValueError: there are none, or their shapes differ.
        SporaxTypeError: no common dtype.
    """
    _check_filled("Stack", tensors)
    _check_joined("Stack", tensors, None)
    # The new dim counts, so one position more is valid.
    return jnp.stack(promote.together("Stack", tensors), check.axis("Stack", axis, tensors[0].ndim + 1))


@operator("Split", function="", dims=Along("axis", 0))
def _split(input_x: Array, axis: int = 0, output_num: int = 1) -> tuple[Array, ...]:
    """`output_num` equal parts along `axis`.

    Raises:
        SporaxValueError: the size is not divisible.
    """
    where = check.axis("Split", axis, input_x.ndim)
    # MindSpore's class form has equal parts only.
    if output_num < 1 or input_x.shape[where] % output_num:
        raise SporaxValueError(
            f"For 'Split', dim {where} of size {input_x.shape[where]} must be divisible by 'output_num' {output_num}."
        )
    return tuple(jnp.split(input_x, output_num, where))


@operator(function="split", method="split", mint="split(dim=axis)", dims=Along("axis", 0))
def split(tensor: Array, split_size_or_sections: int | tuple[int, ...], axis: int = 0) -> tuple[Array, ...]:
    """Parts of a given size (the last may be smaller), or of the sizes in a tuple, along `axis`."""
    where = check.axis("split", axis, tensor.ndim)
    size = tensor.shape[where]
    if isinstance(split_size_or_sections, int):
        For("split").refuse(split_size_or_sections < 1, "the size of parts must be positive", split_size_or_sections)
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
    For("Unstack").refuse(not input_x.ndim, "'input_x' must have at least one dimension, but its shape is ()")
    return tuple(jnp.moveaxis(input_x, where, 0))


@operator("Unstack", function="", dims=Along("axis", 0))
def _unstack(input_x: Array, axis: int = 0, num: int | None = None) -> tuple[Array, ...]:
    """The slices along `axis`, without that dimension; `num`, if given, has to be their number."""
    slices = _slices(input_x, axis)
    For("Unstack").refuse(num not in (None, len(slices)), f"'num' must be the size of dim {axis}, {len(slices)}", num)
    return slices


@operator(function="unstack")
def unstack(input_x: Array, axis: int = 0) -> tuple[Array, ...]:
    """The slices along `axis`, without that dimension."""
    return _slices(input_x, axis)


@operator("IdentityN()", function="")
def _identity_n(x: tuple[Array, ...]) -> tuple[Array, ...]:
    """Copies of several tensors."""
    # Copies: an output that is an input would share its buffer with it.
    return tuple(jnp.array(tensor, copy=True) for tensor in x)


@operator("SplitV(size_splits, split_dim, num_split)", function="")
def _split_v(input_x: Array, size_splits: tuple[int, ...], split_dim: int, num_split: int) -> tuple[Array, ...]:
    """Parts of the sizes `size_splits` along `split_dim`; one of them may be -1, which takes what is left."""
    name = "SplitV"
    dim = check.axis(name, split_dim, input_x.ndim, "split_dim")
    sizes, total = list(size_splits), input_x.shape[dim]
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = total - sum(sizes) - 1
    if len(sizes) != num_split or min(sizes, default=-1) < 0 or sum(sizes) != total:
        raise For(name).error(
            f"'size_splits' must be {num_split} sizes that add up to {total}, the size of dim {dim}", tuple(size_splits)
        )
    return tuple(jnp.split(input_x, np.cumsum(sizes)[:-1], dim))
