"""The safetensors format: a JSON header (name -> dtype, shape, place), then the bytes, each tensor with its CRC-32.

By hand rather than with the safetensors library, whose writer takes a path (atomic writing needs an open file) and whose
errors do not name the tensor; the tests hold both against each other.

Reading memory for a checksum costs about as much as giving it to the file, so a thread computes it meanwhile (`CheckedWriter`);
next to each other they cost one of the two. The CRC-32 of a concatenation is that of the first piece, moved on by the length of
the second, plus that of the second (`combined_crc`). Moving on is a multiplication by a power of x modulo the polynomial of the
code (as zlib's ``crc32_combine``, in a bit-reversed field).
"""

from __future__ import annotations

import json
import reprlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np

from sporax.runtime.storage.entries import (
    CheckpointEntry,
    CorruptCheckpointError,
    StoredTensor,
    array_from,
    check_names,
    check_shape,
)

_POLYNOMIAL = 0xEDB88320  # of CRC-32, lowest power in the highest bit
# The polynomial 1 in the bit-reversed notation of CRC-32.
_ONE = 1 << 31
_IN_THREAD_BYTES = 1 << 18  # below this, a thread takes longer to be started than to compute


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


NAMES: dict[np.dtype[Any], str] = {
    np.dtype(np.bool_): "BOOL",
    **{np.dtype(f"int{bits}"): f"I{bits}" for bits in (8, 16, 32, 64)},
    **{np.dtype(f"uint{bits}"): f"U{bits}" for bits in (8, 16, 32, 64)},
    **{np.dtype(f"float{bits}"): f"F{bits}" for bits in (16, 32, 64)},
    np.dtype(ml_dtypes.bfloat16): "BF16",
    np.dtype(np.complex64): "C64",
}
_DTYPES = {name: dtype for dtype, name in NAMES.items()}
# The format aligns its header to 8 bytes.
_ALIGNMENT = 8
# As in the safetensors library.
_MAX_HEADER_BYTES = 100_000_000
_LARGEST_CRC = 2**32 - 1  # has the most digits


def write_stream(
    file: BinaryIO,
    specs: Sequence[StoredTensor],
    values: Callable[[StoredTensor], np.ndarray[Any, Any]],
    metadata: Callable[[Mapping[str, int]], Mapping[str, str]],
) -> None:
    """Write arrays as they are made, wide types first, so that each begins at a multiple of its element's size.

    The header is written twice: the checksums in it are known when the values have been written.

    Args:
        file: open for writing, at its beginning.
        values: gives the values of each; called in the file's order.
        metadata: further entries of ``__metadata__``, from the CRC-32 of each array's bytes.
    """
    ordered = sorted(specs, key=lambda spec: (-spec.dtype.itemsize if spec.dtype else 0, spec.name))
    # Room for the longest checksums, so that the second header has the size of the first.
    longest = dict.fromkeys((spec.name for spec in specs), _LARGEST_CRC)
    head = _head(ordered, metadata(longest), _LARGEST_CRC)
    file.write(head)
    checksums: dict[str, int] = {}
    sizes: dict[str, int] = {}
    with CheckedWriter(file) as writer:
        for spec in ordered:
            content = content_of(values(spec))
            checksums[spec.name], sizes[spec.name] = writer.write(content), len(content)
    checksum = 0
    # In the order of names, as MindSpore computes its checksum.
    for name in sorted(checksums):
        checksum = combined_crc(zlib.crc32(name.encode(), checksum), checksums[name], sizes[name])
    end = file.tell()
    # The header is overwritten in place.
    file.seek(0)
    file.write(_head(ordered, metadata(checksums), checksum, len(head)))
    file.seek(end)


def _head(specs: Sequence[StoredTensor], metadata: Mapping[str, str], checksum: int, size: int = 0) -> bytes:
    """The header, padded to a size or to the next multiple of the alignment."""
    header: dict[str, Any] = {"__metadata__": {"format": "ms", **metadata, "crc_num": str(checksum)}}
    place = 0
    for spec in specs:
        assert spec.dtype is not None, spec.name
        end = place + spec.num_bytes
        header[spec.name] = {"dtype": NAMES[spec.dtype], "shape": list(spec.shape), "data_offsets": [place, end]}
        place = end
    text = json.dumps(header, separators=(",", ":")).encode()
    # Filled up with spaces, which JSON ignores.
    length = size - 8 if size else len(text) + -len(text) % _ALIGNMENT
    return length.to_bytes(8, "little") + text.ljust(length)


