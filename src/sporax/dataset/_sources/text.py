"""Text sources: lines of files, tables of comma-separated values, and the mould of all sources that read text files.

They read their files into memory once and are random-access sources like any other. MindSpore gives them out through a
shuffle buffer and interleaves files by the number of workers; here `shuffle=True` is a full permutation, and without
shuffling the files come one after the other.
"""

from __future__ import annotations

import csv
import enum
import functools
import glob
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sporax.dataset import _checks
from sporax.dataset._dataset import Dataset
from sporax.dataset._nodes import Source
from sporax.dataset._random import Pass
from sporax.dataset._rows import Block
from sporax.dataset._sources.columns import Stored, Texts
from sporax.dataset._sources.idx import read_bytes
from sporax.dataset._sources.memory import ArrayTable
from sporax.dataset._tables import Indices, Table
from sporax.dataset.samplers import BuiltinSampler, Order
from sporax.ir.errors import SporaxRuntimeError, SporaxTypeError, SporaxValueError


class Shuffle(enum.StrEnum):
    """How a text source shuffles: not at all, rows over all files, or the order of the files only."""

    FALSE = "false"
    GLOBAL = "global"
    FILES = "files"


class FileSampler(BuiltinSampler):
    """Order and shards of rows that come from files.

    A shard is a run of neighbouring rows: rank r of S reads ceil(n / S) rows from row r * ceil(n / S) on, wrapping to
    the beginning. Shuffling rearranges the rows of a rank; FILES rearranges the files before they are cut into shards.

    Args:
        shuffle: a Shuffle.
        shards: (number of ranks, this rank), or None.
        num_samples: at most this many rows.
        own_files: the files are one rank's share already.
    """

    def __init__(
        self, shuffle: Shuffle, shards: tuple[int, int] | None, num_samples: int | None, own_files: bool = False
    ) -> None:
        super().__init__(num_samples)
        self.shuffle = shuffle
        self.shards = shards
        self.own_files = own_files

    def is_shuffled(self) -> bool:
        """Whether the order is random."""
        return self.shuffle is not Shuffle.FALSE

    def is_sharded(self) -> bool:
        """Whether only one rank's share is read."""
        return self.own_files or self.shards is not None

    def _order(self, num_rows: int, run: Pass, labels: NDArray[Any] | None) -> Order:
        """`labels` are the numbers of the files the rows come from."""
        order = np.arange(num_rows)
        if self.shuffle is Shuffle.FILES and labels is not None and num_rows:
            files = run.shuffler(shared=True).permutation(int(labels[-1]) + 1)
            order = np.concatenate([np.flatnonzero(labels == file) for file in files])
        if self.shards is not None and num_rows:
            count, rank = self.shards
            share = -(-num_rows // count)
            order = order[(rank * share + np.arange(share)) % num_rows]
        return (
            run.shuffler(shared=self.shards is not None).permutation(order) if self.shuffle is Shuffle.GLOBAL else order
        )


class FileDataset(Dataset):
    """Base of sources that read rows from text files.

    Args:
        where: name of the dataset, for messages.
        columns: names of the columns.
        load: reads the files; the table's `files` are the numbers of the files its rows come from.
        num_samples: at most this many rows.
        num_parallel_workers: threads that prepare rows.
        shuffle: see `FileSampler`.
        num_shards: number of ranks that share the rows.
        shard_id: this rank.
        cache: must be None.
        own_files: see `FileSampler`.
    """

    def __init__(
        self,
        where: str,
        columns: Sequence[str],
        load: Callable[[], Table],
        num_samples: object,
        num_parallel_workers: object,
        shuffle: object,
        num_shards: object,
        shard_id: object,
        cache: object,
        own_files: bool = False,
    ) -> None:
        _checks.check_options(where, {"cache": cache})
        if isinstance(shuffle, bool) or shuffle is None:
            shuffle = Shuffle.FALSE if shuffle is False else Shuffle.GLOBAL
        if not isinstance(shuffle, Shuffle):
            raise _checks.type_error(where, "shuffle", "a bool or a Shuffle", shuffle)
        shards = _checks.check_shards(where, num_shards, shard_id)
        sampler = FileSampler(shuffle, shards, _checks.check_num_samples(where, num_samples), own_files)
        workers = _checks.check_workers(where, num_parallel_workers)
        super().__init__(Source(columns, load, sampler, labels=_file_numbers, workers=workers))


def _file_numbers(table: Table) -> NDArray[np.int64]:
    files: NDArray[np.int64] = vars(table)["files"]
    return files


class FileTable(ArrayTable):
    """Columns that several files hold, one file after the other.

    Args:
        where: name of the data set, for messages.
        paths: the files.
        parse: file -> its columns, by name and equally long: lists of str, or arrays.

    Attributes:
        files: for every row the number of its file.

    Raises:
        SporaxRuntimeError: the files hold no rows.
    """

    def __init__(self, where: str, paths: Sequence[Path], parse: Callable[[Path], Mapping[str, Sequence[Any]]]) -> None:
        parts = [parse(path) for path in paths]
        counts = [len(next(iter(part.values()))) for part in parts]
        if not sum(counts):
            raise SporaxRuntimeError(
                f"For '{where}', the files must hold rows, but {[str(p) for p in paths]} hold none."
            )
        self._paths = paths
        self._starts = np.cumsum([0, *counts])
        self.files = np.repeat(np.arange(len(paths)), counts)
        super().__init__({name: _joined([part[name] for part in parts if len(part[name])]) for name in parts[0]})

    def origin(self, index: int) -> str:
        """See Table."""
        file = int(self.files[index])
        return f"number {index - self._starts[file]} of {self._paths[file]}"


def _joined(parts: Sequence[Sequence[Any]]) -> Stored:
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts)
    values = list(itertools.chain.from_iterable(parts))
    return Texts(values) if isinstance(values[0], str) else values


