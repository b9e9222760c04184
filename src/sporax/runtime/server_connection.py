"""A worker's connection to parameter servers: its optimizers' parts of the store, and the rows that it keeps of tables.

In synchronous mode an exchange waits for the values of the next clock. With staleness it takes the values that were requested
one step before and leaves its own push and pull on their way, so that both overlap with the device's next step.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sporax.ir.errors import SporaxRuntimeError

if TYPE_CHECKING:
    from sporax.ps.messages import OptimizerSpec
    from sporax.ps.store import Store, Ticket

Floats = npt.NDArray[np.float32]
FIRST_TABLE_KEY = 32
"""Keys of a part from here on are tables'; before it, dense groups'."""


class RowCache:
    """Rows of a served table that a worker keeps: places in the device's cache, and who they belong to.

    Args:
        name: of the table, the same in all workers.
        width: values per row.
        capacity: rows of the device's cache.
        first_rows: ``seed``, ``sigma`` and ``distribution`` of `sporax.ps.messages.VariableSpec`.
    """

    def __init__(self, name: str, width: int, capacity: int, **first_rows: Any) -> None:
        self.name = name
        self.width = width
        self.capacity = capacity
        self.first_rows = first_rows
        self.key = -1
        self.hits = self.misses = 0
        self._place_of: dict[int, int] = {}
        self._ids = np.empty(0, np.int64)
        self._clocks = np.empty(0, np.int64)
        self._rows = np.empty((0, width), np.float32)
        self._used = np.empty(0, np.int64)
        self._step = 0
        self._ahead: tuple[npt.NDArray[np.int64], int, Any] | None = None
        self._in_step: set[int] = set()

    def places(self, connection: ServerConnection, ids: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int32], Floats]:
        """Places of ids in the cache and their rows; fetches what is missing or too old.

        Raises:
            SporaxRuntimeError: a step looks up more different ids than the cache has rows.
        """
        self._allocate()
        self._take_prefetched(connection)
        flat = ids.reshape(-1)
        unique, inverse = np.unique(flat, return_inverse=True)
        # -1 indexes the last place below, where a clock is read that `usable` then ignores.
        places = np.array([self._place_of.get(int(number), -1) for number in unique], np.int64)
        store = connection.store
        staleness = store.options.staleness
        age = store.clock - self._clocks[places]
        usable = (places >= 0) & (age <= (1 if staleness < 0 else staleness))
        self.hits += int(usable.sum())
        self.misses += int((~usable).sum())
        self._make_room(unique, places)
        missing = unique[~usable]
        if len(missing):
            _, rows = connection.fetch({self.key: missing})
            self._rows[places[~usable]] = rows[self.key]
            self._clocks[places[~usable]] = store.clock
        self._step += 1
        self._used[places] = self._step
        self._in_step.update(int(place) for place in places)
        return places[inverse].astype(np.int32).reshape(ids.shape), self._rows[places[inverse]].reshape(
            *ids.shape, self.width
        )

    def _allocate(self) -> None:
        """Take the memory at the first lookup: tables that are served as a whole need none."""
        if not len(self._ids):
            self._ids = np.full(self.capacity, -1, np.int64)
            self._clocks = np.full(self.capacity, -1, np.int64)
            self._rows = np.zeros((self.capacity, self.width), np.float32)
            self._used = np.zeros(self.capacity, np.int64)

    def prefetch(self, connection: ServerConnection, ids: npt.NDArray[np.int64]) -> None:
        """Ask for rows that the next lookup will need; it takes them from there."""
        with connection.lock:
            self._allocate()
            self._take_prefetched(connection)
            unique = np.unique(ids.reshape(-1))
            self._ahead = (unique, connection.store.clock, connection.store.start_pull({self.key: unique}, dense=False))

    def _take_prefetched(self, connection: ServerConnection) -> None:
        """Keep the rows that were requested ahead."""
        if self._ahead is None:
            return
        (unique, clock, plan), self._ahead = self._ahead, None
        _, rows = connection.store.finish_pull(plan)
        places = np.array([self._place_of.get(int(number), -1) for number in unique], np.int64)
        self._make_room(unique, places)
        self._rows[places] = rows[self.key]
        self._clocks[places] = clock

    def _make_room(self, unique: npt.NDArray[np.int64], places: npt.NDArray[np.int64]) -> None:
        """Give every id a place, the least recently used ones first; places of this step stay."""
        missing = np.flatnonzero(places < 0)
        if not len(missing):
            return
        taken = self._in_step | {int(place) for place in places if place >= 0}
        order = [int(place) for place in np.argsort(self._used, kind="stable") if int(place) not in taken]
        if len(order) < len(missing):
            raise SporaxRuntimeError(
                f"For 'EmbeddingLookup', 'vocab_cache_size' of '{self.name}' must be at least the number of different ids "
                f"of a step, but got {self.capacity} rows and {len(taken) + len(missing)} ids."
            )
        for position, place in zip(missing, order, strict=False):
            self._place_of.pop(int(self._ids[place]), None)
            self._ids[place] = unique[position]
            self._place_of[int(unique[position])] = place
            places[position] = place

    def take_gradient(self, gradient: Floats) -> tuple[npt.NDArray[np.int64], Floats]:
        """Ids and gradients of the rows that this step has looked up; their copies are out of date now."""
        places = np.array(sorted(self._in_step), np.int64)
        self._in_step.clear()
        return self._ids[places], np.ascontiguousarray(gradient[places])


@dataclass(slots=True)
class Part:
    """The served parameters of one optimizer.

    Attributes:
        number: of the part in the store.
        shapes: of the dense parameters.
        tables: caches of its tables.
    """

    number: int
    shapes: list[tuple[int, ...]]
    tables: list[RowCache]
    tickets: list[Ticket] = field(default_factory=list)
    pull: Any = None
    values: list[Floats] = field(default_factory=list)


class ServerConnection:
    """A worker's place in the job."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.parts: list[Part] = []
        self.lock = threading.RLock()
        self._closed = False

    def attach(
        self,
        names: Sequence[str],
        values: Sequence[Floats],
        groups: Sequence[int],
        optimizers: Sequence[OptimizerSpec],
        tables: Sequence[tuple[RowCache, OptimizerSpec]],
    ) -> Part:
        """Declare the served parameters of one optimizer; rank 0's values become everyone's.

        Args:
            names, values, groups: of the dense parameters: name, first value, number of the optimizer.
            optimizers: by group.
            tables: with their optimizers.
        """
        from sporax.ps.messages import VariableSpec
        from sporax.ps.store import KEYS_PER_PART, Dense

        number = len(self.parts)
        specs: list[VariableSpec] = []
        for position, (table, optimizer) in enumerate(tables):
            table.key = number * KEYS_PER_PART + FIRST_TABLE_KEY + position
            specs.append(VariableSpec(table.key, table.name, 0, table.width, optimizer, **table.first_rows))
        dense = [Dense(name, value.size, group) for name, value, group in zip(names, values, groups, strict=True)]
        self.store.declare(dense, optimizers, specs)
        self.store.initialise(values if self.store.rank == 0 else None, part=number)
        part = Part(number, [value.shape for value in values], [table for table, _ in tables])
        self.parts.append(part)
        return part

    def values(self, part: Part) -> list[Floats]:
        """The dense parameters of a part at this worker's clock."""
        with self.lock:
            flat, _ = self.store.pull(part=part.number)
            self._check_retired()
            return self._shaped(part, flat)

    def fetch(self, rows: Mapping[int, npt.NDArray[np.int64]]) -> Any:
        """Rows of tables at this worker's clock."""
        with self.lock:
            return self.store.pull(rows, dense=False)

    def exchange(self, part: Part, rates: Floats, gradients: Sequence[Floats]) -> list[Floats]:
        """Push one step's gradients and give the values for the next one.

        Args:
            part: whose step it is.
            rates: learning rate of each group.
            gradients: of the dense parameters, then of the tables' caches.
        """
        with self.lock:
            if self._is_done_already(part):
                return self.values(part)
            count = len(part.shapes)
            rows = {}
            for table, gradient in zip(part.tables, gradients[count:], strict=True):
                ids, values = table.take_gradient(gradient)
                rows[table.key] = (ids, values, float(rates[-1]))
            ticket = self.store.push(list(gradients[:count]), [float(rate) for rate in rates], rows, part=part.number)
            if self.store.options.staleness == 0 or not part.values:
                flat, _ = self.store.pull(part=part.number)
                self.store.wait(ticket)
                part.values = self._shaped(part, flat)
            else:
                part.values = self._earlier_values(part, ticket)
            self._check_retired()
            return part.values

    def _earlier_values(self, part: Part, ticket: Ticket) -> list[Floats]:
        """Values requested a step ago; this step's push and pull stay on their way."""
        values = part.values
        if part.pull is not None:
            values = self._shaped(part, self.store.finish_pull(part.pull)[0])
        for earlier in part.tickets:
            self.store.wait(earlier)
        part.tickets = [ticket]
        part.pull = self.store.start_pull(part=part.number)
        return values

    def _is_done_already(self, part: Part) -> bool:
        """Whether this step of this part was made by a process that this one continues.

        With several optimizers the steps of a clock go round: clock c is a step of part c modulo their number.
        """
        turn = self.store.clock % len(self.parts)
        return self.store.options.staleness == 0 and part.number < turn and self.store.link.incarnation > 1

    def _shaped(self, part: Part, flat: Sequence[Floats]) -> list[Floats]:
        return [value.reshape(shape) for value, shape in zip(flat, part.shapes, strict=True)]

    def _check_retired(self) -> None:
        """End this process well if the job goes on without it."""
        if self.store.is_retired:
            print(f"sporax: rank {self.store.rank} leaves the job, which needs fewer workers", flush=True)
            self.close()
            sys.stdout.flush()
            os._exit(0)  # the device waits inside a program, which nothing else ends

    def close(self) -> None:
        """Finish what is on its way and leave the job."""
        if self._closed:
            return
        self._closed = True
        failed = getattr(sys, "last_type", None) is not None
        if not failed:
            for part in self.parts:
                for ticket in part.tickets:
                    self.store.wait(ticket)
        self.store.close(finished=not failed)
