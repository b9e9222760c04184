"""Lookups in a table with rows split by hand: `manual_split` and `manual_split_with_offset`.

A recommendation model has one table for all feature fields: first the rows of field 0, then those of field 1, and so
on. If the table is split between fields, its parts and the indices of their fields are on one device, so lookups and
their gradients need no communication. This module checks MindSpore's conditions before anything is planned.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from sporax.base.errors import For, SporaxNotImplementedError, SporaxRuntimeError
from sporax.base.identity import ByIdentity
from sporax.ir.graph import OperatorGraph, Role
from sporax.ir.marks import OperatorMark, Side
from sporax.ir.operation import Shape
from sporax.ir.uneven import ATTRIBUTES, PLAIN, WITH_OFFSET, ManualSplit, UnevenRows, split_of


def is_split(mark: OperatorMark) -> bool:
    """Whether the user splits the table of a lookup into parts."""
    # Only operators that take the table first read the attributes.
    return mark.dims.table == 0 and any(mark.get(name) is not None for name in ATTRIBUTES)


def check_splits(graph: OperatorGraph, num_devices: int, fixed: Collection[int]) -> dict[int, UnevenRows]:
    """Check all lookups with parts in a step.

    Args:
        graph: the step, with the shapes its user sees.
        fixed: numbers of the inputs that were made of values, not by an initializer.

    Returns:
        For each table, by its number among the tensors, its parts.

    Raises:
        SporaxRuntimeError: MindSpore's conditions do not hold.
        SporaxNotImplementedError: a lookup is inside a loop or branch.
    """
    # Per table the parts and the first user, so that a message can name both users.
    rows: dict[int, tuple[UnevenRows, str]] = {}
    producers = graph.producers()
    for mark, shapes, operands in _splits(graph):
        split = check_split(mark, shapes, num_devices)
        table = _source(graph, producers, operands[0])
        # Given values have a layout of their own in memory, which would have to be moved row by row.
        if table is None or table in fixed:
            origin = "a Tensor" if table is None else "one made of values"
            raise SporaxRuntimeError(
                f"For '{mark.where}', a table with '{_name(mark)}' must be a Parameter made by an initializer, as in "
                f"Parameter(initializer('normal', {shapes[0]})), but got {origin}: only even shardings are possible then."
            )
        before = rows.setdefault(table, (split.rows, mark.where))
        if before[0] != split.rows:
            raise SporaxRuntimeError(
                f"For '{mark.where}', a table must be split into the same parts by all its users, but it has {split.rows.rows} "
                f"rows here and {before[0].rows} in '{before[1]}'."
            )
    return {table: split for table, (split, _) in rows.items()}


def check_split(mark: OperatorMark, shapes: tuple[Shape, ...], num_devices: int) -> ManualSplit:
    """The parts of one lookup, after all checks that need nothing but its own shapes.

    Raises:
        SporaxRuntimeError: they do not fit.
    """
    split = _well_formed(mark)
    table, indices = shapes[0], shapes[1]
    rows, parts = split.rows, len(split.rows.rows)
    axis = mark.get("axis", 0)
    _demand(mark, axis == 0, "'axis' must be 0", axis)
    _demand(mark, not mark.get("batch_dims", 0), "'batch_dims' must be 0", mark.get("batch_dims"))
    _demand(mark, not mark.get("offset", 0), "needs an 'offset' of 0", mark.get("offset"))
    _demand(mark, rows.num_rows == table[0], f"must sum up to the {table[0]} rows of the table", rows.num_rows)
    _demand(mark, bool(indices), "needs indices with at least 1 dimension", indices)
    fields = indices[-1]
    _demand(mark, table[0] >= fields, f"needs at least as many rows as the {fields} fields of the indices", table[0])
    table_slices, index_slices = _strategy(mark, (table, indices))
    _demand(
        mark,
        all(slices == 1 for slices in index_slices[:-1]),
        "allows a sharding of the last dimension of the indices only",
        index_slices,
    )
    _demand(
        mark,
        table_slices[0] == index_slices[-1] == parts,
        f"has {parts} parts, so the rows of the table and the last dimension of the indices must be sharded into {parts}",
        f"{table_slices[0]} and {index_slices[-1]}",
    )
    _demand(mark, fields % parts == 0, f"has {parts} parts, which must divide the fields of the indices", fields)
    smallest = min(rows.rows)
    _demand(
        mark,
        smallest >= fields // parts,
        f"needs at least {fields // parts} rows in each part, one for each of its fields",
        smallest,
    )
    used = parts * _product(table_slices[1:])
    _demand(mark, used == num_devices, f"must use all {num_devices} devices: nothing may be computed repeatedly", used)
    return split


def _well_formed(mark: OperatorMark) -> ManualSplit:
    both = mark.get(PLAIN) is not None and mark.get(WITH_OFFSET) is not None
    _demand(mark, not both, f"and '{WITH_OFFSET}' must not be given together", dict(mark.attributes).get(WITH_OFFSET))
    split = split_of(dict(mark.attributes))
    if split is None:
        what = "(rows, offset) pairs" if _name(mark) == WITH_OFFSET else "positive ints, the rows of each part"
        _demand(mark, False, f"must be a tuple of {what}", mark.get(_name(mark)))
    assert split is not None
    return split


def _strategy(mark: OperatorMark, shapes: tuple[Shape, Shape]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The numbers of slices of table and indices."""
    strategies = mark.in_strategy
    if strategies is None:
        _demand(mark, False, "needs a strategy, as in shard(((n, k), (1, n))): no search can choose one", None)
    assert strategies is not None
    entries = [slices for slices in strategies[:2] if isinstance(slices, tuple)]
    fits = len(entries) == 2 and all(len(entry) == len(shape) for entry, shape in zip(entries, shapes, strict=True))
    _demand(mark, fits, f"needs a strategy with one number per dimension of {shapes[0]} and {shapes[1]}", strategies)
    return entries[0], entries[1]


