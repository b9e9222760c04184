"""Where a run's batches come from: one at a time, or in groups for sink mode.

In MindSpore's sink mode the device fetches batches by itself and runs many steps before the host hears of it. Here that
is a *group*: batches of equal shape stacked into one array, over which one compiled program runs all their steps. The
host then works once per group instead of once per step, and the numbers are those of single steps.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from sporax.base.errors import SporaxRuntimeError, SporaxTypeError
from sporax.base.made_later import dataclass
from sporax.mindspore.common.tensor import Tensor

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

    Data sets of one's own need less than Sporax's: their `create_tuple_iterator` may take fewer arguments, what it gives may have
    no `release`, and `reset` of the data set, where there is one, is called after each epoch, as MindSpore does.

    Args:
        dataset: gives lists of columns.
        output_numpy: numpy arrays instead of Tensors.

    Raises:
        SporaxTypeError: what `create_tuple_iterator` gives cannot be iterated.
    """

    def __init__(self, dataset: Any, *, output_numpy: bool = False) -> None:
        # Without end: the loop counts epochs itself.
        wanted = {"num_epochs": -1, "output_numpy": output_numpy}
        taken = _accepted(dataset.create_tuple_iterator, wanted)
        self._create = functools.partial(dataset.create_tuple_iterator, **taken)
        self._iterator = self._create()
        if not hasattr(self._iterator, "__iter__") and not hasattr(self._iterator, "__next__"):
            raise SporaxTypeError(
                f"For 'Model', 'create_tuple_iterator' of the dataset ({type(dataset).__name__}) must give an iterator, but got "
                f"{type(self._iterator).__name__}."
            )
        self._ends_after_epoch = "num_epochs" not in taken
        self._is_ours = "output_numpy" in inspect.signature(dataset.create_tuple_iterator).parameters
        self._form = _as_numpy if output_numpy else _as_tensor
        self._reset = None if self._is_ours else getattr(dataset, "reset", None)
        self._begun = False
        self._rows: Iterator[Any] | None = None

    def epoch(self) -> Iterator[Batch]:
        """The batches of the next epoch."""
        if self._is_ours:
            return map(tuple, iter(self._iterator))
        return self._epoch_of_own_class()

    def _epoch_of_own_class(self) -> Iterator[Batch]:
        if self._begun and self._ends_after_epoch:
            self._iterator = self._create()
        self._begun = True
        for row in self._iterator if hasattr(self._iterator, "__iter__") else _until_stopped(self._iterator):
            # A single column may come without a list around it.
            yield tuple(map(self._form, [row] if isinstance(row, Tensor | np.ndarray) else row))
        if self._reset is not None:
            self._reset()

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
        release = getattr(self._iterator, "release", None)
        if release is not None:
            release()


def _accepted(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Those of the arguments that a function takes by name."""
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return arguments
    return {name: value for name, value in arguments.items() if name in parameters}


def _until_stopped(iterator: Any) -> Iterator[Any]:
    """The rows of an object that has `__next__` alone."""
    while True:
        try:
            row = next(iterator)
        except StopIteration:
            return
        yield row


def _as_numpy(column: Any) -> Any:
    return column.asnumpy() if isinstance(column, Tensor) else column


def _as_tensor(column: Any) -> Any:
    return Tensor(column) if isinstance(column, np.ndarray) else column


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
