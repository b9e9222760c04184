"""A random-access source whose rows come in the batches that a batch sampler names."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sporax.base.errors import SporaxError, SporaxRuntimeError
from sporax.mindspore.dataset._flows import Stream
from sporax.mindspore.dataset._nodes import Node
from sporax.mindspore.dataset._random import Pass
from sporax.mindspore.dataset._rows import Block, Column, as_value, collate, join, opened
from sporax.mindspore.dataset._tables import Indices, Table


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

    def __init__(
        self,
        columns: Sequence[str],
        store: Table,
        batch_sampler: Any,
        collate_fn: Callable[..., Any] | None,
        workers: int,
        processes: bool,
    ) -> None:
        super().__init__(columns)
        self._store = store
        self._batch_sampler = batch_sampler
        self._collate_fn = collate_fn
        self.workers = workers
        self.processes = processes

    def build(self, run: Pass) -> Stream:
        """See Node."""
        # A list: tables know their size. The sampler is asked again for each pass, so it may shuffle.
        return _PickedBatches(self._store, [_row_numbers(item) for item in self._batch_sampler], self._collate_fn)

    def _count(self) -> int:
        length = getattr(self._batch_sampler, "__len__", None)
        # A sampler with a length need not be iterated, which would advance its random numbers.
        return super()._count() if length is None else int(length())

    def runs_python(self) -> bool:
        """See Node."""
        # The batch sampler is the user's, even without a `collate_fn`.
        return True


class _PickedBatches(Table):
    def __init__(self, store: Table, picks: Sequence[Indices], collate_fn: Callable[..., Any] | None) -> None:
        self._store = store
        self._picks = picks
        self._collate_fn = collate_fn
        self.size = len(picks)

    def gather(self, indices: Indices) -> Block:
        """See Table."""
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
            raise SporaxRuntimeError(
                f"For 'GeneratorDataset', 'collate_fn' failed with {type(error).__name__}: {error}"
            ) from error
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
        raise SporaxRuntimeError(
            f"For 'GeneratorDataset', 'batch_sampler' must give lists of row numbers, but got {item!r}."
        )
    return np.array(item, np.int64)
