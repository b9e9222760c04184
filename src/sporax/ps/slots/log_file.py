"""One file of records: how they are written, and how a file is read back that may be torn or damaged.

A record is a prefix, the lengths of its frames, then the frames. Its checksum is the CRC-32 of everything but the arrays, and of
the sums of the arrays' 64-bit words. It has to find pages that were not written, which hold zeros or older records. A sum does,
at a tenth of the time of a CRC over all bytes.

Problem: after a process or a machine has ended, the last record may be half there. It was never acknowledged, so it may be
forgotten. What looks the same in the middle of a file is damage: it was acknowledged, and what follows it cannot be applied.
Method: each record says up to which byte the file was safe when it was written (*safe*: everything before it, or, in a log
that is flushed, what the last flush has covered). Behind bytes that are no record, the reader looks for further whole records.
If one of them says that these bytes were safe, they are damage; else they and all that follows are a torn tail.

What is said when a disk does not take what it must: the path, what is needed and what is free.
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from msgspec import Struct

from sporax.base.errors import SporaxRuntimeError
from sporax.ps.protocol.messages import ServerMessage
from sporax.ps.protocol.wire import Frame, WireError, decode, head_and_size, with_present_header

_PREFIX = struct.Struct("<4sIIQ")  # magic, checksum, number of frames, bytes of all
_PRESENT, _WITHOUT_SAFE, _EARLIEST = b"SPXN", b"SPXM", b"SPXL"
_LENGTH = struct.Struct("<Q")
_MOST_FRAMES = 0x10000  # bounds the memory for lengths
_COMMON = b"SPX"  # with which records of all forms begin
_PIECE_BYTES = 4 << 20  # large enough for the disk, small for the memory
_PAGE_BYTES = 4096  # the least that a disk fails to give
_MOST_PARTS = 512  # of one system call; the operating system's limit is 1024
_add, _frombuffer = np.add.reduce, np.frombuffer
_WORD = np.dtype("<u8")
_NO_WORDS = bytes(8)


class Intact(Struct, frozen=True):
    """A whole record: its message and arrays, and the bytes of the file that it takes."""

    message: ServerMessage
    frames: list[Frame]
    start: int
    stop: int


class Damage(Struct, frozen=True):
    """Bytes of a file that were whole records once."""

    path: Path
    start: int
    stop: int

    def __str__(self) -> str:
        return f"bytes {self.start} to {self.stop} of '{self.path}'"


class _Found(Struct, frozen=True):
    """A record whose checksum fits, not decoded yet."""

    start: int
    stop: int
    safe: int
    frames: list[Frame]


def pack(message: ServerMessage, frames: Sequence[Frame], number: int = 0, safe: int = 0) -> list[Frame]:
    """A message as a record of a file.

    Args:
        message, frames: what is written.
        number: of the file it is written to, which keeps what is left of older records from passing for new ones.
        safe: bytes of the file that can be relied on when this is written.
    """
    head, size = head_and_size(message, frames)
    count = 1 + len(frames)
    start = _lengths(1 + count).pack(safe, len(head), *map(len, frames)) + head
    prefix = _PREFIX.pack(_PRESENT, _checksum(start, frames, number), count, size)
    # Prefix, lengths and struct in one part: fewer pieces for the system call.
    return [prefix + start, *frames]


@lru_cache(maxsize=64)
def _lengths(count: int) -> struct.Struct:
    """So many lengths."""
    return struct.Struct(f"<{count}Q")


def _checksum(start: Frame, arrays: Sequence[Frame], number: int) -> int:
    """Of the bytes before the arrays, and of the arrays."""
    checksum = zlib.crc32(start, number)
    for array in arrays:
        words, rest = divmod(len(array), _LENGTH.size)
        total = _add(_frombuffer(array, _WORD, words)) if words else _NO_WORDS
        checksum = zlib.crc32(total, checksum)
        # Arrays may end in the middle of a word.
        if rest:
            checksum = zlib.crc32(memoryview(array)[-rest:], checksum)
    return checksum


def _checksum_of_all(lengths: Frame, parts: Sequence[Frame]) -> int:
    checksum = zlib.crc32(lengths)
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return checksum


class LogFile:
    """A file of records that is read back.

    Args:
        path: of the file.
        number: that its records were written with.

    Attributes:
        size: of the file.
        end: where the records end that can be relied on, once all have been read. What follows is a torn tail, or pages that were
            prepared.
    """

    def __init__(self, path: Path, number: int = 0) -> None:
        self.path = path
        self._number = number
        self._file = os.open(path, os.O_RDONLY)
        self.size = os.fstat(self._file).st_size
        self.end = 0
        self._first = self._bytes(0, len(_PRESENT))

    def __enter__(self) -> LogFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    @property
    def is_of_present_form(self) -> bool:
        """Whether the file begins as the present version writes it."""
        return self._first == _PRESENT

    def read(self) -> Iterator[Intact | Damage]:
        """Records and damaged bytes in their order; records of earlier forms are read, too, as checkpoints are kept for long."""
        found = self._record_at(0)
        while found is not None or (found := self._next_safe(self.end)) is not None:
            if found.start > self.end:
                yield Damage(self.path, self.end, found.start)
            self.end = found.stop
            yield self._decoded(found)
            found = self._record_at(self.end)

    def _record_at(self, start: int) -> _Found | None:
        """The whole record that begins at a byte, if one does."""
        prefix = self._bytes(start, start + _PREFIX.size)
        if len(prefix) < _PREFIX.size:
            return None
        magic, checksum, count, body = _PREFIX.unpack(prefix)
        has_safe = magic == _PRESENT
        first = start + _PREFIX.size + _LENGTH.size * (count + has_safe)
        # A length beyond the file's end belongs to a torn record.
        if (
            magic not in (_PRESENT, _WITHOUT_SAFE, _EARLIEST)
            or not 0 < count <= _MOST_FRAMES
            or first + body > self.size
        ):
            return None
        lengths = self._bytes(start + _PREFIX.size, first)
        numbers = [number for (number,) in _LENGTH.iter_unpack(lengths)]
        # Records of earlier forms were written to logs whose bytes are safe as soon as they are written.
        safe = numbers.pop(0) if has_safe else start
        if sum(numbers) != body:
            return None
        frames = self._split(self._bytes(first, first + body), numbers)
        if checksum != (
            _checksum(lengths + bytes(frames[0]), frames[1:], self._number)
            if magic != _EARLIEST
            else _checksum_of_all(lengths, frames)
        ):
            return None
        if magic == _EARLIEST:
            frames[0] = with_present_header(frames[0])
        return _Found(start, first + body, safe, frames)

    @staticmethod
    def _split(data: bytes, lengths: Sequence[int]) -> list[Frame]:
        frames: list[Frame] = []
        start, view = 0, memoryview(data)
        for length in lengths:
            frames.append(view[start : start + length])
            start += length
        return frames

    def _decoded(self, found: _Found) -> Intact | Damage:
        try:
            return Intact(*decode(found.frames), found.start, found.stop)
        except WireError:
            # Its checksum fits, so another version has written it: for this one it is lost.
            return Damage(self.path, found.start, found.stop)

    def _next_safe(self, start: int) -> _Found | None:
        """Where records go on behind bytes that are none, if a later one says that these bytes were safe."""
        first = found = self._next(start + 1)
        while found is not None and found.safe <= start:
            # Out of one flush, whose pages reach the disk in any order.
            found = self._record_at(found.stop) or self._next(found.stop)
        return first if found is not None else None

    def _next(self, start: int) -> _Found | None:
        """The next whole record that begins anywhere from a byte on."""
        while start < self.size:
            piece = self._bytes(start, start + _PIECE_BYTES)
            place = piece.find(_COMMON)
            while place >= 0:
                form = piece[place : place + len(_PRESENT)]
                # Records of the earliest form do not know their file; only where a file begins with them do they belong to it.
                is_ours = form != _EARLIEST or self._first == _EARLIEST
                if is_ours and (found := self._record_at(start + place)):
                    return found
                place = piece.find(_COMMON, place + 1)
            # Overlapping, for a beginning that lies in two pieces.
            start += max(len(piece) - len(_PRESENT) + 1, 1)
        return None

    def _bytes(self, start: int, stop: int) -> bytes:
        """Bytes of the file; those that the disk does not give are zeros."""
        parts: list[bytes] = []
        while start < min(stop, self.size):
            try:
                part = os.pread(self._file, min(stop, self.size) - start, start)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                part = bytes(min(stop, self.size, start + _PAGE_BYTES) - start)
            if not part:
                break
            parts.append(part)
            start += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


_UNKNOWN_BYTES = 1 << 62  # as if there were no limit


class StorageError(SporaxRuntimeError):
    """A file that a job cannot do without cannot be written."""


def free_bytes(directory: Path) -> int:
    """Bytes that this user may still write below a directory."""
    facts = os.statvfs(directory)
    # Some network file systems do not report their size.
    return facts.f_bavail * facts.f_frsize if facts.f_blocks else _UNKNOWN_BYTES


def storage_error(what: str, path: Path, num_bytes: int, error: OSError | None = None) -> StorageError:
    """The error for a file that cannot be written.

    Args:
        what: it is, e.g. ``the log``.
        path: of the file.
        num_bytes: that it needs.
        error: what the operating system said, None if it was not queried because there is too little room.
    """
    try:
        free = str(free_bytes(path.parent))
    except OSError:  # the directory itself is gone
        free = "?"
    reason = "there is too little room" if error is None else f"got: {error.strerror or error}"
    return StorageError(
        f"For 'sporax.ps', {what} '{path}' must be written, but {reason}. It needs {num_bytes} bytes there, and {free} are free. "
        "Make room, or let MS_RECOVERY_PATH name a folder on another disk (without it `sporax run` takes TMPDIR)."
    )


def replace_file(path: Path, parts: Sequence[Frame], sync: bool = True) -> int:
    """Put parts, one after another, in the place of a file, so that a crash leaves the old file or the new one; gives its bytes.

    Args:
        sync: through to the disk before it gets the name, which else outlives its bytes where power is lost.

    Raises:
        OSError: the disk does not take it; the old file stays.
    """
    temporary = path.with_suffix(".new")
    try:
        with open(temporary, "wb") as file:
            size = write_all(file.fileno(), parts)
            if sync:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return size


def write_all(file: int, parts: Sequence[Frame]) -> int:
    """Write parts one after another; gives the number of bytes."""
    total = sum(map(len, parts))
    # Mostly one call takes everything; the queue is for what is left.
    done = os.writev(file, parts[:_MOST_PARTS])
    if done == total:
        return total
    queue = [memoryview(part) for part in parts if len(part)]
    while queue:
        while queue and done >= len(queue[0]):
            done -= len(queue.pop(0))
        if not queue:
            break
        queue[0] = queue[0][done:]
        done = os.writev(file, queue[:_MOST_PARTS])
    return total
