"""Reading whole files of labels, lists and texts; what is wrong with one is said with its path and line.

The idx file format of MNIST: a big-endian header (magic, sizes), then values. Plain or gzip-compressed.

Columns that are more than one array: strings, and values that are in files and are read when a row is requested. With them one
table (`ArrayTable`) serves every source that knows its rows beforehand, whatever it keeps in memory. Tables of text files: rows
parsed from files, and lines. These are read into memory once, at the first use, so that any row can be given at any time.
"""

from __future__ import annotations

import abc
import contextlib
import csv
import glob
import gzip
import io
import itertools
import json
import math
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from sporax.base.errors import For, SporaxError, SporaxRuntimeError, SporaxValueError
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._rows import Array, Block, Column
from sporax.mindspore.dataset._streams import Indices, Table, add_place
from sporax.mindspore.dataset.vision._files import decode

# 0x803: bytes in 3 dims.
IMAGES_MAGIC = 2051
# 0x801: bytes in 1 dim.
LABELS_MAGIC = 2049
# 0xC02: int32 in 2 dims.
INT_TABLE_MAGIC = 3074

# Third byte of the magic number: type of the elements.
_DTYPES: dict[int, np.dtype[Any]] = {8: np.dtype(np.uint8), 12: np.dtype(">i4")}


def read_bytes(where: str, path: Path) -> bytes:
    """The file's content, decompressed where its name ends in .gz.

    Raises:
        SporaxRuntimeError: the file cannot be read or decompressed.
    """
    try:
        content = path.read_bytes()
        # By name and not by content: MindSpore's readers do not unpack, but downloads are packed.
        return gzip.decompress(content) if path.suffix == ".gz" else content
    except (OSError, EOFError, zlib.error) as error:
        raise SporaxRuntimeError(f"For '{where}', the file {str(path)!r} cannot be read: {error}") from error


def read_idx(where: str, path: Path, magic: int) -> Array:
    """The array of an idx file: its magic number says the dtype (bytes or ints) and the number of dimensions.

    Args:
        where: name of the data set, for messages.
        path: the file.
        magic: its first number.

    Raises:
        SporaxRuntimeError: not such a file, or not as long as its header says.
    """
    content = read_bytes(where, path)
    # Low byte of the magic number: number of dimensions.
    dims, dtype = magic & 0xFF, _DTYPES[magic >> 8]
    header = 4 * (1 + dims)
    For(where).refuse_state(
        len(content) < header, f"the file {str(path)!r} must begin with {header} header bytes, but has {len(content)}"
    )
    first, *shape = struct.unpack(f">{1 + dims}I", content[:header])
    For(where).refuse_state(first != magic, f"the magic number of {str(path)!r} must be {magic}", first)
    have = len(content) - header
    # Bytes behind the data are ignored, as in MindSpore.
    if have < math.prod(shape) * dtype.itemsize:
        record = math.prod(shape[1:]) * dtype.itemsize
        raise SporaxRuntimeError(
            f"For '{where}', {str(path)!r} must hold {shape[0]} records of {record} bytes after its header, but it "
            f"ends in record {have // max(record, 1)} at offset {len(content)}; the file is truncated."
        )
    return np.frombuffer(content, dtype, math.prod(shape), header).reshape(shape)


T = TypeVar("T")

#: What parsing a broken file raises: missing fields, fields that are no numbers, keys that are not there.
_BROKEN = (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError)


@contextlib.contextmanager
def reading(where: str, path: Path, place: str = "") -> Iterator[None]:
    """Errors inside name the data set, the file, and the place in it.

    Raises:
        SporaxRuntimeError: anything that parsing raised.
    """
    # No exception of Python's may reach the user without file and line.
    try:
        yield
    except SporaxError:
        raise
    except _BROKEN as error:
        at = f" at {place}" if place else ""
        missing = isinstance(error, KeyError)
        reason = f"the attribute of {error} is missing" if missing else f"{type(error).__name__}: {error}"
        raise SporaxRuntimeError(f"For '{where}', the file {str(path)!r} is broken{at}: {reason}") from error


def read_text(where: str, path: Path) -> str:
    """The text of a file (UTF-8).

    Raises:
        SporaxRuntimeError: it cannot be read, or is not UTF-8; the message names the offset.
    """
    content = read_bytes(where, path)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise SporaxRuntimeError(f"For '{where}', {str(path)!r} must be UTF-8, but it is not: {error}") from error


