"""The ends of pipelines: sources, whose rows samplers pick that can be changed, and batches for a queue of the device."""

from __future__ import annotations

import sys
import threading
import time
import uuid
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from sporax.base.errors import For, SporaxRuntimeError, SporaxTypeError
from sporax.mindspore.dataset import _checks as check, config
from sporax.mindspore.dataset._cache import CachedTable, DatasetCache, fingerprint
from sporax.mindspore.dataset._dataset import Dataset, StepDataset
from sporax.mindspore.dataset._described import Arguments, first_pass
from sporax.mindspore.dataset._iterators import TupleIterator
from sporax.mindspore.dataset._random import Pass
from sporax.mindspore.dataset._rows import Row
from sporax.mindspore.dataset._streams import Indices, Opened, Reordered, Stream, Table, row_at
from sporax.mindspore.dataset.samplers import BuiltinSampler, FixedOrder, SequentialSampler

_SAMPLING = ("num_samples", "shuffle", "sampler", "num_shards", "shard_id")
"""Arguments of sources of which the sampler knows all."""


class SourceDataset(Dataset):
    """A data set that reads rows from somewhere; base of them all.

    Args:
        columns: names of the columns.
        load: opens the store of the rows; called once, at the first use. None where there is none.
        sampler: chooses rows and their order; None where they cannot be picked.
        labels: class label (or number of the file) per row of the store, for samplers.
        workers: threads or processes requested, or None.
        cache: keeps rows of the store.
    """

    def __init__(
        self, columns: Sequence[str], load: Callable[[], Table] | None, sampler: BuiltinSampler | None,
        labels: Callable[[Table], Any] | None = None, workers: int | None = None, cache: DatasetCache | None = None,
    ) -> None:  # fmt: skip
        super().__init__(columns)
        if load is not None:
            self._store = Opened(load)
        self._sampler = sampler
        self._labels = labels
        self.num_parallel_workers = workers
        self.cache = cache

    def _stream(self, run: Pass) -> Stream:
        table = self._store()
        if self.cache is not None and not config.get_debug_mode():
            self.cache.claim(self._identity())
            table = CachedTable(table, self.cache)
        return Reordered(table, self._order(run))

    def _identity(self) -> Hashable:
        """Equal for sources that read the same."""
        return self._column_names, fingerprint(self._store.load)

    def _order(self, run: Pass) -> Indices:
        """The rows of the store that a pass reads."""
        sampler, store = self._picking("[]"), self._store()
        return sampler.order(store.size, run, None if self._labels is None else self._labels(store))

    def _count(self) -> int:
        # What a sampler says itself saves building the order, which a user's sampler may draw at random.
        stated = None if self._sampler is None else self._sampler.stated()
        return super()._count() if stated is None else stated

    def _arguments(self) -> Arguments:
        arguments = {name: value for name, value in super()._arguments().items() if name not in _SAMPLING}
        return arguments if self._sampler is None else {**arguments, "sampler": self._sampler}

    def _picking(self, where: str) -> BuiltinSampler:
        """The sampler.

        Raises:
            SporaxRuntimeError: there is none.
        """
        if self._sampler is None:
            raise For(where).state_error("the source must have random access, but this one is sequential")
        return self._sampler


def _check_sampler(where: str, value: object) -> None:
    if not isinstance(value, BuiltinSampler):
        words = "Input sampler can not be None." if value is None else "Input sampler is not an instance of a sampler."
        raise check.in_words(SporaxTypeError, where, words, value)


