"""Family 8: linear algebra and Fourier transforms. Batch dimensions are mapped, matrix dimensions stay whole."""

from __future__ import annotations

from typing import Any

from sporax.planner.rules.language import Draft, Operation, Rule, Shape

CORE_DIMS: dict[str, int] = {
    "cholesky": 2,
    "cholesky_update": 2,
    "eig": 2,
    "eigh": 2,
    "geqp3": 2,
    "geqrf": 2,
    "hessenberg": 2,
    "householder_product": 2,
    "lu": 2,
    "lu_pivots_to_permutation": 1,
    "ormqr": 2,
    "qr": 2,
    "schur": 2,
    "svd": 2,
    "symmetric_product": 2,
    "tridiagonal": 2,
}
"""Number of trailing dimensions of the first operand that make up one matrix (or vector)."""


def batched(operation: Operation) -> Rule:
    """Every tensor starts with the same batch dimensions."""
    first = operation.operands[0]
    # A transform's matrix is what it transforms; its number of dimensions is a parameter.
    core = len(operation.params["fft_lengths"]) if operation.name == "fft" else CORE_DIMS[operation.name]
    draft = Draft(operation)
    batch = draft.maps(first.shape[: first.num_dims - core])

    def dims(shape: Shape) -> tuple[tuple[int, ...], ...]:
        return (*batch, *((),) * (len(shape) - len(batch)))

    # A Fourier transform is linear; decompositions are not.
    if operation.name == "fft":
        draft.passes((0,), "sum")
    # Matrix dimensions are in no result factor, but the work grows with them.
    draft.blocks(first.shape[first.num_dims - core :])  # part of the index space
    return draft.finish(
        [dims(operand.shape) for operand in operation.operands],
        [dims(result.shape) for result in operation.results],
        flops_per_point=float(max(1, first.shape[-1] if first.shape else 1)),
    )


def triangular_solve(operation: Operation) -> Rule:
    """The right-hand sides (columns, or rows when the unknown is on the left) are independent of one another."""
    matrix, rhs = operation.operands
    return _solve(operation, rhs.num_dims - (1 if operation.params["left_side"] else 2), matrix.shape)


def tridiagonal_solve(operation: Operation) -> Rule:
    """The columns of the right-hand side are independent of one another."""
    return _solve(operation, operation.operands[-1].num_dims - 1, operation.operands[-1].shape)


def _solve(operation: Operation, free_dim: int, matrix: Shape) -> Rule:
    draft = Draft(operation)
    rhs = operation.operands[-1]
    # Only the right-hand side may be partial: the solution is linear in it alone.
    batch = draft.maps(rhs.shape[:-2])
    rhs_dims: list[tuple[int, ...]] = [*batch, (), ()]
    rhs_dims[free_dim] = draft.map(rhs.shape[free_dim])
    draft.passes((len(operation.operands) - 1,), "sum")
    others: list[Any] = [(*batch, *((),) * (operand.num_dims - len(batch))) for operand in operation.operands[:-1]]
    return draft.finish([*others, tuple(rhs_dims)], [tuple(rhs_dims)], flops_per_point=float(matrix[-1] ** 2))