def find_files(where: str, dataset_files: object) -> list[Path]:
    """The files that one pattern, or a list of them, names; in alphabetical order.

    Raises:
        SporaxValueError: no pattern, or one that names no file.
    """
    patterns = [dataset_files] if isinstance(dataset_files, str) else dataset_files
    if not isinstance(patterns, (list, tuple)):
        raise _checks.type_error(where, "dataset_files", "str or list[str]", dataset_files)
    if not patterns:
        raise SporaxValueError(f"For '{where}', the argument 'dataset_files' must not be empty.")
    found: set[str] = set()
    for pattern in patterns:
        names = [name for name in glob.glob(_checks.check_str(where, "dataset_files", pattern)) if Path(name).is_file()]
        if not names:
            raise SporaxValueError(f"For '{where}', {pattern!r} must name at least one file, but there is none.")
        found.update(names)
    return [Path(name) for name in sorted(found)]


class TextFileDataset(FileDataset):
    """The lines of text files (UTF-8), without empty ones.

    Column: `text` () str, without its newline.

    Args:
        dataset_files: a file, a pattern such as "*.txt", or a list of them.
        num_samples: at most this many rows.
        num_parallel_workers: threads that prepare rows.
        shuffle: True or Shuffle.GLOBAL (the default), Shuffle.FILES, or False.
        num_shards: number of ranks that share the rows; each reads neighbouring rows.
        shard_id: this rank.
        cache: must be None.

    Raises:
        SporaxTypeError, SporaxValueError, SporaxRuntimeError: an argument is not valid; (when read) a line is not UTF-8.
    """

    def __init__(
        self,
        dataset_files: str | list[str],
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | Shuffle = Shuffle.GLOBAL,
        num_shards: int | None = None,
        shard_id: int | None = None,
        cache: None = None,
    ) -> None:
        where = "TextFileDataset"
        paths = find_files(where, dataset_files)
        arguments = (num_samples, num_parallel_workers, shuffle, num_shards, shard_id, cache)
        super().__init__(where, ("text",), lambda: LineTable(where, paths), *arguments)


class LineTable(Table):
    """Lines of files: their bytes, and where each line begins and ends.

    Args:
        where: name of the data set, for messages.
        paths: the files.
        keep_empty: count empty lines as well.

    Attributes:
        files: for every line the number of its file.
    """

    def __init__(self, where: str, paths: Sequence[Path], keep_empty: bool = False) -> None:
        self._where = where
        self._paths = paths
        self._contents = [read_bytes(where, path) for path in paths]
        bounds = [_line_bounds(content, keep_empty) for content in self._contents]
        self.files = np.repeat(np.arange(len(paths)), [len(starts) for starts, _ in bounds])
        self._starts = np.concatenate([starts for starts, _ in bounds])
        self._stops = np.concatenate([stops for _, stops in bounds])
        self.size = len(self._starts)

    def gather(self, indices: Indices) -> Block:
        """See Table."""
        return {"text": [np.array(self._line(int(index))) for index in indices]}

    def origin(self, index: int) -> str:
        """See Table."""
        return f"the line at offset {self._starts[index]} of {self._paths[self.files[index]]}"

    def _line(self, index: int) -> str:
        file, start, stop = int(self.files[index]), int(self._starts[index]), int(self._stops[index])
        try:
            return self._contents[file][start:stop].decode()
        except UnicodeDecodeError as error:
            raise SporaxRuntimeError(
                f"For '{self._where}', {str(self._paths[file])!r} must be UTF-8, but the line at offset {start} is not: "
                f"{error}"
            ) from error