def content_of(array: np.ndarray[Any, Any]) -> memoryview:
    """The bytes of an array; those of a contiguous one are not copied."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint8).data if flat.size else memoryview(b"")


def _checksum(entries: list[CheckpointEntry]) -> int:
    """CRC-32 over names and values, by name: what MindSpore writes as ``crc_num``."""
    checksum = 0
    for entry in sorted(entries, key=lambda entry: entry.name):
        checksum = zlib.crc32(content_of(entry.array), zlib.crc32(entry.name.encode(), checksum))
    return checksum


def read(content: memoryview) -> tuple[list[CheckpointEntry], dict[str, str]]:
    """Entries by name, and the metadata; arrays are views of `content`.

    Raises:
        CorruptCheckpointError: the header is broken, or does not fit the file, and names the parameter where there is one; the
            values do not have the checksum of the header.
    """
    entries, metadata = parsed(content)
    check_sum(entries, metadata)
    return entries, metadata


def parsed(content: memoryview) -> tuple[list[CheckpointEntry], dict[str, str]]:
    """As `read`, without a look at the values."""
    entries, metadata = tensors(content)
    # MindSpore marks dtypes of its own this way.
    packed = next((entry.name for entry in entries if entry.name in metadata), None)
    if packed is not None:
        raise CorruptCheckpointError(f"parameter '{packed}' has dtype {metadata[packed]}, which cannot be loaded here")
    return sorted(entries, key=lambda entry: entry.name), metadata


def check_sum(entries: list[CheckpointEntry], metadata: Mapping[str, str]) -> None:
    """Compare the checksum, where the file has one.

    Raises:
        CorruptCheckpointError: the values have another one.
    """
    if "crc_num" in metadata and (checksum := _checksum(entries)) != _number(metadata["crc_num"]):
        raise CorruptCheckpointError(
            f"the file says its CRC-32 is {metadata['crc_num']}, but the content has {checksum}"
        )


def tensors(content: memoryview) -> tuple[list[CheckpointEntry], dict[str, str]]:
    """As `parsed`, in the order of the file, and with the arrays that stand for dtypes of MindSpore's own.

    Raises:
        CorruptCheckpointError: as `read`, but for the checksum.
    """
    header, metadata, start = _header(content)
    positions = {name: _place(name, facts) for name, facts in header.items()}
    entries = [_entry(name, facts, positions[name], content[start:]) for name, facts in header.items()]
    _check_positions(positions, len(content) - start)
    return entries, metadata


def _number(text: Any) -> int | None:
    return int(text) if isinstance(text, str) and text.isdecimal() else None


def _header(content: memoryview) -> tuple[dict[str, Any], dict[str, str], int]:
    """What the file says of its tensors, its metadata, and where values begin."""
    # Eight bytes of length and "{}" at least.
    if len(content) < 10:
        raise CorruptCheckpointError(f"it has {len(content)} bytes, too few for a header")
    size = int.from_bytes(content[:8], "little")
    # Bounded before it is read: a broken length may be any number.
    if not 2 <= size <= min(len(content) - 8, _MAX_HEADER_BYTES):
        raise CorruptCheckpointError(f"the header must have between 2 and {len(content) - 8} bytes, but has {size}")
    try:
        header = json.loads(bytes(content[8 : 8 + size]), object_pairs_hook=_table, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise CorruptCheckpointError(f"the header is no JSON: {error}") from None
    if not isinstance(header, dict):
        raise CorruptCheckpointError("the header is no table of tensors")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict):
        raise CorruptCheckpointError("the metadata are no table")
    return header, metadata, 8 + size


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, in which every name is once."""
    check_names(name for name, _ in pairs)
    return dict(pairs)


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no number of JSON")


def _place(name: str, facts: Any) -> tuple[int, int]:
    """First byte of a parameter's values, and the one behind the last."""
    offsets = facts.get("data_offsets") if isinstance(facts, dict) else None
    # bool would pass `isinstance`.
    if not isinstance(offsets, list) or len(offsets) != 2 or any(type(offset) is not int for offset in offsets):
        raise CorruptCheckpointError(
            f"the header's entry for parameter '{name}' is broken: 'data_offsets' must be two whole numbers in "
            f"{reprlib.repr(facts)}"
        )
    begin, end = offsets
    if not 0 <= begin <= end:
        raise CorruptCheckpointError(f"parameter '{name}' cannot lie between bytes {begin} and {end}")
    return begin, end


def _check_positions(positions: dict[str, tuple[int, int]], size: int) -> None:
    """Every byte of the values belongs to one parameter, so that a file cannot claim more memory than it has bytes."""
    expected = 0
    # In the order of their places, so that gaps and overlaps are found.
    for name, (begin, end) in sorted(positions.items(), key=lambda item: item[1]):
        if begin != expected:
            problem = "overlaps another one" if begin < expected else "leaves a gap before it"
            raise CorruptCheckpointError(
                f"parameter '{name}' {problem}: it begins at byte {begin} of the values, and not at {expected}"
            )
        expected = end
    if expected != size:
        raise CorruptCheckpointError(f"the parameters have {expected} bytes, but the file has {size} bytes of values")


def _entry(name: str, facts: Any, place: tuple[int, int], data: memoryview) -> CheckpointEntry:
    dtype: Any = facts.get("dtype")
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise CorruptCheckpointError(
            f"the header's entry for parameter '{name}' is broken: 'dtype' must be one of {sorted(_DTYPES)}, but it is "
            f"{reprlib.repr(dtype)}"
        )
    shape = check_shape(name, facts.get("shape"))
    if place[1] > len(data):
        raise CorruptCheckpointError(
            f"parameter '{name}' ends at byte {place[1]} of the values, but there are only {len(data)}: the file is truncated"
        )
    return CheckpointEntry(name, array_from(name, data[slice(*place)], shape, _DTYPES[dtype], dtype))
