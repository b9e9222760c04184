"""Memory that two processes of one machine share, through which the arrays of their messages go.

Problem: a socket copies arrays into memory that the kernel takes for each message, and out of it again. For 64 KiB that
takes several times as long as one copy.
Method: the process that connects makes an area without a name (memfd_create(2)) and sends its descriptor with its first message.
Each direction has half of it, in two banks. The arrays of a message lie in one piece; its header, which comes through the socket
like all others, says where. The receiver copies them, or uses them where they are; it counts for each bank what it needs no more.
The sender begins a bank from the start where all of it is free, so that a worker that waits for its pushes uses the same bytes,
which are in the cache, again and again. Two banks, because a push is acknowledged before it is applied. What does not fit goes
through the socket.
An area belongs to one connection and ends with it. Nothing in it is looked at without a header, so what a killed process has half
written there is never read.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import platform
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sporax.ps.protocol.wire import Frame, WireError, total_bytes

UNIT_BYTES = 64  # a line of the cache; places are counted in these
BANK_BYTES = 256 << 10  # a few messages on their way; more would not stay in the cache
_HALF_BYTES = 2 * BANK_BYTES
_COUNTS_BYTES = 4096
_TOTAL_BYTES = _COUNTS_BYTES + 2 * _HALF_BYTES
_LEAST_BYTES = 4 << 10  # below, the socket is as quick
_COUNTS_APART = 16  # words: counts that two processes write lie in lines of their own
# Counts must not be seen before the reads that came before them, which these processors see to by themselves.
_IS_ORDERED = platform.machine() in ("x86_64", "AMD64")


class SharedArea:
    """One side of an area.

    Args:
        memory: all of it.
        is_maker: whether this process has made it.
    """

    def __init__(self, memory: mmap.mmap, *, is_maker: bool) -> None:
        view = memoryview(memory)
        counts = view[:_COUNTS_BYTES].cast("Q")
        halves = view[_COUNTS_BYTES : _COUNTS_BYTES + _HALF_BYTES], view[_COUNTS_BYTES + _HALF_BYTES :]
        self._out, self._in = halves if is_maker else halves[::-1]
        self._lendable = np.frombuffer(self._in, np.uint8)
        sent, taken = (0, _COUNTS_APART) if is_maker else (_COUNTS_APART, 0)
        self._freed, self._frees = counts[sent : sent + 2], counts[taken : taken + 2]
        # Messages put into each bank. The maker's are as if one filled each, which is taken when the other process has the area.
        self._sent = [1, 1] if is_maker else [0, 0]
        self._bank, self._end = 1, _HALF_BYTES
        if not is_maker:
            self._frees[0] = self._frees[1] = 1
        self._in_use: dict[int, weakref.ref[Any]] = {}
        self._releases = tuple(_releaser(self._frees, bank, self._in_use) for bank in range(2))

    @classmethod
    def make(cls) -> tuple[SharedArea, int] | None:
        """A new area and its descriptor, which the caller sends and closes; None where the system has no such memory."""
        if not (_IS_ORDERED and hasattr(os, "memfd_create")):
            return None
        descriptor = -1
        try:
            descriptor = os.memfd_create("sporax-ps", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            # Pages that are there already, and a size that does not change, cannot fail later.
            os.posix_fallocate(descriptor, 0, _TOTAL_BYTES)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            return cls(mmap.mmap(descriptor, _TOTAL_BYTES), is_maker=True), descriptor
        except OSError:
            if descriptor >= 0:
                os.close(descriptor)
            return None

    @classmethod
    def of(cls, descriptor: int) -> SharedArea | None:
        """The area that another process has sent; None where it is none. The descriptor is closed."""
        try:
            # One that could become smaller would end this process.
            is_sealed = bool(fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK)
            if is_sealed and os.fstat(descriptor).st_size == _TOTAL_BYTES:
                return cls(mmap.mmap(descriptor, _TOTAL_BYTES), is_maker=False)
        except OSError:
            pass
        finally:
            os.close(descriptor)
        return None

    def put(self, frames: Sequence[Frame]) -> tuple[int, int] | None:
        """Copy the arrays of the next message into the area; gives their place and bytes, None where the socket takes them."""
        sent, freed, is_one = self._sent, self._freed, len(frames) == 1
        num_bytes = len(frames[0]) if is_one else total_bytes(frames)
        if freed[0] == sent[0]:
            bank = start = 0
        elif freed[1] == sent[1]:
            bank, start = 1, BANK_BYTES
        else:
            bank, start = self._bank, self._end
        if num_bytes < _LEAST_BYTES or start + num_bytes > (bank + 1) * BANK_BYTES:
            return None
        out, end = self._out, start + num_bytes
        if is_one:
            out[start:end] = frames[0]
        else:
            begin = start
            for frame in frames:
                out[begin : begin + len(frame)] = frame
                begin += len(frame)
        self._bank, self._end = bank, -(-end // UNIT_BYTES) * UNIT_BYTES
        sent[bank] += 1
        return start // UNIT_BYTES, num_bytes

    def take(self, place: int, target: memoryview) -> None:
        """Copy the arrays of a message out of the area.

        Raises:
            WireError: there is no such place.
        """
        start = self._start(place, len(target))
        target[:] = self._in[start : start + len(target)]
        self._frees[start // BANK_BYTES] += 1

    def lend(self, place: int, num_bytes: int) -> memoryview:
        """The arrays of a message where they are: free again when nothing refers to them any more.

        Raises:
            WireError: there is no such place.
        """
        start = self._start(place, num_bytes)
        # An array, as views of a view do not keep that one alive, but the array below it.
        array = self._lendable[start : start + num_bytes]
        reference = weakref.ref(array, self._releases[start // BANK_BYTES])
        self._in_use[id(reference)] = reference
        return array.data

    @staticmethod
    def _start(place: int, num_bytes: int) -> int:
        start = place * UNIT_BYTES
        if start % BANK_BYTES + num_bytes > BANK_BYTES or start >= _HALF_BYTES:
            raise WireError(
                f"For 'sporax.ps', shared arrays must lie in one bank, but got {num_bytes} bytes from {start} on."
            )
        return start


def _releaser(frees: memoryview, bank: int, in_use: dict[int, weakref.ref[Any]]) -> Callable[[weakref.ref[Any]], None]:
    """What is called when an array of a bank is gone; it does not refer to the area, which ends without the garbage collector."""

    def release(reference: weakref.ref[Any]) -> None:
        del in_use[id(reference)]
        frees[bank] += 1

    return release
