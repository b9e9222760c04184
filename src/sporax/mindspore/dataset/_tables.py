"""Tables: pipelines of known length whose rows can be requested in any order.

A table answers `gather(row numbers) -> Block`. Sources are tables; shuffling, sharding, skipping and taking only
rearrange row numbers; maps and batches ask their parent for just the rows they need. Because any row can be requested,
worker threads and processes share the work without talking to each other, and an iterator resumes by counting.
"""

from __future__ import annotations

import abc
import sys
import threading
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from sporax.base.errors import SporaxError, SporaxRuntimeError
from sporax.mindspore.dataset._rows import Block, join, take_rows

Indices = NDArray[np.int64]

ENDLESS = sys.maxsize
"""Length of a table that repeats for ever."""


class Table(abc.ABC):
    """Rows by number. `size` may be ENDLESS; `gather` must be free of side effects on the table."""

    size: int

    @abc.abstractmethod
    def gather(self, indices: Indices) -> Block:
        """The rows number `indices` (each in [0, size), at least one), in that order."""

    def origin(self, index: int) -> str:
        """Where a row comes from, for messages: its file, or its number in the source; "" where that is not known."""
        return ""


class Reordered(Table):
    """The rows `order` of a parent: every sampler, and shuffle, skip and take."""

    def __init__(self, parent: Table, order: Indices) -> None:
        self._parent = parent
        self._order = order
        self.size = len(order)

    def gather(self, indices: Indices) -> Block:
        """See Table."""
        return self._parent.gather(self._order[indices])

    def origin(self, index: int) -> str:
        """See Table."""
        return self._parent.origin(int(self._order[index]))


class Window(Table):
    """The rows from `start` on, `size` of them, of a parent that may be endless."""

    def __init__(self, parent: Table, start: int, size: int) -> None:
        self._parent = parent
        self._start = start
        self.size = size

    def gather(self, indices: Indices) -> Block:
        """See Table."""
        return self._parent.gather(indices + self._start)

    def origin(self, index: int) -> str:
        """See Table."""
        return self._parent.origin(index + self._start)


