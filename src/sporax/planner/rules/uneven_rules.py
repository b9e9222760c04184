"""Rules of Sporax's own primitives for tables in uneven parts (`sporax.lowering.execute.part_lookup`).

Problem: parts of different lengths are no sharding that a compiler or a placement knows.

Method: the table comes in blocks of equal length (`sporax.ir.uneven`). Field by field its indices point into one block, so
that all three are sharded together: block, fields and results of a part are on one device, and nothing is sent.
"""

from __future__ import annotations

from typing import Any

from sporax.ir.operation import Operation, Shape
from sporax.ir.uneven import UnevenRows
from sporax.planner.rules.language import DimFactors, Draft, Rule


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
