"""Primitives behind `mindspore.scipy`: factorizations, triangular systems, assignment problems."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

from sporax.base.errors import For
from sporax.mindspore._names.missing import answer_missing_names
from sporax.mindspore.common import Tensor
from sporax.mindspore.ops._core import PRIMITIVES, Array, check, operator
from sporax.mindspore.ops._generated import batches_of_matrices
from sporax.mindspore.scipy import linalg

__all__ = ["LU", "Eig", "LinearSumAssignment", "SolveTriangular", "matrix_set_diag"]

answer_missing_names(__name__)

_CLASSES: dict[str, Any] = {}


@operator("Eigh(compute_eigenvectors, lower)", function="", classes=_CLASSES, dims=batches_of_matrices)
def _eigh(a: Array, compute_eigenvectors: bool = True, lower: bool = True) -> Any:
    """As `scipy.linalg.eigh`, of batches of matrices."""
    check.rank("Eigh", range(2, 9), a=a)
    return linalg.of_one_triangle(a, lower, compute_eigenvectors)


@operator("LU()", function="", classes=_CLASSES, dims=batches_of_matrices)
def _lu(x: Array) -> tuple[Array, Array, Array]:
    """As `scipy.linalg.lu_factor`, of batches of matrices; and the matrices of the permutations (int32)."""
    check.floating("LU", x=x)
    return linalg.factors(x)


@operator("LinearSumAssignment()", function="", classes=_CLASSES, dims="rows! columns!,")
def _linear_sum_assignment(cost_matrix: Array, dimension_limit: Array, maximize: bool) -> tuple[Array, Array]:
    """Rows and columns of the assignment with the least (or largest) sum, in int64; -1 behind those of a lower limit.

    Args:
        cost_matrix: (m, n).
        dimension_limit: how many of the columns count.
        maximize: see above.
    """
    if cost_matrix.ndim != 2:
        raise For("LinearSumAssignment").error("'cost_matrix' must have 2 dims", cost_matrix.shape)
    size = min(cost_matrix.shape)

    def solve(cost: Any, limit: Any) -> list[Any]:
        found = scipy.optimize.linear_sum_assignment(np.asarray(cost)[:, : int(limit)], maximize)
        return [np.pad(part, (0, size - len(part)), constant_values=-1).astype(np.int64) for part in found]

    rows, columns = jax.pure_callback(
        solve, [jax.ShapeDtypeStruct((size,), jnp.int64)] * 2, cost_matrix, dimension_limit
    )
    return rows, columns


Eigh, LU, LinearSumAssignment = (_CLASSES[name] for name in ("Eigh", "LU", "LinearSumAssignment"))


def Eig(compute_v: bool = True) -> Any:  # noqa: N802 - a class in MindSpore
    """As `ops.Eig`, with eigenvectors by default."""
    return PRIMITIVES["Eig"](compute_v)


class SolveTriangular:
    """As `scipy.linalg.solve_triangular`; `trans` is ``"N"``, ``"T"`` or ``"C"``."""

    def __init__(self, lower: bool = False, unit_diagonal: bool = False, trans: str = "N") -> None:
        self.lower, self.unit_diagonal, self.trans = lower, unit_diagonal, trans

    def __call__(self, a: Tensor, b: Tensor) -> Any:
        """`a`: (…, m, m), `b`: (…, m) or (…, m, n)."""
        return linalg.solve_triangular(a, b, self.trans, self.lower, self.unit_diagonal)


def matrix_set_diag(input_x: Tensor, diagonal: Tensor, k: Any = 0, alignment: str = "RIGHT_LEFT") -> Any:
    """As `ops.MatrixSetDiagV3`, with the diagonals `k`: one number, or two."""
    band = Tensor(np.array(k if isinstance(k, tuple | list) else (k, k), np.int32))
    return PRIMITIVES["MatrixSetDiagV3"](alignment)(input_x, diagonal, band)


def _nd_transpose(a: Tensor) -> Any:
    """The last two dims exchanged."""
    return a.swapaxes(-1, -2)
