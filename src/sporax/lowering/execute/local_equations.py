"""One equation on the slices of one rank.

The planner's rules say how a primitive is sharded; here it is bound on the slices. Most primitives run unchanged, with
the parameters that depend on shapes adjusted. The others have a *recipe*: count from the offset of the slice, look up
the rows that the rank has, exchange borders with neighbours. A rank knows its place on the mesh by a `Position`, so the
same code runs inside `shard_map` and, rank by rank, in tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.random import threefry2x32_p

from sporax.ir.placement import Axes, num_parts
from sporax.lowering.execute.local_task import LocalTask, Position
from sporax.lowering.execute.part_lookup import local_fill, local_lookup, local_update
from sporax.planner.rules import Border, FactorKind, Operation, local_operation

Recipe = Callable[[LocalTask, Operation, Position, list[Array]], list[Array]]
"""From the task, the local operation, the position and the slices to the results."""


def run(task: LocalTask, position: Position, slices: Sequence[Array]) -> list[Array]:
    """Compute the slices (or parts) of a task's results from the slices of its operands.

    Raises:
        SporaxValueError: the assignment is not legal.
    """
    local = local_operation(task.operation, task.rule, task.assignment, task.mesh)
    # Without axes the slice is the whole: the plain form needs no offsets. Some work around compilers anyway.
    is_plain = not any(task.assignment) and task.rule.recipe not in ("scatter", "dynamic_slice")
    recipe = _plain if is_plain else _RECIPES[task.rule.recipe]
    return recipe(task, local, position, list(slices))


def _plain(task: LocalTask, local: Operation, position: Position, slices: list[Array]) -> list[Array]:
    return task.bind(slices, local.params)


def _iota(task: LocalTask, local: Operation, position: Position, slices: list[Array]) -> list[Array]:
    """Count from the slice's place, in integers, as XLA does: a float rounds each number once."""
    dim, dtype = local.params["dimension"], local.params["dtype"]
    counts = task.bind(slices, {**local.params, "dtype": np.dtype(np.int32)})[0]
    start = position.index(task.result_placement(0).dims[dim]) * local.results[0].shape[dim]
    return [(counts + start).astype(dtype)]


def _place_numbers(task: LocalTask, local: Operation, position: Position, dims: range) -> tuple[Array, Array]:
    """High and low words of the row-major number that each element of the slice has in the whole result.

    Only dimensions in `dims` count.
    """
    full, shape = task.operation.results[0].shape, local.results[0].shape
    placement = task.result_placement(0)
    num_elements = math.prod(full[dims.start : dims.stop])
    # Two words, as Threefry takes them; 64-bit numbers only where 32 bits would wrap.
    dtype = np.uint32 if num_elements <= 2**32 else np.uint64
    number = jnp.zeros([shape[dim] for dim in dims], dtype)
    for place, dim in enumerate(dims):
        counts = jax.lax.broadcasted_iota(dtype, number.shape, place)
        start = jnp.asarray(position.index(placement.dims[dim]), dtype) * dtype(shape[dim])
        # Row-major: a step in one dimension is the product of the sizes behind it.
        number = number + (counts + start) * dtype(math.prod(full[dim + 1 : dims.stop]))
    high = number >> dtype(32) if dtype is np.uint64 else jnp.zeros_like(number)
    return high.astype(jnp.uint32), number.astype(jnp.uint32)


def _iota_2x32(task: LocalTask, local: Operation, position: Position, slices: list[Array]) -> list[Array]:
    """The element's number in the whole result, in two words."""
    return list(_place_numbers(task, local, position, range(local.results[0].num_dims)))


def _random_bits(task: LocalTask, local: Operation, position: Position, slices: list[Array]) -> list[Array]:
    """Threefry: the bits of an element are a hash of the key and of the element's number in the whole tensor."""
    num_batch, shape = local.operands[0].num_dims, local.results[0].shape
    if not getattr(jax.config, "jax_threefry_partitionable", True):
        # The bits of an element depend on the shape of the whole tensor.
        dims = [() if dim < num_batch else axes for dim, axes in enumerate(task.result_placement(0).dims)]
        starts = [jnp.int32(position.index(axes) * size) for axes, size in zip(dims, shape, strict=True)]
        return [jax.lax.dynamic_slice(task.bind(slices, task.operation.params)[0], starts, shape)]
    high, low = _place_numbers(task, local, position, range(num_batch, len(shape)))
    words = jax.random.key_data(slices[0])
    words = words.reshape(*words.shape[:-1], *(1,) * high.ndim, 2)
    # Keys stay as small as they are: the rounds of the hash carry them, and at full size they take three arrays more.
    keys = words[..., 0], words[..., 1]
    first, second = threefry2x32_p.bind(*keys, *(jnp.broadcast_to(number, shape) for number in (high, low)))
    width = local.params["bit_width"]
    if width == 64:
        return [(first.astype(jnp.uint64) << np.uint64(32)) | second.astype(jnp.uint64)]
    return [(first ^ second).astype(f"uint{width}")]


