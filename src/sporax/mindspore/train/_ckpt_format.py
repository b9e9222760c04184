"""MindSpore's own checkpoint format, ``.ckpt``.

Such a file is one protobuf message ``Checkpoint { repeated Value value = 1 }`` with
``Value { string tag = 1; TensorProto tensor = 2 }`` and
``TensorProto { repeated int64 dims = 1; string tensor_type = 2; bytes tensor_content = 3 }``. Large tensors are several
Values of one tag that follow each other. Behind the message there may be ``crc_num`` and ten bytes with the CRC-32 of it.

Those few fields are read and written by hand (`sporax.mindspore._protobuf`) rather than with the protobuf library: it needs no
further dependency, streams tensors to the file without a second copy, and can say *where* a file is broken.
"""

from __future__ import annotations

import math
import reprlib
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import numpy as np

from sporax.mindspore import _protobuf as protobuf
from sporax.mindspore.common import dtype as dtypes
from sporax.runtime import storage

# 512 MiB: protobuf's limit for one message is 2 GiB.
SLICE_BYTES = 512 << 20
"""Tensors larger than this are written as several Values."""

_CRC_TAG = b"crc_num"
_CRC_BYTES = 10
_TEXT_TYPE = "str"
_DTYPES: dict[str, np.dtype[Any]] = {str(dtype): dtype.np_dtype for dtype in dtypes.all_types}


Parts = tuple[memoryview, ...]
"""The bytes of a tensor, views of the file."""


def write(file: BinaryIO, entries: Iterable[storage.CheckpointEntry], checksums: dict[str, int] | None = None) -> None:
    """Write `entries` in their order, and a checksum of everything.

    Args:
        file: open for writing.
        entries: name and value (array or string) each.
        checksums: gets the CRC-32 of each one's content by name, before the next one is taken from `entries`.
    """
    checksum = 0
    with storage.CheckedWriter(file) as writer:
        for entry in entries:
            content = 0
            for head, part in _pieces(entry):
                file.write(head)
                checksum = zlib.crc32(head, checksum)
                of_part = writer.write(part)
                # The checksum of the whole file is put together from those of its parts, which another thread computes.
                checksum = storage.combined_crc(checksum, of_part, len(part))
                content = storage.combined_crc(content, of_part, len(part))
            if checksums is not None:
                checksums[entry.name] = content
    file.write(_CRC_TAG + checksum.to_bytes(_CRC_BYTES, "big"))


def _pieces(entry: storage.CheckpointEntry) -> Iterator[tuple[bytes, memoryview]]:
    """What is before each part of the content, and the part."""
    if isinstance(entry.value, str):
        # MindSpore stores strings as arrays of four bytes per character.
        dims, kind, content = (0,), _TEXT_TYPE, memoryview(entry.value.encode("utf-32-le"))
    else:
        array = np.ascontiguousarray(entry.value)
        dims, kind = entry.value.shape, str(dtypes.from_numpy(array.dtype))
        content = array.reshape(-1).view(np.uint8).data if array.size else memoryview(b"")
    # At least one part, so that an empty tensor has a value.
    for start in range(0, max(len(content), 1), SLICE_BYTES):
        part = content[start : start + SLICE_BYTES]
        # Lengths come before their contents in protobuf, and the content of the part is written later.
        head = b"".join(protobuf.number(1, dim) for dim in dims)
        head += protobuf.message(2, kind.encode()) + _head(3, len(part))
        tag = protobuf.message(1, entry.name.encode())
        tensor = _head(2, len(head) + len(part)) + head
        yield _head(1, len(tag) + len(tensor) + len(part)) + tag + tensor, part


def _head(field: int, size: int) -> bytes:
    return protobuf.key(field, protobuf.BYTES) + protobuf.varint(size)


def parsed(content: memoryview) -> list[storage.CheckpointEntry]:
    """Entries of a checkpoint, in their order, without a look at the values; arrays are views of `content`.

    Args:
        content: the whole file.

    Raises:
        CorruptCheckpointError: the bytes are no such message, or are truncated.
    """
    try:
        return [_entry(*tensor) for tensor in tensors(content, verify=False)]
    except storage.CorruptCheckpointError as error:
        # A wrong checksum says more than the place at which parsing failed.
        mismatch = _mismatch(content)
        raise storage.CorruptCheckpointError(f"{error}; {mismatch}" if mismatch else str(error)) from None


