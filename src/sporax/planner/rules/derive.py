"""Everything that follows from a rule.

An *assignment* gives each factor the mesh axes that shard it, outermost first. It decides where operands must be, where
results then are (and along which axes they are still parts), the local shapes and parameters, and the work per rank.

Family 7: sorting and selecting the largest. The ordered dimension stays whole, all others are mapped.

The rule of `jax.shard_map` inside of a program: an island has one sharding, the one that its author wrote.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

from sporax.base.errors import SporaxValueError
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.island import Island, Names
from sporax.ir.operation import Operation, Shape, TensorSpec
from sporax.ir.placement import Axes, Placement, num_parts, placed
from sporax.planner.rules.language import DimFactors, Draft, Factor, FactorKind, Rule

Assignment = tuple[Axes, ...]
"""For each factor of a rule the mesh axes that shard it."""


def problem(rule: Rule, assignment: Assignment, mesh: DeviceMatrix) -> str | None:
    """Why an assignment is not possible, or None when it is."""
    axes = [*itertools.chain(*assignment)]
    if len(assignment) != len(rule.factors) or len(set(axes)) != len(axes):
        return f"every axis must be assigned to one factor at most, but got {assignment} for {rule}"
    for number, (factor, sharded) in enumerate(zip(rule.factors, assignment, strict=True)):
        if sharded and not factor.allows(num_parts(mesh, sharded)):
            return f"factor {number} ({factor.kind.value}, size {factor.size}) cannot be sharded into {num_parts(mesh, sharded)}"
    for indices in rule.joined:
        if not _contiguous(rule, indices, assignment, mesh):
            return f"the slices of a dimension made of factors {indices} are not contiguous under {assignment}"
    used = ([rule.factors[number].reduction for number in numbers if assignment[number]] for numbers in rule.mixable)
    if any(len({*reductions}) > 1 for reductions in used):
        return f"parts of one tensor must combine in one way, but {assignment} mixes reductions"
    return None


def is_legal(rule: Rule, assignment: Assignment, mesh: DeviceMatrix) -> bool:
    """Whether the primitive can run on the slices of this assignment."""
    return problem(rule, assignment, mesh) is None


def unsharded(rule: Rule) -> Assignment:
    """The assignment in which every rank computes everything."""
    return ((),) * len(rule.factors)


def placements(rule: Rule, assignment: Assignment) -> tuple[tuple[Placement, ...], tuple[Placement, ...]]:
    """Where the operands must be, and where the results then are."""
    # One rule serves all layers, and each assignment is needed many times.
    cached = rule.placed.get(assignment)
    if cached is None:
        cached = rule.placed[assignment] = (
            _placements(rule, assignment, rule.operands, rule.parts_of_operands),
            _placements(rule, assignment, rule.results, rule.parts_of_results),
        )
    return cached


def assignments(rule: Rule, mesh: DeviceMatrix, reductions: Sequence[str] = ("sum",)) -> Iterator[Assignment]:
    """All legal assignments in which the axes of one factor are in ascending order.

    Args:
        mesh: its axes, one after another, go to one factor or to none.
        reductions: which kinds of parts to consider for linear primitives; () for complete tensors only.
    """
    open_factors = [
        number
        for number, factor in enumerate(rule.factors)
        if factor.kind is not FactorKind.BLOCKED
        and (factor.kind is not FactorKind.PARTIAL or factor.reduction in reductions)
    ]
    for owners in itertools.product((None, *open_factors), repeat=mesh.num_axes):
        assignment = tuple(
            tuple(axis for axis, owner in enumerate(owners) if owner == number) for number in range(len(rule.factors))
        )
        if is_legal(rule, assignment, mesh):
            yield assignment


def propagate(
    rule: Rule, mesh: DeviceMatrix, operands: Sequence[Placement | None] = (), results: Sequence[Placement | None] = ()
) -> Assignment:
    """The largest assignment that agrees with the placements that are known; earlier tensors win conflicts.

    Operands come before results, each in order; None where a placement is not known. Axes that do not fit are left out,
    so the caller compares `placements` of the answer with what it gave to see what would have to move.
    """
    chosen: list[Axes] = [()] * len(rule.factors)
    decided = [
        *((rule.operands[number], placement) for number, placement in enumerate(operands) if placement),
        *((rule.results[number], placement) for number, placement in enumerate(results) if placement),
    ]
    for dims, placement in decided:
        for indices, axes in zip(dims, placement.dims, strict=True):
            _take(rule, mesh, chosen, indices, axes)
    # After the dimensions: partial sums take only axes that shard nothing.
    _pass_parts(rule, mesh, chosen, operands)
    return tuple(chosen)


def local_operation(operation: Operation, rule: Rule, assignment: Assignment, mesh: DeviceMatrix) -> Operation:
    """The operation on one rank's slices: local shapes, and parameters that depend on shapes adjusted to them.

    Raises:
        SporaxValueError: the assignment is not legal.
    """
    reason = problem(rule, assignment, mesh)
    if reason:
        raise SporaxValueError(f"For '{operation.name}', the sharding must be possible, but {reason}.")
    where, whence = placements(rule, assignment)
    operands = tuple(_local(spec, placement, mesh) for spec, placement in zip(operation.operands, where, strict=True))
    results = tuple(_local(spec, entry, mesh) for spec, entry in zip(operation.results, whence, strict=True))
    params = operation.params
    if rule.adapt is not None:
        shapes = tuple(operand.shape for operand in operands), tuple(result.shape for result in results)
        params = {**params, **rule.adapt(operation, *shapes)}
    return Operation(operation.name, operands, results, params)


def local_flops(rule: Rule, assignment: Assignment, mesh: DeviceMatrix) -> float:
    """Floating-point operations of one rank."""
    # Partial factors have size 0 and no extent.
    points = range(len(rule.factors)) if rule.points is None else rule.points
    sizes = (
        rule.factors[number].size / num_parts(mesh, assignment[number])
        for number in points
        if rule.factors[number].kind is not FactorKind.PARTIAL
    )
    return rule.flops_per_point * math.prod(sizes)


def local_bytes(operation: Operation, rule: Rule, assignment: Assignment, mesh: DeviceMatrix) -> int:
    """Bytes that one rank reads and writes."""
    local = local_operation(operation, rule, assignment, mesh)
    return sum(result.num_bytes for result in (*local.operands, *local.results))


def exchanged_bytes(operation: Operation, rule: Rule, assignment: Assignment, mesh: DeviceMatrix) -> int:
    """Bytes that one rank sends to others while it computes: borders of windows, slices that change places."""
    total = 0
    where, _ = placements(rule, assignment)
    for spec, dims, placement in zip(operation.operands, rule.operands, where, strict=True):
        local = placement.local_shape(spec.shape, mesh)
        slice_bytes = math.prod(local) * spec.itemsize
        for dim, indices in enumerate(dims):
            for number in indices:
                total += _sent(rule.factors[number], num_parts(mesh, assignment[number]), slice_bytes, local[dim])
    return total


def _sent(factor: Factor, parts: int, slice_bytes: int, size: int) -> int:
    if parts == 1:
        return 0
    if factor.kind is FactorKind.PERMUTE:
        return slice_bytes
    border = factor.window.border(parts) if factor.window is not None else None
    # The border is a share of the slice along this dimension.
    return 0 if border is None else slice_bytes // size * (border.left + border.right)


def _contiguous(rule: Rule, indices: tuple[int, ...], assignment: Assignment, mesh: DeviceMatrix) -> bool:
    """Whether every factor before the last one that is sharded is sharded completely."""
    # Otherwise the slice of a rank would have gaps.
    sharded = [position for position, index in enumerate(indices) if assignment[index]]
    return all(
        num_parts(mesh, assignment[index]) == rule.factors[index].size
        for index in indices[: sharded[-1] if sharded else 0]
    )


def _placements(
    rule: Rule, assignment: Assignment, tensors: Sequence[DimFactors], parts: Sequence[Sequence[int]]
) -> tuple[Placement, ...]:
    return tuple(_placement(rule, assignment, *entry) for entry in zip(tensors, parts, strict=True))


def _placement(rule: Rule, assignment: Assignment, dims: DimFactors, parts: Sequence[int]) -> Placement:
    shardings = tuple(
        # The common case without a loop: one factor per dimension.
        assignment[indices[0]] if len(indices) == 1 else tuple(axis for index in indices for axis in assignment[index])
        for indices in dims
    )
    used = [number for number in parts if assignment[number]]
    partial = tuple(axis for number in used for axis in assignment[number])
    return placed(shardings, partial, rule.factors[used[0]].reduction if used else "")


def _take(rule: Rule, mesh: DeviceMatrix, chosen: list[Axes], indices: tuple[int, ...], axes: Axes) -> None:
    """Spread the axes of one dimension over its factors, major first, as far as they fit."""
    if not axes:
        return
    remaining = list(axes)
    for index in indices:
        factor = rule.factors[index]
        taken: list[int] = []
        # Axes are taken in order, since the outer one decides which half a rank is in.
        while remaining and factor.allows(num_parts(mesh, (*taken, remaining[0]))):
            taken.append(remaining.pop(0))
        # Axes of a later tensor are taken only if they extend what earlier tensors decided.
        agreed = chosen[index][: len(taken)] == tuple(taken[: len(chosen[index])])
        if agreed and len(taken) > len(chosen[index]):
            # Tried as a whole: legality depends on the other factors too.
            attempt = [*chosen]
            attempt[index] = tuple(taken)
            if is_legal(rule, tuple(attempt), mesh):
                chosen[index] = tuple(taken)
        if num_parts(mesh, chosen[index]) != factor.size or chosen[index] != tuple(taken):
            return  # what comes after would not be contiguous


def _pass_parts(rule: Rule, mesh: DeviceMatrix, chosen: list[Axes], operands: Sequence[Placement | None]) -> None:
    """Let parts through where the primitive is linear in exactly the operands that are parts."""
    by_axis: dict[tuple[int, str], set[int]] = {}
    for number, placement in enumerate(operands):
        for axis in placement.partial if placement else ():
            by_axis.setdefault((axis, placement.reduction if placement else ""), set()).add(number)
    # Sorted, so that the result does not depend on the order in which axes were met.
    for (axis, reduction), members in sorted(by_axis.items()):
        for number, factor in enumerate(rule.factors):
            # Exactly these operands: with one more or one less complete, the sum of the results would count it wrongly.
            if factor.kind is FactorKind.PARTIAL and factor.reduction == reduction and set(factor.operands) == members:
                attempt = [*chosen]
                attempt[number] = (*chosen[number], axis)
                if is_legal(rule, tuple(attempt), mesh):
                    chosen[:] = attempt
                    break


def _local(spec: TensorSpec, placement: Placement, mesh: DeviceMatrix) -> TensorSpec:
    return dataclasses.replace(spec, shape=placement.local_shape(spec.shape, mesh))


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


def shard_map(operation: Operation) -> Rule:
    """Each axis that the body names is a factor of its size; what is left of a dimension stays together."""
    island: Island = operation.params["island"]
    draft = Draft(operation)
    factors = {name: draft.map(island.num_devices((name,))) for name in island.axes}

    def dims(shape: Shape, names: Names) -> DimFactors:
        found = []
        for size, axes in zip(shape, names, strict=True):
            major = tuple(number for name in axes for number in factors[name])
            parts = island.num_devices(axes)
            found.append(major if size == parts > 1 else major + draft.blocked(size // parts))
        return tuple(found)

    return draft.finish(
        [dims(spec.shape, names) for spec, names in zip(operation.operands, island.operands, strict=True)],
        [dims(spec.shape, names) for spec, names in zip(operation.results, island.results, strict=True)],
        recipe="island",
        flops_per_point=island.flops,
        points=tuple(number for numbers in factors.values() for number in numbers),
    )


def only_assignment(operation: Operation, rule: Rule, mesh: DeviceMatrix) -> Assignment | None:
    """How an island is sharded; None for all other operations."""
    island = operation.params.get("island")
    if not isinstance(island, Island):
        return None
    runs = island.runs(mesh)
    return tuple(runs[name] for name in island.axes) + ((),) * (len(rule.factors) - len(island.axes))
