"""Where a run's batches come from: one at a time, or in groups for sink mode.

In MindSpore's sink mode the device fetches batches by itself and runs many steps before the host hears of it. Here that
is a *group*: batches of equal shape stacked into one array, over which one compiled program runs all their steps. The
host then works once per group instead of once per step, and the numbers are those of single steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from sporax.common.tensor import Tensor
from sporax.ir.errors import SporaxRuntimeError, SporaxTypeError

# 64 MiB: a group must fit next to the model, also on small devices.
_MAX_GROUP_BYTES = 64 << 20
# More steps save nothing measurable, and callbacks would wait longer.
_MAX_GROUP_STEPS = 64

Batch = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Inputs of several steps that run as one program.

    Attributes:
        inputs: Tensors ``[steps, ...]`` (for a single step without the first dimension).
        num_steps: how many steps they are for.
        num_samples: how many samples all of them have.
        last: the last step's inputs, for callbacks.
    """

    inputs: Batch
    num_steps: int
    num_samples: int
    last: Batch


def check_dataset(where: str, dataset: Any) -> int:
    """Number of batches in an epoch of `dataset`.

    Raises:
        SporaxTypeError: it is not a dataset.
    """
    if not hasattr(dataset, "create_tuple_iterator") or not hasattr(dataset, "get_dataset_size"):
        raise SporaxTypeError(f"For '{where}', the dataset must be a Dataset, but got {type(dataset).__name__}.")
    return int(dataset.get_dataset_size())


class Feed:
    """Batches of a dataset, epoch after epoch, without end.

    Args:
        dataset: gives lists of columns.
        output_numpy: numpy arrays instead of Tensors.
    """

    def __init__(self, dataset: Any, *, output_numpy: bool = False) -> None:
        # Without end: the loop counts epochs itself.
        self._iterator = dataset.create_tuple_iterator(num_epochs=-1, output_numpy=output_numpy)
        self._rows: Iterator[Any] | None = None

    def epoch(self) -> Iterator[Batch]:
        """The batches of the next epoch."""
        return map(tuple, iter(self._iterator))

    def take(self, count: int) -> Iterator[Batch]:
        """The next `count` batches, which may end within an epoch; the following call goes on from there.

        Raises:
            SporaxRuntimeError: an epoch had no batch at all, so that there will never be `count` of them.
        """
        # Remembers whether the present pass has given any batch.
        is_empty = False
        while count > 0:
            if self._rows is None:
                self._rows, is_empty = self.epoch(), True
            for batch in self._rows:
                is_empty = False
                yield batch
                count -= 1
                if count == 0:
                    return
            # An empty epoch would be repeated for ever.
            if is_empty:
                raise SporaxRuntimeError(
                    f"For 'Model', an epoch of the dataset must have at least one batch, but got none, and {count} more are "
                    "asked for. Look at its filters, `skip`, and `batch(drop_remainder=True)` with fewer rows than a batch."
                )
            self._rows = None

    def close(self) -> None:
        """Stop the dataset's workers."""
        self._iterator.release()


def groups(batches: Iterator[Batch], groupable: Callable[[Batch], bool]) -> Iterator[Group]:
    """Batches (of numpy arrays) in groups of equal shapes, as large as fits; odd ones alone.

    Args:
        batches: where they come from.
        groupable: asked once, with the first batch, whether grouping pays.
    """
    waiting: list[Batch] = []
    limit = 0
    for batch in batches:
        # Decided by the first batch: shapes seldom change in size.
        limit = limit or (_capacity(batch) if groupable(tuple(map(Tensor, batch))) else 1)
        if waiting and (len(waiting) >= limit or _shapes(batch) != _shapes(waiting[0])):
            yield _group(waiting)
            waiting = []
        waiting.append(batch)
    if waiting:
        yield _group(waiting)


def _shapes(batch: Batch) -> tuple[Any, ...]:
    return tuple((column.shape, column.dtype) for column in batch)


def _capacity(batch: Batch) -> int:
    size: int = sum(column.nbytes for column in batch)
    # At least one batch, however large it is.
    return max(1, min(_MAX_GROUP_STEPS, _MAX_GROUP_BYTES // max(size, 1)))


def _group(batches: list[Batch]) -> Group:
    last = tuple(map(Tensor, batches[-1]))
    count = num_samples(last) * len(batches)
    if len(batches) == 1:
        return Group(last, 1, count, last)
    return Group(tuple(Tensor(np.stack(column)) for column in zip(*batches, strict=True)), len(batches), count, last)


def num_samples(batch: Batch) -> int:
    """Number of samples in a batch: the first dimension of its first column."""
    shape = getattr(batch[0], "shape", ()) if batch else ()
    return int(shape[0]) if shape else 1