def _reverse(task: LocalTask, local: Operation, position: Position, slices: list[Array]) -> list[Array]:
    """Reverse the slice, and send it to the opposite place along every reversed dimension that is sharded."""
    x = task.bind(slices, local.params)[0]
    # Reversed inside of each slice, the slices themselves are still in the old order.
    for dim in local.params["dimensions"]:
        axes = task.operand_placement(0).dims[dim]
        if axes:
            parts = num_parts(task.mesh, axes)
            x = position.permute(x, axes, [(place, parts - 1 - place) for place in range(parts)])
    return [x]


def _gather(task: LocalTask, local: Operation, position: Position, slices: list[Array]) -> list[Array]:
    """Look up what this rank owns; zeros elsewhere, and what an outside index gives once."""
    operand, indices = slices[0], _signed(slices[1])
    params, numbers = task.operation.params, local.params["dimension_numbers"]
    placement = task.operand_placement(0)
    columns = [
        (column, dim)
        for column, dim in enumerate(numbers.start_index_map)
        if placement.dims[dim] and params["slice_sizes"][dim] == 1
    ]
    if not columns:
        return task.bind(slices, local.params)
    owned = jnp.ones(indices.shape[:-1], bool)
    # Only this mode gives an answer for an outside index; others clip, and clipped indices have an owner.
    inside = _all_inside(indices, task.operation) if "FILL" in str(params["mode"]) else owned
    for column, dim in columns:
        place, mine = _local_place(task, local, position, indices[..., column], dim)
        # Any legal place will do for rows of others: what is read there is masked below.
        indices = indices.at[..., column].set(jnp.clip(place, 0, local.operands[0].shape[dim] - 1))
        owned = owned & mine
    # Clipped indices repeat, and are in another order, whatever the caller has promised of the whole ones.
    promises = {"unique_indices": False, "indices_are_sorted": False}
    values = task.bind([operand, indices], {**local.params, **promises})[0]
    masks = [_beside_window(mask, numbers.offset_dims, values.ndim) for mask in (owned & inside, inside)]
    values = jnp.where(masks[0], values, jnp.zeros_like(values))
    if "FILL" in str(params["mode"]):
        # The results are partial sums: one rank alone may answer for an index that no rank has.
        answers = ~masks[1] & (position.index(task.axes_of(FactorKind.REDUCE)) == 0)
        values = jnp.where(answers, _fill_value(params["fill_value"], values.dtype), values)
    return [values]


def _dynamic_slice(task: LocalTask, local: Operation, position: Position, slices: list[Array]) -> list[Array]:
    """Keep the start inside in the program, too: XLA adds it to the start of a device's slice of the result without that."""
    operand, *starts = map(jnp.asarray, slices)
    spaces = zip(starts, operand.shape, local.params["slice_sizes"], strict=True)
    starts = [jnp.clip(start, 0, min(size - extent, jnp.iinfo(start.dtype).max)) for start, size, extent in spaces]
    return task.bind([operand, *starts], local.params)


def _signed(indices: Array) -> Array:
    """Indices in a type that has negative numbers; what is above all of these is outside of every tensor, too."""
    # Unsigned indices would wrap where the start of the slice is subtracted.
    dtype = np.int64 if indices.dtype.itemsize == 8 else np.int32
    return jnp.minimum(indices, min(jnp.iinfo(indices.dtype).max, np.iinfo(dtype).max)).astype(dtype)


def _local_place(task: LocalTask, local: Operation, position: Position, index: Array, dim: int) -> tuple[Array, Array]:
    """An index into a sharded dimension counted from the slice's start, and whether the slice has it."""
    num_rows, size = task.operation.operands[0].shape[dim], local.operands[0].shape[dim]
    start = jnp.asarray(position.index(task.operand_placement(0).dims[dim]) * size, index.dtype)
    place = jnp.clip(index, 0, num_rows - 1) - start
    return place, (place >= 0) & (place < size)


