"""The rows of one served table that a worker keeps, their gradients until they are written back, and rows requested ahead.

A *copy* of a row is read for `lifetime` steps: 0 in synchronous mode, where every step needs the rows of its own clock; the
staleness otherwise. The gradients of a row are summed here while its copy lives and are written back together, with the push
of the step in which the copy ends, is evicted, or is replaced by one that was requested ahead. So a row that many steps use
is sent once per lifetime, and in synchronous mode each step's gradients are sent with that step, bit for bit.

A row whose gradients are only here is *dirty*. No step that made a row dirty counts as acknowledged before the row was
written back: a killed worker loses what the servers have never acknowledged, no more (docs/parameter_server.md).

Rows that the next step will look up are requested while the present step runs. In synchronous mode that request is for the
next clock; servers keep it until the update of the present clock is made, and answer then without a further request.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sporax.base.errors import SporaxRuntimeError

if TYPE_CHECKING:
    from sporax.ps.worker.server_connection import ServerConnection

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]
Positions = npt.NDArray[np.int64]

_LIFETIME_WHEN_UNBOUNDED = 1
"""Steps that a copy is read again in asynchronous mode, which gives no bound itself."""


class RowCache:
    """Rows of a served table that a worker keeps: places in the device's cache, and who they belong to.

    Args:
        name: of the table, the same in all workers.
        width: values per row.
        capacity: rows of the device's cache.
        num_rows: of the table; 0 for as many as the cache has.
        settings: of `VariableSpec`: how first values are drawn, and which rows servers keep; `max_rows` of all slots.
    """

    def __init__(self, name: str, width: int, capacity: int, *, num_rows: int = 0, **settings: Any) -> None:
        self.name = name
        self.width = width
        self.capacity = capacity
        self.num_rows = num_rows or capacity
        self.settings = settings
        self.key = -1
        self.hits = self.misses = self.written_rows = 0
        self._place_of: dict[int, int] = {}
        self._ids: Ids = np.empty(0, np.int64)
        self._clocks = np.empty(0, np.int64)
        self._rows: Floats = np.empty((0, width), np.float32)
        self._used = np.empty(0, np.int64)
        self._gradients: Floats = np.empty((0, width), np.float32)
        self._dirty = np.empty(0, np.bool_)
        self._set_aside: list[tuple[Ids, Floats]] = []
        self._step = 0
        self._in_step: set[int] = set()
        self._ahead: tuple[Ids, int, Any] | None = None
        self._requested: Ids | None = None

    def rows_per_slot(self, num_slots: int) -> int:
        """`max_rows` of each of so many slots, which count their own rows."""
        return -(-int(self.settings.get("max_rows", 0)) // num_slots)

    def positions(self, connection: ServerConnection, ids: Ids) -> tuple[npt.NDArray[np.int32], Floats]:
        """Places of the ids of a training step in the cache, and their rows.

        Raises:
            SporaxRuntimeError: a step looks up more different ids than the cache has rows.
        """
        # Rows of the running step must not be evicted before their gradients are taken.
        unique, inverse, positions = self._filled(connection, ids)
        self._in_step.update(positions.tolist())
        self._request_next(connection, ids, unique)
        rows = self._rows[positions[inverse]].reshape(*ids.shape, self.width)
        return positions[inverse].astype(np.int32).reshape(ids.shape), rows

    def rows(self, connection: ServerConnection, ids: Ids) -> Floats:
        """Rows for a lookup that has no gradient, as in evaluation; any number of different ids."""
        unique, inverse = np.unique(ids.reshape(-1), return_inverse=True)
        # More ids than free places: an evaluation reads past the cache, since it keeps no gradients.
        if len(unique) > self.capacity - len(self._in_step):
            _, rows = connection.fetch({self.key: unique})
            return np.asarray(rows[self.key][inverse]).reshape(*ids.shape, self.width)
        _, inverse, positions = self._filled(connection, ids)
        return self._rows[positions[inverse]].reshape(*ids.shape, self.width)

    def _filled(self, connection: ServerConnection, ids: Ids) -> tuple[Ids, Positions, Positions]:
        """Fetch what is missing or too old; gives the different ids, the index of each id in them, and their places."""
        self._allocate()
        # First, since rows that have arrived may be just those that are missing.
        self._take_ahead(connection)
        unique, inverse = np.unique(ids.reshape(-1), return_inverse=True)
        positions = self._positions_of(unique)
        store = connection.store
        usable = self._usable(positions, store.clock, lifetime(store.options.staleness))
        self.hits += int(usable.sum())
        self.misses += int((~usable).sum())
        self._make_room(unique, positions)
        if not usable.all():
            _, rows = connection.fetch({self.key: unique[~usable]})
            self._put(positions[~usable], rows[self.key], store.clock)
        # A number per lookup is enough to find the least recently used row.
        self._step += 1
        self._used[positions] = self._step
        return unique, inverse, positions

    def _allocate(self) -> None:
        """Take the memory at the first lookup: tables that are served as a whole need none."""
        if not len(self._ids):
            self._ids = np.full(self.capacity, -1, np.int64)
            self._clocks = np.full(self.capacity, -1, np.int64)
            self._rows = np.zeros((self.capacity, self.width), np.float32)
            self._used = np.zeros(self.capacity, np.int64)
            self._gradients = np.zeros((self.capacity, self.width), np.float32)
            self._dirty = np.zeros(self.capacity, np.bool_)

    def _positions_of(self, unique: Ids) -> Positions:
        """-1 for ids without a place."""
        return np.array([self._place_of.get(number, -1) for number in unique.tolist()], np.int64)

    def _usable(self, positions: Positions, clock: int, lifetime: int) -> npt.NDArray[np.bool_]:
        """Which places hold a row that may be read at a clock; -1 reads the last place, whose clock is then ignored."""
        # A negative place would index the last row, whose clock must not count.
        return (positions >= 0) & (clock - self._clocks[positions] <= lifetime)

    def _put(self, positions: Positions, rows: Floats, clock: int) -> None:
        """New copies; what the old ones had gathered is written back with the next push."""
        # Gradients of the old copy leave first: the new copy begins without any.
        self._give_up(positions)
        self._rows[positions] = rows
        self._clocks[positions] = clock

    def _make_room(self, unique: Ids, positions: Positions) -> None:
        """Give every id a place, the least recently used ones first; places of this step stay."""
        missing = np.flatnonzero(positions < 0)
        if not len(missing):
            return
        free = np.ones(self.capacity, np.bool_)
        free[positions[positions >= 0]] = False
        # These rows have gradients to come.
        free[list(self._in_step)] = False
        candidates = np.flatnonzero(free)
        if len(candidates) < len(missing):
            raise SporaxRuntimeError(
                f"For 'EmbeddingLookup', 'vocab_cache_size' of '{self.name}' must be at least the number of different ids "
                f"of a step, but got {self.capacity} rows and {self.capacity - len(candidates) + len(missing)} ids."
            )
        # A stable order makes runs repeatable.
        oldest = candidates[np.argsort(self._used[candidates], kind="stable")[: len(missing)]]
        self._give_up(oldest)
        for place in oldest.tolist():
            self._place_of.pop(int(self._ids[place]), None)
        self._ids[oldest] = unique[missing]
        # So old that no lifetime reaches it, and far enough from the smallest int64 to subtract from.
        self._clocks[oldest] = -1 - 2**62  # no copy yet
        self._place_of.update(zip(unique[missing].tolist(), oldest.tolist(), strict=True))
        positions[missing] = oldest

    def take_gradient(self, gradient: Floats, clock: int, lifetime: int) -> tuple[Ids, Floats]:
        """Add a step's gradient to the rows that it has looked up; gives what is to be written back with its push.

        Args:
            gradient: of the device's cache, shape (capacity, width).
            clock: of the step.
            lifetime: steps for which a copy is read; 0 writes everything back at once.
        """
        positions = np.array(sorted(self._in_step), np.int64)
        self._in_step.clear()
        # The first gradient overwrites, so that places need no clearing when they are given up.
        fresh, again = positions[~self._dirty[positions]], positions[self._dirty[positions]]
        self._gradients[fresh] = gradient[fresh]
        self._gradients[again] += gradient[again]
        self._dirty[positions] = True
        # The next step's clock decides: a copy that is too old then ends now, with this push.
        ended = self._dirty if lifetime == 0 else self._dirty & (clock + 1 - self._clocks > lifetime)
        self._give_up(np.flatnonzero(ended))
        return self._written()

    def take_dirty(self) -> tuple[Ids, Floats]:
        """Everything that was not written back yet."""
        if len(self._ids):
            self._give_up(np.flatnonzero(self._dirty))
        return self._written()

    def _give_up(self, positions: Positions) -> None:
        """Gather the gradients of places whose copies end."""
        dirty = positions[self._dirty[positions]]
        if len(dirty):
            self._set_aside.append((self._ids[dirty], self._gradients[dirty]))
            self._dirty[dirty] = False

    def _written(self) -> tuple[Ids, Floats]:
        # Swapped in one statement, so that nothing is written back twice.
        parts, self._set_aside = self._set_aside, []
        if not parts:
            return np.empty(0, np.int64), np.empty((0, self.width), np.float32)
        ids = np.concatenate([ids for ids, _ in parts])
        self.written_rows += len(ids)
        return ids, np.ascontiguousarray(np.concatenate([values for _, values in parts]))

    def prefetch(self, connection: ServerConnection, ids: Ids) -> None:
        """Request rows that the next step will look up.

        In synchronous mode the clock of that step must be known: during a step it is the next one. Between two steps it
        is not known here whether the program of the present step has begun, so its lookup requests them.
        """
        with connection.lock:
            self._allocate()
            if self._in_step:
                self._request(connection, ids, connection.clocks_per_step)
            elif connection.store.options.staleness == 0 and self._step > 0:
                self._requested = ids
            else:
                self._request(connection, ids, 0)

    def _request_next(self, connection: ServerConnection, ids: Ids, unique: Ids) -> None:
        """While this step runs, request the rows of the next one where its ids are known."""
        following, self._requested = self._requested, None
        # A request that names the present step's rows came too late.
        if following is not None and np.array_equal(np.unique(following), unique):
            following = None  # these were the ids of this step
        if following is None:
            following = connection.next_batches.following(ids)
        if following is not None:
            self._request(connection, following, connection.clocks_per_step)

    def _request(self, connection: ServerConnection, ids: Ids, clocks: int) -> None:
        """Request rows as of so many clocks from now, without those whose copies live long enough."""
        store = connection.store
        if self._ahead is not None or (clocks > 1 and store.options.staleness == 0):
            return  # with several optimizers the clock of the next lookup depends on which of them comes first
        unique = np.unique(ids.reshape(-1))
        clock = store.clock + clocks
        # Rows that will still be usable need no request.
        unique = unique[~self._usable(self._positions_of(unique), clock, lifetime(store.options.staleness))]
        if 0 < len(unique) <= self.capacity:
            self._ahead = (unique, clock, store.start_pull({self.key: unique}, dense=False, ahead=clocks))

    def _take_ahead(self, connection: ServerConnection) -> None:
        """Keep the rows that were requested ahead, once their clock has come."""
        if self._ahead is None or self._ahead[1] > connection.store.clock:
            return
        (unique, clock, plan), self._ahead = self._ahead, None
        _, rows = connection.store.finish_pull(plan)
        positions = self._positions_of(unique)
        # They came too late to find room without evicting rows of the running step.
        if (positions < 0).sum() > self.capacity - len(self._in_step) - (positions >= 0).sum():
            return
        self._make_room(unique, positions)
        self._put(positions, rows[self.key], clock)
        self._used[positions] = self._step


class NextBatches:
    """Batches that a data set has given, each with the one after it: where a step's ids are a column of its batch, the ids
    of the next step are the same column of the next batch."""

    _STORED = 128  # sink mode reads up to 64 batches before their steps run

    def __init__(self) -> None:
        self._pairs: deque[tuple[list[Ids], list[Ids]]] = deque(maxlen=self._STORED)

    def announce(self, columns: list[Any], following: list[Any]) -> None:
        """Note a batch and its successor; only columns of integers are kept."""
        pairs = [
            (np.asarray(one, np.int64), np.asarray(other, np.int64))
            for one, other in zip(columns, following, strict=True)
            if isinstance(one, np.ndarray) and one.dtype.kind in "iu" and isinstance(other, np.ndarray)
        ]
        if pairs:
            self._pairs.append(([one for one, _ in pairs], [other for _, other in pairs]))

    def following(self, ids: Ids) -> Ids | None:
        """The ids that the step after the one with these ids will look up; None where that is not known."""
        for columns, after in self._pairs:
            for one, other in zip(columns, after, strict=True):
                # The size is compared first, since comparing all values costs much more.
                if one.size == ids.size and np.array_equal(one.reshape(-1), ids.reshape(-1)):
                    return other
        return None


def lifetime(staleness: int) -> int:
    """Steps for which a copy of a row is read."""
    return _LIFETIME_WHEN_UNBOUNDED if staleness < 0 else staleness
