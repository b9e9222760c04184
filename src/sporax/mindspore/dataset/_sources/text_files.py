"""The base of data sets in text files, and their tables: rows parsed from files, and lines.

The files are read into memory once, at the first use, so that any row can be given at any time.
"""

from __future__ import annotations

import functools
import glob
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sporax.base.errors import SporaxRuntimeError, SporaxValueError
from sporax.mindspore.dataset import _checks
from sporax.mindspore.dataset._cache import check_cache
from sporax.mindspore.dataset._dataset import Dataset
from sporax.mindspore.dataset._nodes import Source
from sporax.mindspore.dataset._rows import Block
from sporax.mindspore.dataset._sources.columns import Stored, Texts
from sporax.mindspore.dataset._sources.file_sampling import FileSampler, Shuffle
from sporax.mindspore.dataset._sources.format import Rows, SpecifiedDataset, opened
from sporax.mindspore.dataset._sources.idx import read_bytes
from sporax.mindspore.dataset._sources.memory import ArrayTable
from sporax.mindspore.dataset._tables import Indices, Table

#: Columns of one file by name, equally long: lists of values, or arrays.
Columns = Mapping[str, Sequence[Any] | NDArray[Any]]


class FileDataset(SpecifiedDataset, Dataset):
    """Base of data sets in text files: a rank reads neighboring rows, and files can be shuffled as wholes."""

    def _open(
        self,
        where: str,
        columns: Sequence[str],
        read: Callable[[], Rows],
        sampling: Mapping[str, Any],
        own_files: bool = False,
    ) -> None:
        """See SpecifiedDataset. `own_files`: the files are one rank's share already."""
        cache = check_cache(where, sampling["cache"])
        shuffle = sampling["shuffle"]
        # None means the default, as in MindSpore.
        if isinstance(shuffle, bool) or shuffle is None:
            shuffle = Shuffle.FALSE if shuffle is False else Shuffle.GLOBAL
        if not isinstance(shuffle, Shuffle):
            raise _checks.type_error(where, "shuffle", "a bool or a Shuffle", shuffle)
        if shuffle is Shuffle.INFILE:
            raise SporaxValueError(f"For '{where}', 'shuffle' must not be Shuffle.INFILE: only MindDataset has it.")
        # Both save memory in MindSpore; all rows are in memory here anyway.
        if shuffle in (Shuffle.ADAPTIVE, Shuffle.PARTIAL):
            shuffle = Shuffle.GLOBAL
        shards = _checks.check_shards(where, sampling["num_shards"], sampling["shard_id"])
        num_samples = _checks.check_num_samples(where, sampling["num_samples"])
        workers = _checks.check_workers(where, sampling["num_parallel_workers"])
        sampler = FileSampler(shuffle, shards, num_samples, own_files, workers)
        table = functools.partial(opened, where, tuple(columns), read)
        Dataset.__init__(self, Source(columns, table, sampler, labels=_file_numbers, workers=workers, cache=cache))


def _file_numbers(table: Table) -> NDArray[np.int64]:
    # Every table of a text data set has this attribute; the type of the base has not.
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

    def __init__(self, where: str, paths: Sequence[Path], parse: Callable[[Path], Columns]) -> None:
        # All files at once, at the first use: any row may be asked for.
        parts = [parse(path) for path in paths]
        counts = [len(next(iter(part.values()))) for part in parts]
        # An empty data set would fail later, with a message about a shape.
        if not sum(counts):
            raise SporaxRuntimeError(
                f"For '{where}', the files must hold rows, but {[str(p) for p in paths]} hold none."
            )
        self._paths = paths
        self._starts = np.cumsum([0, *counts])
        self.files = np.repeat(np.arange(len(paths)), counts)
        # Empty files have no dtype to join.
        super().__init__({name: _joined([part[name] for part in parts if len(part[name])]) for name in parts[0]})

    def origin(self, index: int) -> str:
        """See Table."""
        file = int(self.files[index])
        return f"number {index - self._starts[file]} of {self._paths[file]}"


def _joined(parts: Sequence[Sequence[Any] | NDArray[Any]]) -> Stored:
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts)
    values = list(itertools.chain.from_iterable(parts))
    # `Texts` keeps one str per row instead of an array as wide as the longest.
    return Texts(values) if isinstance(values[0], str) else values


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
        # Bytes and not text: lines are decoded when asked for, and offsets stay valid.
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
        # A newline at the end does not begin another line.
        last = len(starts) - (starts[-1] == len(content))
        return starts[:last], stops[:last]
    filled = stops > starts
    return starts[filled], stops[filled]


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
    # A set: patterns may name a file twice.
    paths: set[str] = set()
    for pattern in patterns:
        names = [name for name in glob.glob(_checks.check_str(where, "dataset_files", pattern)) if Path(name).is_file()]
        if not names:
            raise SporaxValueError(f"For '{where}', {pattern!r} must name at least one file, but there is none.")
        paths.update(names)
    # Alphabetical over all patterns, as in MindSpore.
    return [Path(name) for name in sorted(paths)]


def files_named(where: str, folder: Path, names: Sequence[str]) -> list[Path]:
    """The files of a folder that patterns name.

    Raises:
        SporaxRuntimeError: a pattern names none.
    """
    files: list[Path] = []
    for name in names:
        paths = sorted(folder.glob(name))
        if not paths:
            raise SporaxRuntimeError(f"For '{where}', the folder {str(folder)!r} must hold {name!r}, but does not.")
        files += paths
    return files
