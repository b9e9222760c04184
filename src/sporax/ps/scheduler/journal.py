"""What a scheduler remembers of a job: what must survive its own end (`Journal`), and what it receives again (`Peer`);
`status_of` shows both to people and to metrics.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from sporax.base.errors import SporaxRuntimeError
from sporax.ps.protocol.messages import Holders, Members, Options, ServerAddress
from sporax.ps.slots.log_file import replace_file, storage_error


class Journal(msgspec.Struct):
    """What must survive the scheduler's own end.

    Attributes:
        job: a name that distinguishes this job's files from others'.
        worker_num, server_num: requested numbers.
        first_workers, most_workers: number of workers that the job began with, and the largest that was ever requested.
        epoch, slots, members: of the newest view.
        servers, server_nodes: newest start of every server, and who it was.
        workers: rank -> (node, incarnation, whether it has ended well).
        worker_senders: rank -> transport address of its newest start, by which a repeated registration is recognised.
        initialised: variables exist in all slots.
        draining: servers that should become empty.
        retired: nodes that have left for good.
        retired_starts: (server number, start) of servers that were let go.
        lease_size, lease_total: samples per lease and in all.
        leases_done: ranges of lease numbers.
        error: why the job cannot go on.
        checkpoint: folder of the last complete checkpoint.
        checkpoints: number of the last attempt.
    """

    job: str
    worker_num: int
    server_num: int
    epoch: int = 0
    slots: list[Holders] = []
    members: list[Members] = []
    servers: dict[int, ServerAddress] = {}
    server_nodes: dict[int, str] = {}
    workers: dict[int, tuple[str, int, bool]] = {}
    initialised: bool = False
    draining: list[int] = []
    retired: list[str] = []
    retired_starts: list[tuple[int, int]] = []
    lease_size: int = 0
    lease_total: int = 0
    leases_done: list[tuple[int, int]] = []
    error: str = ""
    checkpoint: str = ""
    checkpoints: int = 0
    first_workers: int = 0
    most_workers: int = 0
    worker_senders: dict[int, bytes] = {}


_HEAD = struct.Struct("<4sI")  # magic, CRC-32 of what follows
_MAGIC = b"SPXJ"


def journal_path(directory: Path, port: int) -> Path:
    """Where the scheduler that listens on a port has its journal."""
    return directory / f"scheduler-{port}.journal"


def read_journal(path: Path) -> Journal:
    """The journal in a file; those of earlier versions have no checksum.

    Raises:
        SporaxRuntimeError: it is damaged.
    """
    data = path.read_bytes()
    try:
        magic, checksum = _HEAD.unpack_from(data)
        if magic == _MAGIC:
            data = data[_HEAD.size :]
        if magic != _MAGIC or zlib.crc32(data) == checksum:
            return msgspec.msgpack.decode(data, type=Journal)
    except (struct.error, msgspec.DecodeError):  # a `ValidationError` is one, too
        pass
    raise SporaxRuntimeError(
        f"For 'sporax.ps', the scheduler's journal '{path}' must be whole, but it is damaged ({len(data)} bytes), so the job "
        "cannot go on. Remove or rename the file and start the job again, from a checkpoint with MS_PS_RESTORE=<folder>."
    )


def write_journal(path: Path, journal: Journal) -> None:
    """Replace the journal in a file, through to the disk.

    Raises:
        StorageError: the disk does not take it; the old one stays.
    """
    data = msgspec.msgpack.encode(journal)
    try:
        replace_file(path, [_HEAD.pack(_MAGIC, zlib.crc32(data)), data])
    except OSError as error:
        raise storage_error("the scheduler's journal", path, len(data), error) from error


class Peer(Struct):
    """What is remembered of a process only as long as the scheduler runs."""

    seen: float
    sender: bytes = b""
    live: bool = True
    clocks: dict[int, int] = field(default_factory=dict)
    lsns: dict[int, int] = field(default_factory=dict)
    gauges: dict[str, float] = field(default_factory=dict)
    epoch: int = 0
    inventory: dict[int, int] = field(default_factory=dict)


def without(members: list[Members], rank: int, clock: int) -> list[Members]:
    """The schedule without a rank from a clock on."""
    result: list[Members] = []
    for position, entry in enumerate(members):
        # The end of an entry's range is the beginning of the next one.
        stop = members[position + 1].clock if position + 1 < len(members) else None
        if rank not in entry.ranks or (stop is not None and stop <= clock):
            result.append(entry)
            continue
        rest = [other for other in entry.ranks if other != rank]
        # Before that clock the rank was still a member.
        if entry.clock < clock:
            result.append(entry)
        result.append(Members(max(entry.clock, clock), rest))
    return result


def status_of(
    journal: Journal, options: Options, servers: Mapping[int, Peer], workers: Mapping[int, Peer], note: str
) -> dict[str, Any]:
    """State of the job for people."""
    return {
        "job": journal.job,
        "epoch": journal.epoch,
        "staleness": options.staleness,
        "durability": options.durability,
        "members": journal.members[-1].ranks if journal.members else [],
        "note": journal.error or note,
        "checkpoint": journal.checkpoint,
        "servers": [
            {
                "index": index,
                "live": peer.live,
                "primary": sum(holders.primary == index for holders in journal.slots),
                "backup": sum(holders.backup == index for holders in journal.slots),
                "synced": sum(holders.backup == index and holders.synced for holders in journal.slots),
                "clock": max(peer.clocks.values(), default=0),
                "lag": max(peer.clocks.values(), default=0) - min(peer.clocks.values(), default=0),
                "records": sum(peer.lsns.values()),
                **{name: value for name, value in peer.gauges.items() if name != "held"},
            }
            for index, peer in sorted(servers.items())
        ],
        "workers": [
            {
                "rank": rank,
                "live": rank in workers and workers[rank].live,
                "ended": entry[2],
                "incarnation": entry[1],
                **(workers[rank].gauges if rank in workers else {}),
            }
            for rank, entry in sorted(journal.workers.items())
        ],
        "slots": [[holders.primary, holders.backup, int(holders.synced)] for holders in journal.slots],
    }
