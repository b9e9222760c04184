"""Family 4: reductions and running reductions.

Family 8: linear algebra and Fourier transforms. Batch dimensions are mapped, matrix dimensions stay whole.
"""

from __future__ import annotations

from typing import Any

from sporax.ir.operation import Operation, Shape
from sporax.planner.rules.language import DimFactors, Draft, Rule

REDUCTION: dict[str, str] = {
    "reduce_sum": "sum",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_prod": "prod",
    "reduce_and": "and",
    "reduce_or": "or",
    "reduce_xor": "xor",
}
"""How the parts of each reduction combine."""

MONOIDS: dict[str, tuple[str, complex | None]] = {
    "add": ("sum", 0),
    "add_any": ("sum", 0),
    "mul": ("prod", 1),
    "max": ("max", None),
    "min": ("min", None),
    "and": ("and", None),
    "or": ("or", None),
    "xor": ("xor", 0),
}
"""Combining functions of general reductions, with the initial value that may be counted once per rank (None: any)."""

CUMULATIVE: dict[str, tuple[str, ...]] = {
    "cumsum": ("sum",),
    "cumprod": (),
    "cummax": ("max",),
    "cummin": ("min",),
    "cumlogsumexp": (),
}
"""Running reductions and the parts that they let through."""


def reduce_dims(operation: Operation) -> Rule:
    """The reduced dimensions leave parts behind when they are sharded."""
    reduction = REDUCTION[operation.name]
    return _reduce(operation, reduction, operation.params["axes"], passes=reduction in ("sum", "max", "min"))


def general_reduce(operation: Operation) -> Rule:
    """`reduce`: as the named reductions when one known function combines one operand, else the dimensions stay whole."""
    # Several results are combined by one function of all of them, which is no known reduction.
    reduction = monoid(operation.params["jaxpr"], operation.operands[-1].constant)
    return _reduce(operation, reduction if len(operation.results) == 1 else "", operation.params["dimensions"])


def monoid(jaxpr: Any, initial: complex | None) -> str:
    """The reduction that a combining function of two scalars stands for; "" when it is none of the known ones.

    Args:
        jaxpr: the function, with its equations.
        initial: the initial value when it is a literal.
    """
    # Closed and open jaxprs have the same equations; the planner knows neither type.
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    # A body of one equation on both arguments is a known monoid or none.
    if len(inner.eqns) != 1 or set(inner.eqns[0].invars) != set(inner.invars) or len(inner.invars) != 2:
        return ""
    reduction, neutral = MONOIDS.get(inner.eqns[0].primitive.name, ("", None))
    # Each rank starts from the initial value, so it must not change the result when it is counted several times.
    return reduction if neutral is None or initial == neutral else ""


def argument_of_extreme(operation: Operation) -> Rule:
    """`argmax`, `argmin`: positions count through the whole dimension, so it stays whole."""
    return _reduce(operation, "", operation.params["axes"])


def cumulative(operation: Operation) -> Rule:
    """The dimension along which it runs stays whole."""
    draft = Draft(operation)
    axis = operation.params["axis"]
    dims = tuple(
        draft.blocked(size) if dim == axis else draft.map(size) for dim, size in enumerate(operation.operands[0].shape)
    )
    # A running sum of partial sums is the partial running sum.
    draft.passes((0,), *CUMULATIVE[operation.name])
    return draft.finish([dims], [dims])


def _reduce(operation: Operation, reduction: str, reduced: tuple[int, ...], passes: bool = False) -> Rule:
    """Sharded dimensions in `reduced` leave parts to combine by `reduction`; they stay whole when it is ""."""
    draft = Draft(operation)
    # No collective knows the order of complex numbers.
    if reduction in ("max", "min") and operation.operands[0].dtype.startswith("complex"):
        reduction, passes = "", False

    def dim_factor(dim: int, size: int) -> tuple[int, ...]:
        if dim not in reduced:
            return draft.map(size)
        return draft.reduce(size, reduction) if reduction else draft.blocked(size)

    dims: DimFactors = tuple(dim_factor(dim, size) for dim, size in enumerate(operation.operands[0].shape))
    if passes:
        draft.passes((0,), reduction)
    result = tuple(indices for dim, indices in enumerate(dims) if dim not in reduced)
    # An initial value is a scalar.
    operands = [dims if operand.num_dims == len(dims) else () for operand in operation.operands]
    return draft.finish(operands, [result] * len(operation.results))


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
