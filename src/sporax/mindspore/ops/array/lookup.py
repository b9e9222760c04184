"""Operators that look rows up in a table, which a plan may hold in uneven parts (`manual_split`).

Inside a planned step the marks of such an operator change what is computed: each field of the indices is looked up in its
own part of the table. Everywhere else these are ordinary operators.

Here are also the dimensions of lookups, and MindSpore's limits of their sharding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sporax.base.errors import SporaxRuntimeError
from sporax.ir.operator_dims import Call, Dims, NumSlices, OperatorDims, Shapes, lookup_axis, numbered
from sporax.ir.uneven import ATTRIBUTES, split_of
from sporax.lowering import execute
from sporax.mindspore.common.tensor import wrap
from sporax.mindspore.ops._core.operator import Operator


class TableLookup(Operator[Any]):
    """Functional form of `Gather`, `SparseGatherV2` and `EmbeddingLookup`."""

    def run_between_marks(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], constants: tuple[Any, ...], marks: Mapping[str, Any]
    ) -> Any:
        """Look up part by part where the marks name parts that fit; the plan refuses those that do not."""
        # No mark of uneven parts: the usual case, decided before anything is bound.
        if marks.keys().isdisjoint(ATTRIBUTES):
            return self.run_unmarked(args, kwargs, constants)
        split = split_of(marks)
        operands = self.__signature__.bind(*args, **kwargs).arguments
        table, indices = operands["input_params"], operands["input_indices"]
        # The plan refuses what does not fit, with a message about the user's marks.
        if split is None or not split.fits(table.shape, indices.shape, operands.get("axis", 0)):
            return self.run_unmarked(args, kwargs, constants)
        found = execute.part_lookup.part_lookup(table.array, indices.array, split.rows.rows, split.offsets)
        return wrap(found)


# ------------------------------------------------------------------------------------------------------- dimensions


def _table_first(call: Call, shapes: Shapes) -> Dims | None:
    """A table ``p…`` and indices ``x…``; the first ``batch_dims`` of both are the same."""
    if len(shapes) < 2:
        return None
    if _is_split(call):
        return _split_table(shapes)
    batch_dims = call.get("batch_dims", 0)
    shared = batch_dims % (len(shapes[1]) + 1) if isinstance(batch_dims, int) else 0
    table, indices = numbered(len(shapes[0]), letter="p"), numbered(len(shapes[1]), letter="x")
    # Batch dimensions are shared, so the one that is pointed into must be looked up as a whole.
    if shared:
        axis = lookup_axis(call, len(shapes[0]))
        table = tuple(f"{name}!" if dim == axis else name for dim, name in enumerate(table))
        table = (*indices[:shared], *table[shared:])
    rest = tuple(numbered(len(shape)) for shape in shapes[2:])
    return Dims((table, indices, *rest), order=(*indices, *table), leader=1)


def _is_split(call: Call) -> bool:
    return any(call.get(name) is not None for name in ATTRIBUTES)


def _split_table(shapes: Shapes) -> Dims:
    """The parts of a table, and the fields that point into them, go together."""
    table = ("parts", *numbered(len(shapes[0]), letter="p")[1:])
    before = len(shapes[1]) - 1
    # Fields are split as the table is; the other dimensions of the indices are never sharded.
    indices = (*numbered(before, range(before), "x"), "parts")
    return Dims((table, indices), order=table, leader=1)


def _indices_first(call: Call, shapes: Shapes) -> Dims:
    return Dims((numbered(len(shapes[0]), letter="x"), numbered(len(shapes[1]), letter="p")), leader=0)


def _table_first_limits(call: Call, shapes: Shapes, slices: NumSlices, num_devices: int) -> None:
    # Uneven parts have rules of their own.
    if not _is_split(call):
        _check_lookup(call, shapes[:2], slices[:2], num_devices)


def _indices_first_limits(call: Call, shapes: Shapes, slices: NumSlices, num_devices: int) -> None:
    _check_lookup(call, (shapes[1], shapes[0]), (slices[1], slices[0]), num_devices)


def _check_lookup(call: Call, shapes: Shapes, slices: NumSlices, num_devices: int) -> None:
    """Check the slices of a table and of indices into it."""
    table, indices = slices
    # Positions in the table of this call: `axis` may be negative.
    axis = lookup_axis(call, len(table))
    if not table or table[axis] == 1:
        return
    if len(table) > 2 or not indices:
        raise SporaxRuntimeError(
            f"For '{call.where}', a table that is sharded where indices point must have 1 or 2 dimensions and indices at least "
            f"1, but got shapes {shapes[0]} and {shapes[1]}."
        )
    # Along another dimension than the first, MindSpore wants all devices to have something of their own.
    if axis:
        used = math.prod((*table, *indices))
        if used != num_devices:
            raise SporaxRuntimeError(
                f"For '{call.where}', where dimension {axis} of the table, into which indices point, is sharded, both must "
                f"use all {num_devices} devices, but they use {used}: {table}, {indices}."
            )
        return
    # MindSpore allows one case with both sharded: two dimensions each, rows times batch use every device.
    both = indices[0] == num_devices // table[0] and len(indices) == len(table) == 2 and table[1] == 1
    if any(parts > 1 for parts in indices) and not (both and indices[1:] == (1,)):
        raise SporaxRuntimeError(
            f"For '{call.where}', indices must stay whole where dimension {axis} of the table, which they point into, is sharded "
            f"into {table[axis]}, but they are sharded into {indices}. (With 2 dimensions each, the first one may be sharded if "
            f"both numbers multiply to {num_devices}.)"
        )


TABLE_FIRST = OperatorDims(_table_first, _table_first_limits, table=0, takes_out_strategy=True)
"""Of operators that take a table, then indices into it."""

INDICES_FIRST = OperatorDims(_indices_first, _indices_first_limits, table=1, takes_out_strategy=True)
