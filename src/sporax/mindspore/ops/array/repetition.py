"""Flipping, rolling, rotating, repeating, and views of tensors.

Tensors made of several: stacked along new dims, block diagonals, products and combinations.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For
from sporax.ir.operator_dims import Call, Dims, Shapes, numbered
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.ops._core import Array, check, known, operator, other_form
from sporax.mindspore.ops._core.dims import Along, along, with_constants


def _joined(name: str, function: Callable[..., Array], first: str, doc: str, mint: str) -> None:
    # Two kernels, as the parameter's name is part of MindSpore's signature.
    def of_tensors(tensors: Array) -> Array:
        return function(tensors)

    def of_inputs(inputs: Array) -> Array:
        return function(inputs)

    kernel = of_inputs if first == "inputs" else of_tensors
    kernel.__name__, kernel.__doc__ = name, doc
    operator(function=name, mint=mint)(kernel)


def _at_least(name: str, function: Callable[..., Array], dims: int) -> None:
    def kernel(inputs: Array) -> Any:
        # One tensor or several, as in MindSpore; the results have the form of the input.
        return tuple(map(function, inputs)) if isinstance(inputs, tuple) else function(inputs)

    kernel.__name__ = name
    kernel.__doc__ = f"A tensor, or each of several, with dimensions of size 1 added until there are {dims}."
    operator(function=name)(kernel)


@operator(function="block_diag")
def block_diag(*inputs: Array) -> Array:
    """A matrix with the given matrices (vectors as rows) as blocks on its diagonal, zeros elsewhere."""
    check.rank("block_diag", (0, 1, 2), **{f"inputs[{index}]": block for index, block in enumerate(inputs)})
    return jax.scipy.linalg.block_diag(*inputs)


@operator(function="cartesian_prod")
def cartesian_prod(*inputs: Array) -> Array:
    """All combinations of one element of each vector, one a row."""
    return jnp.stack([grid.reshape(-1) for grid in jnp.meshgrid(*inputs, indexing="ij")], -1)


@operator(function="combinations")
def combinations(input: check.Rank1, r: int = 2, with_replacement: bool = False) -> Array:
    """All choices of `r` elements of a vector, one a row; with `with_replacement` an element may occur more than once."""
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    # Positions are known while compiling: they depend on the size alone.
    rows = np.array(list(choose(range(input.size), r)), np.int64).reshape(-1, r)
    return input[rows]


@operator(function="flip", method="flip", mint="flip")
def flip(input: Array, dims: int | tuple[int, ...]) -> Array:
    """The order of the elements along `dims` reversed."""
    # The empty tuple flips nothing; None would flip all.
    return jnp.flip(input, check.axes("flip", dims, input.ndim, "dims") or ())


@operator("ReverseV2(axis)", function="", method="", dims=Along("axis", 0))
def _reverse_v2(input: Array, axis: int | tuple[int, ...]) -> Array:
    """The order of the elements along `axis` reversed."""
    return jnp.flip(input, check.axes("ReverseV2", axis, input.ndim) or ())


reverse = other_form(_reverse_v2, None, "x=input axis", function="reverse", method="reverse")


def _flip_at(name: str, dim: int) -> None:
    def kernel(input: Array) -> Array:
        For(name).refuse(input.ndim <= dim, f"'input' must have more than {dim} dims", input.shape)
        return jnp.flip(input, dim)

    kernel.__name__, kernel.__doc__ = name, f"The order of the elements along dim {dim} reversed."
    operator(function=name, method=name)(kernel)


_flip_at("flipud", 0)
_flip_at("fliplr", 1)


@operator("Roll(shifts, dims)", function="roll", method="roll", mint="roll")
def roll(input: check.One, shifts: int | tuple[int, ...], dims: int | tuple[int, ...] | None = None) -> Array:
    """The elements moved by `shifts` along `dims`, what leaves at the end coming back at the start.

    Without `dims` the tensor is rolled as if it were flat.
    """
    return jnp.roll(input, shifts, check.axes("Roll", dims, input.ndim, "dims"))


@operator(function="rot90", method="rot90")
def rot90(input: Array, k: int, dims: tuple[int, ...]) -> Array:
    """A turn by `k` times 90 degrees in the plane of two dims, from the first towards the second."""
    planes = check.axes("rot90", dims, input.ndim, "dims")
    if planes is None or len(planes) != 2:
        raise For("rot90").error("'dims' must name two dims", dims)
    return jnp.rot90(input, k, planes)


@operator("ReverseSequence", function="reverse_sequence")
def reverse_sequence(x: Array, seq_lengths: check.Int, seq_dim: int, batch_dim: int = 0) -> Array:
    """The first `seq_lengths` elements along `seq_dim` of each sample (along `batch_dim`) reversed."""
    along, batch = check.axis("ReverseSequence", seq_dim, x.ndim), check.axis("ReverseSequence", batch_dim, x.ndim)
    if along == batch or seq_lengths.shape != (x.shape[batch],):
        raise For("ReverseSequence").error(
            f"'seq_lengths' must have one element per sample and the two dims must differ, but got shapes {x.shape}, "
            f"{seq_lengths.shape}, 'seq_dim' {seq_dim} and 'batch_dim' {batch_dim}"
        )
    # int64, as lengths may be.
    position = jax.lax.broadcasted_iota(jnp.int64, x.shape, along)
    spread = [-1 if dim == batch else 1 for dim in range(x.ndim)]
    lengths = seq_lengths.astype(jnp.int64).reshape(spread)
    return jnp.take_along_axis(x, jnp.where(position < lengths, lengths - 1 - position, position), along)


other_form(reverse_sequence, method="reverse_sequence", seq_dim=0)


@operator(function="repeat_elements")
def repeat_elements(x: Array, rep: int, axis: int = 0) -> Array:
    """Every slice along `axis` `rep` times in a row."""
    return jnp.repeat(x, rep, check.axis("repeat_elements", axis, x.ndim))


@operator(
    function="repeat_interleave",
    method="repeat_interleave(dim=axis)",
    mint="repeat_interleave(dim=axis)",
    composed=True,
)
def repeat_interleave(input: Any, repeats: Any, axis: int | None = None) -> Any:
    """Every slice along `axis` (every element of the flattened tensor by default) several times in a row.

    Args:
        input: tensor.
        repeats: how often: an int, or one number for each slice (a compiled step with these runs operator by operator).
        axis: the dimension.
    """
    if isinstance(repeats, Tensor):
        repeats = tuple(known("repeat_interleave", "repeats", repeats).reshape(-1).tolist())
    counts = repeats if isinstance(repeats, int) else tuple(repeats)
    return _repeated(input, counts, axis)


def _repeated_dims(call: Call, shapes: Shapes) -> Dims:
    """The dim whose slices are repeated is never sharded; without one, none is."""
    rank, counts = len(shapes[0]), call.get("repeats")
    names = numbered(rank, along(call, "axis", None, rank))
    return with_constants(names, shapes[0], *(((len(counts),),) if isinstance(counts, tuple) else ()))


@operator(function="", dims=_repeated_dims)
def _repeated(input: Array, repeats: int | tuple[int, ...], axis: int | None) -> Array:
    """Every slice along `axis` several times in a row."""
    values = input.reshape(-1) if axis is None else input
    where = 0 if axis is None else check.axis("repeat_interleave", axis, input.ndim)
    counts = (repeats,) if isinstance(repeats, int) else repeats
    if len(counts) not in (1, values.shape[where]) or min(counts, default=0) < 0:
        raise For("repeat_interleave").error(
            f"'repeats' must be one number or {values.shape[where]}, none negative, but got {repeats}"
        )
    # Positions instead of `jnp.repeat`: its total length would have to be given to be compiled.
    order = np.repeat(np.arange(values.shape[where]), counts[0] if len(counts) == 1 else counts)
    return jnp.take(values, order, where)


@operator(function="", method="repeat", composed=True)
def _repeat(input: Any, *repeats: Any) -> Any:
    """The tensor repeated so many times along each dimension (new ones in front); see `ops.tile`."""
    # ``x.repeat(2, 3)`` and ``x.repeat((2, 3))``.
    counts = repeats[0] if len(repeats) == 1 and isinstance(repeats[0], tuple | list) else repeats
    return input.tile(tuple(counts))


_joined("hstack", jnp.hstack, "tensors", "Tensors joined along dim 1 (vectors along dim 0).", "hstack")
_joined("vstack", jnp.vstack, "inputs", "Tensors joined along dim 0, vectors as rows.", "")
_joined("row_stack", jnp.vstack, "tensors", "Tensors joined along dim 0, vectors as rows.", "")
_joined("dstack", jnp.dstack, "tensors", "Tensors joined along dim 2, vectors as columns.", "dstack")
_joined("column_stack", jnp.column_stack, "tensors", "Tensors joined along dim 1, vectors as columns.", "")

_at_least("atleast_1d", jnp.atleast_1d, 1)
_at_least("atleast_2d", jnp.atleast_2d, 2)
_at_least("atleast_3d", jnp.atleast_3d, 3)


def _moved(name: str) -> Any:
    def kernel(x: Array, source: int | tuple[int, ...], destination: int | tuple[int, ...]) -> Array:
        start = check.axes(name, source, x.ndim, "source")
        goal = check.axes(name, destination, x.ndim, "destination")
        if len(start or ()) != len(goal or ()):
            raise For(name).error(
                f"'source' and 'destination' must name as many dims as each other, but got {source}, {destination}"
            )
        return jnp.moveaxis(x, start or (), goal or ())

    kernel.__name__, kernel.__doc__ = (
        name,
        "Dims `source` moved to the places `destination`; the others keep their order.",
    )
    return operator(function=name, method=name)(kernel)


_moved("movedim")
_moved("moveaxis")


@operator(function="swapdims", method="swapdims")
def swapdims(input: Array, dim0: int, dim1: int) -> Array:
    """Two dimensions exchanged."""
    return jnp.swapaxes(
        input, check.axis("swapdims", dim0, input.ndim, "dim0"), check.axis("swapdims", dim1, input.ndim, "dim1")
    )


@operator(function="t", method="t", mint="t")
def t(input: Array) -> Array:
    """A matrix transposed; vectors and scalars stay as they are."""
    check.rank("t", (0, 1, 2), input=input)
    return input.T


@operator(function="ravel", method="ravel", mint="ravel")
def ravel(input: Array) -> Array:
    """All elements as a vector."""
    return jnp.reshape(input, (-1,))


@operator(function="view_as", method="view_as, reshape_as")
def view_as(input: Array, other: Array) -> Array:
    """The elements in the shape of `other`."""
    return jnp.reshape(input, other.shape)


@operator(function="type_as", method="type_as")
def type_as(input: Array, other: Array) -> Array:
    """The elements in the dtype of `other`."""
    return input.astype(other.dtype)


@operator(function="expand", composed=True)
def expand(input_x: Any, size: Any) -> Any:
    """The tensor repeated to the shape `size`; -1 keeps the size of a dimension."""
    return input_x.broadcast_to(tuple(size.tolist()) if isinstance(size, Tensor) else tuple(size))


@operator(function="", method="expand", composed=True)
def _expand_method(input: Any, *size: Any) -> Any:
    """The tensor repeated to a shape; -1 keeps the size of a dimension."""
    return expand(input, size[0] if len(size) == 1 and isinstance(size[0], tuple | list | Tensor) else size)
