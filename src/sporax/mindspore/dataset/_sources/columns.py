"""Columns that are more than one array: strings, and values that are in files and are read when a row is requested.

With them one table (`ArrayTable`) serves every source that knows its rows beforehand, whatever it keeps in memory.

Tables of text files: rows parsed from files, and lines.

The files are read into memory once, at the first use, so that any row can be given at any time.
"""

from __future__ import annotations

import abc
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sporax.base.errors import SporaxError, SporaxRuntimeError
from sporax.mindspore.dataset._rows import Array, Block, Column
from sporax.mindspore.dataset._sources.reading import IMAGE_ENDINGS, files_in, read_bytes
from sporax.mindspore.dataset._streams import Indices, Table, add_place
from sporax.mindspore.dataset.vision._files import decode


class StoredColumn(abc.ABC):
    """One value per row, made when the row is requested."""

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @abc.abstractmethod
    def gather(self, indices: Indices) -> Column:
        """The values of the rows number `indices`, in that order."""

    def origin(self, index: int) -> str:
        """The file a value comes from; "" where it is not one of its own."""
        return ""


Stored = Column | StoredColumn


class Texts(StoredColumn):
    """Strings of any length: an array of them would give each the room of the longest.

    Args:
        values: one string per row.
    """

    def __init__(self, values: Sequence[str]) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def gather(self, indices: Indices) -> Column:
        # One array per row: each string has its own length in the dtype.
        return [np.array(self._values[index], np.str_) for index in indices]


class Files(StoredColumn):
    """One file per row.

    Args:
        where: name of the data set, for messages.
        paths: the files.
        read: (content, path) -> value.
    """

    def __init__(self, where: str, paths: Sequence[Path], read: Callable[[bytes, Path], Array]) -> None:
        self._where = where
        self._paths = paths
        self._read = read

    def __len__(self) -> int:
        return len(self._paths)

    def gather(self, indices: Indices) -> Column:
        # Read when requested: a data set of images does not fit into memory.
        values = []
        for index in indices:
            try:
                values.append(self._one(self._paths[index]))
            except SporaxError as error:
                add_place(error, f"number {index} of '{self._where}'")  # the message names the file already
                raise
        return values

    def origin(self, index: int) -> str:
        return str(self._paths[index])

    decrypt: Callable[[str], bytes] | None = None
    """A function of the user's that gives the content of a file, whose path it gets."""

    def _one(self, path: Path) -> Array:
        try:
            # A file may vanish between the listing and the row.
            content = path.read_bytes() if self.decrypt is None else self.decrypt(str(path))
        except OSError as error:
            fault = f"Failed to open file, the file {str(path)!r} cannot be read"
            raise SporaxRuntimeError(f"For '{self._where}', {fault}: {error}") from error
        if not isinstance(content, bytes):
            fault = "The return value of the decrypt function is not of type bytes."
            raise SporaxRuntimeError(f"For '{self._where}', {fault} It is {type(content)}.")
        return self._read(content, path)


class Computed(StoredColumn):
    """A function of the row number, for sources that compute or extract their values.

    Args:
        size: number of rows.
        value: row number -> value.
    """

    def __init__(self, size: int, value: Callable[[int], Any]) -> None:
        self._size = size
        self._value = value

    def __len__(self) -> int:
        return self._size

    def gather(self, indices: Indices) -> Column:
        return [np.asarray(self._value(int(index))) for index in indices]


def images(where: str, paths: Sequence[Path], decoded: bool) -> Files:
    """A column of image files: pixels (H, W, 3) uint8 if `decoded`, else the bytes of the files (n,) uint8."""
    return Files(where, paths, _pixels if decoded else _content)


def _pixels(content: bytes, path: Path) -> Array:
    return decode(content, str(path))


def _content(content: bytes, path: Path) -> Array:
    # A copy, since `frombuffer` gives an array that cannot be changed.
    return np.frombuffer(content, np.uint8).copy()


class ArrayTable(Table):
    """Columns held as arrays (rows, …), as lists of arrays where rows differ in shape, or stored otherwise.

    Args:
        columns: by name, equally long. Rows are copied out of them.
        place: where they come from, for messages.
    """

    def __init__(self, columns: Mapping[str, Stored], place: str = "the source") -> None:
        self.columns = dict(columns)
        self._place = place
        self.size = len(next(iter(columns.values())))

    def gather(self, indices: Indices) -> Block:
        return {name: _rows_of(column, indices) for name, column in self.columns.items()}

    def origin(self, index: int) -> str:
        # Only files can say where a row comes from.
        files = (column.origin(index) for column in self.columns.values() if isinstance(column, StoredColumn))
        return ", ".join(filter(None, files)) or f"number {index} of {self._place}"


def _rows_of(column: Stored, indices: Indices) -> Column:
    if isinstance(column, np.ndarray):
        # Indexing with an array copies.
        return column[indices]
    if isinstance(column, StoredColumn):
        return column.gather(indices)
    # So that a row that is changed in place does not change the source.
    return [column[i].copy() for i in indices]


Labelled = Iterable[tuple[Path, int]]


def labelled_images(where: str, labelled: Labelled, decoded: bool, dtype: Any = np.uint32) -> Mapping[str, Stored]:
    """The columns `image` and `label` of (file, class) pairs."""
    pairs = list(labelled)
    return {
        "image": images(where, [path for path, _ in pairs], decoded),
        "label": np.array([label for _, label in pairs], dtype),
    }


def images_by_folder(where: str, folders: Sequence[Path]) -> Labelled:
    # Empty folders keep their number.
    """The images of every folder, with the number of the folder."""
    for label, folder in enumerate(folders):
        for path in files_in(where, folder, *IMAGE_ENDINGS):
            yield path, label


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
                f"For '{self._where}', {str(self._paths[file])!r} must be UTF-8. Failed to cast to Unicode string: in the "
                f"line at offset {start}, {error}"
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
