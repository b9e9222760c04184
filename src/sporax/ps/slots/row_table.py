"""Rows of one embedding table in one slot: growable slabs, a vectorised open-addressing index, and the hashes of ids.

Reading never changes anything: a row that does not exist reads as its first value, which (seed, table, id) give. A row
comes to be with its first update. All decisions (admission, eviction) depend on the state and the update alone, so that
replaying the same records gives the same table.

Hashes (`mix`) say which slot keeps a row, where an index looks for it, and its first values. The mix is the finaliser of
SplitMix64 (Steele, Lea & Flood 2014): fast, vectorised, and every bit of the id reaches every bit of the result. First values
come from (seed, table, id, column) alone, so a row may be made anywhere, in any order.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from sporax.ps.protocol.messages import VariableSpec
from sporax.ps.protocol.wire import Floats, Ids
from sporax.ps.slots import update

_T = TypeVar("_T", bound=np.generic)

_EMPTY = np.int64(-(2**63))  # this id cannot be stored
# Rows; below this a table is not worth growing step by step.
_LEAST_CAPACITY = 64
_BLOCK_BYTES = 128 << 10  # of one slab: values, state, gradient and what is made of them fit into a core's second cache
_EVICTED_SHARE = 8  # one eighth of max_rows goes at a time, so that eviction is rare

Hashes = npt.NDArray[np.uint64]

# The constants of SplitMix64.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1, _MIX2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_MASK = (1 << 64) - 1
# 53 bits fit exactly into a float64.
_TO_UNIT = 2.0**-53


def mix(values: Hashes) -> Hashes:
    """SplitMix64's finaliser of every value."""
    # Multiplication modulo 2**64 is part of the hash.
    with np.errstate(over="ignore"):
        values = values + _GOLDEN
        values = (values ^ (values >> np.uint64(30))) * _MIX1
        values = (values ^ (values >> np.uint64(27))) * _MIX2
        return values ^ (values >> np.uint64(31))


def hash_ids(ids: Ids) -> Hashes:
    """A hash of every row id."""
    return mix(ids.view(np.uint64) if ids.dtype == np.int64 else ids.astype(np.uint64))


def slots_of(ids: Ids, num_slots: int) -> npt.NDArray[np.int64]:
    """The slot that keeps each row."""
    # The upper bits, since the index of a table uses the lower ones.
    return ((hash_ids(ids) >> np.uint64(40)) % np.uint64(num_slots)).astype(np.int64)


def first_rows(ids: Ids, width: int, *, seed: int, table: int, sigma: float, distribution: str) -> Floats:
    """First values of rows, shape (number of ids, width).

    Args:
        ids: row ids.
        width: values per row.
        seed, table: which run and which table.
        sigma: standard deviation of ``normal``, half the range of ``uniform``, the value of ``constant``.
        distribution: ``normal``, ``uniform``, ``zeros`` or ``constant``.
    """
    if distribution in ("zeros", "constant"):
        return np.full((len(ids), width), sigma if distribution == "constant" else 0.0, np.float32)
    # Other constants for table and seed, so that no two tables begin with equal rows.
    stream = np.uint64(((seed * 0x9E3779B97F4A7C15) ^ (table * 0xD1B54A32D192ED03)) & _MASK)
    rows = mix(hash_ids(ids) ^ stream)[:, None]
    first = _unit(mix(rows ^ mix(np.arange(width, dtype=np.uint64))[None, :]))
    if distribution == "uniform":
        return ((2.0 * first - 1.0) * sigma).astype(np.float32)
    second = _unit(mix(rows ^ mix(np.arange(width, 2 * width, dtype=np.uint64))[None, :]))
    normal = np.sqrt(-2.0 * np.log(1.0 - first)) * np.cos(2.0 * np.pi * second)  # Box and Muller 1958
    return (normal * sigma).astype(np.float32)


def _unit(values: Hashes) -> npt.NDArray[np.float64]:
    """Hashes as numbers in [0, 1)."""
    # The upper 53 bits: the lower ones do not fit into a float64.
    return (values >> np.uint64(11)).astype(np.float64) * _TO_UNIT


