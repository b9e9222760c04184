"""`DatasetCache`: the rows of a source, or of a `map`, kept in memory and on disk for the next epochs.

Problem: reading and decoding the same files each epoch costs more than the rows do. Method: the rows that a source or a `map`
has made are kept under their number in the store, below the sampler, so that each epoch samples and shuffles again
from rows that are read once. Rows go into memory up to the limit, then to a file of this process, or nowhere. MindSpore keeps
them in a server that processes of a machine share; here each process keeps the rows that it reads.
"""

from __future__ import annotations

import dataclasses
import os
import pickle
import tempfile
import threading
import warnings
import weakref
from collections.abc import Hashable, Sequence
from typing import IO, Any

import numpy as np

from sporax.base.errors import For, SporaxRuntimeError
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._checks import INT32_MAX
from sporax.mindspore.dataset._rows import Block, Row, block_of, row_of
from sporax.mindspore.dataset._streams import Indices, Table

_MEGABYTE = 2**20
_OF_ALL_MEMORY = 0.8
"""The share of a machine's memory that a cache without a limit may fill: that of MindSpore's server."""
_LOCAL = ("127.0.0.1", "localhost")
UINT32_MAX = 2**32 - 1
UINT64_MAX = 2**64 - 1


@dataclasses.dataclass(frozen=True, slots=True)
class CacheStatistics:
    """What a cache holds.

    Attributes:
        avg_cache_sz: bytes of a row, on average.
        num_mem_cached: rows in memory.
        num_disk_cached: rows on disk.
    """

    avg_cache_sz: int
    num_mem_cached: int
    num_disk_cached: int


class DatasetCache:
    """Keeps rows of the one pipeline that it is given to, as the argument `cache` of a source or of `map`.

    Args:
        session_id: a number of your own, at least 1. There is no server, so nothing is shared under it.
        size: megabytes (2**20 bytes) of memory; 0 for up to 80 % of the machine's.
        spilling: whether rows beyond that go to a temporary file (in `TMPDIR`); otherwise they are read again each epoch.
        hostname: of the server: this machine.
        port: of the server, in [1025, 65535]; warns that it has no effect.
        num_connections: to the server; warns that it has no effect.
        prefetch_size: of the server's queue; warns that it has no effect.

    Raises:
        SporaxTypeError, SporaxValueError: an argument is not valid.
        SporaxRuntimeError: another machine; (when read) the cache is in use for another pipeline.
    """

    def __init__(
        self, session_id: int, size: int = 0, spilling: bool = False, hostname: str | None = None,
        port: int | None = None, num_connections: int | None = None, prefetch_size: int | None = None,
    ) -> None:  # fmt: skip
        where = "DatasetCache"
        self.session_id = check.integer(where, "session_id", session_id, 1, UINT32_MAX)
        self.size = check.integer(where, "size", size, 0, UINT64_MAX)
        self.spilling = check.boolean(where, "spilling", spilling)
        self.hostname = None if hostname is None else check.text(where, "hostname", hostname)
        self.port = None if port is None else check.integer(where, "port", port, 1025, 65535)
        counts = {"num_connections": num_connections, "prefetch_size": prefetch_size}
        for name, count in counts.items():
            if count is not None:
                check.integer(where, name, count, 1, INT32_MAX)
        self.num_connections, self.prefetch_size = num_connections, prefetch_size
        if self.hostname not in (None, *_LOCAL):
            raise SporaxRuntimeError(f"For '{where}', 'hostname' must be this machine, but got {hostname!r}.")
        for name, value in {"port": port, **counts}.items():
            if value is not None:
                warnings.warn(f"For '{where}', {name}={value} has no effect: rows are kept in this process.")
        machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self._limit_bytes = self.size * _MEGABYTE or int(_OF_ALL_MEMORY * machine_bytes)
        self._forget()

    def _forget(self) -> None:
        self._tree: Hashable = None
        self._rows: dict[int, Row] = {}
        self._spilled: dict[int, tuple[int, int]] = {}
        self._file: IO[bytes] | None = None
        self._memory_bytes = self._file_bytes = 0
        self._making: set[int] = set()
        self._lock = threading.Condition()

    def __getstate__(self) -> dict[str, Any]:
        names = "session_id size spilling hostname port num_connections prefetch_size _limit_bytes"
        return {name: vars(self)[name] for name in names.split()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._forget()

    def get_stat(self) -> CacheStatistics:
        """How many rows are kept, and how large they are.

        Raises:
            SporaxRuntimeError: no pipeline with this cache was read yet.
        """
        if self._tree is None:
            raise For("DatasetCache").state_error("'get_stat' needs a cache in use, but no row was read through it yet")
        with self._lock:
            count = len(self._rows) + len(self._spilled)
            average = (self._memory_bytes + self._file_bytes) // count if count else 0
            return CacheStatistics(average, len(self._rows), len(self._spilled))

    def claim(self, tree: Hashable) -> None:
        """Take this cache for the steps that `tree` stands for.

        Raises:
            SporaxRuntimeError: it keeps rows of other ones.
        """
        with self._lock:
            if self._tree is not None and self._tree != tree:
                raise SporaxRuntimeError(
                    "For 'DatasetCache', a cache keeps the rows of one pipeline, but got another one; make a cache for each."
                )
            self._tree = tree

    def get(self, index: int) -> Row | None:
        """A copy of the row with this number, or None."""
        row = self._rows.get(index)
        if row is not None:
            return {name: value.copy() for name, value in row.items()}
        place = self._spilled.get(index)
        if place is None or self._file is None:
            return None
        offset, size = place
        return pickle.loads(os.pread(self._file.fileno(), size, offset))

    def put(self, index: int, row: Row) -> None:
        """Keep a row, if there is room for it.

        Raises:
            SporaxRuntimeError: the disk is full.
        """
        size = sum(len(pickle.dumps(value)) if value.dtype == object else value.nbytes for value in row.values())
        with self._lock:
            if index in self._rows or index in self._spilled:
                return
            if self._memory_bytes + size <= self._limit_bytes:
                self._rows[index] = {name: value.copy() for name, value in row.items()}
                self._memory_bytes += size
            elif self.spilling:
                self._spill(index, row)

    def begin(self, indices: Sequence[int]) -> list[int]:
        """Of rows that are not kept, those that this thread is to make; others are being made by other threads."""
        with self._lock:
            known = (self._rows, self._spilled, self._making)
            mine = [index for index in indices if not any(index in some for some in known)]
            self._making.update(mine)
            return mine

    def finish(self, indices: Sequence[int]) -> None:
        """The rows that `begin` gave are made, or failed."""
        with self._lock:
            self._making.difference_update(indices)
            self._lock.notify_all()

    def wait(self, indices: Sequence[int]) -> None:
        """Until no other thread makes these rows."""
        with self._lock:
            self._lock.wait_for(lambda: self._making.isdisjoint(indices))

    def _spill(self, index: int, row: Row) -> None:
        content = pickle.dumps(row, pickle.HIGHEST_PROTOCOL)
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="sporax-cache-")  # noqa: SIM115  # closed with the cache
            weakref.finalize(self, self._file.close)
        try:
            os.pwrite(self._file.fileno(), content, self._file_bytes)
        except OSError as error:
            raise SporaxRuntimeError(
                f"For 'DatasetCache', a row cannot be written to {tempfile.gettempdir()!r}: {error}; set TMPDIR to a larger "
                "disk, or 'spilling' to False."
            ) from error
        self._spilled[index] = self._file_bytes, len(content)
        self._file_bytes += len(content)


