"""The engine: runs a pipeline on grain, preparing rows ahead of their user.

This is the only module that imports grain, and it is imported by the first iterator, not by `import mindspore.dataset`.
A table becomes one random-access grain dataset that covers all epochs, so worker threads or processes run on across the
end of an epoch and any position is reached by counting. A flow is read by one thread, epoch by epoch.

Worker processes leave nothing behind, however their user ends. grain's workers pass rows in named shared memory. A name stays
when no one is left to remove it: rows that the user still holds at the end of the program, rows in the queue of an iterator
that was not closed, and, after a kill, workers that wait for ever for a reader that is gone, so that Python's resource tracker,
which waits for them, never cleans up. So a name is removed as soon as its row has arrived; the memory lives on as long as an
array uses it. Open readers are closed before the program ends. A worker ends when its user's process has gone
(`_workers.end_with_user`), and the resource tracker removes the names of the rows that were on their way.
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import itertools
import re
import weakref
from collections.abc import Iterator
from typing import Any, Protocol

import grain
import numpy as np
from absl import flags

from sporax.base.errors import SporaxError, SporaxValueError
from sporax.mindspore.dataset import config
from sporax.mindspore.dataset._all_ranks import Build, for_all_ranks
from sporax.mindspore.dataset._described import Described
from sporax.mindspore.dataset._random import Pass
from sporax.mindspore.dataset._rows import Row
from sporax.mindspore.dataset._streams import ENDLESS, Repeated, Stream, Table, row_at, rows_of
from sporax.mindspore.dataset._workers import end_with_user, spare_main, worker_died

_DIED = re.compile("Worker process was terminated unexpectedly with (exit code -?[0-9]+)")  # what grain says


@dataclasses.dataclass(frozen=True, slots=True)
class Workers:
    """Who prepares rows.

    Attributes:
        threads: number of threads (within each process), 0 for the user's own.
        processes: number of worker processes, 0 for none.
        ahead: rows prepared before they are requested.
    """

    threads: int
    processes: int
    ahead: int


def choose_workers(dataset: Described) -> Workers:
    """Workers as the pipeline's operations set them.

    User code runs in one thread unless its operation requests more, so that it need not be thread-safe and sees the
    rows in order. Processes are used where an operation requests several workers with `python_multiprocessing`; those of
    flows belong to their steps (`_workers`). In debug mode there are none: the user's thread does all.
    """
    if config.get_debug_mode():
        return Workers(0, 0, 0)
    steps = list(dataset._walk())
    processes = max((step.num_parallel_workers or 1 for step in steps if step.python_multiprocessing), default=0)
    ahead = config.get_prefetch_size()
    if processes <= 1:
        threads = max((step.num_parallel_workers or 0 for step in steps), default=0)
        # MindSpore's default number applies only where no user code runs, which need not be thread-safe.
        default = 1 if any(step._runs_python for step in steps) else config.num_threads()
        return Workers(threads or default, 0, ahead)
    if any(step.cache is not None for step in steps):
        raise SporaxValueError(
            "For 'DatasetCache', rows are kept in this process, so 'python_multiprocessing' with several workers must not be "
            "combined with it; leave 'python_multiprocessing' out to use threads."
        )
    return Workers(1, processes, ahead)


def open_reader(dataset: Described, first: Pass, num_epochs: int) -> _TableReader | _FlowReader:
    """Start reading `num_epochs` epochs (ENDLESS for ever) of a pipeline."""
    build, workers = for_all_ranks(dataset), choose_workers(dataset)
    # Built once here to see whether rows can be requested by number.
    one = build(first)
    if isinstance(one, Table) and one.size:
        samplers = (step._sampler for step in dataset._walk() if not step._children)
        # Each process works out the order by itself; a user's sampler might draw another one in each.
        if workers.processes and not all(sampler is None or sampler.is_pure() for sampler in samplers):
            raise SporaxValueError(
                "For 'map' and 'batch', 'python_multiprocessing' with several workers needs a sampler that every process "
                "can work out by itself, but got one of your own; pass its row numbers as a list, or use threads."
            )
        endless = one.size == ENDLESS
        # One table over all epochs, so that workers are not started again at the end of an epoch.
        epochs = one if endless else Repeated(functools.partial(_epoch, build, first), one.size, num_epochs, one)
        return _TableReader(epochs, one.size, workers)
    # An empty table is read as a flow, which ends at once.
    return _FlowReader(dataset, build, first, workers)


def _epoch(build: Build, first: Pass, number: int) -> Table:
    stream = build(first.at_epoch(number))
    assert isinstance(stream, Table)
    return stream


class _GrainTable(grain.MapDataset[Row]):  # type: ignore[misc]  # grain has no types
    """A table as grain sees it: one element per row."""

    def __init__(self, table: Table, start: int) -> None:
        super().__init__()
        self._table = table
        self._start = start

    def __len__(self) -> int:
        return self._table.size - self._start

    def __getitem__(self, index: Any) -> Any:
        # grain reads slices to shard a data set among worker processes.
        if isinstance(index, slice):
            return self.slice(index)
        # One row per request: grain's workers fetch rows in parallel, and batches have been made by the table.
        return row_at(self._table, index + self._start)


def _next(rows: Iterator[Row]) -> Row:
    try:
        return next(rows)
    except SporaxError as error:
        # grain adds notes about its own command line flags, which a user of Sporax does not have.
        vars(error).pop("__notes__", None)
        raise
    except RuntimeError as error:
        found = _DIED.search(str(error))
        if found is None:
            raise
        raise worker_died(f" ({found[1]})") from error


class _TableReader:
    """Reads all epochs of a table through grain's threads or processes."""

    def __init__(self, table: Table, rows_per_epoch: int, workers: Workers) -> None:
        self._table = table
        self._rows_per_epoch = rows_per_epoch
        self._workers = workers
        self._rows: Iterator[Row] | None = None
        self._position = 0
        self._row = 0

    def _open(self) -> Iterator[Row]:
        workers = self._workers
        source = _GrainTable(self._table, self._position)
        # At least one row per thread, or threads would be idle.
        ahead = max(workers.ahead, workers.threads)
        if workers.processes:
            if not flags.FLAGS.is_parsed():
                # grain reads absl flags before it starts processes; in a program without absl they have their defaults.
                flags.FLAGS.mark_as_parsed()
            # No threads inside of processes: `ReadOptions` would start 16 per process by default.
            options = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
            # The rows read ahead are shared among processes, so that memory does not grow with their number.
            per_worker = max(1, workers.ahead // workers.processes)
            shared = grain.multiprocessing.MultiprocessingOptions(workers.processes, per_worker)
            # Worker processes would otherwise outlive a script that ends in mid-epoch.
            close_at_exit(self)
            spare_main()
            seed = config.get_seed() if config.is_seed_set() else None
            begin = functools.partial(end_with_user, seed=seed)
            return iter(source.to_iter_dataset(options).mp_prefetch(shared, begin))
        return iter(source.to_iter_dataset(grain.ReadOptions(workers.threads, ahead)))

    def next_row(self) -> Row | None:
        # Checked before fetching, so that an epoch's end costs no row of the next.
        if self._row == self._rows_per_epoch:
            self._row = 0
            return None
        # Opened late: `seek` may come first.
        if self._rows is None:
            self._rows = self._open()
        row = _next(self._rows)
        self._position += 1
        self._row += 1
        # Rows of processes come in named shared memory; a name that is left would outlive the program.
        return without_names(row) if self._workers.processes else row

    def seek(self, epoch: int, row: int) -> None:
        # Workers have read ahead from the old position.
        self.close()
        self._position = epoch * self._rows_per_epoch + row
        self._row = row

    def close(self) -> None:
        if self._rows is not None:
            # Closing the generator ends its threads.
            self._rows.close()  # type: ignore[attr-defined]  # a generator where rows are open
            self._rows = None


class _GrainFlow(grain.IterDataset[Row]):  # type: ignore[misc]  # grain has no types
    """One epoch of a flow as grain sees it, from row number `start` on."""

    def __init__(self, stream: Stream, start: int) -> None:
        super().__init__()
        self._stream = stream
        self._start = start

    def __iter__(self) -> grain.DatasetIterator[Row]:
        return _GrainFlowIterator(self._stream, self._start)


class _GrainFlowIterator(grain.DatasetIterator[Row]):  # type: ignore[misc]  # grain has no types
    """Reads a flow; its state is the number of rows given."""

    def __init__(self, stream: Stream, start: int) -> None:
        super().__init__()
        self._stream = stream
        self._delivered = start
        self._rows: Iterator[Row] | None = None

    def __next__(self) -> Row:
        if self._rows is None:
            # A flow cannot jump: the rows before are read and dropped.
            self._rows = itertools.islice(rows_of(self._stream), self._delivered, None)
        row = next(self._rows)
        self._delivered += 1
        return row

    def get_state(self) -> dict[str, Any]:
        # grain's contract: a state that JSON can hold.
        return {"given": self._delivered}

    def set_state(self, state: dict[str, Any]) -> None:
        self._delivered = state["given"]
        self._rows = None


class _FlowReader:
    """Reads a flow epoch by epoch in one background thread; a seek reads and drops the rows before."""

    def __init__(self, dataset: Described, build: Build, first: Pass, workers: Workers) -> None:
        self._gates = [*dataset._gates()]
        self._events = [step._events for step in dataset._walk() if step._events is not None]
        self._build = build
        self._first = first
        self._ahead = workers.ahead
        self._epoch = 0
        self._start = 0
        self._rows: Iterator[Row] | None = None

    def next_row(self) -> Row | None:
        if self._rows is None:
            for gate, batch_size in self._gates:
                # A seek begins a reading as the first epoch does.
                gate.start_epoch(batch_size, is_first=self._epoch == 0 or self._start > 0)
            for events in self._events:
                events.start_epoch(is_first=self._epoch == 0)
            flow = _GrainFlow(self._build(self._first.at_epoch(self._epoch)), self._start)
            if self._ahead:
                flow = grain.experimental.ThreadPrefetchIterDataset(flow, prefetch_buffer_size=self._ahead)
            self._rows = iter(flow)
        try:
            return _next(self._rows)
        except StopIteration:
            for events in self._events:
                # Before the thread is stopped: callbacks get the end of the epoch they belong to.
                events.end_epoch()
            self._end_reading()
            self._epoch, self._start = self._epoch + 1, 0
            return None

    def seek(self, epoch: int, row: int) -> None:
        self.close()
        # Only noted; the rows before are skipped when the next row is requested.
        self._epoch, self._start = epoch, row

    def close(self) -> None:
        for gate, _ in self._gates:
            # First the gates, then the thread: closing waits for it.
            gate.open()  # so that the thread that reads ahead can end
        for events in self._events:
            events.stop()
        self._end_reading()

    def _end_reading(self) -> None:
        if self._rows is not None:
            self._rows.close()  # type: ignore[attr-defined]  # a generator where rows are open
            self._rows = None


class _Closable(Protocol):
    def close(self) -> None: ...


# Weak: an iterator that is dropped must end its workers at once and not at exit.
_open: weakref.WeakSet[_Closable] = weakref.WeakSet()


def close_at_exit(reader: _Closable) -> None:
    """Close `reader` before the program ends, if it still lives then."""
    _open.add(reader)


# While the interpreter is whole: finalizers of grain run later, when modules may be gone.
@atexit.register
def _close_all() -> None:
    for reader in list(_open):
        reader.close()


def without_names(row: Row) -> Row:
    """`row`, whose shared memory has no name any more and goes with its arrays."""
    return {name: _without_name(value) for name, value in row.items()}


def _without_name(value: np.ndarray) -> np.ndarray:
    # Only values from worker processes; small ones are pickled instead.
    if not isinstance(value, grain.multiprocessing.SharedMemoryArray):
        return value
    value.shm.unlink()
    # Otherwise the array would remove the name a second time.
    value._unlink_on_del = False
    # A plain view keeps the memory alive through its base.
    return value.view(np.ndarray)
