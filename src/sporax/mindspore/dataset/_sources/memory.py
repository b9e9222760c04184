"""Sources in the user's own memory: arrays and Python objects."""

from __future__ import annotations

import contextlib
import inspect
import numbers
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, SupportsIndex

import numpy as np

from sporax.base.errors import For, SporaxError, SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._checks import in_user_code, in_words, refuse
from sporax.mindspore.dataset._described import Arguments
from sporax.mindspore.dataset._random import Pass
from sporax.mindspore.dataset._rows import Block, Column, Row, as_value, block_of, collate, join, opened
from sporax.mindspore.dataset._sources.reading import ArrayTable
from sporax.mindspore.dataset._sources.tfrecord import Schema, as_schema
from sporax.mindspore.dataset._steps.ends import MappableDataset
from sporax.mindspore.dataset._streams import Flow, Indices, Stream, Table
from sporax.mindspore.dataset.samplers import PKSampler, select_sampler


class _InMemory(MappableDataset):
    """A source of which JSON has only the place, as in MindSpore."""

    _op_type = "GeneratorDataset"

    def _arguments(self) -> Arguments:
        warnings.warn(
            "For 'serialize', a source in the program's memory leaves only its place, so it cannot be read again."
        )
        return {"num_parallel_workers": self.num_parallel_workers}


class NumpySlicesDataset(_InMemory):
    """Slices of arrays along their first dimension.

    Args:
        data: an array or list (one column), a tuple of them (a column each), or a dict column name -> array.
        column_names: names; by default the dict's keys, or column_0, column_1, ….
        num_samples: at most this many rows.
        num_parallel_workers: threads that prepare rows.
        shuffle: shuffle each epoch in another order; the default.
        sampler: a sampler or row numbers, instead of `shuffle`, `num_samples` and sharding.
        num_shards: number of ranks that share the rows.
        shard_id: this rank.

    Raises:
        SporaxTypeError, SporaxValueError: data or names do not fit, or an argument is not valid.
    """

    def __init__(
        self, data: Any, column_names: str | list[str] | None = None, num_samples: int | None = None,
        num_parallel_workers: int | None = None, shuffle: bool | None = None, sampler: Any = None,
        num_shards: int | None = None, shard_id: int | None = None,
    ) -> None:  # fmt: skip
        where = "NumpySlicesDataset"
        columns = _named_columns(data, column_names)
        chosen = select_sampler(where, num_samples, sampler, shuffle, num_shards, shard_id)
        workers = check.workers(where, num_parallel_workers)
        super().__init__(tuple(columns), lambda: ArrayTable(columns), chosen, workers=workers)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        """The values of row number `index` of the first epoch (the sampler says which row that is).

        Raises:
            SporaxRuntimeError: there is no such row.
        """
        # Through the table and not the data: the column may be a list or stored.
        row = self._row(index)
        return tuple(opened(row[name]) for name in self._column_names)


def _named_columns(data: Any, column_names: object) -> dict[str, Column]:
    where = "NumpySlicesDataset"
    check.instance(where, "data", data, list, tuple, dict, np.ndarray)
    refuse(not len(data), SporaxValueError, where, "Argument data cannot be empty")
    if isinstance(data, tuple):
        check.instance(where, "data[0]", data[0], list, np.ndarray)
    parts = list(data.values()) if isinstance(data, dict) else list(data) if isinstance(data, tuple) else [data]
    if column_names is not None:
        names = check.names(where, "column_names", column_names)
    elif isinstance(data, dict):
        names = check.names(where, "data", list(data))
    else:
        names = tuple(f"column_{i}" for i in range(len(parts)))
    if len(names) != len(parts):
        as_list = "" if isinstance(data, (dict, tuple)) else " as data is list"
        words = f"Num of input column names is {len(names)}, but required is {len(parts)}{as_list}."
        raise in_words(SporaxValueError, where, words)
    columns = [_as_column(part) for part in parts]
    lengths = [len(column) for column in columns]
    if len(set(lengths)) > 1 or not lengths[0]:
        raise SporaxValueError(f"For '{where}', all columns must be equally long and not empty, but got {lengths}.")
    return dict(zip(names, columns, strict=True))


