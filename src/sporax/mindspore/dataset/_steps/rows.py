"""Steps that choose rows and their order (shuffle, repeat, skip, take, split, filter, rows that wait) or columns, or put datasets
together (project, rename, zip, concat).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sporax.base.errors import SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore.dataset import _checks as check, _streams
from sporax.mindspore.dataset._callbacks import Gate
from sporax.mindspore.dataset._checks import in_user_code, in_words, refuse
from sporax.mindspore.dataset._dataset import Dataset, StepDataset
from sporax.mindspore.dataset._described import Arguments
from sporax.mindspore.dataset._random import Pass
from sporax.mindspore.dataset._rows import Row, opened
from sporax.mindspore.dataset._shuffles import buffer_order, mt19937_64, through_buffer
from sporax.mindspore.dataset.samplers import DistributedSampler, RandomSampler

_MOST_ROWS = 1 << 20


def _through_buffer(stream: _streams.Stream, buffer_size: int, drawn: Pass) -> _streams.Stream:
    """Rows through a shuffle buffer."""
    if isinstance(stream, _streams.Table) and stream.size < _streams.ENDLESS:
        return _streams.Reordered(stream, buffer_order(stream.size, buffer_size, drawn.seed, drawn.index * stream.size))
    # How many numbers the passes before have taken is not known; a pass of fewer rows than this has numbers of its own.
    return _streams.Flow(
        lambda: through_buffer(_streams.rows_of(stream), buffer_size, mt19937_64(drawn.seed, drawn.index * _MOST_ROWS))
    )


class ShuffleDataset(StepDataset):
    """What `shuffle` makes."""

    _one_for_one = _shuffles = True

    def __init__(self, input_dataset: Dataset, buffer_size: int) -> None:
        self.buffer_size = check.integer("shuffle", "buffer_size", buffer_size, 2, check.INT32_MAX)
        if input_dataset.is_sync():
            # A shuffle buffer would wait for rows that are only released by its own output.
            raise in_words(SporaxRuntimeError, "shuffle", "No shuffle after sync operators.")
        super().__init__(input_dataset._column_names, [input_dataset])

    def _stream(self, run: Pass) -> _streams.Stream:
        return _through_buffer(self._child._stream(run), self.buffer_size, run)

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

    def _stream(self, run: Pass) -> _streams.Stream:
        # Repeats count as passes, so each has another order; an endless one counts from 0.
        endless = self.count == -1
        first = 0 if endless else run.index * self.count

        def build(number: int) -> _streams.Stream:
            return self._child._stream(run.at(first + number))

        return _streams.repeated(build, _streams.ENDLESS if endless else self.count)

    def _count(self) -> int:
        return self._child._num_rows() * abs(self.count)


class _Window(StepDataset):
    """Rows one after another, of those of the step before."""

    _skipped = 0
    _taken = _streams.ENDLESS

    def _stream(self, run: Pass) -> _streams.Stream:
        return _streams.window(self._child._stream(run), self._skipped, self._taken)

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
        self._taken = _streams.ENDLESS if count == -1 else count
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

    def _stream(self, run: Pass) -> _streams.Stream:
        stream = self._child._stream(run)
        if self.randomize:
            # The same way each pass and on all ranks: parts of a split must agree on both.
            stream = _through_buffer(stream, self._buffer_size, Pass(run.shared_seed, run.shared_seed))
        return _streams.window(stream, self.start, self.count)


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
        # Rows at a gate must be requested one by one.
        self.num_parallel_workers = 1 if input_dataset.is_sync() else workers
        super().__init__(columns, [input_dataset])
        self._below = self._table_workers()

    def _stream(self, run: Pass) -> _streams.Stream:
        stream, judged = self._child._stream(run), functools.partial(_judged, self.predicate, self.input_columns)

        def rows() -> Iterator[Row]:
            # In order, since equal scripts must give equal rows whatever the number of threads.
            results = _streams.in_order(self._below.rows_of(stream), judged, self.num_parallel_workers or 1)
            return (row for row, remains in results if remains)

        return _streams.Flow(rows)


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
        refuse(self.num_batch < 1, SporaxValueError, where, "num_batch need to be greater than 0.", num_batch)
        if callback is not None and not callable(callback):
            raise check.type_error(where, "callback", "callable", callback)
        # `sync_update` addresses conditions by name, also across `zip` and `concat`.
        if any(gate.name == condition_name for gate, _ in input_dataset._gates()):
            raise in_words(SporaxRuntimeError, where, "Condition name is already in use.", condition_name)
        self.callback = callback
        self._gate = Gate(self.condition_name, self.num_batch, callback)
        super().__init__(input_dataset._column_names, [input_dataset])

    def _stream(self, run: Pass) -> _streams.Stream:
        stream = self._child._stream(run)
        return _streams.Flow(lambda: self._gate.passing(_streams.rows_of(stream)))

    def _gates(self) -> Iterator[tuple[Gate, int]]:
        yield self._gate, 1
        yield from super()._gates()


def replaced_columns(where: str, columns: Sequence[str], old: Sequence[str], new: Sequence[str]) -> tuple[str, ...]:
    """Column names after `old` became `new`: in place when they are as many, else the new ones first.

    As in MindSpore, a result of `map` takes the place of another column of its name, where it replaces one column.

    Raises:
        SporaxRuntimeError: a new name is that of another column.
    """
    remaining = [name for name in columns if name not in old]
    clash = next((name for name in new if name in remaining), None)
    if clash is not None and (where != "map" or len(old) != len(new)):
        words = f"columns that are not involved in '{'per_batch_map' if where == 'batch' else where}'"
        words = f"Invalid output_columns, {words} should not be in output_columns: {clash!r} exists already."
        raise in_words(SporaxRuntimeError, where, words, list(columns))
    if len(old) != len(new):
        return (*new, *remaining)
    renamed = dict(zip(old, new, strict=True))
    return tuple(renamed.get(name, name) for name in columns if name in old or name not in new)


class RenameDataset(StepDataset):
    """What `rename` makes."""

    _one_for_one = True

    def __init__(self, input_dataset: Dataset, input_columns: str | list[str], output_columns: str | list[str]) -> None:
        columns = input_dataset._column_names
        self.input_columns = input_dataset._chosen("rename", input_columns, ())
        self.output_columns = check.names("rename", "output_columns", output_columns)
        if len(self.input_columns) != len(self.output_columns):
            words = "Number of column in input_columns and output_columns is not equal."
            raise in_words(SporaxValueError, "rename", words, (self.input_columns, self.output_columns))
        names = replaced_columns("rename", columns, self.input_columns, self.output_columns)
        super().__init__(names, [input_dataset])

    def _stream(self, run: Pass) -> _streams.Stream:
        names = zip(self._child._column_names, self._column_names, strict=True)
        return _streams.selected(self._child._stream(run), dict(names))


class ProjectDataset(StepDataset):
    """What `project` makes. One patch of an image may stand for all of them: see `_all_ranks`."""

    _one_for_one = True

    def __init__(self, input_dataset: Dataset, columns: str | list[str]) -> None:
        self.columns = input_dataset._chosen("project", columns, (), argument="columns")
        super().__init__(self.columns, [input_dataset])
        # Through all steps before: `batch` or `map` may come between the split into patches and `project`.
        made = next((step._made_patches for step in self._walk() if step._made_patches), ())
        # Only a choice of the first patch alone stands for the rank's choice; another choice is meant as it is.
        if [name for name in self.columns if name in made] == [*made[:1]] and {*made} <= {*self._child._column_names}:
            self._picked_patches = made

    def _stream(self, run: Pass) -> _streams.Stream:
        if not self._picked_patches:
            return _streams.selected(self._child._stream(run), {name: name for name in self.columns})
        # Under the name of the first patch, so that all passes have the same columns.
        first, taken = self._picked_patches[0], self._picked_patches[run.patch]
        names = {taken if name == first else name: name for name in self.columns}
        below = self._child
        return _streams.selected(below._stream(run) if run.readings is None else run.readings.stream(below, run), names)


class ZipDataset(StepDataset):
    """What `zip` makes."""

    def __init__(self, datasets: tuple[Dataset, ...]) -> None:
        check.instance("zip", "datasets", datasets, tuple)
        refuse(len(datasets) < 2, SporaxValueError, "zip", "Can't zip empty or just one dataset!")
        for item in datasets:
            if not isinstance(item, Dataset):
                words = f"Invalid dataset, expected Dataset object, but got {type(item)}!"
                raise in_words(SporaxTypeError, "zip", words)
        columns = [name for item in datasets for name in item._column_names]
        double = next((name for i, name in enumerate(columns) if name in columns[:i]), None)
        if double is not None:
            raise SporaxRuntimeError(
                f"For 'zip', Invalid data, duplicate column {double} already exists when zipping datasets. Rename one."
            )
        super().__init__(columns, datasets)

    def _stream(self, run: Pass) -> _streams.Stream:
        streams = [child._stream(run) for child in self._children]
        if tables := _streams.all_tables(streams):
            return _streams.Zipped(tables)
        return _streams.Flow(lambda: _streams.zipped([_streams.rows_of(stream) for stream in streams]))

    def _count(self) -> int:
        return min(child._num_rows() for child in self._children)


def zip_datasets(datasets: tuple[Dataset, ...]) -> Dataset:
    """Datasets side by side, as long as the shortest: `mindspore.dataset.zip`.

    Raises:
        SporaxTypeError: not a tuple of datasets.
        SporaxValueError: fewer than two.
        SporaxRuntimeError: two of them share a column name.
    """
    return ZipDataset(datasets)


class ConcatDataset(StepDataset):
    """Datasets one after the other: what `concat` and ``+`` give."""

    def __init__(self, datasets: list[Dataset]) -> None:
        for i, item in enumerate(datasets[1:]):
            check.instance("concat", f"dataset[{i}]", item, Dataset)
        super().__init__(datasets[0]._column_names, datasets)

    def _arguments(self) -> Arguments:
        return {"sampler": self._sampler}

    def num_classes(self) -> int | None:
        """The largest number of classes that one of them knows."""
        return max((n for child in self._children if (n := child.num_classes()) is not None), default=None)

    def use_sampler(self, sampler: DistributedSampler | RandomSampler) -> None:
        """Share the rows of all out, row i to rank i mod `num_shards`, or shuffle them.

        Args:
            sampler: a DistributedSampler that does not shuffle, or a RandomSampler without replacement; for all rows.

        Raises:
            SporaxTypeError: another sampler.
            SporaxValueError: one that shuffles shards, draws with replacement, or limits the rows.
        """
        if not isinstance(sampler, (DistributedSampler, RandomSampler)):
            words = f"The parameter {sampler} of concat must be DistributedSampler or RandomSampler!"
            raise in_words(SporaxTypeError, "use_sampler", words)
        # Replacement and shuffling would let shares overlap, since each rank samples by itself.
        drawn = sampler.replacement if isinstance(sampler, RandomSampler) else sampler.shuffle
        if drawn or sampler.get_num_samples() is not None:
            what = "replacement" if isinstance(sampler, RandomSampler) else "shuffle"
            words = f"The parameter {what} of {type(sampler).__name__} must be False!"
            if not drawn:
                words = f"The parameter num_samples of {type(sampler).__name__} is not support to be set!"
            raise in_words(SporaxValueError, "use_sampler", words)
        if batch := next((child for child in self._children if child._collates), None):
            words = f"The parameter {batch} of concat must not be BatchDataset or PaddedBatchDataset!"
            raise in_words(SporaxTypeError, "use_sampler", words)
        if isinstance(sampler, DistributedSampler):
            # With an offset nothing is read twice to make the shares equal.
            sampler = DistributedSampler(
                sampler.num_shards, sampler.shard_id, shuffle=False, offset=max(sampler.offset, 0)
            )
        self._sample_by(sampler)

    def _stream(self, run: Pass) -> _streams.Stream:
        # Here, as in MindSpore: their sizes may be read all the same.
        for child in self._children[1:]:
            if child._column_names != self._column_names:
                raise SporaxRuntimeError(
                    "For 'concat', Invalid columns, 'column name' or 'column order' of concat datasets should be the same. They "
                    f"are {self.column_names} and {child.column_names}."
                )
        streams = [child._stream(run) for child in self._children]
        for number, stream in enumerate(streams):
            if isinstance(stream, _streams.Table) and not stream.size:
                words = f"There are no samples in the dataset number {number}. Please make sure there are valid samples in it."
                raise in_words(SporaxValueError, "concat", words)
        tables = _streams.all_tables(streams)
        if tables and all(table.size < _streams.ENDLESS for table in tables):
            joined = _streams.Concatenated(tables)
            return (
                joined if self._sampler is None else _streams.Reordered(joined, self._sampler.order(joined.size, run))
            )
        if self._sampler is None:
            return _streams.Flow(lambda: _streams.chained([_streams.rows_of(stream) for stream in streams]))
        order = self._sampler.order(self._total(), run)
        return _streams.Flow(
            lambda: _picked(_streams.chained([_streams.rows_of(stream) for stream in streams]), order.tolist())
        )

    def _total(self) -> int:
        return sum(child._num_rows() for child in self._children)

    def _count(self) -> int:
        total = self._total()
        return total if self._sampler is None else len(self._sampler.order(total, Pass(0, 0, is_query=True)))


def _picked(rows: Iterator[Row], order: list[int]) -> Iterator[Row]:
    """The rows number `order` (each at most once) of a flow; those that come too early for it wait in memory."""
    wanted, waiting = set(order), {}
    numbered = ((number, row) for number, row in enumerate(rows) if number in wanted)
    for number in order:
        while number not in waiting:
            found, row = next(numbered)
            waiting[found] = row
        yield waiting.pop(number)
