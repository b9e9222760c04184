"""Flows: pipelines that can only be read from the beginning, one row after another.

Generators, text files, `filter`, `flat_map` and everything above them are flows. A flow is a function that starts one
reading of a pass; what follows it is written as plain Python generators.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from typing import TypeVar

import numpy as np

from sporax.dataset._rows import Block, Row, block_of, row_of
from sporax.dataset._tables import Indices, Table, add_place
from sporax.ir.errors import SporaxError

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
    return (row_of(stream.gather(np.array([index]))) for index in range(stream.size))


def in_order(items: Iterator[T], function: Callable[[T], R], threads: int) -> Iterator[R]:
    """`function` of every item, worked out by several threads, given in the order of the items."""
    if threads <= 1:
        yield from map(function, items)
        return
    executor = futures.ThreadPoolExecutor(threads, thread_name_prefix="sporax-dataset")
    try:
        waiting: collections.deque[futures.Future[R]] = collections.deque()
        for item in items:
            waiting.append(executor.submit(function, item))
            if len(waiting) > 2 * threads:
                yield waiting.popleft().result()
        for future in waiting:
            yield future.result()
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


def mapped(rows: Iterator[Row], function: Callable[[Block, Indices], Block], threads: int) -> Iterator[Row]:
    """Every row through a block function."""

    def one(item: tuple[int, Row]) -> Row:
        number, row = item
        try:
            return row_of(function(block_of([row]), np.array([number])))
        except SporaxError as error:
            add_place(error, f"number {number}")
            raise

    return in_order(enumerate(rows), one, threads)


def shuffled(rows: Iterator[Row], buffer_size: int, rng: np.random.Generator) -> Iterator[Row]:
    """Rows through a buffer: each step gives a random one of it and refills its place."""
    buffer = list(itertools.islice(rows, buffer_size))
    for row in rows:
        place = int(rng.integers(len(buffer)))
        yield buffer[place]
        buffer[place] = row
    rng.shuffle(buffer)
    yield from buffer


def batched(
    rows: Iterator[Row],
    size_of: Callable[[int], int],
    drop_remainder: bool,
    collate: Callable[[Block, int], Block],
    threads: int,
) -> Iterator[Row]:
    """Runs of rows, batch number k having `size_of(k)` of them, each made into one row."""

    def groups() -> Iterator[tuple[int, list[Row]]]:
        for number in itertools.count():
            size = size_of(number)
            group = list(itertools.islice(rows, size))
            if not group or (len(group) < size and drop_remainder):
                return
            yield number, group

    def one(item: tuple[int, list[Row]]) -> Row:
        number, group = item
        return row_of(collate(block_of(group), number))

    return in_order(groups(), one, threads)


def zipped(parts: Sequence[Iterator[Row]]) -> Iterator[Row]:
    """Rows side by side until the first part ends."""
    for group in zip(*parts, strict=False):
        wide: Row = {}
        for row in group:
            wide.update(row)
        yield wide


def buffer_order(size: int, buffer_size: int, rng: np.random.Generator) -> Indices:
    """The order in which a shuffle buffer lets the rows 0 … size-1 out, without holding the rows."""
    if buffer_size >= size:
        return rng.permutation(size)
    places = rng.integers(0, buffer_size, size - buffer_size).tolist()
    buffer = list(range(buffer_size))
    order = []
    for number, place in enumerate(places, start=buffer_size):
        order.append(buffer[place])
        buffer[place] = number
    return np.array(order + rng.permutation(buffer).tolist(), np.int64)
