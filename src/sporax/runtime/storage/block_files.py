"""Arrays in files, read and written in blocks: where ``offload_param="disk"`` and ``offload_checkpoint="disk"`` keep values.

Problem. A step waits for what it reads from a disk, and must not fail in its middle when the disk is full.

Method. All files have their whole size before the first step, so a full disk is an error before anything runs. Blocks of one
array are read and written at the same time, as many as the queue takes; the next array is read while the present one is used
(`FiledArray.prefetch`), and a write returns as soon as the values are copied. A file loses its name when it is made: the
system removes it with the process, however that ends.

Parameters and state that are in files between steps (``offload_param="disk"``).

Such a Parameter has no array of its own; its attribute ``filed`` says where the values are. A step takes and returns a number
in its place (`lowering.passes.host.file_values`), which connects it with the step before. Reading ``raw`` reads the file; what
is assigned to it goes to the file when the next step begins.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from threading import Lock
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For, SporaxRuntimeError
from sporax.base.lazy_members import dataclass
from sporax.runtime.session import SESSION
from sporax.runtime.state import frames
from sporax.runtime.storage.host_memory import chosen_variables
from sporax.runtime.storage.variables import Fetched, InMemory

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
            raise For(_WHERE).state_error(
                f"'offload_disk_size' is {limit} bytes, but {self.num_bytes + size} bytes are needed on disk with '{name}'"
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
            # The system may return less than is requested, but nothing only at the end of the file.
            while done < size:
                count = os.preadv(self._file, [memory[offset + done : offset + size]], offset + done)
                For(self.name).refuse_state(not count, f"its file ends after {offset + done} bytes")
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


_FILES = "files "
_ABOVE = re.compile(r"files above (\d+)")


@dataclass(slots=True, eq=False)
class Place:
    """Where a variable is.

    Attributes:
        array: its file.
        token: of the last write; the file has the values when it is there.
    """

    array: FiledArray
    token: jax.Array

    def full(self) -> jax.Array:
        """The values, in memory."""
        # The token comes from the program that wrote the file, so the file is complete when it is ready.
        self.token.block_until_ready()
        return jnp.asarray(self.array.read())


def files_tag(settings: DiskSettings) -> str:
    """The tag of steps that keep values in files."""
    return _FILES + json.dumps(asdict(settings), sort_keys=True)


def above_tag(above: int) -> str:
    """The tag of steps that send variables to files until the rest needs no more than so many bytes."""
    return f"files above {above}"


def files_of(tags: Collection[str]) -> BlockFiles | None:
    """The files that a step uses; None where it uses none."""
    texts = [tag.removeprefix(_FILES) for tag in tags if tag.startswith(_FILES + "{")]
    if not texts:
        return None
    # Steps with the same settings share one folder, so that its limit counts all of them.
    if texts[0] not in SESSION.files:
        SESSION.files[texts[0]] = BlockFiles(DiskSettings(**json.loads(texts[0])))
    files: BlockFiles = SESSION.files[texts[0]]
    return files


def bring_to_files(variables: Sequence[Any], tags: Collection[str], peak_bytes: Callable[[], int | None]) -> None:
    """Send the variables of a step to files that its settings name.

    Args:
        variables, tags, peak_bytes: as for `host_memory.bring_to_host`.

    Raises:
        SporaxRuntimeError: the disk is full, or the limit of the settings is reached.
    """
    files = files_of(tags)
    limits = [int(match.group(1)) for tag in tags if (match := _ABOVE.fullmatch(tag)) is not None]
    if files is None or not limits:
        return
    # Variables that an earlier step has sent to files stay there.
    present = [variable for variable in variables if place_of(variable) is None]
    for variable in chosen_variables(present, limits[0], peak_bytes):
        array = files.new(variable.name, tuple(variable.raw.shape), variable.raw.dtype)
        variable.filed = Place(array, jnp.zeros((), jnp.int32))
        _flush(variable)


def place_of(variable: Any) -> Place | None:
    """Where the file of a variable is; None for one in memory."""
    return getattr(variable, "filed", None)


def filed_arrays(variables: Sequence[Any]) -> Mapping[int, FiledArray]:
    """The files of variables, by position."""
    return {
        number: place.array for number, variable in enumerate(variables) if (place := place_of(variable)) is not None
    }


@dataclass(frozen=True, slots=True)
class Filed(InMemory):
    """Variables of a step that uses files; for those in files it takes and returns tokens."""

    def fetch(self) -> Fetched:
        """Arrays, and tokens of those in files, which have what was assigned since."""
        return list(map(_taken, self.updated)), list(map(_taken, self.read))

    def store(self, arrays: Sequence[jax.Array]) -> None:
        """Set arrays and tokens."""
        for variable, array in zip(self.updated, arrays, strict=True):
            place = place_of(variable)
            if place is None:
                variable.raw = array
            else:
                place.token = array


def _taken(variable: Any) -> jax.Array:
    place = place_of(variable)
    if place is None:
        array: jax.Array = variable.raw
        return array
    _flush(variable)
    return place.token


def _flush(variable: Any) -> None:
    """Bring what was assigned to a variable to its file."""
    # An array in `raw` was assigned since the last step and replaces what the file has.
    array = frames.slot(variable, "raw")
    if array is not None:
        place = variable.filed
        place.token.block_until_ready()
        place.array.write(np.asarray(array))
        del variable.raw