def _as_column(part: Any) -> Column:
    if isinstance(part, np.ndarray) and part.ndim and part.dtype != object:
        return part
    items = [as_value(item) for item in part]
    if any(item.dtype == object for item in items):
        raise SporaxTypeError("For 'NumpySlicesDataset', 'data' must hold numbers or strings, but got Python objects.")
    # One array is faster to gather from; rows of several shapes stay a list.
    if len({item.shape for item in items}) == 1:
        return np.stack(items)
    return items


class GeneratorDataset(_InMemory):
    """Rows from Python: a random-access object, an iterable, or a function that returns an iterator.

    A source with `__getitem__` needs `__len__` too and is shuffled by default; it can be sampled and sharded. Any other
    source is read in its own order.

    Args:
        source: the object. A row is a value, or a tuple with one value per column.
        column_names: names of the columns.
        column_types: dtypes the columns must have; a row that differs is an error.
        schema: says names and dtypes instead (see `Schema`).
        num_samples: at most this many rows.
        num_parallel_workers: threads (processes with `python_multiprocessing`) that read a random-access source. A source
            that is read in its own order is read by one thread, as in MindSpore.
        shuffle: see above.
        sampler: a sampler or row numbers, instead of `shuffle`, `num_samples` and sharding.
        num_shards: number of ranks that share the rows.
        shard_id: this rank.
        python_multiprocessing: read with processes where several workers are requested; see `map`. Unlike in MindSpore
            this is off by default, because each process imports what the functions need: a second or more.
        batch_sampler: gives lists of row numbers, one list per batch; instead of `sampler`, `shuffle` and so on.
        collate_fn: (one list of values per column) -> the columns of a batch; for `batch_sampler`.
        options: `max_rowsize` warns; MindSpore's other arguments are not offered.

    Raises:
        SporaxValueError: no column names, or an argument needs a random-access source.
        SporaxRuntimeError: the source has `__getitem__` and no `__len__`; (when iterated) it failed, or gave a row that
            does not fit the columns.
    """

    _sequence: _Sequence | None = None
    _batch_sampler: Any = None

    def __init__(
        self, source: Any, column_names: str | list[str] | None = None, column_types: list[Any] | None = None,
        schema: Schema | str | None = None, num_samples: int | None = None, num_parallel_workers: int = 1,
        shuffle: bool | None = None, sampler: Any = None, num_shards: int | None = None, shard_id: int | None = None,
        python_multiprocessing: bool = False, batch_sampler: Any = None,
        collate_fn: Callable[..., Any] | None = None, **options: Any,
    ) -> None:  # fmt: skip
        where = "GeneratorDataset"
        check.options(where, options)
        self.source = source
        described = as_schema(where, schema)
        if described is not None:
            if column_names is not None or column_types is not None:
                raise SporaxValueError(f"For '{where}', 'schema' excludes 'column_names' and 'column_types'.")
            column_names = [column.name for column in described.columns]
            column_types = [column.dtype for column in described.columns]
        if column_names is None:
            raise in_words(SporaxValueError, where, "Neither columns_names nor schema are provided.")
        names = check.names(where, "column_names", column_names)
        workers = check.workers(where, num_parallel_workers) or 1
        # One worker is a thread: a process would only add copies.
        processes = check.boolean(where, "python_multiprocessing", python_multiprocessing) and workers > 1
        form = _RowForm(names, _checked_types(column_types, names))
        sampling = (num_samples, sampler, shuffle, num_shards, shard_id)
        check.batch_sampler(where, batch_sampler, collate_fn, sampling)
        # MindSpore decides by these two methods whether rows can be picked.
        if hasattr(source, "__getitem__"):
            if not hasattr(source, "__len__"):
                raise SporaxRuntimeError(f"For '{where}', '__len__' method is required in a source with '__getitem__'.")
            # With one worker a lock keeps the source to one thread.
            table = _ObjectTable(source, form, parallel=workers > 1)
            # Checked even where a batch sampler is given, so that wrong arguments are found.
            chosen = select_sampler(where, num_samples, sampler, shuffle, num_shards, shard_id)
            if isinstance(chosen, PKSampler):
                raise in_words(SporaxValueError, where, "GeneratorDataset doesn't support PKSampler.")
            picked = chosen if batch_sampler is None else None
            super().__init__(names, lambda: table, picked, workers=workers)
            self.python_multiprocessing = processes
            self._batch_sampler, self._collate_fn = batch_sampler, collate_fn
            self._makes_batches = self._collates = batch_sampler is not None
            # A batch sampler is the user's, even without a `collate_fn`.
            self._runs_python = True
            return
        # These would be ignored silently otherwise.
        _refuse_random_access(sampler=sampler, num_shards=num_shards, shard_id=shard_id, batch_sampler=batch_sampler)
        if shuffle is not None:
            check.boolean(where, "shuffle", shuffle)
        self._sequence = _Sequence(source, form, check.num_samples(where, num_samples))
        super().__init__(names, None, None)

    def _stream(self, run: Pass) -> Stream:
        if self._sequence is not None:
            return Flow(self._sequence.rows)
        if self._batch_sampler is None:
            return super()._stream(run)
        # A list: tables know their size. The sampler is called again for each pass, so it may shuffle.
        return _PickedBatches(self._store(), [_row_numbers(item) for item in self._batch_sampler], self._collate_fn)

    def _count(self) -> int:
        # What says its length need not be iterated: that would read the source, or advance a sampler's random numbers.
        length = getattr(self._batch_sampler, "__len__", None)
        known = None if length is None else int(length())
        if self._sequence is not None:
            known = self._sequence.size()
        return super()._count() if known is None else known

    def __getitem__(self, index: int) -> Any:
        """What the source gives for row number `index` of the first epoch (the sampler says which row that is).

        Raises:
            SporaxRuntimeError: the source is sequential, fails, or there is no such row.
        """
        number = self._row_number(index)
        try:
            # The source's own value, as MindSpore gives it.
            return self.source[number]
        except Exception as error:
            raise in_user_code("GeneratorDataset", error, f"the source at row {number}") from error


