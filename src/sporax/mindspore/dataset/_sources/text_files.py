"""Tables of text files: rows parsed from files, and lines.

The files are read into memory once, at the first use, so that any row can be given at any time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sporax.base.errors import SporaxRuntimeError
from sporax.mindspore.dataset._rows import Block
from sporax.mindspore.dataset._sources.columns import ArrayTable, Stored, Texts
from sporax.mindspore.dataset._sources.idx import read_bytes
from sporax.mindspore.dataset._streams import Indices, Table

#: Columns of one file by name, equally long: lists of values, or arrays.
Columns = Mapping[str, Sequence[Any] | NDArray[Any]]


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
        return {"text": [np.array(self._line(int(index))) for index in indices]}

    def origin(self, index: int) -> str:
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
