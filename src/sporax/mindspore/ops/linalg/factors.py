"""Matrices as products of Householder reflections and of triangles, and what follows from them.

`geqrf` and `lu_unpack` use LAPACK's packed forms: reflections below a triangle, and rows exchanged in turn with the row that
`LU_pivots` (counted from 1) names.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.mindspore.ops._core import check
from sporax.mindspore.ops._core.operator import Array, operator
from sporax.mindspore.ops.linalg.decompositions import lstsq


def _matrix(name: str, **arrays: Array) -> None:
    check.floating(name, **arrays)
    check.rank(name, range(2, 9), **arrays)


@operator(function="geqrf", method="geqrf")
def geqrf(input: Array) -> tuple[Array, Array]:
    """The QR factorisation of matrices (…, m, n), packed: R above the reflections (…, m, n), and their factors tau (…, k)."""
    _matrix("geqrf", input=input)
    packed, tau = jnp.linalg.qr(input, mode="raw")
    # LAPACK's column-major result, transposed back.
    return jnp.swapaxes(packed, -1, -2), tau


@operator("Orgqr()", function="orgqr", method="orgqr")
def orgqr(input: Array, input2: Array) -> Array:
    """The first n columns of Q, from packed reflections `input` (…, m, n) and their factors `input2` (…, k)."""
    _matrix("Orgqr", input=input)
    m, n = input.shape[-2:]
    if input2.shape[:-1] != input.shape[:-2] or not input2.shape[-1] <= n <= m:
        raise SporaxValueError.must(
            "Orgqr", "input", "be (…, m, n) and 'input2' (…, k) with k <= n <= m", f"{input.shape} and {input2.shape}"
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
    SporaxTypeError.raise_if(l2_regularizer != 0.0, "Lstsq", "l2_regularizer", "be 0.0", l2_regularizer)
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
    SporaxValueError.raise_if(axes is None or len(axes) != 2, "NuclearNorm", "dim", "name two dims", dim)
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
            raise SporaxValueError.must("TridiagonalMatMul", name, f"have shape (…, 1, {m})", diagonal.shape)
    above, main, below = (jnp.swapaxes(band, -1, -2) for band in (superdiag, maindiag, subdiag))
    # What is beyond the first and last row counts as zero.
    zero = jnp.zeros((*rhs.shape[:-2], 1, rhs.shape[-1]), rhs.dtype)
    following = jnp.concatenate([rhs[..., 1:, :], zero], -2)
    before = jnp.concatenate([zero, rhs[..., :-1, :]], -2)
    return above * following + main * rhs + below * before