def _demand(mark: OperatorMark, holds: bool, what: str, value: object) -> None:
    For(mark.where).refuse_state(not holds, f"'{_name(mark)}' {what}", value)


def _name(mark: OperatorMark) -> str:
    return PLAIN if mark.get(PLAIN) is not None else WITH_OFFSET


def _product(numbers: tuple[int, ...]) -> int:
    result = 1
    for number in numbers:
        result *= number
    return result


def _splits(graph: OperatorGraph) -> Iterator[tuple[OperatorMark, tuple[Shape, ...], tuple[int, ...]]]:
    """The entrances of lookups with parts: mark with path, shapes and numbers of the tensors."""
    # By identity: two operators of a body and of the step can be equal.
    outside = {ByIdentity(operator) for operator in graph.operators}
    for operator in graph.walk():
        mark = operator.mark
        if not isinstance(mark, OperatorMark) or mark.side is not Side.IN or not is_split(mark):
            continue
        mark = replace(mark, path=operator.path)
        if ByIdentity(operator) not in outside:
            raise SporaxNotImplementedError(
                f"For '{mark.where}', '{_name(mark)}' must stand outside of loops and branches, but got one inside."
            )
        yield mark, tuple(spec.shape for spec in operator.operation.operands), operator.operands


def _source(graph: OperatorGraph, producers: Mapping[int, int], tensor: int) -> int | None:
    """The Parameter that a tensor is, seen through marks and casts."""
    # Casts and marks do not move rows, so the table behind them is the one that is split.
    while tensor in producers:
        operator = graph.operators[producers[tensor]]
        if not operator.sources and operator.name != "convert_element_type":
            return None
        tensor = operator.sources.get(tensor, operator.operands[0])
    roles = {argument.tensor: argument.role for argument in graph.inputs}
    return tensor if roles.get(tensor) in (Role.PARAMETER, Role.STATE) else None
