"""Files of tensors, one tensor at a time: blocks of values are read, and whole files written, without a second copy.

A file is mapped into memory; opening it reads names, shapes and dtypes alone. `TensorFile.read` copies one block of one
tensor, and counts the bytes. `write_safetensors` takes tensors as they are made, so it needs the memory of the largest one.
"""

from __future__ import annotations

import mmap
import os
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np

from sporax.base.atomic_file import atomic_write
from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.base.lazy_members import dataclass
from sporax.runtime.storage import safetensors_format
from sporax.runtime.storage.entries import CorruptCheckpointError, Region, StoredTensor, region_shape

_counting = threading.Lock()
"""Several threads may read a file."""


@dataclass(slots=True)
class TensorFile:
    """An open file of tensors.

    Attributes:
        path: of the file.
        specs: what it holds, in its order.
        metadata: of a safetensors file.
        bytes_read: of values that were copied so far.
    """

    path: Path
    specs: dict[str, StoredTensor]
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

    def _rows(self, spec: StoredTensor, region: Region) -> np.ndarray[Any, Any]:
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

    def content(self, name: str) -> bytes:
        """The bytes of a tensor, or of a string as its format writes it."""
        return b"".join(self._parts[name])

    def rename(self, old: str, new: str) -> None:
        """Give a tensor another name."""
        spec = self.specs.pop(old)
        # The spec carries the name too.
        self.specs[new] = StoredTensor(new, spec.shape, spec.dtype)
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


Contents = tuple[dict[str, StoredTensor], dict[str, tuple[memoryview, ...]], dict[str, str]]
"""What a format reads: the tensors, their bytes (views of the file), and the strings of the header."""


def open_mapped(path: Path, parse: Callable[[memoryview], Contents]) -> TensorFile:
    """Map a file into memory and read what it holds; `parse` reads its format.

    Raises:
        CorruptCheckpointError: of `parse`.
    """
    mapped = None
    with open(path, "rb") as file:
        # An empty file cannot be mapped.
        if os.fstat(file.fileno()).st_size:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    specs, parts, metadata = parse(memoryview(mapped if mapped is not None else b""))
    opened = TensorFile(path, specs, metadata, 0, parts, mapped)
    # Parsing has touched pages all over the file.
    opened.release()
    return opened


def open_safetensors(where: str, path: Path, *, verify: bool = False) -> TensorFile:
    """Open a safetensors file.

    Args:
        verify: compare the checksum first, which reads all of the file.

    Raises:
        SporaxValueError: there is no such file, or it is broken.
    """
    try:
        return open_mapped(path, lambda content: safetensors_contents(content, verify))
    except (CorruptCheckpointError, OSError) as error:
        raise SporaxValueError(f"For '{where}', the file '{path}' cannot be read: {error}.") from None


def safetensors_contents(content: memoryview, verify: bool) -> Contents:
    """What is in a safetensors file; `verify` compares its checksum first."""
    if verify:
        # The checked reading raises; its entries are not needed.
        safetensors_format.read(content)
    entries, metadata = safetensors_format.tensors(content)
    parts: dict[str, tuple[memoryview, ...]] = {
        entry.name: (safetensors_format.content_of(entry.array),) for entry in entries
    }
    return {entry.name: StoredTensor.of(entry.name, entry.array) for entry in entries}, parts, metadata


def write_safetensors(
    path: Path,
    specs: Sequence[StoredTensor],
    values: Callable[[StoredTensor], np.ndarray[Any, Any]],
    metadata: Callable[[Mapping[str, int]], Mapping[str, str]],
) -> int:
    """Write a safetensors file, one tensor after the other, all of it or nothing; gives its bytes.

    Args:
        values: gives the values of each; called in the file's order.
        metadata: entries of the header, from the CRC-32 of each tensor's bytes; called twice, first with the largest numbers.

    Raises:
        SporaxTypeError: the format does not have a dtype, or strings.
        OSError: the file cannot be written.
    """
    # Before the file is begun: half of it would be written in vain.
    check_safetensors(specs)
    with atomic_write(path) as file:
        safetensors_format.write_stream(file, specs, values, metadata)
        return file.tell()


def check_safetensors(specs: Iterable[StoredTensor], instead: str = "") -> None:
    """Raise SporaxTypeError for what a safetensors file cannot hold; `instead` is what the message advises."""
    for spec in specs:
        if spec.dtype is None:
            raise SporaxTypeError(f"The format 'safetensors' has no strings, but '{spec.name}' is one{instead}.")
        if spec.dtype not in safetensors_format.NAMES:
            raise SporaxTypeError(f"The format 'safetensors' has no {spec.dtype}, but '{spec.name}' is of it{instead}.")
