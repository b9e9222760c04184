"""A complete plan: the sharding of every operator and the placement of every tensor of a step.

Plans are values: frozen, printable, saved as JSON and read again. What follows from a plan and its graph
(redistributions, bytes, memory) is computed by the planner, and the program is made by the lowering; both read nothing
else.

The JSON form of a plan: records with types, from which `sporax.ir.plan` makes a Plan.

A placement is written as ``[dims]``, or ``[dims, partial, reduction]`` for a partial tensor: plans have thousands of them.
Records check as soon as they are decoded what their values would refuse, so that an error names the place in the document.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from sporax.base.documents import MalformedError, decode
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
    rank_list: tuple[int, ...] = msgspec.field(name="ranks")

    # Decoding checks at once what the value would refuse later, because only here the place in the document is known.
    def __post_init__(self) -> None:
        if not self.rank_list:
            raise ValueError("must have the 'ranks' of its devices, but got none")
        self.value()

    def value(self) -> DeviceMatrix:
        """The grid."""
        try:
            return DeviceMatrix(self.shape, self.names, self.rank_list)
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
    reshardings: dict[Annotated[int, Meta(ge=0)], ReshardingDocument] = msgspec.field(name="settled")
    """Reshardings by number of the tensor."""
    notes: tuple[str, ...]
    alltoall: bool
    graph: str
    has_reduce_scatter: bool = True
    """Files of plans that were made before the field existed lack it."""
    overwritten: tuple[int, ...] = ()  # files of before have none


@dataclass(frozen=True, slots=True)
class Resharding:
    """The placement that a tensor gets as soon as it is computed, for all its readers.

    Attributes:
        placement: the new placement.
        reason: why, for people: ``"result of MatMul"``, ``"gradient of fc.weight"``.
        in_float32: reduce partial sums in float32.
        fusion: gradients with the same number above 0 share one collective; with 0 each has its own; with None the compiler
            may combine collectives.
        scale: the value is multiplied by it afterwards.
    """

    placement: Placement
    reason: str = ""
    in_float32: bool = False
    fusion: int | None = None
    scale: float = 1.0

    @property
    def is_plain_move(self) -> bool:
        """Whether it is no more than a move: without a fusion number, a scale or float32."""
        return not self.in_float32 and self.fusion is None and self.scale == 1.0

    def before_mark(self, placement: Placement | None) -> Placement:
        """Where a mark that requests it takes its tensor: a plain move comes before, and other readers may share it."""
        return self.placement if placement is None or self.is_plain_move else placement


@dataclass(frozen=True, slots=True)
class OperatorPlan:
    """How one operator is sharded.

    Attributes:
        assignment: for each factor of the operator's rule the mesh axes that shard it.
        operands: where each operand must be; a scalar's placement has no dimensions.
        results: where the results then are.
        bodies: plans of the bodies of control flow.
    """

    assignment: tuple[Axes, ...]
    operands: tuple[Placement, ...]
    results: tuple[Placement, ...]
    bodies: tuple[Plan, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """How a step is sharded.

    Attributes:
        mesh: the devices; its axes have prime sizes.
        inputs, outputs: where the step's arguments are and where its results should be.
        operators: one entry per operator of the graph.
        reshardings: placements that tensors get for all their readers, by number of the tensor.
        notes: what people should know: operators that could not be sharded, and why.
        alltoall: whether tensors may be moved by all-to-all and permute.
        graph: fingerprint of the graph it was made for.
        has_reduce_scatter: whether its devices scatter sums by one collective; without it an all-to-all trades the parts.
        overwritten: numbers of the facade's operators whose strategies a search has replaced by its own.
    """

    mesh: DeviceMatrix
    inputs: tuple[Placement, ...]
    outputs: tuple[Placement, ...]
    operators: tuple[OperatorPlan, ...]
    reshardings: Mapping[int, Resharding] = field(default_factory=dict, hash=False)
    notes: tuple[str, ...] = ()
    alltoall: bool = True
    graph: str = ""
    has_reduce_scatter: bool = True
    overwritten: tuple[int, ...] = ()

    def __str__(self) -> str:
        sharded = sum(any(operator.assignment) for operator in self.operators)
        return f"Plan({self.mesh}, {sharded} of {len(self.operators)} operators sharded)"

    __repr__ = __str__

    @property
    def fusion_is_free(self) -> bool:
        """Whether the compiler may combine all-reduces: nothing was said about fusion."""
        return all(resharding.fusion is None for resharding in self.reshardings.values())

    def on_devices(self, has_reduce_scatter: bool) -> Plan:
        """The same plan, carried out on devices that scatter sums by one collective or do not."""
        return replace(
            self,
            operators=tuple(
                replace(operator, bodies=tuple(body.on_devices(has_reduce_scatter) for body in operator.bodies))
                for operator in self.operators
            ),
            has_reduce_scatter=has_reduce_scatter,
        )

    def to_json(self) -> str:
        """The plan as text."""
        document = msgspec.json.encode(msgspec.convert(self, StepDocument, from_attributes=True)).decode()
        # The version stands first, so that a reader can refuse before it reads the rest.
        return f'{{"version":{VERSION},{document.removeprefix("{")}'

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read what `to_json` wrote.

        Raises:
            SporaxValueError: not a plan, or of another version; the message says where in it.
        """
        try:
            # Only the version at first: a later form may have other fields.
            version = decode(text, Versioned).version
            if version != VERSION:
                raise MalformedError(f"must be {VERSION}, but got {version}", "version")
            return _plan(decode(text, StepDocument))
        except MalformedError as problem:
            reason = str(problem).rstrip(".")
            raise SporaxValueError(f"For 'Plan.from_json', there must be a saved plan, but {reason}.") from None


def _plan(document: StepDocument) -> Plan:
    return Plan(
        document.mesh.value(),
        _values(document.inputs),
        _values(document.outputs),
        tuple(
            OperatorPlan(
                operator.assignment,
                _values(operator.operands),
                _values(operator.results),
                tuple(map(_plan, operator.bodies)),
            )
            for operator in document.operators
        ),
        {
            tensor: Resharding(entry.placement.value(), entry.reason, entry.in_float32, entry.fusion, entry.scale)
            for tensor, entry in document.reshardings.items()
        },
        document.notes,
        document.alltoall,
        document.graph,
        document.has_reduce_scatter,
        document.overwritten,
    )


def _values(placements: tuple[PlacementDocument, ...]) -> tuple[Placement, ...]:
    return tuple(placement.value() for placement in placements)
