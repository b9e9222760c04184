"""Family 6: reading and writing at computed places; family 9: tensors made from nothing, and random bits.

The interesting dimension of family 6 is the one that the indices point into. Where it is sharded, every rank looks up what it
owns: reading gives zeros elsewhere, so the results are partial sums (the vocabulary-parallel embedding); writing skips what
belongs to others, so the results are simply sharded. The recipes "gather" and "scatter" shift and mask the indices.

Tables in uneven parts have primitives of Sporax's own (`sporax.lowering.execute.part_lookup`), since parts of different lengths
are no sharding that a compiler or a placement knows. The table comes in blocks of equal length (`sporax.ir.uneven`). Field by
field its indices point into one block, so that all three are sharded together: block, fields and results of a part are on one
device, and nothing is sent.

Of family 9 every rank makes its own slice. What depends on the place of an element (iota, counters of random numbers) is
computed from its place in the whole tensor, so the values do not depend on the sharding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sporax.ir.operation import Operation, Shape
from sporax.ir.uneven import UnevenRows
from sporax.planner.rules.language import MOVABLE, DimFactors, Draft, Rule, replicate

Shapes = tuple[Shape, ...]

SCATTER_REDUCTION: dict[str, str] = {
    "scatter-add": "sum",
    "scatter-sub": "sum",
    "scatter-mul": "prod",
    "scatter-min": "min",
    "scatter-max": "max",
}
"""How results combine when different ranks apply different updates. Plain scatter overwrites, so it has no entry."""


def dynamic_slice(operation: Operation) -> Rule:
    """Dimensions taken whole are mapped."""
    draft = Draft(operation)
    operand, result = _windowed(draft, operation.operands[0].shape, operation.results[0].shape)
    draft.passes((0,), *MOVABLE)
    scalars: list[DimFactors] = [()] * (len(operation.operands) - 1)

    def adapt(_: Operation, __: Shapes, results: Shapes) -> dict[str, Any]:
        return {"slice_sizes": results[0]}

    return draft.finish([operand, *scalars], [result], recipe="dynamic_slice", adapt=adapt, flops_per_point=0.0)


def dynamic_update_slice(operation: Operation) -> Rule:
    """Dimensions replaced whole are mapped. Linear in both tensors together."""
    draft = Draft(operation)
    operand, update = _windowed(draft, operation.operands[0].shape, operation.operands[1].shape)
    draft.passes((0, 1), *MOVABLE)
    scalars: list[DimFactors] = [()] * (len(operation.operands) - 2)
    return draft.finish([operand, update, *scalars], [operand], flops_per_point=0.0)


def _windowed(draft: Draft, shape: Shape, window: Shape) -> tuple[DimFactors, DimFactors]:
    """Factors of a tensor and of a window into it: shared where the window spans the dimension."""
    tensor_dims, window_dims = [], []
    # A window that spans the dimension starts at zero: there is no other place for it.
    for size, extent in zip(shape, window, strict=True):
        tensor_dims.append(draft.map(size) if size == extent else draft.blocked(size))
        window_dims.append(tensor_dims[-1] if size == extent else draft.blocked(extent))
    return tuple(tensor_dims), tuple(window_dims)


def gather(operation: Operation) -> Rule:
    """Window dimensions taken whole and index dimensions are mapped; a dimension that is pointed into is reduced."""
    if not _knows_mode(operation):
        return replicate(operation, f"indices of '{operation.name}' in {operation.params['mode']} have no local form")
    numbers, sizes = operation.params["dimension_numbers"], operation.params["slice_sizes"]
    shape, index_shape = operation.operands[0].shape, operation.operands[1].shape
    draft = Draft(operation)
    # The last dimension of the indices is one point's coordinates.
    indices = [*draft.maps(index_shape[:-1]), draft.blocked(index_shape[-1])]
    batching = dict(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True))
    operand, window = [], []
    for dim, (size, extent) in enumerate(zip(shape, sizes, strict=True)):
        pointed = dim in numbers.start_index_map
        # Batch dimensions of operand and indices are one factor.
        if dim in batching:
            operand.append(indices[batching[dim]])
            continue
        # A dimension of size one that is pointed into is read whole in any case, but indices decide whether it is read.
        if extent == size and not (pointed and extent == 1):
            operand.append(draft.map(size))
        # Every rank looks up what it owns and gives zeros elsewhere; scales (powers of two) have no zero.
        elif extent == 1 and pointed and operation.operands[0].dtype != "float8_e8m0fnu":
            operand.append(draft.reduce(size, "or" if operation.operands[0].dtype == "bool" else "sum"))
        else:
            operand.append(draft.blocked(size))
        if dim not in numbers.collapsed_slice_dims:
            # A window dimension of size one is sharded with no other.
            window.append(operand[-1] if extent == size and extent > 1 else draft.blocked(extent))
    result = _interleave(numbers.offset_dims, window, indices[:-1], operation.results[0].num_dims)
    # A fill value other than zero would be added once per rank.
    draft.passes((0,), *(MOVABLE if _stays_inside(operation) else ()))

    def adapt(full: Operation, operands: Shapes, _: Shapes) -> dict[str, Any]:
        spans = zip(sizes, full.operands[0].shape, operands[0], strict=True)
        return {"slice_sizes": tuple(local if extent == size else extent for extent, size, local in spans)}

    return draft.finish([tuple(operand), tuple(indices)], [result], recipe="gather", adapt=adapt, flops_per_point=0.0)


def _knows_mode(operation: Operation) -> bool:
    """Whether it is known what an index outside means."""
    mode = str(operation.params.get("mode", "CLIP"))
    return any(known in mode for known in ("CLIP", "FILL", "PROMISE"))


def _interleave(
    window_dims: tuple[int, ...], window: Sequence[tuple[int, ...]], batch: Sequence[tuple[int, ...]], num_dims: int
) -> DimFactors:
    """Dimensions of a gather's result or a scatter's updates: window dimensions at their places, the others between."""
    windows, batches = iter(window), iter(batch)
    return tuple(next(windows) if dim in window_dims else next(batches) for dim in range(num_dims))


def _stays_inside(operation: Operation) -> bool:
    """Whether an index outside is answered with nothing that adds up to something else when every rank answers it."""
    fill = operation.params["fill_value"]
    nan_fill = fill is None and operation.results[0].is_inexact
    return "FILL" not in str(operation.params["mode"]) or nan_fill or fill == 0


def scatter(operation: Operation) -> Rule:
    """Window dimensions written whole and the dimension pointed into are mapped; update dimensions are reduced."""
    if not _knows_mode(operation):
        return replicate(operation, f"indices of '{operation.name}' in {operation.params['mode']} have no local form")
    numbers = operation.params["dimension_numbers"]
    _, index_shape, update_shape = (operand.shape for operand in operation.operands)
    draft = Draft(operation)
    reduction = SCATTER_REDUCTION.get(operation.name, "")
    batching = dict(zip(numbers.scatter_indices_batching_dims, numbers.operand_batching_dims, strict=True))
    indices = [
        # Updates that are spread over ranks give partial results, if they combine by a reduction.
        draft.map(size) if dim in batching else draft.reduce(size, reduction) if reduction else draft.blocked(size)
        for dim, size in enumerate(index_shape[:-1])
    ]
    indices.append(draft.blocked(index_shape[-1]))
    batched = {dim: indices[index_dim] for index_dim, dim in batching.items()}
    operand, window = _scattered_into(draft, batched)
    updates = _interleave(numbers.update_window_dims, window, indices[:-1], len(update_shape))
    # Names of the others say what theirs does; a function that is applied to what is there need not be linear.
    if operation.params.get("update_jaxpr") is None or operation.name != "scatter":
        _pass_scatter_parts(draft, operation.name)
    return draft.finish([operand, tuple(indices), updates], [operand], recipe="scatter", flops_per_point=0.0)


def _scattered_into(draft: Draft, batched: Mapping[int, tuple[int, ...]]) -> tuple[DimFactors, DimFactors]:
    """Dimensions of a scatter's operand, of which those in `batched` are known, and the window dimensions of its updates."""
    numbers = draft.operation.params["dimension_numbers"]
    operand_shape, _, update_shape = (spec.shape for spec in draft.operation.operands)
    operand: list[tuple[int, ...]] = []
    window: list[tuple[int, ...]] = []
    extents = iter(update_shape[dim] for dim in numbers.update_window_dims)
    for dim, size in enumerate(operand_shape):
        if dim in batched:
            operand.append(batched[dim])
            continue
        inserted = dim in numbers.inserted_window_dims
        extent = 1 if inserted else next(extents)
        pointed = extent == 1 and dim in numbers.scatter_dims_to_operand_dims
        operand.append(draft.map(size) if pointed or extent == size else draft.blocked(size))
        if not inserted:
            window.append(operand[dim] if extent == size and not pointed else draft.blocked(extent))
    return tuple(operand), tuple(window)


