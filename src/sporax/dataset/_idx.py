"""The idx file format of MNIST: a big-endian header (magic, sizes), then bytes. Plain or gzip-compressed."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np

from sporax.dataset._rows import Array
from sporax.ir.errors import SporaxRuntimeError

IMAGES_MAGIC = 2051
LABELS_MAGIC = 2049


def read_bytes(path: Path) -> bytes:
    """The file's content, decompressed where its name ends in .gz.

    Raises:
        SporaxRuntimeError: the file cannot be read or decompressed.
    """
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if path.suffix == ".gz" else content
    except (OSError, EOFError, zlib.error) as error:
        raise SporaxRuntimeError(f"For '{path.name}', the file {str(path)!r} cannot be read: {error}") from error


def read_idx(path: Path, magic: int, dims: int) -> Array:
    """The array (uint8, `dims` dimensions) of an idx file.

    Args:
        path: the file.
        magic: its first number.
        dims: number of sizes in the header.

    Raises:
        SporaxRuntimeError: not such a file, or not as long as its header says.
    """
    content = read_bytes(path)
    header = 4 * (1 + dims)
    if len(content) < header:
        raise SporaxRuntimeError(
            f"For '{path.name}', the file {str(path)!r} must begin with {header} header bytes, but has {len(content)}."
        )
    found, *shape = struct.unpack(f">{1 + dims}I", content[:header])
    if found != magic:
        raise SporaxRuntimeError(
            f"For '{path.name}', the magic number of {str(path)!r} at offset 0 must be {magic}, but got {found}."
        )
    size = math.prod(shape)
    have = len(content) - header
    if have < size:
        record = math.prod(shape[1:])
        raise SporaxRuntimeError(
            f"For '{path.name}', {str(path)!r} must hold {shape[0]} records of {record} bytes after its header, but it "
            f"ends in record {have // max(record, 1)} at offset {len(content)}; the file is truncated."
        )
    return np.frombuffer(content, np.uint8, size, header).reshape(shape)
