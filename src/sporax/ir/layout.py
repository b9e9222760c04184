"""Which slice of a tensor each rank holds, in MindSpore's two notations.

A `Strategy` has the numbers of slices per dimension, one tuple for each tensor of an operator: ``((2, 4), (4, 2))``.

A `Layout` gives for every dimension of a tensor the axes of a device matrix that shard it. The example of this file: 8
ranks as (dp, sp, mp) = (2, 2, 2), an 8 x 8 tensor, rows sharded by mp, columns by sp and then by dp:

    rows by (mp,)        slice index of dim 0 = mp                 2 slices of 4 rows
    columns by (sp, dp)  slice index of dim 1 = 2 * sp + dp        4 slices of 2 columns

    rank 0 = (0, 0, 0)   rows 0-3, columns 0-1          rank 2 = (0, 1, 0)   rows 0-3, columns 4-5
    rank 1 = (0, 0, 1)   rows 4-7, columns 0-1          rank 4 = (1, 0, 0)   rows 0-3, columns 2-3

The axis listed first is the outermost. Other axes are repetitions: ranks that differ only along them hold the same
slice and form a *redundancy group*.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from sporax.base.errors import For, SporaxRuntimeError, SporaxValueError
from sporax.base.lazy_members import dataclass
from sporax.ir.device_matrix import DeviceMatrix, common_shape, ravel, unravel


@dataclass(frozen=True, slots=True)
class Strategy:
    """Numbers of slices per dimension, for every tensor input (or output) of an operator. Hashable.

    Attributes:
        counts: one tuple per tensor, with one number per dimension.

    Example:
        >>> Strategy(((2, 4), (4, 2))).check("MatMul", ((64, 32), (32, 16)), num_devices=16)
        >>> Strategy(((3, 1),)).check("ReLU", ((8, 8),), num_devices=8)
        Traceback (most recent call last):
        sporax.base.errors.SporaxRuntimeError: For 'ReLU', the number of slices of dimension 0 of tensor 0 must …
    """

    counts: tuple[tuple[int, ...], ...]

    def __str__(self) -> str:
        return str(self.counts)

    def check(self, operator: str, shapes: Sequence[tuple[int, ...]], num_devices: int) -> None:
        """Check what holds for every operator; the operator's own rule comes on top.

        Args:
            num_devices: devices of one pipeline stage.

        Raises:
            SporaxRuntimeError: another number of tensors or dimensions, a sharding below 1, one that is no power of 2 on
                2^n devices, one that does not divide its dimension, or a tensor sharded into more slices than devices divide.
        """
        if len(self.counts) != len(shapes):
            raise SporaxRuntimeError(
                f"For '{operator}', the strategy must have one tuple for each of the {len(shapes)} tensors, but got {self}."
            )
        for number, (counts, shape) in enumerate(zip(self.counts, shapes, strict=True)):
            check_slice_counts(operator, number, counts, shape, num_devices)


def check_slice_counts(
    operator: str, tensor: int, counts: Sequence[int], shape: tuple[int, ...], num_devices: int
) -> None:
    """Check the numbers of slices of one tensor.

    Args:
        counts: one number per dimension.
        num_devices: devices of one pipeline stage.

    Raises:
        SporaxRuntimeError: as `Strategy.check`.
    """
    if len(counts) != len(shape):
        raise For(operator).state_error(
            f"the strategy of tensor {tensor} must have {len(shape)} numbers for its shape {shape}", counts
        )
    for dim, (slices, size) in enumerate(zip(counts, shape, strict=True)):
        where = f"For '{operator}', the number of slices of dimension {dim} of tensor {tensor}"
        if slices < 1:
            raise SporaxRuntimeError(f"{where} must be >= 1, but got {slices} in {counts}.")
        # MindSpore's condition: on 2^n devices each axis has a power of two.
        if num_devices.bit_count() == 1 and slices.bit_count() != 1:
            raise SporaxRuntimeError(
                f"{where} must be a power of 2 on {num_devices} devices, but got {slices} in {counts}."
            )
        if size % slices:
            raise SporaxRuntimeError(
                f"For '{operator}', dimension {dim} of tensor {tensor} has size {size}, which must be divisible by its slices, "
                f"but got {slices} in {counts}."
            )
    # Devices that are left repeat the computation, so their number must be whole.
    if num_devices % math.prod(counts):
        raise For(operator).state_error(
            f"the slices of tensor {tensor} must divide the {num_devices} devices, but {counts} makes {math.prod(counts)}"
        )


def strategy_text(counts: Sequence[object]) -> str:
    """Tuples of numbers and Layouts as messages show them."""
    return f"({', '.join(map(str, counts))}{',' if len(counts) == 1 else ''})"


TensorMap = tuple[int | tuple[int, ...], ...]
"""MindSpore's notation of shardings: per dimension the number of an axis counted from the right, -1 for none, or a tuple."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How a tensor is sharded over a device matrix. Hashable.

    Attributes:
        device_matrix: the devices.
        shardings: per tensor dimension the positions of the axes that shard it, outermost first; () for a whole dimension.

    Raises:
        SporaxValueError: an axis that does not exist, is used twice, or (the virtual one) is not innermost.

    Example:
        >>> layout = Layout(DeviceMatrix((2, 2, 2), ("dp", "sp", "mp")), ((2,), (1, 0)))
        >>> layout.slice_of(2, (8, 8))
        (slice(0, 4, None), slice(4, 6, None))
        >>> print(layout)
        (mp, sp·dp) on [dp=2, sp=2, mp=2]
    """

    device_matrix: DeviceMatrix
    shardings: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        used = [axis for axes in self.shardings for axis in axes]
        if any(axis not in range(self.device_matrix.num_axes) for axis in used) or len(set(used)) != len(used):
            raise SporaxValueError(
                f"For 'Layout', every axis of the matrix {self.device_matrix} may shard one dimension, but got {self.shardings}."
            )
        if self.device_matrix.interleaved:
            # A device computes its slice at once, so the parts inside of it have no order: the virtual axis is the innermost.
            virtual = self.device_matrix.num_axes - 1
            ordered = tuple(tuple(sorted(axes, key=virtual.__eq__)) for axes in self.shardings)
            object.__setattr__(self, "shardings", ordered)

    def __str__(self) -> str:
        dims = ["·".join(self.device_matrix.axis_name(axis) for axis in axes) or "None" for axes in self.shardings]
        return f"({', '.join(dims)}{',' if len(dims) == 1 else ''}) on {self.device_matrix}"

    @classmethod
    def from_tensor_map(cls, device_matrix: DeviceMatrix, tensor_map: TensorMap) -> Layout:
        """A layout from MindSpore's tensor map: axes counted from the right, -1 for a whole dimension."""
        # Axis numbers of a tensor map count from the right, those of a Layout from the left.
        last = device_matrix.num_axes - 1
        dims = (entry if isinstance(entry, tuple) else (entry,) for entry in tensor_map)
        return cls(device_matrix, tuple(tuple(last - number for number in dim if number != -1) for dim in dims))

    @classmethod
    def from_split(cls, split: Sequence[int], num_devices: int, *, ranks: range | tuple[int, ...] = ()) -> Layout:
        """The layout of a tensor sharded into `split` slices per dimension by one axis each.

        Devices that are left over repeat the computation, along an extra axis at the right of the matrix.

        Raises:
            SporaxValueError: the number of slices does not divide the number of devices.
        """
        used = math.prod(split)
        if used < 1 or num_devices % used:
            raise For("Layout").error(
                f"the number of slices must divide the {num_devices} devices, but got {tuple(split)}, which makes {used}"
            )
        repeats = (num_devices // used,) if used != num_devices else ()
        shardings = tuple((dim,) if slices > 1 else () for dim, slices in enumerate(split))
        return cls(DeviceMatrix((*split, *repeats), (), ranks or range(num_devices)), shardings)

    @property
    def tensor_map(self) -> TensorMap:
        """MindSpore's tensor map: a number per dimension, or a tuple where several axes shard it."""
        last = self.device_matrix.num_axes - 1
        dims = (tuple(last - axis for axis in axes) for axes in self.shardings)
        return tuple(dim if len(dim) > 1 else dim[0] if dim else -1 for dim in dims)

    @property
    def split(self) -> tuple[int, ...]:
        """Number of slices of each dimension that are on different devices."""
        return tuple(
            math.prod(self.device_matrix.shape[axis] for axis in self._device_axes(axes)) for axes in self.shardings
        )

    @property
    def is_replicated(self) -> bool:
        """Whether every rank holds the whole tensor."""
        return all(slices == 1 for slices in self.split)

    def slice_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Shape of what one rank holds of a tensor of `shape`.

        Raises:
            SporaxValueError: another number of dimensions, or a dimension that cannot be sharded evenly.
        """
        if len(shape) != len(self.shardings):
            raise SporaxValueError(
                f"For 'Layout', the tensor must have {len(self.shardings)} dimensions, as {self} says, but got {tuple(shape)}."
            )
        for dim, (size, axes) in enumerate(zip(shape, self.shardings, strict=True)):
            # The virtual axis shards inside a device, and must divide the dimension all the same.
            slices = math.prod(self.device_matrix.shape[axis] for axis in axes)
            if size % slices:
                raise SporaxValueError(
                    f"For 'Layout', dimension {dim} of a tensor of shape {tuple(shape)} must be divisible by its "
                    f"{slices} slices ({self}), but {size} is not."
                )
        return tuple(size // slices for size, slices in zip(shape, self.split, strict=True))

    def slice_index(self, rank: int) -> tuple[int, ...]:
        """Which slice of each dimension `rank` holds."""
        return self._index_at(self.device_matrix.coordinates(rank))

    def slice_of(self, rank: int, shape: Sequence[int]) -> tuple[slice, ...]:
        """The part of a tensor of `shape` that `rank` holds, as slices to index with.

        Raises:
            SporaxValueError: as `slice_shape`.
        """
        sizes = self.slice_shape(shape)
        starts = (index * size for index, size in zip(self.slice_index(rank), sizes, strict=True))
        return tuple(slice(start, start + size) for start, size in zip(starts, sizes, strict=True))

    def holders(self) -> dict[tuple[int, ...], tuple[int, ...]]:
        """For every slice index the ranks that hold this slice, in the order of the matrix."""
        ranks_of: dict[tuple[int, ...], list[int]] = {}
        for position, rank in enumerate(self.device_matrix.ranks):
            index = self._index_at(unravel(position, self.device_matrix.device_shape))
            ranks_of.setdefault(index, []).append(rank)
        return {index: tuple(ranks) for index, ranks in ranks_of.items()}

    def refined(self, axis: int, factors: tuple[int, ...]) -> Layout:
        """The same slices, with one axis of the matrix written as several."""
        # Axes to the right of the refined one move.
        shift = len(factors) - 1

        def rewrite(axes: tuple[int, ...]) -> tuple[int, ...]:
            new: list[int] = []
            for other_axis in axes:
                new += (
                    range(axis, axis + len(factors))
                    if other_axis == axis
                    else [other_axis + shift if other_axis > axis else other_axis]
                )
            return tuple(new)

        return Layout(self.device_matrix.refined(axis, factors), tuple(map(rewrite, self.shardings)))

    def on_shape(self, shape: tuple[int, ...]) -> Layout:
        """The same slices on a matrix of `shape`, which must refine this one's.

        Raises:
            SporaxValueError: `shape` does not refine the matrix, or the layout uses the virtual axis.
        """
        if common_shape(self.device_matrix.shape, shape) != tuple(size for size in shape if size > 1):
            raise SporaxValueError(f"For 'Layout', {shape} must refine the matrix {self.device_matrix}, but does not.")
        sizes = [size for size in shape if size > 1]
        layout = self
        axis = 0
        for old in self.device_matrix.shape:
            # Axes are refined from the left, so each one takes the next sizes of `shape`.
            factors: list[int] = []
            while math.prod(factors) < old:
                factors.append(sizes.pop(0))
            layout = layout.refined(axis, tuple(factors))
            axis += len(factors)
        return layout

    def _index_at(self, coordinates: tuple[int, ...]) -> tuple[int, ...]:
        shape = self.device_matrix.shape
        used = [self._device_axes(axes) for axes in self.shardings]
        return tuple(ravel([coordinates[axis] for axis in axes], [shape[axis] for axis in axes]) for axes in used)

    def _device_axes(self, axes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(axis for axis in axes if axis in self.device_matrix.device_axes)


@runtime_checkable
class HasLayout(Protocol):
    """What may be where a sharding is requested: MindSpore's Layout, called with a tensor map."""

    def __layout__(self) -> Layout:
        """The sharding as a value."""
