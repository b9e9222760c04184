"""Which part of a Parameter a rank holds: arithmetic on the layouts that strategy files store.

A layout arranges the devices of one pipeline stage in a matrix (row-major ranks). The entry of the tensor map for a
dimension names the axes of the matrix, counted from the right, that shard it. A device's slice of that dimension has the
number of its coordinate. In optimizer parallelism the devices with equal coordinates on all those axes share the slice:
dimension 0 is divided again among groups of consecutive ones. A dimension with uneven slices has their sizes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sporax.base.errors import SporaxValueError
from sporax.runtime.storage.entries import Region, Shape

ALL = -1
"""As `SliceLayout.opt_shard_size`: all devices that hold the same slice share it."""


@dataclass(frozen=True, slots=True)
class SliceLayout:
    """How one Parameter is sharded over the devices of a stage.

    Attributes:
        device_matrix: how the devices are arranged.
        tensor_map: for each dimension the axes that shard it, the outermost first; ``()`` for none.
        opt_shard_size: how many devices share a slice in optimizer parallelism; 0 for none, `ALL` for all that hold it.
        opt_shard_step: how far apart their ranks are, as files say it; positions follow from the ranks themselves.
        split_rows: sizes of uneven slices of dimension 0; empty where slices are equal.
        shape: of the whole Parameter, where the file says so.
    """

    device_matrix: Shape
    tensor_map: tuple[tuple[int, ...], ...]
    opt_shard_size: int = 0
    opt_shard_step: int = 0
    split_rows: Shape = ()
    shape: Shape | None = None

    @property
    def num_devices(self) -> int:
        """Devices of the stage."""
        return math.prod(self.device_matrix)

    def full_shape(self, slice_shape: Sequence[int]) -> Shape:
        """Shape of the whole Parameter, from that of one slice."""
        counts = self.counts(len(slice_shape))
        full_shape = [size * count for size, count in zip(slice_shape, counts, strict=True)]
        if self.split_rows and full_shape:
            full_shape[0] = sum(self.split_rows)
        return tuple(full_shape)

    def counts(self, num_dims: int) -> Shape:
        """Number of slices of each dimension, those of optimizer parallelism included."""
        counts = [math.prod(self._size(axis) for axis in axes) for axes in self._axes(num_dims)]
        if counts:
            counts[0] *= self._group_size()
        return tuple(counts)

    def is_full(self, shape: Sequence[int]) -> bool:
        """Whether values of a shape are the whole of the Parameter, as far as the layout knows."""
        is_sharded = len(shape) != len(self.tensor_map) or max(self.counts(len(shape)), default=1) > 1
        return self.shape == tuple(shape) or not is_sharded

    def region(self, device: int, shape: Sequence[int]) -> Region:
        """The block that a device holds.

        Args:
            device: number within the stage.
            shape: of the whole Parameter.

        Raises:
            SporaxValueError: the shape does not fit the layout.
        """
        own = self._coordinates(device)
        blocks: list[slice] = []
        for dim, (axes, size) in enumerate(zip(self._axes(len(shape)), shape, strict=True)):
            # Row-major over the axes: the outermost counts most.
            index, count = 0, 1
            for axis in axes:
                index = index * self._size(axis) + own[self._position(axis)]
                count *= self._size(axis)
            # Uneven slices come from `manual_split`, which optimizer parallelism does not divide again.
            if dim == 0 and self.split_rows:
                blocks.append(self._uneven(index, count, size))
                continue
            # Optimizer parallelism divides dimension 0 only.
            if dim == 0:
                index, count = index * self._group_size() + self._group_position(device), count * self._group_size()
            if size % count:
                raise SporaxValueError(f"dimension {dim} of size {size} has {count} slices, which does not divide it")
            step = size // count
            blocks.append(slice(index * step, (index + 1) * step))
        return tuple(blocks)

    def _uneven(self, index: int, count: int, size: int) -> slice:
        if len(self.split_rows) != count or sum(self.split_rows) != size:
            raise SporaxValueError(
                f"the uneven slices {self.split_rows} must be {count} and add up to {size}, the size of dimension 0"
            )
        first = sum(self.split_rows[:index])
        return slice(first, first + self.split_rows[index])

    def _axes(self, num_dims: int) -> tuple[tuple[int, ...], ...]:
        if len(self.tensor_map) != num_dims:
            raise SporaxValueError(
                f"the tensor map {self.tensor_map} has {len(self.tensor_map)} dimensions, but the values have {num_dims}"
            )
        return self.tensor_map

    def _position(self, axis: int) -> int:
        # Axes are counted from the right, as in MindSpore's tensor maps.
        return len(self.device_matrix) - 1 - axis

    def _size(self, axis: int) -> int:
        return self.device_matrix[self._position(axis)]

    def _coordinates(self, device: int) -> Shape:
        coordinates = []
        # The last axis changes fastest.
        for size in reversed(self.device_matrix):
            device, coordinate = divmod(device, size)
            coordinates.append(coordinate)
        return tuple(reversed(coordinates))

    def _used(self) -> set[int]:
        return {self._position(axis) for axes in self.tensor_map for axis in axes}

    def _group_size(self) -> int:
        """How many devices share one slice."""
        used = self._used()
        # Devices with equal coordinates on all used axes hold the same slice.
        holders = math.prod(size for position, size in enumerate(self.device_matrix) if position not in used)
        # A single holder has no other device to share with.
        if self.opt_shard_size in (0, 1) or holders == 1:
            return 1
        size = holders if self.opt_shard_size == ALL else self.opt_shard_size
        if size < 1 or holders % size:
            raise SporaxValueError(
                f"{self.opt_shard_size} devices cannot share a slice that {holders} devices hold in optimizer parallelism"
            )
        return size

    def _group_position(self, device: int) -> int:
        """Number of the device among those that share its slice."""
        used, own, index = self._used(), self._coordinates(device), 0
        for position, size in enumerate(self.device_matrix):
            if position not in used:
                index = index * size + own[position]
        # Groups are of consecutive holders, so the remainder is the place in the group.
        return index % self._group_size()


def layout_of(entry: dict[str, Any]) -> SliceLayout:
    """The layout that an entry of a strategy file stores.

    Raises:
        SporaxValueError: it stores none.
    """
    try:
        dims = tuple(
            # MindSpore writes -1 for a dimension that is not sharded, and lists where several axes shard one.
            tuple(int(axis) for axis in (dim if isinstance(dim, list) else [dim]) if int(axis) >= 0)
            for dim in entry["tensor_map"]
        )
        shape = tuple(map(int, entry["tensor_shape"])) if "tensor_shape" in entry else None
        layout = SliceLayout(
            tuple(map(int, entry["dev_matrix"])),
            dims,
            int(entry["opt_weight_shard_size"]),
            int(entry["opt_weight_shard_step"]),
            tuple(map(int, entry.get("param_split_shape", ()))),
            shape,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise SporaxValueError(f"a layout must have 'dev_matrix', 'tensor_map' and the like: {error!r}") from None
    # An axis that shards two dimensions would count its devices twice.
    axes = [axis for dim in dims for axis in dim]
    if min(layout.device_matrix, default=0) < 1 or len(set(axes)) != len(axes):
        raise SporaxValueError(f"a device matrix {layout.device_matrix} with the tensor map {dims} is no layout")
    if any(axis >= len(layout.device_matrix) for axis in axes):
        raise SporaxValueError(
            f"the tensor map {dims} names an axis that the device matrix {layout.device_matrix} has not"
        )
    return layout
