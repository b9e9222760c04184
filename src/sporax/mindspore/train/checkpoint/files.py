"""Checkpoint files, one tensor at a time: blocks of values are read, and whole files written, without a second copy.

A file is mapped into memory; opening it reads names, shapes and dtypes alone. `CheckpointFile.read` copies one block of one
tensor, and counts the bytes. `write_stream` takes tensors as they are made, so a conversion needs the memory of the largest
one.
"""

from __future__ import annotations

import mmap
import os
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, cast

import numpy as np

from sporax.base.atomic_file import atomic_write
from sporax.base.errors import SporaxNotImplementedError, SporaxTypeError, SporaxValueError
from sporax.mindspore.train import _ckpt_format, _safetensors_format
from sporax.mindspore.train._entries import CorruptCheckpointError, Entry
from sporax.mindspore.train.checkpoint.slices import Region, Shape, region_shape

SUFFIXES = (".ckpt", ".safetensors")
# The first four bytes of MindSpore's encrypted files, little-endian.
_ENCRYPTED_MAGIC = 0x7F3A5ED8
LAYOUT = "sporax.layout"
"""Where a file says which blocks it has: a string of a ``.ckpt`` file, an entry of a safetensors header."""

_counting = threading.Lock()
"""Several threads may read a file."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """What a file says of a tensor.

    Attributes:
        name: of the Parameter.
        shape: of the array in this file.
        dtype: of its elements; None for a string.
    """

    name: str
    shape: Shape
    dtype: np.dtype[Any] | None


@dataclass(slots=True)
class CheckpointFile:
    """An open checkpoint file.

    Attributes:
        path: of the file.
        specs: what it holds, in its order.
        metadata: of a safetensors file.
        bytes_read: of values that were copied so far.
    """

    path: Path
    specs: dict[str, TensorSpec]
    metadata: dict[str, str]
    bytes_read: int = 0
    _parts: dict[str, tuple[memoryview, ...]] = field(default_factory=dict, repr=False)
    _mapped: mmap.mmap | None = field(default=None, repr=False)

    def read(self, name: str, region: Region) -> np.ndarray[Any, Any]:
        """A copy of one block of a tensor."""
        spec = self.specs[name]
        assert spec.dtype is not None, name
        values = self._rows(spec, region)
        # `+=` on an attribute is not atomic in Python.
        with _counting:
            self.bytes_read += values.nbytes
        return values

    def _rows(self, spec: TensorSpec, region: Region) -> np.ndarray[Any, Any]:
        assert spec.dtype is not None, spec.name
        parts = self._parts[spec.name]
        if len(parts) == 1:
            # `np.array` copies the block, so that the file's pages can be forgotten.
            return np.array(np.frombuffer(parts[0], spec.dtype).reshape(spec.shape)[region])
        # A tensor in several values: a row can begin in one and end in another.
        row_bytes = spec.dtype.itemsize * int(np.prod(spec.shape[1:], dtype=np.int64))
        values = np.empty(region_shape(region), spec.dtype)
        interval, start = region[0], 0
        for part in parts:
            end = start + len(part)
            # Whole rows of this part: the first one that begins in it, and the last one that ends in it.
            low, high = max(interval.start, -(-start // row_bytes)), min(interval.stop, end // row_bytes)
            if low < high:
                rows = np.frombuffer(part[low * row_bytes - start : high * row_bytes - start], spec.dtype)
                inside = rows.reshape(high - low, *spec.shape[1:])[(slice(None), *region[1:])]
                values[low - interval.start : high - interval.start] = inside
            # A row that two parts share is put together from both.
            if end % row_bytes and interval.start <= (split := end // row_bytes) < interval.stop:
                row = np.frombuffer(_joined(parts, split * row_bytes, row_bytes), spec.dtype)
                values[split - interval.start] = row.reshape(spec.shape[1:])[region[1:]]
            start = end
        return values

    def crc32(self, name: str) -> int:
        """CRC-32 of a tensor's bytes, which are not copied."""
        checksum = 0
        for part in self._parts[name]:
            checksum = zlib.crc32(part, checksum)
        return checksum

    def text(self, name: str) -> str:
        """A string of the file."""
        return _ckpt_format.text_of(_ckpt_format.StoredTensor(name, (), None, self._parts[name]))

    def rename(self, old: str, new: str) -> None:
        """Give a tensor another name."""
        spec = self.specs.pop(old)
        # The spec carries the name too.
        self.specs[new] = TensorSpec(new, spec.shape, spec.dtype)
        self._parts[new] = self._parts.pop(old)

    def release(self) -> None:
        """Let the system forget the pages that were read, so that a long conversion does not look large."""
        # Linux alone has this advice.
        if self._mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._mapped.madvise(mmap.MADV_DONTNEED)


def _joined(parts: Iterable[memoryview], first: int, size: int) -> bytes:
    """Some bytes of a tensor in several values."""
    pieces, start = [], 0
    for part in parts:
        # Negative bounds would count from the end, hence the maxima.
        pieces.append(part[max(0, first - start) : max(0, first + size - start)])
        start += len(part)
    return b"".join(pieces)


