"""One pass of a pipeline: tables, whose rows can be requested in any order, and flows, which are read from the beginning.

A table answers `gather(row numbers) -> Block`. Sources are tables; shuffling, sharding, skipping and taking only rearrange
row numbers; maps and batches request just the rows they need from their parent. Because any row can be requested, worker threads
and processes share the work without talking to each other, and an iterator resumes by counting.

Generators, text files, `filter`, `flat_map` and everything above them are flows. A flow is a function that starts one
reading of a pass; what follows it is written as plain Python generators.
"""

from __future__ import annotations

import abc
import collections
import functools
import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from sporax.base.errors import SporaxError, SporaxRuntimeError
from sporax.mindspore.dataset._rows import Block, Row, block_of, join, row_of, take_rows

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
        return self._parent.gather(self._order[indices])

    def origin(self, index: int) -> str:
        return self._parent.origin(int(self._order[index]))


class Window(Table):
    """The rows from `start` on, `size` of them, of a parent that may be endless."""

    def __init__(self, parent: Table, start: int, size: int) -> None:
        self._parent = parent
        self._start = start
        self.size = size

    def gather(self, indices: Indices) -> Block:
        return self._parent.gather(indices + self._start)

    def origin(self, index: int) -> str:
        return self._parent.origin(index + self._start)


