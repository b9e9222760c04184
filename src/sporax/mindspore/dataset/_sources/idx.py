"""The idx file format of MNIST: a big-endian header (magic, sizes), then values. Plain or gzip-compressed."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from sporax.base.errors import SporaxRuntimeError
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
        raise SporaxRuntimeError(
            f"For '{where}', the magic number of {str(path)!r} at offset 0 must be {magic}, but got {first}."
        )
    have = len(content) - header
    # Bytes behind the data are ignored, as in MindSpore.
    if have < math.prod(shape) * dtype.itemsize:
        record = math.prod(shape[1:]) * dtype.itemsize
        raise SporaxRuntimeError(
            f"For '{where}', {str(path)!r} must hold {shape[0]} records of {record} bytes after its header, but it "
            f"ends in record {have // max(record, 1)} at offset {len(content)}; the file is truncated."
        )
    return np.frombuffer(content, dtype, math.prod(shape), header).reshape(shape)
