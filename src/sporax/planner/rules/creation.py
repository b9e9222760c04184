"""Family 9: tensors made from nothing, and random bits. Every rank makes its own slice.

What depends on the place of an element (iota, counters of random numbers) is computed from its place in the whole tensor,
so the values do not depend on the sharding.
"""

from __future__ import annotations

from typing import Any

from sporax.planner.rules.language import Draft, Operation, Rule, Shape, replicate

Shapes = tuple[Shape, ...]


def empty(operation: Operation) -> Rule:
    """Values do not matter."""
    return _free(operation, "plain")


def iota(operation: Operation) -> Rule:
    """Counts along one dimension, from the slice's place."""
    return _free(operation, "iota")


def iota_2x32_shape(operation: Operation) -> Rule:
    """Row-major numbers of the elements, in two words."""
    return _free(operation, "iota_2x32")


def random_bits(operation: Operation) -> Rule:
    """Threefry bits are a function of the key and the place; other generators' bits depend on the whole shape."""
    keys = operation.operands[0]
    # Only Threefry computes each element's bits from its place alone.
    if keys.dtype != "key<fry>":
        return replicate(operation, f"bits of the generator '{keys.dtype}' depend on the whole shape")
    draft = Draft(operation)
    keys_dims = draft.maps(keys.shape)
    result = (*keys_dims, *draft.maps(operation.results[0].shape[keys.num_dims :]))

    # The parameter is the shape behind the keys.
    def adapt(_: Operation, operands: Shapes, results: Shapes) -> dict[str, Any]:
        return {"shape": results[0][len(operands[0]) :]}

    # Some hundred integer operations per word of Threefry; a model of time needs the order of magnitude only.
    return draft.finish([keys_dims], [result], recipe="random_bits", adapt=adapt, flops_per_point=100.0)


def _free(operation: Operation, recipe: str) -> Rule:
    draft = Draft(operation)
    dims = draft.maps(operation.results[0].shape)

    # Primitives with and without a `shape` parameter share this rule.
    def adapt(_: Operation, __: Shapes, results: Shapes) -> dict[str, Any]:
        return {"shape": results[0]} if "shape" in operation.params else {}

    return draft.finish(
        [((),) * operand.num_dims for operand in operation.operands],
        [dims] * len(operation.results),
        recipe=recipe,
        adapt=adapt,
    )
