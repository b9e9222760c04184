"""Checkpoint files, one tensor at a time: blocks of values are read, and whole files written, without a second copy.

A file is mapped into memory; opening it reads names, shapes and dtypes alone. `CheckpointFile.read` copies one block of one
tensor, and counts the bytes. `write_stream` takes tensors as they are made, so a conversion needs the memory of the largest
one. The checksum of a safetensors file is before its values; it is put there at the end, from the checksums of the
tensors (CRC-32 of a concatenation, computed with matrices over GF(2) as in zlib's ``crc32_combine``).
"""

from __future__ import annotations

import json
import mmap
import os
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from sporax.ir.atomic_file import atomic_write
from sporax.ir.errors import SporaxNotImplementedError, SporaxTypeError, SporaxValueError
from sporax.train import _ckpt_format, _safetensors_format
from sporax.train._entries import CorruptCheckpointError, Entry
from sporax.train.checkpoint.slices import Region, Shape, region_shape

SUFFIXES = (".ckpt", ".safetensors")
_ENCRYPTED_MAGIC = 0x7F3A5ED8  # the first four bytes of MindSpore's encrypted files, little-endian
_CRC_DIGITS = 10  # 2**32 has that many
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
        with _counting:
            self.bytes_read += values.nbytes
        return values

    def _rows(self, spec: TensorSpec, region: Region) -> np.ndarray[Any, Any]:
        assert spec.dtype is not None, spec.name
        parts = self._parts[spec.name]
        if len(parts) == 1:
            return np.array(np.frombuffer(parts[0], spec.dtype).reshape(spec.shape)[region])
        # A tensor in several values: a row can begin in one and end in another.
        row_bytes = spec.dtype.itemsize * int(np.prod(spec.shape[1:], dtype=np.int64))
        values = np.empty(region_shape(region), spec.dtype)
        wanted, start = region[0], 0
        for part in parts:
            end = start + len(part)
            low, high = max(wanted.start, -(-start // row_bytes)), min(wanted.stop, end // row_bytes)
            if low < high:
                rows = np.frombuffer(part[low * row_bytes - start : high * row_bytes - start], spec.dtype)
                inside = rows.reshape(high - low, *spec.shape[1:])[(slice(None), *region[1:])]
                values[low - wanted.start : high - wanted.start] = inside
            if end % row_bytes and wanted.start <= (split := end // row_bytes) < wanted.stop:
                row = np.frombuffer(_joined(parts, split * row_bytes, row_bytes), spec.dtype)
                values[split - wanted.start] = row.reshape(spec.shape[1:])[region[1:]]
            start = end
        return values

    def crc32(self, name: str) -> int:
        """CRC-32 of a tensor's bytes, which are not copied."""
        found = 0
        for part in self._parts[name]:
            found = zlib.crc32(part, found)
        return found

    def text(self, name: str) -> str:
        """A string of the file."""
        return _ckpt_format.text_of(_ckpt_format.StoredTensor(name, (), None, self._parts[name]))

    def rename(self, old: str, new: str) -> None:
        """Give a tensor another name."""
        spec = self.specs.pop(old)
        self.specs[new] = TensorSpec(new, spec.shape, spec.dtype)
        self._parts[new] = self._parts.pop(old)

    def release(self) -> None:
        """Let the system forget the pages that were read, so that a long conversion does not look large."""
        if self._mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._mapped.madvise(mmap.MADV_DONTNEED)


def _joined(parts: Iterable[memoryview], first: int, size: int) -> bytes:
    """Some bytes of a tensor in several values."""
    pieces, start = [], 0
    for part in parts:
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
    found = CheckpointFile(path, specs, metadata, 0, parts, mapped)
    found.release()
    return found


_Contents = tuple[dict[str, TensorSpec], dict[str, tuple[memoryview, ...]], dict[str, str]]


def _ckpt_contents(content: memoryview, verify: bool) -> _Contents:
    tensors = {tensor.name: tensor for tensor in _ckpt_format.tensors(content, verify=verify)}
    layout = tensors.pop(LAYOUT, None)
    metadata = {} if layout is None else {LAYOUT: _ckpt_format.text_of(layout)}
    specs = {name: TensorSpec(name, tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
    return specs, {name: tensor.parts for name, tensor in tensors.items()}, metadata


def _safetensors_contents(content: memoryview, verify: bool) -> _Contents:
    if verify:
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
    metadata: Mapping[str, str] | None = None,
) -> int:
    """Write a checkpoint, one tensor after the other, all of it or nothing.

    Args:
        path: of the file; the suffix says the format.
        specs: what it will hold.
        values: gives the values of each; called in the file's order.
        metadata: further entries of a safetensors header.

    Returns:
        Bytes of the file.

    Raises:
        SporaxTypeError: the format does not have a dtype, or strings.
        OSError: the file cannot be written.
    """
    path = Path(path)
    if path.suffix == ".safetensors":
        _check_safetensors(specs)
    with atomic_write(path) as file:
        if path.suffix == ".safetensors":
            _write_safetensors(file, specs, values, dict(metadata or {}))
        else:
            _ckpt_format.write(file, (Entry(spec.name, values(spec)) for spec in specs), with_crc=True)
        return file.tell()


def _check_safetensors(specs: Iterable[TensorSpec]) -> None:
    for spec in specs:
        if spec.dtype is None or spec.dtype not in _safetensors_format.NAMES:
            kind = "a string" if spec.dtype is None else spec.dtype
            raise SporaxTypeError(
                f"The format 'safetensors' has no place for '{spec.name}', which is {kind}; write '.ckpt' instead."
            )


def _write_safetensors(
    file: BinaryIO,
    specs: Sequence[TensorSpec],
    values: Callable[[TensorSpec], np.ndarray[Any, Any] | str],
    metadata: dict[str, str],
) -> None:
    ordered = sorted(specs, key=lambda spec: (-spec.dtype.itemsize if spec.dtype else 0, spec.name))
    metadata = {"format": "ms", **metadata}
    head = _safetensors_head(ordered, {**metadata, "crc_num": "0" * _CRC_DIGITS})
    file.write(head)
    sums: dict[str, tuple[int, int]] = {}
    for spec in ordered:
        array = np.ascontiguousarray(values(spec)).reshape(-1)
        content = array.view(np.uint8).data if array.size else memoryview(b"")
        file.write(content)
        sums[spec.name] = (zlib.crc32(content), len(content))
    checksum = 0
    for name, (value, size) in sorted(sums.items()):
        checksum = combined_crc(zlib.crc32(name.encode(), checksum), value, size)
    end = file.tell()
    file.seek(0)
    file.write(_safetensors_head(ordered, {**metadata, "crc_num": str(checksum)}, len(head)))
    file.seek(end)


def _safetensors_head(specs: Sequence[TensorSpec], metadata: dict[str, str], size: int | None = None) -> bytes:
    header: dict[str, Any] = {"__metadata__": metadata}
    place = 0
    for spec in specs:
        assert spec.dtype is not None, spec.name
        end = place + spec.dtype.itemsize * int(np.prod(spec.shape, dtype=np.int64))
        header[spec.name] = {
            "dtype": _safetensors_format.NAMES[spec.dtype],
            "shape": list(spec.shape),
            "data_offsets": [place, end],
        }
        place = end
    text = json.dumps(header, separators=(",", ":")).encode()
    length = len(text) + -len(text) % 8 if size is None else size - 8
    return length.to_bytes(8, "little") + text.ljust(length)


def combined_crc(first: int, second: int, second_bytes: int) -> int:
    """CRC-32 of two pieces one after the other, from the CRC-32 of each.

    Args:
        first, second: the checksums.
        second_bytes: length of the second piece.
    """
    # Appending one zero bit is a linear map on the 32 bits of the register; squaring it doubles the number of bits.
    zero_bit = [0xEDB88320, *(1 << bit for bit in range(31))]
    operator, bits = zero_bit, second_bytes * 8
    while bits:
        if bits & 1:
            first = _times(operator, first)
        operator = [_times(operator, column) for column in operator]
        bits >>= 1
    return first ^ second


def _times(matrix: Sequence[int], vector: int) -> int:
    product = 0
    for column in matrix:
        if vector & 1:
            product ^= column
        vector >>= 1
        if not vector:
            break
    return product


def rank_files(directory: Path) -> Iterator[tuple[int, Path]]:
    """The last file of each ``rank_N`` in a directory, by name; ``.safetensors`` where there is no ``.ckpt``."""
    for folder in sorted(directory.iterdir()):
        number = folder.name.removeprefix("rank_")
        if folder.is_dir() and number != folder.name and number.isdecimal():
            for suffix in SUFFIXES:
                files = sorted(path for path in folder.glob(f"*{suffix}") if not path.name.startswith("."))
                if files:
                    yield int(number), files[-1]
                    break
