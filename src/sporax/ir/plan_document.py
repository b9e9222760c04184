"""The JSON form of a plan: records with types, from which `sporax.ir.plan` makes a Plan.

A placement is written as ``[dims]``, or ``[dims, partial, reduction]`` for a partial tensor: plans have thousands of them.
Records check as soon as they are decoded what their values would refuse, so that an error names the place in the document.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from sporax.base.errors import SporaxValueError
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.placement import Axes, Placement

VERSION = 1
"""Version of the JSON form."""


class Versioned(Struct, frozen=True):
    """What is read first of every document."""

    version: int


class MeshDocument(Struct, frozen=True):
    """The devices."""

    shape: tuple[int, ...]
    names: tuple[str, ...]
    ranks: tuple[int, ...]

    # Decoding checks at once what the value would refuse later, because only here the place in the document is known.
    def __post_init__(self) -> None:
        if not self.ranks:
            raise ValueError("must have the 'ranks' of its devices, but got none")
        self.value()

    def value(self) -> DeviceMatrix:
        """The grid."""
        try:
            return DeviceMatrix(self.shape, self.names, self.ranks)
        except SporaxValueError as error:
            raise ValueError(f"cannot be what it says: {error.message.rstrip('.')}") from None


class PlacementDocument(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, omit_defaults=True):
    """The sharding of one tensor."""

    dims: tuple[Axes, ...]
    partial: Axes = ()
    reduction: str = ""

    def __post_init__(self) -> None:
        if any(axis < 0 for axes in (*self.dims, self.partial) for axis in axes):
            raise ValueError(
                f"must have numbers of axes, 0 or more, but got {[list(map(list, self.dims)), *self._rest()]}"
            )
        if self.partial and not self.reduction:
            raise ValueError("must be [dimensions] or [dimensions, partial, reduction], but has no reduction")
        self.value()

    def _rest(self) -> list[object]:
        return [list(self.partial), self.reduction] if self.partial else []

    def value(self) -> Placement:
        """The placement."""
        try:
            return Placement(self.dims, self.partial, self.reduction)
        except SporaxValueError as error:
            raise ValueError(f"cannot be what it says: {error.message.rstrip('.')}") from None


class ReshardingDocument(Struct, frozen=True):
    """Where one tensor is resharded."""

    placement: PlacementDocument
    reason: str
    in_float32: bool
    fusion: int | None
    scale: float


class OperatorDocument(Struct, frozen=True, omit_defaults=True):
    """The sharding of one operator."""

    assignment: tuple[Axes, ...]
    operands: tuple[PlacementDocument, ...]
    results: tuple[PlacementDocument, ...]
    bodies: tuple[StepDocument, ...] = ()


class StepDocument(Struct, frozen=True):
    """A plan, or that of the body of a loop or branch."""

    mesh: MeshDocument
    inputs: tuple[PlacementDocument, ...]
    outputs: tuple[PlacementDocument, ...]
    operators: tuple[OperatorDocument, ...]
    # The key keeps its first name in files, since files of version 1 have it.
    settled: dict[Annotated[int, Meta(ge=0)], ReshardingDocument]
    """Reshardings by number of the tensor."""
    notes: tuple[str, ...]
    alltoall: bool
    graph: str
    has_reduce_scatter: bool = True
    """Files of plans that were made before the field existed lack it."""
    overwritten: tuple[int, ...] = ()  # files of before have none
