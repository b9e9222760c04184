"""What a pipeline is, and what it says of itself: columns, sizes, shapes, whether its order is random.

A dataset is one step: its arguments, the datasets before it, and how it makes the rows of one pass of theirs. All else are walks
over the datasets below. Arithmetic on sizes and shapes of rows is here as well.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from sporax.base.errors import For, SporaxRuntimeError, SporaxValueError
from sporax.mindspore.dataset import _checks as check, config
from sporax.mindspore.dataset._arguments import Recorded, recorded_arguments
from sporax.mindspore.dataset._cache import DatasetCache
from sporax.mindspore.dataset._callbacks import Events, Gate
from sporax.mindspore.dataset._checks import in_words, refuse
from sporax.mindspore.dataset._random import Pass
from sporax.mindspore.dataset._rows import Array, Row
from sporax.mindspore.dataset._streams import Stream, Table, rows_of
from sporax.mindspore.dataset.samplers import BuiltinSampler
from sporax.runtime.session import SESSION

Arguments = dict[str, Any]
"""Arguments of a step by name."""

D = TypeVar("D", bound="Described")


def first_pass(iterators_before: int) -> Pass:
    """The first pass of a new iterator.

    With a seed set, every iterator of a dataset gives the same rows (as in MindSpore). Without one, MindSpore draws a
    new seed from the operating system for each iterator; here it follows from the number of iterators already made from
    the dataset, so that loops reshuffle and runs still repeat. Shards always share one seed.
    """
    shared = config.get_seed()
    if config.is_seed_set() or not iterators_before:
        return Pass(shared, shared, step=int(not config.is_seed_set()))
    fresh = np.random.SeedSequence((shared, iterators_before)).generate_state(1, np.uint32)[0]
    return Pass(int(fresh), shared)


def split_counts(sizes: Any, total: int) -> list[int]:
    """Rows of each part; a rounding difference goes to the first part that can take it."""
    check.instance("split", "sizes", sizes, list)
    refuse(not sizes, SporaxValueError, "split", "sizes cannot be empty.")
    if all(isinstance(size, int) and not isinstance(size, bool) for size in sizes):
        _check_counts(sizes, total)
        return sizes
    return _counts_of_fractions(sizes, total)


def _check_counts(sizes: list[int], total: int) -> None:
    if min(sizes) <= 0:
        # Before the sum, so that a negative size is named as such.
        words = "sizes is a list of int, but there should be no negative or zero numbers."
        raise in_words(SporaxValueError, "split", words, sizes)
    if sum(sizes) != total:
        words = f"Sum of split sizes {sum(sizes)} is not equal to dataset size {total}."
        raise in_words(SporaxRuntimeError, "split", words)


def _counts_of_fractions(sizes: list[Any], total: int) -> list[int]:
    # Fractions such as three times 0.333333 count as 1.
    if not all(isinstance(size, float) for size in sizes):
        raise in_words(SporaxValueError, "split", "sizes should be list of int or list of float.", sizes)
    if not all(0 < size <= 1 for size in sizes) or abs(sum(sizes) - 1) >= 1e-5:
        fault = "the percentages do not sum up to 1"
        if not all(0 < size <= 1 for size in sizes):
            fault = "there should be no numbers outside the range (0, 1]"
        raise in_words(SporaxValueError, "split", f"sizes is a list of float, but {fault}.", sizes)
    counts = [round(size * total) for size in sizes]
    # MindSpore refuses an empty part rather than giving a dataset without rows.
    if 0 in counts:
        raise in_words(SporaxRuntimeError, "split", f"Split percentage {sizes[counts.index(0)]} is too small.")
    # `round` may miss the total by a few rows in either direction.
    excess = sum(counts) - total
    # The first part that keeps at least one row, as MindSpore corrects it.
    receiver = next((i for i, count in enumerate(counts) if count > excess), None)
    if receiver is None:
        words = f"Sum of calculated split sizes {sum(counts)} is not equal to dataset size {total}."
        raise in_words(SporaxRuntimeError, "split", words)
    counts[receiver] -= excess
    return counts


def common_shapes(shapes: list[list[int | None]], row_shapes: list[list[int | None]]) -> list[list[int | None]]:
    """Shapes with None where two rows differ."""
    common: list[list[int | None]] = []
    for shape, other in zip(shapes, row_shapes, strict=True):
        For("output_shapes").refuse_state(
            len(shape) != len(other), "Inconsistent shapes, expect same shape for each data row", shape, other
        )
        common.append([a if a == b else None for a, b in zip(shape, other, strict=True)])
    return common


class Described(Recorded, abc.ABC):
    """A step of a pipeline, and the questions to it; base of `Dataset`.

    Args:
        columns: names of its columns, in order.
        children: the datasets before it; none of a source.
    """

    num_parallel_workers: int | None = None
    """Threads or processes that were requested for its work, or None."""

    python_multiprocessing = False
    """Whether these are to be processes."""

    cache: DatasetCache | None = None
    """What keeps its rows."""

    dataset_size: int | None = None
    """What `get_dataset_size` gave, once it was called."""

    _op_type = ""
    """What JSON calls it, where that does not follow from the name of its class."""

    _one_for_one = False
    """Whether it gives a row for each row of the step before."""

    _makes_batches = False
    """Whether a row that it gives is a batch."""

    _collates = False
    """Whether it makes each row of a run of rows."""

    _fixed_size: int | None = None
    """Rows of each run, where they are equally many."""

    _repeats = 0
    """How many times it gives the rows before it, -1 for ever; 0 where it is no `repeat`."""

    _shuffles = False
    """Whether it draws the order of its rows at random."""

    _runs_python = False
    """Whether it calls user code."""

    _sampler: BuiltinSampler | None = None
    """What picks its rows."""

    _events: Events | None = None
    """What counts its rows for callbacks."""

    _made_patches: tuple[str, ...] = ()
    """Columns with the patches of an image that it divides."""

    _picked_patches: tuple[str, ...] = ()
    """Columns with the patches of which it picks one."""

    _init_step = 0
    """How many rows iterators leave out at their beginning."""

    _changes = 0
    """How often samplers were changed, in all pipelines."""

    def __init__(self, columns: Sequence[str], children: Sequence[Described] = ()) -> None:
        self._column_names = tuple(columns)
        self._children = tuple(children)
        # From the source up, so that steps added later do not change random numbers of those before.
        self._depth: int = 1 + max((child._depth for child in children), default=-1)
        self._sizes: dict[tuple[int, int], int] = {}

    # -- the description ---------------------------------------------------------------------------------------------

    def _stream(self, run: Pass) -> Stream:
        """One pass of the pipeline up to here: a table where rows can be requested in any order, a flow where not."""
        raise NotImplementedError(f"For '{type(self).__name__}', derive from GeneratorDataset: it makes no rows.")

    def _arguments(self) -> Arguments:
        """What it was made with, by name, as JSON has it."""
        return recorded_arguments(self)

    @property
    def _child(self) -> Described:
        """The dataset before; the first of several."""
        return self._children[0]

    def _num_rows(self) -> int:
        """Rows of one pass; a flow is read once to count them. An endless repeat counts once, as in MindSpore."""
        # For the ranks whose shares are read; a sampler that was changed may be one below.
        key = SESSION.acts_for(), Described._changes
        if key not in self._sizes:
            self._sizes[key] = self._count()
        return self._sizes[key]

    def _count(self) -> int:
        if self._one_for_one:
            return self._child._num_rows()
        stream = self._stream(Pass(0, 0, is_query=True))
        return stream.size if isinstance(stream, Table) else sum(1 for _ in stream.rows())

    def _walk(self) -> Iterator[Described]:
        """This step and all below it."""
        yield self
        for child in self._children:
            yield from child._walk()

    def _chain(self) -> Iterator[Described]:
        """This step and those before it, the first of several, down to the source."""
        yield self
        if self._children:
            # Of several the first counts, as in MindSpore.
            yield from self._child._chain()

    def _gates(self) -> Iterator[tuple[Gate, int]]:
        """The gates of the pipeline, each with the number of its rows that make a row of this step."""
        for child in self._children:
            yield from ((gate, rows * (self._fixed_size or 1)) for gate, rows in child._gates())

    def _num_processes(self) -> int:
        """Processes that were requested for the work of this step; 1 for none."""
        return (self.num_parallel_workers or 1) if self.python_multiprocessing else 1

    def _num_shares(self) -> int:
        """How many ranks' shares this process reads, where it acts for all; 0 where it reads its own."""
        samplers = (step._sampler for step in self._walk())
        counts = {count for sampler in samplers if sampler is not None and (count := sampler.all_shares())}
        For("num_shards").refuse_state(len(counts) > 1, "all sources must have equally many shares", sorted(counts))
        return counts.pop() if counts else 0

    def _sample_by(self, sampler: BuiltinSampler) -> None:
        """Pick rows by another sampler from now on."""
        self._sampler = sampler
        Described._changes += 1

    def _changed(self: D, **attributes: Any) -> D:
        """The same step with other attributes."""
        same = object.__new__(type(self))
        vars(same).update(vars(self), **attributes)
        return same

    def _snapshot(self: D) -> D:
        """The pipeline as it is now, for an iterator: samplers may be changed under it. Arguments are left behind."""
        return self._changed(_children=tuple(child._snapshot() for child in self._children), _given={})

    # -- questions ---------------------------------------------------------------------------------------------------

    @property
    def children(self) -> list[Any]:
        """The datasets that this one continues; none for a source."""
        return list(self._children)

    @property
    def column_names(self) -> list[str]:
        """Names of the columns, in order."""
        return list(self._column_names)

    def get_col_names(self) -> list[str]:
        """Names of the columns, in order."""
        return list(self._column_names)

    def get_dataset_size(self) -> int:
        """Rows (batches, after `batch`) of one epoch; a sequential pipeline is read once to count them."""
        if num_ranks := self._num_shares():
            check.parallel_context().note_size_of_all_ranks(num_ranks)
        self.dataset_size = self._num_rows()
        return self.dataset_size

    def __len__(self) -> int:
        return self.get_dataset_size()

    def get_batch_size(self) -> int:
        """The batch size of the last `batch`, 1 without."""
        # The last `batch` is the nearest one to the end of the pipeline. Of any sizes where a function or a batch
        # sampler says them, which MindSpore shows as -1.
        return next((step._fixed_size or -1 for step in self._chain() if step._collates), 1)

    def get_repeat_count(self) -> int:
        """The count of the last `repeat`, 1 without; -1 for an endless one."""
        return next((step._repeats for step in self._chain() if step._repeats), 1)

    def output_shapes(self, estimate: bool = False) -> list[list[int | None]]:
        """Shapes of the columns of the first row; with `estimate`, None for each size that is not always the same.

        With `estimate` the whole pipeline is read once. [] where there is no row.
        """
        once = check.boolean("output_shapes", "estimate", estimate)
        rows = self._rows_once() if once else self._first_rows()
        shapes = ([_shape(row[name]) for name in self._column_names] for row in rows)
        return functools.reduce(common_shapes, shapes, next(shapes, []))

    def output_types(self) -> list[np.dtype[Any]]:
        """numpy dtypes of the columns of the first row, if any; of strings, each of which has its own length, the kind alone."""
        dtypes = [row[name].dtype for row in self._first_rows() for name in self._column_names]
        # The longest string decides a numpy dtype, so only the kind is the same in all rows.
        return [np.dtype(dtype.kind) if dtype.kind in "US" else dtype for dtype in dtypes]

    def is_shuffled(self) -> bool:
        """Whether any step draws its order at random."""
        return any(
            step._shuffles or (step._sampler is not None and step._sampler.is_shuffled()) for step in self._walk()
        )

    def is_sharded(self) -> bool:
        """Whether any source reads one rank's share only."""
        return any(step._sampler is not None and step._sampler.is_sharded() for step in self._walk())

    def num_classes(self) -> int | None:
        """Number of classes, where the source (the last of several) knows it."""
        # The last source for the number of classes and the first for their names, as in MindSpore.
        return self._children[-1].num_classes() if self._children else None

    def get_class_indexing(self) -> dict[str, Any]:
        """Class name -> label, where the source (the first of several) knows it."""
        return self._child.get_class_indexing() if self._children else {}

    def set_init_step(self, init_step: int) -> None:
        """Let iterators made from now on begin behind so many rows, counted over epochs, as if these had been read."""
        self._init_step = check.integer("set_init_step", "init_step", init_step, 0)

    def get_init_step(self) -> int:
        """What `set_init_step` said, here or of the only dataset before; 0 without."""
        if self._init_step or len(self._children) != 1:
            return self._init_step
        return self._child.get_init_step()

    @abc.abstractmethod
    def _first_rows(self) -> Iterator[Row]:
        """The first row, if there is one, as an iterator would give it: one process may read for all ranks."""

    def _rows_once(self) -> Iterator[Row]:
        # Pass 0 of a new iterator, so that two questions get one answer.
        return rows_of(self._stream(first_pass(0)))


def _shape(value: Array) -> list[int | None]:
    """The shape of a value; [0] for a dict, as MindSpore says."""
    return [0] if value.dtype == object else list(value.shape)