class Repeated(Table):
    """Pass after pass of a pipeline; pass number k is built when it is first read.

    A pass is built once, by one thread, and kept while later rows may still need it: a user's own sampler may draw
    another order each time it is asked.

    Args:
        build: pass number -> table of that pass.
        rows: rows of one pass (the same for all).
        count: number of passes, or ENDLESS.
        first: pass number 0, if it was built already.
    """

    def __init__(self, build: Callable[[int], Table], rows: int, count: int, first: Table | None = None) -> None:
        self._build = build
        self._rows = rows
        self._count = count
        self._built: dict[int, Table] = {} if first is None else {0: first}
        self._lock = threading.Lock()
        # Workers read ahead: with few rows per pass, several passes are in use at once.
        self._kept = 4 if not rows else max(4, 4096 // rows)
        # Endless repeats of nothing have length 0.
        self.size = 0 if not rows else ENDLESS if count == ENDLESS else rows * count

    def __reduce__(self) -> tuple[object, ...]:
        # The lock and the passes stay here; a worker process builds its own.
        return Repeated, (self._build, self._rows, self._count)

    def gather(self, indices: Indices) -> Block:
        """See Table."""
        passes = indices // self._rows
        inside = indices - passes * self._rows
        # Nearly always all rows are of one pass, which needs no sorting.
        if passes[0] == passes[-1] and (passes == passes[0]).all():
            return self._pass(int(passes[0])).gather(inside)
        return _from_parts(passes, inside, self._pass)

    def origin(self, index: int) -> str:
        """See Table."""
        return self._pass(index // self._rows).origin(index % self._rows)

    def _pass(self, number: int) -> Table:
        # Without the lock, two threads would build a pass twice, and a user's sampler would draw two orders.
        with self._lock:
            if number not in self._built:
                table = self._build(number)
                if table.size != self._rows:
                    raise SporaxRuntimeError(
                        "For a dataset, every epoch must have as many rows, but epoch 0 has "
                        f"{self._rows} and epoch {number} has {table.size}; check the sampler."
                    )
                self._built[number] = table
                # Older passes are not asked for any more.
                for old in [k for k in self._built if k <= number - self._kept]:
                    del self._built[old]
            return self._built[number]


class Concatenated(Table):
    """One table after another."""

    def __init__(self, parts: Sequence[Table]) -> None:
        self._parts = parts
        self._starts = np.cumsum([0, *(part.size for part in parts)])
        self.size = int(self._starts[-1])

    def gather(self, indices: Indices) -> Block:
        """See Table."""
        owner = np.searchsorted(self._starts, indices, side="right") - 1
        return _from_parts(owner, indices - self._starts[owner], lambda k: self._parts[k])

    def origin(self, index: int) -> str:
        """See Table."""
        owner = int(np.searchsorted(self._starts, index, side="right")) - 1
        return self._parts[owner].origin(index - int(self._starts[owner]))


class Zipped(Table):
    """Tables side by side, as long as the shortest."""

    def __init__(self, parts: Sequence[Table]) -> None:
        self._parts = parts
        self.size = min(part.size for part in parts)

    def gather(self, indices: Indices) -> Block:
        """See Table."""
        wide: Block = {}
        for part in self._parts:
            wide.update(part.gather(indices))
        return wide

    def origin(self, index: int) -> str:
        """See Table."""
        return ", ".join(filter(None, (part.origin(index) for part in self._parts)))


class Mapped(Table):
    """A parent whose blocks go through a function, one row in, one row out.

    Args:
        parent: where the rows come from.
        function: (block, row numbers) -> block; the row numbers serve the random transforms.
    """

    def __init__(self, parent: Table, function: Callable[[Block, Indices], Block]) -> None:
        self._parent = parent
        self._function = function
        self.size = parent.size

    def gather(self, indices: Indices) -> Block:
        """See Table."""
        block = self._parent.gather(indices)
        # The whole block first; single rows only to find the one that fails.
        try:
            return self._function(block, indices)
        except SporaxError as error:
            self._locate(error, block, indices)
            raise

    def origin(self, index: int) -> str:
        """See Table."""
        return self._parent.origin(index)

    def _locate(self, error: SporaxError, block: Block, indices: Indices) -> None:
        """Say in the message which row it was: the first for which the function fails by itself."""
        failing = indices[:1]
        for i in range(len(indices) if len(indices) > 1 else 0):
            try:
                self._function(take_rows(block, [i]), indices[i : i + 1])
            except SporaxError:
                failing = indices[i : i + 1]
                break
        add_place(error, self.origin(int(failing[0])))


def add_place(error: SporaxError, place: str) -> None:
    """Add to the message where a row comes from, unless that is said already or not known."""
    # The innermost table that knows the file wins.
    if place and not vars(error).get("place"):
        vars(error)["place"] = place
        error.message = f"{error.message.rstrip('.')}. The row is {place}."


class Batched(Table):
    """Runs of `batch_size` rows of a parent; the last may be shorter.

    Args:
        parent: where the rows come from.
        batch_size: rows per batch.
        drop_remainder: leave out a last, shorter batch.
        collate: (block, batch number) -> one row that holds the batch.
    """

    def __init__(
        self, parent: Table, batch_size: int, drop_remainder: bool, collate: Callable[[Block, int], Block]
    ) -> None:
        self._parent = parent
        self._batch_size = batch_size
        self._collate = collate
        whole, rest = divmod(parent.size, batch_size)
        self.size = ENDLESS if parent.size == ENDLESS else whole + (rest > 0 and not drop_remainder)

    def gather(self, indices: Indices) -> Block:
        """See Table."""
        return join([self._one(int(index)) for index in indices])

    def _one(self, index: int) -> Block:
        start = index * self._batch_size
        rows = np.arange(start, min(start + self._batch_size, self._parent.size))
        return self._collate(self._parent.gather(rows), index)


def _from_parts(owner: Indices, inside: Indices, part: Callable[[int], Table]) -> Block:
    """Rows that several tables own, in the order requested."""
    owners = np.unique(owner)
    blocks = [part(int(k)).gather(inside[owner == k]) for k in owners]
    if len(blocks) == 1:
        return blocks[0]
    # The blocks hold the rows grouped by owner; a stable sort by owner is that grouping, its inverse undoes it.
    grouping = np.argsort(owner, kind="stable")
    back = np.empty_like(grouping)
    back[grouping] = np.arange(len(grouping))
    return take_rows(join(blocks), back)
