"""Bands of diagonals taken out of matrices, put into them, or made matrices of.

A band is packed into rows, the highest diagonal first: element (i, j) of a matrix is on diagonal ``d = j - i`` and in row
``k[1] - d`` of the packed band. Diagonals shorter than the longest one of the band are shifted to the left or to the right
end of their row, as `align` says: its first word for diagonals above the main one, its second for those below. Where
elements go is known before anything runs, so each operator is one gather.
"""

from __future__ import annotations

from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.ops._core import Array, Operand, check, known, operator, other_form

Align = Literal["RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT"]


def _band(name: str, k: tuple[int, ...], rows: int, columns: int) -> tuple[int, int]:
    """Lowest and highest diagonal, both within the matrix."""
    low, high = k[0], k[-1]
    if len(k) > 2 or low > high or not -max(rows, 1) < low or not high < max(columns, 1):
        raise For(name).error(
            f"'k' must be one or two diagonals in ascending order within a {rows} x {columns} matrix", k
        )
    return low, high


def _positions(low: int, high: int, rows: int, columns: int, align: str) -> tuple[Any, Any, Any]:
    """For every element of the matrix: whether it is in the band, and its row and column in the packed band."""
    i, j = np.arange(rows)[:, None], np.arange(columns)
    diagonal = j - i
    inside = (low <= diagonal) & (diagonal <= high)
    lengths = {d: min(rows + min(d, 0), columns - max(d, 0)) for d in range(low, high + 1)}
    above, below = align.split("_")
    shift = np.zeros((rows, columns), np.int64)
    for d, length in lengths.items():
        if (above if d >= 0 else below) == "RIGHT":
            shift[diagonal == d] = max(lengths.values()) - length
    # 0 outside of the band, where any index serves: the value is replaced.
    return inside, np.where(inside, high - diagonal, 0), np.where(inside, np.minimum(i, j) + shift, 0)


def _longest(low: int, high: int, rows: int, columns: int) -> int:
    return min(rows + min(high, 0), columns - max(low, 0))


def _packed(name: str, diagonal: Array, low: int, high: int, length: int) -> Array:
    """The packed band with its dim of diagonals, which a single diagonal may lack."""
    # One diagonal may come without the dim of diagonals.
    band = diagonal[..., None, :] if low == high and diagonal.shape[-2:] != (1, length) else diagonal
    if band.shape[-2:] != (high - low + 1, length):
        raise For(name).error(
            f"the diagonals {low} to {high} must have shape (…, {high - low + 1}, {length}), but got {diagonal.shape}"
        )
    return band


@operator(function="")
def _diag(x: Array, padding_value: Operand, k: tuple[int, ...], num_rows: int, num_cols: int, align: Align) -> Array:
    """Matrices of packed bands; see `matrix_diag`."""
    check.rank("MatrixDiagV3", range(1, 9), x=x)
    length = x.shape[-1]
    least = length - min(k[-1], 0), length + max(k[0], 0)
    both_open = num_rows == num_cols == -1
    rows, columns = (
        (max(least) if both_open else low) if count == -1 else count
        for low, count in zip(least, (num_rows, num_cols), strict=True)
    )
    low, high = _band("MatrixDiagV3", k, rows, columns)
    if rows < least[0] or columns < least[1] or _longest(low, high, rows, columns) != length:
        raise For("MatrixDiagV3").error(
            f"a {rows} x {columns} matrix has no diagonals {low} to {high} of length {length}"
        )
    inside, row, column = _positions(low, high, rows, columns, align)
    band = _packed("MatrixDiagV3", x, low, high, length)
    return jnp.where(inside, band[..., row, column], jnp.asarray(padding_value, x.dtype))


@operator(function="")
def _diag_part(x: Array, padding_value: Operand, k: tuple[int, ...], align: Align) -> Array:
    """Packed bands of matrices; see `matrix_diag_part`."""
    check.rank("MatrixDiagPartV3", range(2, 9), x=x)
    rows, columns = x.shape[-2:]
    low, high = _band("MatrixDiagPartV3", k, rows, columns)
    inside, row, column = _positions(low, high, rows, columns, align)
    shape = (high - low + 1, _longest(low, high, rows, columns))
    source, filled = np.zeros((2, *shape), np.int64), np.zeros(shape, bool)
    i, j = np.nonzero(inside)
    source[:, row[i, j], column[i, j]] = i, j
    filled[row[i, j], column[i, j]] = True
    band = jnp.where(filled, x[..., source[0], source[1]], jnp.asarray(padding_value, x.dtype))
    return band[..., 0, :] if low == high else band


@operator(function="")
def _set_diag(x: Array, diagonal: Array, k: tuple[int, ...], align: Align) -> Array:
    """Matrices with other values in a band; see `matrix_set_diag`."""
    check.rank("MatrixSetDiagV3", range(2, 9), x=x)
    check.same_dtype("MatrixSetDiagV3", x=x, diagonal=diagonal)
    rows, columns = x.shape[-2:]
    low, high = _band("MatrixSetDiagV3", k, rows, columns)
    inside, row, column = _positions(low, high, rows, columns, align)
    band = _packed("MatrixSetDiagV3", diagonal, low, high, _longest(low, high, rows, columns))
    return jnp.where(inside, band[..., row, column], x)


def _ints(name: str, what: str, value: Any) -> tuple[int, ...]:
    """An int, several, or a Tensor with them."""
    # Values decide shapes, so a Tensor must be known.
    values = known(name, what, value).reshape(-1).tolist() if isinstance(value, Tensor) else value
    return check.shape(name, values, what)


@operator(function="matrix_diag", composed=True)
def matrix_diag(
    x: Array, k: Any = 0, num_rows: Any = -1, num_cols: Any = -1, padding_value: Any = 0, align: Align = "RIGHT_LEFT"
) -> Any:
    """Matrices with a band of diagonals and `padding_value` elsewhere.

    Args:
        x: (…, length) for one diagonal, (…, diagonals, length) for several, packed as the module describes.
        k: the diagonal, or the lowest and the highest one; ints or a Tensor.
        num_rows, num_cols: size of the matrices; -1: as small as possible, and square when neither is given.
        padding_value: value outside the band.
        align: ends of the rows that diagonals above and below the main one are shifted to.
    """
    rows, columns = _ints("matrix_diag", "num_rows", num_rows)[0], _ints("matrix_diag", "num_cols", num_cols)[0]
    return _diag(x, padding_value, _ints("matrix_diag", "k", k), rows, columns, align)


@operator(function="matrix_diag_part", composed=True)
def matrix_diag_part(x: Array, k: Any, padding_value: Any, align: Align = "RIGHT_LEFT") -> Any:
    """The diagonals `k` of matrices (…, M, N), packed: (…, length) for one, (…, diagonals, length) for several.

    Args: as for `matrix_diag`; `padding_value` fills the rows of shorter diagonals.
    """
    return _diag_part(x, padding_value, _ints("matrix_diag_part", "k", k), align)


@operator(function="matrix_set_diag", composed=True)
def matrix_set_diag(x: Array, diagonal: Array, k: Any = 0, align: Align = "RIGHT_LEFT") -> Any:
    """Matrices (…, M, N) with the values of `diagonal`, packed, on the diagonals `k`. Arguments as for `matrix_diag`."""
    return _set_diag(x, diagonal, _ints("matrix_set_diag", "k", k), align)


other_form(matrix_diag, "MatrixDiagV3(align)")
other_form(matrix_diag_part, "MatrixDiagPartV3(align)")
other_form(matrix_set_diag, "MatrixSetDiagV3(align)")
