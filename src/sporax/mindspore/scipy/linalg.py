"""Matrices: inverses, factorizations, systems of equations, eigenvalues: `mindspore.scipy.linalg`.

Arguments are SciPy's; those that say what may be overwritten or is checked change nothing. Integers are computed in float64. All
but `lstsq` and `solve_triangular` take single matrices, as MindSpore's do. Matrices are whole on each device.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For, named
from sporax.mindspore import ops
from sporax.mindspore._names.missing import answer_missing_names
from sporax.mindspore.common import Tensor
from sporax.mindspore.ops._core import Array, Operand, check, operator
from sporax.mindspore.ops._generated import GENERATED, batches_of_matrices

__all__ = [  # `lu_solve` and `det` are not listed, as in MindSpore
    *(
        "block_diag",
        "cho_factor",
        "cho_solve",
        "cholesky",
        "eigh",
        "inv",
        "lstsq",
        "lu",
        "lu_factor",
        "solve_triangular",
    )
]

answer_missing_names(__name__)

_REAL = ("int32", "int64", "float32", "float64")
_of_matrices = operator(function="", dims=batches_of_matrices)


def _floating(name: str, what: str, a: Array, allowed: tuple[str, ...] = _REAL) -> Array:
    """An array of one of these dtypes, integers as float64; else SporaxTypeError."""
    if a.dtype.name not in allowed:
        raise For(name).type_error(f"the dtype of '{what}' must be one of {', '.join(allowed)}", a.dtype.name)
    return a.astype(jnp.float64) if jnp.issubdtype(a.dtype, jnp.integer) else a


def _square(name: str, a: Array, what: str = "a", allowed: tuple[str, ...] = _REAL) -> Array:
    """The same of a square matrix; else SporaxValueError."""
    if a.ndim != 2 or a.shape[0] != a.shape[1]:
        raise For(name).error(f"{named(what)} must be a square matrix", f"a Tensor of shape {a.shape}")
    return _floating(name, what, a, allowed)


def _system(name: str, what: str, a: Array, b: Array) -> tuple[Array, Array]:
    """Matrix and right-hand side, (m,) or (m, k), of a system."""
    if b.ndim not in (1, 2) or b.shape[0] != a.shape[0]:
        raise For(name).error(f"'b' must be (m,) or (m, k) for '{what}' of shape {a.shape}", b.shape)
    check.same_dtype(name, **{what: a, "b": b})
    return _square(name, a, what), _floating(name, "b", b)


def solve_triangular(
    a: Tensor, b: Tensor, trans: int | str = 0, lower: bool = False, unit_diagonal: bool = False, overwrite_b: bool = False,
    debug: object = None, check_finite: bool = True,
) -> Any:  # fmt: skip
    """The x of ``a @ x = b`` for triangular matrices (…, m, m) and `b` (…, m) or (…, m, n).

    Args:
        a, b: see above; the other triangle is not read.
        trans: 1 or ``"T"`` for the transpose of `a`, 2 or ``"C"`` for the adjoint.
        lower: which triangle.
        unit_diagonal: the diagonal counts as ones.
        overwrite_b, debug, check_finite: change nothing.
    """
    For("solve_triangular").one_of("trans", trans, (0, 1, 2, "N", "T", "C"))
    kind = "NTC".index(trans) if isinstance(trans, str) else trans
    return GENERATED["SolveTriangular"]()(a, b, kind, lower, unit_diagonal)


def block_diag(*arrs: Tensor) -> Any:
    """Matrices along the diagonal of a larger one, zeros elsewhere; vectors and numbers are rows."""
    for part in arrs:
        For("block_diag").refuse(part.ndim > 2, "'arrs' must have at most 2 dims", part.shape)
    return ops.block_diag(*arrs) if arrs else Tensor(np.zeros((1, 0), np.float32))


@_of_matrices
def inv(a: Array, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """The inverse of a matrix."""
    return jnp.linalg.inv(_square("inv", a))


@_of_matrices
def cholesky(a: Array, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """The triangular U of ``a = U^T @ U``; with `lower` the L of ``a = L @ L^T``."""
    return jnp.linalg.cholesky(_square("cholesky", a), upper=not lower)


def cho_factor(
    a: Tensor, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Any, bool]:
    """As `cholesky`, for `cho_solve`; and `lower`."""
    return cholesky(a, lower, overwrite_a, check_finite), lower


def cho_solve(c_and_lower: tuple[Tensor, bool], b: Tensor, overwrite_b: bool = False, check_finite: bool = True) -> Any:
    """The x of ``a @ x = b``, from what `cho_factor` made of `a`."""
    return _cho_solve(*c_and_lower, b, overwrite_b, check_finite)


@_of_matrices
def _cho_solve(c: Array, lower: bool, b: Array, overwrite_b: bool, check_finite: bool) -> Array:
    """See `cho_solve`."""
    matrix, side = _system("cho_solve", "c", c, b)
    return jax.scipy.linalg.cho_solve((matrix, lower), side)


@_of_matrices
def eigh(
    a: Array, b: Operand | None = None, lower: bool = True, eigvals_only: bool = False, overwrite_a: bool = False,
    overwrite_b: bool = False, turbo: bool = True, eigvals: Any = None, type: int = 1, check_finite: bool = True,
) -> Any:  # fmt: skip
    """Eigenvalues of a symmetric (complex: Hermitian) matrix, ascending, and eigenvectors in columns.

    Args:
        a: (m, m), of which one triangle is read.
        b, eigvals: not offered, as in MindSpore.
        lower: which triangle.
        eigvals_only: leave the vectors out.
        overwrite_a, overwrite_b, turbo, type, check_finite: change nothing.
    """
    for what, value in (("b", b), ("eigvals", eigvals)):
        For("eigh").refuse(value is not None, f"{named(what)} must be None", "a value")
    return _of_one_triangle(_square("eigh", a, allowed=(*_REAL, "complex64", "complex128")), lower, not eigvals_only)


def _of_one_triangle(a: Array, lower: bool, vectors: bool) -> Any:
    """Eigenvalues (in the dtype of `a`) and vectors of Hermitian matrices; the other triangle has no gradient."""
    triangle = jnp.tril(a) if lower else jnp.triu(a)
    other = jnp.conj(jnp.swapaxes(jnp.tril(triangle, -1) if lower else jnp.triu(triangle, 1), -1, -2))
    values, columns = jnp.linalg.eigh(triangle + other, symmetrize_input=False)
    return (values.astype(a.dtype), columns) if vectors else values.astype(a.dtype)


def _factors(a: Array) -> tuple[Array, Array, Array]:
    """L (without its ones) and U in one, with which row each row changed places, and P of ``a = P @ L @ U`` (int32)."""
    packed, pivots, order = jax.lax.linalg.lu(a)
    return packed, pivots, jnp.swapaxes(jax.nn.one_hot(order, a.shape[-2], dtype=jnp.int32), -1, -2)


@_of_matrices
def lu_factor(a: Array, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Array, Array]:
    """L (without its ones) and U of a square matrix in one, and with which row each row changed places, from 0."""
    return _factors(_square("lu_factor", a))[:2]


@_of_matrices
def lu(a: Array, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Array, ...]:
    """P (int32), L and U, whose product is the matrix (m, n), m <= n; with `permute_l` their first product and U."""
    if a.ndim != 2 or a.shape[0] > a.shape[1]:
        raise For("lu").error("'a' must be (m, n) with m <= n", f"a Tensor of shape {a.shape}")
    packed, _, permutation = _factors(_floating("lu", "a", a))
    lower = jnp.tril(packed[:, : a.shape[0]], -1) + jnp.eye(a.shape[0], dtype=packed.dtype)
    return (permutation @ lower, jnp.triu(packed)) if permute_l else (permutation, lower, jnp.triu(packed))


def lu_solve(
    lu_and_piv: tuple[Tensor, Tensor], b: Tensor, trans: int = 0, overwrite_b: bool = False, check_finite: bool = True
) -> Any:
    """The x of ``a @ x = b``, from what `lu_factor` made of `a`; of the transpose with `trans` 1 or 2."""
    return _lu_solve(*lu_and_piv, b, trans, overwrite_b, check_finite)


@_of_matrices
def _lu_solve(lu_matrix: Array, pivot: Array, b: Array, trans: int, overwrite_b: bool, check_finite: bool) -> Array:
    """See `lu_solve`."""
    packed, side = _system("lu_solve", "lu_matrix", lu_matrix, b)
    For("lu_solve").refuse_type(pivot.dtype != jnp.int32, "the dtype of 'pivot' must be int32", pivot.dtype)
    shape = packed.shape[:1]
    For("lu_solve").refuse(pivot.shape != shape, f"'pivot' must have shape {shape}", pivot.shape)
    For("lu_solve").one_of("trans", trans, (0, 1, 2))
    return jax.scipy.linalg.lu_solve((packed, pivot), side, trans)


def det(a: Tensor, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """The determinant of a matrix."""
    return _det(a, overwrite_a, check_finite)


@_of_matrices
def _det(a: Array, overwrite_a: bool, check_finite: bool) -> Array:
    """See `det`."""
    return jnp.linalg.det(_square("det", a))


def lstsq(A: Tensor, B: Tensor, rcond: None = None, driver: str | None = None) -> Any:  # noqa: N803 - MindSpore's names
    """The x that brings ``A @ x`` as near to `B` as possible (least squares), residuals, rank and singular values.

    Args:
        A: (…, m, n).
        B: (…, m) or (…, m, k).
        rcond: changes nothing.
        driver: LAPACK's, which says what there is beside x; all else is empty. ``"gelsy"`` (None): the rank; ``"gels"``: squares
            of the residuals where m > n; ``"gelss"`` and ``"gelsd"``: all.
    """
    For("lstsq").one_of("driver", driver, (None, "gels", "gelsy", "gelss", "gelsd"))
    return _lstsq(A, B, driver or "gelsy")


@_of_matrices
def _lstsq(A: Array, B: Array, driver: str) -> tuple[Array, Array, Array, Array]:  # noqa: N803 - MindSpore's names
    """See `lstsq`."""
    check.floating("lstsq", A=A, B=B)
    check.same_dtype("lstsq", A=A, B=B)
    sides = B[..., None] if B.ndim == A.ndim - 1 else B
    if A.ndim < 2 or sides.ndim < 2 or sides.shape[-2] != A.shape[-2]:
        raise For("lstsq").error("A and B must be (…, m, n) and (…, m) or (…, m, k)", f"{A.shape}, {B.shape}")
    # By the pseudo-inverse, which also serves matrices without full rank and has a gradient.
    least = float(jnp.finfo(A.dtype).eps)
    solution = jnp.linalg.pinv(A, rtol=least) @ sides
    values = jnp.linalg.svd(jax.lax.stop_gradient(A), compute_uv=False)
    nothing = jnp.zeros((0,), A.dtype)
    has_residuals = driver != "gelsy" and A.shape[-2] > A.shape[-1]
    return (
        solution[..., 0] if sides is not B else solution,
        jnp.sum(jnp.abs(A @ solution - sides) ** 2, -2) if has_residuals else nothing,
        nothing.astype(int) if driver == "gels" else jnp.sum(values > least * values[..., :1], -1, dtype=int),
        values if driver in ("gelss", "gelsd") else nothing,
    )
