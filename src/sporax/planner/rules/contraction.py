"""Family 3: products summed over shared indices. Linear in each operand, so either may be partial.

Family 5: windows that slide over dimensions.

A dimension whose window is a single element is mapped. One with real windows can be sharded when inputs and outputs advance in
step; ranks fetch borders from their neighbours where windows overlap.
"""

from __future__ import annotations

import math
from typing import Any

from sporax.ir.operation import Operation, Shape
from sporax.planner.rules.language import DimFactors, Draft, Rule, Window, replicate

Shapes = tuple[Shape, ...]


def dot_general(operation: Operation) -> Rule:
    """Batch and free dimensions are mapped, contracted ones reduced."""
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = operation.params["dimension_numbers"]
    draft = Draft(operation)
    lhs, rhs, batch = _index_operands(draft, (lhs_contract, rhs_contract), (lhs_batch, rhs_batch))
    result = (*batch, *_free(lhs, lhs_contract, lhs_batch), *_free(rhs, rhs_contract, rhs_batch))
    _pass_parts_of_either(draft)
    return draft.finish([lhs, rhs], [result], flops_per_point=2.0)


def _pass_parts_of_either(draft: Draft) -> None:
    """Linear in each operand alone; both partial at once would need the product of two sums."""
    result = draft.operation.results[0]
    for number, operand in enumerate(draft.operation.operands[:2]):
        # Integers wrap: where the result is wider, it would see that the parts do not.
        if operand.is_inexact or operand.dtype == result.dtype != "bool":
            draft.passes((number,), "sum")


def _index_operands(
    draft: Draft, contract: tuple[Any, Any], batch: tuple[Any, Any], undivided: tuple[int, ...] = ()
) -> tuple[DimFactors, DimFactors, DimFactors]:
    """The two operands' dimensions and the batch indices; the lhs dimensions in `undivided` stay whole."""
    lhs_shape, rhs_shape = (operand.shape for operand in draft.operation.operands[:2])
    rhs: list[tuple[int, ...]] = [() for _ in rhs_shape]
    lhs: list[tuple[int, ...]] = []
    contracted = dict(zip(contract[0], contract[1], strict=True))
    batched = dict(zip(batch[0], batch[1], strict=True))
    for dim, size in enumerate(lhs_shape):
        if dim in undivided:
            lhs.append(draft.blocked(size))
        elif dim in contracted:
            # A sum of truth values is their disjunction.
            lhs.append(draft.reduce(size, "or" if draft.operation.results[0].dtype == "bool" else "sum"))
        else:
            lhs.append(draft.map(size))
        # Both operands share the factor of a contracted or batch dimension.
        partner = {**contracted, **batched}.get(dim)
        if partner is not None:
            rhs[partner] = lhs[-1]
    for dim, size in enumerate(rhs_shape):
        if dim not in contract[1] and dim not in batch[1]:
            rhs[dim] = draft.map(size)
    return tuple(lhs), tuple(rhs), tuple(lhs[dim] for dim in batch[0])


def _free(dims: DimFactors, contract: Any, batch: Any) -> DimFactors:
    return tuple(indices for dim, indices in enumerate(dims) if dim not in contract and dim not in batch)


def ragged_dot_general(operation: Operation) -> Rule:
    """As `dot_general`; the ragged dimension and the groups stay whole, because group sizes are known at run time only."""
    numbers = operation.params["ragged_dot_dimension_numbers"]
    contract, batch = numbers.dot_dimension_numbers
    ragged, groups = tuple(numbers.lhs_ragged_dimensions), tuple(numbers.rhs_group_dimensions)
    # Offsets of groups would differ from rank to rank, and local group sizes are unknown before the run.
    if operation.operands[2].num_dims != 1 or ragged[0] in batch[0]:
        return replicate(operation, "groups that differ per batch element have no local form")
    draft = Draft(operation)
    lhs, rhs, shared = _index_operands(draft, contract, batch, undivided=ragged)
    group = draft.blocked(operation.operands[2].shape[0])
    rhs = tuple(group if dim in groups else indices for dim, indices in enumerate(rhs))
    free_rhs = tuple(
        indices
        for dim, indices in enumerate(rhs)
        if dim not in groups and dim not in contract[1] and dim not in batch[1]
    )
    group_result = (group,) if ragged[0] in contract[0] else ()
    result = (*group_result, *shared, *_free(lhs, contract[0], batch[0]), *free_rhs)
    _pass_parts_of_either(draft)
    # The group factor is no index of the arithmetic: each row belongs to one group.
    points = tuple({index for dims in (*lhs, *free_rhs) for index in dims})
    return draft.finish([lhs, rhs, (group,)], [result], flops_per_point=2.0, points=points)


