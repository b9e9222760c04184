"""Rows and blocks: the two shapes in which data travels through a pipeline.

A `Row` is one sample: column name -> numpy array. A `Block` is several samples at once: column name -> one array with a
leading row dimension while all samples agree in shape and dtype, else a list with one array per sample. Working on
blocks lets a cheap operation touch a whole batch in one numpy call instead of once per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sporax.ir.errors import SporaxRuntimeError

Array = np.ndarray[Any, Any]
Row = dict[str, Array]
Column = Array | list[Array]
Block = dict[str, Column]


def stacked(column: Column) -> Array | None:
    """The column as one array (num_rows, *row_shape), or None when its rows differ in shape or dtype."""
    if isinstance(column, np.ndarray):
        return column
    if not column:
        return None
    first = column[0]
    text = first.dtype.kind in "US"
    for item in column:
        if item.shape != first.shape or (
            item.dtype != first.dtype and not (text and item.dtype.kind == first.dtype.kind)
        ):
            return None
    return first[None] if len(column) == 1 else np.stack(column)


def collate(name: str, column: Column) -> Array:
    """One batch of a column.

    Raises:
        SporaxRuntimeError: two rows differ in shape or dtype.
    """
    batch = stacked(column)
    if batch is not None:
        return batch
    first = column[0]
    for i, item in enumerate(column):
        if item.shape != first.shape or item.dtype != first.dtype:
            raise SporaxRuntimeError(
                f"For 'batch', all rows of column {name!r} must have one shape and dtype, but row 0 of the batch has "
                f"{first.shape} {first.dtype} and row {i} has {item.shape} {item.dtype}. Resize the rows, or use "
                "'padded_batch' or 'bucket_batch_by_length'."
            )
    raise SporaxRuntimeError(f"For 'batch', column {name!r} has no rows.")


def take_rows(block: Block, picks: Sequence[int] | Array) -> Block:
    """The rows number `picks` of a block."""
    return {
        name: column[picks] if isinstance(column, np.ndarray) else [column[i] for i in picks]
        for name, column in block.items()
    }


def join(blocks: Sequence[Block]) -> Block:
    """Blocks of the same columns, one after the other."""
    if len(blocks) == 1:
        return blocks[0]
    joined: Block = {}
    for name in blocks[0]:
        rows = [item for block in blocks for item in block[name]]
        joined[name] = rows
    return joined


def row_of(block: Block, index: int = 0) -> Row:
    """One row of a block."""
    return {name: np.asarray(column[index]) for name, column in block.items()}


def block_of(rows: Sequence[Row]) -> Block:
    """A block of the given rows (at least one)."""
    return {name: [row[name] for row in rows] for name in rows[0]}


def num_rows(block: Block) -> int:
    """How many rows a block holds."""
    return len(next(iter(block.values())))
