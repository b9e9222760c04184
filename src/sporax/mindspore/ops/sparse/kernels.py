"""The arithmetic of sparse matrices, on their dense parts.

A row of entries is a segment: products gather the dense operand at the columns and add up what belongs to one row.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from sporax.base.errors import For
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.ops._core import Array, check, operator
from sporax.mindspore.ops._core.promotion import pair


def rows_of(indptr: Array, entries: int) -> Array:
    """The row of each entry: how many rows have begun before it, less one."""
    # The first row starts at 0 in any case; each further start raises the row by one.
    begun = jnp.zeros((entries + 1,), indptr.dtype).at[indptr[1:-1]].add(1, mode="drop")
    return jnp.cumsum(begun[:entries], dtype=indptr.dtype)


@operator(function="csr2coo")
def csr2coo(indptr: Array, nnz: int) -> Array:
    """The row of each of the `nnz` entries of a CSR matrix.

    Args:
        indptr: (rows + 1,), where each row begins.
        nnz: number of entries.
    """
    check.rank("CSR2COO", 1, indptr=indptr)
    check.integral("CSR2COO", indptr=indptr)
    return rows_of(indptr, nnz)


@operator(function="coo2csr")
def coo2csr(row_indices: Array, height: int) -> Array:
    """Where each of the `height` rows begins among entries that are sorted by rows; (height + 1,).

    Args:
        row_indices: (entries,), the row of each entry.
        height: number of rows.
    """
    check.rank("COO2CSR", 1, row_indices=row_indices)
    check.integral("COO2CSR", row_indices=row_indices)
    # One place up, so that the running sum starts with 0.
    counts = jnp.zeros((height + 1,), row_indices.dtype).at[row_indices + 1].add(1, mode="drop")
    return jnp.cumsum(counts, dtype=row_indices.dtype)


@operator(function="csr_gather")
def csr_gather(indptr: Array, indices: Array, dense: Array, dense_shape: tuple[int, ...]) -> Array:
    """The elements of `dense` where a CSR matrix has entries: (entries, …).

    Args:
        indptr: (rows + 1,), where each row begins.
        indices: (entries,), the columns.
        dense: tensor that broadcasts to `dense_shape`.
        dense_shape: of the CSR matrix.
    """
    return _gathered("CSRGather", indptr, indices, dense, dense_shape)


def _gathered(name: str, indptr: Array, indices: Array, dense: Array, shape: tuple[int, ...]) -> Array:
    # Checked as shapes; the empty array has no memory behind it.
    if dense.ndim > len(shape) or check.broadcast(name, dense, jnp.empty(shape)) != tuple(shape):
        raise For(name).error(f"the dense tensor must broadcast to the sparse one, but got {dense.shape} and {shape}")
    return jnp.broadcast_to(dense, shape)[rows_of(indptr, indices.shape[0]), indices]


@operator(function="")
def csr_times(indptr: Array, indices: Array, values: Array, dense: Array, shape: tuple[int, ...]) -> Array:
    """The values of a CSR matrix, times the elements of `dense` at their places."""
    return jnp.multiply(*pair("CSRMul", values, _gathered("CSRMul", indptr, indices, dense, shape)))


@operator(function="")
def csr_over(indptr: Array, indices: Array, values: Array, dense: Array, shape: tuple[int, ...]) -> Array:
    """The values of a CSR matrix, divided by the elements of `dense` at their places."""
    numerator, divisor = pair("CSRDiv", values, _gathered("CSRDiv", indptr, indices, dense, shape))
    return jnp.true_divide(numerator, divisor).astype(numerator.dtype)


@operator(function="")
def csr_product(indptr: Array, indices: Array, values: Array, dense: Array, shape: tuple[int, ...]) -> Array:
    """A CSR matrix times a dense one."""
    check.tensor("CSRMM", dense=dense)
    if len(shape) != 2 or dense.ndim != 2 or dense.shape[0] != shape[1]:
        raise For("CSRMM").error(f"shapes must be (m, n) and (n, k), but got {tuple(shape)} and {dense.shape}")
    values, dense = pair("CSRMM", values, dense)
    terms = values[:, None] * dense[indices]
    target = jnp.zeros((shape[0], dense.shape[1]), terms.dtype)
    # "drop": entries out of range count for nothing.
    return target.at[rows_of(indptr, indices.shape[0])].add(terms, mode="drop")


@operator(function="")
def csr_row_sums(indptr: Array, values: Array, shape: tuple[int, ...]) -> Array:
    """The sum of each row, (rows, 1, …)."""
    sums = jnp.zeros((shape[0], *values.shape[1:]), values.dtype)
    return sums.at[rows_of(indptr, values.shape[0])].add(values, mode="drop")[:, None]


@operator(function="")
def csr_row_softmax(indptr: Array, values: Array) -> Array:
    """Softmax over the entries of each row."""
    check.floating("SparseMatrixSoftmax", values=values)
    rows, height = rows_of(indptr, values.shape[0]), indptr.shape[0] - 1
    # The largest of each row first, so that no exponential overflows.
    largest = jnp.full((height,), -jnp.inf, values.dtype).at[rows].max(values)
    exponentials = jnp.exp(values - largest[rows])
    return exponentials / jnp.zeros((height,), values.dtype).at[rows].add(exponentials)[rows]


@operator(function="")
def sums_of_entries(values: Array, positions: Array, entries: int) -> Array:
    """(entries, …): the sum of the values that go to each position."""
    return jnp.zeros((entries, *values.shape[1:]), values.dtype).at[positions].add(values, mode="drop")


@operator("SparseToDense()", function="")
def sparse_to_dense(indices: Array, values: Array, sparse_shape: tuple[int, ...]) -> Array:
    """The dense form of a matrix of entries.

    Args:
        indices: (entries, dims), the coordinates.
        values: (entries,).
        sparse_shape: of the matrix.
    """
    _check_entries("SparseToDense", indices, values, sparse_shape)
    # Added, since entries may share a place.
    return jnp.zeros(sparse_shape, values.dtype).at[tuple(indices.T)].add(values, mode="drop")


@operator(function="")
def _with_entries(x1_indices: Array, x1_values: Array, x2: Array) -> Array:
    _check_entries("SparseTensorDenseAdd", x1_indices, x1_values, x2.shape)
    check.same_dtype("SparseTensorDenseAdd", x1_values=x1_values, x2=x2)
    return x2.at[tuple(x1_indices.T)].add(x1_values, mode="drop")


@operator("SparseTensorDenseAdd()", function="", composed=True)
def sparse_tensor_dense_add(x1_indices: Any, x1_values: Any, x1_shape: Any, x2: Any) -> Any:
    """`x2` with the entries of a sparse matrix added.

    Args:
        x1_indices: (entries, dims), the coordinates.
        x1_values: (entries,).
        x1_shape: (dims,), of the dtype of the indices; it must be that of `x2`.
        x2: dense tensor.
    """
    if not isinstance(x1_shape, Tensor) or x1_shape.dtype != x1_indices.dtype:
        raise For("SparseTensorDenseAdd").type_error(
            f"'x1_indices' and 'x1_shape' must be Tensors of one dtype, but got {x1_indices.dtype} and "
            f"{getattr(x1_shape, 'dtype', type(x1_shape).__name__)}"
        )
    return _with_entries(x1_indices, x1_values, x2)


@operator("SparseTensorDenseMatmul(adjoint_st, adjoint_dt)", function="")
def sparse_tensor_dense_matmul(
    indices: Array,
    values: Array,
    sparse_shape: tuple[int, ...],
    dense: Array,
    adjoint_st: bool = False,
    adjoint_dt: bool = False,
) -> Array:
    """A matrix of entries times a dense matrix.

    Args:
        indices: (entries, 2), the coordinates.
        values: (entries,).
        sparse_shape: of the sparse matrix.
        dense: matrix.
        adjoint_st: the sparse matrix is transposed (and conjugated) before.
        adjoint_dt: the dense matrix is.
    """
    name = "SparseTensorDenseMatmul"
    _check_entries(name, indices, values, sparse_shape)
    check.same_dtype(name, values=values, dense=dense)
    check.rank(name, 2, dense=dense)
    rows, columns = indices[:, 0], indices[:, 1]
    height, width = sparse_shape
    if adjoint_st:
        rows, columns, height, width, values = columns, rows, width, height, jnp.conj(values)
    if adjoint_dt:
        dense = jnp.conj(dense.T)
    For(name).refuse(dense.shape[0] != width, "shapes must be (m, n) and (n, k)", (height, width), dense.shape)
    terms = values[:, None] * dense[columns]
    return jnp.zeros((height, dense.shape[1]), values.dtype).at[rows].add(terms, mode="drop")


def _check_entries(name: str, indices: Array, values: Array, shape: tuple[int, ...]) -> None:
    check.integral(name, indices=indices)
    if values.ndim != 1 or indices.shape != (*values.shape, len(shape)):
        raise For(name).error(
            "'values' must be (entries,), 'indices' (entries, dims) and the shape have 'dims' numbers, but got "
            f"{values.shape}, {indices.shape} and {tuple(shape)}"
        )
