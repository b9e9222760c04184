"""Rows of a pipeline as MindRecord files (`Dataset.save`).

Problem: MindRecord holds int32, int64, float32, float64, strings and bytes; pipelines hold more dtypes. Method: the schema
follows the first row as in MindSpore 2.10 (recorded with it): each dtype is stored in the smallest of these that holds its
values, and the first dimension of an array may differ from row to row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np

from sporax.base.errors import SporaxRuntimeError, SporaxValueError
from sporax.mindspore.dataset import _checks
from sporax.mindspore.dataset._rows import Row
from sporax.mindspore.mindrecord import FileWriter

_STORED = {
    "int32": "bool int8 uint8 int16 uint16 int32",
    "int64": "uint32 uint64 int64",
    "float32": "float16 float32",
    "float64": "float64",
}
_KIND = {dtype: kind for kind, dtypes in _STORED.items() for dtype in dtypes.split()}
# Files: MindSpore's limit, as in `FileWriter`.
_MOST_FILES = 1000
_ROWS_AT_ONCE = 1000
"""Rows that are handed to the writer together, which bounds the memory they take."""


def save_rows(columns: Sequence[str], rows: Iterator[Row], file_name: str, num_files: int, file_type: str) -> None:
    """Write rows to MindRecord files. Arguments and errors: see `Dataset.save`."""
    _checks.check_int("save", "num_files", num_files, 1, _MOST_FILES)
    if file_type != "mindrecord":
        raise SporaxValueError(f"For 'save', 'file_type' must be 'mindrecord', but got {file_type!r}.")
    first = next(rows, None)
    if first is None:
        raise SporaxRuntimeError("For 'save', the dataset must have rows, but has none.")
    writer = FileWriter(file_name, num_files)
    writer.add_schema({name: _field(name, first[name]) for name in columns})
    remaining = chain([first], rows)
    while group := list(islice(remaining, _ROWS_AT_ONCE)):
        writer.write_raw_data([{name: _value(row[name]) for name in columns} for row in group])
    writer.commit()


def _field(name: str, value: np.ndarray[Any, Any]) -> dict[str, Any]:
    """How a column is stored, from its first value."""
    # Only single strings; arrays of them have no form in MindRecord.
    if value.dtype.kind in "US" and value.ndim == 0:
        return {"type": "string" if value.dtype.kind == "U" else "bytes"}
    kind = _KIND.get(value.dtype.name)
    if kind is None:
        raise SporaxValueError(
            f"For 'save', column '{name}' must hold numbers, or one string or bytes per row, but holds {value.dtype} of "
            f"shape {value.shape}."
        )
    # MindSpore records the first dimension as free, whatever the first row has.
    return {"type": kind, "shape": [-1, *value.shape[1:]]} if value.ndim else {"type": kind}


def _value(value: np.ndarray[Any, Any]) -> Any:
    """A value in the form that a schema wants: arrays in the stored dtype, single values as Python's."""
    kind = _KIND.get(value.dtype.name)
    if value.ndim == 0:
        single = value.item()
        # The schema knows no bool.
        return int(single) if isinstance(single, bool) else single
    return value.astype(kind)
