"""Linear algebra: solving, decompositions, determinants and functions of matrices.

Matrices are the last two dimensions; what comes before are batches.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import SporaxValueError, check_type
from sporax.mindspore.ops._core import check
from sporax.mindspore.ops._core.operator import Array, operator


def _matrices(name: str, square: bool = False, **arrays: Array) -> None:
    """Raise unless the arrays are floating (square) matrices or batches of them."""
    check.floating(name, **arrays)
    for label, array in arrays.items():
        if array.ndim < 2 or (square and array.shape[-1] != array.shape[-2]):
            expected = "square matrices" if square else "matrices"
            raise SporaxValueError(
                f"For '{name}', '{label}' must hold {expected} in its last two dims, but its shape is {array.shape}."
            )


def _turned(array: Array, turn: bool) -> Array:
    # The conjugate transpose, which is the transpose of real matrices.
    return jnp.conj(jnp.swapaxes(array, -1, -2)) if turn else array


@operator("MatrixSolve", function="matrix_solve")
def matrix_solve(matrix: Array, rhs: Array, adjoint: bool = False) -> Array:
    """The x of ``matrix @ x = rhs`` (of the conjugate transpose with `adjoint`). Shapes (…, n, n) and (…, n, k)."""
    _matrices("MatrixSolve", square=True, matrix=matrix)
    _matrices("MatrixSolve", rhs=rhs)
    check.same_dtype("MatrixSolve", matrix=matrix, rhs=rhs)
    return jnp.linalg.solve(_turned(matrix, adjoint), rhs)


@operator("MatrixTriangularSolve", function="")
def _matrix_triangular_solve(matrix: Array, rhs: Array, lower: bool = True, adjoint: bool = False) -> Array:
    """The x of ``matrix @ x = rhs`` for a triangular matrix, whose other half is not read."""
    _matrices("MatrixTriangularSolve", square=True, matrix=matrix)
    _matrices("MatrixTriangularSolve", rhs=rhs)
    # 2 is SciPy's code for the conjugate transpose.
    return jax.scipy.linalg.solve_triangular(matrix, rhs, trans=2 if adjoint else 0, lower=lower)


@operator(function="", method="triangular_solve", mint="triangular_solve")
def triangular_solve(
    b: Array,
    A: Array,  # noqa: N803 - MindSpore's name
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> tuple[Array, Array]:
    """The x of ``A @ x = b`` for a triangular matrix `A`, and `A` itself."""
    _matrices("triangular_solve", square=True, A=A)
    _matrices("triangular_solve", b=b)
    solution = jax.scipy.linalg.solve_triangular(
        A, b, trans=1 if transpose else 0, lower=not upper, unit_diagonal=unitriangular
    )
    return solution, A


@operator(function="lstsq", method="lstsq")
def lstsq(input: Array, A: Array) -> Array:  # noqa: N803 - MindSpore's name
    """The x that brings ``input @ x`` as near to `A` as possible (least squares). Shapes (m, n) and (m, k) give (n, k)."""
    _matrices("lstsq", input=input)
    targets = A[:, None] if A.ndim == 1 else A
    if input.ndim != 2 or input.shape[0] != targets.shape[0]:
        raise SporaxValueError(
            f"For 'lstsq', 'input' and 'A' must have as many rows as each other, but got {input.shape} and {A.shape}."
        )
    # By the pseudo-inverse, which also serves matrices without full rank and has a gradient.
    return jnp.linalg.pinv(input) @ targets


@operator("MatrixInverse", function="", mint="")
def _matrix_inverse(x: Array, adjoint: bool = False) -> Array:
    """Inverses of square matrices, of their conjugate transposes with `adjoint`."""
    _matrices("MatrixInverse", square=True, x=x)
    return jnp.linalg.inv(_turned(x, adjoint))


@operator(function="inverse", method="inverse", mint="inverse")
def inverse(input: Array) -> Array:
    """Inverses of square matrices."""
    _matrices("inverse", square=True, input=input)
    return jnp.linalg.inv(input)


@operator(function="pinv")
def pinv(x: Array, *, atol: float | None = None, rtol: float | None = None, hermitian: bool = False) -> Array:
    """Pseudo-inverses (Moore-Penrose).

    Args:
        x: matrices (…, m, n).
        atol, rtol: singular values not above ``max(atol, rtol * largest)`` count as zero; by default
            ``max(m, n)`` times the precision of the dtype, relative.
        hermitian: the matrices are symmetric (complex: Hermitian).
    """
    _matrices("pinv", x=x)
    if atol is None:
        return jnp.linalg.pinv(x, rtol=rtol, hermitian=hermitian)
    u, s, vh = jnp.linalg.svd(x, full_matrices=False)
    limit = jnp.maximum(atol, (rtol or 0.0) * jnp.max(s, -1, keepdims=True))
    # The inner `where` keeps the division harmless, also in the gradient.
    inverted = jnp.where(s > limit, 1 / jnp.where(s > limit, s, 1), 0)
    return jnp.matmul(_turned(vh, True) * inverted[..., None, :], _turned(u, True))


def _cholesky(input_x: Array, upper: bool = False) -> Array:
    """The triangular L with ``L @ L^H = x`` of positive definite matrices; with `upper` its conjugate transpose."""
    _matrices("Cholesky", square=True, input_x=input_x)
    lower = jnp.linalg.cholesky(input_x)
    return _turned(lower, upper)


# Renamed: the module uses `cholesky` for the operator itself.
_cholesky.__name__ = "cholesky"
cholesky = operator("Cholesky", function="cholesky", method="cholesky")(_cholesky)


@operator("CholeskyInverse", function="cholesky_inverse", method="cholesky_inverse")
def cholesky_inverse(input_x: Array, upper: bool = False) -> Array:
    """The inverse of the matrix whose triangular factor `input_x` is."""
    _matrices("CholeskyInverse", square=True, input_x=input_x)
    # Only the named triangle counts; the other may hold anything.
    factor = jnp.triu(input_x) if upper else jnp.tril(input_x)
    # `cho_solve` wants to know whether the factor is the lower one.
    return jax.scipy.linalg.cho_solve((factor, not upper), jnp.eye(input_x.shape[-1], dtype=input_x.dtype))


@operator("CholeskySolve", function="cholesky_solve", method="cholesky_solve")
def cholesky_solve(input: Array, input2: Array, upper: bool = False) -> Array:
    """The x of ``A @ x = input``, where `input2` is the triangular factor of A."""
    _matrices("CholeskySolve", input=input)
    _matrices("CholeskySolve", square=True, input2=input2)
    return jax.scipy.linalg.cho_solve((input2, not upper), input)


@operator("Qr", function="", method="")
def _qr_primitive(x: Array, full_matrices: bool = False) -> tuple[Array, Array]:
    """An orthogonal and an upper triangular matrix whose product is `x`."""
    _matrices("Qr", x=x)
    q, r = jnp.linalg.qr(x, mode="complete" if full_matrices else "reduced")
    return q, r


@operator(function="qr", mint="qr")
def qr(input: Array, mode: str = "reduced") -> tuple[Array, Array]:
    """An orthogonal and an upper triangular matrix whose product is `input`; ``"complete"`` gives square q."""
    check.one_of("qr", mode, ("reduced", "complete"), "mode")
    # The class form's kernel, so that there is one implementation.
    return _qr_primitive.kernel(input, mode == "complete")


@operator(function="", method="qr")
def _qr_method(input: Array, some: bool = True) -> tuple[Array, Array]:
    """As `qr`; with `some` in its reduced form."""
    return _qr_primitive.kernel(input, not some)


@operator("Svd", function="svd", method="svd")
def svd(input: Array, full_matrices: bool = False, compute_uv: bool = True) -> Any:
    """Singular values, descending; with `compute_uv` also u and v: ``input = u @ diag(s) @ v^H``."""
    _matrices("Svd", input=input)
    if not compute_uv:
        return jnp.linalg.svd(input, full_matrices=full_matrices, compute_uv=False)
    u, s, vh = jnp.linalg.svd(input, full_matrices=full_matrices)
    # MindSpore gives v, not its conjugate transpose.
    return s, u, _turned(vh, True)


@operator(function="eigvals", method="eigvals")
def eigvals(A: Array) -> Array:  # noqa: N803 - MindSpore's name
    """Eigenvalues of square matrices, complex; not differentiable. On the CPU only."""
    _matrices("eigvals", square=True, A=A)
    return jnp.linalg.eigvals(A)


@operator(function="eig")
def eig(A: Array) -> tuple[Array, Array]:  # noqa: N803 - MindSpore's name
    """Eigenvalues and, in columns, eigenvectors of square matrices, complex. On the CPU only."""
    _matrices("eig", square=True, A=A)
    values, vectors = jnp.linalg.eig(A)
    return values, vectors


def _determinant(name: str, own: str, method: str) -> Any:
    def kernel(input: Array) -> Array:
        _matrices(name, square=True, input=input)
        return jnp.linalg.det(input)

    kernel.__name__, kernel.__doc__ = own, "Determinants of square matrices."
    return operator(name if name[0].isupper() else None, function=own, method=method)(kernel)


_determinant("MatrixDeterminant", "matrix_determinant", "matrix_determinant")
_determinant("det", "det", "det")


def _log_determinant(name: str, own: str) -> Any:
    def kernel(input: Array) -> tuple[Array, Array]:
        _matrices(name, square=True, input=input)
        sign, logarithm = jnp.linalg.slogdet(input)
        return sign, logarithm

    kernel.__name__, kernel.__doc__ = own, "Signs of the determinants and logarithms of their absolute values."
    return operator(name if name[0].isupper() else None, function=own, method=own)(kernel)


_log_determinant("LogMatrixDeterminant", "log_matrix_determinant")
_log_determinant("slogdet", "slogdet")


@operator(function="logdet", method="logdet")
def logdet(input: Array) -> Array:
    """Logarithms of determinants; NaN where one is negative."""
    _matrices("logdet", square=True, input=input)
    sign, logarithm = jnp.linalg.slogdet(input)
    # A negative determinant has no real logarithm.
    return jnp.where(sign < 0, jnp.asarray(np.nan, logarithm.dtype), logarithm)


@operator("MatrixPower", function="matrix_power", method="matrix_power")
def matrix_power(input: Array, n: int) -> Array:
    """`input` times itself `n` times; of the inverse for negative `n`."""
    _matrices("MatrixPower", square=True, input=input)
    check_type("MatrixPower", "n", n, "an int", int, takes_bool=False)
    return jnp.linalg.matrix_power(input, n)


@operator("MatrixExp", function="matrix_exp")
def matrix_exp(input: Array) -> Array:
    """Exponentials of square matrices: the sum over k of ``x^k / k!``."""
    _matrices("MatrixExp", square=True, input=input)
    return jax.scipy.linalg.expm(input)


@operator("Trace", function="trace", mint="trace")
def trace(input: Array) -> Array:
    """Sum of the diagonal of a matrix."""
    check.tensor("Trace", input=input)
    check.rank("Trace", 2, input=input)
    return jnp.trace(input)


@operator(function="", method="trace")
def _trace_method(input: Array, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Array:
    """Sum of a diagonal in the plane of two dimensions."""
    # Converted before summing, so that sums do not overflow.
    values = input if dtype is None else input.astype(dtype.np_dtype)
    return jnp.trace(values, offset, axis1, axis2).astype(values.dtype)


@operator(function="")
def transposed(x: Array) -> Array:
    """The last two dimensions exchanged."""
    return jnp.swapaxes(x, -1, -2)


@operator(function="adjoint", method="adjoint")
def adjoint(x: Array) -> Array:
    """The last two dimensions exchanged and complex numbers conjugated."""
    return _turned(x, True)


@operator(function="vander")
def vander(x: Array, N: int | None = None) -> Array:  # noqa: N803 - MindSpore's name
    """Powers of the elements of a vector in columns, from `N` - 1 down to 0."""
    check.rank("vander", 1, x=x)
    return jnp.vander(x, N)


@operator("MatrixBandPart()", function="matrix_band_part")
def matrix_band_part(x: Array, lower: Array | int, upper: Array | int) -> Array:
    """The diagonals from `lower` below to `upper` above the main one, zeros elsewhere; negative: all on that side."""
    if x.ndim < 2:
        raise SporaxValueError(f"For 'MatrixBandPart', 'x' must have at least 2 dims, but its shape is {x.shape}.")
    rows, columns = jnp.arange(x.shape[-2])[:, None], jnp.arange(x.shape[-1])[None, :]
    # Negative numbers leave a side open; both may be tensors.
    below, above = jnp.asarray(lower), jnp.asarray(upper)
    inside = ((below < 0) | (rows - columns <= below)) & ((above < 0) | (columns - rows <= above))
    return jnp.where(inside, x, jnp.zeros((), x.dtype))
