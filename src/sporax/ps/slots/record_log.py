"""Write-ahead log and snapshots of one server's slots, in one directory.

``log-00000007`` holds records one after another (`log_file`); ``slot-0003`` holds the newest snapshot of a slot. A new log file
is begun when one is long enough; then every slot is written again and the old files are not needed any more. The newest of them
is kept to be written over, because new pages of a file cost several times what pages in memory do; the number of the file is
part of its checksums, so what is left of the old records does not pass for new ones. The first file gets its pages while the
server has nothing else to do (`prepare`), and no more than the disk can spare. Recovery reads the snapshots and replays the log
(`Replay`): records a snapshot already has, and records of epochs before it (which another server has overruled), are passed
over. A torn tail is truncated. Files that are damaged are set aside, and stay as they are (`set_aside`).

Which slots a damaged log still has (`Replay`). Problem: when a log is damaged, the records behind the damage are whole, but a
slot of which one is missing cannot apply them. Which slots had records in the damaged bytes is not written anywhere else.
Method: a slot is whole if its numbers show it: a later record that follows on what the slot has, or that its snapshot has
already. A slot with a gap, or without a later record, is given up here. Another server may have all of it (`Ready.missing`).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path

from msgspec import Struct, field

from sporax.base.errors import SporaxError, SporaxRuntimeError
from sporax.ps.protocol.messages import Record, ServerMessage, SlotImage
from sporax.ps.protocol.wire import Frame
from sporax.ps.slots.log_file import Damage, LogFile, free_bytes, pack, replace_file, storage_error, write_all
from sporax.ps.slots.slot import SlotState

_AHEAD_BYTES = 64 << 20  # some seconds of pushes between two pauses
_PREPARED_BYTES = 256 << 10  # a fraction of a millisecond, for which a message may have to wait
_SPARED_SHARE = 8  # pages ahead take an eighth of what is free, at most
_LEAST_BYTES = 4 << 20  # of a log; with less, snapshots would cost more than they save
_SPARE = "spare-log"
_STORED_SECONDS = 7 * 24 * 3600  # a job of hand-started processes may stand still for a weekend

UNKNOWN = 0
"""In place of the number of a slot's last record, when it is unknown."""
_MOST_NAMED = 4  # slots or files in one message


class Missing(Struct, frozen=True):
    """What of a slot cannot be read back.

    Attributes:
        first: number of the first record that is not there.
        last: of the last record that the slot had, `UNKNOWN` if that may be among those that are not there.
    """

    first: int
    last: int

    def __str__(self) -> str:
        return f"from record {self.first} on" + (f" (of {self.last})" if self.last != UNKNOWN else "")


class Replay(Struct):
    """Slots while their records are read back.

    Args:
        staleness: of the job.

    Attributes:
        states: slots so far.
        missing: slots that are not whole; none of them is in `states` once `finish` was called.
        damages: what was met.
    """

    staleness: int
    states: dict[int, SlotState] = field(default_factory=dict)
    missing: dict[int, Missing] = field(default_factory=dict)
    damages: list[Damage] = field(default_factory=list)
    _floor: dict[int, int] = field(default_factory=dict)
    _in_doubt: set[int] = field(default_factory=set)

    def take_image(self, image: SlotImage, frames: list[Frame]) -> None:
        """Begin a slot with its snapshot.

        Raises:
            SporaxError, LookupError, ValueError: the frames are not those of the image.
        """
        self.states[image.slot] = SlotState.from_image(image, frames, self.staleness)
        # Records of earlier epochs were overruled by another server.
        self._floor[image.slot] = image.epoch

    def take_snapshot_damage(self, slot: int, damage: Damage) -> None:
        """A snapshot cannot be read, so no record of its slot can be applied."""
        self.damages.append(damage)
        self.missing[slot] = Missing(1, UNKNOWN)

    def take_damage(self, damage: Damage) -> None:
        """Records of any slot may have been there."""
        self.damages.append(damage)
        self._in_doubt = {*self.states, *self.missing}

    def take(self, record: Record, frames: Sequence[Frame]) -> None:
        """Apply the next record of the log, if its slot has everything before it."""
        slot = record.slot
        if record.epoch < self._floor.get(slot, 0):
            return
        # A later record shows that none of this slot's is missing, or which.
        self._in_doubt.discard(slot)
        state = self.states.setdefault(slot, SlotState(slot, self.staleness))
        if slot in self.missing:
            self.missing[slot] = Missing(self.missing[slot].first, max(record.lsn, self.missing[slot].last))
        elif record.lsn > state.lsn + 1:
            self.missing[slot] = Missing(state.lsn + 1, record.lsn)
        # What its snapshot has is passed over.
        elif record.lsn == state.lsn + 1:
            self._apply(state, record, frames)

    def _apply(self, state: SlotState, record: Record, frames: Sequence[Frame]) -> None:
        try:
            state.apply(record, frames)
        except (SporaxError, LookupError, ValueError):
            # A whole record that does not fit: what it was made for is not what is here.
            self.missing[state.slot] = Missing(record.lsn, record.lsn)

    def finish(self) -> None:
        """Give up the slots that are not whole."""
        for slot in self._in_doubt:
            first = self.missing[slot].first if slot in self.missing else self.states[slot].lsn + 1
            self.missing[slot] = Missing(first, UNKNOWN)
        for slot in self.missing:
            self.states.pop(slot, None)


