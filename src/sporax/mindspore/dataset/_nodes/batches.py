"""Rows to batches: plain, with a function per batch, padded, bucketed by length, or named by a batch sampler.

Rows of different lengths cannot be one array. Padding to the longest row of a batch wastes memory and time where
lengths vary; buckets put rows of similar length together.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import numbers
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from sporax.base.errors import SporaxError, SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore.dataset._checks import (
    INT32_MAX,
    check_columns_exist,
    check_instance,
    check_int,
    in_user_code,
    in_words,
    type_error,
)
from sporax.mindspore.dataset._nodes.node import Node, flow_workers
from sporax.mindspore.dataset._random import Pass
from sporax.mindspore.dataset._rows import (
    Array,
    Block,
    Column,
    Row,
    as_value,
    block_of,
    collate,
    join,
    num_rows,
    opened,
    row_of,
)
from sporax.mindspore.dataset._streams import Batched, Flow, Indices, Stream, Table, batched, rows_of

PadInfo = Mapping[str, tuple[Sequence[int | None] | None, Any] | None]


@dataclasses.dataclass(frozen=True, slots=True)
class BatchInfo:
    """What `per_batch_map` and a callable batch size receive."""

    batch_num: int
    epoch_num: int

    def get_batch_num(self) -> int:
        """Number of the batch within the epoch, from 0."""
        return self.batch_num

    def get_epoch_num(self) -> int:
        """Number of the epoch, from 0."""
        return self.epoch_num


def check_size(where: str, batch_size: object) -> int | None:
    """Rows of a batch, which True says as 1; None where a function says it."""
    if callable(batch_size):
        if len(inspect.signature(batch_size).parameters) != 1:
            words = "callable batch_size should take one parameter (BatchInfo)."
            raise in_words(SporaxValueError, where, words, batch_size)
        return None
    if not isinstance(batch_size, (int, np.integer)):
        raise in_words(SporaxTypeError, where, "batch_size should either be an int or a callable.", batch_size)
    return check_int(where, "batch_size", int(batch_size), 1, INT32_MAX)


def size_function(batch_size: int | Callable[[BatchInfo], int]) -> Callable[[int, int], int]:
    """(batch number, epoch) -> rows of that batch."""
    if not callable(batch_size):
        return lambda number, epoch: batch_size
    # Bound to a name of its own, as the type checker forgets what `callable` said inside the function.
    ask = batch_size

    def size_of(number: int, epoch: int) -> int:
        return check_int("batch", "batch_size", ask(BatchInfo(number, epoch)), 1, INT32_MAX)

    return size_of


def _alone(value: Array) -> Column:
    """A column of one row; a box stays one."""
    return [value] if value.dtype == object else value[None]


def collate_all(block: Block, number: int, epoch: int) -> Block:
    """A block as one row, every column stacked to (batch, *row_shape)."""
    return {name: _alone(collate(name, column)) for name, column in block.items()}


@dataclasses.dataclass(frozen=True, slots=True)
class PerBatchMap:
    """Collates through a user's function.

    Attributes:
        function: (one list of arrays per input column, …, BatchInfo) -> one list of arrays per output column.
        inputs: columns handed to it.
        outputs: names of the columns it returns.
        columns: all columns of the batch.
    """

    function: Callable[..., Any]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    columns: tuple[str, ...]

    def __call__(self, block: Block, number: int, epoch: int) -> Block:
        """The batch as one row."""
        try:
            # User functions get Python objects and arrays, not our boxes around them.
            results = self.function(*(list(map(opened, block[name])) for name in self.inputs), BatchInfo(number, epoch))
        except SporaxError:
            raise
        except Exception as error:
            raise in_user_code("batch", error, f"'per_batch_map' at batch {number}") from error
        # Exactly a tuple: a list would be one column in MindSpore.
        if not isinstance(results, tuple) or len(results) != len(self.outputs):
            got = len(results) if isinstance(results, tuple) else f"{type(results).__name__} and no tuple"
            raise SporaxRuntimeError(
                "For 'batch', Invalid per_batch_map, the number of columns returned in 'per_batch_map' function should be "
                f"{len(self.outputs)} , but got: {got}."
            )
        if len({isinstance(result, dict) for result in results}) > 1:
            kinds = [type(result).__name__ for result in results]
            raise SporaxRuntimeError(f"For 'batch', mismatched types returned from per_batch_map: {kinds}.")
        results = {
            # A dict is the batch itself; other columns come row by row.
            name: _alone(as_value(result) if isinstance(result, dict) else collate(name, list(map(as_value, result))))
            for name, result in zip(self.outputs, results, strict=True)
        }
        return {name: results[name] if name in results else _alone(collate(name, block[name])) for name in self.columns}


@dataclasses.dataclass(frozen=True, slots=True)
class PaddedCollate:
    """Collates columns padded to a common shape.

    Attributes:
        pads: column -> (shape or None, value); None as a shape, or within it, means the longest row of the batch.
            Rows longer than a given length are truncated.
    """

    pads: dict[str, tuple[tuple[int | None, ...] | None, Any]]

    def __call__(self, block: Block, number: int, epoch: int) -> Block:
        """The batch as one row."""
        return {
            name: _alone(padded(name, column, *self.pads[name]) if self._pads(name, column) else collate(name, column))
            for name, column in block.items()
        }

    def _pads(self, name: str, column: Column) -> bool:
        """Whether a column is padded; dicts are not."""
        return name in self.pads and column[0].dtype != object


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
    if isinstance(value, str) != (column[0].dtype.kind in "US") and value is not None:
        raise SporaxRuntimeError(
            "For 'padded_batch', PadEnd: can not pad numeric and string tensors together, but got: "
            f"{type(value).__name__} and {column[0].dtype}."
        )
    target = [max(item.shape[d] for item in column) if size is None else size for d, size in enumerate(sizes)]
    # MindSpore pads strings with the empty string and numbers with 0.
    blank: Any = ("" if column[0].dtype.kind in "US" else 0) if value is None else value
    # Strings have their length in the dtype; the batch needs the longest of them.
    dtype = np.result_type(*{item.dtype for item in column}) if column[0].dtype.kind in "US" else column[0].dtype
    batch = np.full((len(column), *target), blank, dtype)
    for place, item in enumerate(column):
        # Rows longer than the target are truncated, shorter ones keep the blank behind their end.
        region: Any = tuple(slice(0, min(have, want)) for have, want in zip(item.shape, target, strict=True))
        inside: Any = (place, *region)  # also for scalars, which have no place of their own
        batch[inside] = item[region]
    return batch


def check_pad_info(where: str, pad_info: object, columns: Sequence[str]) -> dict[str, Any]:
    """Checked `pad_info`; none at all, or an empty one, pads every column to its longest row with zeros.

    Raises:
        SporaxTypeError: not a dict of column name -> (shape, value).
        SporaxRuntimeError: a column does not exist.
    """
    if not isinstance(pad_info, dict):
        raise type_error(where, "pad_info", (dict,), pad_info)
    if not pad_info:
        # MindSpore: an empty dict means all columns, None means no padding at all.
        return dict.fromkeys(columns, (None, None))
    check_columns_exist(where, list(pad_info), columns)
    checked: dict[str, Any] = {}
    for name, item in pad_info.items():
        if item is None:
            checked[name] = (None, None)
            continue
        check_instance(where, "value in pad_info", item, tuple)
        if len(item) != 2:
            raise in_words(SporaxValueError, where, "value of pad_info should be a tuple of size 2.", item)
        sizes = item[0]
        if sizes is not None:
            check_instance(where, "shape in pad_info", sizes, list, tuple)
            sizes = tuple(None if n is None else check_int(where, "dim of shape in pad_info", n, 1) for n in sizes)
        if item[1] is not None:
            check_instance(where, "pad_value", item[1], int, float, str, bytes, np.generic)
        checked[name] = (sizes, item[1])
    return checked


@dataclasses.dataclass(frozen=True, slots=True)
class Buckets:
    """Rows gathered into buckets by length; a bucket is given as a batch when it is full.

    Attributes:
        columns: arguments of `length_of`.
        boundaries: increasing; bucket k holds lengths in [boundaries[k-1], boundaries[k]).
        sizes: batch size per bucket, one more than boundaries.
        length_of: the columns -> length, or None for the first dimension of the only column.
        pads: as in PaddedCollate; None for no padding.
        to_boundary: pad unknown dimensions to the bucket's boundary minus one instead of the longest row.
        drop_remainder: leave out buckets that are not full at the end.
    """

    columns: tuple[str, ...]
    boundaries: tuple[int, ...]
    sizes: tuple[int, ...]
    length_of: Callable[..., int] | None
    pads: dict[str, Any] | None
    to_boundary: bool
    drop_remainder: bool

    def __call__(self, rows: Iterator[Row], run: Pass) -> Iterator[Row]:
        """The batches."""
        waiting: list[list[Row]] = [[] for _ in self.sizes]
        for row in rows:
            # "right": a length equal to a boundary belongs to the bucket above it.
            bucket = int(np.searchsorted(self.boundaries, self._length(row), side="right"))
            waiting[bucket].append(row)
            if len(waiting[bucket]) == self.sizes[bucket]:
                yield self._batch(waiting[bucket], bucket)
                waiting[bucket] = []
        if not self.drop_remainder:
            # In the order of buckets, as MindSpore gives what is left at the end of an epoch.
            for bucket, group in enumerate(waiting):
                if group:
                    yield self._batch(group, bucket)

    def _length(self, row: Row) -> int:
        values = [row[name] for name in self.columns]
        # `Dataset.bucket_batch_by_length` has made sure that there is only one column without a function.
        if self.length_of is None:
            if not values[0].ndim:
                raise SporaxRuntimeError(
                    f"For 'bucket_batch_by_length', column {self.columns[0]!r} holds scalars and has no length; pass "
                    "'element_length_function'."
                )
            return int(values[0].shape[0])
        length = self.length_of(*values)
        if isinstance(length, bool) or not isinstance(length, (int, np.integer)) or length < 0:
            raise SporaxRuntimeError(
                f"For 'bucket_batch_by_length', 'element_length_function' must return an int >= 0, but got {length!r}."
            )
        return int(length)

    def _batch(self, group: Sequence[Row], bucket: int) -> Row:
        block = block_of(group)
        if self.pads is None:
            # Batch and epoch number are only for `per_batch_map`, which buckets do not have.
            return row_of(collate_all(block, 0, 0))
        pads = self.pads
        if self.to_boundary:
            # The last bucket has no upper boundary, so there is nothing to pad to.
            if bucket == len(self.boundaries):
                raise SporaxRuntimeError(
                    f"For 'bucket_batch_by_length', 'pad_to_bucket_boundary' needs every row to be shorter than the "
                    f"last boundary {self.boundaries[-1]}, but got {num_rows(block)} rows that are not."
                )
            # Lengths in a bucket are below its boundary, so the longest is one less.
            limit = self.boundaries[bucket] - 1
            pads = {
                name: (tuple(limit if n is None else n for n in (shape or [None] * block[name][0].ndim)), value)
                for name, (shape, value) in pads.items()
            }
        return row_of(PaddedCollate(pads)(block, 0, 0))


def check_buckets(where: str, boundaries: Any, sizes: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Checked bucket boundaries and batch sizes.

    Raises:
        SporaxTypeError: not lists of int.
        SporaxValueError: empty, not increasing, not positive, or of lengths that do not fit.
    """
    lists = {"bucket_boundaries": boundaries, "bucket_batch_sizes": sizes}
    for name, value in lists.items():
        check_instance(where, name, value, list)
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
    if words:
        raise in_words(SporaxValueError, where, words, (boundaries, sizes))
    return tuple(boundaries), tuple(sizes)


