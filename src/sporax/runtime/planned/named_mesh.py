"""Axes of a mesh by their names: what users of JAX write (`PartitionSpec`), and what they get back.

Problem: plans are made on a mesh whose axes have prime sizes, and a search may shard an array over a part of the user's axis,
which no `PartitionSpec` over the user's mesh can say. Method: each named axis is a run of prime axes. The mesh that is given
back keeps an axis whole where every sharding uses all of it or none, and has its prime parts, ``data.0``, ``data.1``, …, where
one does not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, PartitionSpec

from sporax.base.errors import SporaxValueError, did_you_mean
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.placement import Placement, prime_mesh


@dataclass(frozen=True, slots=True)
class NamedAxes:
    """The user's axes, outermost first.

    Attributes:
        sizes: devices along each axis, by its name.
        types: of the axes; () where all are automatic.
    """

    sizes: tuple[tuple[str, int], ...]
    types: tuple[AxisType, ...] = ()

    @property
    def abstract(self) -> AbstractMesh:
        """The axes without devices; as if of the first ones here, where there are enough."""
        names, sizes = zip(*self.sizes, strict=True)
        abstract: AbstractMesh = _mesh(DeviceMatrix(sizes), sizes, names, self.types).abstract_mesh
        return abstract

    def runs(self) -> Mapping[str, tuple[int, ...]]:
        """The prime axes that each of them is made of, in ascending order."""
        counts = [prime_mesh(DeviceMatrix((size,))).num_axes for _, size in self.sizes]
        starts = [0, *accumulate(counts)]
        return {
            name: tuple(range(start, start + count))
            for (name, _), start, count in zip(self.sizes, starts, counts, strict=False)
        }

    def placement(self, spec: PartitionSpec, num_dims: int, whose: str, option: str = "fixed") -> Placement:
        """The sharding that a specification says.

        Args:
            spec: by dimension an axis, several or None.
            num_dims: of the array.
            whose: what messages call the array.
            option: the argument of `sporax.plan` that says it.

        Raises:
            SporaxValueError: more dimensions than the array has, an axis that is none of the mesh, or an open dimension.
        """
        runs = self.runs()
        if any(entry is PartitionSpec.UNCONSTRAINED for entry in spec):
            raise SporaxValueError(
                f"For 'plan', '{option}' must say of each dimension of {whose} how it is sharded, as for `jax.jit`, but got "
                f"{spec}. None in place of it leaves the whole array to the search, a constraint in 'fn' one dimension."
            )
        if len(spec) > num_dims:
            raise SporaxValueError(
                f"For 'plan', '{option}' must fit {whose} of {num_dims} dimensions, but got {spec} with {len(spec)}."
            )
        dims: list[tuple[int, ...]] = []
        for entry in (*spec, *[None] * (num_dims - len(spec))):
            names = () if entry is None else entry if isinstance(entry, tuple) else (entry,)
            for name in names:
                if name not in runs:
                    raise SporaxValueError(
                        f"For 'plan', '{option}' must name axes of 'devices', {list(runs)}, but got {name!r} for {whose}."
                        f"{did_you_mean(name, runs)}"
                    )
            dims.append(tuple(axis for name in names for axis in runs[name]))
        return Placement(tuple(dims))

    def on_axes(self, placement: Placement, names: Collection[str]) -> PartitionSpec:
        """What a placement is on some of the user's axes: in each dimension up to the first part of an axis, or another axis."""
        runs = {run[0]: (name, run) for name, run in self.runs().items() if run and name in names}
        dims: list[tuple[str, ...]] = []
        for axes in placement.dims:
            found: list[str] = []
            while axes and axes[0] in runs and _uses_all(axes, runs[axes[0]][1]):
                name, run = runs[axes[0]]
                found, axes = [*found, name], axes[len(run) :]
            dims.append(tuple(found))
        return PartitionSpec(*(found or None for found in dims))

    def refined(self, mesh: DeviceMatrix, placements: Iterable[Placement]) -> NamedMesh:
        """The mesh that can say all these shardings, with the user's axes wherever they can."""
        dims = {axes for placement in placements for axes in placement.dims if axes}
        sizes: list[int] = []
        names: list[str] = []
        runs: list[tuple[int, ...]] = []
        for (name, size), run in zip(self.sizes, self.runs().values(), strict=True):
            if all(_uses_all(axes, run) for axes in dims):
                sizes, names, runs = [*sizes, size], [*names, name], [*runs, run]
                continue
            sizes += [mesh.shape[axis] for axis in run]
            names += [f"{name}.{number}" for number in range(len(run))]
            runs += [(axis,) for axis in run]
        # Types are those of the user's axes, not of parts of them.
        made = _mesh(mesh, sizes, names, self.types if len(names) == len(self.sizes) else ())
        return NamedMesh(made, tuple(zip(names, runs, strict=True)))


@dataclass(frozen=True, slots=True)
class NamedMesh:
    """A mesh of JAX, and the prime axes that each of its axes is made of.

    Attributes:
        mesh: with devices where this process sees enough of them, else an `AbstractMesh`.
        runs: prime axes by name.
    """

    mesh: Mesh | AbstractMesh
    runs: tuple[tuple[str, tuple[int, ...]], ...]

    def spec(self, placement: Placement) -> PartitionSpec:
        """What a placement is on this mesh."""
        firsts = {run[0]: name for name, run in self.runs if run}
        dims = [tuple(firsts[axis] for axis in axes if axis in firsts) for axes in placement.dims]
        return PartitionSpec(*(names[0] if len(names) == 1 else names or None for names in dims))


def _uses_all(axes: Sequence[int], run: tuple[int, ...]) -> bool:
    """Whether axes of a dimension hold all of a run, in order and next to each other, or nothing of it."""
    if not set(axes) & set(run):
        return True
    start = axes.index(run[0]) if run[0] in axes else 0
    return tuple(axes[start : start + len(run)]) == run


def _mesh(
    mesh: DeviceMatrix, sizes: Sequence[int], names: Sequence[str], types: tuple[AxisType, ...] = ()
) -> Mesh | AbstractMesh:
    # The default of abstract meshes differs between versions of JAX.
    types = types or (AxisType.Auto,) * len(names)
    if mesh.num_devices > jax.device_count():
        return AbstractMesh(tuple(sizes), tuple(names), axis_types=types)
    devices: Any = np.array(jax.devices(), dtype=object)[list(mesh.ranks)]
    return Mesh(devices.reshape(tuple(sizes)), tuple(names), axis_types=types)
