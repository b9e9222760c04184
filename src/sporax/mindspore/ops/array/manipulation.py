"""Operators that change the shape of a tensor and keep its elements: reshape, transpose, squeeze, tile, broadcast.

Sizes of -1 and negative dims are resolved here and not by JAX, so that messages name MindSpore's arguments.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import jax.numpy as jnp

from sporax.base.errors import SporaxValueError
from sporax.ir.operator_dims import Call, Dims, OperatorDims, Shapes, StrategyEntry
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.ops._core import check
from sporax.mindspore.ops._core.dims import FOLLOWS
from sporax.mindspore.ops._core.operator import Array, export, operator, other_form
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
        raise SporaxValueError(
            f"For 'Reshape', the shape of 'input' is {input.shape} ({input.size} elements), "
            f"which does not fit into 'shape' {sizes}."
        )
    return jnp.reshape(input, sizes if fixed else [max(size, 0) for size in sizes])


@operator("Transpose()", function="transpose")
def transpose(input: Array, dims: tuple[int, ...]) -> Array:
    """The dimensions in the order `dims`.

    Raises:
        SporaxValueError: `dims` does not name every dimension once.
    """
    if len(dims) != input.ndim:
        raise SporaxValueError.must("Transpose", "dims", f"name all {input.ndim} dimensions of 'input'", dims)
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
    """Without the dimensions of size 1: those of `axis`, or all of them when it is None or empty.

    Raises:
        SporaxValueError: a dimension of `axis` is not of size 1.
    """
    where = check.axes("Squeeze", axis, input.ndim)
    for dim in where or ():
        if input.shape[dim] != 1:
            raise SporaxValueError(f"For 'Squeeze', dim {dim} must be of size 1, but the shape is {input.shape}.")
    return jnp.squeeze(input, where)


other_form(squeeze, "Squeeze", axis=())


@operator("Flatten", function="", dims=FOLLOWS)
def _flatten(input_x: Array) -> Array:
    """All dimensions but the first made into one.

    Raises:
        SporaxValueError: `input_x` has no dimension.
    """
    if not input_x.ndim:
        raise SporaxValueError("For 'Flatten', 'input_x' must have at least one dimension, but its shape is ().")
    # `reshape` with -1 fails where the first size is 0.
    return jnp.reshape(input_x, (input_x.shape[0], math.prod(input_x.shape[1:])))


@operator(function="flatten", dims=FOLLOWS)
def flatten(input: Array, order: Literal["C", "F"] = "C", *, start_dim: int = 1, end_dim: int = -1) -> Array:
    """Dimensions `start_dim` to `end_dim` made into one, in row-major (C) or column-major (F) order."""
    # A vector has no dim 1, which is the default start.
    first = check.axis("flatten", start_dim, input.ndim, "start_dim") if input.ndim > 1 or start_dim < 0 else 0
    last = check.axis("flatten", end_dim, input.ndim, "end_dim")
    SporaxValueError.raise_if(last < first, "flatten", "start_dim", "not be after 'end_dim'", f"{start_dim}, {end_dim}")
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
    SporaxValueError.raise_if(min(dims, default=0) < 0, "Tile", "the numbers in 'dims'", "be >= 0", dims)
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
# All dimensions by default.
other_form(flatten, method="flatten", start_dim=0)
other_form(flatten, mint="flatten; nn.functional.flatten", parameters="input start_dim end_dim", start_dim=0)
