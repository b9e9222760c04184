"""The TFRecord format, and the `tf.train.Example` messages in it; read by hand, as it is small.

A file is a sequence of records: length (8 bytes), its checksum (4), content, its checksum (4). A message is protobuf:
``features { feature { key, value { bytes_list | float_list | int64_list } } }``.
"""

from __future__ import annotations

import gzip
import mmap
import struct
import zlib
from functools import cache
from pathlib import Path

import numpy as np

from sporax.base.errors import SporaxRuntimeError
from sporax.mindspore._protobuf import fields, numbers
from sporax.mindspore.dataset._rows import Array

Values = list[bytes] | Array

# Bytes per step: the tables take 1 KiB for each of them, 4 MiB in all.
_BLOCK = 4096
# The polynomial of CRC-32C (Castagnoli), bits reversed.
_POLYNOMIAL = 0x82F63B78


@cache
def _crc_tables() -> Array:
    """[k, byte]: what a byte does to the checksum of a block if k bytes follow it."""
    values = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        values = (values >> np.uint32(1)) ^ np.where(values & 1, np.uint32(_POLYNOMIAL), np.uint32(0))
    # Row k: the byte's effect after k zero bytes, so that a block is one XOR over a look-up.
    tables = np.empty((_BLOCK, 256), np.uint32)
    tables[0] = values
    for k in range(1, _BLOCK):
        tables[k] = tables[0][tables[k - 1] & 0xFF] ^ (tables[k - 1] >> np.uint32(8))
    return tables


def crc32c(data: bytes | memoryview) -> int:
    """The CRC-32C of `data`: a table look-up per byte, block by block, all of a block at once."""
    tables = _crc_tables()
    value = 0xFFFFFFFF
    content = np.frombuffer(data, np.uint8)
    for start in range(0, len(content), _BLOCK):
        # A copy, since the state goes into the first four bytes.
        block = content[start : start + _BLOCK].copy()
        head = min(4, len(block))
        block[:head] ^= np.frombuffer(struct.pack("<I", value), np.uint8)[:head]
        # A block of less than four bytes keeps the state's high bytes.
        rest = 0 if head == 4 else value >> 8 * head
        value = int(np.bitwise_xor.reduce(tables[np.arange(len(block) - 1, -1, -1), block])) ^ rest
    return value ^ 0xFFFFFFFF


def masked_crc32c(data: bytes | memoryview) -> int:
    """The checksum as TFRecord files hold it."""
    value = crc32c(data)
    # TensorFlow's mask: a rotation by 15 bits and a constant, so that a checksum of checksums stays useful.
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF


def find_records(where: str, path: Path, compression: str) -> list[memoryview]:
    """The records of a file, each with its header and checksums; their contents are not looked at yet.

    A file that is not compressed is mapped into memory rather than read.

    Args:
        where: name of the data set, for messages.
        path: the file.
        compression: "", "GZIP" or "ZLIB".

    Raises:
        SporaxRuntimeError: it cannot be read, or a record is truncated; the message names record and offset.
    """
    view, start = _content(where, path, compression), 0
    records: list[memoryview] = []
    while start < len(view):
        fault = _fault(view, start)
        if fault:
            raise SporaxRuntimeError(
                f"For '{where}', {str(path)!r} cannot be opened, not valid TFRecordDataset files: record {len(records)} at "
                f"offset {start} {fault}."
            )
        (length,) = struct.unpack_from("<Q", view, start)
        # A view, not a copy: a mapped file is read when the row is.
        records.append(view[start : start + length + 16])
        start += length + 16
    return records


def _content(where: str, path: Path, compression: str) -> memoryview:
    try:
        if compression:
            content = path.read_bytes()
            return memoryview(gzip.decompress(content) if compression == "GZIP" else zlib.decompress(content))
        with path.open("rb") as file:
            # An empty file cannot be mapped.
            empty = not path.stat().st_size
            return memoryview(b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, EOFError, zlib.error) as error:
        raise SporaxRuntimeError(f"For '{where}', the file {str(path)!r} cannot be read: {error}") from error


def _fault(view: memoryview, start: int) -> str:
    """What is wrong with the header of the record at `start`."""
    if len(view) - start < 12:
        return "has no whole header"
    length, checksum = struct.unpack_from("<QI", view, start)
    if checksum != masked_crc32c(view[start : start + 8]):
        return "has a length that does not fit its checksum"
    # 12 bytes of header in front, 4 of checksum behind.
    if len(view) - start - 16 < length:
        return f"must have {length} bytes, but only {max(len(view) - start - 16, 0)} are left"
    return ""


def content_of(record: memoryview) -> memoryview:
    """The content of a record.

    Raises:
        ValueError: it does not fit its checksum.
    """
    # Checked when a row is read: checking all at the start would read the whole file.
    content = record[12:-4]
    if struct.unpack("<I", record[-4:])[0] != masked_crc32c(content):
        raise ValueError("the content does not fit its checksum")
    return content


def parse_example(message: memoryview) -> dict[str, Values]:
    """The features of an Example by name: lists of bytes, or arrays of float32 or int64.

    Raises:
        ValueError: it is none.
    """
    features: dict[str, Values] = {}
    for number, content in fields(message):
        if number == 1:
            for entry in (value for inner, value in fields(_message(content)) if inner == 1):
                # `dict`: in protobuf the last of repeated fields counts.
                parts = dict(fields(_message(entry)))
                features[bytes(_message(parts.get(1, memoryview(b"")))).decode()] = _feature(
                    _message(parts.get(2, memoryview(b"")))
                )
    return features


def _feature(message: memoryview) -> Values:
    for number, content in fields(message):
        items = [value for inner, value in fields(_message(content)) if inner == 1]
        if number == 1:
            # The number says the type: 1 bytes, 2 floats, 3 integers.
            return [bytes(_message(item)) for item in items]
        if number == 2:
            return np.concatenate(
                # Packed or one by one: writers may choose.
                [np.frombuffer(_message(item), "<f4") for item in items] or [np.zeros(0, np.float32)]
            )
        if number == 3:
            values = [value for item in items for value in numbers(item)]
            # Negative numbers are stored as 64-bit two's complement.
            return np.array(values, np.uint64).astype(np.int64)
    return []


def _message(value: memoryview | int) -> memoryview:
    if isinstance(value, int):
        raise ValueError("a number where a message should be")
    return value
