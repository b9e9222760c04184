"""CRC-32 of what is written: computed by a thread while the file takes the bytes, and put together from pieces.

Reading memory for a checksum costs about as much as giving it to the file; next to each other they cost one of the two. The
CRC-32 of a concatenation is that of the first piece, moved on by the length of the second, plus that of the second. Moving on
is a multiplication by a power of x modulo the polynomial of the code (as zlib's ``crc32_combine``, in a bit-reversed field).
"""

from __future__ import annotations

import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import BinaryIO

_POLYNOMIAL = 0xEDB88320  # of CRC-32, lowest power in the highest bit
# The polynomial 1 in the bit-reversed notation of CRC-32.
_ONE = 1 << 31
_IN_THREAD_BYTES = 1 << 18  # below this, a thread takes longer to be told than to compute


class CheckedWriter:
    """Writes pieces to a file and gives their CRC-32.

    Args:
        file: open for writing.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="crc32")

    def __enter__(self) -> CheckedWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.shutdown()

    def write(self, piece: bytes | memoryview) -> int:
        """Write a piece; returns its CRC-32."""
        if len(piece) < _IN_THREAD_BYTES:
            self._file.write(piece)
            return zlib.crc32(piece)
        # The file takes the bytes meanwhile.
        checksum = self._thread.submit(zlib.crc32, piece)
        self._file.write(piece)
        return checksum.result()


def combined_crc(first: int, second: int, second_bytes: int) -> int:
    """CRC-32 of two pieces one after the other, from the CRC-32 of each.

    Args:
        first, second: the checksums.
        second_bytes: length of the second piece.
    """
    return _product(_power(second_bytes), first) ^ second


# Few lengths occur, and each costs a chain of products.
@cache
def _power(num_bytes: int) -> int:
    """x to the number of bits of so many bytes."""
    result, bits, position = _ONE, num_bytes * 8, 0
    while bits:
        # Square and multiply.
        if bits & 1:
            result = _product(_squares(position), result)
        bits >>= 1
        position += 1
    return result


@cache
def _squares(times: int) -> int:
    """x, squared so many times."""
    # x itself; each further one is the square of the one before.
    return _ONE >> 1 if times == 0 else _product(_squares(times - 1), _squares(times - 1))


def _product(first: int, second: int) -> int:
    """Product of two polynomials modulo that of the code."""
    # As a multiplication by hand: one bit of the first factor after another.
    product, bit = 0, _ONE
    while bit:
        if first & bit:
            product ^= second
        second = second >> 1 ^ (_POLYNOMIAL if second & 1 else 0)
        bit >>= 1
    return product
