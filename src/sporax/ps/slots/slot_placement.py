"""Where things are kept: dense parameters in slots, slots on servers.

Parameters -> slots depends on the parameters alone, so every worker finds the same layout and it never changes. Slots ->
servers is the scheduler's versioned map; `rebalanced` moves it one safe step towards its goal: a slot changes its
primary only to a backup that holds every acknowledged update.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Sequence

from msgspec import Struct

from sporax.ps.protocol.messages import Holders
from sporax.ps.protocol.wire import CHUNK_BYTES

# Values of a block: as many as one frame of the wire has.
BLOCK_VALUES = CHUNK_BYTES // 4


class Piece(Struct, frozen=True):
    """Part of a flattened parameter: values `start` to `stop` of parameter `index`, at `offset` of its segment."""

    index: int
    start: int
    stop: int
    offset: int


class SegmentPlan(Struct, frozen=True):
    """One dense variable of one slot: the pieces of all parameters of one optimizer group that are kept there."""

    slot: int
    key: int
    size: int
    pieces: tuple[Piece, ...]


def dense_layout(sizes: Sequence[int], groups: Sequence[int], num_slots: int) -> list[SegmentPlan]:
    """Divide parameters into blocks of at most 4 MiB and deal them out to slots, balanced by bytes.

    Args:
        sizes: number of values of each parameter.
        groups: optimizer group of each parameter; a group's number is its segments' key.
        num_slots: slots of the job.

    Returns:
        Segments by slot and key.
    """
    blocks = [
        (min(BLOCK_VALUES, size - start), index, start)
        for index, size in enumerate(sizes)
        for start in range(0, size, BLOCK_VALUES)
    ]
    # A heap finds the slot with the least bytes.
    load = [(0, slot) for slot in range(num_slots)]
    chosen: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    # Large blocks first balance best; index and start make the order the same in all workers.
    for length, index, start in sorted(blocks, key=lambda block: (-block[0], block[1], block[2])):
        total, slot = heapq.heappop(load)
        heapq.heappush(load, (total + length, slot))
        chosen.setdefault((slot, groups[index]), []).append((index, start, start + length))
    plans: list[SegmentPlan] = []
    for (slot, key), parts in sorted(chosen.items()):
        offset, pieces = 0, []
        # In the order of parameters, so that neighbouring pieces can be copied together.
        for index, start, stop in sorted(parts):
            pieces.append(Piece(index, start, stop, offset))
            offset += stop - start
        plans.append(SegmentPlan(slot, key, offset, tuple(pieces)))
    return plans


def first_map(num_slots: int, servers: Sequence[int], with_backup: bool) -> list[Holders]:
    """Slots dealt out to servers in turn, the backup on the next server."""
    servers = sorted(servers)
    with_backup = with_backup and len(servers) > 1
    return [
        Holders(
            servers[slot % len(servers)],
            # Backups are spread over all other servers, so that the load of a lost one is shared out.
            servers[(slot + 1 + slot // len(servers) % (len(servers) - 1)) % len(servers)] if with_backup else -1,
        )
        for slot in range(num_slots)
    ]


def after_loss(slots: Sequence[Holders], lost: int) -> list[Holders]:
    """The map without a lost server: synced backups take over; where there is none the slot waits for its server."""
    result: list[Holders] = []
    for holders in slots:
        # Only a synced backup has every acknowledged update.
        if holders.primary == lost and holders.backup >= 0 and holders.synced:
            result.append(Holders(holders.backup))
        elif holders.primary == lost:
            # Without one the slot waits for its server, whose log or memory may come back.
            result.append(Holders(lost))
        elif holders.backup == lost:
            result.append(Holders(holders.primary))
        else:
            result.append(holders)
    return result


def rebalanced(
    slots: Sequence[Holders], live: Collection[int], draining: Collection[int], with_backup: bool
) -> list[Holders]:
    """One step towards: no slot on draining servers, primaries and backups evenly spread.

    Args:
        slots: the present map.
        live: servers that can be reached.
        draining: servers that should become empty.
        with_backup: whether each slot should have a backup.
    """
    usable = sorted(server for server in live if server not in draining)
    if not usable:
        return list(slots)
    goal = _goal_primaries(slots, usable, live)
    result = [_step(holders, goal[slot], usable, with_backup) for slot, holders in enumerate(slots)]
    if not with_backup or len(usable) < 2:
        # With one server there is no place for a backup.
        return result
    load = Counter(holders.backup for holders in result)
    for slot, holders in enumerate(result):
        if holders.backup < 0 and holders.primary in live:
            backup = min(
                # The one with the fewest backups, then the lowest number: the same choice in every run.
                (server for server in usable if server != holders.primary),
                key=lambda server: (load[server], server),
            )
            load[backup] += 1
            result[slot] = Holders(holders.primary, backup)
    return result


def dated(old: Sequence[Holders], new: Sequence[Holders], epoch: int) -> list[Holders]:
    """`new` as the map of `epoch`: backups that were not there in `old` are noted as beginning now."""
    return [
        after
        if index < len(old) and (old[index].primary, old[index].backup) == (after.primary, after.backup)
        else Holders(after.primary, after.backup, False, epoch)
        for index, after in enumerate(new)
    ]


def _goal_primaries(slots: Sequence[Holders], usable: Sequence[int], live: Collection[int]) -> list[int]:
    """The server each slot should have as its primary, with as few moves as possible."""
    goal = [holders.primary for holders in slots]
    load = Counter(dict.fromkeys(usable, 0))
    load.update(primary for primary in goal if primary in load)
    # Servers with no more than their even share need not give anything away.
    least = len(slots) // len(usable)
    for slot, primary in enumerate(goal):
        if primary not in live:
            continue  # the slot waits for the server that has its state
        target = min(usable, key=lambda server: (load[server], server))
        leaves = primary not in load
        if leaves or (load[primary] > least and load[target] < least) or load[primary] > load[target] + 1:
            goal[slot] = target
            load[target] += 1
            if not leaves:
                load[primary] -= 1
    return goal


def _step(holders: Holders, goal: int, usable: Sequence[int], with_backup: bool) -> Holders:
    """Move one slot one step towards its requested primary."""
    if goal == holders.primary:
        if holders.backup >= 0 and (holders.backup not in usable or not with_backup):
            # A backup on a server that goes away is given up first.
            return Holders(holders.primary)
        return holders
    # The change of leaders: the backup has everything.
    if holders.backup == goal and holders.synced:
        return Holders(goal, holders.primary if with_backup and holders.primary in usable else -1)
    # It is on its way to being synced.
    if holders.backup == goal:
        return holders
    # The new server begins as backup, replacing the present one.
    return Holders(holders.primary, goal)
