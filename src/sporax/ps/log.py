"""Write-ahead log and snapshots of one server's slots, in one directory.

``log-00000007`` holds records one after another, each with length and CRC-32; ``slot-0003`` holds the newest snapshot of a
slot. A new log file is begun when one is long enough; then every slot is written again and the old files are not needed any
more. The newest of them is kept to be written over, because new pages of a file cost several times what pages in memory do; the
number of the file is part of its checksums, so what is left of the old records does not pass for new ones. The first file gets
its pages while the server has nothing else to do (`prepare`). Recovery reads the
snapshots and replays the log: records a snapshot already has, and records of epochs before it (which another server has
overruled), are passed over. A torn tail is cut off.

The checksum of a record is the CRC-32 of everything but the arrays, and of the sums of the arrays' 64-bit words. It has to find
pages that were not written, which hold zeros or older records. A sum does, at a tenth of the time of a CRC over all bytes.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from sporax.ir.errors import SporaxRuntimeError
from sporax.ps.messages import Message, Record, SlotImage
from sporax.ps.slot import SlotState
from sporax.ps.wire import Frame, WireError, decode, encode, with_present_header

_RECORD = struct.Struct("<4sIIQ")  # magic, checksum, number of frames, bytes of all
_MAGIC, _EARLIER_MAGIC = b"SPXM", b"SPXL"
_LENGTH = struct.Struct("<Q")
_AHEAD_BYTES = 64 << 20  # some seconds of pushes between two pauses
_PREPARED_BYTES = 256 << 10  # a fraction of a millisecond, for which a message may have to wait
_MOST_PARTS = 512  # of one system call; the operating system's limit is 1024
_SPARE = "spare-log"
_KEPT_SECONDS = 7 * 24 * 3600  # a job of hand-started processes may stand still for a weekend


def pack(message: Message, frames: Sequence[Frame], number: int = 0) -> list[Frame]:
    """A message as a record of a log: a prefix, the lengths of the frames, then the frames.

    Args:
        message, frames: what is written.
        number: of the file it is written to.
    """
    parts = encode(message, frames)
    lengths = b"".join(_LENGTH.pack(len(part)) for part in parts)
    prefix = _RECORD.pack(_MAGIC, _checksum(lengths, parts, number), len(parts), sum(map(len, parts)))
    # Prefix, lengths and struct in one part: fewer pieces for the system call.
    return [prefix + lengths + parts[0], *parts[1:]]


def _checksum(lengths: Frame, parts: Sequence[Frame], number: int) -> int:
    checksum = zlib.crc32(parts[0], zlib.crc32(lengths, number))
    for part in parts[1:]:
        # Arrays may end in the middle of a word.
        words = len(part) // _LENGTH.size
        total = int(np.add.reduce(np.frombuffer(part, np.uint64, words))) if words else 0
        tail = memoryview(part)[words * _LENGTH.size :]
        checksum = zlib.crc32(tail, zlib.crc32(_LENGTH.pack(total), checksum))
    return checksum


def read_records(path: Path, number: int = 0) -> Iterator[tuple[Message, list[Frame], int]]:
    """Messages of a log with the offset of their end; stops before the first that is torn, damaged or of another file.

    Records of the earlier format (a CRC-32 of all bytes, another header) are read, too: checkpoints are kept for long.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        while True:
            prefix = file.read(_RECORD.size)
            if len(prefix) < _RECORD.size:
                return
            magic, checksum, count, body = _RECORD.unpack(prefix)
            if (
                # A length beyond the file's end belongs to a torn record; the count bounds the memory for lengths.
                magic not in (_MAGIC, _EARLIER_MAGIC)
                or file.tell() + 8 * count + body > size
                or not 0 < count <= 0x10000
            ):
                return
            lengths = file.read(8 * count)
            data = file.read(body)
            frames: list[Frame] = []
            start, view = 0, memoryview(data)
            for (length,) in _LENGTH.iter_unpack(lengths):
                frames.append(view[start : start + length])
                start += length
            is_earlier = magic == _EARLIER_MAGIC
            actual = zlib.crc32(data, zlib.crc32(lengths)) if is_earlier else _checksum(lengths, frames, number)
            # The first record that does not fit ends the log: behind it nothing is certain.
            if start != body or actual != checksum:
                return
            if is_earlier:
                frames[0] = with_present_header(frames[0])
            try:
                message, rest = decode(frames)
            except WireError:
                # Its checksum fits, but another version may have written it.
                return
            yield message, rest, file.tell()