def conv_general_dilated(operation: Operation) -> Rule:
    """Batch, output features and groups are mapped, input features reduced; space needs borders from neighbours.

    With feature groups the input features are (group, feature) and the output features (group, feature) too; with batch
    groups the batch is (group, batch).
    """
    params = operation.params
    numbers = params["dimension_numbers"]
    lhs_spec, rhs_spec, out_spec = numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec
    lhs_shape, rhs_shape = (operand.shape for operand in operation.operands)
    out_shape = operation.results[0].shape
    draft = Draft(operation)
    groups, batch_groups = params["feature_group_count"], params["batch_group_count"]
    group = draft.map(groups) if groups > 1 else ()
    batch_group = draft.map(batch_groups) if batch_groups > 1 else ()
    batch = draft.map(out_shape[out_spec[0]])
    features_in = draft.reduce(rhs_shape[rhs_spec[1]])
    features_out = draft.map(out_shape[out_spec[1]] // (groups * batch_groups))
    lhs: list[tuple[int, ...]] = [() for _ in lhs_shape]
    rhs: list[tuple[int, ...]] = [() for _ in rhs_shape]
    out: list[tuple[int, ...]] = [() for _ in out_shape]
    # Major factor first: groups are the outer part of the feature dimension, as XLA lays them out.
    lhs[lhs_spec[0]], lhs[lhs_spec[1]] = batch_group + batch, group + features_in
    rhs[rhs_spec[0]], rhs[rhs_spec[1]] = group + batch_group + features_out, features_in
    out[out_spec[0]], out[out_spec[1]] = batch, group + batch_group + features_out
    for number, (lhs_dim, rhs_dim, out_dim) in enumerate(zip(lhs_spec[2:], rhs_spec[2:], out_spec[2:], strict=True)):
        lhs[lhs_dim] = out[out_dim] = draft.halo(_window(operation, number, lhs_dim, rhs_dim, out_dim))
        # Kernels are small, and each output needs the whole window.
        rhs[rhs_dim] = draft.blocked(rhs_shape[rhs_dim])
    _pass_parts_of_either(draft)
    spatial_outputs = math.prod(out_shape[dim] for dim in out_spec[2:])
    # The factors of a window overlap, so the points of the index space are corrected for outputs that share a factor.
    halo_points = math.prod(_halo_sizes(operation, lhs_spec, out_spec))
    return draft.finish(
        [tuple(lhs), tuple(rhs)],
        [tuple(out)],
        recipe="convolution",
        adapt=_local_groups,
        flops_per_point=2.0 * spatial_outputs / halo_points,
    )


def _window(operation: Operation, number: int, lhs_dim: int, rhs_dim: int, out_dim: int) -> Window:
    params = operation.params
    return Window(
        size=operation.operands[0].shape[lhs_dim],
        num_outputs=operation.results[0].shape[out_dim],
        extent=operation.operands[1].shape[rhs_dim],
        stride=params["window_strides"][number],
        base_dilation=params["lhs_dilation"][number],
        window_dilation=params["rhs_dilation"][number],
        pad_low=params["padding"][number][0],
    )


def _halo_sizes(operation: Operation, lhs_spec: Any, out_spec: Any) -> list[int]:
    lhs, out = operation.operands[0].shape, operation.results[0].shape
    return [math.gcd(lhs[a], out[b]) for a, b in zip(lhs_spec[2:], out_spec[2:], strict=True)]


def _local_groups(operation: Operation, operands: Shapes, results: Shapes) -> dict[str, Any]:
    """Group counts of the slices: how many input features and output batches fit into what is left."""
    numbers = operation.params["dimension_numbers"]
    # Slices hold whole groups, so ratios of local sizes give local counts.
    features, kernel_features = operands[0][numbers.lhs_spec[1]], operands[1][numbers.rhs_spec[1]]
    batch, out_batch = operands[0][numbers.lhs_spec[0]], results[0][numbers.out_spec[0]]
    return {"feature_group_count": features // kernel_features, "batch_group_count": batch // out_batch}


def reduce_window_named(operation: Operation) -> Rule:
    """Sum, maximum or minimum over windows."""
    draft = Draft(operation)
    operand, result = _slide(draft, operation.operands[0].shape, operation.results[0].shape, exchanges=True)
    if operation.name == "reduce_window_sum":
        draft.passes((0,), "sum")
    return draft.finish([operand], [result], recipe="window")


def reduce_window(operation: Operation) -> Rule:
    """Any function over windows: only dimensions whose windows do not reach into other slices can be sharded."""
    draft = Draft(operation)
    operand, result = _slide(draft, operation.operands[0].shape, operation.results[0].shape, exchanges=False)
    operands = [operand if tensor.num_dims == len(operand) else () for tensor in operation.operands]
    return draft.finish(operands, [result] * len(operation.results), recipe="window")


def select_and_gather_add(operation: Operation) -> Rule:
    """Of every window the tangent at the place of the extreme. Linear in the tangents."""
    draft = Draft(operation)
    operand, result = _slide(draft, operation.operands[1].shape, operation.results[0].shape, exchanges=False)
    draft.passes((0,), "sum")
    return draft.finish([operand, operand], [result], recipe="window")


def select_and_scatter_add(operation: Operation) -> Rule:
    """Each source element is added at the place of its window's extreme. Linear in the source."""
    draft = Draft(operation)
    operand, source = _slide(draft, operation.operands[1].shape, operation.operands[0].shape, exchanges=False)
    draft.passes((0,), "sum")
    return draft.finish([source, operand], [operand], recipe="window")


def select_and_scatter(operation: Operation) -> Rule:
    """The general form: functions of its own; operand, source and an initial value."""
    if operation.operands[2].num_dims:
        return replicate(operation, "its form is not known")
    draft = Draft(operation)
    operand, source = _slide(draft, operation.operands[0].shape, operation.operands[1].shape, exchanges=False)
    return draft.finish([operand, source, ()], [operand], recipe="window")


def _slide(
    draft: Draft, shape: tuple[int, ...], outputs: tuple[int, ...], *, exchanges: bool
) -> tuple[DimFactors, DimFactors]:
    """Factors of the dimensions that windows slide over, and of those that they make."""
    params = draft.operation.params
    ones = (1,) * len(shape)
    base, inner = (params.get(key, ones) for key in ("base_dilation", "window_dilation"))
    operand, result = [], []
    for dim, (size, num_outputs) in enumerate(zip(shape, outputs, strict=True)):
        extent, stride = params["window_dimensions"][dim], params["window_strides"][dim]
        padding = tuple(params["padding"][dim])
        # A window of one element is an elementwise operation along its dimension.
        if extent == stride == base[dim] == 1 and padding == (0, 0):
            operand.append(draft.map(size))
        else:
            window = Window(size, num_outputs, extent, stride, base[dim], inner[dim], padding[0], exchanges)
            operand.append(_sliding(draft, window))
        result.append(operand[-1])
    return tuple(operand), tuple(result)


def _sliding(draft: Draft, window: Window) -> tuple[int, ...]:
    """A halo factor; slices of a dilated base cannot be cropped here, unlike a convolution's, so those stay whole."""
    return draft.halo(window) if window.base_dilation == 1 else ()
