"""Picking elements: by index, by mask, by position; looking rows up in tables; and cutting a dimension into pieces."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.common.tensor import Tensor, wrap_numpy
from sporax.ir.errors import SporaxTypeError, SporaxValueError
from sporax.ops._core import check
from sporax.ops._core.operator import Array, operator
from sporax.ops.array.sorting import known
from sporax.ops.linalg.norms import length

# ----------------------------------------------------------------------------------------------------------- by index


def _gather_along(name: str, x: Array, dim: int, index: Array) -> Array:
    check.tensor(name, x=x)
    check.integral(name, index=index)
    where = check.axis(name, dim, x.ndim, "dim")
    if x.ndim != index.ndim:
        raise SporaxValueError(
            f"For '{name}', 'x' and 'index' must have as many dims as each other, but got {x.shape} and {index.shape}."
        )
    for each in range(x.ndim):
        if each != where and index.shape[each] > x.shape[each]:
            raise SporaxValueError(
                f"For '{name}', 'index' must not be larger than 'x' in dim {each}, but got {index.shape} and {x.shape}."
            )
    own = x[tuple(slice(None) if each == where else slice(size) for each, size in enumerate(index.shape))]
    return jnp.take_along_axis(own, index, where, mode="fill", fill_value=0)


@operator("GatherD()", function="gather_d", mint="gather(input=x)")
def gather_d(x: Array, dim: int, index: Array) -> Array:
    """Elements of `x` along `dim` at `index`, one for each element of `index`; an index out of range gives zero.

    Args:
        x: tensor.
        dim: the dimension.
        index: integers; as many dims as `x`, not larger than it in the others.
    """
    return _gather_along("GatherD", x, dim, index)


@operator(function="gather_elements", method="gather_elements")
def gather_elements(input: Array, dim: int, index: Array) -> Array:
    """Same as `gather_d`."""
    return _gather_along("gather_elements", input, dim, index)


@operator("GatherNd", function="gather_nd", method="gather_nd")
def gather_nd(input_x: Array, indices: Array) -> Array:
    """Elements or slices of `input_x` at positions; a position out of range gives zeros.

    Args:
        input_x: tensor.
        indices: integers (…, k): each last row is a position in the first k dims.
    """
    check.tensor("GatherNd", input_x=input_x)
    check.integral("GatherNd", indices=indices)
    if not indices.ndim or indices.shape[-1] > input_x.ndim:
        raise SporaxValueError(
            f"For 'GatherNd', the last dim of 'indices' must be at most the number of dims of 'input_x', "
            f"but got shapes {indices.shape} and {input_x.shape}."
        )
    return input_x.at[tuple(jnp.moveaxis(indices, -1, 0))].get(mode="fill", fill_value=0)


@operator(function="index_select", method="index_select", mint="index_select(dim=axis)")
def index_select(input: Array, axis: int, index: Array) -> Array:
    """Slices of `input` along `axis` at the positions in the vector `index`."""
    check.integral("index_select", index=index)
    check.rank("index_select", (0, 1), index=index)
    where = check.axis("index_select", axis, input.ndim)
    return jnp.take(input, jnp.atleast_1d(index), where, mode="fill", fill_value=0)


@operator(function="take", method="take", mint="take")
def take(input: Array, index: Array) -> Array:
    """Elements of the flattened `input` at `index`, in the shape of `index`."""
    check.integral("take", index=index)
    return jnp.take(input.reshape(-1), index, mode="fill", fill_value=0)


@operator(function="", mint="select", composed=True)
def _mint_select(input: Any, dim: int, index: int) -> Any:
    """The slice at `index` along `dim`, without that dimension."""
    where = check.axis("select", dim, input.ndim, "dim")
    return input[(slice(None),) * where + (index,)]


# ------------------------------------------------------------------------------------------------------------- tables


def _table_rows(name: str, table: Array, indices: Array, offset: int) -> Array:
    check.tensor(name, input_params=table)
    check.integral(name, input_indices=indices)
    rows = indices - offset if offset else indices
    known_rows = jnp.where(rows < 0, table.shape[0], rows)  # negative ones are out of range here, not from the end
    return jnp.take(table, known_rows, 0, mode="fill", fill_value=0)


@operator("EmbeddingLookup()", function="")
def _embedding_lookup(input_params: Array, input_indices: Array, offset: int) -> Array:
    """Rows of a table that holds the rows from `offset` on; zeros for rows that it does not hold."""
    check.rank("EmbeddingLookup", (1, 2), input_params=input_params)
    return _table_rows("EmbeddingLookup", input_params, input_indices, offset)


@operator("SparseGatherV2()", function="")
def _sparse_gather(input_params: Array, input_indices: Array, axis: int) -> Array:
    """Slices of `input_params` along `axis` at `input_indices`; an index out of range gives zeros."""
    check.integral("SparseGatherV2", input_indices=input_indices)
    where = check.axis("SparseGatherV2", axis, input_params.ndim)
    return jnp.take(input_params, input_indices, where, mode="fill", fill_value=0)


@operator(function="embedding", mint="nn.functional.embedding")
def embedding(
    input: Array,
    weight: Array,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
) -> Array:
    """Rows of `weight` at `input`.

    Args:
        input: integers of any shape.
        weight: (rows, size), the table.
        padding_idx: this row gets no gradient.
        max_norm: rows that are looked up are scaled down to this norm; `weight` itself stays as it is (MindSpore
            writes the scaled rows back).
        norm_type: which p-norm.
        scale_grad_by_freq: divide the gradient of a row by how often it is looked up.
    """
    check.integral("embedding", input=input)
    check.rank("embedding", 2, weight=weight)
    if padding_idx is not None:
        padding = check.axis("embedding", padding_idx, weight.shape[0], "padding_idx")
        is_padding = (jnp.arange(weight.shape[0]) == padding)[:, None]
        weight = jnp.where(is_padding, jax.lax.stop_gradient(weight), weight)
    rows = _table_rows("embedding", weight, input, 0)
    if scale_grad_by_freq:
        counts = jnp.zeros((weight.shape[0],), rows.dtype).at[input].add(1)[input][..., None]
        rows = rows / counts + jax.lax.stop_gradient(rows - rows / counts)
    if max_norm is None:
        return rows
    size = jax.lax.stop_gradient(length(rows, norm_type, -1, True))
    return rows * jnp.where(size > max_norm, max_norm / (size + 1e-7), jnp.ones((), rows.dtype))


# ------------------------------------------------------------------- by mask or value: outside compiled steps only


@operator("NonZero()", function="", composed=True)
def _nonzero_primitive(input: Any) -> Tensor:
    """Positions (int64) of the elements that are not zero, one a row; outside compiled steps only."""
    return wrap_numpy(np.argwhere(known("NonZero", "input", input)).astype(np.int64))


@operator(function="nonzero", method="nonzero", mint="nonzero", composed=True)
def nonzero(input: Any, *, as_tuple: bool = False) -> Any:
    """Positions (int64) of the elements that are not zero: one a row, or with `as_tuple` one vector for each dim.

    The result's shape depends on the values, so this cannot be part of a compiled step.
    """
    positions = _nonzero_primitive(input)
    if not as_tuple:
        return positions
    return tuple(wrap_numpy(column) for column in np.asarray(positions.array).T.copy())


@operator(function="argwhere", method="argwhere", composed=True)
def argwhere(input: Any) -> Tensor:
    """Positions (int64) of the elements that are not zero, one a row; outside compiled steps only."""
    return _nonzero_primitive(input)


@operator("MaskedSelect()", function="masked_select", method="masked_select", mint="masked_select", composed=True)
def masked_select(input: Any, mask: Any) -> Any:
    """The elements where `mask` is true, as a vector; both are broadcast first.

    The result's shape depends on the values of `mask`, so this cannot be part of a compiled step.

    Raises:
        SporaxTypeError: `mask` is not a bool tensor.
    """
    chosen = known("MaskedSelect", "mask", mask)
    if chosen.dtype != np.bool_:
        raise SporaxTypeError(f"For 'MaskedSelect', 'mask' must be Tensor[Bool], but got {mask.dtype}.")
    shape = check.broadcast("MaskedSelect", input, chosen)
    picked = np.flatnonzero(np.broadcast_to(chosen, shape))
    return _picked(input, wrap_numpy(picked), shape)


@operator(function="")
def _picked(input: Array, index: Array, shape: tuple[int, ...]) -> Array:
    """Elements of the broadcast tensor at flat positions."""
    return jnp.broadcast_to(input, shape).reshape(-1)[index]


# ------------------------------------------------------------------------------------------------------------- pieces


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
        raise SporaxValueError(
            f"For 'narrow', 'start' {start} and 'length' {length} must lie within dim {axis} of size {size}."
        )
    return jax.lax.slice_in_dim(input, first, first + length, axis=where)


@operator(function="chunk", method="chunk", mint="chunk(dim=axis)")
def chunk(input: Array, chunks: int, axis: int = 0) -> tuple[Array, ...]:
    """At most `chunks` pieces along `axis`, all of one size but the last, which may be smaller."""
    if isinstance(chunks, bool) or not isinstance(chunks, int) or chunks < 1:
        raise SporaxValueError(f"For 'chunk', 'chunks' must be a positive int, but got {chunks!r}.")
    where = check.axis("chunk", axis, input.ndim)
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
        if input.ndim <= axis:
            raise SporaxValueError(f"For '{name}', 'input' must have more than {axis} dims, but got {input.shape}.")
        return tensor_split.kernel(input, indices_or_sections, axis if input.ndim > 1 else 0)

    kernel.__name__, kernel.__doc__ = name, f"As `tensor_split`, along dim {axis}."
    operator(function=name, method=name)(kernel)


_split_along("vsplit", 0)
_split_along("dsplit", 2)


@operator(function="hsplit", method="hsplit")
def hsplit(input: Array, indices_or_sections: int | tuple[int, ...]) -> tuple[Array, ...]:
    """As `tensor_split`, along dim 1 (dim 0 of a vector)."""
    return tensor_split.kernel(input, indices_or_sections, 1 if input.ndim > 1 else 0)


@operator(function="unbind", method="unbind", mint="unbind")
def unbind(input: Array, dim: int = 0) -> tuple[Array, ...]:
    """The slices along `dim`, without that dimension."""
    return tuple(jnp.moveaxis(input, check.axis("unbind", dim, input.ndim, "dim"), 0))
