"""User strategies of the facade's operators, as placements.

A strategy gives numbers of slices, or a Layout, for each named dimension of an operator (`ir.operator_dims`). The
numbers, in the order of the names, are the operator's device matrix: each takes the next axes of the mesh, and devices
that are left over repeat the computation. Conditions that names cannot express (a slice must be taken whole, a window
must not reach into the neighbour's part) are limits that the operator states with its dimensions.

The named dimensions of one call of an operator, and whether a sharding keeps its limits.

What an operator states is in its mark (`ir.operator_dims`). Here is what holds for operators that state nothing, and for
calls whose dimensions they cannot name.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from sporax.base.errors import For, SporaxRuntimeError, SporaxValueError
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.layout import Layout, Strategy, strategy_text
from sporax.ir.marks import OperatorMark
from sporax.ir.operation import Shape, TensorSpec
from sporax.ir.operator_dims import (
    PART,
    Dims,
    Names,
    NumSlices,
    Shapes,
    StrategyEntry,
    is_undivided,
    lookup_axis,
    numbered,
)
from sporax.ir.placement import Axes, Placement, num_parts


def dims_of(mark: OperatorMark, shapes: Shapes) -> Dims:
    """The named dimensions of an operator on inputs of these shapes."""
    # An operator that states nothing is taken for elementwise: custom operators mostly are.
    named = mark.dims.names(mark, shapes) if mark.dims.names is not None else _aligned(shapes)
    return named or _separate(shapes)


def check_limits(mark: OperatorMark, shapes: Shapes, slices: NumSlices, num_devices: int) -> None:
    """Check one call of an operator.

    Args:
        shapes, slices: of its inputs.
        num_devices: of one stage.

    Raises:
        SporaxRuntimeError: it cannot be sharded in this way.
    """
    # An input that is not sharded meets every limit.
    if mark.dims.limits is not None and any(parts > 1 for entry in slices for parts in entry):
        mark.dims.limits(mark, shapes, slices, num_devices)


def _aligned(shapes: Shapes) -> Dims | None:
    """Inputs that are stretched to one shape: dimensions are counted from the right."""
    if not _broadcasts(shapes):
        return None
    rank = max(map(len, shapes), default=0)
    names = numbered(rank)
    return Dims(tuple(names[rank - len(shape) :] for shape in shapes), order=names)


def _broadcasts(shapes: Shapes) -> bool:
    for sizes in itertools.zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1):
        # Dimensions of size one stretch, so they fit every other size.
        if len({size for size in sizes if size != 1}) > 1:
            return False
    return True


def _separate(shapes: Shapes) -> Dims:
    """Nothing is known but that inputs which start with the same size have the batch there."""
    # The input with most dimensions has the batch first; others share it if their first size is the same.
    batch = max(shapes, key=len, default=())[:1]
    # The input's number in the name keeps dimensions of different inputs apart.
    named = [numbered(len(shape), letter=f"{number}.") for number, shape in enumerate(shapes)]
    return Dims(
        tuple(
            ("batch", *names[1:]) if shape[:1] == batch and names else names
            for names, shape in zip(named, shapes, strict=True)
        )
    )


Named = Mapping[str, Axes]
"""For each named dimension the mesh axes that shard it."""


def placements_for(mark: OperatorMark, specs: Sequence[TensorSpec], mesh: DeviceMatrix) -> list[Placement]:
    """Where the inputs of an operator are under the strategy in `mark`.

    Raises:
        SporaxRuntimeError: the strategy does not fit the operator, the shapes or the number of devices.
    """
    shapes = [spec.shape for spec in specs]
    dims = dims_of(mark, shapes)
    named = _named_axes(mark, dims, shapes, mesh)
    return [
        # Dimensions of size one cannot be sharded; they are stretched to the other tensor's slices.
        Placement(tuple(named.get(name, ()) if size > 1 else () for name, size in zip(names, shape, strict=True)))
        for names, shape in zip(dims.inputs, shapes, strict=True)
    ]


def result_placement(
    mark: OperatorMark, shapes: Sequence[Shape], result: TensorSpec, mesh: DeviceMatrix
) -> Placement | None:
    """Where the first result is, for operators whose strategy shards what only their results have; None for all others.

    Args:
        shapes: of the inputs.
    """
    dims = dims_of(mark, shapes)
    # A result with other dimensions than the names, as after a squeeze, stays as it comes.
    if dims.result is None or len(dims.result) != len(result.shape):
        return None
    named = _named_axes(mark, dims, shapes, mesh)
    return Placement(tuple(named.get(name, ()) for name in dims.result))


def batch_parallel(mark: OperatorMark, specs: Sequence[TensorSpec], mesh: DeviceMatrix) -> list[Placement | None]:
    """MindSpore's choice for operators without a strategy: the first dimension is sharded over as many devices as divide it.

    Weights, and other inputs that do not have the batch, stay whole.
    """
    shapes = [spec.shape for spec in specs]
    dims = dims_of(mark, shapes)
    leader = dims.leader
    if leader is None:
        # The first of those with most dimensions; one that is stretched to another's size does not lead.
        leader = max(
            range(len(shapes)), key=lambda number: (len(shapes[number]), shapes[number][:1] != (1,)), default=0
        )
    sizes = dict(zip(dims.inputs[leader], shapes[leader], strict=True)) if shapes else {}
    batch = dims.batch or next(iter(sizes), "")
    axes = _dividing(sizes[batch], mesh) if batch in sizes and not is_undivided(batch) else ()
    return [
        Placement(tuple(axes if name == batch and size > 1 else () for name, size in zip(argument, shape, strict=True)))
        for argument, shape in zip(dims.inputs, shapes, strict=True)
    ]


def layout_placement(where: str, number: int, layout: Layout, shape: Shape, mesh: DeviceMatrix) -> Placement:
    """A Layout of one tensor. Warns of an interleaved one, whose parts are computed at once.

    Ranks from 0 on are those of a pipeline stage, whatever stage it is, as in strategies.

    Raises:
        SporaxRuntimeError: it has another number of devices, or does not fit the shape.
    """
    if layout.device_matrix.num_devices != mesh.num_devices:
        raise For(where).state_error(
            f"the device matrix of tensor {number} must have {mesh.num_devices} devices", layout.device_matrix
        )
    matrix = layout.device_matrix
    if matrix.ranks == range(mesh.num_devices) != mesh.ranks:
        layout = replace(layout, device_matrix=replace(matrix, ranks=mesh.ranks))
    try:
        layout.slice_shape(shape)
        # Virtual axes shard inside a device, so they play no part in a placement.
        return Placement.from_layout(on_devices(layout), mesh)
    except SporaxValueError as error:
        raise SporaxRuntimeError(f"For '{where}', the layout of tensor {number} does not fit: {error}") from None


def on_devices(layout: Layout) -> Layout:
    """The layout without its virtual axis, which shards inside every device: a device has the same elements either way."""
    matrix = layout.device_matrix
    if not matrix.interleaved:
        return layout
    warnings.warn(
        "For 'Layout', 'interleaved_parallel' has no effect: a device computes its slice at once, and XLA "
        "overlaps what may overlap.",
        stacklevel=2,
    )
    virtual = matrix.num_axes - 1
    shardings = tuple(tuple(axis for axis in axes if axis != virtual) for axes in layout.shardings)
    return Layout(DeviceMatrix(matrix.shape[:-1], matrix.names[:-1], matrix.ranks), shardings)


def _dividing(size: int, mesh: DeviceMatrix) -> Axes:
    """The leading axes of the mesh that divide a dimension."""
    axes: list[int] = []
    for axis in range(mesh.num_axes):
        # Prime axes from the left: the longest run whose product divides the dimension.
        if size % num_parts(mesh, (*axes, axis)):
            break
        axes.append(axis)
    return tuple(axes)


def _named_axes(mark: OperatorMark, dims: Dims, shapes: Sequence[Shape], mesh: DeviceMatrix) -> Named:
    """The axes of every named dimension, after all checks."""
    entries = _entries(mark, dims, shapes)
    # One Layout decides that all entries must be Layouts, which is checked there.
    if any(isinstance(entry, Layout) for entry in mark.in_strategy or ()):
        named = _from_layouts(mark, entries, mesh, {name for names in dims.inputs for name in names})
    else:
        named = _from_numbers(mark, dims, entries, mesh)
    counts = [
        tuple(num_parts(mesh, named.get(name, ())) if size > 1 else 1 for name, size in zip(names, shape, strict=True))
        for names, shape in zip(dims.inputs, shapes, strict=True)
    ]
    check_limits(mark, shapes, counts, mesh.num_devices)
    return named


def _entries(mark: OperatorMark, dims: Dims, shapes: Sequence[Shape]) -> tuple[StrategyEntry, ...]:
    """What each entry of the strategy is about."""
    strategy = mark.in_strategy or ()
    if dims.entries is not None:
        entries = dims.entries[: len(strategy)]  # the last ones are of scalars, which may be left out
    else:
        entries = tuple(StrategyEntry(names, shape) for names, shape in zip(dims.inputs, shapes, strict=True))
        # Entries of scalars at the end may be left out.
        if not any(shapes[len(strategy) :]):
            entries = entries[: len(strategy)]
    if len(strategy) != len(entries):
        raise SporaxRuntimeError(
            f"For '{mark.where}', the strategy must have one entry for each of the {len(entries)} tensors, but got "
            f"{len(strategy)}: {strategy_text(strategy)}."
        )
    return entries


def device_matrix_of(mark: OperatorMark, specs: Sequence[TensorSpec], num_devices: int) -> tuple[int, ...]:
    """The arrangement of devices that the strategy in `mark` means: devices that are left repeat at the right, as a rule.

    Raises:
        SporaxRuntimeError: the strategy does not fit the operator, the shapes or the number of devices.
    """
    layouts = [entry for entry in mark.in_strategy or () if isinstance(entry, Layout)]
    if layouts:
        return layouts[0].device_matrix.device_shape
    shapes = [spec.shape for spec in specs]
    dims = dims_of(mark, shapes)
    counts = _slice_counts(mark, _entries(mark, dims, shapes), num_devices)
    order = _order(dims, _entries(mark, dims, shapes))
    # The first factor of most dimensions is one, which is no axis.
    matrix = [number for name in order for number in _factors(counts, name)[_factors(counts, name)[0] == 1 :]]
    # What the strategy leaves over repeats the computation.
    rest = num_devices // math.prod(matrix)
    return (rest, *matrix) if _repeats_left(mark, dims, counts) else (*matrix, rest)


def _from_numbers(mark: OperatorMark, dims: Dims, entries: Sequence[StrategyEntry], mesh: DeviceMatrix) -> Named:
    counts = _slice_counts(mark, entries, mesh.num_devices)
    order = _order(dims, entries)
    factors = [number for name in order for number in _factors(counts, name)]
    axes = _spread(mark.where, factors, mesh, _repeats_left(mark, dims, counts))
    named: dict[str, Axes] = {}
    for name, first, rest in zip(order, axes[::2], axes[1::2], strict=True):
        named |= {name: first + rest, name + PART: first}
    return named


def _factors(counts: Mapping[str, int], name: str) -> tuple[int, int]:
    """The slices of a dimension as a product: those of another one that shares the first axes, and how often they are divided."""
    first = counts.get(name + PART, 1)
    return first, counts.get(name, 1) // first


def _order(dims: Dims, entries: Sequence[StrategyEntry]) -> list[str]:
    """The named dimensions in the order in which they take axes."""
    names = (*dims.order, *(name for entry in entries for name in entry.names))
    return [*dict.fromkeys(name for name in names if not name.endswith(PART))]


def _slice_counts(mark: OperatorMark, entries: Sequence[StrategyEntry], num_devices: int) -> dict[str, int]:
    """Into how many slices each named dimension is sharded."""
    where, strategy = mark.where, mark.in_strategy or ()
    if not all(isinstance(entry, tuple) for entry in strategy):
        raise SporaxRuntimeError(
            f"For '{where}', the strategy must have a tuple of numbers for every tensor, but got {strategy_text(strategy)}."
        )
    numbers: tuple[tuple[int, ...], ...] = strategy  # type: ignore[assignment]  # checked just above
    Strategy(numbers).check(where, [entry.sizes for entry in entries], num_devices)
    counts: dict[str, int] = {}
    if mark.dims.lenient and _are_unequal(entries, numbers):
        warnings.warn(
            f"For '{where}', tensors should have equal shardings, but the strategy is {strategy}: as in MindSpore, which has no "
            "rule for this operator, they are whole on every device.",
            stacklevel=2,
        )
        return counts
    for position, (entry, slices) in enumerate(zip(entries, numbers, strict=True)):
        for dim, (name, size, parts) in enumerate(zip(entry.names, entry.sizes, slices, strict=True)):
            _check_slices(where, strategy, (position, dim), name, parts, size, counts)
    return counts


def _are_unequal(entries: Sequence[StrategyEntry], numbers: Sequence[tuple[int, ...]]) -> bool:
    """Whether tensors are sharded differently along a dimension they share."""
    known = {
        (name, parts)
        for entry, slices in zip(entries, numbers, strict=True)
        for name, size, parts in zip(entry.names, entry.sizes, slices, strict=True)
        if size > 1
    }
    return len(known) > len({name for name, _ in known})


def _check_slices(
    where: str, strategy: object, place: tuple[int, int], name: str, parts: int, size: int, counts: dict[str, int]
) -> None:
    """Note the sharding of one dimension; it must agree with what is known of its name."""
    tensor, dim = place
    if is_undivided(name) and parts != 1:
        raise SporaxRuntimeError(
            f"For '{where}', dimension {dim} of tensor {tensor} must stay whole (1 slice), but got {parts} in {strategy}."
        )
    if size == 1:
        return  # stretched to the other tensor's size, however that is sharded
    if counts.setdefault(name, parts) != parts:
        raise SporaxRuntimeError(
            f"For '{where}', tensors must have equal shardings along a dimension they share, but dimension {dim} of tensor "
            f"{tensor} is sharded into {parts} and another into {counts[name]}: {strategy}."
        )


def _from_layouts(
    mark: OperatorMark, entries: Sequence[StrategyEntry], mesh: DeviceMatrix, used: Collection[str]
) -> Named:
    where, strategy = mark.where, mark.in_strategy or ()
    if not all(isinstance(entry, Layout) for entry in strategy):
        raise SporaxRuntimeError(
            f"For '{where}', the strategy must be made of Layouts alone or of tuples alone, but got {strategy_text(strategy)}."
        )
    layouts: tuple[Layout, ...] = strategy  # type: ignore[assignment]  # checked just above
    # Axes of different device matrices cannot be compared.
    if len({layout.device_matrix.shape for layout in layouts}) > 1:
        raise SporaxRuntimeError(
            f"For '{where}', the Layouts of all tensors must have one device matrix, but got "
            f"{' and '.join(str(layout.device_matrix.shape) for layout in layouts)}."
        )
    named: dict[str, Axes] = {}
    for number, (entry, layout) in enumerate(zip(entries, layouts, strict=True)):
        placement = layout_placement(where, number, layout, entry.sizes, mesh)
        for dim, (name, size, axes) in enumerate(zip(entry.names, entry.sizes, placement.dims, strict=True)):
            if is_undivided(name) and axes:
                raise SporaxRuntimeError(
                    f"For '{where}', dimension {dim} of tensor {number} must stay whole (1 slice), but got "
                    f"{num_parts(mesh, axes)} in {layout}."
                )
            if size > 1 and named.setdefault(name, axes) != axes:
                raise SporaxRuntimeError(
                    f"For '{where}', tensors must have equal shardings along a dimension they share, but dimension {dim} of "
                    f"tensor {number} is sharded into {num_parts(mesh, axes)} ({layout}) and another into "
                    f"{num_parts(mesh, named[name])}, or along other axes."
                )
    _check_disjoint(where, entries, {name: axes for name, axes in named.items() if name in used}, mesh)
    return named


def _check_disjoint(where: str, entries: Sequence[StrategyEntry], named: Named, mesh: DeviceMatrix) -> None:
    """Different dimensions of the operator are sharded along different axes."""
    owner: dict[int, str] = {}
    for name, axes in named.items():
        for axis in axes:
            if owner.setdefault(axis, name) != name:
                tensors = [number for number, entry in enumerate(entries) if {name, owner[axis]} & {*entry.names}]
                raise SporaxRuntimeError(
                    f"For '{where}', the Layouts must shard different dimensions along different axes, but the axis "
                    f"{mesh.axis_name(axis)} shards two of them in tensors {tensors}."
                )


def _repeats_left(mark: OperatorMark, dims: Dims, counts: Mapping[str, int]) -> bool:
    """A lookup in a table that is sharded where indices point has its repetition at the left of the device matrix."""
    if mark.dims.table != 0:
        return False
    # MindSpore puts the repetition at the left for these lookups; the order decides which ranks hold which slice.
    table: Names = dims.inputs[0]
    return bool(table) and counts.get(table[lookup_axis(mark, len(table))], 1) > 1


def _spread(where: str, matrix: Sequence[int], mesh: DeviceMatrix, repeat_left: bool) -> list[Axes]:
    """Consecutive axes of the mesh for each number of slices."""
    used = math.prod(matrix)
    if mesh.num_devices % used:
        raise SporaxRuntimeError(
            f"For '{where}', the slices must divide the {mesh.num_devices} devices, but the strategy makes "
            f"{' x '.join(str(parts) for parts in matrix if parts > 1)} = {used}."
        )
    left = mesh.num_devices // used if repeat_left else 1
    axes = list(range(mesh.num_axes))
    axes_of: list[Axes] = []
    for parts in (left, *matrix):
        taken: list[int] = []
        # Axes are taken in order and never skipped: each number of slices is a run of neighbouring axes.
        while num_parts(mesh, tuple(taken)) < parts and axes:
            taken.append(axes.pop(0))
        if num_parts(mesh, tuple(taken)) != parts:
            raise SporaxRuntimeError(
                f"For '{where}', the device matrix {tuple(matrix)} does not fit the {mesh.num_devices} devices arranged as "
                f"{mesh}: no run of axes makes {parts}."
            )
        axes_of.append(tuple(taken))
    return axes_of[1:]