class HashIndex:
    """Row id -> position, for whole arrays of ids at a time (linear probing, at most half full)."""

    def __init__(self) -> None:
        self._keys = np.full(_LEAST_CAPACITY * 2, _EMPTY, np.int64)
        self._positions = np.zeros(_LEAST_CAPACITY * 2, np.int64)
        self._count = 0

    def find(self, ids: Ids) -> npt.NDArray[np.int64]:
        """The position of each id, -1 where there is none."""
        mask = len(self._keys) - 1
        place = (hash_ids(ids) & np.uint64(mask)).astype(np.int64)
        keys = self._keys[place]
        result = np.where(keys == ids, self._positions[place], -1)
        # Ids whose first place holds another id look at the next one.
        open_ = np.flatnonzero((keys != ids) & (keys != _EMPTY))
        while len(open_):
            place[open_] = (place[open_] + 1) & mask
            at = place[open_]
            keys = self._keys[at]
            hit = keys == ids[open_]
            result[open_[hit]] = self._positions[at[hit]]
            open_ = open_[~hit & (keys != _EMPTY)]
        return result

    def insert(self, ids: Ids, positions: npt.NDArray[np.int64]) -> None:
        """Add ids that are new and differ from each other."""
        # At most half full: longer chains of probes would cost more than the memory.
        if 2 * (self._count + len(ids)) > len(self._keys):
            used = self._keys != _EMPTY
            all_ids = np.concatenate([self._keys[used], ids])
            all_positions = np.concatenate([self._positions[used], positions])
            # A power of two, so that a mask replaces the division.
            capacity = 1 << int(4 * len(all_ids) - 1).bit_length()
            self._keys = np.full(capacity, _EMPTY, np.int64)
            self._positions = np.zeros(capacity, np.int64)
            ids, positions, self._count = all_ids, all_positions, 0
        self._count += len(ids)
        mask = len(self._keys) - 1
        place = (hash_ids(ids) & np.uint64(mask)).astype(np.int64)
        open_ = np.arange(len(ids))
        while len(open_):
            at = place[open_]
            free = self._keys[at] == _EMPTY
            self._keys[at[free]] = ids[open_[free]]  # of several ids at one place, the last written stays
            won = self._keys[at] == ids[open_]
            self._positions[at[won]] = positions[open_[won]]
            open_ = open_[~won]
            place[open_] = (place[open_] + 1) & mask


