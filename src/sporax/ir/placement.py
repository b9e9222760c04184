"""The sharding of a tensor inside the planner and the lowering.

A `Layout` is what users write and read: a device matrix of its own and shardings over it. Inside one plan all tensors
are on one *mesh* (a `DeviceMatrix`, usually with axes of prime sizes). So a `Placement` leaves the matrix out, and adds
what a Layout cannot say: the ranks along some axes hold partial sums (or partial maxima, …) that still have to be
reduced. Such a tensor is called partial.

    Placement(((0,), ()))                    rows sharded by axis 0, columns whole; ranks along other axes hold copies
    Placement(((), (1,)), partial=(0,))      columns sharded by axis 1; the sum over axis 0 is the value
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import field
from functools import lru_cache

from sporax.base.errors import For, SporaxValueError
from sporax.base.lazy_members import dataclass
from sporax.ir.device_matrix import DeviceMatrix, ravel
from sporax.ir.layout import Layout

Axes = tuple[int, ...]
"""Positions of mesh axes."""

REDUCTIONS = ("sum", "max", "min", "prod", "and", "or", "xor")
"""The ways parts can make up a value."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The sharding of one tensor on a mesh. Hashable.

    Attributes:
        dims: per tensor dimension the mesh axes that shard it, outermost first.
        partial: the mesh axes along which ranks hold parts of the values, in ascending order.
        reduction: how the parts make up the value (one of `REDUCTIONS`); "" when `partial` is empty.

    Raises:
        SporaxValueError: an axis is used twice, or the reduction is unknown.

    Example:
        >>> print(Placement(((0,), (2, 1)), partial=(3,)))
        [0, 2·1] + sum over 3
    """

    dims: tuple[Axes, ...]
    partial: Axes = ()
    reduction: str = ""
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Normalized, so that equal placements are equal values however they were written.
        object.__setattr__(self, "partial", tuple(sorted(self.partial)))
        object.__setattr__(self, "reduction", (self.reduction or "sum") if self.partial else "")
        object.__setattr__(self, "_hash", hash((self.dims, self.partial)))  # of numbers alone: other processes agree
        used = [*itertools.chain(*self.dims), *self.partial]
        if len(set(used)) != len(used):
            raise SporaxValueError(f"For 'Placement', every axis must be used once at most, but got {self}.")
        if self.partial and self.reduction not in REDUCTIONS:
            raise For("Placement").error(f"'reduction' must be one of {REDUCTIONS}", f"'{self.reduction}'")

    def __hash__(self) -> int:
        return self._hash  # searches look placements up a million times

    def __str__(self) -> str:
        return self._text([str(axis) for axis in range(1 + max([*itertools.chain(*self.dims), *self.partial, -1]))])

    def on(self, mesh: DeviceMatrix) -> str:
        """The placement with the mesh's own axis names, for people."""
        return self._text([mesh.axis_name(axis) for axis in range(mesh.num_axes)])

    def _text(self, names: Sequence[str]) -> str:
        dims = ", ".join("·".join(names[axis] for axis in axes) or "-" for axes in self.dims)
        parts = f" + {self.reduction} over {'·'.join(names[axis] for axis in self.partial)}" if self.partial else ""
        return f"[{dims}]{parts}"

    @classmethod
    def replicated(cls, num_dims: int) -> Placement:
        """Every rank holds the whole tensor of `num_dims` dimensions."""
        return cls(((),) * num_dims)

    @classmethod
    def from_layout(cls, layout: Layout, mesh: DeviceMatrix) -> Placement:
        """The same slices in terms of `mesh`.

        Raises:
            SporaxValueError: `mesh` does not refine the layout's matrix, is on other ranks, or the layout divides
                a device (interleaved).
        """
        if layout.device_matrix.interleaved:
            raise SporaxValueError(f"For 'Placement', the layout must not be interleaved, but got {layout}.")
        if layout.device_matrix.ranks != mesh.ranks:
            raise For("Placement").error(f"the layout must stand on the ranks of the mesh {mesh}", layout)
        # The mesh has prime axes, so a layout's axes become runs of them.
        return cls(layout.on_shape(mesh.shape).shardings)

    def to_layout(self, mesh: DeviceMatrix) -> Layout:
        """The shardings as a Layout on `mesh`.

        Raises:
            SporaxValueError: the tensor is partial, which a Layout cannot say.
        """
        if self.partial:
            raise SporaxValueError(f"For 'Placement', a Layout must be of a complete tensor, but got {self.on(mesh)}.")
        return Layout(mesh, self.dims)

    @property
    def used(self) -> frozenset[int]:
        """The axes that shard the tensor or along which it is partial; along all others it is repeated."""
        return frozenset(itertools.chain(*self.dims, self.partial))

    @property
    def is_replicated(self) -> bool:
        """Whether every rank holds the whole, complete tensor."""
        return not self.used

    def complete(self) -> Placement:
        """The same sharding after the parts have been added up."""
        return placed(self.dims) if self.partial else self

    def opened(self, free: Collection[int], other: Placement | None) -> Placement:
        """The same sharding, and along the free dimensions that of another placement, as far as the axes are not in use."""
        if not free or other is None:
            return self
        own = frozenset(itertools.chain(*(axes for dim, axes in enumerate(self.dims) if dim not in free)))
        # After an axis that is in use, inner ones would divide other parts of the dimension.
        taken = [tuple(itertools.takewhile(lambda axis: axis not in own, axes)) for axes in other.dims]
        return placed(tuple(taken[dim] if dim in free else axes for dim, axes in enumerate(self.dims)))

    def parts(self, mesh: DeviceMatrix) -> tuple[int, ...]:
        """Number of slices of each dimension."""
        return tuple(num_parts(mesh, axes) for axes in self.dims)

    def fits(self, shape: Sequence[int], mesh: DeviceMatrix) -> bool:
        """Whether a tensor of `shape` has that many dimensions and each can be sharded evenly."""
        return len(shape) == len(self.dims) and all(
            size % parts == 0 for size, parts in zip(shape, self.parts(mesh), strict=True)
        )

    def local_shape(self, shape: Sequence[int], mesh: DeviceMatrix) -> tuple[int, ...]:
        """Shape of what one rank holds of a tensor of `shape`.

        Raises:
            SporaxValueError: a dimension cannot be sharded evenly.
        """
        if not self.fits(shape, mesh):
            raise SporaxValueError(
                f"For 'Placement', every dimension of the shape {tuple(shape)} must be divisible by its number of slices, "
                f"but got {self.on(mesh)}, which makes {self.parts(mesh)}."
            )
        return tuple(size // parts for size, parts in zip(shape, self.parts(mesh), strict=True))

    def block(self, shape: Sequence[int], mesh: DeviceMatrix, rank: int) -> tuple[slice, ...]:
        """The part of a tensor of `shape` that `rank` holds, as slices to index with."""
        sizes = self.local_shape(shape, mesh)
        starts = (axes_index(mesh, axes, rank) * size for axes, size in zip(self.dims, sizes, strict=True))
        return tuple(slice(start, start + size) for start, size in zip(starts, sizes, strict=True))

    def copies(self, mesh: DeviceMatrix, ranks: Sequence[int]) -> int:
        """How often these ranks together hold each slice.

        Raises:
            SporaxValueError: some slices less often than others.
        """
        axes = tuple(self.used)
        counts = Counter(axes_index(mesh, axes, rank) for rank in ranks)
        if len(counts) < num_parts(mesh, axes) or len(set(counts.values())) > 1:
            raise SporaxValueError(
                f"For 'AllReduce', the group must hold each slice of a tensor equally often, but ranks like {list(ranks)} hold "
                f"{len(counts)} of the {num_parts(mesh, axes)} slices of {self.on(mesh)} on the mesh {mesh}."
            )
        return counts[0]


@lru_cache(maxsize=1 << 16)
def placed(dims: tuple[Axes, ...], partial: Axes = (), reduction: str = "") -> Placement:
    """The `Placement` of these fields, remembered: those that are requested again and again are one object, quick to compare."""
    return Placement(dims, partial, reduction)


def num_parts(mesh: DeviceMatrix, axes: Axes) -> int:
    """Number of ranks along `axes` together."""
    parts, shape = 1, mesh.shape
    # A loop and no `math.prod` over a generator, which takes twice as long: searches call it a hundred thousand times.
    for axis in axes:
        parts *= shape[axis]
    return parts


def axes_index(mesh: DeviceMatrix, axes: Axes, rank: int) -> int:
    """Where `rank` is along `axes`, as one row-major number (the first axis counts the largest steps)."""
    coordinates = mesh.coordinates(rank)
    return ravel([coordinates[axis] for axis in axes], [mesh.shape[axis] for axis in axes])


def prime_mesh(matrix: DeviceMatrix) -> DeviceMatrix:
    """The same ranks on a matrix whose axes all have prime sizes, so that every sharding by a divisor is a run of axes.

    Example:
        >>> prime_mesh(DeviceMatrix((4, 6))).shape
        (2, 2, 2, 3)
    """
    primes = tuple(prime for size in matrix.device_shape for prime in _primes(size))
    return DeviceMatrix(primes, (), matrix.ranks)


def _primes(number: int) -> list[int]:
    factors: list[int] = []
    divisor = 2
    while number > 1:
        while number % divisor == 0:
            factors.append(divisor)
            number //= divisor
        divisor += 1
    return factors
