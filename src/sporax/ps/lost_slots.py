"""Slots of which no copy is left: which they are, and the error that names them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sporax.ps.journal import Peer
from sporax.ps.messages import Holders


def slots_without_server(slots: Sequence[Holders], servers: Mapping[int, Peer], since: float) -> list[int]:
    """The slots whose server has not been heard of.

    Args:
        slots: who has them.
        servers: by number.
        since: seconds of the scheduler's clock; a server that is away but was heard of later may still come back.
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
