"""Worker processes for pipelines that are read in order.

Problem: grain's processes serve pipelines whose rows can be picked: each process works out its own share. Of a generator, or
behind a `filter`, the rows are known one after the other, in the user's process. Method: that process reads them and hands
each to a pool; results come back in the order of the rows. The function that a pass applies goes to a file once, so that a
task carries a row and a path. Processes start with the first row, live as long as the step of the pipeline that uses them,
and end when the user's process has gone.
"""

from __future__ import annotations

import functools
import importlib
import multiprocessing
import os
import pickle
import random
import sys
import tempfile
import threading
import time
import types
import weakref
from collections.abc import Callable, Iterator
from concurrent import futures
from importlib.machinery import ModuleSpec
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from sporax.base.errors import SporaxRuntimeError
from sporax.mindspore.dataset import config
from sporax.mindspore.dataset._rows import Row
from sporax.mindspore.dataset._streams import ENDLESS, Stream, Table, in_order, in_order_of, row_at, rows_of

T = TypeVar("T")
R = TypeVar("R")


def end_with_user(worker: int = 0, num_workers: int = 0, seed: int | None = None) -> None:
    """Let this worker process end when the process that started it has gone. (Arguments as grain passes them.)

    With a seed, what the user's functions draw from Python and numpy follows from it and the number of the worker.
    """
    if seed is not None:
        random.seed(seed + worker)
        np.random.seed((seed + worker) % 2**32)
    user = multiprocessing.parent_process()
    if user is None:  # grain runs its workers as threads while it is debugged
        return

    def watch() -> None:
        # In a thread: the main thread of a worker waits for tasks.
        user.join()
        usual = sys.getswitchinterval()
        while True:
            # No other thread gets a turn between the look and the end.
            sys.setswitchinterval(60)
            if not _names_memory():
                # Not `sys.exit`, which would end only this thread.
                os._exit(1)
            sys.setswitchinterval(usual)
            time.sleep(1e-3)

    threading.Thread(target=watch, name=f"user of worker {worker} of {num_workers}", daemon=True).start()


def spare_main() -> None:
    """Let processes that are spawned from now on leave the main program out where it has no guard.

    MindSpore forks, so its scripts need none; a spawned process runs such a script from its beginning again. Functions and
    classes of the main program are sent by value, so workers do without it. With a guard, workers have it as Python would: then
    exceptions of its own classes come back, too.
    """
    main = sys.modules["__main__"]
    file = Path(getattr(main, "__file__", None) or "")
    if main.__spec__ is None and file.is_file() and b"__main__" not in file.read_bytes():
        # Python leaves a main module of this name out, since it is what the program of a folder or an archive has.
        main.__spec__ = ModuleSpec("__main__", None)


def worker_died(how: str) -> SporaxRuntimeError:
    """The error where a worker process has ended without a word.

    Args:
        how: what is known of its end, such as its exit code.
    """
    return SporaxRuntimeError(
        f"For 'num_parallel_workers', the worker processes of the data set must stay alive, but one has died{how}: it was "
        "killed, memory ran out, or code that it called ended it. Fewer workers need less memory; with "
        "python_multiprocessing=False, or num_parallel_workers=1, rows are read in this process, which shows the cause."
    )


def _names_memory() -> bool:
    """Whether a thread of this process is making shared memory: its name exists, and the resource tracker may not know it yet."""
    making = shared_memory.SharedMemory.__init__.__code__
    for frame in sys._current_frames().values():
        caller: types.FrameType | None = frame
        while caller is not None:
            if caller.f_code is making:
                return True
            caller = caller.f_back
    return False


class Pool:
    """Processes of one step of a pipeline.

    Args:
        processes: how many.
    """

    def __init__(self, processes: int) -> None:
        self.processes = processes
        self._executor: futures.ProcessPoolExecutor | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # Processes do not survive pickling; the copy starts its own.
        return Pool, (self.processes,)

    def in_order(self, items: Iterator[T], function: Callable[[T], R]) -> Iterator[R]:
        """`function` of every item, worked out by the processes, given in the order of the items."""
        cloudpickle = importlib.import_module("cloudpickle")  # it also takes lambdas and functions of the main program
        if self._executor is None:
            spare_main()
            spawn = multiprocessing.get_context("spawn")  # a fork would copy locks that threads of JAX hold
            self._executor = futures.ProcessPoolExecutor(self.processes, spawn, end_with_user)
            # Not in `__del__`: the interpreter may be shutting down by then.
            weakref.finalize(self, self._executor.shutdown, wait=False, cancel_futures=True)
        with tempfile.TemporaryDirectory(prefix="sporax-dataset-") as folder:
            path = Path(folder) / "function"
            path.write_bytes(cloudpickle.dumps(function))
            executor = self._executor
            try:
                yield from in_order_of(items, lambda item: executor.submit(_apply, str(path), item), self.processes)
            except futures.BrokenExecutor as error:
                self._executor = None  # the next pass starts other processes
                # One that is just starting can miss the end of the others; Python would wait for it at its own end.
                for process in list(executor._processes.values()):
                    process.kill()
                raise worker_died("") from error


def _apply(path: str, item: Any) -> Any:
    return _function(path)(item)


# Two: a step may be read by two iterators in turn.
@functools.lru_cache(maxsize=2)
def _function(path: str) -> Callable[[Any], Any]:
    return pickle.loads(Path(path).read_bytes())


class StepWorkers:
    """Threads or processes that work for a step in the order of the rows.

    Args:
        workers: how many.
        processes: whether they are processes.
    """

    def __init__(self, workers: int, processes: bool) -> None:
        self._threads = workers
        self._pool = Pool(workers) if processes and workers > 1 else None

    def in_order(self, items: Iterator[Any], function: Callable[[Any], Any]) -> Iterator[Any]:
        """`function` of every item, in their order."""
        if config.get_debug_mode():
            return map(function, items)
        if self._pool is not None:
            return self._pool.in_order(items, function)
        return in_order(items, function, self._threads)

    def rows_of(self, stream: Stream) -> Iterator[Row]:
        """The rows of a stream; processes, if there are any, read those of a table."""
        if self._pool is None or not isinstance(stream, Table) or stream.size == ENDLESS:
            return rows_of(stream)
        return self.in_order(iter(range(stream.size)), functools.partial(row_at, stream))