def _refuse_random_access(**arguments: object) -> None:
    for name, value in arguments.items():
        if value is not None:
            words = f"{name} is not supported if source does not have attribute '__getitem__'."
            raise in_words(SporaxValueError, "GeneratorDataset", words)


class _RowForm:
    """What a row must look like; turns what a source gives into one."""

    def __init__(self, names: tuple[str, ...], types: Sequence[np.dtype[Any]] | None) -> None:
        self.names = names
        self._types = types

    def row(self, item: Any) -> Row:
        """One row.

        Raises:
            SporaxRuntimeError: another number of values than columns, another dtype, or a Python object.
        """
        # A str or array is iterable, but is one value.
        values = [item] if _is_value(item) else list(item) if isinstance(item, Iterable) else [item]
        if len(values) != len(self.names):
            raise SporaxRuntimeError(
                "For 'GeneratorDataset', the 'source' of 'GeneratorDataset' should return same number of NumPy arrays as "
                f"specified in column_names {list(self.names)}, the size of column_names is:{len(self.names)} and number of "
                f"returned NumPy array is:{len(values)}."
            )
        row = {name: as_value(value) for name, value in zip(self.names, values, strict=True)}
        for i, (name, value) in enumerate(row.items()):
            # Dicts are the only objects that batches can hold.
            if value.dtype == object and not isinstance(opened(value), dict):
                raise SporaxRuntimeError(
                    f"For 'GeneratorDataset', Data type of {i + 1}th item of the input or its converted Numpy array is expected "
                    f"to be numbers, strings, bytes or dicts, but column {name!r} got {type(values[i]).__name__}."
                )
            if self._types is not None and not _same_dtype(value.dtype, self._types[i]):
                raise For("GeneratorDataset").state_error(
                    f"column {name!r} must be {self._types[i]} as 'column_types' says, but the source gave {value.dtype}"
                )
        return row


def _same_dtype(dtype: np.dtype[Any], expected: np.dtype[Any]) -> bool:
    """Equal; strings have a length each, which does not count."""
    # Length is part of numpy's dtype of strings.
    return dtype == expected or dtype.kind == expected.kind == "U"


def _is_value(item: object) -> bool:
    # Tensors by their method, without importing them.
    return isinstance(item, (int, float, complex, str, bytes, dict, np.ndarray, np.generic)) or hasattr(item, "asnumpy")


class _ObjectTable(Table):
    """A user's random-access object; unless `parallel`, only one thread at a time reads it."""

    def __init__(self, source: Any, form: _RowForm, parallel: bool) -> None:
        self._source = source
        self._form = form
        self._parallel = parallel
        # Most users' objects are not written for threads.
        self._lock = contextlib.nullcontext() if parallel else threading.Lock()
        self.size = len(source)

    def __reduce__(self) -> tuple[Any, ...]:
        # A lock cannot be pickled.
        return _ObjectTable, (self._source, self._form, self._parallel)

    def gather(self, indices: Indices) -> Block:
        with self._lock:
            return block_of([self._one(int(index)) for index in indices])

    def origin(self, index: int) -> str:
        return f"number {index} of the source"

    def _one(self, index: SupportsIndex) -> Row:
        try:
            item = self._source[index]
        except SporaxError:
            raise
        except Exception as error:
            raise in_user_code("GeneratorDataset", error, f"the source at row {index}") from error
        return self._form.row(item)


