"""Family 2: primitives that rename, join, split, repeat or leave out dimensions. They copy elements, so parts pass."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sporax.ir.operation import Operation, Shape
from sporax.planner.rules.language import MOVABLE, DimFactors, Draft, Rule, replicate

Shapes = tuple[Shape, ...]


def broadcast_in_dim(operation: Operation) -> Rule:
    """Dimensions that are new or stretched are free: every rank makes its own slice."""
    draft = Draft(operation)
    shape = operation.results[0].shape
    result = list(draft.maps(shape))
    # A stretched dimension of size one is the same for all slices of the result.
    operand = tuple(
        result[dim] if size == shape[dim] else ()
        for size, dim in zip(operation.operands[0].shape, operation.params["broadcast_dimensions"], strict=True)
    )
    return _finish(draft, [operand], [tuple(result)], adapt=_result_shape("shape"))


def broadcast_to(operation: Operation) -> Rule:
    """Trailing dimensions line up; the others are new."""
    draft = Draft(operation)
    spec = operation.operands[0]
    shape = operation.results[0].shape
    result = draft.maps(shape)
    lined_up = zip(spec.shape, shape[len(shape) - spec.num_dims :], result[len(shape) - spec.num_dims :], strict=True)
    operand = tuple(dim if size == target else () for size, target, dim in lined_up)
    return _finish(draft, [operand], [result], adapt=_result_shape("shape"))


def squeeze(operation: Operation) -> Rule:
    """Dimensions of size 1 go."""
    draft = Draft(operation)
    spec = operation.operands[0]
    # Negative dimensions are allowed.
    gone = {dim % spec.num_dims for dim in operation.params["dimensions"]}
    operand = tuple(() if dim in gone else draft.map(size) for dim, size in enumerate(spec.shape))
    result = tuple(dims for dim, dims in enumerate(operand) if dim not in gone)
    return _finish(draft, [operand], [result])


def transpose(operation: Operation) -> Rule:
    """Dimensions change places."""
    draft = Draft(operation)
    operand = draft.maps(operation.operands[0].shape)
    return _finish(draft, [operand], [tuple(operand[dim] for dim in operation.params["permutation"])])


def reshape(operation: Operation) -> Rule:
    """Both shapes are walked from the left, taking out the greatest size that divides what is left of both dimensions.

    Each size taken out is a factor that both sides share: (4, 6) and (8, 3) have 4, 2 and 3 in common. Where the sizes
    have nothing in common any more, (3, 4) and (2, 6) say, the rest stays whole on both sides up to the point where the
    products meet again. `dimensions` transposes the operand before.
    """
    # With a size of zero no product of factors determines the others.
    if 0 in operation.operands[0].shape:
        return replicate(operation, "an empty tensor has nothing to shard")
    draft = Draft(operation)
    shape = operation.operands[0].shape
    order = operation.params.get("dimensions") or range(len(shape))
    read, result = _common_factors(draft, tuple(shape[dim] for dim in order), operation.results[0].shape)
    operand = tuple(factors for _, factors in sorted(zip(order, read, strict=True)))
    return _finish(draft, [operand], [result], adapt=_result_shape("new_sizes"))


def _common_factors(draft: Draft, first: Shape, second: Shape) -> tuple[DimFactors, DimFactors]:
    """Factors of the dimensions of two shapes with as many elements."""
    sides = _Side(first), _Side(second)
    while not (sides[0].done and sides[1].done):
        # A size of one has no factor, so it must not stop the walk.
        if sides[0].is_trivial or sides[1].is_trivial:
            for side in sides:
                side.skip_ones()
            continue
        # The greatest common divisor of what is left of both dimensions is the largest factor they share.
        common = math.gcd(sides[0].left, sides[1].left)
        if common > 1:
            factor = draft.map(common)
            for side in sides:
                side.take(factor, common)
        else:
            _block_until_products_meet(draft, *sides)
    return sides[0].finished(), sides[1].finished()


class _Side:
    """One shape on the walk: the factors found for each dimension, and what is left of the present one."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.dims: list[tuple[int, ...]] = [() for _ in shape]
        self.dim = 0
        self.left = shape[0] if shape else 1

    @property
    def done(self) -> bool:
        return self.dim >= len(self.shape)

    @property
    def is_trivial(self) -> bool:
        return self.done or self.left == 1

    def skip_ones(self) -> None:
        while not self.done and self.left == 1:
            self.dim += 1
            self.left = 1 if self.done else self.shape[self.dim]

    def take(self, factor: tuple[int, ...], size: int) -> None:
        self.dims[self.dim] += factor
        self.left //= size
        self.skip_ones()

    def finished(self) -> DimFactors:
        return tuple(self.dims)


def _block_until_products_meet(draft: Draft, first: _Side, second: _Side) -> None:
    # No common divisor: the elements mix, so the dimensions stay whole up to the next common border.
    products = [0, 0]
    for number, side in enumerate((first, second)):
        products[number] = side.left
        side.take(draft.blocked(side.left), side.left)
    while products[0] != products[1]:
        # The side with the smaller product catches up, until both cover the same elements.
        number = 0 if products[0] < products[1] else 1
        side = (first, second)[number]
        products[number] *= side.left
        side.take(draft.blocked(side.left), side.left)


def rev(operation: Operation) -> Rule:
    """A reversed dimension's slices change places between ranks."""
    draft = Draft(operation)
    reversed_dims = operation.params["dimensions"]
    dims = tuple(
        draft.permute(size) if dim in reversed_dims else draft.map(size)
        for dim, size in enumerate(operation.operands[0].shape)
    )
    return _finish(draft, [dims], [dims], recipe="reverse")


