"""The byte form of messages: a header, one struct, and raw array frames of at most 4 MiB.

====== ======= ==========================================================
bytes  type    meaning
====== ======= ==========================================================
0-3    bytes   ``SPXP``
4      uint8   version of this format
5-7    bytes   zero
8-11   uint32  bytes of the struct (MessagePack)
12-15  uint32  CRC-32 of the struct
16-23  uint64  bytes of all arrays together
====== ======= ==========================================================

Where one array ends and the next begins is said by the entries of the struct, so it does not matter how a transport divides the
arrays' bytes into frames. Between processes of one machine the arrays may lie in memory that both share (`shared_area`): then
byte 5 is one, and bytes 6 and 7 say where. Nothing is ever unpickled. What does not fit is a `WireError`, which the receiver
counts and drops.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import NoReturn, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from sporax.base.errors import SporaxValueError
from sporax.ps.protocol.messages import AnyMessage, ServerMessage, VariableValues

CHUNK_BYTES = 4 << 20  # frames of 4 MiB let sending and receiving overlap; smaller ones were no faster
# 16 MiB: the struct of the largest slot map is far below.
MAX_STRUCT_BYTES = 16 << 20
# 8 GiB: the arrays of one message.
MAX_BODY_BYTES = 8 << 30
MAX_FRAMES = 0xFFFF
# Magic and version in one comparison.
_MAGIC = b"SPXP\x02\0\0\0"
_EARLIER_MAGIC = b"SPXP\x01\0"
# Of a message whose arrays do not come behind its struct.
_APART_MAGIC = b"SPXP\x02\x01"
APART = 5  # the byte of a header that is one then
HEADER = struct.Struct("<8sIIQ")
_APART_HEADER = struct.Struct("<6sHIIQ")
_HEADER_BYTES = HEADER.size
_pack_header, _unpack_header, _crc32 = HEADER.pack, HEADER.unpack_from, zlib.crc32

Frame = bytes | bytearray | memoryview
Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]

_T = TypeVar("_T", bound=np.generic)

_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[AnyMessage] = msgspec.msgpack.Decoder(AnyMessage)
_decode = _decoder.decode
_frombuffer, _FLOAT32 = np.frombuffer, np.dtype(np.float32)


class WireError(SporaxValueError):
    """Bytes that are not a message."""


def encode(message: ServerMessage, frames: Sequence[Frame] = ()) -> list[Frame]:
    """The frames to send: header and struct, then the arrays."""
    return [head_and_size(message, frames)[0], *frames]


def total_bytes(frames: Sequence[Frame]) -> int:
    """Of all frames together."""
    # One frame is the most frequent case, and needs no iterator.
    return len(frames[0]) if len(frames) == 1 else sum(map(len, frames))


def head_and_size(message: ServerMessage, frames: Sequence[Frame] = ()) -> tuple[bytes, int]:
    """Header and struct of a message, and bytes of all with the arrays that follow."""
    packed = _encode(message)
    length, body = len(packed), total_bytes(frames) if frames else 0
    # Sizes are checked on both sides, so that no sender makes what no receiver takes.
    if length > MAX_STRUCT_BYTES or body > MAX_BODY_BYTES or len(frames) > MAX_FRAMES:
        raise WireError(
            f"For 'sporax.ps', a message must have at most {MAX_FRAMES} frames and {MAX_BODY_BYTES} bytes, "
            f"but got {len(frames)} and {body}."
        )
    return _pack_header(_MAGIC, length, _crc32(packed), body) + packed, _HEADER_BYTES + length + body


def head_apart(message: ServerMessage, place: int, body_bytes: int) -> bytes:
    """Header and struct of a message whose arrays, of so many bytes, lie at a place of shared memory."""
    packed = _encode(message)
    return _APART_HEADER.pack(_APART_MAGIC, place, len(packed), _crc32(packed), body_bytes) + packed


def apart_header_at(buffer: Frame, start: int = 0) -> tuple[int, int, int, int]:
    """As `header_at`, and where the arrays are.

    Raises:
        WireError: not such a header, or too much.
    """
    magic, place, length, checksum, body = _APART_HEADER.unpack_from(buffer, start)
    if magic != _APART_MAGIC:
        raise WireError(f"For 'sporax.ps', a header must begin with {_APART_MAGIC!r}, but got {magic!r}.")
    if length > MAX_STRUCT_BYTES or body > MAX_BODY_BYTES:
        _refuse_size(length, body)
    return length, checksum, body, place


def header_at(buffer: Frame, start: int = 0, max_body_bytes: int = MAX_BODY_BYTES) -> tuple[int, int, int]:
    """Of a header at a place: bytes of the struct that follows, its checksum, and bytes of the arrays behind it.

    Raises:
        WireError: not a header, or too much.
    """
    magic, length, checksum, body = _unpack_header(buffer, start)
    if magic != _MAGIC:
        raise WireError(f"For 'sporax.ps', a header must begin with {_MAGIC!r}, but got {magic!r}.")
    # Before any memory is taken for it.
    if length > MAX_STRUCT_BYTES or body > max_body_bytes:
        _refuse_size(length, body)
    return length, checksum, body


def _refuse_size(length: int, body: int) -> NoReturn:
    raise WireError(f"For 'sporax.ps', a message must not be larger than allowed, but it has {length} + {body} bytes.")


def with_present_header(head: Frame) -> Frame:
    """Header and struct of the version before this one, whose bytes 4 to 7 were a version and a number of frames."""
    return _MAGIC + bytes(head[len(_MAGIC) :]) if bytes(head[:6]) == _EARLIER_MAGIC else head


def decode_struct(packed: Frame, checksum: int) -> ServerMessage:
    """The message in the bytes of a struct.

    Raises:
        WireError: malformed or damaged.
    """
    # A damaged struct could decode into a wrong message.
    if checksum != _crc32(packed):
        raise WireError("For 'sporax.ps', the struct of a message does not fit its header.")
    try:
        return _decode(packed)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise WireError(f"For 'sporax.ps', the struct of a message is malformed: {error}.") from error


def decode(frames: Sequence[Frame], max_body_bytes: int = MAX_BODY_BYTES) -> tuple[ServerMessage, list[Frame]]:
    """The message in received frames, and its array frames.

    Raises:
        WireError: malformed, oversized, or damaged.
    """
    if not frames or len(frames[0]) < HEADER.size:
        raise WireError("For 'sporax.ps', a message must begin with a header, but it is too short.")
    length, checksum, body = header_at(frames[0], 0, max_body_bytes)
    rest = list(frames[1:])
    # The frames must be exactly those that the header announces.
    if length != len(frames[0]) - HEADER.size or body != total_bytes(rest):
        raise WireError("For 'sporax.ps', the struct and the array frames of a message do not fit its header.")
    return decode_struct(memoryview(frames[0])[HEADER.size :], checksum), rest


def chunks(array: npt.NDArray[np.generic]) -> list[Frame]:
    """The bytes of an array in frames of at most `CHUNK_BYTES`, without a copy when it is contiguous."""
    if not array.size:
        return []
    # A view where possible: gradients are large.
    view = array.data
    view = (view if view.c_contiguous else np.ascontiguousarray(array).data).cast("B")
    if len(view) <= CHUNK_BYTES:
        return [view]
    return [view[start : start + CHUNK_BYTES] for start in range(0, len(view), CHUNK_BYTES)]


def check_sizes(entries: Sequence[VariableValues], frames: Sequence[Frame]) -> None:
    """Raise unless frames have exactly the bytes that the entries specify.

    Raises:
        WireError: they have not, or a size is negative.
    """
    expected = 0
    for entry in entries:
        if entry.values < 0 or entry.rows < -1:
            raise WireError("For 'sporax.ps', sizes in an entry must not be negative.")
        expected += max(entry.rows, 0) * 8 + entry.values * 4
    check_total(expected, frames)


def check_total(expected_bytes: int, frames: Sequence[Frame]) -> None:
    """Raise unless frames have so many bytes together.

    Raises:
        WireError: they have not.
    """
    if expected_bytes != total_bytes(frames):
        raise WireError("For 'sporax.ps', the array frames of a message do not fit its entries.")


def entry_arrays(
    entries: Sequence[VariableValues], frames: Sequence[Frame]
) -> list[tuple[VariableValues, Ids | None, Floats | None]]:
    """The entries of a message, each with its row ids and its values; None where it has none.

    Raises:
        WireError: the frames do not have the sizes that the entries specify.
    """
    # The gradient of one parameter, the most frequent message, needs no reader.
    if len(entries) == len(frames) == 1:
        entry, frame = entries[0], frames[0]
        if entry.rows < 0 and len(frame) == 4 * entry.values:
            values = _frombuffer(frame, _FLOAT32)
            if values.flags.aligned:
                return [(entry, None, values)]
    reader = EntryReader(frames)
    taken = [(entry, *reader.take(entry)) for entry in entries]
    reader.finish()
    return taken


class EntryReader:
    """Takes the arrays of entries out of a message's frames, in order. An array within one frame is not copied.

    Raises:
        WireError: the frames do not have the sizes that the entries specify.
    """

    def __init__(self, frames: Iterable[Frame]) -> None:
        self._frames = iter(frames)
        self._rest = memoryview(b"")

    def take(self, entry: VariableValues) -> tuple[Ids | None, Floats | None]:
        """Row ids and values of the next entry; None where it has none."""
        if entry.values < 0 or entry.rows < -1:
            raise WireError("For 'sporax.ps', sizes in an entry must not be negative.")
        ids = self._array(entry.rows, np.int64) if entry.rows >= 0 else None
        values = self._array(entry.values, np.float32) if entry.values else None
        return ids, values

    def array(self, num_bytes: int) -> npt.NDArray[np.uint8]:
        """The next array of so many bytes; it begins where items of any type may."""
        array = self._array(num_bytes, np.uint8)
        return array if array.ctypes.data % 8 == 0 else array.copy()

    def finish(self) -> None:
        """Raise unless all frames were taken."""
        if len(self._rest) or next(self._frames, None) is not None:
            raise WireError("For 'sporax.ps', a message has more array frames than its entries specify.")

    def _array(self, count: int, dtype: type[_T]) -> npt.NDArray[_T]:
        """The next array of so many items."""
        missing = count * np.dtype(dtype).itemsize
        if missing and not len(self._rest):
            # An empty frame is passed over.
            self._rest = memoryview(next(self._frames, b""))
        if missing <= len(self._rest):
            array = np.frombuffer(self._rest, dtype, count)
            self._rest = self._rest[missing:]
            # A received frame may begin, or continue, where items of this type should not.
            return array if array.flags.aligned else array.copy()
        parts: list[Frame] = []
        while missing > 0:
            parts.append(self._next(missing))
            missing -= len(parts[-1])
        return np.frombuffer(bytearray().join(parts), dtype)

    def _next(self, most_bytes: int) -> memoryview:
        """At least one more byte."""
        if not len(self._rest):
            self._rest = memoryview(next(self._frames, b"")).cast("B")
            if not len(self._rest):
                raise WireError("For 'sporax.ps', the array frames of a message do not fit its entries.")
        part, self._rest = self._rest[:most_bytes], self._rest[most_bytes:]
        return part
