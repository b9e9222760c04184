"""What ranks of one machine know of each other: a shared board, and what the system says about a process.

Each rank writes to its line of the board: its process id, how many exchanges it has begun, in all and with each other rank, and
when it was last seen waiting in one. From that and from ``/proc`` another rank finds out for whom it waits:

* a rank that has begun fewer exchanges with this one than this one with it is *behind*; numbers of all exchanges say nothing,
  since some are between a part of the ranks;
* a rank is *present* until it leaves the job, and *at work* while it does not wait in an exchange either;
* a rank is *idle* when its main thread has not run for a while, and neither its other threads nor its child processes have
  computed: it sleeps, or waits for a lock or for something that does not come.

A rank that computes is never idle, whether it evaluates, compiles or goes round an endless loop; these cannot be distinguished.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import socket
import sys
import tempfile
import time
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from msgspec import Struct

from sporax.cluster import private
from sporax.cluster.environment import RankEnvironment

_PROCESS, _BEGUN, _WAITING, _WITH = range(4)
"""Numbers of a rank on its line; those from the last one on count exchanges with rank 0, 1, …."""
_LEAVING = -1
_NUMBER_BYTES = 8
# Three times the half second between two notes: one note may come late.
_FRESH_SECONDS = 3.0  # a rank that waits says so twice a second, unless it is kept from it
_BACKGROUND = 0.03  # share of a core that threads which only look around may use
_TICKS = os.sysconf("SC_CLK_TCK")


class RankBoard:
    """A file with one line for each rank of the job, shared by those of one machine.

    Args:
        place: this rank's place in the job, by which the board is found.
        directory: where the boards of this user are; no one else can write there.
    """

    def __init__(self, place: RankEnvironment, directory: Path) -> None:
        assert place.rank is not None
        # Jobs with another coordinator, host or size never share a board.
        key = zlib.crc32(f"{place.coordinator_address} {socket.gethostname()}".encode())
        self.path = directory / f"board-{key:08x}-{place.size}"
        self.rank = place.rank
        self.process = os.getpid()
        # Under the lock, so that no other rank removes the file between its creation and this rank's first line.
        with _locked(directory):
            _remove_boards_of_the_dead(directory)
            with open(self.path, "ab") as file:
                file.truncate(place.size * (_WITH + place.size) * _NUMBER_BYTES)
            # A shared memory map: ranks read each other's numbers without system calls.
            self.entries = np.memmap(self.path, np.int64, "r+", shape=(place.size, _WITH + place.size))
            self.entries[self.rank] = 0
            self.entries[self.rank, _PROCESS] = self.process

    @staticmethod
    def of(place: RankEnvironment, environ: Mapping[str, str]) -> RankBoard:
        """The board of this process's job.

        Raises:
            SporaxRuntimeError: the directory for it belongs to another user.
        """
        try:
            return RankBoard(place, private.shared_directory(environ))
        except OSError as error:
            # A rank without a board still works: it only knows less of the others.
            print(
                f"sporax: rank {place.rank} cannot share a file with the other ranks of this machine ({error}); "
                "where one of them does not come, only time-outs will show it",
                file=sys.stderr,
            )
            directory = Path(tempfile.mkdtemp(prefix="sporax-board-"))
            atexit.register(private.remove, directory)
            return RankBoard(place, directory)

    def begin(self, members: Collection[int]) -> None:
        """Count an exchange between these ranks."""
        # Only this rank writes to its line, so no lock is needed.
        self.entries[self.rank, _BEGUN] += 1
        self.entries[self.rank, [_WITH + member for member in members]] += 1

    @property
    def begun(self) -> int:
        """How many exchanges this rank has begun."""
        return int(self.entries[self.rank, _BEGUN])

    def note(self, waits: bool) -> None:
        """Say whether this rank waits in an exchange now."""
        # A rank that has left does not come back to the exchange.
        if self.entries[self.rank, _WAITING] != _LEAVING:
            self.entries[self.rank, _WAITING] = time.monotonic_ns() if waits else 0

    def leave(self) -> None:
        """This rank has done its part; what it still waits for is the end of the job. Takes the board away."""
        self.entries[self.rank, _WAITING] = _LEAVING
        with suppress(OSError):
            # Other ranks have it mapped already; a later job makes a new one.
            self.path.unlink()

    def stopped(self) -> list[int]:
        """Ranks whose processes stand still after SIGSTOP. One that a debugger holds is not among them."""
        # "T" is stopped by a signal, "t" by a debugger.
        return [rank for rank, process in self._others().items() if process_state(process) == "T"]

    def traced(self) -> list[int]:
        """Ranks that a debugger holds."""
        return [rank for rank, process in self._others().items() if process_state(process) == "t"]

    def left_behind(self) -> list[int]:
        """Ranks that have left with fewer exchanges begun with this one than this one has with them."""
        return [rank for rank in self.behind() if self.entries[rank, _WAITING] == _LEAVING]

    def behind(self) -> dict[int, int]:
        """By how many exchanges between them and this one ranks are behind it."""
        leads = {rank: self._lead(rank) for rank in self._others()}
        return {rank: lead for rank, lead in leads.items() if lead > 0}

    def _lead(self, rank: int) -> int:
        """How many more exchanges between this rank and another one this one has begun."""
        return int(self.entries[self.rank, _WITH + rank] - self.entries[rank, _WITH + self.rank])

    def present(self) -> dict[int, int]:
        """Ranks that have not left, without this one, with their process ids."""
        return {rank: other for rank, other in self._others().items() if self.entries[rank, _WAITING] != _LEAVING}

    def at_work(self) -> list[int]:
        """Ranks that neither wait in an exchange nor have left."""
        # An older note means that the rank's thread does not run any more.
        since = time.monotonic_ns() - int(_FRESH_SECONDS * 1e9)
        return [
            rank
            for rank, process in self.present().items()
            if self.entries[rank, _WAITING] < since and process_state(process)
        ]

    def awaiting(self, elsewhere: Collection[int] = ()) -> list[int]:
        """Ranks that wait in an exchange that this one has not begun; none for one that has left.

        Args:
            elsewhere: ranks that wait while only ranks of this machine do not, as the scheduler sees it.
        """
        if self.entries[self.rank, _WAITING] == _LEAVING:
            return []
        since = time.monotonic_ns() - int(_FRESH_SECONDS * 1e9)
        here = [rank for rank in self.present() if self.entries[rank, _WAITING] >= since and self._lead(rank) < 0]
        return sorted({*here, *elsewhere})

    def is_complete(self) -> bool:
        """Whether all ranks of the job are on this machine."""
        # A line stays 0 where no process of this machine has filled it.
        return bool(np.all(self.entries[:, _PROCESS]))

    def standing(self) -> str:
        """Where each rank is, in words."""
        present = {self.rank, *self.present()}
        return ", ".join(
            f"rank {rank} {'is in' if rank in present else 'has left after'} exchange {self.entries[rank, _BEGUN]}"
            for rank in range(len(self.entries))
        )

    def _others(self) -> dict[int, int]:
        """Process ids of the other ranks of this machine."""
        return {
            rank: int(process)
            for rank, process in enumerate(self.entries[:, _PROCESS])
            if process and rank != self.rank
        }


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Context in which no other process of this user makes or removes boards."""
    with open(directory / "lock", "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _remove_boards_of_the_dead(directory: Path) -> None:
    """Remove what jobs have left that were killed."""
    for path in directory.glob("board-*"):
        with suppress(OSError, ValueError):
            # Zombies and dead processes no longer write.
            processes = np.fromfile(path, np.int64)[:: _WITH + int(path.name.rpartition("-")[2])]
            if processes.any() and all(
                process_state(int(process)) in ("", "Z", "X") for process in processes if process
            ):
                path.unlink()


class _Footprint(Struct, frozen=True):
    """What a process has done until a moment.

    Attributes:
        time: of the moment, by the monotonic clock.
        switches: how often its main thread has been taken off a core.
        cpu_seconds: processor time of its process group.
    """

    time: float
    switches: int
    cpu_seconds: float

    def moved_since(self, before: _Footprint) -> bool:
        """Whether more has happened than threads do that only look around now and then."""
        used = self.cpu_seconds - before.cpu_seconds
        # Watching threads wake up now and then, which is no work.
        return self.switches != before.switches or used > 0.05 + _BACKGROUND * (self.time - before.time)


class Idleness:
    """For how long processes have done nothing, as far as this one has looked.

    Looking takes time where there are thousands of processes. It gets a hundredth of this one's.
    """

    def __init__(self) -> None:
        self._since: dict[int, _Footprint] = {}
        self._rests_until = 0.0
        self._seen: dict[int, float] = {}

    def forget(self) -> None:
        """Begin again."""
        self._since.clear()
        self._seen.clear()

    def look(self, processes: Collection[int]) -> dict[int, float]:
        """Seconds for which each of these processes has been idle; 0 for one that is in the middle of disk access or gone."""
        started = time.monotonic()
        if started >= self._rests_until:
            used = _seconds_by_group()
            self._seen = {process: self._idle_seconds(process, used) for process in processes}
            now = time.monotonic()
            self._rests_until = now + 100 * (now - started)
        return {process: self._seen.get(process, 0.0) for process in processes}

    def _idle_seconds(self, process: int, seconds_by_group: dict[str, float]) -> float:
        now = _footprint(process, seconds_by_group)
        before = self._since.setdefault(process, now)
        # "D" is disk access: such a process waits for something that does come.
        if process_state(process) in ("", "D") or now.moved_since(before):
            before = self._since[process] = now
        return now.time - before.time


def _footprint(process: int, seconds_by_group: dict[str, float]) -> _Footprint:
    lines = _read(f"/proc/{process}/status").splitlines()
    # Voluntary and involuntary switches: a thread that runs at all has some.
    switches = sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)
    group = _stat(process)[2:3]
    return _Footprint(time.monotonic(), switches, seconds_by_group.get(group[0], 0.0) if group else 0.0)


def _seconds_by_group() -> dict[str, float]:
    """Processor time of each process group: a rank's children, which may work for it, are in its group."""
    used: dict[str, float] = {}
    for entry in filter(str.isdecimal, os.listdir("/proc")):
        stat = _stat(int(entry))
        if len(stat) > 14:
            # User and system time, of the process and of its children that have ended.
            used[stat[2]] = used.get(stat[2], 0.0) + sum(map(int, stat[11:15])) / _TICKS
    return used


def process_state(process: int) -> str:
    """One letter as in ``ps``; nothing for a process that is gone, or on a system without /proc."""
    stat = _stat(process)
    return stat[0] if stat else ""


def _stat(process: int) -> list[str]:
    """Fields of /proc/<process>/stat after the name, from the state on."""
    # The name may contain spaces and brackets, so fields are counted from the last bracket.
    return _read(f"/proc/{process}/stat").rpartition(")")[2].split()


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
