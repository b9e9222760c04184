"""Rows to batches: plain, with a function per batch, padded, or bucketed by length.

Rows of different lengths cannot be one array. Padding to the longest row of a batch wastes memory and time where
lengths vary; buckets put rows of similar length together.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from sporax.base.errors import For, SporaxError, SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._checks import INT32_MAX, in_user_code, in_words, refuse, type_error
from sporax.mindspore.dataset._dataset import BatchInfo, Dataset, StepDataset
from sporax.mindspore.dataset._described import Arguments
from sporax.mindspore.dataset._random import Pass
from sporax.mindspore.dataset._rows import (
    Array,
    Block,
    Column,
    Row,
    as_value,
    block_of,
    collate,
    num_rows,
    opened,
    row_of,
)
from sporax.mindspore.dataset._steps.rows import replaced_columns
from sporax.mindspore.dataset._streams import Batched, Flow, Stream, Table, batched, rows_of


def check_size(where: str, batch_size: object) -> int | None:
    """Rows of a batch, which True says as 1; None where a function says it."""
    if callable(batch_size):
        if len(inspect.signature(batch_size).parameters) != 1:
            words = "callable batch_size should take one parameter (BatchInfo)."
            raise in_words(SporaxValueError, where, words, batch_size)
        return None
    if not isinstance(batch_size, (int, np.integer)):
        raise in_words(SporaxTypeError, where, "batch_size should either be an int or a callable.", batch_size)
    return check.integer(where, "batch_size", int(batch_size), 1, INT32_MAX)


def _alone(value: Array) -> Column:
    """A column of one row; a box stays one."""
    return [value] if value.dtype == object else value[None]


def collate_all(epoch: int, block: Block, number: int) -> Block:
    """A block as one row, every column stacked to (batch, *row_shape)."""
    return {name: _alone(collate(name, column)) for name, column in block.items()}


def _batch_of(name: str, result: Any) -> Array:
    """What a user's function gives for a column: a dict or a scalar is the batch itself, other results come row by row."""
    if isinstance(result, dict) or np.ndim(result) == 0:
        return as_value(result)
    return collate(name, list(map(as_value, result)))


def _collate_mapped(
    function: Callable[..., Any], inputs: Sequence[str], outputs: Sequence[str], columns: Sequence[str], epoch: int,
    block: Block, number: int,
) -> Block:  # fmt: skip
    """A block as one row, through a user's function.

    Args:
        function: (one list of arrays per input column, …, BatchInfo) -> one list of arrays per output column.
        inputs: columns handed to it.
        outputs: names of the columns it returns.
        columns: all columns of the batch.
        epoch: of the iterator.
        block: the rows.
        number: of the batch.
    """
    try:
        # User functions get Python objects and arrays, not our boxes around them.
        results = function(*(list(map(opened, block[name])) for name in inputs), BatchInfo(number, epoch))
    except SporaxError:
        raise
    except Exception as error:
        raise in_user_code("batch", error, f"'per_batch_map' at batch {number}") from error
    if isinstance(results, dict) and len(outputs) == 1:
        results = (results,)
    # Exactly a tuple: a list would be one column in MindSpore.
    if not isinstance(results, tuple) or len(results) != len(outputs):
        got = len(results) if isinstance(results, tuple) else f"{type(results).__name__} and no tuple"
        raise SporaxRuntimeError(
            "For 'batch', Invalid per_batch_map, the number of columns returned in 'per_batch_map' function should be "
            f"{len(outputs)} , but got: {got}."
        )
    if len({isinstance(result, dict) for result in results}) > 1:
        kinds = [type(result).__name__ for result in results]
        raise SporaxRuntimeError(f"For 'batch', mismatched types returned from per_batch_map: {kinds}.")
    results = {name: _alone(_batch_of(name, result)) for name, result in zip(outputs, results, strict=True)}
    return {name: results[name] if name in results else _alone(collate(name, block[name])) for name in columns}


def _collate_padded(pads: dict[str, Any], epoch: int, block: Block, number: int) -> Block:
    """A block as one row, columns padded as `pads` (see `check_pad_info`) says; dicts are not."""
    return {
        name: _alone(
            padded(name, column, *pads[name]) if name in pads and column[0].dtype != object else collate(name, column)
        )
        for name, column in block.items()
    }


