"""TFRecord files, and what a source's files do not say of its columns: names, dtypes and shapes (`Schema`).

A TFRecord file is read by hand, as the format is small: a sequence of records, each length (8 bytes), its checksum (4), content,
its checksum (4). A record is a `tf.train.Example` message in protobuf:
``features { feature { key, value { bytes_list | float_list | int64_list } } }``.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import mmap
import struct
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from sporax.base.errors import SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore._protobuf import fields, numbers
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._rows import Array

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
        check.refuse(not items, SporaxRuntimeError, "Schema.parse_columns", "Columns are missing.")
        for item in items:
            # Before `add_column`, whose message would not show the entry.
            missing = next((key for key in ("name", "type") if key not in item), None)
            check.refuse(missing is not None, SporaxRuntimeError, "Schema", f"Column's {missing} is missing", item)
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
    check.refuse(name not in _TYPES, SporaxTypeError, "Schema.add_column", "Unknown column type.", value)
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


Values = list[bytes] | Array

# Bytes per step: the tables take 1 KiB for each of them, 4 MiB in all.
_BLOCK = 4096
# The polynomial of CRC-32C (Castagnoli), bits reversed.
_POLYNOMIAL = 0x82F63B78


@cache
def _crc_tables() -> Array:
    """[k, byte]: what a byte does to the checksum of a block if k bytes follow it."""
    values = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        values = (values >> np.uint32(1)) ^ np.where(values & 1, np.uint32(_POLYNOMIAL), np.uint32(0))
    # Row k: the byte's effect after k zero bytes, so that a block is one XOR over a look-up.
    tables = np.empty((_BLOCK, 256), np.uint32)
    tables[0] = values
    for k in range(1, _BLOCK):
        tables[k] = tables[0][tables[k - 1] & 0xFF] ^ (tables[k - 1] >> np.uint32(8))
    return tables


def crc32c(data: bytes | memoryview) -> int:
    """The CRC-32C of `data`: a table look-up per byte, block by block, all of a block at once."""
    tables = _crc_tables()
    value = 0xFFFFFFFF
    content = np.frombuffer(data, np.uint8)
    for start in range(0, len(content), _BLOCK):
        # A copy, since the state goes into the first four bytes.
        block = content[start : start + _BLOCK].copy()
        head = min(4, len(block))
        block[:head] ^= np.frombuffer(struct.pack("<I", value), np.uint8)[:head]
        # A block of less than four bytes keeps the state's high bytes.
        rest = 0 if head == 4 else value >> 8 * head
        value = int(np.bitwise_xor.reduce(tables[np.arange(len(block) - 1, -1, -1), block])) ^ rest
    return value ^ 0xFFFFFFFF


def masked_crc32c(data: bytes | memoryview) -> int:
    """The checksum as TFRecord files hold it."""
    value = crc32c(data)
    # TensorFlow's mask: a rotation by 15 bits and a constant, so that a checksum of checksums stays useful.
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF


def find_records(where: str, path: Path, compression: str) -> list[memoryview]:
    """The records of a file, each with its header and checksums; their contents are not looked at yet.

    A file that is not compressed is mapped into memory rather than read.

    Args:
        where: name of the data set, for messages.
        path: the file.
        compression: "", "GZIP" or "ZLIB".

    Raises:
        SporaxRuntimeError: it cannot be read, or a record is truncated; the message names record and offset.
    """
    view, start = _content(where, path, compression), 0
    records: list[memoryview] = []
    while start < len(view):
        fault = _fault(view, start)
        if fault:
            raise SporaxRuntimeError(
                f"For '{where}', {str(path)!r} cannot be opened, not valid TFRecordDataset files: record {len(records)} at "
                f"offset {start} {fault}."
            )
        (length,) = struct.unpack_from("<Q", view, start)
        # A view, not a copy: a mapped file is read when the row is.
        records.append(view[start : start + length + 16])
        start += length + 16
    return records


def _content(where: str, path: Path, compression: str) -> memoryview:
    try:
        if compression:
            content = path.read_bytes()
            return memoryview(gzip.decompress(content) if compression == "GZIP" else zlib.decompress(content))
        with path.open("rb") as file:
            # An empty file cannot be mapped.
            empty = not path.stat().st_size
            return memoryview(b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, EOFError, zlib.error) as error:
        raise SporaxRuntimeError(f"For '{where}', the file {str(path)!r} cannot be read: {error}") from error


def _fault(view: memoryview, start: int) -> str:
    """What is wrong with the header of the record at `start`."""
    if len(view) - start < 12:
        return "has no whole header"
    length, checksum = struct.unpack_from("<QI", view, start)
    if checksum != masked_crc32c(view[start : start + 8]):
        return "has a length that does not fit its checksum"
    # 12 bytes of header in front, 4 of checksum behind.
    if len(view) - start - 16 < length:
        return f"must have {length} bytes, but only {max(len(view) - start - 16, 0)} are left"
    return ""


def content_of(record: memoryview) -> memoryview:
    """The content of a record.

    Raises:
        ValueError: it does not fit its checksum.
    """
    # Checked when a row is read: checking all at the start would read the whole file.
    content = record[12:-4]
    if struct.unpack("<I", record[-4:])[0] != masked_crc32c(content):
        raise ValueError("the content does not fit its checksum")
    return content


def parse_example(message: memoryview) -> dict[str, Values]:
    """The features of an Example by name: lists of bytes, or arrays of float32 or int64.

    Raises:
        ValueError: it is none.
    """
    features: dict[str, Values] = {}
    for number, content in fields(message):
        if number == 1:
            for entry in (value for inner, value in fields(_message(content)) if inner == 1):
                # `dict`: in protobuf the last of repeated fields counts.
                parts = dict(fields(_message(entry)))
                features[bytes(_message(parts.get(1, memoryview(b"")))).decode()] = _feature(
                    _message(parts.get(2, memoryview(b"")))
                )
    return features


def _feature(message: memoryview) -> Values:
    for number, content in fields(message):
        items = [value for inner, value in fields(_message(content)) if inner == 1]
        if number == 1:
            # The number says the type: 1 bytes, 2 floats, 3 integers.
            return [bytes(_message(item)) for item in items]
        if number == 2:
            return np.concatenate(
                # Packed or one by one: writers may choose.
                [np.frombuffer(_message(item), "<f4") for item in items] or [np.zeros(0, np.float32)]
            )
        if number == 3:
            values = [value for item in items for value in numbers(item)]
            # Negative numbers are stored as 64-bit two's complement.
            return np.array(values, np.uint64).astype(np.int64)
    return []


def _message(value: memoryview | int) -> memoryview:
    if isinstance(value, int):
        raise ValueError("a number where a message should be")
    return value
