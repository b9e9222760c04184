"""How MindRecord files store arrays of int32 and int64: each element with as few bytes as it needs.

A count (4 bytes, the highest first); a code of two bits for each element, four in a byte, the first in the highest bits; and the
elements, the lowest byte first. Code k means 2**k bytes.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Bytes of the leading count.
_COUNT_BYTES = 4
# Elements whose codes share one byte.
_GROUP = 4
# Shifts of the four codes in a byte, first element in the highest bits.
_CODE_SHIFTS = np.array([6, 4, 2, 0], np.uint8)
_LIMITS = np.array([2**7, 2**15, 2**31], np.uint64)
"""Magnitudes (of negative numbers less one) from which on 2, 4 and 8 bytes are needed."""


def pack(values: NDArray[Any]) -> bytes:
    """The stored form of integers."""
    flat = np.ascontiguousarray(values, np.int64).ravel()
    # `x ^ (x >> 63)` is x for x >= 0 and -x - 1 below: the magnitude that two's complement stores.
    codes = np.searchsorted(_LIMITS, (flat ^ (flat >> 63)).astype(np.uint64), side="right").astype(np.uint8)
    # The last group may be incomplete; the format fills it with code 0 and stores no bytes for it.
    padded = np.zeros(-(-flat.size // _GROUP) * _GROUP, np.uint8)
    padded[: flat.size] = codes
    heads = np.bitwise_or.reduce(padded.reshape(-1, _GROUP) << _CODE_SHIFTS, axis=1)
    starts, total = _bit_positions(codes)
    content = np.zeros(total, np.uint8)
    # All eight bytes of each element, lowest first; a code k keeps the first 2**k of them.
    parts = flat.astype("<i8").view(np.uint8).reshape(-1, 8)
    # By code and byte instead of by element: at most 15 vector operations, however many elements.
    for code in range(4):
        chosen = np.flatnonzero(codes == code)
        for byte in range(1 << code):
            content[starts[chosen] + byte] = parts[chosen, byte]
    return struct.pack(">I", flat.size) + heads.tobytes() + content.tobytes()


def unpack(content: bytes, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Integers of a stored form, as an array of one dimension.

    Raises:
        ValueError: the content is truncated.
    """
    if len(content) < _COUNT_BYTES:
        raise ValueError("the number of elements is truncated")
    (count,) = struct.unpack_from(">I", content)
    num_heads = -(-count // _GROUP)
    stored = np.frombuffer(content, np.uint8, offset=_COUNT_BYTES)
    # `[:count]` leaves out the codes that only fill the last group.
    codes = (stored[:num_heads, None] >> _CODE_SHIFTS & 3).ravel()[:count]
    body = stored[num_heads:]
    starts, total = _bit_positions(codes)
    # Checked before any indexing, since the count comes from the file and may be damaged.
    if len(codes) < count or len(body) != total:
        raise ValueError(f"{count} elements must have {total} bytes, but have {len(body)}")
    values = np.empty(count, dtype)
    for code in range(4):
        chosen = np.flatnonzero(codes == code)
        size = 1 << code
        parts = np.ascontiguousarray(body[starts[chosen, None] + np.arange(size)])
        # A signed view extends the sign on the way to the wider dtype.
        values[chosen] = parts.view(f"<i{size}").ravel()
    return values


def _bit_positions(codes: NDArray[np.uint8]) -> tuple[NDArray[np.int64], int]:
    """Where each element begins, and where the last one ends."""
    sizes = 1 << codes.astype(np.int64)
    ends = np.cumsum(sizes)
    return ends - sizes, int(ends[-1]) if len(ends) else 0
