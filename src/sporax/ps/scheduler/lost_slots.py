"""Slots of which no copy is left: which they are, and the error that names them; and where a copy may still be."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sporax.ps.protocol.messages import Holders, Ready
from sporax.ps.scheduler.journal import Journal, Peer


def slots_without_server(slots: Sequence[Holders], servers: Mapping[int, Peer], since: float) -> list[int]:
    """The slots whose server has not been seen.

    Args:
        slots: who has them.
        servers: by number.
        since: seconds of the scheduler's clock; a server that is away but was seen later may still come back.
    """
    gone = {index for index, peer in servers.items() if not peer.live and peer.seen < since}
    return [slot for slot, holders in enumerate(slots) if holders.primary in gone]


def lost_reason(slots: Sequence[int], what: str, durability: str, checkpoint: str) -> str:
    """The error that ends the job.

    Args:
        slots: that are lost.
        what: they must be or do.
        durability: of the job.
        checkpoint: folder of the last complete one, "" for none.
    """
    advice = (
        f"Start again from the last complete checkpoint: MS_PS_RESTORE={checkpoint}."
        if checkpoint
        else "No checkpoint was taken (MS_PS_CHECKPOINT_PATH): start from the beginning."
    )
    return (
        f"For 'sporax.ps', slots {list(slots)} must {what}: all copies of acknowledged updates are lost (durability "
        f"'{durability}'). {advice}"
    )


def incomplete(journal: Journal, ready: Ready, reported: Mapping[int, int]) -> dict[int, str]:
    """Slots of a server that has come back without all of their updates, and what it has of them.

    Args:
        journal: says which slots the server leads.
        ready: its inventory.
        reported: last records of its slots, as far as its heartbeats reported before it ended: they had been acknowledged.
    """
    result: dict[int, str] = {}
    for slot, holders in enumerate(journal.slots):
        has, had = ready.inventory.get(slot, 0), reported.get(slot, 0)
        if holders.primary != ready.index:
            continue
        if slot in ready.missing or (journal.initialised and has == 0):
            result[slot] = f"slot {slot} is not whole"
        elif journal.initialised and has < had:
            result[slot] = f"slot {slot} has {has} of {had} records"
    return result


class RestartedCopies:
    """Servers whose logs have all of a slot, and that were started again while nothing could be acknowledged without them.

    Problem: after a failure of all machines the scheduler sees one server after the other. One that comes first is given up
    in favour of the other holder of its slots, which has not been seen; if the log of that one turns out to be damaged, the
    log of the first has everything. Method: the first one stays in the map until the other has come back, and leads if that is
    not whole. The other was not seen since the scheduler's own start, so it had no other view than the one in which both
    were needed for acknowledgements.
    """

    def __init__(self) -> None:
        self._copies: dict[int, int] = {}
        self._waiting: set[int] = set()

    def note(self, slots: Sequence[Holders], index: int, servers: Mapping[int, Peer]) -> None:
        """A server has ended: remember the slots of which it has such a copy."""
        self._waiting.discard(index)
        for slot, holders in enumerate(slots):
            other = {holders.primary: holders.backup, holders.backup: holders.primary}.get(index, -1)
            if holders.synced and _is_unheard(servers, other):
                self._copies[slot] = index

    def put_back(
        self, slots: Sequence[Holders], servers: Mapping[int, Peer], live: Collection[int], since: int
    ) -> list[Holders]:
        """The map with such copies as backups, as long as their leaders have not come back."""
        return [
            Holders(holders.primary, backup, False, since)
            if holders.backup < 0
            and (backup := self._copies.get(slot, -1)) in live
            and _is_unheard(servers, holders.primary)
            else holders
            for slot, holders in enumerate(slots)
        ]

    def must_wait(self, ready: Ready, starting: Collection[int]) -> bool:
        """Whether a server that has come back must report again later, since such a copy of what it lacks is being read back.

        A server that waits itself is not waited for: neither log is whole then.
        """
        copies = {self._copies.get(slot, -1) for slot in ready.missing}
        waits = any(index in starting and index not in self._waiting for index in copies)
        (self._waiting.add if waits else self._waiting.discard)(ready.index)
        return waits

    def complete(
        self, lost: Collection[int], ready: Ready, slots: Sequence[Holders], servers: Mapping[int, Peer]
    ) -> dict[int, int]:
        """For slots that their leader has lost: those of which there is such a copy, and which server it is.

        Args:
            lost: slots.
            ready: inventory of their leader, which has not been seen before.
            slots: the present map.
            servers: by number.
        """
        result: dict[int, int] = {}
        for slot in lost:
            backup = self._copies.get(slot, -1)
            if slots[slot].backup != backup or backup < 0 or not servers[backup].live:
                continue
            # As long as what the leader still knows of, at least.
            if servers[backup].inventory.get(slot, 0) >= max(ready.missing.get(slot, 0), 1):
                result[slot] = backup
        return result


def _is_unheard(servers: Mapping[int, Peer], index: int) -> bool:
    return index in servers and not servers[index].sender