def _all_inside(indices: Array, operation: Operation) -> Array:
    """Whether each index keeps its window inside the whole tensor."""
    shape, sizes = operation.operands[0].shape, operation.params["slice_sizes"]
    dims = operation.params["dimension_numbers"].start_index_map
    limits = np.array([shape[dim] - sizes[dim] for dim in dims], indices.dtype)
    # The last start that keeps the window inside is the size minus the window.
    return jnp.all((indices >= 0) & (indices <= limits), axis=-1)


def _beside_window(mask: Array, window_dims: Sequence[int], num_dims: int) -> Array:
    """A mask over index dimensions, with dimensions of size 1 where the window is."""
    return jnp.expand_dims(mask, tuple(window_dims)) if num_dims > mask.ndim else mask


def _fill_value(fill: float | None, dtype: np.dtype) -> Array:
    """What gather answers outside: the value that was given, else NaN, the lowest integer, or the highest unsigned one."""
    if fill is not None:
        return jnp.asarray(fill, dtype)
    if jnp.issubdtype(dtype, jnp.inexact):
        return jnp.asarray(jnp.nan, dtype)
    if dtype == jnp.bool_:
        return jnp.asarray(True)
    limits = np.iinfo(dtype)
    return jnp.asarray(limits.min if jnp.issubdtype(dtype, jnp.signedinteger) else limits.max, dtype)


def _scatter(task: LocalTask, local: Operation, position: Position, slices: list[Array]) -> list[Array]:
    """Write what falls into this rank's slice. Where ranks hold different updates, the first of them holds the operand."""
    operand, indices, updates = slices
    reduced = task.axes_of(FactorKind.REDUCE)
    # Partial results are added later, so the operand may be in one of them only.
    neutral = _NEUTRAL.get(local.name)
    if reduced and neutral is not None:
        operand = jnp.where(position.index(reduced) == 0, operand, jnp.full_like(operand, neutral))
    if not operand.ndim:
        return _scatter_into_scalar(task, operand, indices, updates, local)
    numbers = local.params["dimension_numbers"]
    placement = task.operand_placement(0)
    extents = _window_extents(task.operation)
    dims = numbers.scatter_dims_to_operand_dims
    columns = [(column, dim) for column, dim in enumerate(dims) if placement.dims[dim] and extents[dim] == 1]
    # No sharded dimension is indexed: every rank writes to whole rows.
    if not columns:
        return task.bind([operand, indices, updates], local.params)
    indices = _signed(indices)
    shape = task.operation.operands[0].shape
    if "CLIP" in str(local.params["mode"]):
        # Clipping looks at the whole tensor, which this slice is only a part of.
        indices = jnp.clip(indices, 0, np.array([shape[dim] - extents[dim] for dim in dims], indices.dtype))
    for column, dim in columns:
        index = indices[..., column]
        place, mine = _local_place(task, local, position, index, dim)
        mine = mine & (index >= 0) & (index < shape[dim])
        # -1 is outside of the slice, and the mode below drops it.
        indices = indices.at[..., column].set(jnp.where(mine, place, -1))
    # Changed indices are neither sorted nor unique any more.
    params = {
        **local.params,
        "mode": jax.lax.GatherScatterMode.FILL_OR_DROP,
        "indices_are_sorted": False,
        "unique_indices": False,
    }
    return task.bind([operand, indices, updates], params)


def _scatter_into_scalar(
    task: LocalTask, operand: Array, indices: Array, updates: Array, local: Operation
) -> list[Array]:
    """Write into a vector of one element: some compilers know no scatter into a scalar (`lowering.jax_versions`)."""
    numbers = jax.lax.ScatterDimensionNumbers(
        update_window_dims=(), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,)
    )
    positions = jnp.zeros((*indices.shape[:-1], 1), jnp.int32)
    (written,) = task.bind([operand[None], positions, updates], {**local.params, "dimension_numbers": numbers})
    return [written[0]]


_NEUTRAL = {"scatter-add": 0, "scatter-sub": 0, "scatter-mul": 1}
"""What the operand is replaced by on all ranks but one; minima and maxima may count it several times."""