class SlotLog:
    """The log of a server.

    Args:
        directory: made when missing; locked against a second process.
        sync: write through to the disk in `flush`.
        ahead_bytes: size up to which `prepare` makes a file longer.

    Raises:
        SporaxRuntimeError: another process uses the directory.
    """

    def __init__(self, directory: Path, *, sync: bool, ahead_bytes: int = 0) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._sync = sync
        self._ahead_bytes = ahead_bytes
        self._lock = open(directory / "lock", "wb")  # noqa: SIM115 (held as long as the log)
        try:
            # The kernel gives the lock back with the process, also after a kill.
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise SporaxRuntimeError(
                f"For 'sporax.ps', the directory '{directory}' must belong to one server, but another one uses it."
            ) from error
        self._file: int | None = None
        # The newest file goes on; its number is part of its checksums.
        self._number = max(map(_number_of, self._files()), default=0)
        self.num_bytes = 0

    def recover(self, staleness: int) -> dict[int, SlotState]:
        """The slots as the snapshots and the log have them; cuts off a torn tail."""
        states: dict[int, SlotState] = {}
        # Snapshots first: they say from which record on the log counts.
        for path in sorted(self.directory.glob("slot-????")):
            for message, frames, _ in read_records(path):
                if isinstance(message, SlotImage):
                    states[message.slot] = SlotState.from_image(message, frames, staleness)
        # Of epochs before the snapshot's: another server has overruled them.
        floor = {slot: state.epoch for slot, state in states.items()}
        for path in self._files():
            end = 0
            for message, frames, end in read_records(path, _number_of(path)):  # noqa: B007 (the last end is where the file is cut)
                if isinstance(message, Record):
                    state = states.setdefault(message.slot, SlotState(message.slot, staleness))
                    if message.lsn == state.lsn + 1 and message.epoch >= floor.get(message.slot, 0):
                        state.apply(message, frames)
            # What is behind the last whole record may be old pages of a file that is written over.
            if end < path.stat().st_size:
                os.truncate(path, end)
            self.num_bytes += end
        return states

    def append(self, message: Message, frames: Sequence[Frame]) -> None:
        """Write a record; it survives the end of this process from now on, and power loss after `flush`."""
        if self._file is None:
            self._open_at_end()
        assert self._file is not None
        self.num_bytes += write_all(self._file, pack(message, frames, self._number))

    def prepare(self) -> bool:
        """Give the file some more pages ahead of its records; False when there are enough."""
        if self._file is None:
            self._open_at_end()
        assert self._file is not None
        size = os.fstat(self._file).st_size
        # Not beyond the size at which the file is changed: further pages would never be used.
        if size >= min(self._ahead_bytes, os.lseek(self._file, 0, os.SEEK_CUR) + _AHEAD_BYTES):
            return False
        # Zeros are no records, so recovery stops there.
        os.pwrite(self._file, bytes(_PREPARED_BYTES), size)
        return True

    def flush(self) -> None:
        """Write through to the disk, if that was requested."""
        if self._sync and self._file is not None:
            # Without the file's times, which recovery does not need.
            os.fdatasync(self._file)

    def begin_file(self) -> None:
        """Begin a new log file; the old ones go with `delete_old` once all slots have been written again."""
        self.flush()
        self._close()
        self._number += 1
        self.num_bytes = 0
        # Writing over an existing file needs no new pages.
        with suppress(FileNotFoundError):
            os.rename(self.directory / _SPARE, self._path())
        self._open()
        if self._sync:  # what is written over must have its new name, and the snapshots theirs, before anything is
            directory = os.open(self.directory, os.O_RDONLY)
            os.fsync(directory)
            os.close(directory)

    def write_slot(self, state: SlotState) -> None:
        """Replace the snapshot of a slot, atomically."""
        image, frames = state.image()
        path = self.directory / f"slot-{state.slot:04d}"
        temporary = path.with_suffix(".new")
        # Replaced by a whole file, so that a crash leaves the old snapshot or the new one.
        with open(temporary, "wb") as file:
            write_all(file.fileno(), pack(image, frames))
            if self._sync:
                os.fsync(file.fileno())
        os.replace(temporary, path)

    def drop_slot(self, slot: int) -> None:
        """Forget the snapshot of a slot that another server has now."""
        (self.directory / f"slot-{slot:04d}").unlink(missing_ok=True)

    def delete_old(self) -> None:
        """Give up all log files but the present one; one stays to be written over."""
        for path in self._files():
            if _number_of(path) < self._number:
                # Only the last one keeps this name; earlier ones are replaced by it.
                path.rename(self.directory / _SPARE)

    def close(self) -> None:
        """Close everything."""
        self._close()
        self._lock.close()

    def delete(self) -> None:
        """Remove the directory of a log that is closed; that of the job too, when this was its last log."""
        shutil.rmtree(self.directory, ignore_errors=True)
        with suppress(OSError):
            self.directory.parent.rmdir()

    def _files(self) -> list[Path]:
        return sorted(self.directory.glob("log-????????"))

    def _open(self) -> None:
        self._file = os.open(self._path(), os.O_WRONLY | os.O_CREAT, 0o600)

    def _open_at_end(self) -> None:
        """Go on where `recover` has cut the file off."""
        self._open()
        assert self._file is not None
        os.lseek(self._file, 0, os.SEEK_END)

    def _path(self) -> Path:
        return self.directory / f"log-{self._number:08d}"

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _number_of(path: Path) -> int:
    return int(path.name[4:])


def remove_old_jobs(directory: Path, job: str) -> None:
    """Remove what other jobs have left: no process uses their logs, and none has for `_KEPT_SECONDS`."""
    for lock in directory.glob("*/server-*/lock"):
        with suppress(OSError), open(lock, "rb") as file:
            if lock.parents[1].name == job or time.time() - lock.parents[1].stat().st_mtime < _KEPT_SECONDS:
                continue
            # Locked: a process that still uses it makes this fail, and the loop goes on.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent)
            lock.parents[1].rmdir()


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
