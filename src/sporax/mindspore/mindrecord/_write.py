"""`FileWriter`: MindRecord files from Python dicts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sporax.base.errors import For, SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore import log
from sporax.mindspore.mindrecord import _schema
from sporax.mindspore.mindrecord._shard import HEADER_BYTES, PAGE_BYTES, Header, ShardWriter, index_path, read_header

# Files: MindSpore's limit.
_MOST_SHARDS = 1000
# Characters that MindSpore allows in no file name.
_FORBIDDEN = frozenset("\\/:*?\"<>|`&';")
# Bytes, 16 KiB to 128 MiB: MindSpore's limits of a header.
_HEADER_LIMITS = (1 << 14, 1 << 27)
# Bytes, 32 KiB to 256 MiB: MindSpore's limits of a page.
_PAGE_LIMITS = (1 << 15, 1 << 28)


def check_file_name(name: object) -> str:
    """A name that a MindRecord file may have.

    Raises:
        ParamValueError: it is empty, no string, or has characters that the format does not allow.
    """
    if not isinstance(name, str) or not name:
        fault = f"File path: {name} is not string." if name else "File path is not allowed None or empty!"
        raise _schema.ParamValueError(f"For 'mindrecord', {fault}")
    last = name.rpartition("/")[2]
    fault = "" if last else "File path can not end with '/'."
    fault = "File name should not start/end with space." if last != last.strip(" ") else fault
    fault = f"File name should not contains {''.join(sorted(_FORBIDDEN))}." if _FORBIDDEN & {*last} else fault
    if fault:
        raise _schema.ParamValueError(f"For 'mindrecord', {fault} Got {name!r}.")
    return name


class FileWriter:
    """Writes rows into MindRecord files that MindSpore and `dataset.MindDataset` read.

    Rows that do not fit the schema are left out with a warning in the log, as in MindSpore. Each call of `write_raw_data`
    spreads its rows over the files in runs; MindSpore chooses the file of a small call at random.

    Args:
        file_name: the file; several files have a number appended.
        shard_num: number of files, 1 to 1000.
        overwrite: replace files that exist.

    Raises:
        ParamValueError: an argument is not valid.

    Example:
        >>> writer = FileWriter("train.mindrecord", overwrite=True)
        >>> writer.add_schema({"label": {"type": "int32"}, "image": {"type": "bytes"}})
        >>> writer.write_raw_data([{"label": 3, "image": b"..."}])
        >>> writer.commit()
    """

    def __init__(self, file_name: str, shard_num: int = 1, overwrite: bool = False) -> None:
        name = check_file_name(file_name)
        fault = ""
        if not isinstance(shard_num, int):
            fault = "shard_num is None." if shard_num is None else "shard_num's type is not int."
        elif not 1 <= shard_num <= _MOST_SHARDS:
            fault = f"shard_num's value: {shard_num} should between 1 and {_MOST_SHARDS}."
        elif not isinstance(overwrite, bool):
            fault = "overwrite's type is not bool."
        if fault:
            raise _schema.ParamValueError(f"For 'FileWriter', Parameter {fault} Got {shard_num!r} and {overwrite!r}.")
        # All numbers have as many digits as the last, so that names sort in order of their shards.
        digits = len(str(shard_num - 1))
        names = [name] if shard_num == 1 else [f"{name}{i:0{digits}d}" for i in range(shard_num)]
        self._paths = [Path(path) for path in names]
        self._overwrite = overwrite
        self._schema: _schema.Schema | None = None
        self._index_fields: list[str] = []
        self._header_bytes, self._page_bytes = HEADER_BYTES, PAGE_BYTES
        self._writers: list[ShardWriter] = []
        # Where small calls go on, so that they fill all files evenly.
        self._next = 0
        self._parallel: bool | None = None
        self._is_committed = False
        self._appended: Header | None = None

    @classmethod
    def open_for_append(cls, file_name: str) -> FileWriter:
        """A writer that goes on behind the rows of a file.

        Raises:
            ParamValueError: the name is not valid.
            MRMOpenError: the file is not there, or not a MindRecord file.
        """
        writer = cls(file_name)
        writer._appended = read_header(writer._paths[0])
        writer._schema = writer._appended.schema
        return writer

    def add_schema(self, content: dict[str, Any], desc: str | None = None) -> None:
        """Say what the rows hold.

        Args:
            content: field -> {"type": int32, int64, float32, float64, string or bytes}; arrays of numbers have a "shape" too,
                such as [-1] or [3, 224, 224].
            desc: any text.

        Raises:
            MRMInvalidSchemaError: the schema is not valid.
            MRMAddSchemaError: there is one already.
        """
        schema = _schema.parse_schema(content, desc)
        if self._schema is not None:
            raise _schema.MRMAddSchemaError("For 'add_schema', a writer must have one schema, but it has one already.")
        self._schema = schema

    def add_index(self, index_fields: list[str]) -> None:
        """Choose the fields whose values the index has; numbers and strings only. By default all of them.

        Raises:
            ParamTypeError: not a list of str.
            MRMDefineIndexError: a field holds bytes or arrays.
            MRMGetMetaError: there is no schema.
            MRMAddIndexError: a field is not in the schema, or rows have been written.
        """
        if not index_fields or not isinstance(index_fields, list):
            raise _schema.ParamTypeError(
                f"For 'add_index', 'index_fields' must be a list of str, but got {index_fields!r}."
            )
        for name in index_fields:
            if not isinstance(name, str):
                raise _schema.ParamTypeError(f"For 'add_index', an index field must be a str, but got {name!r}.")
            if self._schema is None:
                raise _schema.MRMGetMetaError("For 'add_index', there must be a schema: call 'add_schema' first.")
            fields = {field.name: field for field in self._schema.fields}
            if name not in fields or self._writers or self._appended:
                raise _schema.MRMAddIndexError(
                    f"For 'add_index', a field must be in the schema and be given before rows are written, but got {name!r} "
                    f"with the fields {list(fields)} and {len(self._writers)} open files."
                )
            if fields[name].is_blob:
                # Their bytes are not in the index, so it could not be searched by them.
                raise _schema.MRMDefineIndexError(
                    f"For 'add_index', an index field must hold a number or a string, but {name!r} is {fields[name].kind}."
                )
        self._index_fields += [name for name in index_fields if name not in self._index_fields]

    def set_header_size(self, header_size: int) -> None:
        """Choose the room of the header: a power of two, 16 KiB to 128 MiB.

        Raises:
            SporaxValueError, SporaxRuntimeError: it is none, or rows have been written.
        """
        self._header_bytes = self._size("set_header_size", header_size, *_HEADER_LIMITS)

    def set_page_size(self, page_size: int) -> None:
        """Choose the size of a page, which must hold any one row: a power of two, 32 KiB to 256 MiB.

        Raises:
            SporaxValueError, SporaxRuntimeError: it is none, or rows have been written.
        """
        self._page_bytes = self._size("set_page_size", page_size, *_PAGE_LIMITS)

    def _size(self, where: str, value: object, low: int, high: int) -> int:
        For(where).refuse_state(self._writers or self._appended, "the size must be set before rows are written")
        # `v & (v - 1)` clears the lowest bit, which leaves 0 for powers of two only.
        if not isinstance(value, int) or not low <= value <= high or value & (value - 1):
            raise For(where).fault(
                SporaxInvalidSizeError, f"the size must be a power of two in [{low}, {high}]", repr(value)
            )
        return value

    def write_raw_data(self, raw_data: list[dict[str, Any]], parallel_writer: bool = False) -> None:
        """Write rows.

        Args:
            raw_data: the rows.
            parallel_writer: all rows of a call go to one file, the next call's to the next (MindSpore writes each file in a
                process of its own; here it is the same process).

        Raises:
            ParamTypeError: not a list of dicts.
            MRMOpenError: a file exists already, or cannot be made.
            SporaxRuntimeError: there is no schema, no row fits it, or the files were committed.
        """
        if not isinstance(parallel_writer, bool):
            words = f"The parameter `parallel_writer` must be bool. Got {parallel_writer!r}."
            raise SporaxTypeError(f"For 'write_raw_data', {words}")
        if self._parallel not in (None, parallel_writer):
            raise For("write_raw_data").state_error(
                f"The parameter `parallel_writer` must be consistent during use. Got {self._parallel} and {parallel_writer}"
            )
        # MindSpore's writer fixes the mode with the first call.
        self._parallel = parallel_writer
        if not isinstance(raw_data, list):
            raise _schema.ParamTypeError(
                f"For 'write_raw_data', 'raw_data' must be a list, but got {type(raw_data).__name__}."
            )
        for row in raw_data:
            if not isinstance(row, dict):
                raise _schema.ParamTypeError(
                    f"For 'write_raw_data', a row must be a dict, but got {type(row).__name__}."
                )
        if self._is_committed:
            words = "Not allowed to call `write_raw_data` on flushed MindRecord files. Use 'open_for_append' to go on."
            raise SporaxRuntimeError(f"For 'write_raw_data', {words}")
        schema, rows = self._open(), self._fitting(raw_data)
        if not rows:
            raise SporaxRuntimeError(
                "For 'write_raw_data', There is no valid data which can be written by 'write_raw_data' to mindrecord file. "
                f"None of {len(raw_data)} rows fits the schema {schema.content()}; the log says why."
            )
        count = len(self._writers)
        # Fewer rows than files: whole runs would leave the last files empty, so rows are dealt in turn.
        if parallel_writer or len(rows) < count:
            for i, row in enumerate(rows):
                self._writers[(self._next + (0 if parallel_writer else i)) % count].add(row)
            self._next += 1 if parallel_writer else len(rows)
            return
        for i, writer in enumerate(self._writers):
            # Runs whose sizes differ by one at most; consecutive rows stay together, as MindSpore writes them.
            for row in rows[len(rows) * i // count : len(rows) * (i + 1) // count]:
                writer.add(row)

    def _fitting(self, rows: list[dict[str, Any]]) -> list[Mapping[str, Any]]:
        assert self._schema is not None
        # All rows are checked before one is written: a warning does not stop between two rows.
        reasons = [_schema.mismatch(self._schema, row) for row in rows]
        for number, reason in enumerate(reasons):
            if reason:
                log.warning("For 'write_raw_data', row %d is left out: %s.", number, reason)
        return [row for row, reason in zip(rows, reasons, strict=True) if not reason]

    def _open(self) -> _schema.Schema:
        For("write_raw_data").refuse_state(self._schema is None, "there must be a schema: call 'add_schema' first")
        if self._writers:
            return self._schema
        if self._appended is not None:
            # Only the named file is appended to; the others of its group stay.
            self._writers = [ShardWriter(self._paths[0], self._appended, append=True)]
            return self._schema
        # The index counts as well: an old one without its file would be mixed up with the new rows.
        existing = [str(p) for path in self._paths for p in (path, index_path(path)) if p.exists()]
        if existing and not self._overwrite:
            words = (
                f"Invalid file, mindrecord files already exist. Please check file path: {existing}, or set 'overwrite'."
            )
            raise _schema.MRMOpenError(f"For 'FileWriter', {words}")
        # By default all numbers and strings are in the index.
        index_fields = tuple(self._index_fields or (field.name for field in self._schema.scalars))
        names = tuple(path.name for path in self._paths)
        try:
            self._writers = [
                ShardWriter(path, Header(self._schema, index_fields, names, i, self._header_bytes, self._page_bytes))
                for i, path in enumerate(self._paths)
            ]
        except OSError as error:
            raise _schema.MRMOpenError(
                f"For 'FileWriter', the file {str(self._paths[0])!r} cannot be made: {error}."
            ) from error
        return self._schema

    def commit(self) -> None:
        """Finish the files: write headers and indexes. Calling it again changes nothing.

        Raises:
            SporaxRuntimeError: there is no schema.
        """
        if self._is_committed:
            return
        # Files with a header exist even where no row was written.
        self._open()
        self._is_committed = True
        for writer in self._writers:
            writer.close()


class SporaxInvalidSizeError(SporaxValueError, SporaxRuntimeError):
    """A size of header or page is not allowed; MindSpore raises RuntimeError for it."""