def padded(name: str, column: Column, shape: Sequence[int | None] | None, value: Any) -> Array:
    """Rows padded with `value`, or truncated, to one shape: (batch, *shape)."""
    rank = column[0].ndim
    # None stands for the longest row of each batch, so it cannot be resolved earlier.
    sizes = [None] * rank if shape is None else list(shape)
    if any(item.ndim != len(sizes) for item in column):
        raise SporaxRuntimeError(
            "For 'padded_batch', Invalid pad_info, rank of pad_shape must be equal to rank of specified column. pad_shapes rank:"
            f"{len(sizes)}, column rank: {column[0].ndim}. The column is {name!r}."
        )
    text = column[0].dtype.kind in "US"
    if isinstance(value, (str, bytes)) != text and value is not None:
        raise SporaxRuntimeError(
            "For 'padded_batch', PadEnd: can not pad numeric and string tensors together, but got: "
            f"{type(value).__name__} and {column[0].dtype}."
        )
    target = [max(item.shape[d] for item in column) if size is None else size for d, size in enumerate(sizes)]
    # MindSpore pads strings with the empty string and numbers with 0.
    blank: Any = ("" if text else 0) if value is None else value
    dtype = column[0].dtype
    if text:
        # Strings have their length in the dtype; the batch needs the longest of them.
        dtype = np.result_type(np.asarray(blank, dtype.kind), *{item.dtype for item in column})
    batch = np.full((len(column), *target), blank, dtype)
    for place, item in enumerate(column):
        # Rows longer than the target are truncated, shorter ones keep the blank behind their end.
        region: Any = tuple(slice(0, min(have, want)) for have, want in zip(item.shape, target, strict=True))
        inside: Any = (place, *region)  # also for scalars, which have no place of their own
        batch[inside] = item[region]
    return batch


def check_pad_info(where: str, pad_info: object, columns: Sequence[str]) -> dict[str, Any]:
    """Checked `pad_info`; none at all, or an empty one, pads every column to its longest row with zeros.

    Rows longer than a given length are truncated; None in a shape, or as one, is the longest row of the batch.

    Raises:
        SporaxTypeError: not a dict of column name -> (shape, value).
        SporaxRuntimeError: a column does not exist.
    """
    if not isinstance(pad_info, dict):
        raise type_error(where, "pad_info", (dict,), pad_info)
    if not pad_info:
        # MindSpore: an empty dict means all columns, None means no padding at all.
        return dict.fromkeys(columns, (None, None))
    check.columns_exist(where, list(pad_info), columns)
    checked: dict[str, Any] = {}
    for name, item in pad_info.items():
        if item is None:
            checked[name] = (None, None)
            continue
        check.instance(where, "value in pad_info", item, tuple)
        refuse(len(item) != 2, SporaxValueError, where, "value of pad_info should be a tuple of size 2.", item)
        sizes = item[0]
        if sizes is not None:
            check.instance(where, "shape in pad_info", sizes, list, tuple)
            sizes = tuple(None if n is None else check.integer(where, "dim of shape in pad_info", n, 1) for n in sizes)
        if item[1] is not None:
            check.instance(where, "pad_value", item[1], int, float, str, bytes, np.generic)
        checked[name] = (sizes, item[1])
    return checked