class Repeated(Table):
    """Pass after pass of a pipeline; pass number k is built when it is first read.

    A pass is built once, by one thread, and kept while later rows may still need it: a user's own sampler may draw
    another order each time it is called.

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
        self._capacity = 4 if not rows else max(4, 4096 // rows)
        # Endless repeats of nothing have length 0.
        self.size = 0 if not rows else ENDLESS if count == ENDLESS else rows * count

    def __reduce__(self) -> tuple[object, ...]:
        # The lock and the passes stay here; a worker process builds its own.
        return Repeated, (self._build, self._rows, self._count)

    def gather(self, indices: Indices) -> Block:
        passes = indices // self._rows
        inside = indices - passes * self._rows
        # Nearly always all rows are of one pass, which needs no sorting.
        if passes[0] == passes[-1] and (passes == passes[0]).all():
            return self._pass(int(passes[0])).gather(inside)
        return _from_parts(passes, inside, self._pass)

    def origin(self, index: int) -> str:
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
                # Older passes are not requested any more.
                for old in [k for k in self._built if k <= number - self._capacity]:
                    del self._built[old]
            return self._built[number]


def check_equal_kinds(row: Row, other: Row) -> None:
    """Check that rows of data sets one after another have equal dtypes and ranks.

    Raises:
        SporaxRuntimeError: a column has others.
    """
    for name, value in row.items():
        kinds = [
            ("string" if array.dtype.kind in "US" else array.dtype.name, array.ndim)
            for array in (np.asarray(value), np.asarray(other[name]))
        ]
        if kinds[0] != kinds[1]:
            of_rank = kinds[0][0] == kinds[1][0]
            what = "data tensor rank" if of_rank else "data types"
            got = f"{kinds[0][of_rank]} and {kinds[1][of_rank]}"
            raise SporaxRuntimeError(
                f"For 'concat', Concat: the {what} of the two datasets to be concatenated should be the same, but got: {got}. It "
                f"is column '{name}'; bring them together with map (transforms.TypeCast)."
            )


def chained(streams: Sequence[Iterator[Row]]) -> Iterator[Row]:
    """The rows of streams one after another, which must have equal dtypes and ranks."""
    first: Row | None = None
    for stream in streams:
        for number, row in enumerate(stream):
            if not number:
                first = first or row
                check_equal_kinds(first, row)
            yield row


class Concatenated(Table):
    """One table after another."""

    def __init__(self, parts: Sequence[Table]) -> None:
        self._parts = parts
        self._starts = np.cumsum([0, *(part.size for part in parts)])
        self.size = int(self._starts[-1])
        self._checked = {next((number for number, part in enumerate(parts) if part.size), 0)}

    def gather(self, indices: Indices) -> Block:
        owner = np.searchsorted(self._starts, indices, side="right") - 1
        for number in set(owner.tolist()) - self._checked:
            check_equal_kinds(row_at(self._parts[min(self._checked)], 0), row_at(self._parts[number], 0))
            self._checked.add(number)
        return _from_parts(owner, indices - self._starts[owner], lambda k: self._parts[k])

    def origin(self, index: int) -> str:
        owner = int(np.searchsorted(self._starts, index, side="right")) - 1
        return self._parts[owner].origin(index - int(self._starts[owner]))


class Zipped(Table):
    """Tables side by side, as long as the shortest."""

    def __init__(self, parts: Sequence[Table]) -> None:
        self._parts = parts
        self.size = min(part.size for part in parts)

    def gather(self, indices: Indices) -> Block:
        wide: Block = {}
        for part in self._parts:
            wide.update(part.gather(indices))
        return wide

    def origin(self, index: int) -> str:
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
        block = self._parent.gather(indices)
        # The whole block first; single rows only to find the one that fails.
        try:
            return self._function(block, indices)
        except SporaxError as error:
            self._locate(error, block, indices)
            raise

    def origin(self, index: int) -> str:
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
        # Places in files are "… of FILE"; a file in the working folder has no separator.
        is_file = os.sep in place or " of " in place.replace(" of the source", "")
        what = "The corresponding data file is:" if is_file else "The row is"
        error.message = f"{error.message.rstrip('.')}. {what} {place}."


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
        full, rest = divmod(parent.size, batch_size)
        self.size = ENDLESS if parent.size == ENDLESS else full + (rest > 0 and not drop_remainder)

    def gather(self, indices: Indices) -> Block:
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


T = TypeVar("T")
R = TypeVar("R")


class Flow:
    """Rows in order.

    Args:
        start: begins a reading of the pass and returns its rows.
    """

    def __init__(self, start: Callable[[], Iterable[Row]]) -> None:
        self._start = start

    def rows(self) -> Iterator[Row]:
        """The rows of one reading."""
        return iter(self._start())


Stream = Table | Flow


def rows_of(stream: Stream) -> Iterator[Row]:
    """The rows of a table or a flow, in order."""
    if isinstance(stream, Flow):
        return stream.rows()
    # Row by row, since a consumer may stop at any of them.
    return (row_at(stream, index) for index in range(stream.size))


def all_tables(streams: Sequence[Stream]) -> list[Table]:
    """The streams, if all of them are tables; else none."""
    tables = [stream for stream in streams if isinstance(stream, Table)]
    return tables if len(tables) == len(streams) else []


class Opened:
    """A table that is opened at its first use, once for all passes and iterators: that may read a file from end to end.

    Args:
        load: opens it.
    """

    def __init__(self, load: Callable[[], Table]) -> None:
        self.load = load
        self._table: Table | None = None

    def __call__(self) -> Table:
        """The table."""
        if self._table is None:
            self._table = self.load()
        return self._table


def selected(stream: Stream, names: Mapping[str, str]) -> Stream:
    """Columns chosen, put in order and renamed; `names` maps the old name to the new one."""
    if isinstance(stream, Table):
        return Mapped(stream, lambda block, rows: {new: block[old] for old, new in names.items()})
    return Flow(lambda: ({new: row[old] for old, new in names.items()} for row in stream.rows()))


def window(stream: Stream, skip: int, take: int) -> Stream:
    """At most `take` rows (ENDLESS for all) after leaving out `skip`."""
    if isinstance(stream, Table):
        left = stream.size if stream.size == ENDLESS else max(stream.size - skip, 0)
        return Window(stream, skip, min(left, take))
    return Flow(lambda: itertools.islice(stream.rows(), skip, None if take == ENDLESS else skip + take))


def repeated(build: Callable[[int], Stream], count: int) -> Stream:
    """`count` passes one after the other, `build` making pass number k; empty passes end an endless repeat."""
    first = build(0)
    if isinstance(first, Table) and first.size < ENDLESS:
        # Tables know where pass k begins, so positions stay countable over all repeats.
        return Repeated(build, first.size, count, first)  # type: ignore[arg-type]  # the size is known where it is repeated

    def start() -> Iterator[Row]:
        for number in itertools.islice(itertools.count(), None if count == ENDLESS else count):
            empty = True
            for row in rows_of(build(number)):
                empty = False
                yield row
            # Without this an endless repeat of nothing would never return.
            if empty:
                return

    return Flow(start)


def in_order(items: Iterator[T], function: Callable[[T], R], threads: int) -> Iterator[R]:
    """`function` of every item, worked out by several threads, given in the order of the items."""
    # Without threads, errors have the user's own traceback.
    if threads <= 1:
        yield from map(function, items)
        return
    executor = futures.ThreadPoolExecutor(threads, thread_name_prefix="sporax-dataset")
    try:
        yield from in_order_of(items, lambda item: executor.submit(function, item), threads)
    finally:
        # A consumer that stops early must not wait for the rest of the work.
        executor.shutdown(wait=False, cancel_futures=True)


def in_order_of(items: Iterator[T], submit: Callable[[T], futures.Future[R]], workers: int) -> Iterator[R]:
    """Results of the items in their order; a few more than there are workers are on their way."""
    waiting: collections.deque[futures.Future[R]] = collections.deque()
    try:
        for item in items:
            waiting.append(submit(item))
            # Twice as many as workers: each has one item in work and one ready, and memory is bounded.
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
        # What runs may still need the function; a future that was made while its process died never ends.
        futures.wait([future for future in waiting if future.running()])


InOrder = Callable[[Iterator[Any], Callable[[Any], Any]], Iterator[Any]]
"""Applies a function, which processes receive, to items by threads or processes, in their order."""


def on_row(function: Callable[[Block, Indices], Block], item: tuple[int, Row]) -> Row:
    """A block function of a numbered row."""
    number, row = item
    try:
        return row_of(function(block_of([row]), np.array([number])))
    except SporaxError as error:
        # The number of the row is known only here.
        add_place(error, f"number {number}")
        raise


def _on_group(collate: Callable[[Block, int], Block], item: tuple[int, list[Row]]) -> Row:
    """A numbered run of rows, collated."""
    number, group = item
    return row_of(collate(block_of(group), number))


def row_at(table: Table, number: int) -> Row:
    """A row of a table by its number."""
    return row_of(table.gather(np.array([number])))


def mapped(rows: Iterator[Row], function: Callable[[Block, Indices], Block], in_order: InOrder) -> Iterator[Row]:
    """Every row through a block function."""
    return in_order(enumerate(rows), functools.partial(on_row, function))


def batched(
    rows: Iterator[Row], size_of: Callable[[int], int], drop_remainder: bool, collate: Callable[[Block, int], Block],
    in_order: InOrder,
) -> Iterator[Row]:  # fmt: skip
    """Runs of rows, batch number k having `size_of(k)` of them, each made into one row."""

    def groups() -> Iterator[tuple[int, list[Row]]]:
        for number in itertools.count():
            # The first row decides whether there is a batch at all.
            group = list(itertools.islice(rows, 1))
            if not group:  # a user's function is not called for the size of a batch that does not come
                return
            size = size_of(number)
            group += itertools.islice(rows, size - 1)
            if len(group) < size and drop_remainder:
                return
            yield number, group

    return in_order(groups(), functools.partial(_on_group, collate))


def zipped(parts: Sequence[Iterator[Row]]) -> Iterator[Row]:
    """Rows side by side until the first part ends."""
    # Columns of the parts differ, so that merging loses nothing.
    for group in zip(*parts, strict=False):
        wide: Row = {}
        for row in group:
            wide.update(row)
        yield wide