class RowTable:
    """All rows of one table in one slot, with the optimizer's state of each."""

    def __init__(self, spec: VariableSpec) -> None:
        self.spec = spec
        self.count = 0
        self.updates = 0
        self.changed = 0
        self.scalars = dict(update.rule_of(spec.optimizer).scalars)
        self.refused_rows = 0
        self.evicted_rows = 0
        self._first_state = update.first_state(spec.optimizer)
        self._index = HashIndex()
        # Ids that requested a row and have none yet, with how often.
        self._seen = HashIndex()
        self._seen_ids = np.empty(0, np.int64)
        self._seen_counts = np.empty(0, np.int64)
        self._ids = np.empty(0, np.int64)
        self._used = np.empty(0, np.int64)
        self._slabs: list[Floats] = [np.empty((0, spec.width), np.float32) for _ in range(1 + len(self._first_state))]
        self._before: tuple[Ids, Floats] | None = None

    @property
    def num_bytes(self) -> int:
        """Memory the rows take."""
        return self.count * self.spec.width * 4 * len(self._slabs)

    def first(self, ids: Ids) -> Floats:
        """First values of rows."""
        spec = self.spec
        return first_rows(
            ids, spec.width, seed=spec.seed, table=spec.key, sigma=spec.sigma, distribution=spec.distribution
        )

    def read(self, ids: Ids, *, before: bool = False) -> Floats:
        """Rows in the order of `ids`, shape (len(ids), width).

        Args:
            ids: row ids, repetitions allowed.
            before: as they were before the last update.
        """
        position = self._index.find(ids)
        missing = position < 0
        # Missing rows read as their first values without being made.
        rows = (
            self._slabs[0][np.where(missing, 0, position)]
            if self.count
            else np.empty((len(ids), self.spec.width), np.float32)
        )
        if missing.any():
            rows[missing] = self.first(ids[missing])
        if before and self._before is not None:
            old_ids, old_rows = self._before
            # The ids are sorted, so a binary search finds those that were changed.
            at = np.searchsorted(old_ids, ids)
            changed = (
                (at < len(old_ids)) & (old_ids[np.minimum(at, len(old_ids) - 1)] == ids)
                if len(old_ids)
                else missing & False
            )
            rows[changed] = old_rows[at[changed]]
        return rows

    def update(self, ids: Ids, gradients: Floats, rate: float, *, keep_before: bool) -> None:
        """Move rows.

        Args:
            ids: sorted, each once.
            gradients: shape (len(ids), width).
            rate: learning rate.
            keep_before: remember the rows as they were, for pulls of the clock before.
        """
        self.updates += 1
        self.scalars = update.advanced(self.spec.optimizer, self.scalars)
        # Before anything moves; a view would change with the rows.
        self._before = (ids, self.read(ids)) if keep_before else None
        position = self._index.find(ids)
        position = self._with_new_rows(ids, position)
        # Rows that are not admitted have no place, and their gradients are dropped.
        if (position < 0).any():
            has_room = position >= 0
            self.refused_rows += int((~has_room).sum())
            position, gradients = position[has_room], gradients[has_room]
        self._move(position, gradients, rate)
        self._used[position] = self.updates
        if self.spec.ttl or self.spec.max_rows:
            self._evict()

    def _move(self, position: npt.NDArray[np.int64], gradients: Floats, rate: float) -> None:
        """Move the rows at distinct positions, block by block: what is gathered of one stays in the cache until it is written."""
        num_rows = max(1, _BLOCK_BYTES // (4 * self.spec.width))
        for start in range(0, len(position), num_rows):
            at = position[start : start + num_rows]
            # Gathered once: rows are scattered over the slab.
            value, *state = [slab.take(at, axis=0) for slab in self._slabs]
            gradient = gradients[start : start + num_rows]
            moved = update.move(self.spec.optimizer, gradient, value, tuple(state), rate, self.scalars)
            for slab, rows in zip(self._slabs, moved, strict=True):
                slab[at] = rows

    def _with_new_rows(self, ids: Ids, position: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Make the rows that are missing and admitted; gives all positions."""
        missing = np.flatnonzero(position < 0)
        if not len(missing):
            return position
        missing = missing[self._admitted(ids[missing])]
        new = ids[missing]
        start, stop = self.count, self.count + len(new)
        if stop > len(self._ids):
            self._grow(stop)
        fresh = np.arange(start, stop)
        self._ids[start:stop] = new
        self._slabs[0][start:stop] = self.first(new)
        for slab, value in zip(self._slabs[1:], self._first_state, strict=True):
            slab[start:stop] = value
        self._index.insert(new, fresh)
        self.count = stop
        # The caller's array stays as it was.
        position = position.copy()
        position[missing] = fresh
        return position

    def _admitted(self, ids: Ids) -> npt.NDArray[np.bool_]:
        """Which new ids get a row now."""
        allowed = np.ones(len(ids), np.bool_)
        if self.spec.admit_probability < 1.0:
            limit = np.uint64(min(int(self.spec.admit_probability * 2.0**64), 2**64 - 1))
            # By hash, so that every copy of the slot makes the same decision.
            allowed &= hash_ids(ids ^ np.int64(self.spec.seed + 0x5EED)) < limit
        if self.spec.admit_count > 1:
            at = self._seen.find(ids)
            unseen = at < 0
            fresh = np.arange(len(self._seen_ids), len(self._seen_ids) + int(unseen.sum()))
            self._seen.insert(ids[unseen], fresh)
            self._seen_ids = np.concatenate([self._seen_ids, ids[unseen]])
            self._seen_counts = np.concatenate([self._seen_counts, np.zeros(len(fresh), np.int64)])
            at[unseen] = fresh
            self._seen_counts[at] += 1
            allowed &= self._seen_counts[at] >= self.spec.admit_count
        return allowed

    def _grow(self, needed: int) -> None:
        """Make room, doubling."""
        capacity = max(_LEAST_CAPACITY, needed, 2 * len(self._ids))
        self._ids = _longer(self._ids, self.count, capacity)
        self._used = _longer(self._used, self.count, capacity)
        self._slabs = [_longer(slab, self.count, capacity) for slab in self._slabs]

    def _evict(self) -> None:
        """Drop rows that are too old or too many."""
        keep = np.ones(self.count, np.bool_)
        # Four times per lifetime is often enough, and looking at all rows costs time.
        if self.spec.ttl and self.updates % max(1, self.spec.ttl // 4) == 0:
            keep &= self._used[: self.count] > self.updates - self.spec.ttl
        left = int(keep.sum())
        if self.spec.max_rows and left > self.spec.max_rows:
            goal = max(1, self.spec.max_rows - self.spec.max_rows // _EVICTED_SHARE)
            order = np.lexsort((self._ids[: self.count], self._used[: self.count]))  # oldest first, ties by id
            keep[order[keep[order]][: left - goal]] = False
        if keep.all():
            return
        self.evicted_rows += int((~keep).sum())
        chosen = np.flatnonzero(keep)
        self._ids, self._used = self._ids[chosen], self._used[chosen]
        self._slabs = [slab[chosen] for slab in self._slabs]
        self.count = len(chosen)
        # Positions have changed, so the index is made again.
        self._index = HashIndex()
        self._index.insert(self._ids, np.arange(self.count))

    def arrays(self) -> list[npt.NDArray[np.generic]]:
        """Everything to keep: ids, times of use, seen ids and counts, the update before, then the slabs."""
        count = self.count
        old_ids, old_rows = self._before or (np.empty(0, np.int64), np.empty((0, self.spec.width), np.float32))
        fixed: list[npt.NDArray[np.generic]] = [
            self._ids[:count],
            self._used[:count],
            self._seen_ids,
            self._seen_counts,
            old_ids,
            old_rows,
        ]
        return [*fixed, *(slab[:count] for slab in self._slabs)]

    @classmethod
    def restored(cls, spec: VariableSpec, scalars: dict[str, float], arrays: list[npt.NDArray[np.uint8]]) -> RowTable:
        """The table whose `arrays()` and `saved_scalars()` these are."""
        table = cls(spec)
        # Copies: the image's memory belongs to a message.
        tables = [array.view(np.int64).copy() for array in arrays[:5]]
        table._ids, table._used, table._seen_ids, table._seen_counts, old_ids = tables
        rows = [array.view(np.float32).reshape(-1, spec.width).copy() for array in arrays[5:]]
        table._before = (old_ids, rows[0]) if len(old_ids) else None
        table._slabs = rows[1:]
        table.count = len(table._ids)
        table._index.insert(table._ids, np.arange(table.count))
        table._seen.insert(table._seen_ids, np.arange(len(table._seen_ids)))
        scalars = dict(scalars)
        table.updates, table.changed = int(scalars.pop("updates")), int(scalars.pop("changed"))
        table.refused_rows, table.evicted_rows = int(scalars.pop("refused")), int(scalars.pop("evicted"))
        table.scalars = scalars
        return table

    def saved_scalars(self) -> dict[str, float]:
        """Numbers that go with `arrays()`."""
        counts = {"updates": self.updates, "changed": self.changed}
        return {**self.scalars, **counts, "refused": self.refused_rows, "evicted": self.evicted_rows}


def _longer(array: npt.NDArray[_T], used: int, capacity: int) -> npt.NDArray[_T]:
    """A copy with more room."""
    longer = np.empty((capacity, *array.shape[1:]), array.dtype)
    longer[:used] = array[:used]
    return longer
