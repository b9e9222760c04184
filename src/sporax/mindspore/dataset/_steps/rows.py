"""Steps that choose rows and their order: shuffle, repeat, skip, take, split, filter, and rows that wait."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sporax.base.errors import SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._callbacks import Gate
from sporax.mindspore.dataset._checks import in_user_code, in_words
from sporax.mindspore.dataset._dataset import Dataset, StepDataset
from sporax.mindspore.dataset._described import Arguments
from sporax.mindspore.dataset._random import Pass
from sporax.mindspore.dataset._rows import Row, opened
from sporax.mindspore.dataset._streams import (
    ENDLESS,
    Flow,
    Reordered,
    Stream,
    Table,
    buffer_order,
    in_order,
    repeated,
    rows_of,
    shuffled,
    window,
)


def _through_buffer(stream: Stream, buffer_size: int, drawn: Pass, depth: int) -> Stream:
    """Rows through a shuffle buffer."""
    if isinstance(stream, Table) and stream.size < ENDLESS:
        return Reordered(stream, buffer_order(stream.size, buffer_size, drawn.shuffler(depth)))
    return Flow(lambda: shuffled(rows_of(stream), buffer_size, drawn.shuffler(depth)))


class ShuffleDataset(StepDataset):
    """What `shuffle` makes."""

    _one_for_one = _shuffles = True

    def __init__(self, input_dataset: Dataset, buffer_size: int) -> None:
        self.buffer_size = check.integer("shuffle", "buffer_size", buffer_size, 2, check.INT32_MAX)
        if input_dataset.is_sync():
            # A shuffle buffer would wait for rows that are only released by its own output.
            raise in_words(SporaxRuntimeError, "shuffle", "No shuffle after sync operators.")
        super().__init__(input_dataset._column_names, [input_dataset])

    def _stream(self, run: Pass) -> Stream:
        return _through_buffer(self._child._stream(run), self.buffer_size, run, self._depth)

    def _arguments(self) -> Arguments:
        return {"buffer_size": self.buffer_size, "reset_each_epoch": True}


class RepeatDataset(StepDataset):
    """What `repeat` makes.

    Attributes:
        count: how often; -1 for ever.
    """

    def __init__(self, input_dataset: Dataset, count: int | None = None) -> None:
        check.instance("repeat", "repeat", count, int, type(None))
        self.count = self._repeats = -1 if count is None else count
        if self.count != -1 and not 0 < self.count <= check.INT32_MAX:
            words = "count should be either -1 or positive integer, range[1, INT32_MAX]."
            raise in_words(SporaxValueError, "repeat", words, count)
        super().__init__(input_dataset._column_names, [input_dataset])

    def _stream(self, run: Pass) -> Stream:
        # Repeats count as passes, so each has another order; an endless one counts from 0.
        endless = self.count == -1
        first = 0 if endless else run.index * self.count

        def build(number: int) -> Stream:
            return self._child._stream(run.at(first + number))

        return repeated(build, ENDLESS if endless else self.count)

    def _count(self) -> int:
        return self._child._num_rows() * abs(self.count)


class _Window(StepDataset):
    """Rows one after another, of those of the step before."""

    _skipped = 0
    _taken = ENDLESS

    def _stream(self, run: Pass) -> Stream:
        return window(self._child._stream(run), self._skipped, self._taken)

    def _count(self) -> int:
        # An endless repeat counts its rows once, which `take` must not use as a limit.
        if any(step._repeats == -1 for step in self._walk()):
            return super()._count()
        return min(max(self._child._num_rows() - self._skipped, 0), self._taken)


class SkipDataset(_Window):
    """What `skip` makes."""

    def __init__(self, input_dataset: Dataset, count: int) -> None:
        self.count = self._skipped = check.integer("skip", "count", count, 0, check.INT32_MAX)
        super().__init__(input_dataset._column_names, [input_dataset])


class TakeDataset(_Window):
    """What `take` and `split` make."""

    def __init__(self, input_dataset: Dataset, count: int = -1) -> None:
        check.instance("take", "count", count, int)
        if count != -1 and not 0 < count <= check.INT32_MAX:
            words = f"count should be either -1 or within the required interval of (0, {check.INT32_MAX}], got {count}."
            raise in_words(SporaxValueError, "take", words)
        self.count = count
        self._taken = ENDLESS if count == -1 else count
        super().__init__(input_dataset._column_names, [input_dataset])


class SplitDataset(TakeDataset):
    """A part of a split of rows that cannot be picked; those of sources are sources, see `MappableDataset`."""

    def __init__(self, input_dataset: Dataset, start: int, count: int, randomize: bool) -> None:
        super().__init__(input_dataset, count)
        self.start = self._skipped = start
        self.randomize = self._shuffles = randomize
        # Shuffling is a step of its own to the random numbers of those behind it.
        self._depth += randomize
        # A buffer that holds all rows gives a full permutation; 10000 is MindSpore's least size.
        self._buffer_size = max(10000, input_dataset.get_dataset_size()) if randomize else 0

    def _stream(self, run: Pass) -> Stream:
        stream = self._child._stream(run)
        if self.randomize:
            # The same way each pass and on all ranks: parts of a split must agree on both.
            stream = _through_buffer(stream, self._buffer_size, Pass(run.shared_seed, run.shared_seed), self._depth - 1)
        return window(stream, self.start, self.count)


def _judged(predicate: Callable[..., Any], columns: Sequence[str], row: Row) -> tuple[Row, bool]:
    """A row, and whether `predicate` of some of its columns is true."""
    try:
        return row, bool(predicate(*(opened(row[name]) for name in columns)))
    # The predicate runs in a worker thread, whose traceback says little.
    except Exception as error:
        raise in_user_code("filter", error, "the predicate") from error


class FilterDataset(StepDataset):
    """What `filter` makes."""

    _runs_python = True

    def __init__(
        self, input_dataset: Dataset, predicate: Callable[..., Any], input_columns: str | list[str] | None = None,
        num_parallel_workers: int | None = None,
    ) -> None:  # fmt: skip
        if not callable(predicate):
            words = "Predicate should be a Python function or a callable Python object."
            raise in_words(SporaxTypeError, "filter", words, predicate)
        columns = input_dataset._column_names
        self.predicate = predicate
        self.input_columns = input_dataset._chosen("filter", input_columns, columns)
        workers = check.workers("filter", num_parallel_workers) or 1
        # Rows at a gate must be asked for one by one.
        self.num_parallel_workers = 1 if input_dataset.is_sync() else workers
        super().__init__(columns, [input_dataset])
        self._below = self._table_workers()

    def _stream(self, run: Pass) -> Stream:
        stream, judged = self._child._stream(run), functools.partial(_judged, self.predicate, self.input_columns)

        def rows() -> Iterator[Row]:
            # In order, since equal scripts must give equal rows whatever the number of threads.
            results = in_order(self._below.rows_of(stream), judged, self.num_parallel_workers or 1)
            return (row for row, remains in results if remains)

        return Flow(rows)


class SyncWaitDataset(StepDataset):
    """What `sync_wait` makes."""

    _one_for_one = True

    def __init__(
        self,
        input_dataset: Dataset,
        condition_name: str,
        num_batch: int = 1,
        callback: Callable[[Any], Any] | None = None,
    ) -> None:
        where = "sync_wait"
        check.independent(where, "Dataset sync wait")
        self.condition_name = check.text(where, "condition_name", condition_name)
        self.num_batch = check.integer(where, "num_batch", num_batch)
        if self.num_batch < 1:
            raise in_words(SporaxValueError, where, "num_batch need to be greater than 0.", num_batch)
        if callback is not None and not callable(callback):
            raise check.type_error(where, "callback", "callable", callback)
        # `sync_update` addresses conditions by name, also across `zip` and `concat`.
        if any(gate.name == condition_name for gate, _ in input_dataset._gates()):
            raise in_words(SporaxRuntimeError, where, "Condition name is already in use.", condition_name)
        self.callback = callback
        self._gate = Gate(self.condition_name, self.num_batch, callback)
        super().__init__(input_dataset._column_names, [input_dataset])

    def _stream(self, run: Pass) -> Stream:
        stream = self._child._stream(run)
        return Flow(lambda: self._gate.passing(rows_of(stream)))

    def _gates(self) -> Iterator[tuple[Gate, int]]:
        yield self._gate, 1
        yield from super()._gates()