def _pass_scatter_parts(draft: Draft, name: str) -> None:
    """Parts of operand and updates together make parts; an overwritten element only moves."""
    # `scatter-sub` is linear in both: (x - u) summed over parts.
    if name in ("scatter-add", "scatter-sub"):
        draft.passes((0, 2), "sum")
    elif name in ("scatter-min", "scatter-max"):
        draft.passes((0, 2), SCATTER_REDUCTION[name])
    elif name == "scatter":
        draft.passes((0, 2), *MOVABLE)


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


def part_lookup(operation: Operation) -> Rule:
    """Blocks, fields and results of one part go together; other dimensions are mapped."""
    table, indices = (operand.shape for operand in operation.operands)
    draft = Draft(operation)
    blocks, fields = _by_part(draft, operation, table[0], indices[-1])
    before, columns = draft.maps(indices[:-1]), draft.maps(table[1:])
    # A lookup copies rows: linear in the table.
    draft.passes((0,), "sum")
    operands = ((blocks, *columns), (*before, fields))
    return draft.finish(operands, [(*before, fields, *columns)], recipe="part_lookup", flops_per_point=0.0)


def part_update(operation: Operation) -> Rule:
    """As the lookup; rows are summed over all dimensions of the indices but the fields."""
    indices, result = operation.operands[1].shape, operation.results[0].shape
    draft = Draft(operation)
    blocks, fields = _by_part(draft, operation, result[0], indices[-1])
    before: DimFactors = tuple(draft.reduce(size) for size in indices[:-1])
    columns = draft.maps(result[1:])
    draft.passes((0,), "sum")
    operands = ((*before, fields, *columns), (*before, fields))

    def adapt(_: Operation, __: tuple[Shape, ...], results: tuple[Shape, ...]) -> dict[str, Any]:
        return {"num_rows": results[0][0]}

    return draft.finish(operands, [(blocks, *columns)], recipe="part_update", adapt=adapt)


def fill_spare_rows(operation: Operation) -> Rule:
    """All dimensions are mapped."""
    draft = Draft(operation)
    dims = draft.maps(operation.operands[0].shape)
    return draft.finish([dims], [dims], recipe="fill_spare_rows", flops_per_point=0.0)


def _by_part(draft: Draft, operation: Operation, num_rows: int, num_fields: int) -> tuple[tuple[int, ...], ...]:
    """Factors of the table's rows and of the fields; both whole as long as the table is not in blocks."""
    rows = UnevenRows(operation.params["rows"])
    # Blocks are as long as the largest part; a table of another length has not been divided into blocks.
    if num_rows != rows.num_stored:
        return draft.blocked(num_rows), draft.blocked(num_fields)
    parts = draft.map(len(rows.rows))
    return parts + draft.blocked(rows.block), parts + draft.blocked(num_fields // len(rows.rows))
