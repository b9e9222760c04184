"""A part of a program that its author has written for one device of a mesh: `jax.shard_map`, as plans see it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import field

from sporax.base.errors import SporaxValueError
from sporax.base.lazy_members import dataclass
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.layout import Layout
from sporax.ir.placement import Axes

Names = tuple[tuple[str, ...], ...]
"""Per dimension of a tensor the axes of the island that shard it, outermost first."""


@dataclass(frozen=True, slots=True)
class IslandCollective:
    """A collective in an island.

    Attributes:
        kind: as in `planner.communication.moves.MoveKind`.
        axes: of the island.
        num_bytes: what one device brings into it.
        times: how often it runs per call.
    """

    kind: str
    axes: tuple[str, ...]
    num_bytes: int
    times: int = 1


@dataclass(frozen=True, slots=True)
class Island:
    """What a plan must know of it; its body runs as it is.

    Attributes:
        matrix: its mesh with names, in the order of the plan's axes.
        axes: those that its body names, in the order of its mesh.
        operands, results: how they are sharded at its border.
        flops: floating-point operations of one device.
        collectives: what its body communicates.
        body: the `OperatorGraph` of one device.
    """

    matrix: DeviceMatrix
    axes: tuple[str, ...]
    operands: tuple[Names, ...]
    results: tuple[Names, ...]
    flops: float = 0.0
    collectives: tuple[IslandCollective, ...] = ()
    body: object = field(default=None, compare=False, repr=False)

    def num_devices(self, axes: Iterable[str]) -> int:
        """How many devices are along some of its axes, those of one device left out."""
        return math.prod(self.matrix.shape[self.matrix.axis(name)] for name in axes if name in self.matrix.names)

    def runs(self, mesh: DeviceMatrix) -> Mapping[str, Axes]:
        """The axes of a plan's mesh that each of its axes is made of.

        Raises:
            SporaxValueError: they are not made of them.
        """
        layout = Layout(self.matrix, tuple((axis,) for axis in range(self.matrix.num_axes)))
        try:
            return dict(zip(self.matrix.names, layout.on_shape(mesh.shape).shardings, strict=True))
        except SporaxValueError:
            raise SporaxValueError(
                f"For 'shard_map', its mesh must be an arrangement of the plan's devices, {mesh}, but got {self.matrix}."
            ) from None
