"""How the devices of a job (or of one pipeline stage) are arranged: a grid with named axes.

Ranks fill the grid row by row: in the matrix (2, 4), rank 5 has the coordinates (1, 1). Collectives run between ranks
that differ only along some axes, and tensors are sharded along axes (`sporax.ir.layout`). An axis can be *refined* into
several smaller ones without moving any rank; this brings two arrangements onto a common one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from sporax.base.errors import SporaxValueError
from sporax.base.lazy_members import dataclass

INTERLEAVED = "interleaved_parallel"
"""Name of the virtual axis: it divides the work inside every device and counts no devices. The computing of one part overlaps
with the communication of the other."""
INTERLEAVED_SIZE = 2


@dataclass(frozen=True, slots=True)
class DeviceMatrix:
    """A grid of devices. Hashable; equal when shape, names and ranks are.

    Args:
        shape: devices along each axis, outermost first.
        names: one name per axis, or () when no one needs names. An axis `INTERLEAVED` must be the last.
        ranks: the ranks in row-major order; 0, 1, 2, … by default.

    Raises:
        SporaxValueError: a size below 1, names that do not fit, or ranks that are not one per device and distinct.

    Example:
        >>> mesh = DeviceMatrix((2, 4), ("dp", "mp"))
        >>> mesh.coordinates(5)
        (1, 1)
        >>> mesh.groups((0,))
        ((0, 4), (1, 5), (2, 6), (3, 7))
    """

    shape: tuple[int, ...]
    names: tuple[str, ...] = ()
    ranks: range | tuple[int, ...] = ()

    def __post_init__(self) -> None:
        _check_shape(self.shape)
        _check_names(self.shape, self.names)
        ranks = self.ranks if len(self.ranks) else range(self.num_devices)
        if len(ranks) != self.num_devices or (
            # Thousands of ranks are checked by their range in the common case.
            not _counts_up(ranks) and (len(set(ranks)) != len(ranks) or min(ranks) < 0)
        ):
            raise SporaxValueError(
                f"For 'DeviceMatrix', 'ranks' must be {self.num_devices} distinct numbers >= 0, one per device of the matrix "
                f"{self.shape}, but got {list(ranks)}."
            )
        # Frozen: the only way to normalize a field.
        object.__setattr__(self, "ranks", _compact(ranks))

    @property
    def rank_list(self) -> tuple[int, ...]:
        """The ranks one by one."""
        return tuple(self.ranks)

    def __str__(self) -> str:
        axes = ", ".join(
            f"{name}={size}" if name else str(size)
            for name, size in itertools.zip_longest(self.names, self.shape, fillvalue="")
        )
        ranks = "" if self.ranks == range(self.num_devices) else f" on ranks {list(self.ranks)}"
        return f"[{axes}]{ranks}"

    @property
    def interleaved(self) -> bool:
        """Whether the last axis is the virtual one."""
        return bool(self.names) and self.names[-1] == INTERLEAVED

    @property
    def num_axes(self) -> int:
        """Number of axes, the virtual one included."""
        return len(self.shape)

    @property
    def device_axes(self) -> tuple[int, ...]:
        """The axes that count devices: all but the virtual one."""
        return tuple(range(self.num_axes - self.interleaved))

    @property
    def device_shape(self) -> tuple[int, ...]:
        """Sizes of the axes that count devices."""
        return self.shape[:-1] if self.interleaved else self.shape

    @property
    def num_devices(self) -> int:
        """Number of devices."""
        return math.prod(self.device_shape)

    def axis(self, name: str) -> int:
        """Position of the axis called `name`.

        Raises:
            SporaxValueError: no axis has that name.
        """
        if name not in self.names:
            raise SporaxValueError(f"For 'DeviceMatrix', the axis must be one of {self.names}, but got '{name}'.")
        return self.names.index(name)

    def axis_name(self, axis: int) -> str:
        """What messages call the axis at a position."""
        return self.names[axis] if self.names else f"axis {axis}"

    def coordinates(self, rank: int) -> tuple[int, ...]:
        """Where `rank` is, one number per axis that counts devices.

        Raises:
            SporaxValueError: the rank is not in the matrix.
        """
        if rank not in self.ranks:
            raise SporaxValueError(f"For 'DeviceMatrix', the rank must be one of {list(self.ranks)}, but got {rank}.")
        return unravel(self.ranks.index(rank), self.device_shape)

    def groups(self, axes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """The groups of ranks that differ only along `axes`, each in row-major order of those axes as listed.

        The groups come in the row-major order of the other axes. With no axes every rank is a group of its own.
        """
        others = [axis for axis in self.device_axes if axis not in axes]
        ranks = [self.ranks[position] for position in transposed(self.device_shape, [*others, *axes])]
        size = math.prod(self.shape[axis] for axis in axes)
        return tuple(tuple(ranks[start : start + size]) for start in range(0, len(ranks), size))

    def refined(self, axis: int, factors: tuple[int, ...]) -> DeviceMatrix:
        """The same ranks with one axis written as several, outermost first.

        Raises:
            SporaxValueError: the factors do not multiply to the size of the axis, or the axis is the virtual one.
        """
        if math.prod(factors) != self.shape[axis] or axis not in self.device_axes:
            raise SporaxValueError(
                f"For 'DeviceMatrix', the factors must multiply to {self.shape[axis]}, the size of {self.axis_name(axis)}, "
                f"which must count devices, but got {factors}."
            )
        names = self.names and (
            *self.names[:axis],
            *_refined_names(self.names[axis], len(factors)),
            *self.names[axis + 1 :],
        )
        return DeviceMatrix((*self.shape[:axis], *factors, *self.shape[axis + 1 :]), names, self.ranks)


def ravel(coordinates: Sequence[int], shape: Sequence[int]) -> int:
    """Row-major number of `coordinates` in a grid of `shape`; 0 for a grid without axes."""
    position = 0
    for coordinate, size in zip(coordinates, shape, strict=True):
        # Row-major order: the position is a mixed-radix number with the outermost axis first.
        position = position * size + coordinate
    return position


def transposed(shape: Sequence[int], order: Sequence[int]) -> list[int]:
    """0, 1, 2, … as a grid of `shape`, its axes in another order, row by row."""
    numbers = [0]
    for axis in order:
        stride = math.prod(shape[axis + 1 :])
        numbers = [number + step * stride for number in numbers for step in range(shape[axis])]
    return numbers


def unravel(position: int, shape: Sequence[int]) -> tuple[int, ...]:
    """Coordinates of a row-major number in a grid of `shape`."""
    coordinates = []
    for size in reversed(shape):
        position, coordinate = divmod(position, size)
        coordinates.append(coordinate)
    return tuple(reversed(coordinates))


def common_shape(first: Sequence[int], second: Sequence[int]) -> tuple[int, ...] | None:
    """The coarsest grid that refines both, or None when there is none. Axes of size 1 are left out.

    Row-major grids are chains of strides that divide one another; the common grid has the strides of both, and exists
    when these divide one another in turn: (6,) and (2, 3) have (2, 3); (2, 3) and (3, 2) have none.
    """
    if math.prod(first) != math.prod(second):
        return None
    strides = sorted({1, *_strides(first), *_strides(second)}, reverse=True)
    pairs = list(itertools.pairwise(strides))
    if any(outer % inner for outer, inner in pairs):
        return None
    return tuple(outer // inner for outer, inner in pairs)


def _strides(shape: Sequence[int]) -> list[int]:
    """For each axis, how many ranks one block of it and everything inside it spans."""
    return [math.prod(shape[axis:]) for axis in range(len(shape))]


def _counts_up(ranks: Sequence[int]) -> bool:
    """Whether they are 0, 1, 2, …, however many, as a range."""
    return isinstance(ranks, range) and ranks.start == 0 and ranks.step == 1


def _compact(ranks: range | tuple[int, ...]) -> range | tuple[int, ...]:
    """Consecutive ranks as a `range`, so that equal ranks are equal values whichever way they were written."""
    if _counts_up(ranks):
        return ranks
    start = ranks[0] if len(ranks) else 0
    # A list of consecutive numbers is stored as a range, which compares and hashes by its ends.
    consecutive = range(start, start + len(ranks))
    return consecutive if list(ranks) == list(consecutive) else tuple(ranks)


def _refined_names(name: str, count: int) -> tuple[str, ...]:
    return (name,) if count == 1 else tuple(f"{name}_{index}" for index in range(count))


def _check_shape(shape: tuple[int, ...]) -> None:
    if any(size < 1 for size in shape):
        raise SporaxValueError(f"For 'DeviceMatrix', every size in 'shape' must be >= 1, but got {shape}.")


def _check_names(shape: tuple[int, ...], names: tuple[str, ...]) -> None:
    if not names:
        return
    if len(names) != len(shape) or len(set(names)) != len(names) or "" in names:
        raise SporaxValueError(
            f"For 'DeviceMatrix', 'names' must be one distinct name for each of the {len(shape)} axes, but got {names}."
        )
    if INTERLEAVED in names[:-1]:
        raise SporaxValueError(f"For 'DeviceMatrix', the axis '{INTERLEAVED}' must be the last, but got {names}.")
    if names[-1] == INTERLEAVED and shape[-1] != INTERLEAVED_SIZE:
        raise SporaxValueError(
            f"For 'DeviceMatrix', the axis '{INTERLEAVED}' must have size {INTERLEAVED_SIZE}, but got {shape[-1]}."
        )
