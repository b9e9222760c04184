"""`Schema`: names, dtypes and shapes of columns, for sources whose files do not say them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from sporax.base.errors import SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore.dataset import _checks as check

_INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_TYPES = (*_INTS, "float16", "float32", "float64", "bool", "string")


@dataclasses.dataclass(frozen=True, slots=True)
class SchemaColumn:
    """One column.

    Attributes:
        name: its name.
        kind: numpy's name of the dtype, or "string".
        shape: of a value; None where it is not known, -1 for a size that is not.
    """

    name: str
    kind: str
    shape: tuple[int, ...] | None

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy dtype."""
        return np.dtype(np.str_ if self.kind == "string" else self.kind)


class Schema:
    """What the columns of a `TFRecordDataset` or `RandomDataset` are.

    Args:
        schema_file: a JSON file such as ``{"numRows": 3, "columns": {"label": {"type": "int64", "rank": 0}}}``; columns may
            also be a list of objects with a ``name``.

    Attributes:
        columns: the columns, in order.
        num_rows: number of rows to read, or None.

    Raises:
        SporaxRuntimeError: the file is no such JSON.
        SporaxTypeError, SporaxValueError: an argument is not valid.
    """

    def __init__(self, schema_file: str | None = None) -> None:
        self.columns: list[SchemaColumn] = []
        self.num_rows: int | None = None
        self.dataset_type = ""
        if schema_file is None:
            return
        path = check.file("Schema", "schema_file", schema_file)
        try:
            self.from_json(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, AttributeError, KeyError) as error:
            # Errors of ours are ValueErrors as well, and say more.
            if isinstance(error, (SporaxValueError, SporaxRuntimeError)):
                raise
            raise SporaxRuntimeError(f"For 'Schema', the file {str(path)!r} is no JSON of columns: {error}") from error

    def add_column(self, name: str, de_type: Any, shape: list[int] | None = None) -> None:
        """Add a column.

        Args:
            name: its name, not there yet.
            de_type: a dtype of Sporax or its name; "string" for text.
            shape: of a value, -1 for a size that is not known; None for any number of values.
        """
        where = "Schema.add_column"
        if not check.text(where, "name", name):
            raise check.in_words(SporaxTypeError, where, "Expected non-empty string for column name.")
        if any(column.name == name for column in self.columns):
            raise SporaxValueError(f"For 'Schema.add_column', 'name' must be new, but {name!r} is there already.")
        self.columns.append(SchemaColumn(name, _kind(de_type), _shape(shape)))

    def parse_columns(self, columns: dict[str, Any] | list[dict[str, Any]]) -> None:
        """Add columns as a JSON file has them."""
        if isinstance(columns, dict):
            items = [{"name": name, **content} for name, content in columns.items()]
        elif isinstance(columns, list):
            items = columns
        else:
            words = "columns must be dict or list, columns contain name, type, shape(optional)."
            raise check.in_words(SporaxRuntimeError, "Schema.parse_columns", words, columns)
        if not items:
            raise check.in_words(SporaxRuntimeError, "Schema.parse_columns", "Columns are missing.")
        for item in items:
            # Before `add_column`, whose message would not show the entry.
            missing = next((key for key in ("name", "type") if key not in item), None)
            if missing is not None:
                raise check.in_words(SporaxRuntimeError, "Schema", f"Column's {missing} is missing", item)
            # A file says a scalar by its rank, since it has no shape to give.
            rank_0 = item.get("rank") == 0
            self.add_column(item["name"], item["type"], [] if rank_0 else item.get("shape"))

    def from_json(self, json_obj: dict[str, Any]) -> None:
        """Take what `to_json` or a file says.

        Raises:
            SporaxRuntimeError: there are no columns, or `numRows` is not positive.
        """
        check.instance("Schema.from_json", "json_obj", json_obj, dict)
        unknown = sorted(set(json_obj) - {"datasetType", "numRows", "columns"})
        if unknown:
            raise SporaxRuntimeError(f"For 'Schema', there is no field {unknown[0]!r}.")
        self.dataset_type = json_obj.get("datasetType", "")
        self.num_rows = json_obj.get("numRows")
        if self.num_rows is not None and (not isinstance(self.num_rows, int) or self.num_rows <= 0):
            raise SporaxRuntimeError(f"For 'Schema', 'numRows' must be a positive int, but got {self.num_rows!r}.")
        if "columns" not in json_obj:
            raise check.in_words(SporaxRuntimeError, "Schema", '"columns" node is required in the schema json JSON.')
        self.parse_columns(json_obj["columns"])

    def to_json(self) -> str:
        """The columns as JSON text."""
        columns = [
            # The shape of an empty list is not written, its rank 0 says it.
            {"name": column.name, "rank": 1 if column.shape is None else len(column.shape), "type": column.kind}
            | ({} if not column.shape else {"shape": list(column.shape)})
            for column in self.columns
        ]
        return json.dumps({"columns": columns}, indent=2)

    def __str__(self) -> str:
        return self.to_json()


def _kind(value: Any) -> str:
    # Sporax dtypes carry numpy's; classes such as np.int32 are accepted too.
    name = str(getattr(value, "np_dtype", value)).lower() if not isinstance(value, type) else np.dtype(value).name
    # "<u0" is how numpy prints str.
    name = {"string": "string", "str": "string", "<u0": "string"}.get(name, name)
    if value is None:
        raise check.in_words(SporaxTypeError, "Schema.add_column", "Expected non-empty string for de_type.")
    if name not in _TYPES:
        raise check.in_words(SporaxTypeError, "Schema.add_column", "Unknown column type.", value)
    return name


def _shape(value: Any) -> tuple[int, ...] | None:
    if value is None:
        return None
    check.instance("Schema.add_column", "shape", value, list)
    return tuple(check.integer("Schema.add_column", f"shape[{i}]", size, -1) for i, size in enumerate(value))


def as_schema(where: str, schema: Any) -> Schema | None:
    """A Schema, from one or from the name of its file."""
    if schema is None or isinstance(schema, Schema):
        return schema
    if isinstance(schema, (str, Path)):
        found = Schema(str(schema))
        # MindSpore's reader of files orders the names of a JSON object; the order of a list stays.
        if isinstance(json.loads(Path(schema).read_text(encoding="utf-8"))["columns"], dict):
            found.columns.sort(key=lambda column: column.name)
        return found
    raise check.in_words(SporaxValueError, where, "schema should be a path to schema file or a schema object.", schema)
