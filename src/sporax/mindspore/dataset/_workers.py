"""Worker processes that leave nothing behind, however their user ends.

Problem: grain's workers pass rows in named shared memory. A name stays when no one is left to remove it: rows that the user
still holds at the end of the program, rows in the queue of an iterator that was not closed, and, after a kill, workers that
wait for ever for a reader that is gone, so that Python's resource tracker, which waits for them, never cleans up.

Method: a name is removed as soon as its row has arrived; the memory lives on as long as an array uses it. Open readers are
closed before the program ends. A worker ends when its user's process has gone (`_pools.end_with_user`), and the resource
tracker removes the names of the rows that were on their way.
"""

from __future__ import annotations

import atexit
import weakref
from typing import Protocol

import grain
import numpy as np

from sporax.mindspore.dataset._rows import Row


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
    array: np.ndarray = value.view(np.ndarray)
    return array
