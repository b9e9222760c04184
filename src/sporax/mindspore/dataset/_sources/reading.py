"""Reading whole files of labels, lists and texts; what is wrong with one is said with its path and line.

The idx file format of MNIST: a big-endian header (magic, sizes), then values. Plain or gzip-compressed.
"""

from __future__ import annotations

import contextlib
import csv
import glob
import gzip
import io
import json
import math
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from sporax.base.errors import SporaxError, SporaxRuntimeError, SporaxValueError
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._rows import Array

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
    if len(content) < header:
        raise SporaxRuntimeError(
            f"For '{where}', the file {str(path)!r} must begin with {header} header bytes, but has {len(content)}."
        )
    first, *shape = struct.unpack(f">{1 + dims}I", content[:header])
    if first != magic:
        raise SporaxRuntimeError(f"For '{where}', the magic number of {str(path)!r} must be {magic}, but got {first}.")
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
    if not path.exists():
        raise SporaxRuntimeError(f"For '{where}', {str(path)!r} must exist, but there is no such file or folder.")
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
        if not paths:
            raise SporaxRuntimeError(f"For '{where}', Invalid file, {folder / name} does not exist or is a directory.")
        files += paths
    return files