class MappableDataset(SourceDataset):
    """A source that rows can be picked from (a GeneratorDataset may turn out to be sequential instead)."""

    @property
    def sampler(self) -> BuiltinSampler:
        """The sampler in use."""
        return self._picking("sampler")

    def add_sampler(self, new_sampler: BuiltinSampler) -> None:
        """Sample with `new_sampler` from what the present sampler gives."""
        present = self._picking("add_sampler")
        _check_sampler("add_sampler", new_sampler)
        # The present sampler becomes the child, which the new one picks from.
        new_sampler.add_child(present)
        self._sample_by(new_sampler)

    def use_sampler(self, new_sampler: BuiltinSampler) -> None:
        """Sample with `new_sampler` instead of the sampler added last."""
        present = self._picking("use_sampler")
        _check_sampler("use_sampler", new_sampler)
        # Only the last sampler is replaced; those below it stay.
        below = present.get_child()
        if below is not None:
            new_sampler.add_child(below)
        self._sample_by(new_sampler)

    def _row_number(self, index: int) -> int:
        """The row of the source that stands at `index` in the first epoch."""
        # Pass 0 without iterators, so that an index means the same row each time.
        order = self._order(first_pass(0))
        number = check.integer("[]", "index", index)
        For("[]").refuse_state(not 0 <= number < len(order), f"the index must be in [0, {len(order)})", number)
        return int(order[number])

    def _row(self, index: int) -> Row:
        """The row at `index` in the first epoch."""
        return row_at(self._store(), self._row_number(index))

    def _part(self, start: int, count: int, randomize: bool) -> Dataset:
        # Without random access the part is taken from the stream.
        if self._sampler is None:
            return super()._part(start, count, randomize)
        part = SequentialSampler(start, count)
        # The parts of one split must come from one order, whatever the epoch.
        part.add_child(FixedOrder(self._sampler, randomize))
        # The sampler on top is the one that `use_sampler` replaces, e.g. to shuffle or shard the part.
        top = SequentialSampler()
        top.add_child(part)
        return self._changed(_sampler=top, _sizes={}, _iterators_made=0)


class TransferDataset(StepDataset):
    """Batches for a queue of the device: what `device_que` makes.

    `Model.train` in sink mode, `data_sink` and `DatasetHelper` fetch batches by themselves, so that no one waits at the queue; as
    MindSpore on a CPU, `send` reads the batches and drops them.

    Args:
        input_dataset: the dataset before.
        send_epoch_end: whether the end of an epoch is sent, which changes nothing here.
        create_data_info_queue: whether types and shapes are sent; `get_data_info` gives them in any case.
        queue_name: name of the queue; a new one by default.
    """

    _one_for_one = True

    def __init__(
        self, input_dataset: Dataset, send_epoch_end: bool = True, create_data_info_queue: bool = False,
        queue_name: str = "",
    ) -> None:  # fmt: skip
        where = "device_que"
        check.boolean(where, "send_epoch_end", send_epoch_end)
        check.boolean(where, "create_data_info_queue", create_data_info_queue)
        super().__init__(input_dataset._column_names, [input_dataset])
        self.queue_name = check.text(where, "queue_name", queue_name) or str(uuid.uuid1())
        self._runs = threading.Event()
        self._sender: threading.Thread | None = None
        self._batch: list[Any] = []
        self._sent, self._seconds = 0, 0.0

    def _stream(self, run: Pass) -> Stream:
        return self._child._stream(run)

    def _iterator_arguments(self, *arguments: Any) -> Any:
        raise check.in_words(SporaxRuntimeError, "device_que", "TransferDataset is not iterable.")

    def send(self, num_epochs: int = -1) -> None:
        """Begin to read `num_epochs` epochs in a thread of its own; -1 reads until `stop_send`."""
        self.release()
        rows = self.children[0].create_tuple_iterator(num_epochs=num_epochs, output_numpy=True)
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
        check.refuse(not self._batch, SporaxRuntimeError, "get_data_info", "Calling get_data_info with bad state.")
        return [value.dtype for value in self._batch], [list(value.shape) for value in self._batch]

    def get_send_info(self) -> list[Any]:
        """How many batches were read, and the seconds that reading and sending them took."""
        return [self._sent, self._seconds, 0.0]