class Batch(Node):
    """Runs of rows collated into one.

    Args:
        parent: the step before.
        size_of: (batch number, epoch) -> rows of that batch.
        fixed_size: the size where it is the same for all batches, else None.
        drop_remainder: leave out a last, shorter batch.
        collate: (block, batch number, epoch) -> one row.
        columns: columns of that row.
        python: whether `collate` calls user code.
        workers: threads or processes requested, or None.
        processes: whether the workers are to be processes.
    """

    makes_batches = True
    collates = True

    def __init__(
        self, parent: Node, size_of: Callable[[int, int], int], fixed_size: int | None, drop_remainder: bool,
        collate: Callable[[Block, int, int], Block], columns: Sequence[str], python: bool = False,
        workers: int | None = None, processes: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(columns, [parent])
        self._size_of = size_of
        self.fixed_size = fixed_size
        self.drop_remainder = drop_remainder
        self.collate = collate
        self._python = python
        self.workers = workers
        self.processes = processes
        self.num_processes = (workers or 1) if processes else 1
        self._workers = flow_workers(self, workers, processes)

    def build(self, run: Pass) -> Stream:
        stream = self.parent.build(run)
        collate = _Collated(self.collate, run.epoch)
        if isinstance(stream, Table) and self.fixed_size is not None:
            return Batched(stream, self.fixed_size, self.drop_remainder, collate)
        drop = self.drop_remainder
        in_order = self._workers.in_order
        return Flow(
            lambda: batched(rows_of(stream), lambda number: self._size_of(number, run.epoch), drop, collate, in_order)
        )

    def _count(self) -> int:
        if self.fixed_size is None:
            return super()._count()
        full, rest = divmod(self.parent.num_rows(), self.fixed_size)
        return full + (rest > 0 and not self.drop_remainder)

    def runs_python(self) -> bool:
        return self._python


@dataclasses.dataclass(frozen=True)
class _Collated:
    """What a `Batch` does to a block; see `_Applied`."""

    collate: Callable[[Block, int, int], Block]
    epoch: int

    def __call__(self, block: Block, number: int) -> Block:
        return self.collate(block, number, self.epoch)


class BatchSource(Node):
    """Batches of a store's rows; which ones is asked again for each pass.

    Args:
        columns: names of the columns.
        store: the rows.
        batch_sampler: iterable of lists of row numbers.
        collate_fn: (one list of values per column) -> the columns of a batch, or None to stack them.
        workers: threads or processes requested.
        processes: whether the workers are to be processes.
    """

    makes_batches = True
    collates = True

    def __init__(
        self, columns: Sequence[str], store: Table, batch_sampler: Any, collate_fn: Callable[..., Any] | None,
        workers: int, processes: bool,
    ) -> None:  # fmt: skip
        super().__init__(columns)
        self._store = store
        self._batch_sampler = batch_sampler
        self._collate_fn = collate_fn
        self.workers = workers
        self.processes = processes

    def build(self, run: Pass) -> Stream:
        # A list: tables know their size. The sampler is asked again for each pass, so it may shuffle.
        return _PickedBatches(self._store, [_row_numbers(item) for item in self._batch_sampler], self._collate_fn)

    def _count(self) -> int:
        length = getattr(self._batch_sampler, "__len__", None)
        # A sampler with a length need not be iterated, which would advance its random numbers.
        return super()._count() if length is None else int(length())

    def runs_python(self) -> bool:
        # The batch sampler is the user's, even without a `collate_fn`.
        return True


class _PickedBatches(Table):
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
        if len(values) != len(block):
            raise SporaxRuntimeError(
                f"For 'GeneratorDataset', 'collate_fn' must return {len(block)} columns {list(block)}, but got {len(values)}."
            )
        return {name: _one_row(as_value(value)) for name, value in zip(block, values, strict=True)}


def _one_row(value: Any) -> Column:
    return [value]


def _row_numbers(item: object) -> Indices:
    if not isinstance(item, (list, tuple, np.ndarray)) or not all(isinstance(n, numbers.Integral) for n in item):
        raise SporaxRuntimeError.must("GeneratorDataset", "batch_sampler", "give lists of row numbers", repr(item))
    return np.array(item, np.int64)