def check_sum(content: memoryview) -> None:
    """Compare the checksum, where the file has one.

    Raises:
        CorruptCheckpointError: the content has another one.
    """
    mismatch = _mismatch(content)
    if mismatch:
        raise storage.CorruptCheckpointError(mismatch)


def tensors(content: memoryview, *, verify: bool) -> Iterator[tuple[storage.StoredTensor, Parts]]:
    """What a checkpoint holds with its bytes, in its order, without touching the values.

    Args:
        content: the whole file.
        verify: compare the checksum, which reads every byte.

    Raises:
        CorruptCheckpointError: the bytes are no such message, are truncated, or do not have the checksum they carry.
    """
    if not content:
        raise storage.CorruptCheckpointError("it is empty")
    if verify:
        check_sum(content)
    for name, dims, kind, parts in _groups(_body(content)):
        dtype = None if kind == _TEXT_TYPE else _dtype(name, kind)
        size = sum(map(len, parts))
        # Older files give a scalar the shape (0,).
        shape = () if dtype is not None and dims == (0,) and size == dtype.itemsize else storage.check_shape(name, dims)
        if dtype is not None and size != (expected := math.prod(shape) * dtype.itemsize):
            raise storage.CorruptCheckpointError(
                f"parameter '{name}' of shape {shape} and dtype {kind} must have {expected} bytes, but has {size}"
            )
        yield storage.StoredTensor(name, shape, dtype), tuple(parts)


def text_of(parts: Iterable[memoryview]) -> str:
    """The string that a tensor without a dtype is."""
    # Zeros behind the text fill the array up.
    return _text(memoryview(b"".join(parts)), "utf-32-le").rstrip("\0")


def _groups(content: memoryview) -> Iterator[tuple[str, tuple[int, ...], str, list[memoryview]]]:
    """Name, dims, dtype and the parts of the bytes of every tensor."""
    name, dims, kind = "", tuple[int, ...](), ""
    parts: list[memoryview] = []
    done: set[str] = set()
    for tag, shape, tensor_type, data in _values(content):
        # Another name begins: the tensor before is complete.
        if parts and tag != name:
            yield name, dims, kind, parts
            parts = []
            done.add(name)
        if tag in done:
            raise storage.CorruptCheckpointError(f"parameter '{tag}' is there twice")
        # Slices of one tensor repeat its shape and dtype.
        if parts and (shape, tensor_type) != (dims, kind):
            raise storage.CorruptCheckpointError(
                f"parameter '{tag}' is there twice, or its slices do not fit: one is {reprlib.repr(dims)} of {kind!r}, another "
                f"{reprlib.repr(shape)} of {tensor_type!r}"
            )
        name, dims, kind = tag, shape, tensor_type
        parts.append(data)
    if parts:
        yield name, dims, kind, parts


def _values(content: memoryview) -> Iterator[tuple[str, tuple[int, ...], str, memoryview]]:
    """Name, dims, dtype and bytes of every value; an error says behind which parameter it is."""
    name = ""
    try:
        for number, value in _fields(content):
            if number != 1:
                raise storage.CorruptCheckpointError(f"field {number} of the checkpoint is unknown")
            array = _value(_message(value))
            yield array
            # Only now: errors are placed behind the last whole parameter.
            name = array[0]
    except storage.CorruptCheckpointError as error:
        if "parameter '" in str(error):
            raise
        place = f"behind parameter '{name}'" if name else "in the first parameter"
        raise storage.CorruptCheckpointError(f"{error} ({place})") from None


def _body(content: memoryview) -> memoryview:
    """The message, without the checksum behind it."""
    return content[: len(content) - len(_CRC_TAG) - _CRC_BYTES] if has_checksum(content) else content


