"""Family 7: sorting and selecting the largest. The ordered dimension stays whole, all others are mapped."""

from __future__ import annotations

import math

from sporax.planner.rules.language import DimFactors, Draft, Operation, Rule, Shape


def sort(operation: Operation) -> Rule:
    """All operands are reordered together along one dimension."""
    return _ordered(operation, operation.params["dimension"])


def top_k(operation: Operation) -> Rule:
    """The k largest along one dimension, and where they are."""
    return _ordered(operation, operation.params.get("axis", operation.operands[0].num_dims - 1))


def approx_top_k(operation: Operation) -> Rule:
    """As `top_k`, possibly missing some."""
    return _ordered(operation, operation.params["reduction_dimension"])


def _ordered(operation: Operation, axis: int) -> Rule:
    draft = Draft(operation)
    shape = operation.operands[0].shape
    # Axes of `sort` may be negative.
    axis %= len(shape)
    dims = tuple(draft.blocked(size) if dim == axis else draft.map(size) for dim, size in enumerate(shape))

    # The ordered dimension of a result may have another size (the k largest), so it needs a factor of its own.
    def result(tensor: Shape) -> DimFactors:
        return tuple(draft.blocked(tensor[dim]) if dim == axis else indices for dim, indices in enumerate(dims))

    points = tuple(index for indices in dims for index in indices)
    return draft.finish(
        [dims] * len(operation.operands),
        [result(tensor.shape) for tensor in operation.results],
        # About log2(n) comparisons per element.
        flops_per_point=math.log2(max(2, shape[axis])),
        points=points,
    )