class _PickedBatches(Table):
    """Batches of a store's rows, whose numbers a batch sampler gave."""

    def __init__(self, store: Table, picks: Sequence[Indices], collate_fn: Callable[..., Any] | None) -> None:
        self._store = store
        self._picks = picks
        self._collate_fn = collate_fn
        self.size = len(picks)

    def gather(self, indices: Indices) -> Block:
        return join([self._batch(self._store.gather(self._picks[int(index)])) for index in indices])

    def _batch(self, block: Block) -> Block:
        if self._collate_fn is None:
            return {name: _one_row(collate(name, column)) for name, column in block.items()}
        try:
            results = self._collate_fn(*(list(map(opened, column)) for column in block.values()))
        # Errors of the facade already say the place.
        except SporaxError:
            raise
        except Exception as error:
            raise in_user_code("GeneratorDataset", error, "'collate_fn'") from error
        # One column may come without a tuple, as in MindSpore.
        values = results if isinstance(results, tuple) else (results,)
        For("GeneratorDataset").refuse_state(
            len(values) != len(block), f"'collate_fn' must return {len(block)} columns {list(block)}", len(values)
        )
        return {name: _one_row(as_value(value)) for name, value in zip(block, values, strict=True)}


def _one_row(value: Any) -> Column:
    return [value]


def _row_numbers(item: object) -> Indices:
    if not isinstance(item, (list, tuple, np.ndarray)) or not all(isinstance(n, numbers.Integral) for n in item):
        raise For("GeneratorDataset").state_error("'batch_sampler' must give lists of row numbers", repr(item))
    return np.array(item, np.int64)


class _Sequence:
    """What is read in its own order."""

    def __init__(self, source: Any, form: _RowForm, limit: int | None) -> None:
        # They run once only, and every epoch needs them again.
        if inspect.isgenerator(source) or isinstance(source, zip):
            source = _Replayed(source)
        if not callable(source) and not isinstance(source, Iterable):
            words = (
                "Input `source` function of GeneratorDataset should be callable, iterable or random accessible, commonly it "
                "should implement one of the method like yield, __getitem__ or __next__(__iter__)."
            )
            raise in_words(SporaxTypeError, "GeneratorDataset", words, source)
        self._source, self._form, self._limit = source, form, limit

    def size(self) -> int | None:
        """The number of rows where the source has a length."""
        length = getattr(self._source, "__len__", None)
        return None if length is None else int(min(length(), self._limit or length()))

    def rows(self) -> Iterator[Row]:
        """The rows of a reading."""
        number, source = 0, self._source
        try:
            # A callable is called again in each epoch, an iterable is iterated again.
            for item in iter(source if isinstance(source, Iterable) else source()):
                yield self._form.row(item)
                number += 1
                if number == self._limit:
                    # Not after the next row: the source may be endless or slow.
                    return
        except SporaxError:
            raise
        except Exception as error:
            raise SporaxRuntimeError(
                "For 'GeneratorDataset', Exception thrown from user defined Python function in dataset: the source failed at "
                f"row {number} with {type(error).__name__}: {error}"
            ) from error


class _Replayed:
    """A generator object, which can run only once; what it gave is kept for later epochs."""

    def __init__(self, items: Iterator[Any]) -> None:
        self._items = items
        self._seen: list[Any] = []

    def __iter__(self) -> Iterator[Any]:
        number = 0
        while True:
            if number == len(self._seen):
                try:
                    self._seen.append(next(self._items))
                except StopIteration:
                    return
            yield self._seen[number]
            number += 1


def _checked_types(types: object, names: Sequence[str]) -> list[np.dtype[Any]] | None:
    if types is None:
        return None
    if not isinstance(types, (list, tuple)) or len(types) != len(names):
        raise For("GeneratorDataset").error(f"'column_types' must be {len(names)} dtypes", repr(types))
    return [check.numpy_dtype("GeneratorDataset", "column_types", item) for item in types]