def _line_bounds(content: bytes, keep_empty: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First byte of each line, and the byte after its last; lines that are not empty, or all of them."""
    ends = np.flatnonzero(np.frombuffer(content, np.uint8) == ord("\n"))
    stops = np.append(ends, len(content))
    starts = np.append(0, ends + 1)
    if keep_empty:
        last = len(starts) - (starts[-1] == len(content))
        return starts[:last], stops[:last]
    filled = stops > starts
    return starts[filled], stops[filled]


class CSVDataset(FileDataset):
    """Tables of comma-separated values (UTF-8).

    Args:
        dataset_files: a file, a pattern such as "*.csv", or a list of them.
        field_delim: the character between fields.
        column_defaults: one value per column, of which the type counts: int (int32), float (float32) or str; all
            columns are str by default.
        column_names: names; by default the first line of every file is a header that names them.
        num_samples: at most this many rows.
        num_parallel_workers: threads that prepare rows.
        shuffle: True or Shuffle.GLOBAL (the default), Shuffle.FILES, or False.
        num_shards: number of ranks that share the rows; each reads neighbouring rows.
        shard_id: this rank.
        cache: must be None.

    Raises:
        SporaxTypeError, SporaxValueError, SporaxRuntimeError: an argument is not valid; (when read) a line has another
            number of fields, or a field is no number. The message names file and line.
    """

    def __init__(
        self,
        dataset_files: str | list[str],
        field_delim: str = ",",
        column_defaults: list[Any] | None = None,
        column_names: list[str] | None = None,
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | Shuffle = Shuffle.GLOBAL,
        num_shards: int | None = None,
        shard_id: int | None = None,
        cache: None = None,
    ) -> None:
        where = "CSVDataset"
        paths = find_files(where, dataset_files)
        if len(_checks.check_str(where, "field_delim", field_delim)) != 1 or field_delim in '"\r\n':
            raise SporaxValueError(
                f"For '{where}', the argument 'field_delim' must be one character, but got {field_delim!r}."
            )
        header = column_names is None
        names = _header(paths[0], field_delim) if header else _checks.check_names(where, "column_names", column_names)
        kinds = _column_kinds(column_defaults, names)
        arguments = (num_samples, num_parallel_workers, shuffle, num_shards, shard_id, cache)
        parse = functools.partial(_parse_csv, delimiter=field_delim, names=names, kinds=kinds, header=header)
        super().__init__(where, names, lambda: FileTable(where, paths, parse), *arguments)


def _parse_csv(
    path: Path, delimiter: str, names: Sequence[str], kinds: Sequence[Any], header: bool
) -> Mapping[str, Sequence[Any]]:
    rows = _records(path, delimiter, len(names), header)
    return {
        name: _typed(name, [(number, record[i]) for number, record in rows], kinds[i], path)
        for i, name in enumerate(names)
    }


def _records(path: Path, delimiter: str, width: int, header: bool) -> list[tuple[int, list[str]]]:
    """(line number, fields) of every row."""
    found = []
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            for record in reader:
                if not record or (header and reader.line_num == 1):
                    continue
                if len(record) != width:
                    raise SporaxRuntimeError(
                        f"For 'CSVDataset', every line must have {width} fields, but line {reader.line_num} of "
                        f"{str(path)!r} has {len(record)}."
                    )
                found.append((reader.line_num, record))
    except (csv.Error, UnicodeDecodeError) as error:
        raise SporaxRuntimeError(
            f"For 'CSVDataset', {str(path)!r} is not valid after row {len(found)}: {error}"
        ) from error
    return found


def _typed(name: str, column: Sequence[tuple[int, str]], kind: Any, path: Path) -> Sequence[Any]:
    if kind is str:
        return [field for _, field in column]
    dtype, parse = (np.int32, int) if kind is int else (np.float32, float)
    values = np.empty(len(column), dtype)
    for i, (line, field) in enumerate(column):
        try:
            values[i] = parse(field)
        except (ValueError, OverflowError) as error:
            raise SporaxRuntimeError(
                f"For 'CSVDataset', column {name!r} must hold {np.dtype(dtype)}, but line {line} of {str(path)!r} has "
                f"{field!r}."
            ) from error
    return values


def _header(path: Path, delimiter: str) -> tuple[str, ...]:
    with path.open(newline="", encoding="utf-8") as file:
        first = next(csv.reader(file, delimiter=delimiter), None)
    if not first:
        raise SporaxRuntimeError(
            f"For 'CSVDataset', {str(path)!r} must begin with a line of column names, but is empty."
        )
    return _checks.check_names("CSVDataset", "column_names", first)


def _column_kinds(defaults: object, names: Sequence[str]) -> list[type]:
    if defaults is None:
        return [str] * len(names)
    if not isinstance(defaults, list):
        raise _checks.type_error("CSVDataset", "column_defaults", "a list", defaults)
    if len(defaults) != len(names):
        raise SporaxValueError(
            f"For 'CSVDataset', 'column_defaults' must have one value per column, but got {len(defaults)} for {len(names)}."
        )
    for item in defaults:
        if type(item) not in (int, float, str):
            raise SporaxTypeError(f"For 'CSVDataset', 'column_defaults' must hold int, float or str, but got {item!r}.")
    return [type(item) for item in defaults]