def _mismatch(content: memoryview) -> str:
    """What is wrong with a file's checksum; "" where it has none, or a right one."""
    if not has_checksum(content):
        return ""
    start = len(content) - len(_CRC_TAG) - _CRC_BYTES
    written = int.from_bytes(content[start + len(_CRC_TAG) :], "big")
    checksum = zlib.crc32(content[:start])
    return (
        ""
        if written == checksum
        else f"the file says its CRC-32 is {written:#010x}, but the content has {checksum:#010x}"
    )


def has_checksum(content: memoryview) -> bool:
    """Whether the file carries a checksum."""
    start = len(content) - len(_CRC_TAG) - _CRC_BYTES
    return start >= 0 and content[start : start + len(_CRC_TAG)] == _CRC_TAG


def _value(content: memoryview) -> tuple[str, tuple[int, ...], str, memoryview]:
    fields = {number: _message(value) for number, value in _fields(content)}
    if 1 not in fields:
        raise storage.CorruptCheckpointError("a value has no name")
    name = _text(fields[1])
    # Field 3 of a Value is MindSpore's hash table.
    if 3 in fields:
        raise storage.CorruptCheckpointError(
            f"parameter '{name}' is a MapParameter (hash table), which cannot be loaded here"
        )
    if 2 not in fields:
        raise storage.CorruptCheckpointError(f"parameter '{name}' has no tensor")
    dims: list[int] = []
    kind, data = None, None
    for number, value in _fields(fields[2], name):
        if number == 1:
            dims.extend(_numbers(value, name))
            # Bounded while it is read: a broken file may announce any number of dimensions.
            if len(dims) > storage.MAX_DIMS:
                raise storage.CorruptCheckpointError(
                    f"parameter '{name}' must have at most {storage.MAX_DIMS} dimensions, but has more"
                )
        elif number == 2:
            kind = _text(_message(value, name))
        elif number == 3:
            data = _message(value, name)
    if kind is None or data is None:
        raise storage.CorruptCheckpointError(f"parameter '{name}' has no type or no content")
    return name, tuple(dims), kind, data


def _entry(tensor: storage.StoredTensor, parts: Parts) -> storage.CheckpointEntry:
    if tensor.dtype is None:
        return storage.CheckpointEntry(tensor.name, text_of(parts))
    data = parts[0] if len(parts) == 1 else memoryview(b"".join(parts))
    # A view: large files are mapped, not read.
    return storage.CheckpointEntry(tensor.name, np.frombuffer(data, tensor.dtype).reshape(tensor.shape))


def _dtype(name: str, kind: str) -> np.dtype[Any]:
    if kind not in _DTYPES:
        raise storage.CorruptCheckpointError(
            f"parameter '{name}' has dtype {reprlib.repr(kind)}, which is none of {sorted(_DTYPES)}"
        )
    return _DTYPES[kind]


def _fields(content: memoryview, where: str = "") -> Iterator[tuple[int, int | memoryview]]:
    """Numbers and values of a message's fields."""
    try:
        yield from protobuf.fields(content)
    except protobuf.MessageError as error:
        # The end of the file may be a part of the checksum's tag.
        truncated = not where and _CRC_TAG.startswith(bytes(content[error.place : error.place + len(_CRC_TAG)]))
        raise storage.CorruptCheckpointError(
            _at("its checksum is truncated" if truncated else str(error), where)
        ) from None


def _numbers(value: int | memoryview, where: str) -> list[int]:
    try:
        return protobuf.numbers(value)
    except protobuf.MessageError as error:
        raise storage.CorruptCheckpointError(_at(str(error), where)) from None


def _message(value: Any, where: str = "") -> memoryview:
    """A field's value, which must be bytes."""
    if not isinstance(value, memoryview):
        raise storage.CorruptCheckpointError(_at("a number stands where a name or a tensor should be", where))
    return value


def _text(value: memoryview, encoding: str = "utf-8") -> str:
    try:
        return bytes(value).decode(encoding)
    except UnicodeDecodeError:
        raise storage.CorruptCheckpointError("a name or string is not text") from None


def _at(problem: str, name: str) -> str:
    return f"{problem} (in parameter '{name}')" if name else problem