def lines(where: str, path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file without their ends, numbered from 1."""
    text = read_text(where, path)
    parts = text.split("\n")
    # A newline at the end does not begin another line.
    if parts and not parts[-1]:
        del parts[-1]
    # Only the end, as `splitlines` would split at other characters too.
    return ((number, line.removesuffix("\r")) for number, line in enumerate(parts, 1))


def parse_lines(where: str, path: Path, parse: Callable[[str], T], skip: int = 0) -> list[T]:
    """`parse` of every line that is not empty, behind the first `skip` lines."""
    values: list[T] = []
    for number, line in lines(where, path):
        # Numbered before lines are left out, so that messages agree with an editor.
        if number > skip and line:
            with reading(where, path, f"line {number}"):
                values.append(parse(line))
    return values


def parse_csv(where: str, path: Path, width: int, delimiter: str = ",") -> list[list[str]]:
    """The records of a file of comma-separated values, each of `width` fields."""
    # "" keeps line ends inside of quoted fields.
    reader = csv.reader(io.StringIO(read_text(where, path), newline=""), delimiter=delimiter)
    records: list[list[str]] = []
    try:
        # Empty lines give empty records, which MindSpore skips.
        for record in reader:
            if record and len(record) != width:
                raise SporaxRuntimeError(
                    f"For '{where}', every record must have {width} fields, but the one that ends in line "
                    f"{reader.line_num} of {str(path)!r} has {len(record)}."
                )
            if record:
                records.append(record)
    except csv.Error as error:
        raise SporaxRuntimeError(
            f"For '{where}', {str(path)!r} is broken at line {reader.line_num}: {error}"
        ) from error
    return records


def read_json(where: str, path: Path) -> Any:
    """What a JSON file holds."""
    with reading(where, path):
        return json.loads(read_text(where, path))


def read_mat(where: str, path: Path, names: Sequence[str]) -> list[Any]:
    """The variables `names` of a MATLAB file.

    Raises:
        SporaxRuntimeError: it cannot be read, or lacks one of them.
    """
    import scipy.io  # slow to import, and few formats need it

    try:
        content = scipy.io.loadmat(path)
    except (OSError, scipy.io.matlab.MatReadError, *_BROKEN) as error:
        raise SporaxRuntimeError(f"For '{where}', the file {str(path)!r} cannot be read: {error}") from error
    with reading(where, path):
        return [content[name] for name in names]


def existing(where: str, path: Path) -> Path:
    """The path, if there is something.

    Raises:
        SporaxRuntimeError: there is nothing.
    """
    For(where).refuse_state(not path.exists(), f"{str(path)!r} must exist, but there is no such file or folder")
    return path


def files_in(where: str, folder: Path, *endings: str) -> list[Path]:
    """The files of a folder that end so (any, without endings), by name."""
    # Sorted, since the order of a folder depends on the file system.
    paths = sorted(path for path in existing(where, folder).iterdir() if path.is_file())
    # Endings in any case: cameras write .JPG.
    return [path for path in paths if not endings or path.name.lower().endswith(endings)]


def folders_in(where: str, folder: Path) -> list[Path]:
    """The folders of a folder, by name."""
    return sorted(path for path in existing(where, folder).iterdir() if path.is_dir())


IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp")


def find_files(where: str, dataset_files: object) -> list[Path]:
    """The files that one pattern, or a list of them, names; in alphabetical order.

    Raises:
        SporaxValueError: no pattern, or one that names no file.
    """
    patterns = [dataset_files] if isinstance(dataset_files, str) else dataset_files
    if not isinstance(patterns, (list, tuple)):
        raise check.type_error(where, "dataset files", (str, list), dataset_files)
    if not dataset_files:
        words = f"Input dataset_files can not be empty, but got '{dataset_files}'."
        raise check.in_words(SporaxValueError, where, words)
    # A set: patterns may name a file twice.
    paths: set[str] = set()
    for pattern in patterns:
        names = [name for name in glob.glob(check.text(where, "dataset_files", pattern)) if Path(name).is_file()]
        if not names:
            words = f"The following patterns did not match any files: {[pattern]}."
            raise check.in_words(SporaxValueError, where, words)
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
        For(where).refuse_state(not paths, f"Invalid file, {folder / name} does not exist or is a directory")
        files += paths
    return files


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
        # All files at once, at the first use: any row may be requested.
        parts = [parse(path) for path in paths]
        counts = [len(next(iter(part.values()))) for part in parts]
        # An empty data set would fail later, with a message about a shape.
        For(where).refuse_state(not sum(counts), f"the files must hold rows, but {[str(p) for p in paths]} hold none")
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
        # Bytes and not text: lines are decoded when requested, and offsets stay valid.
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
