"""What a pipeline says of itself: columns, sizes, shapes, whether its order is random.

Arithmetic on the sizes of datasets and rows: splitting a dataset into parts, and what shapes have in common.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator
from typing import Any

import numpy as np

from sporax.base.errors import SporaxRuntimeError, SporaxValueError
from sporax.mindspore.dataset import _checks
from sporax.mindspore.dataset._checks import in_words
from sporax.mindspore.dataset._nodes.all_ranks import num_shares
from sporax.mindspore.dataset._nodes.node import Concat, FlowSource, Node, Repeat, Shuffle, Source, first_pass
from sporax.mindspore.dataset._rows import Array, Row
from sporax.mindspore.dataset._streams import ENDLESS, rows_of


def split_counts(sizes: Any, total: int) -> list[int]:
    """Rows of each part; a rounding difference goes to the first part that can take it."""
    _checks.check_instance("split", "sizes", sizes, list)
    if not sizes:
        raise in_words(SporaxValueError, "split", "sizes cannot be empty.")
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
        words = f"Split percentage {sizes[counts.index(0)]} is too small."
        raise in_words(SporaxRuntimeError, "split", words)
    # `round` may miss the total by a few rows in either direction.
    excess = sum(counts) - total
    # The first part that keeps at least one row, as MindSpore corrects it.
    receiver = next(i for i, count in enumerate(counts) if count > excess)
    counts[receiver] -= excess
    return counts


def common_shapes(shapes: list[list[int | None]], row_shapes: list[list[int]]) -> list[list[int | None]]:
    """Shapes with None where two rows differ."""
    for shape, other in zip(shapes, row_shapes, strict=True):
        if len(shape) != len(other):
            raise SporaxRuntimeError(
                f"For 'output_shapes', Inconsistent shapes, expect same shape for each data row, but got {shape} and {other}."
            )
    return [
        [a if a == b else None for a, b in zip(shape, other, strict=True)]
        for shape, other in zip(shapes, row_shapes, strict=True)
    ]


class Described(abc.ABC):
    """The questions to a dataset; base of `Dataset`."""

    _node: Node
    dataset_size: int | None = None
    """What `get_dataset_size` gave, once it was called."""

    @property
    def column_names(self) -> list[str]:
        """Names of the columns, in order."""
        return list(self._node.columns)

    def get_col_names(self) -> list[str]:
        """Names of the columns, in order."""
        return list(self._node.columns)

    def get_dataset_size(self) -> int:
        """Rows (batches, after `batch`) of one epoch; a sequential pipeline is read once to count them."""
        if num_ranks := num_shares(self._node):
            _checks.parallel_context().note_size_of_all_ranks(num_ranks)
        self.dataset_size = self._node.num_rows()
        return self.dataset_size

    def __len__(self) -> int:
        return self.get_dataset_size()

    def get_batch_size(self) -> int:
        """The batch size of the last `batch`, 1 without."""
        # The last `batch` is the nearest one to the end of the pipeline.
        for node in _chain(self._node):
            # Of any sizes where a function or a batch sampler says them, which MindSpore shows as -1.
            if node.collates:
                return -1 if node.fixed_size is None else node.fixed_size
        return 1

    def get_repeat_count(self) -> int:
        """The count of the last `repeat`, 1 without; -1 for an endless one."""
        for node in _chain(self._node):
            if isinstance(node, Repeat):
                return -1 if node.count == ENDLESS else node.count
        return 1

    def output_shapes(self, estimate: bool = False) -> list[list[int | None]]:
        """Shapes of the columns of the first row; with `estimate`, None for each size that is not always the same.

        With `estimate` the whole pipeline is read once.
        """
        if not _checks.check_bool("output_shapes", "estimate", estimate):
            row = self._first_row()
            return [[*_shape(row[name])] for name in self._node.columns]
        shapes: list[list[int | None]] = []
        for row in self._rows_once():
            row_shapes = [_shape(row[name]) for name in self._node.columns]
            shapes = common_shapes(shapes, row_shapes) if shapes else [[*shape] for shape in row_shapes]
        return shapes

    def output_types(self) -> list[np.dtype[Any]]:
        """numpy dtypes of the columns of the first row; of strings, each of which has its own length, the kind alone."""
        row = self._first_row()
        dtypes = [row[name].dtype for name in self._node.columns]
        # The longest string decides a numpy dtype, so only the kind is the same in all rows.
        return [np.dtype(dtype.kind) if dtype.kind in "US" else dtype for dtype in dtypes]

    def is_shuffled(self) -> bool:
        """Whether any step draws its order at random."""
        return any(
            isinstance(node, Shuffle)
            or (isinstance(node, (Source, Concat)) and node.sampler is not None and node.sampler.is_shuffled())
            or (isinstance(node, FlowSource) and node.shuffled)
            for node in self._node.walk()
        )

    def is_sharded(self) -> bool:
        """Whether any source reads one rank's share only."""
        return any(
            (isinstance(node, (Source, Concat)) and node.sampler is not None and node.sampler.is_sharded())
            or (isinstance(node, FlowSource) and node.sharded)
            for node in self._node.walk()
        )

    @abc.abstractmethod
    def _first_row(self) -> Row:
        """The first row, as an iterator would give it: one process may read for all ranks."""

    def _rows_once(self) -> Iterator[Row]:
        # Pass 0 of a new iterator, so that two questions get one answer.
        return rows_of(self._node.build(first_pass(0)))


def _shape(value: Array) -> list[int]:
    """The shape of a value; [0] for a dict, as MindSpore says."""
    return [0] if value.dtype == object else list(value.shape)


def _chain(node: Node) -> Iterator[Node]:
    """The node and its first parents, down to the source."""
    while True:
        yield node
        if not node.parents:
            # Of several parents the first counts, as in MindSpore.
            return
        node = node.parents[0]
