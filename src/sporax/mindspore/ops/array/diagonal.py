"""Diagonals and triangles of matrices."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np

from sporax.base.errors import SporaxValueError
from sporax.mindspore.ops._core import check
from sporax.mindspore.ops._core.operator import Array, operator

# ---------------------------------------------------------------------------------------------------------- diagonals


@operator("Diag", function="diag")
def diag(input: Array) -> Array:
    """A tensor of twice as many dims with `input` on its diagonal, zeros elsewhere."""
    check.tensor("Diag", input=input)
    # As a vector: `jnp.diag` knows matrices only.
    return jnp.diag(input.reshape(-1)).reshape(input.shape * 2)


@operator("DiagPart", function="")
def _diag_part(input_x: Array) -> Array:
    """The diagonal of a tensor whose shape is one shape twice; undoes `diag`."""
    half = input_x.ndim // 2
    if input_x.ndim % 2 or input_x.shape[:half] != input_x.shape[half:]:
        raise SporaxValueError(f"For 'DiagPart', the shape of 'input_x' must be one shape twice. Got {input_x.shape}.")
    # The tensor as a square matrix over all positions.
    size = math.prod(input_x.shape[:half])
    return jnp.diagonal(input_x.reshape(size, size)).reshape(input_x.shape[:half])


@operator(function="", method="diag", mint="diag")
def _mint_diag(input: Array, diagonal: int = 0) -> Array:
    """A matrix with a vector as diagonal, or the diagonal of a matrix."""
    check.rank("diag", (1, 2), input=input)
    return jnp.diag(input, diagonal)


@operator(function="diagflat", method="diagflat")
def diagflat(input: Array, offset: int = 0) -> Array:
    """A matrix with the flattened input as diagonal."""
    return jnp.diagflat(input, offset)


@operator(function="diagonal", method="diagonal(axis1=dim1, axis2=dim2)")
def diagonal(input: Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
    """The diagonals in the plane of two dims, along a last dimension of their own."""
    return jnp.diagonal(
        input,
        offset,
        check.axis("diagonal", dim1, input.ndim, "dim1"),
        check.axis("diagonal", dim2, input.ndim, "dim2"),
    )


@operator(function="diag_embed")
def diag_embed(input: Array, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Array:
    """Matrices with the vectors of the last dim as diagonals, in the plane of the new dims `dim1` and `dim2`."""
    # An offset makes room for as many rows or columns more.
    size = input.shape[-1] + abs(offset)
    steps = np.arange(input.shape[-1])
    matrices = jnp.zeros((*input.shape[:-1], size, size), input.dtype)
    matrices = matrices.at[..., steps + max(-offset, 0), steps + max(offset, 0)].set(input)
    # Only now: the new dims count in the result's number of dims.
    first = check.axis("diag_embed", dim1, input.ndim + 1, "dim1")
    second = check.axis("diag_embed", dim2, input.ndim + 1, "dim2")
    if first == second:
        raise SporaxValueError(f"For 'diag_embed', 'dim1' and 'dim2' must differ, but got {dim1} and {dim2}.")
    # The matrices are made in the last two dims and moved.
    return jnp.moveaxis(matrices, (-2, -1), (first, second))


@operator("FillDiagonal(fill_value, wrap)", function="")
def _fill_diagonal(input_x: Array, fill_value: float, wrap: bool = False) -> Array:
    """The tensor with one value on its diagonal; `wrap` goes on in tall matrices, a row below each corner."""
    name = "FillDiagonal"
    check.rank(name, range(2, 9), input_x=input_x)
    if input_x.ndim > 2 and len(set(input_x.shape)) > 1:
        raise SporaxValueError(f"For '{name}', more than 2 dims must have one size, but the shape is {input_x.shape}.")
    if input_x.ndim > 2:
        # All sizes are one, so one index serves for all dims.
        at = jnp.arange(input_x.shape[0])
        return input_x.at[(at,) * input_x.ndim].set(jnp.asarray(fill_value, input_x.dtype))
    rows, columns = input_x.shape
    # In the flat tensor a diagonal is every (columns + 1)-th element; without wrap it ends at the square part.
    positions = np.arange(0, rows * columns if wrap else min(rows, columns) * columns, columns + 1)
    filled = input_x.reshape(-1).at[positions].set(jnp.asarray(fill_value, input_x.dtype))
    return filled.reshape(input_x.shape)


@operator("Tril", function="tril", method="tril", mint="tril")
def tril(input: Array, diagonal: int = 0) -> Array:
    """The lower triangle of the last two dimensions; zeros above `diagonal`."""
    return jnp.tril(input, diagonal)


@operator("Triu", function="triu", method="triu", mint="triu")
def triu(input: Array, diagonal: int = 0) -> Array:
    """The upper triangle of the last two dimensions; zeros below `diagonal`."""
    return jnp.triu(input, diagonal)