def _window_extents(scatter: Operation) -> tuple[int, ...]:
    """How much of each operand dimension one update writes."""
    numbers = scatter.params["dimension_numbers"]
    single = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    written = iter(scatter.operands[2].shape[dim] for dim in numbers.update_window_dims)
    return tuple(1 if dim in single else next(written) for dim in range(scatter.operands[0].num_dims))


def _convolution(task: LocalTask, local: Operation, position: Position, slices: list[Array]) -> list[Array]:
    """Fetch borders of the input's spatial dimensions; what they cover is no longer padding."""
    x, kernel = slices
    padding = list(local.params["padding"])
    for number, dim in enumerate(local.params["dimension_numbers"].lhs_spec[2:]):
        border, axes = _border(task, 0, dim)
        if border is not None:
            x = _with_borders(task, position, x, dim, axes, border, 0)
            # At the tensor's ends the border is still padding; between slices it is data.
            padding[number] = (border.pad_low, border.pad_high)
    return task.bind([x, kernel], {**local.params, "padding": tuple(padding)})


def _window(task: LocalTask, local: Operation, position: Position, slices: list[Array]) -> list[Array]:
    """Fetch borders of the dimensions that windows slide over, and leave out what no window of this slice sees."""
    padding = list(local.params["padding"])
    edge = _edge(local.name, slices[0].dtype)
    for dim in range(len(padding)):
        border, axes = _border(task, 0, dim)
        if border is None:
            continue
        padding[dim] = (border.pad_low, 0)
        # Without neighbours' data the window may still leave out the end of a slice.
        if border.left or border.right or border.pad_high <= -local.params["window_strides"][dim]:
            x = _with_borders(task, position, slices[0], dim, axes, border, edge)
            slices[0] = jax.lax.slice_in_dim(x, 0, x.shape[dim] + border.pad_high, axis=dim)
    return task.bind(slices, {**local.params, "padding": tuple(padding)})


def _edge(name: str, dtype: np.dtype) -> float:
    """What windows see beyond the edges of the tensor: of a maximum or minimum what is never chosen, else zero."""
    if name not in ("reduce_window_max", "reduce_window_min"):
        return 0
    is_float = jnp.issubdtype(dtype, jnp.floating)
    lowest, highest = (-np.inf, np.inf) if is_float else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return lowest if name == "reduce_window_max" else highest


def _border(task: LocalTask, operand: int, dim: int) -> tuple[Border | None, Axes]:
    """What a sharded window dimension needs of its neighbours; None when it is not sharded or has no windows."""
    for number in task.rule.operands[operand][dim]:
        window, axes = task.rule.factors[number].window, task.assignment[number]
        if window is not None and axes:
            return window.border(num_parts(task.mesh, axes)), axes
    return None, ()


def _with_borders(
    task: LocalTask, position: Position, x: Array, dim: int, axes: Axes, border: Border, edge: float
) -> Array:
    """The slice with the neighbours' ends on both sides; `edge` beyond the ends of the tensor."""
    parts, size = num_parts(task.mesh, axes), x.shape[dim]
    pieces = [x]
    if border.left:
        tail = jax.lax.slice_in_dim(x, size - border.left, size, axis=dim)
        before = position.permute(tail, axes, [(place, place + 1) for place in range(parts - 1)])
        # The first rank has no neighbour before it: it sees what lies beyond the tensor's edge.
        pieces.insert(0, jnp.where(position.index(axes) == 0, jnp.full_like(before, edge), before))
    if border.right:
        head = jax.lax.slice_in_dim(x, 0, border.right, axis=dim)
        behind = position.permute(head, axes, [(place + 1, place) for place in range(parts - 1)])
        pieces.append(jnp.where(position.index(axes) == parts - 1, jnp.full_like(behind, edge), behind))
    return jnp.concatenate(pieces, axis=dim) if len(pieces) > 1 else x


_RECIPES: dict[str, Recipe] = {
    "plain": _plain,
    "iota": _iota,
    "iota_2x32": _iota_2x32,
    "random_bits": _random_bits,
    "reverse": _reverse,
    "gather": _gather,
    "dynamic_slice": _dynamic_slice,
    "scatter": _scatter,
    "part_lookup": local_lookup,
    "part_update": local_update,
    "fill_spare_rows": local_fill,
    "convolution": _convolution,
    "window": _window,
}
