"""Flows: pipelines that can only be read from the beginning, one row after another.

Generators, text files, `filter`, `flat_map` and everything above them are flows. A flow is a function that starts one
reading of a pass; what follows it is written as plain Python generators.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from typing import Any, TypeVar

import numpy as np

from sporax.base.errors import SporaxError
from sporax.mindspore.dataset._rows import Block, Row, block_of, row_of
from sporax.mindspore.dataset._tables import Indices, Table, add_place

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
    return (row_of(stream.gather(np.array([index]))) for index in range(stream.size))


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
        futures.wait(waiting)  # what runs may still need the function


InOrder = Callable[[Iterator[Any], Callable[[Any], Any]], Iterator[Any]]
"""Applies a function to items by threads or processes, in their order."""


@dataclasses.dataclass(frozen=True)
class OnRow:
    """Applies a block function to a numbered row; a class of its own so that worker processes can receive it."""

    function: Callable[[Block, Indices], Block]

    def __call__(self, item: tuple[int, Row]) -> Row:
        number, row = item
        try:
            return row_of(self.function(block_of([row]), np.array([number])))
        except SporaxError as error:
            # The number of the row is known only here.
            add_place(error, f"number {number}")
            raise


@dataclasses.dataclass(frozen=True)
class _OnGroup:
    """Collates a numbered run of rows; see `OnRow`."""

    collate: Callable[[Block, int], Block]

    def __call__(self, item: tuple[int, list[Row]]) -> Row:
        number, group = item
        return row_of(self.collate(block_of(group), number))


@dataclasses.dataclass(frozen=True)
class _RowOf:
    """A row of a table by its number; see `OnRow`."""

    table: Table

    def __call__(self, number: int) -> Row:
        return row_of(self.table.gather(np.array([number])))


def mapped(rows: Iterator[Row], function: Callable[[Block, Indices], Block], in_order: InOrder) -> Iterator[Row]:
    """Every row through a block function."""
    return in_order(enumerate(rows), OnRow(function))


def rows_by(table: Table, in_order: InOrder) -> Iterator[Row]:
    """The rows of a table, in order."""
    return in_order(iter(range(table.size)), _RowOf(table))


def shuffled(rows: Iterator[Row], buffer_size: int, rng: np.random.Generator) -> Iterator[Row]:
    """Rows through a buffer: each step gives a random one of it and refills its place."""
    # Same algorithm as `buffer_order`, so tables and flows come out alike.
    buffer = list(itertools.islice(rows, buffer_size))
    for row in rows:
        place = int(rng.integers(len(buffer)))
        yield buffer[place]
        buffer[place] = row
    # What is left has met no draw yet.
    rng.shuffle(buffer)
    yield from buffer


def batched(
    rows: Iterator[Row],
    size_of: Callable[[int], int],
    drop_remainder: bool,
    collate: Callable[[Block, int], Block],
    in_order: InOrder,
) -> Iterator[Row]:
    """Runs of rows, batch number k having `size_of(k)` of them, each made into one row."""

    def groups() -> Iterator[tuple[int, list[Row]]]:
        for number in itertools.count():
            # The first row decides whether there is a batch at all.
            group = list(itertools.islice(rows, 1))
            if not group:  # a user's function is not asked for the size of a batch that does not come
                return
            size = size_of(number)
            group += itertools.islice(rows, size - 1)
            if len(group) < size and drop_remainder:
                return
            yield number, group

    return in_order(groups(), _OnGroup(collate))


def zipped(parts: Sequence[Iterator[Row]]) -> Iterator[Row]:
    """Rows side by side until the first part ends."""
    # Columns of the parts differ, so that merging loses nothing.
    for group in zip(*parts, strict=False):
        wide: Row = {}
        for row in group:
            wide.update(row)
        yield wide


def buffer_order(size: int, buffer_size: int, rng: np.random.Generator) -> Indices:
    """The order in which a shuffle buffer lets the rows 0 … size-1 out, without holding the rows."""
    if buffer_size >= size:
        # A buffer that holds all rows is a plain permutation.
        return rng.permutation(size)
    # All draws at once: one call of the generator instead of one per row.
    places = rng.integers(0, buffer_size, size - buffer_size).tolist()
    buffer = list(range(buffer_size))
    order = []
    for number, place in enumerate(places, start=buffer_size):
        order.append(buffer[place])
        buffer[place] = number
    return np.array(order + rng.permutation(buffer).tolist(), np.int64)
