"""Arrays in files, read and written in blocks: where ``offload_param="disk"`` and ``offload_checkpoint="disk"`` keep values.

Problem. A step waits for what it reads from a disk, and must not fail in its middle when the disk is full.

Method. All files have their whole size before the first step, so a full disk is an error before anything runs. Blocks of one
array are read and written at the same time, as many as the queue takes; the next array is read while the present one is used
(`FiledArray.prefetch`), and a write returns as soon as the values are copied. A file loses its name when it is made: the
system removes it with the process, however that ends.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from threading import Lock
from typing import Any

import numpy as np

from sporax.base.errors import SporaxRuntimeError
from sporax.base.made_later import dataclass

_BLOCK_BYTES = 8 << 20
"""A block where nothing else is said: above it disks are not faster."""
# One thread serves one request; MindSpore's default queue depth, 1024, must not start as many threads.
_MOST_THREADS = 16
_WHERE = "set_offload_context"


@dataclass(frozen=True, slots=True)
class DiskSettings:
    """How values are kept in files.

    Attributes:
        folder: where; it is made where need be.
        limit_bytes: of all files together; 0 for all there is.
        block_bytes: of one request; 0 for a default.
        queue_depth: how many requests run at the same time.
        asynchronous: False reads and writes block by block, and waits.
    """

    folder: str
    limit_bytes: int = 0
    block_bytes: int = 0
    queue_depth: int = 1024
    asynchronous: bool = True


class BlockFiles:
    """The files of one folder.

    Attributes:
        settings: how they are kept.
        num_bytes: of all of them.
    """

    def __init__(self, settings: DiskSettings) -> None:
        self.settings = settings
        self.num_bytes = 0
        self.block_bytes = settings.block_bytes or _BLOCK_BYTES
        # A folder that is created here is removed at the end; one of the user's stays.
        there = os.path.isdir(settings.folder)
        try:
            os.makedirs(settings.folder, exist_ok=True)
        except OSError as error:
            raise SporaxRuntimeError(
                f"For '{_WHERE}', 'offload_path' must be a folder that can be made, but '{settings.folder}' cannot: {error}."
            ) from error
        threads = min(settings.queue_depth, _MOST_THREADS) if settings.asynchronous else 0
        self.blocks = ThreadPoolExecutor(threads, "offload-blocks") if threads else None
        # One thread for all arrays keeps their reads and writes in the order in which they were requested.
        self.arrays = ThreadPoolExecutor(1, "offload-arrays") if threads else None
        if not there:
            weakref.finalize(self, _remove_empty, settings.folder)

    def new(self, name: str, shape: tuple[int, ...], dtype: Any) -> FiledArray:
        """Room for an array.

        Raises:
            SporaxRuntimeError: the limit is reached, or the disk is full.
        """
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        limit = self.settings.limit_bytes
        if limit and self.num_bytes + size > limit:
            raise SporaxRuntimeError(
                f"For '{_WHERE}', 'offload_disk_size' is {limit} bytes, but {self.num_bytes + size} bytes are needed on disk "
                f"with '{name}'."
            )
        # The descriptor keeps the file usable, and the system frees it with the process, even after a crash.
        file, path = tempfile.mkstemp(prefix="offload-", dir=self.settings.folder)
        os.unlink(path)
        try:
            _reserve(file, size)
        except OSError as error:
            os.close(file)
            # Other errors, such as missing permissions, explain themselves better than a message about room.
            if error.errno not in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
                raise
            raise SporaxRuntimeError(
                f"For '{_WHERE}', 'offload_path' must have room for {size} bytes of '{name}', but '{self.settings.folder}' is "
                f"full: {shutil.disk_usage(self.settings.folder).free} bytes are free."
            ) from error
        self.num_bytes += size
        return FiledArray(self, file, name, shape, np.dtype(dtype))

    def in_blocks(self, job: Callable[[int, int], None], num_bytes: int) -> None:
        """Run `job` of offset and size for all blocks of a file."""
        offsets = range(0, num_bytes, self.block_bytes)
        sizes = [min(self.block_bytes, num_bytes - offset) for offset in offsets]
        # Going through the results waits for all blocks and raises the first error of one.
        for _ in map(job, offsets, sizes) if self.blocks is None else self.blocks.map(job, offsets, sizes):
            pass


class FiledArray:
    """One array in a file of its own. Reads and writes may come from several threads, as callbacks of a program do.

    Attributes:
        name: for people.
        shape, dtype: of the array.
    """

    def __init__(self, files: BlockFiles, file: int, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._files, self._file = files, file
        self.name, self.shape, self.dtype = name, shape, dtype
        self.num_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        self._lock = Lock()
        self._written: Future[None] | None = None
        self._ahead: Future[np.ndarray[Any, Any]] | None = None
        weakref.finalize(self, os.close, file)

    def write(self, array: Any) -> None:
        """Keep these values; returns before they are on disk where the settings allow it."""
        # The caller may reuse or donate its buffer while a thread still writes.
        values = np.array(array, dtype=self.dtype, order="C", copy=True)
        with self._lock:
            # This raises the error of the write before, and keeps one copy of the values in memory at most.
            self._settle()
            self._ahead = None  # read from the old values
            if self._files.arrays is None:
                self._write(values)
            else:
                self._written = self._files.arrays.submit(self._write, values)

    def read(self) -> np.ndarray[Any, Any]:
        """The values."""
        with self._lock:
            ahead, self._ahead = self._ahead, None
            if ahead is None:
                self._settle()
                return self._read()
        return ahead.result()

    def prefetch(self) -> None:
        """Begin to read what the next `read` wants. One thread does all writes and this, so it comes after earlier writes."""
        with self._lock:
            if self._files.arrays is not None and self._ahead is None:
                self._ahead = self._files.arrays.submit(self._read)

    def _settle(self) -> None:
        """Wait for the end of what is written."""
        written, self._written = self._written, None
        if written is not None:
            written.result()

    def _write(self, values: np.ndarray[Any, Any]) -> None:
        # Bytes, since bfloat16 arrays offer no buffer of their own dtype.
        memory = memoryview(values.reshape(-1).view(np.uint8).data)

        def write_block(offset: int, size: int) -> None:
            # The system may write less than it is given.
            done = 0
            while done < size:
                done += os.pwrite(self._file, memory[offset + done : offset + size], offset + done)

        self._files.in_blocks(write_block, self.num_bytes)

    def _read(self) -> np.ndarray[Any, Any]:
        values = np.empty(self.num_bytes, np.uint8)
        memory = memoryview(values.data)

        def read_block(offset: int, size: int) -> None:
            done = 0
            # The system may return less than is asked, but nothing only at the end of the file.
            while done < size:
                count = os.preadv(self._file, [memory[offset + done : offset + size]], offset + done)
                if not count:
                    raise SporaxRuntimeError(f"For '{self.name}', its file ends after {offset + done} bytes.")
                done += count

        self._files.in_blocks(read_block, self.num_bytes)
        return values.view(self.dtype).reshape(self.shape)


def _reserve(descriptor: int, num_bytes: int) -> None:
    """Give a file its whole size, so that writing to it cannot find the disk full."""
    if not num_bytes:
        return
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, num_bytes)
    else:  # macOS
        # A sparse file: macOS cannot reserve blocks, so its disk may still fill up later.
        os.ftruncate(descriptor, num_bytes)


def _remove_empty(folder: str) -> None:
    with suppress(OSError):
        os.rmdir(folder)