def tile(operation: Operation) -> Rule:
    """A repeated dimension is (repetitions, original): every rank may make some of the repetitions."""
    draft = Draft(operation)
    operand = draft.maps(operation.operands[0].shape)
    repeats = operation.params["reps"]
    # Repetitions are the major factor: the result is the original, several times in a row.
    result = tuple((draft.map(count) if count > 1 else ()) + dim for count, dim in zip(repeats, operand, strict=True))

    def adapt(_: Operation, operands: Shapes, results: Shapes) -> dict[str, Any]:
        return {"reps": tuple(new // old if old else 1 for old, new in zip(operands[0], results[0], strict=True))}

    return _finish(draft, [operand], [result], adapt=adapt)


def stack(operation: Operation) -> Rule:
    """The new dimension stays whole."""
    draft = Draft(operation)
    axis = operation.params["axis"] % operation.results[0].num_dims
    operand = draft.maps(operation.operands[0].shape)
    result = (*operand[:axis], draft.blocked(len(operation.operands)), *operand[axis:])
    return _finish(draft, [operand] * len(operation.operands), [result])


def unstack(operation: Operation) -> Rule:
    """The dimension that goes stays whole."""
    draft = Draft(operation)
    axis = operation.params["axis"] % operation.operands[0].num_dims
    result = draft.maps(operation.results[0].shape)
    operand = (*result[:axis], draft.blocked(operation.operands[0].shape[axis]), *result[axis:])
    return _finish(draft, [operand], [result] * len(operation.results))


def split(operation: Operation) -> Rule:
    """The dimension that is split stays whole."""
    return _undivided_along(operation, operation.params["axis"])


def concatenate(operation: Operation) -> Rule:
    """The dimension along which the operands are joined stays whole."""
    return _undivided_along(operation, operation.params["dimension"])


def _undivided_along(operation: Operation, axis: int) -> Rule:
    draft = Draft(operation)
    shape = operation.operands[0].shape
    shared = {dim: draft.map(size) for dim, size in enumerate(shape) if dim != axis}

    def dims(tensor: Shape) -> DimFactors:
        return tuple(shared[dim] if dim != axis else draft.blocked(size) for dim, size in enumerate(tensor))

    operands = [dims(operand.shape) for operand in operation.operands]
    return _finish(draft, operands, [dims(result.shape) for result in operation.results])


def pad(operation: Operation) -> Rule:
    """Dimensions that are padded or cropped stay whole."""
    draft = Draft(operation)
    operand, result = operation.operands[0].shape, operation.results[0].shape
    operand_dims, result_dims = [], []
    for size, new_size, config in zip(operand, result, operation.params["padding_config"], strict=True):
        untouched = tuple(config) == (0, 0, 0)
        operand_dims.append(draft.map(size) if untouched else draft.blocked(size))
        result_dims.append(operand_dims[-1] if untouched else draft.blocked(new_size))
    # Only a padding of zero is nothing when the parts are summed.
    if operation.operands[1].constant == 0:
        draft.passes((0,), "sum")
    # If operand and padding value are partial in the same way, so is every element.
    draft.passes((0, 1), *MOVABLE)
    return draft.finish([tuple(operand_dims), ()], [tuple(result_dims)], flops_per_point=0.0)


def slice_(operation: Operation) -> Rule:
    """A dimension taken whole, or in regular steps all through, can be sharded; any other stays whole."""
    draft = Draft(operation)
    operand, result = operation.operands[0].shape, operation.results[0].shape
    starts = operation.params["start_indices"]
    strides = operation.params["strides"] or (1,) * len(operand)
    operand_dims, result_dims = [], []
    for size, new_size, start, stride in zip(operand, result, starts, strides, strict=True):
        # Strides that fit only by chance would start at different places in different slices.
        regular = size == new_size * stride and start < stride
        result_dims.append(draft.map(new_size) if regular else draft.blocked(new_size))
        steps = draft.blocked(stride) if stride > 1 else ()
        operand_dims.append(result_dims[-1] + steps if regular else draft.blocked(size))

    # Taken at regular steps all through, each slice takes the same elements of its part.
    def adapt(full: Operation, operands: Shapes, results: Shapes) -> dict[str, Any]:
        # A limit in the middle of the dimension is of one that stays whole, so it remains.
        limits = zip(full.params["limit_indices"], full.operands[0].shape, operands[0], strict=True)
        return {"limit_indices": tuple(limit if size == old else size for limit, old, size in limits)}

    return _finish(draft, [tuple(operand_dims)], [tuple(result_dims)], adapt=adapt)


def bitcast_convert_type(operation: Operation) -> Rule:
    """Same dimensions, or one more or less at the end when the widths differ; that one stays whole."""
    draft = Draft(operation)
    operand, result = operation.operands[0].shape, operation.results[0].shape
    num_shared = min(len(operand), len(result))
    shared = draft.maps(operand[:num_shared])
    dims = [(*shared, *draft.blocks(shape[num_shared:])) for shape in (operand, result)]
    return draft.finish(dims[:1], dims[1:], flops_per_point=0.0)


def _result_shape(name: str) -> Any:
    def adapt(_: Operation, __: Shapes, results: Shapes) -> Mapping[str, Any]:
        return {name: results[0]}

    return adapt


def _finish(draft: Draft, operands: Sequence[DimFactors], results: Sequence[DimFactors], **options: Any) -> Rule:
    draft.passes(range(len(operands)), *MOVABLE)
    return draft.finish(operands, results, flops_per_point=0.0, **options)