class CachedTable(Table):
    """A table whose rows are made once, as far as the cache keeps them.

    Args:
        parent: makes the rows.
        cache: keeps them under their numbers.
    """

    def __init__(self, parent: Table, cache: DatasetCache) -> None:
        self._parent = parent
        self._cache = cache
        self.size = parent.size

    def gather(self, indices: Indices) -> Block:
        numbers = [int(index) for index in indices]
        rows = {number: self._cache.get(number) for number in set(numbers)}
        missing = [number for number, row in rows.items() if row is None]
        mine = self._cache.begin(missing)
        try:
            self._make(mine, rows)
        finally:
            self._cache.finish(mine)
        # No row waits for this thread any more, so that threads never wait for each other.
        others = [number for number in missing if rows[number] is None]
        if others:
            self._cache.wait(others)
            rows |= {number: self._cache.get(number) for number in others}
            self._make([number for number in others if rows[number] is None], rows)
        first: dict[int, Row] = {}
        values = []
        for number in numbers:
            row = rows[number]
            assert row is not None
            # A row that is drawn twice comes as two copies, which may be changed one by one.
            values.append({name: value.copy() for name, value in row.items()} if number in first else row)
            first.setdefault(number, row)
        return block_of(values)

    def _make(self, numbers: list[int], rows: dict[int, Row | None]) -> None:
        """Add the rows `numbers` of the table to `rows`, and keep them."""
        if numbers:
            block = self._parent.gather(np.array(numbers))
            for place, number in enumerate(numbers):
                row = rows[number] = row_of(block, place)
                self._cache.put(number, row)

    def origin(self, index: int) -> str:
        return self._parent.origin(index)


def check_cache(where: str, cache: Any) -> DatasetCache | None:
    """The argument `cache`."""
    if cache is None:
        return None
    check.instance(where, "cache", cache, DatasetCache)
    check.independent(where, "Dataset Cache")
    return cache


def fingerprint(value: Any) -> Hashable:
    """Something that is equal for equal values: their bytes where they have some, else the value itself."""
    try:
        return pickle.dumps(value)
    except Exception:  # each object says in its own way that it cannot be written
        return Same(value)


@dataclasses.dataclass(frozen=True, eq=False)
class Same:
    """Equal where it holds the very same object."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value

    def __hash__(self) -> int:
        return hash(type(self.value))
