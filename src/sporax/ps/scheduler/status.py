"""The state of a job, for people and for metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sporax.ps.protocol.messages import Options
from sporax.ps.scheduler.journal import Journal, Peer


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
