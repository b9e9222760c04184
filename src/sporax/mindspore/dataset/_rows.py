"""Rows and blocks: the two forms of data in a pipeline.

A `Row` is one sample: column name -> numpy array. A `Block` is several samples at once: column name -> one array with a
leading row dimension while all samples agree in shape and dtype, else a list with one array per sample. Working on
blocks lets a small operation process a whole batch in one numpy call instead of once per row.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sporax.base.errors import For, SporaxRuntimeError

Array = np.ndarray[Any, Any]
Row = dict[str, Array]
Column = Array | list[Array]
Block = dict[str, Column]


# MindSpore's prefix of columns that iterators do not give.
_METADATA = "_meta-"
FILE_NAME = f"{_METADATA}filename"


def visible_columns(columns: Sequence[str]) -> list[str]:
    """The columns that iterators give: metadata only where it was renamed."""
    return [name for name in columns if not name.startswith(_METADATA)]


def boxed(value: Any) -> Array:
    """A Python object (a dict, a Pillow image) as a value of a row: an array () that holds it."""
    # Assigned in two steps: `np.array(object)` would look into sequences.
    box = np.empty((), object)
    box[()] = value
    return box


def as_value(value: Any) -> Array:
    """A value of a row of what users hand over: arrays, Tensors, Pillow images, numbers, lists, strings; dicts in a box."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, dict):
        return boxed(_without_tensors(value))
    # By attribute and not by type: `Tensor` would load JAX.
    asnumpy = getattr(value, "asnumpy", None)
    return np.asarray(asnumpy() if asnumpy is not None else value)


def _without_tensors(value: Any) -> Any:
    """A dict, and what is in it, with arrays instead of Tensors; new dicts and lists, which steps may change."""
    return convert_leaves(value, lambda leaf: leaf.asnumpy() if hasattr(leaf, "asnumpy") else leaf)


def convert_leaves(value: Any, convert: Callable[[Any], Any]) -> Any:
    """Dicts, lists and tuples with `convert` of what they hold."""
    if isinstance(value, dict):
        return {key: convert_leaves(item, convert) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(convert_leaves(item, convert) for item in value)
    return convert(value)


def as_numpy(value: Array) -> Any:
    """What an iterator gives for a value: an array, or a dict of arrays."""
    inner = opened(value)
    return convert_leaves(inner, np.asarray) if isinstance(inner, dict) else inner


def is_pillow(value: object) -> bool:
    """Whether this is a Pillow image; there are none before the program imported Pillow."""
    # Importing Pillow takes longer than reading many a pipeline, and another thread may be in the middle of it.
    kind = getattr(sys.modules.get("PIL.Image"), "Image", None)
    return kind is not None and isinstance(value, kind)


def opened(value: Array) -> Any:
    """What a user's function gets of a value: the Python object of a box, else the array."""
    return value.item() if value.dtype == object and not value.ndim else value


def stacked(column: Column) -> Array | None:
    """The column as one array (num_rows, *row_shape), or None when its rows differ in shape or dtype."""
    if isinstance(column, np.ndarray):
        return column
    # Boxes differ in what they hold, so they are never stacked.
    if not column or column[0].dtype == object:
        return None
    first = column[0]
    text = first.dtype.kind in "US"
    for item in column:
        if item.shape != first.shape or (
            # Strings of different lengths have different dtypes but fit into one array.
            item.dtype != first.dtype and not (text and item.dtype.kind == first.dtype.kind)
        ):
            return None
    # A view costs nothing where there is one row.
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
    # MindSpore batches dicts entry by entry.
    if all(isinstance(opened(item), dict) for item in column):
        return boxed(_collated_dict(name, [opened(item) for item in column]))
    # Only now, as the usual case needs no comparison for the message.
    for i, item in enumerate(column):
        if item.shape != first.shape or item.dtype != first.dtype:
            what = "types" if item.shape == first.shape else "shapes"
            raise SporaxRuntimeError(
                f"For 'batch', Cannot batch tensors with different {what} in column {name!r}. First element had "
                f"{first.shape} {first.dtype} and this element, row {i} of the batch, had {item.shape} {item.dtype}. Resize the "
                "rows, or use 'padded_batch' or 'bucket_batch_by_length'."
            )
    raise SporaxRuntimeError(f"For 'batch', column {name!r} has no rows.")


def _collated_dict(name: str, items: Sequence[dict[Any, Any]]) -> dict[Any, Any]:
    """One dict of several with equal keys: each value collated."""
    if any(item.keys() != items[0].keys() for item in items):
        raise For("batch").state_error(
            f"all dicts of column {name!r} must have the same keys, but got {[sorted(map(str, item)) for item in items]}"
        )
    return {key: opened(collate(f"{name}[{key!r}]", [as_value(item[key]) for item in items])) for key in items[0]}


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
        # A list, not a concatenation: blocks may differ in shape, and `collate` copies once at the end.
        rows = [item for block in blocks for item in block[name]]
        joined[name] = rows
    return joined


def row_of(block: Block, index: int = 0) -> Row:
    """One row of a block."""
    # An element of an array column is a scalar of numpy; rows hold arrays.
    return {name: np.asarray(column[index]) for name, column in block.items()}


def block_of(rows: Sequence[Row]) -> Block:
    """A block of the given rows (at least one)."""
    return {name: [row[name] for row in rows] for name in rows[0]}


def num_rows(block: Block) -> int:
    """How many rows a block holds."""
    return len(next(iter(block.values())))
