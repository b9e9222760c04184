"""Subclasses of `Dataset`: sources whose sampler can be changed, and what each step of a pipeline makes.

Programs ask for `BatchDataset`, `MapDataset`, … with `isinstance`, and a few make them by hand; both go through the methods of
`Dataset`, which these classes name. `StepDataset` registers each under its name, so that the methods find them.
"""

from __future__ import annotations

import sys
import threading
import time
import uuid
from typing import Any

import numpy as np

from sporax.base.errors import SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore.dataset import _checks
from sporax.mindspore.dataset._dataset import Dataset as Dataset  # offered from here, together with what its steps make
from sporax.mindspore.dataset._dataset import steps
from sporax.mindspore.dataset._dataset import zip_datasets as zip_datasets
from sporax.mindspore.dataset._iterators import TupleIterator
from sporax.mindspore.dataset._nodes.batches import Batch
from sporax.mindspore.dataset._nodes.node import Concat, Repeat, Source, first_pass
from sporax.mindspore.dataset._streams import ENDLESS
from sporax.mindspore.dataset.samplers import (
    BuiltinSampler,
    DistributedSampler,
    FixedOrder,
    RandomSampler,
    SequentialSampler,
)


class SourceDataset(Dataset):
    """A data set that reads rows from somewhere; base of them all."""


def _not_a_sampler(where: str, value: object) -> SporaxTypeError:
    words = "Input sampler can not be None." if value is None else "Input sampler is not an instance of a sampler."
    return _checks.in_words(SporaxTypeError, where, words, value)


class MappableDataset(SourceDataset):
    """A source that rows can be picked from (a GeneratorDataset may turn out to be sequential instead)."""

    @property
    def sampler(self) -> BuiltinSampler:
        """The sampler in use."""
        return self._source("sampler").sampler

    def add_sampler(self, new_sampler: BuiltinSampler) -> None:
        """Sample with `new_sampler` from what the present sampler gives."""
        source = self._source("add_sampler")
        if not isinstance(new_sampler, BuiltinSampler):
            raise _not_a_sampler("add_sampler", new_sampler)
        # The present sampler becomes the child, which the new one picks from.
        new_sampler.add_child(source.sampler)
        self._node = source.with_sampler(new_sampler)

    def use_sampler(self, new_sampler: BuiltinSampler) -> None:
        """Sample with `new_sampler` instead of the sampler added last."""
        source = self._source("use_sampler")
        if not isinstance(new_sampler, BuiltinSampler):
            raise _not_a_sampler("use_sampler", new_sampler)
        # Only the last sampler is replaced; those below it stay.
        below = source.sampler.get_child()
        if below is not None:
            new_sampler.add_child(below)
        self._node = source.with_sampler(new_sampler)

    def _row_number(self, index: int) -> int:
        """The row of the source that stands at `index` in the first epoch."""
        source = self._source("[]")
        # Pass 0 without iterators, so that an index means the same row each time.
        order = source.order(first_pass(0))
        number = _checks.check_int("[]", "index", index)
        if not 0 <= number < len(order):
            raise SporaxRuntimeError(f"For '[]', the index must be in [0, {len(order)}), but got {number}.")
        return int(order[number])

    def _source(self, where: str) -> Source:
        if not isinstance(self._node, Source):
            raise SporaxRuntimeError(f"For '{where}', the source must have random access, but this one is sequential.")
        return self._node

    def _part(self, start: int, count: int, randomize: bool) -> Dataset:
        # Without random access the part is taken from the stream.
        if not isinstance(self._node, Source):
            return super()._part(start, count, randomize)
        part = SequentialSampler(start, count)
        # The parts of one split must come from one order, whatever the epoch.
        part.add_child(FixedOrder(self._node.sampler, randomize))
        # The sampler on top is the one that `use_sampler` replaces, e.g. to shuffle or shard the part.
        top = SequentialSampler()
        top.add_child(part)
        result = MappableDataset(self._node.with_sampler(top))
        result._children = (self,)
        return result


class StepDataset(Dataset):
    """What a step makes.

    Args:
        input_dataset: the dataset before.
        arguments: those of the method of `Dataset` that makes this step.
        options: as `arguments`, by name.
    """

    _method: str

    def __init_subclass__(cls, method: str) -> None:
        super().__init_subclass__()
        cls._method = method
        # Into the table by name, so that `_dataset` need not import this module.
        steps[cls.__name__] = cls

    def __init__(self, input_dataset: Dataset, *arguments: Any, **options: Any) -> None:
        # By the method: arguments and checks are written once.
        self._become(getattr(input_dataset, self._method)(*arguments, **options))

    def _become(self, other: Dataset) -> None:
        Dataset.__init__(self, other._node)
        self._children = tuple(other.children)


class MapDataset(StepDataset, method="map"):
    """What `map` makes."""


class BatchDataset(StepDataset, method="batch"):
    """What `batch` makes."""

    @property
    def batch_size(self) -> int:
        """Rows of a batch; 1 where a function says it."""
        assert isinstance(self._node, Batch)
        return self._node.fixed_size or 1


class PaddedBatchDataset(StepDataset, method="padded_batch"):
    """What `padded_batch` makes."""


class BucketBatchByLengthDataset(StepDataset, method="bucket_batch_by_length"):
    """What `bucket_batch_by_length` makes."""


class SyncWaitDataset(StepDataset, method="sync_wait"):
    """What `sync_wait` makes."""


class ShuffleDataset(StepDataset, method="shuffle"):
    """What `shuffle` makes."""


class FilterDataset(StepDataset, method="filter"):
    """What `filter` makes."""


