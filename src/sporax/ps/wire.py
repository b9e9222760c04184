"""The byte form of messages: a header, one struct, and raw array frames of at most 4 MiB.

====== ======= ==========================================================
bytes  type    meaning
====== ======= ==========================================================
0-3    bytes   ``SPXP``
4      uint8   version of this format
5      uint8   0
6-7    uint16  number of array frames
8-11   uint32  bytes of the struct (MessagePack)
12-15  uint32  CRC-32 of the struct
16-23  uint64  bytes of all array frames together
====== ======= ==========================================================

Nothing is ever unpickled. What does not fit is a `WireError`, which the receiver counts and drops.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from sporax.ir.errors import SporaxValueError
from sporax.ps.messages import AnyMessage, Entry, Message

CHUNK_BYTES = 4 << 20  # frames of 4 MiB let sending and receiving overlap; smaller ones were no faster
MAX_STRUCT_BYTES = 16 << 20
MAX_BODY_BYTES = 8 << 30
MAX_FRAMES = 0xFFFF
_MAGIC, _VERSION = b"SPXP", 1
HEADER = struct.Struct("<4sBBHIIQ")

Frame = bytes | memoryview
Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[AnyMessage] = msgspec.msgpack.Decoder(AnyMessage)


class WireError(SporaxValueError):
    """Bytes that are not a message."""


def encode(message: Message, frames: Sequence[Frame] = ()) -> list[Frame]:
    """The frames to send: header and struct, then the arrays."""
    packed = _encoder.encode(message)
    body = sum(len(frame) for frame in frames)
    if len(frames) > MAX_FRAMES or len(packed) > MAX_STRUCT_BYTES or body > MAX_BODY_BYTES:
        raise WireError(
            f"For 'sporax.ps', a message must have at most {MAX_FRAMES} frames and {MAX_BODY_BYTES} bytes, "
            f"but got {len(frames)} and {body}."
        )
    header = HEADER.pack(_MAGIC, _VERSION, 0, len(frames), len(packed), zlib.crc32(packed), body)
    return [header + packed, *frames]


def decode(frames: Sequence[Frame], max_body_bytes: int = MAX_BODY_BYTES) -> tuple[Message, list[Frame]]:
    """The message in received frames, and its array frames.

    Raises:
        WireError: malformed, oversized, or damaged.
    """
    if not frames or len(frames[0]) < HEADER.size:
        raise WireError("For 'sporax.ps', a message must begin with a header, but it is too short.")
    head = memoryview(frames[0])
    magic, version, _, count, length, checksum, body = HEADER.unpack_from(head)
    if magic != _MAGIC or version != _VERSION:
        raise WireError(
            f"For 'sporax.ps', a header must begin with {_MAGIC!r} {_VERSION}, but got {magic!r} {version}."
        )
    packed = head[HEADER.size :]
    if length != len(packed) or length > MAX_STRUCT_BYTES or checksum != zlib.crc32(packed):
        raise WireError("For 'sporax.ps', the struct of a message does not fit its header.")
    rest = list(frames[1:])
    if count != len(rest) or body != sum(len(frame) for frame in rest) or body > max_body_bytes:
        raise WireError("For 'sporax.ps', the array frames of a message do not fit its header.")
    try:
        return _decoder.decode(packed), rest
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise WireError(f"For 'sporax.ps', the struct of a message is malformed: {error}.") from error


def chunks(array: npt.NDArray[np.generic]) -> list[Frame]:
    """The bytes of an array in frames of at most `CHUNK_BYTES`, without a copy when it is contiguous."""
    view = memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return [view[start : start + CHUNK_BYTES] for start in range(0, len(view), CHUNK_BYTES)]


def entry_frames(ids: Ids | None, values: Floats | None) -> list[Frame]:
    """Frames of one entry: row ids first, then values."""
    return [*(chunks(ids) if ids is not None else ()), *(chunks(values) if values is not None else ())]


class EntryReader:
    """Takes the arrays of entries out of a message's frames, in order.

    Raises:
        WireError: the frames do not have the sizes that the entries tell.
    """

    def __init__(self, frames: Iterable[Frame]) -> None:
        self._frames = iter(frames)

    def take(self, entry: Entry) -> tuple[Ids | None, Floats | None]:
        """Row ids and values of the next entry; None where it has none."""
        if entry.values < 0 or entry.rows < -1:
            raise WireError("For 'sporax.ps', sizes in an entry must not be negative.")
        ids = self._array(entry.rows * 8).view(np.int64) if entry.rows >= 0 else None
        values = self._array(entry.values * 4).view(np.float32) if entry.values else None
        return ids, values

    def array(self, num_bytes: int) -> npt.NDArray[np.uint8]:
        """The next array of so many bytes."""
        return self._array(num_bytes)

    def finish(self) -> None:
        """Raise unless all frames were taken."""
        if next(self._frames, None) is not None:
            raise WireError("For 'sporax.ps', a message has more array frames than its entries tell.")

    def _array(self, num_bytes: int) -> npt.NDArray[np.uint8]:
        parts: list[npt.NDArray[np.uint8]] = []
        missing = num_bytes
        while missing > 0:
            frame = next(self._frames, None)
            if frame is None or len(frame) > missing or len(frame) == 0:
                raise WireError("For 'sporax.ps', the array frames of a message do not fit its entries.")
            parts.append(np.frombuffer(frame, np.uint8))
            missing -= len(frame)
        if not parts:
            return np.empty(0, np.uint8)
        array = parts[0] if len(parts) == 1 else np.concatenate(parts)
        # A view of another item size needs an aligned start, which a received frame may lack.
        return array if array.ctypes.data % 8 == 0 else array.copy()