def open_checkpoint(where: str, path: str | Path, *, verify: bool = False) -> CheckpointFile:
    """Open a ``.ckpt`` or ``.safetensors`` file.

    Args:
        where: what errors name.
        path: of the file.
        verify: compare the checksum first, which reads all of the file.

    Raises:
        SporaxValueError: there is no such file, or it is broken.
        SporaxNotImplementedError: it is encrypted.
    """
    path = Path(path)
    if path.suffix not in SUFFIXES or not path.is_file():
        raise SporaxValueError(f"For '{where}', '{path}' must be an existing .ckpt or .safetensors file, but is none.")
    mapped = None
    with open(path, "rb") as file:
        # An empty file cannot be mapped.
        if os.fstat(file.fileno()).st_size:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    content = memoryview(mapped if mapped is not None else b"")
    if int.from_bytes(content[:4], "little") == _ENCRYPTED_MAGIC and path.suffix == ".ckpt":
        raise SporaxNotImplementedError(
            f"For '{where}', the file '{path}' is encrypted, which is not offered here; load it with MindSpore and its key, "
            "and save it again without."
        )
    try:
        specs, parts, metadata = (
            _ckpt_contents(content, verify) if path.suffix == ".ckpt" else _safetensors_contents(content, verify)
        )
    except CorruptCheckpointError as error:
        raise SporaxValueError(f"For '{where}', the file '{path}' cannot be read: {error}.") from None
    opened = CheckpointFile(path, specs, metadata, 0, parts, mapped)
    # Parsing has touched pages all over the file.
    opened.release()
    return opened


_Contents = tuple[dict[str, TensorSpec], dict[str, tuple[memoryview, ...]], dict[str, str]]


def _ckpt_contents(content: memoryview, verify: bool) -> _Contents:
    tensors = {tensor.name: tensor for tensor in _ckpt_format.tensors(content, verify=verify)}
    # Our own entry is no Parameter.
    layout = tensors.pop(LAYOUT, None)
    metadata = {} if layout is None else {LAYOUT: _ckpt_format.text_of(layout)}
    specs = {name: TensorSpec(name, tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
    return specs, {name: tensor.parts for name, tensor in tensors.items()}, metadata


def _safetensors_contents(content: memoryview, verify: bool) -> _Contents:
    if verify:
        # The checked reading raises; its entries are not needed.
        _safetensors_format.read(content)
    tensors, metadata = _safetensors_format.tensors(content)
    specs = {name: TensorSpec(name, stored.view.shape, stored.view.dtype) for name, stored in tensors.items()}
    parts: dict[str, tuple[memoryview, ...]] = {
        name: (content[stored.offset : stored.offset + stored.view.nbytes],) for name, stored in tensors.items()
    }
    return specs, parts, metadata


# -------------------------------------------------------------------------------------------------------------- writing


def write_stream(
    path: str | Path,
    specs: Sequence[TensorSpec],
    values: Callable[[TensorSpec], np.ndarray[Any, Any] | str],
    metadata: Callable[[Mapping[str, int]], Mapping[str, str]] | None = None,
) -> int:
    """Write a checkpoint, one tensor after the other, all of it or nothing.

    Args:
        path: of the file; the suffix says the format.
        specs: what it will hold.
        values: gives the values of each; called in the file's order.
        metadata: further strings by name, from the CRC-32 of each tensor's bytes: entries of a safetensors header, or strings
            behind the tensors of a ``.ckpt`` file. Called twice for a header, first with the largest numbers.

    Returns:
        Bytes of the file.

    Raises:
        SporaxTypeError: the format does not have a dtype, or strings.
        OSError: the file cannot be written.
    """
    path = Path(path)
    further = metadata or (lambda checksums: {})
    # Before the file is begun: half of it would be written in vain.
    if path.suffix == ".safetensors":
        _check_safetensors(specs)
    with atomic_write(path) as file:
        if path.suffix == ".safetensors":
            arrays = cast("Callable[[TensorSpec], np.ndarray[Any, Any]]", values)  # checked: it has no strings
            _safetensors_format.write_stream(file, specs, arrays, further)
        else:
            checksums: dict[str, int] = {}
            # A generator, so that one tensor at a time is in memory.
            tensors = (Entry(spec.name, values(spec)) for spec in specs)
            # The checksums are complete only when the generator has reached its end.
            _ckpt_format.write(file, chain(tensors, _later(lambda: further(checksums))), checksums)
        return file.tell()


def _later(texts: Callable[[], Mapping[str, str]]) -> Iterator[Entry]:
    """Strings that are made when their turn comes."""
    for name, text in texts().items():
        yield Entry(name, text)


def _check_safetensors(specs: Iterable[TensorSpec]) -> None:
    for spec in specs:
        if spec.dtype is None or spec.dtype not in _safetensors_format.NAMES:
            kind = "a string" if spec.dtype is None else spec.dtype
            raise SporaxTypeError(
                f"The format 'safetensors' has no place for '{spec.name}', which is {kind}; write '.ckpt' instead."
            )


def rank_files(directory: Path) -> Iterator[tuple[int, Path]]:
    """The last file of each ``rank_N`` in a directory, by name; ``.safetensors`` where there is no ``.ckpt``."""
    # The order of `iterdir` is that of the file system.
    for folder in sorted(directory.iterdir()):
        number = folder.name.removeprefix("rank_")
        if folder.is_dir() and number != folder.name and number.isdecimal():
            for suffix in SUFFIXES:
                # Hidden files are those that `atomic_write` is still writing.
                files = sorted(path for path in folder.glob(f"*{suffix}") if not path.name.startswith("."))
                if files:
                    yield int(number), files[-1]
                    break
