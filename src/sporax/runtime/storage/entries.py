"""What a file of tensors holds, whatever its format: named arrays and strings, checked; and blocks of arrays."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from sporax.base.lazy_members import dataclass

MAX_DIMS = 32
"""More dimensions than any array here can have."""
_MAX_DIM = 1 << 48  # more is no size but garbage, which numpy would stumble over


Shape = tuple[int, ...]


class CorruptCheckpointError(Exception):
    """What is wrong with a file; becomes a SporaxValueError that names the file."""


@dataclass(frozen=True, slots=True)
class CheckpointEntry:
    """One thing in a checkpoint.

    Attributes:
        name: of the Parameter, or the key of an appended value.
        value: array on the host, or a string.
    """

    name: str
    value: np.ndarray[Any, Any] | str

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """The value of an entry of a format without strings."""
        assert isinstance(self.value, np.ndarray)
        return self.value


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """What a file says of a tensor.

    Attributes:
        name: of the Parameter.
        shape: of the array in this file.
        dtype: of its elements; None for a string.
    """

    name: str
    shape: Shape
    dtype: np.dtype[Any] | None

    @property
    def num_bytes(self) -> int:
        """Of its values; 0 for a string."""
        return 0 if self.dtype is None else self.dtype.itemsize * math.prod(self.shape)

    @staticmethod
    def of(name: str, value: np.ndarray[Any, Any] | str) -> StoredTensor:
        """What a file says of an array or string."""
        return (
            StoredTensor(name, (0,), None) if isinstance(value, str) else StoredTensor(name, value.shape, value.dtype)
        )


def check_shape(name: str, shape: Any) -> tuple[int, ...]:
    """The shape that a file gives a parameter, if arrays have such shapes.

    Raises:
        CorruptCheckpointError: it is no list of whole numbers in range, or has too many dimensions.
    """
    # A broken file may hold anything here; bool is an int in Python.
    if not isinstance(shape, list | tuple) or any(type(size) is not int for size in shape[: MAX_DIMS + 1]):
        raise CorruptCheckpointError(
            f"parameter '{name}' must have a list of whole numbers as shape, but has {reprlib.repr(shape)}"
        )
    if len(shape) > MAX_DIMS:
        raise CorruptCheckpointError(
            f"parameter '{name}' must have at most {MAX_DIMS} dimensions, but has {len(shape)}"
        )
    if any(not 0 <= size <= _MAX_DIM for size in shape):
        raise CorruptCheckpointError(
            f"parameter '{name}' must have dimensions from 0 to {_MAX_DIM}, but has {reprlib.repr(shape)}"
        )
    return tuple(shape)


def check_names(names: Iterable[str]) -> None:
    """Refuse names that occur twice: one parameter would silently take the place of the other."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise CorruptCheckpointError(f"parameter '{name}' is there twice")
        seen.add(name)


def array_from(
    name: str, data: memoryview, shape: tuple[int, ...], dtype: np.dtype[Any], kind: str
) -> np.ndarray[Any, Any]:
    """Array of a file's bytes, without copying them; `kind` is what the file calls the dtype.

    Raises:
        CorruptCheckpointError: their number does not fit shape and dtype.
    """
    check_shape(name, shape)
    expected = math.prod(shape) * dtype.itemsize
    if len(data) != expected:
        raise CorruptCheckpointError(
            f"parameter '{name}' of shape {shape} and dtype {kind} must have {expected} bytes, but has {len(data)}"
        )
    # A view: large files are mapped, not read.
    return np.frombuffer(data, dtype).reshape(shape)


Region = tuple[slice, ...]
"""A block of an array: first index and end in each dimension."""


def full_region(shape: Sequence[int]) -> Region:
    """The block that is everything."""
    return tuple(slice(0, size) for size in shape)


def region_shape(region: Region) -> Shape:
    """Shape of a block."""
    return tuple(part.stop - part.start for part in region)


def volume(region: Region) -> int:
    """Number of elements of a block."""
    return math.prod(region_shape(region))


def overlap(left: Region, right: Region) -> Region | None:
    """What two blocks share; None where they share nothing."""
    both = tuple(slice(max(a.start, b.start), min(a.stop, b.stop)) for a, b in zip(left, right, strict=True))
    # Blocks that only touch share nothing.
    return both if all(part.start < part.stop for part in both) else None


def within(region: Region, outer: Region) -> Region:
    """`region` counted from the beginning of `outer`."""
    return tuple(slice(own.start - base.start, own.stop - base.start) for own, base in zip(region, outer, strict=True))
