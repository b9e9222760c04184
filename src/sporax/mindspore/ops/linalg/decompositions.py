"""Linear algebra: solving, decompositions, determinants and functions of matrices; products of reflections and of triangles.

Matrices are the last two dimensions; what comes before are batches. `geqrf` and `lu_unpack` use LAPACK's packed forms:
reflections below a triangle, and rows exchanged in turn with the row that `LU_pivots` (counted from 1) names.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For, SporaxValueError, named
from sporax.mindspore.ops._core import Array, check, operator, promote


def _matrices(name: str, square: bool = False, **arrays: Array) -> None:
    """Raise unless the arrays are floating (square) matrices or batches of them."""
    check.floating(name, **arrays)
    for label, array in arrays.items():
        if array.ndim < 2 or (square and array.shape[-1] != array.shape[-2]):
            expected = "square matrices" if square else "matrices"
            raise SporaxValueError(
                f"For '{name}', '{label}' must hold {expected} in its last two dims, but its shape is {array.shape}."
            )


def _wide(array: Array) -> Array:
    """An array as LAPACK takes it: half precision as float32."""
    return array.astype(jnp.promote_types(array.dtype, jnp.float32))


def _turned(array: Array, turn: bool) -> Array:
    # The conjugate transpose, which is the transpose of real matrices.
    return jnp.conj(jnp.swapaxes(array, -1, -2)) if turn else array


@operator("MatrixSolve", function="matrix_solve")
def matrix_solve(matrix: Array, rhs: Array, adjoint: bool = False) -> Array:
    """The x of ``matrix @ x = rhs`` (of the conjugate transpose with `adjoint`). Shapes (…, n, n) and (…, n, k)."""
    _matrices("MatrixSolve", square=True, matrix=matrix)
    _matrices("MatrixSolve", rhs=rhs)
    check.same_dtype("MatrixSolve", matrix=matrix, rhs=rhs)
    return jnp.linalg.solve(_wide(_turned(matrix, adjoint)), _wide(rhs)).astype(rhs.dtype)


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
        raise For("lstsq").error("'input' and 'A' must have as many rows as each other", input.shape, A.shape)
    # By the pseudo-inverse, which also serves matrices without full rank and has a gradient.
    return (jnp.linalg.pinv(_wide(input)) @ _wide(targets)).astype(targets.dtype)


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
    q, r = jnp.linalg.qr(_wide(x), mode="complete" if full_matrices else "reduced")
    return q.astype(x.dtype), r.astype(x.dtype)


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
        return jnp.linalg.det(_wide(input)).astype(input.dtype)

    kernel.__name__, kernel.__doc__ = own, "Determinants of square matrices."
    return operator(name if name[0].isupper() else None, function=own, method=method)(kernel)


_determinant("MatrixDeterminant", "matrix_determinant", "matrix_determinant")
_determinant("det", "det", "det")


def _log_determinant(name: str, own: str) -> Any:
    def kernel(input: Array) -> tuple[Array, Array]:
        _matrices(name, square=True, input=input)
        sign, logarithm = jnp.linalg.slogdet(_wide(input))
        is_half = input.dtype.itemsize == 2
        return (sign.astype(input.dtype), logarithm.astype(input.dtype)) if is_half else (sign, logarithm)

    kernel.__name__, kernel.__doc__ = own, "Signs of the determinants and logarithms of their absolute values."
    return operator(name if name[0].isupper() else None, function=own, method=own)(kernel)


_log_determinant("LogMatrixDeterminant", "log_matrix_determinant")
_log_determinant("slogdet", "slogdet")


@operator(function="logdet", method="logdet")
def logdet(input: Array) -> Array:
    """Logarithms of determinants; NaN where one is negative."""
    _matrices("logdet", square=True, input=input)
    sign, logarithm = jnp.linalg.slogdet(_wide(input))
    logarithm = logarithm.astype(input.dtype) if input.dtype.itemsize == 2 else logarithm
    # A negative determinant has no real logarithm.
    return jnp.where(sign < 0, jnp.asarray(np.nan, logarithm.dtype), logarithm)


@operator("MatrixPower", function="matrix_power", method="matrix_power")
def matrix_power(input: Array, n: int) -> Array:
    """`input` times itself `n` times; of the inverse for negative `n`."""
    check.numeric("MatrixPower", input=input)
    _matrices("MatrixPower", square=True, input=promote.inexact(input))
    For("MatrixPower").typed("n", n, "an int", int, takes_bool=False)
    integral = not jnp.issubdtype(input.dtype, jnp.inexact)
    For("MatrixPower").refuse(integral and n < 0, "'n' must not be negative for integers", n)
    return jnp.linalg.matrix_power(input, n)


@operator("MatrixExp", function="matrix_exp")
def matrix_exp(input: Array) -> Array:
    """Exponentials of square matrices: the sum over k of ``x^k / k!``."""
    _matrices("MatrixExp", square=True, input=input)
    return jax.scipy.linalg.expm(input)


@operator("Trace", function="trace", mint="trace")
def trace(input: check.One) -> Array:
    """Sum of the diagonal of a matrix."""
    check.rank("Trace", 2, input=input)
    return jnp.trace(input, dtype=input.dtype)


@operator(function="", method="trace")
def _trace_method(input: Array, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Array:
    """Sum of a diagonal in the plane of two dimensions."""
    # Converted before summing, so that sums do not overflow.
    integral = not jnp.issubdtype(input.dtype, jnp.inexact)
    values = input.astype(dtype.np_dtype if dtype is not None else jnp.int64 if integral else input.dtype)
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
def vander(x: check.Rank1, N: int | None = None) -> Array:  # noqa: N803 - MindSpore's name
    """Powers of the elements of a vector in columns, from `N` - 1 down to 0."""
    return jnp.vander(x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(jnp.int64), N)


@operator("MatrixBandPart()", function="matrix_band_part")
def matrix_band_part(x: Array, lower: Array | int, upper: Array | int) -> Array:
    """The diagonals from `lower` below to `upper` above the main one, zeros elsewhere; negative: all on that side."""
    For("MatrixBandPart").refuse(x.ndim < 2, f"'x' must have at least 2 dims, but its shape is {x.shape}")
    rows, columns = jnp.arange(x.shape[-2])[:, None], jnp.arange(x.shape[-1])[None, :]
    # Negative numbers leave a side open; both may be tensors.
    below, above = jnp.asarray(lower), jnp.asarray(upper)
    inside = ((below < 0) | (rows - columns <= below)) & ((above < 0) | (columns - rows <= above))
    return jnp.where(inside, x, jnp.zeros((), x.dtype))


def _matrix(name: str, **arrays: Array) -> None:
    check.floating(name, **arrays)
    check.rank(name, range(2, 9), **arrays)


@operator(function="geqrf", method="geqrf")
def geqrf(input: Array) -> tuple[Array, Array]:
    """The QR factorisation of matrices (…, m, n), packed: R above the reflections (…, m, n), and their factors tau (…, k)."""
    _matrix("geqrf", input=input)
    packed, tau = jnp.linalg.qr(_wide(input), mode="raw")
    # LAPACK's column-major result, transposed back.
    return jnp.swapaxes(packed, -1, -2).astype(input.dtype), tau.astype(input.dtype)


@operator("Orgqr()", function="orgqr", method="orgqr")
def orgqr(input: Array, input2: Array) -> Array:
    """The first n columns of Q, from packed reflections `input` (…, m, n) and their factors `input2` (…, k)."""
    _matrix("Orgqr", input=input)
    m, n = input.shape[-2:]
    if input2.shape[:-1] != input.shape[:-2] or not input2.shape[-1] <= n <= m:
        raise For("Orgqr").error(
            "'input' must be (…, m, n) and 'input2' (…, k) with k <= n <= m", f"{input.shape} and {input2.shape}"
        )
    return jax.lax.linalg.householder_product(input, input2)


@operator("Ormqr(left, transpose)", function="ormqr", method="ormqr(input2=tau, input3=other)")
def ormqr(input: Array, tau: Array, other: Array, left: bool = True, transpose: bool = False) -> Array:
    """Q (m × m) of packed reflections times `other`, or `other` times Q; `transpose`: Q transposed and conjugated.

    Args:
        input: packed reflections (…, m, k).
        tau: their factors (…, k).
        other: (…, m, n), or (…, n, m) when not `left`.
        left, transpose: see above.
    """
    _matrix("Ormqr", input=input, other=other)
    m, k = input.shape[-2:]
    if tau.shape[-1] > k or k > m or other.shape[-2 if left else -1] != m:
        raise SporaxValueError(
            f"For 'Ormqr', 'input' must be (…, m, k), 'tau' (…, k) and {'rows' if left else 'columns'} of 'other' m, but got "
            f"{input.shape}, {tau.shape} and {other.shape}."
        )
    # Filled up with zeros: m reflections are needed for the square Q.
    square = jnp.concatenate([input, jnp.zeros((*input.shape[:-1], m - k), input.dtype)], -1)
    q = jax.lax.linalg.householder_product(square, tau)
    q = jnp.conj(jnp.swapaxes(q, -1, -2)) if transpose else q
    return q @ other if left else other @ q


def _order_of_rows(pivots: Array, rows: int) -> Array:
    """Which row comes where after all exchanges."""
    # LAPACK counts exchanged rows from 1, JAX from 0.
    return jax.lax.linalg.lu_pivots_to_permutation(pivots.astype(jnp.int32) - 1, rows)


@operator("LuSolve()", function="lu_solve", method="lu_solve")
def lu_solve(b: Array, LU_data: Array, LU_pivots: Array) -> Array:  # noqa: N803 - MindSpore's names
    """The x of ``A @ x = b``, from the packed triangles (…, m, m) of A and the exchanges of rows (…, m)."""
    _matrix("LuSolve", b=b, LU_data=LU_data)
    check.integral("LuSolve", LU_pivots=LU_pivots)
    m = LU_data.shape[-1]
    if LU_data.shape[-2:] != (m, m) or b.shape[-2] != m or LU_pivots.shape != LU_data.shape[:-1]:
        raise SporaxValueError(
            f"For 'LuSolve', 'LU_data' must be (…, m, m), 'LU_pivots' (…, m) and 'b' (…, m, k), but got {LU_data.shape}, "
            f"{LU_pivots.shape} and {b.shape}."
        )
    # The exchanges of rows first, as in the factorization.
    ordered = jnp.take_along_axis(b, _order_of_rows(LU_pivots, m)[..., None], -2)
    batch = jnp.broadcast_shapes(b.shape[:-2], LU_data.shape[:-2])
    triangles = jnp.broadcast_to(LU_data, (*batch, m, m))
    ordered = jnp.broadcast_to(ordered, (*batch, *b.shape[-2:]))
    solve = jax.lax.linalg.triangular_solve
    # L has ones on its diagonal, which are not stored.
    half = solve(triangles, ordered, left_side=True, lower=True, unit_diagonal=True)
    return solve(triangles, half, left_side=True, lower=False)


@operator("LuUnpack(unpack_data, unpack_pivots)", function="lu_unpack")
def lu_unpack(
    LU_data: Array,  # noqa: N803 - MindSpore's names
    LU_pivots: Array,  # noqa: N803 - MindSpore's spelling
    unpack_data: bool = True,
    unpack_pivots: bool = True,
) -> tuple[Array, Array, Array]:
    """P, L and U, whose product is the matrix, from packed triangles (…, m, n) and the exchanges of rows (…, min(m, n)).

    Without `unpack_pivots` P is empty; without `unpack_data` L and U are.
    """
    _matrix("LuUnpack", LU_data=LU_data)
    check.integral("LuUnpack", LU_pivots=LU_pivots)
    m, n = LU_data.shape[-2:]
    if LU_pivots.shape != (*LU_data.shape[:-2], min(m, n)):
        raise SporaxValueError(
            f"For 'LuUnpack', 'LU_pivots' must have shape {(*LU_data.shape[:-2], min(m, n))} for 'LU_data' of shape "
            f"{LU_data.shape}, but got {LU_pivots.shape}."
        )
    nothing = jnp.zeros((0,), LU_data.dtype)
    permutation = lower = upper = nothing
    if unpack_pivots:
        # One-hot rows are the permutation matrix; its transpose undoes the exchanges.
        rows = jax.nn.one_hot(_order_of_rows(LU_pivots, m), m, dtype=LU_data.dtype)
        permutation = jnp.swapaxes(rows, -1, -2)
    if unpack_data:
        k = min(m, n)
        lower = jnp.tril(LU_data[..., :k], -1) + jnp.eye(m, k, dtype=LU_data.dtype)
        upper = jnp.triu(LU_data[..., :k, :])
    return permutation, lower, upper


@operator("Lstsq(fast, l2_regularizer)", function="")
def _lstsq(x: Array, a: Array, fast: bool = True, l2_regularizer: float = 0.0) -> Array:
    """The solution of ``x @ solution = a`` by least squares; see `ops.lstsq`.

    Args:
        x, a: (m, n) and (m,) or (m, k).
        fast: has no meaning here; both of MindSpore's algorithms give this solution.
        l2_regularizer: other values than 0 are not offered, as in MindSpore.
    """
    # MindSpore's own limit.
    For("Lstsq").refuse_type(l2_regularizer != 0.0, "'l2_regularizer' must be 0.0", l2_regularizer)
    return lstsq.kernel(x, a)


@operator("Eig(compute_v)", function="")
def _eig(x: Array, compute_v: bool = False) -> tuple[Array, Array]:
    """Eigenvalues of square matrices and, with `compute_v`, eigenvectors in columns (else empty). On the CPU only."""
    _matrix("Eig", x=x)
    if compute_v:
        values, vectors = jnp.linalg.eig(x)
        return values, vectors
    values = jnp.linalg.eigvals(x)
    # Empty in place of vectors, as MindSpore gives it.
    return values, jnp.zeros((0,), values.dtype)


@operator("NuclearNorm(dim, keepdim)", function="")
def _nuclear_norm(x: Array, dim: tuple[int, ...] | None = None, keepdim: bool = False) -> Array:
    """The sum of the singular values of matrices that are in the two dims `dim` (None: a matrix)."""
    check.rank("NuclearNorm", 2 if dim is None else range(2, 9), x=x)
    axes = (0, 1) if dim is None else check.axes("NuclearNorm", dim, x.ndim, "dim")
    For("NuclearNorm").refuse(axes is None or len(axes) != 2, "'dim' must name two dims", dim)
    return jnp.linalg.norm(x, "nuc", axes, keepdim)


@operator("ConjugateTranspose()", function="")
def _conjugate_transpose(x: Array, perm: tuple[int, ...]) -> Array:
    """The dims in the order `perm`, and complex numbers conjugated."""
    axes = check.axes("ConjugateTranspose", perm, x.ndim, "perm")
    if x.ndim and (axes is None or len(axes) != x.ndim):
        raise SporaxValueError(f"For 'ConjugateTranspose', 'perm' must name all {x.ndim} dims, but got {perm}.")
    return jnp.conj(jnp.transpose(x, axes))


@operator("TridiagonalMatMul()", function="")
def _tridiagonal_matmul(superdiag: Array, maindiag: Array, subdiag: Array, rhs: Array) -> Any:
    """Tridiagonal matrices times `rhs` (…, m, n).

    The diagonals are (…, 1, m); the last element of `superdiag` and the first of `subdiag` count for nothing.
    """
    _matrix("TridiagonalMatMul", rhs=rhs)
    m = rhs.shape[-2]
    for name, diagonal in (("superdiag", superdiag), ("maindiag", maindiag), ("subdiag", subdiag)):
        if diagonal.shape[-2:] != (1, m):
            raise For("TridiagonalMatMul").error(f"{named(name)} must have shape (…, 1, {m})", diagonal.shape)
    above, main, below = (jnp.swapaxes(band, -1, -2) for band in (superdiag, maindiag, subdiag))
    # What is beyond the first and last row counts as zero.
    zero = jnp.zeros((*rhs.shape[:-2], 1, rhs.shape[-1]), rhs.dtype)
    following = jnp.concatenate([rhs[..., 1:, :], zero], -2)
    before = jnp.concatenate([zero, rhs[..., :-1, :]], -2)
    return above * following + main * rhs + below * before
