"""One MindRecord file with its index: `ShardWriter` appends rows, `Shard` reads any row.

Every row has a place in a page of scalars ("RAW_DATA") and one in a page of bytes and arrays ("BLOB_DATA"). A page of the latter
kind is a row group; a page of scalars notes where in it each row group begins.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from sporax.mindspore.mindrecord._schema import (
    MRMOpenError,
    MRMUnsupportedSchemaError,
    MRMValidateDataError,
    Row,
    Schema,
    decode_blobs,
    decode_scalars,
    encode,
    parse_schema,
    saved_bytes,
)

# Bytes, 16 MiB: MindSpore's default.
HEADER_BYTES = 1 << 24
# Bytes, 32 MiB: MindSpore's default.
PAGE_BYTES = 1 << 25
# Bytes of the length in front of a header and of each part of a row.
_LENGTH_BYTES = 8
_SQL_TYPES = {"int32": "INTEGER", "int64": "INTEGER", "float32": "REAL", "float64": "REAL", "string": "TEXT"}
_SCALAR_PAGE, _BLOB_PAGE = "RAW_DATA", "BLOB_DATA"
# Columns of the index in the order in which MindSpore creates them; `Shard` takes them by position.
_ROW_POSITIONS = (
    *("ROW_ID", "PAGE_ID_RAW", "PAGE_OFFSET_RAW", "PAGE_OFFSET_RAW_END"),
    *("ROW_GROUP_ID", "PAGE_ID_BLOB", "PAGE_OFFSET_BLOB", "PAGE_OFFSET_BLOB_END"),
)

Page = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Header:
    """What the head of a file says.

    Attributes:
        schema: of its rows.
        index_fields: fields whose values its index has.
        shard_names: names of all files that were written together.
        shard_id: which of them this is.
        header_bytes: where the first page begins.
        page_bytes: size of a page.
        pages: the pages, by number.
        saved_bytes: by the short form of integers.
    """

    schema: Schema
    index_fields: tuple[str, ...]
    shard_names: tuple[str, ...]
    shard_id: int
    header_bytes: int = HEADER_BYTES
    page_bytes: int = PAGE_BYTES
    pages: tuple[Page, ...] = ()
    saved_bytes: int = 0

    def text(self, pages: Sequence[Page], saved_bytes: int) -> bytes:
        """The JSON text of the header."""
        schema = {
            "desc": self.schema.description,
            "blob_fields": [field.name for field in self.schema.blobs],
            "schema": self.schema.content(),
        }
        content = {
            "header_size": self.header_bytes,
            "page_size": self.page_bytes,
            "compression_size": saved_bytes,
            # An empty list is stored as null, as MindSpore writes it.
            "index_fields": [{"index_field": name, "schema_id": 0} for name in self.index_fields] or None,
            "page": list(pages) or None,
            "schema": [schema],
            "shard_addresses": list(self.shard_names),
            "shard_id": self.shard_id,
            "statistics": None,
            # The version of the layout that this module writes.
            "version": "3.0",
        }
        # Sorted and without spaces, as MindSpore's JSON library prints it.
        return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def read_header(path: Path) -> Header:
    """The header of a file.

    Raises:
        MRMOpenError: it is not a MindRecord file, or has no index.
    """
    _check_there(path, "mindrecord file", "mindrecord file")
    try:
        with path.open("rb") as file:
            head = file.read(_LENGTH_BYTES)
            if len(head) < _LENGTH_BYTES:
                raise ValueError(f"Invalid file, the size of mindrecord file: {path} is {len(head)} bytes")
            (size,) = struct.unpack("<Q", head)
            # The length comes from the file: a damaged one must not make us read gigabytes.
            if size > path.stat().st_size:
                words = "Invalid file, the size of mindrecord file header is larger than the upper limit."
                raise ValueError(f"{words} It says {size} bytes")
            content = json.loads(file.read(size))
        schema = content["schema"][0]
        header = Header(
            # Read leniently only where older files lack an entry.
            parse_schema(schema["schema"], schema.get("desc")),
            tuple(entry["index_field"] for entry in content["index_fields"] or ()),
            tuple(content["shard_addresses"]),
            content["shard_id"],
            content["header_size"],
            content["page_size"],
            tuple(content["page"] or ()),
            content.get("compression_size", 0),
        )
    except (OSError, ValueError, struct.error, KeyError, TypeError, IndexError) as error:
        raise MRMOpenError(f"For 'mindrecord', {str(path)!r} cannot be read as a MindRecord file: {error}.") from error
    index = index_path(path)
    _check_there(index, f"meta file: {index}", "mindrecord file and meta file")
    return header


def _check_there(file: Path, this: str, both: str) -> None:
    if not file.is_file():
        raise MRMOpenError(
            f"For 'mindrecord', Invalid file, {file} is not exists: it can not be found. Please check whether the {this} exists "
            f"and do not rename the {both}."
        )


def index_path(path: Path) -> Path:
    """The index of a file."""
    return path.with_name(path.name + ".db")


class ShardWriter:
    """Appends rows to a file.

    Args:
        path: the file; one that exists is replaced, unless `append`.
        header: what its head shall say.
        append: go on behind the rows that are there.
    """

    def __init__(self, path: Path, header: Header, append: bool = False) -> None:
        import sqlite3  # loaded by who opens a file

        self._header = header
        self._path = path
        # Copies, since pages grow while rows are added and the header is a value.
        self._pages: list[Page] = [dict(page) for page in header.pages]
        self._saved_bytes = header.saved_bytes
        if not append:
            # An old index would bring its rows into the new one.
            index_path(path).unlink(missing_ok=True)
        # "r+b" keeps what is there; "ab" could not write the header at the front later.
        self._file = path.open("r+b" if append else "wb")
        # Garbage may be collected, and the connection closed, in any thread.
        self._index = sqlite3.connect(index_path(path), check_same_thread=False)
        if not append:
            for statement in _tables(header, path.name):
                self._index.execute(statement)
        # Two columns per index field: MindSpore's INC number, which is 0, and the value.
        self._insert = (
            f"INSERT INTO INDEXES VALUES ({','.join('?' * (len(_ROW_POSITIONS) + 2 * len(header.index_fields)))})"
        )
        # The index knows how many rows an appended file has.
        (self.num_rows,) = self._index.execute("SELECT COUNT(*) FROM INDEXES").fetchone()

    def add(self, row: Mapping[str, Any]) -> None:
        """Append a row that fits the schema.

        Raises:
            MRMValidateDataError: it does not fit into a page.
        """
        # Encoded before anything is written, so that a row that cannot be stored leaves the file as it was.
        scalars, blob = encode(self._header.schema, row)
        longest = max(len(scalars), len(blob))
        if longest > self._header.page_bytes:
            raise MRMValidateDataError(
                f"For 'write_raw_data', a row must fit into a page of {self._header.page_bytes} bytes, but needs {longest}. "
                "Call 'set_page_size' first."
            )
        self._saved_bytes += saved_bytes(self._header.schema, row, len(blob) - _LENGTH_BYTES)
        # The blob first: a page of scalars notes the row group that the blob's page belongs to.
        blob_page, blob_start = self._put(_BLOB_PAGE, blob)
        # The end is exclusive.
        blob_page["end_row_id"] = self.num_rows + 1
        group = blob_page["page_type_id"]
        scalar_page, start = self._put(_SCALAR_PAGE, scalars)
        groups = scalar_page["row_group_ids"]
        # Once per row group, at the first row of it in this page.
        if not groups or groups[-1]["id"] != group:
            groups.append({"id": group, "offset": start})
        position = (self.num_rows, scalar_page["page_id"], start, start + len(scalars))
        position += (group, blob_page["page_id"], blob_start, blob_start + len(blob))
        values = [value for name in self._header.index_fields for value in (0, _index_value(row[name]))]
        # Not committed before `close`: one transaction is much faster than one per row.
        self._index.execute(self._insert, (*position, *values))
        self.num_rows += 1

    def __del__(self) -> None:
        # The constructor may have failed before it made them.
        for resource in ("_file", "_index"):
            if resource in vars(self):
                vars(self)[resource].close()

    def _put(self, kind: str, content: bytes) -> tuple[Page, int]:
        """Write into the last page of a kind, or into a new one: the page, and where in it."""
        # Only the last page of a kind has room: MindSpore's readers expect rows in order.
        page = next((page for page in reversed(self._pages) if page["page_type"] == kind), None)
        # A row never crosses pages; the rest of a page stays unused.
        if page is None or page["page_size"] + len(content) > self._header.page_bytes:
            page = self._new_page(kind, 0 if page is None else page["page_type_id"] + 1)
        start = page["page_size"]
        # Pages of both kinds share one numbering, and each has its full room in the file from the start.
        self._file.seek(self._header.header_bytes + page["page_id"] * self._header.page_bytes + start)
        self._file.write(content)
        page["page_size"] += len(content)
        return page, start

    def _new_page(self, kind: str, number: int) -> Page:
        blobs = kind == _BLOB_PAGE
        page: Page = {
            "page_id": len(self._pages),
            "page_type": kind,
            "page_type_id": number,
            "page_size": 0,
            "shard_id": self._header.shard_id,
            "start_row_id": self.num_rows if blobs else 0,
            "end_row_id": self.num_rows if blobs else 0,
            "row_group_ids": [{"id": number, "offset": 0}] if blobs else [],
        }
        self._pages.append(page)
        return page

    def close(self) -> None:
        """Write header and index.

        Raises:
            MRMValidateDataError: the header is too long for its place.
        """
        text = self._header.text(self._pages, self._saved_bytes)
        try:
            # Checked before the first page would be overwritten.
            if len(text) + _LENGTH_BYTES > self._header.header_bytes:
                raise MRMValidateDataError(
                    f"For 'commit', the header of {str(self._path)!r} must fit into {self._header.header_bytes} bytes, but "
                    f"has {len(text)}. Call 'set_header_size' or 'set_page_size' first."
                )
            self._file.seek(0)
            self._file.write(struct.pack("<Q", len(text)) + text)
            # Without rows nothing is behind the header, yet readers expect its full room.
            if not self._pages:
                self._file.truncate(self._header.header_bytes)
            self._index.commit()
        finally:
            # Also after a failure: an open SQLite connection would lock the index for the next writer.
            self._file.close()
            self._index.close()


def _tables(header: Header, name: str) -> list[str]:
    """The SQL that makes an empty index."""
    columns = [f"{place} INT NOT NULL" for place in _ROW_POSITIONS]
    for i, field in enumerate(header.index_fields):
        columns += [f"INC_{i} INT", f"{field}_0 {_SQL_TYPES[header.schema.field(field).kind]}"]
    keys = ",".join(["ROW_ID", *(f"INC_{i}" for i in range(len(header.index_fields)))])
    # SQL doubles quotation marks inside of a text.
    quoted = name.replace("'", "''")
    return [
        f"CREATE TABLE INDEXES({', '.join(columns)}, PRIMARY KEY({keys}))",
        "CREATE TABLE SHARD_NAME(NAME TEXT NOT NULL)",
        f"INSERT INTO SHARD_NAME VALUES('{quoted}')",
    ]


def _index_value(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


class Shard:
    """Rows of a file, by number.

    Args:
        path: the file.

    Raises:
        MRMOpenError: it is not a MindRecord file, or its index is missing or broken.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header = read_header(path)
        # MindSpore's own question whether this is an index at all.
        self.query("SELECT NAME from SHARD_NAME")
        # Without ROW_ID and ROW_GROUP_ID, which reading does not need.
        columns = ",".join(_ROW_POSITIONS[1:4] + _ROW_POSITIONS[5:])
        # All places in one array: 48 bytes per row, and no query while rows are read.
        self._positions: NDArray[np.int64] = np.array(
            self.query(f"SELECT {columns} FROM INDEXES ORDER BY ROW_ID"), np.int64
        )
        # An index without rows gives an array of shape (0,).
        self._positions = self._positions.reshape(-1, 6)
        self.size = len(self._positions)
        # A descriptor and `pread` in place of a file object: threads share it, since there is no common position.
        self._descriptor = os.open(path, os.O_RDONLY)

    def __reduce__(self) -> tuple[Any, ...]:
        # Reading processes open the file again; descriptors do not survive pickling.
        return Shard, (self.path,)

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Calling it again changes nothing."""
        # -1 first: the constructor may have failed, and `__del__` may follow `close`.
        descriptor, self._descriptor = getattr(self, "_descriptor", -1), -1
        if descriptor >= 0:
            os.close(descriptor)

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of the index.

        Raises:
            MRMOpenError: the index is broken.
        """
        import sqlite3

        index = index_path(self.path)
        try:
            # Read-only and by URI, so that reading works on read-only file systems and never makes an empty index.
            with contextlib.closing(sqlite3.connect(f"{index.absolute().as_uri()}?mode=ro", uri=True)) as connection:
                return connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            words = f"Failed to execute the sql [ {statement}; ] while verifying meta file {str(index)!r}: {error}."
            raise MRMOpenError(f"For 'mindrecord', {words}") from error

    def read(self, number: int, fields: Sequence[str]) -> Row:
        """Some fields of a row: first the numbers and strings, then the others.

        Raises:
            MRMUnsupportedSchemaError: the bytes at the row's place are none.
        """
        page, start, end, blob_page, blob_start, blob_end = (int(place) for place in self._positions[number])
        schema = self.header.schema
        row: Row = {}
        try:
            # Each part costs a read of the file, so a part without chosen fields is skipped.
            if any(field.name in fields for field in schema.scalars):
                scalars = decode_scalars(self._content(page, start, end))
                row = {field.name: scalars[field.name] for field in schema.scalars if field.name in fields}
            if any(field.name in fields for field in schema.blobs):
                row |= decode_blobs(schema, self._content(blob_page, blob_start, blob_end), fields)
        except (msgspec.DecodeError, KeyError, ValueError, struct.error, MRMUnsupportedSchemaError) as error:
            raise MRMUnsupportedSchemaError(
                f"For 'mindrecord', row {number} of {str(self.path)!r} cannot be read: {error}"
            ) from error
        return row

    def _content(self, page: int, start: int, end: int) -> bytes:
        place = self.header.header_bytes + page * self.header.page_bytes + start
        content = os.pread(self._descriptor, end - start, place)
        if len(content) < end - start:
            raise ValueError("the file is truncated")
        (size,) = struct.unpack_from("<Q", content)
        # Index and file both know the length; if they differ, the index belongs to another file.
        if size != len(content) - _LENGTH_BYTES:
            raise ValueError(f"its length must be {len(content) - _LENGTH_BYTES} as the index says, but is {size}")
        return content[_LENGTH_BYTES:]


def open_shards(file_name: str | Sequence[str]) -> list[Shard]:
    """The files of a list; or, of one name, all files that were written together with it.

    Raises:
        MRMOpenError: a file is missing or not a MindRecord file.
    """
    if not isinstance(file_name, str):
        return [Shard(Path(name)) for name in file_name]
    path = Path(file_name)
    names = read_header(path).shard_names
    # A file that was renamed is still readable by itself.
    return [Shard(path.with_name(name)) for name in names] if path.name in names else [Shard(path)]