class RepeatDataset(StepDataset, method="repeat"):
    """What `repeat` makes."""

    @property
    def count(self) -> int:
        """How often; -1 for ever."""
        assert isinstance(self._node, Repeat)
        return -1 if self._node.count == ENDLESS else self._node.count


class SkipDataset(StepDataset, method="skip"):
    """What `skip` makes."""


class TakeDataset(StepDataset, method="take"):
    """What `take` and `split` make."""


class RenameDataset(StepDataset, method="rename"):
    """What `rename` makes."""


class ProjectDataset(StepDataset, method="project"):
    """What `project` makes."""


class ZipDataset(StepDataset, method="zip"):
    """What `zip` makes."""

    def __init__(self, datasets: tuple[Dataset, ...]) -> None:
        self._become(zip_datasets(datasets))


class ConcatDataset(StepDataset, method="__add__"):
    """Datasets one after the other: what `concat` and ``+`` give."""

    def __init__(self, datasets: list[Dataset]) -> None:
        first, *others = datasets
        self._become(first.concat(others))

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
            raise _checks.in_words(SporaxTypeError, "use_sampler", words)
        # Replacement and shuffling would let shares overlap, since each rank samples by itself.
        drawn = sampler.replacement if isinstance(sampler, RandomSampler) else sampler.shuffle
        if drawn or sampler.get_num_samples() is not None:
            what = "replacement" if isinstance(sampler, RandomSampler) else "shuffle"
            words = f"The parameter {what} of {type(sampler).__name__} must be False!"
            if not drawn:
                words = f"The parameter num_samples of {type(sampler).__name__} is not support to be set!"
            raise _checks.in_words(SporaxValueError, "use_sampler", words)
        if batch := next((child for child in self._children if child._node.collates), None):
            words = f"The parameter {batch} of concat must not be BatchDataset or PaddedBatchDataset!"
            raise _checks.in_words(SporaxTypeError, "use_sampler", words)
        if isinstance(sampler, DistributedSampler):
            # With an offset nothing is read twice to make the shares equal.
            sampler = DistributedSampler(
                sampler.num_shards, sampler.shard_id, shuffle=False, offset=max(sampler.offset, 0)
            )
        # Over the parents again: the sampler picks among the rows of all.
        self._node = Concat(self._node.parents, sampler)


class TransferDataset(Dataset):
    """Batches for a queue of the device: what `device_que` makes.

    `Model.train` in sink mode, `data_sink` and `DatasetHelper` fetch batches by themselves, so that no one waits at the queue; as
    MindSpore on a CPU, `send` reads the batches and drops them.

    Args:
        input_dataset: the dataset before.
        send_epoch_end: whether the end of an epoch is sent, which changes nothing here.
        create_data_info_queue: whether types and shapes are sent; `get_data_info` tells them in any case.
        queue_name: name of the queue; a new one by default.
    """

    def __init__(
        self, input_dataset: Dataset, send_epoch_end: bool = True, create_data_info_queue: bool = False,
        queue_name: str = "",
    ) -> None:  # fmt: skip
        where = "device_que"
        _checks.check_bool(where, "send_epoch_end", send_epoch_end)
        _checks.check_bool(where, "create_data_info_queue", create_data_info_queue)
        super().__init__(input_dataset._node)
        self._children = (input_dataset,)
        self.queue_name = _checks.check_str(where, "queue_name", queue_name) or str(uuid.uuid1())
        self._runs = threading.Event()
        self._sender: threading.Thread | None = None
        self._batch: list[Any] = []
        self._sent, self._seconds = 0, 0.0

    def _iterator_arguments(self, *arguments: Any) -> Any:
        raise _checks.in_words(SporaxRuntimeError, "device_que", "TransferDataset is not iterable.")

    def send(self, num_epochs: int = -1) -> None:
        """Begin to read `num_epochs` epochs in a thread of its own; -1 reads until `stop_send`."""
        self.release()
        rows = self._children[0].create_tuple_iterator(num_epochs=num_epochs, output_numpy=True)
        self._sender = threading.Thread(target=self._read, args=(rows, num_epochs), daemon=True)
        self._runs.set()
        self._sender.start()

    def _read(self, rows: TupleIterator, num_epochs: int) -> None:
        for _ in range(sys.maxsize if num_epochs == -1 else num_epochs):
            begin = time.perf_counter()
            for batch in rows:
                now = time.perf_counter()
                self._batch, self._sent, self._seconds = batch, self._sent + 1, self._seconds + now - begin
                if not self._runs.is_set():
                    return
                begin = now

    def stop_send(self) -> None:
        """Read no further batch."""
        self._runs.clear()

    def continue_send(self) -> None:
        """Go on where `stop_send` came before the reading thread noticed it."""
        self._runs.set()

    def release(self) -> None:
        """Read no further batch, and wait for the thread."""
        self.stop_send()
        if self._sender is not None:
            self._sender.join()

    def get_data_info(self) -> tuple[list[np.dtype[Any]], list[list[int]]]:
        """dtypes and shapes of the columns of the last batch.

        Raises:
            SporaxRuntimeError: nothing was read.
        """
        if not self._batch:
            raise _checks.in_words(SporaxRuntimeError, "get_data_info", "Calling get_data_info with bad state.")
        return [value.dtype for value in self._batch], [list(value.shape) for value in self._batch]

    def get_send_info(self) -> list[Any]:
        """How many batches were read, and the seconds that reading and sending them took."""
        return [self._sent, self._seconds, 0.0]


steps["TransferDataset"] = TransferDataset