def missing_text(missing: Mapping[int, Missing]) -> str:
    """Slots and what of them is missing, for a message."""
    named = [f"slot {slot} {what}" for slot, what in sorted(missing.items())]
    more = len(named) - _MOST_NAMED
    return ", ".join(named[:_MOST_NAMED]) + (f" and {more} more slots" if more > 0 else "")


def damage_text(damages: Sequence[Damage]) -> str:
    """Where bytes are damaged, for a message."""
    more = len(damages) - _MOST_NAMED
    return ", ".join(map(str, damages[:_MOST_NAMED])) + (f" and {more} more places" if more > 0 else "")


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
        self.directory = directory
        self._sync = sync
        self._ahead_bytes = ahead_bytes
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = open(directory / "lock", "wb")  # noqa: SIM115 (held as long as the log)
        except OSError as error:
            raise storage_error("the lock", directory / "lock", 0, error) from error
        try:
            # The kernel gives the lock back with the process, also after a kill.
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise SporaxRuntimeError(
                f"For 'sporax.ps', the directory '{directory}' must belong to one server, but another one uses it."
            ) from error
        self._file: int | None = None
        # Bytes of the file that are written, and those that a flush has covered.
        self._end = self._safe = self._reserved_bytes = 0
        # Of the file, with pages that are prepared.
        self._size = 0
        self._has_room = True
        # The newest file goes on; its number is part of its checksums.
        self._number = max(map(_number_of, self._files()), default=0)
        self.num_bytes = 0

    def recover(self, staleness: int) -> Replay:
        """The slots as the snapshots and the log have them, and what is missing; truncates a torn tail."""
        replay = Replay(staleness)
        # Snapshots first: they say from which record on the log counts.
        for path in sorted(self.directory.glob("slot-????")):
            self._recover_snapshot(path, replay)
        files = self._files()
        for path, later in zip_longest(files, files[1:]):
            with LogFile(path, _number_of(path)) as file:
                for item in file.read():
                    if isinstance(item, Damage):
                        replay.take_damage(item)
                    elif isinstance(item.message, Record):
                        replay.take(item.message, item.frames)
            # A file that was ended has nothing behind its records.
            if file.end < file.size and later is not None and _is_of_present_form(later):
                replay.take_damage(Damage(path, file.end, file.size))
            # Else it is a record that was never acknowledged, or old pages of a file that is written over.
            elif file.end < file.size and all(damage.path != path for damage in replay.damages):
                os.truncate(path, file.end)
            self.num_bytes += file.end
        replay.finish()
        return replay

    def _recover_snapshot(self, path: Path, replay: Replay) -> None:
        with LogFile(path) as file:
            item = next(file.read(), None)
            try:
                if item is not None and not isinstance(item, Damage) and isinstance(item.message, SlotImage):
                    replay.take_image(item.message, item.frames)
                    return
            except (SporaxError, LookupError, ValueError):
                pass  # whole, but not what this version can read: as good as damaged
            replay.take_snapshot_damage(int(path.name[5:]), Damage(path, 0, file.size))

    def set_aside(self, replay: Replay, directory: Path) -> list[Path]:
        """Keep the files that are damaged, and all of slots that are not whole; what is whole goes on in new files.

        Args:
            replay: what `recover` gave.
            directory: where they are kept.

        Returns:
            Paths of the damaged files now.
        """
        # In an order that gives the same result when this process ends in between.
        for state in replay.states.values():
            self.write_slot(state)
        damaged = {damage.path for damage in replay.damages}
        aside = damaged | {path for path in self.directory.glob("slot-????") if int(path.name[5:]) in replay.missing}
        self.begin_file()
        directory.mkdir(parents=True, exist_ok=True)
        moved: list[Path] = []
        for path in sorted(aside):
            target = _free_name(directory / f"damaged-{path.name}")
            # The directory may be on another disk.
            shutil.move(path, target)
            moved += [target] if path in damaged else []
        self.delete_old()
        return moved

    def append(self, message: ServerMessage, frames: Sequence[Frame]) -> None:
        """Write a record; it survives the end of this process from now on, and power loss after `flush`."""
        if (file := self._file) is None:
            file = self._open_at_end()
        # Without `sync` an acknowledgement relies on every byte that is written.
        parts = pack(message, frames, self._number, self._safe if self._sync else self._end)
        try:
            num_bytes = write_all(file, parts)
        except OSError as error:
            raise storage_error("the log", self._path(), sum(map(len, parts)), error) from error
        self._end = end = self._end + num_bytes
        if end > self._size:
            self._size = end
        self.num_bytes += num_bytes

    def prepare(self) -> bool:
        """Give the file some more pages ahead of its records; False when there are enough."""
        if (file := self._file) is None:
            file = self._open_at_end()
        size = self._size
        # Not beyond the size at which the file is changed: further pages would never be used.
        if size >= min(self._ahead_bytes, self._end + _AHEAD_BYTES):
            return False
        # Room that others may need more: a log without pages ahead is slower, and nothing else.
        if _SPARED_SHARE * (size - self._end + _PREPARED_BYTES) > free_bytes(self.directory):
            self._has_room = False
            return False
        try:
            # Zeros are no records, so recovery stops there.
            os.pwrite(file, bytes(_PREPARED_BYTES), size)
        except OSError:
            self._has_room = False
            return False
        self._size = size + _PREPARED_BYTES
        return True

    @property
    def wants_pages(self) -> bool:
        """Whether it is worth beginning to `prepare`: half of the pages ahead are used, and the disk has room for more."""
        return self._has_room and self._size < min(self._ahead_bytes, self._end + _AHEAD_BYTES // 2)

    def reserve(self, num_bytes: int) -> None:
        """Look for room that will surely be needed, in addition to what earlier calls have requested, and for the shortest log.

        Raises:
            StorageError: there is too little.
        """
        self._reserved_bytes += num_bytes
        # A log that is shorter is never begun again, so the steps would fill the disk.
        needed = self._reserved_bytes + max(_LEAST_BYTES - self.num_bytes, 0)
        if free_bytes(self.directory) < needed:
            raise storage_error("the log", self._path(), needed)

    def is_too_long(self, longest_bytes: int, snapshots_bytes: int) -> bool:
        """Whether to begin another file: this one has reached its size, or more than half of the room that there was.

        Args:
            longest_bytes: its size.
            snapshots_bytes: of all slots, which are written then.
        """
        least = max(_LEAST_BYTES, snapshots_bytes)
        return self.num_bytes > longest_bytes or (
            self.num_bytes > least and self.num_bytes > free_bytes(self.directory) - snapshots_bytes
        )

    def flush(self) -> None:
        """Write through to the disk, if that was requested."""
        if self._sync and self._file is not None:
            try:
                # Without the file's times, which recovery does not need.
                os.fdatasync(self._file)
            except OSError as error:
                raise storage_error("the log", self._path(), self._end - self._safe, error) from error
            self._safe = self._end

    def begin_file(self) -> None:
        """Begin a new log file; the old ones go with `delete_old` once all slots have been written again."""
        self._end_file()
        self._number += 1
        self.num_bytes = self._end = self._safe = 0
        self._has_room = True
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
        parts = pack(image, frames)
        try:
            replace_file(path, parts, self._sync)
        except OSError as error:
            raise storage_error("the snapshot", path, sum(map(len, parts)), error) from error

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

    def _open(self) -> int:
        try:
            self._file = file = os.open(self._path(), os.O_WRONLY | os.O_CREAT, 0o600)
        except OSError as error:
            raise storage_error("the log", self._path(), _LEAST_BYTES, error) from error
        self._size = os.fstat(file).st_size
        return file

    def _open_at_end(self) -> int:
        """Go on where `recover` has truncated the file."""
        file = self._open()
        self._end = os.lseek(file, 0, os.SEEK_END)
        # What was read back counts, whether or not it had been flushed.
        self.flush()
        return file

    def _end_file(self) -> None:
        """Leave nothing behind the records of the file, so that what is there later is damage."""
        if self._file is not None:
            os.ftruncate(self._file, self._end)
            if self._sync:
                os.fsync(self._file)
        self._close()

    def _path(self) -> Path:
        return self.directory / f"log-{self._number:08d}"

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _number_of(path: Path) -> int:
    return int(path.name[4:])


def _is_of_present_form(path: Path) -> bool:
    with LogFile(path) as file:
        return file.is_of_present_form


def _free_name(path: Path) -> Path:
    """The path, or one with a number, where nothing is yet."""
    number = 1
    free = path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free


def remove_old_jobs(directory: Path, job: str) -> None:
    """Remove what other jobs have left: no process uses their logs, and none has for `_STORED_SECONDS`."""
    for lock in directory.glob("*/server-*/lock"):
        with suppress(OSError), open(lock, "rb") as file:
            if lock.parents[1].name == job or time.time() - lock.parents[1].stat().st_mtime < _STORED_SECONDS:
                continue
            # Locked: a process that still uses it makes this fail, and the loop goes on.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent)
            lock.parents[1].rmdir()