def check_buckets(where: str, boundaries: Any, sizes: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Checked bucket boundaries and batch sizes.

    Raises:
        SporaxTypeError: not lists of int.
        SporaxValueError: empty, not increasing, not positive, or of lengths that do not fit.
    """
    lists = {"bucket_boundaries": boundaries, "bucket_batch_sizes": sizes}
    for name, value in lists.items():
        check.instance(where, name, value, list)
        if not all(isinstance(item, int) for item in value):
            raise in_words(SporaxTypeError, where, f"{name} should be a list of int.", value)
    words = ""
    if not boundaries:
        words = "bucket_boundaries cannot be empty."
    elif min(boundaries) <= 0:
        words = "bucket_boundaries must only contain positive numbers."
    elif any(a >= b for a, b in itertools.pairwise(boundaries)):
        words = "bucket_boundaries should be strictly increasing."
    elif len(sizes) != len(boundaries) + 1:
        words = "bucket_batch_sizes must contain one element more than bucket_boundaries."
    elif min(sizes) <= 0:
        words = "bucket_batch_sizes should be a list of positive numbers."
    refuse(words, SporaxValueError, where, words, (boundaries, sizes))
    return tuple(boundaries), tuple(sizes)


class _Batches(StepDataset):
    """Runs of rows collated into one; base of `batch` and `padded_batch`."""

    _makes_batches = _collates = True
    _collate: Callable[[int, Block, int], Block]

    def _take_sizes(self, where: str, batch_size: int | Callable[[BatchInfo], int], drop_remainder: bool) -> None:
        self._fixed_size = check_size(where, batch_size)
        self._requested_size = batch_size
        self.drop_remainder = check.boolean(where, "drop_remainder", drop_remainder)

    @property
    def batch_size(self) -> int:
        """Rows of a batch; 1 where a function says it."""
        return self._fixed_size or 1

    def _size_of(self, number: int, epoch: int) -> int:
        if not callable(self._requested_size):
            return self.batch_size
        return check.integer("batch", "batch_size", self._requested_size(BatchInfo(number, epoch)), 1, INT32_MAX)

    def _stream(self, run: Pass) -> Stream:
        stream = self._child._stream(run)
        # Without the steps before it, which worker processes need not receive.
        collate = functools.partial(self._collate, run.epoch)
        if isinstance(stream, Table) and self._fixed_size is not None:
            return Batched(stream, self._fixed_size, self.drop_remainder, collate)
        drop, in_order = self.drop_remainder, self._workers.in_order
        return Flow(
            lambda: batched(rows_of(stream), lambda number: self._size_of(number, run.epoch), drop, collate, in_order)
        )

    def _count(self) -> int:
        if self._fixed_size is None:
            return super()._count()
        full, rest = divmod(self._child._num_rows(), self._fixed_size)
        return full + (rest > 0 and not self.drop_remainder)

    def _arguments(self) -> Arguments:
        return super()._arguments() | ({"batch_size": self._requested_size} if callable(self._requested_size) else {})


class BatchDataset(_Batches):
    """What `batch` makes."""

    def __init__(
        self, input_dataset: Dataset, batch_size: int | Callable[[BatchInfo], int], drop_remainder: bool = False,
        num_parallel_workers: int | None = None, *, per_batch_map: Callable[..., Any] | None = None,
        input_columns: str | list[str] | None = None, output_columns: str | list[str] | None = None,
        python_multiprocessing: bool = False, **options: Any,
    ) -> None:  # fmt: skip
        where = "batch"
        check.options(where, options)
        # Checked in MindSpore's order, so that two mistakes give the same first error.
        self._take_sizes(where, batch_size, drop_remainder)
        if per_batch_map is None and input_columns is not None:
            raise in_words(SporaxValueError, where, "input_columns can be specified only when per_batch_map is set.")
        columns = input_dataset._column_names
        inputs = input_dataset._chosen(where, input_columns, columns)
        outputs = inputs if output_columns is None else check.names(where, "output_columns", output_columns)
        if per_batch_map is None:  # as in MindSpore, names of results have no effect without it
            inputs = outputs = ()
        elif not callable(per_batch_map):
            raise type_error(where, "per_batch_map", "callable", per_batch_map)
        self.input_columns, self.output_columns, self.per_batch_map = inputs, outputs, per_batch_map
        columns = replaced_columns(where, columns, inputs, outputs)
        self._collate = collate_all
        if per_batch_map is not None:
            self._collate = functools.partial(_collate_mapped, per_batch_map, inputs, outputs, columns)
        self.num_parallel_workers = check.workers(where, num_parallel_workers)
        self.python_multiprocessing = check.boolean(where, "python_multiprocessing", python_multiprocessing)
        super().__init__(columns, [input_dataset])
        self._runs_python = per_batch_map is not None
        self._workers = self._flow_workers()

    def _arguments(self) -> Arguments:
        # MindSpore names the function only where there is one.
        return {name: value for name, value in super()._arguments().items() if name != "per_batch_map" or value}


class PaddedBatchDataset(_Batches):
    """What `padded_batch` makes."""

    _op_type = "Batch"

    def __init__(
        self, input_dataset: Dataset, batch_size: int | Callable[[BatchInfo], int], drop_remainder: bool = False,
        num_parallel_workers: int | None = None, pad_info: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        where = "padded_batch"
        self._take_sizes(where, batch_size, drop_remainder)
        columns = input_dataset._column_names
        self.pad_info = None if pad_info is None else check_pad_info(where, pad_info, columns)
        self._collate = collate_all
        if self.pad_info is not None:
            self._collate = functools.partial(_collate_padded, self.pad_info)
        self.num_parallel_workers = check.workers(where, num_parallel_workers)
        super().__init__(columns, [input_dataset])
        self._workers = self._flow_workers()


class BucketBatchByLengthDataset(StepDataset):
    """What `bucket_batch_by_length` makes: rows gathered into buckets by length; a full one is given as a batch."""

    _makes_batches = _runs_python = True

    def __init__(
        self, input_dataset: Dataset, column_names: str | list[str], bucket_boundaries: list[int],
        bucket_batch_sizes: list[int], element_length_function: Callable[..., int] | None = None,
        pad_info: dict[str, Any] | None = None, pad_to_bucket_boundary: bool = False, drop_remainder: bool = False,
    ) -> None:  # fmt: skip
        where = "bucket_batch_by_length"
        columns = input_dataset._column_names
        self._keys = input_dataset._chosen(where, column_names, (), argument="column_names")
        if element_length_function is None and len(self._keys) != 1:
            words = "If element_length_function is not specified, exactly one column name should be passed."
            raise in_words(SporaxValueError, where, words, self._keys)
        if element_length_function is not None and not callable(element_length_function):
            raise in_words(SporaxTypeError, where, "element_length_function object is not callable.")
        self.element_length_function = element_length_function
        self.bucket_boundaries, self.bucket_batch_sizes = check_buckets(where, bucket_boundaries, bucket_batch_sizes)
        self.pad_info = None if pad_info is None else check_pad_info(where, pad_info, columns)
        self.pad_to_bucket_boundary = check.boolean(where, "pad_to_bucket_boundary", pad_to_bucket_boundary)
        self.drop_remainder = check.boolean(where, "drop_remainder", drop_remainder)
        super().__init__(columns, [input_dataset])
        self._below = self._table_workers()

    def _arguments(self) -> Arguments:
        return super()._arguments() | {"column_names": self._keys}

    def _stream(self, run: Pass) -> Stream:
        stream = self._child._stream(run)
        return Flow(lambda: self._batches(self._below.rows_of(stream)))

    def _batches(self, rows: Iterator[Row]) -> Iterator[Row]:
        """The batches."""
        waiting: list[list[Row]] = [[] for _ in self.bucket_batch_sizes]
        for row in rows:
            # "right": a length equal to a boundary belongs to the bucket above it.
            bucket = int(np.searchsorted(self.bucket_boundaries, self._length(row), side="right"))
            waiting[bucket].append(row)
            if len(waiting[bucket]) == self.bucket_batch_sizes[bucket]:
                yield self._batch(waiting[bucket], bucket)
                waiting[bucket] = []
        if not self.drop_remainder:
            # In the order of buckets, as MindSpore gives what is left at the end of an epoch.
            for bucket, group in enumerate(waiting):
                if group:
                    yield self._batch(group, bucket)

    def _length(self, row: Row) -> int:
        values = [row[name] for name in self._keys]
        # The constructor has made sure that there is only one column without a function.
        if self.element_length_function is None:
            if not values[0].ndim:
                raise For("bucket_batch_by_length").state_error(
                    f"column {self._keys[0]!r} holds scalars and has no length; pass 'element_length_function'"
                )
            return int(values[0].shape[0])
        length = self.element_length_function(*values)
        if isinstance(length, bool) or not isinstance(length, (int, np.integer)) or length < 0:
            raise SporaxRuntimeError(
                f"For 'bucket_batch_by_length', 'element_length_function' must return an int >= 0, but got {length!r}."
            )
        return int(length)

    def _batch(self, group: Sequence[Row], bucket: int) -> Row:
        block = block_of(group)
        if self.pad_info is None:
            # Batch and epoch number are only for `per_batch_map`, which buckets do not have.
            return row_of(collate_all(0, block, 0))
        pads = self.pad_info
        if self.pad_to_bucket_boundary:
            # The last bucket has no upper boundary, so there is nothing to pad to.
            if bucket == len(self.bucket_boundaries):
                raise SporaxRuntimeError(
                    f"For 'bucket_batch_by_length', 'pad_to_bucket_boundary' needs every row to be shorter than the "
                    f"last boundary {self.bucket_boundaries[-1]}, but got {num_rows(block)} rows that are not."
                )
            # Lengths in a bucket are below its boundary, so the longest is one less.
            limit = self.bucket_boundaries[bucket] - 1
            pads = {
                name: (tuple(limit if n is None else n for n in (shape or [None] * block[name][0].ndim)), value)
                for name, (shape, value) in pads.items()
            }
        return row_of(_collate_padded(pads, 0, block, 0))
