"""Where a planned step keeps its Parameters, in the form that MindSpore's tools read: `Cell.parameter_layout_dict`.

Problem: plans use meshes with axes of prime sizes and say separately how a Parameter is stored and how operators read it;
MindSpore's tools read one device matrix, one tensor map and one optimizer group per Parameter.
Method: axes that shard one dimension in a row become one axis of the coarsest device matrix (`device_arrangement`); ranks among
which only the stored slice differs are the optimizer group.
Reference: MindSpore, `parameter_layout_dict` and the strategy file's ``parallel_layout_item``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax

from sporax.base.errors import SporaxRuntimeError
from sporax.base.lazy_members import dataclass
from sporax.ir import Axes, DeviceMatrix, OperatorGraph, Placement, Role, axes_index

if TYPE_CHECKING:
    from sporax.ir import Plan
    from sporax.lowering import Ingested
    from sporax.lowering.passes import Blocked

Shape = tuple[int, ...]


class StepArgument(Protocol):
    """An argument of a planned step (`planned.Argument`)."""

    @property
    def role(self) -> Role:
        """What it is."""

    @property
    def name(self) -> str:
        """Of the Parameter."""

    @property
    def array(self) -> Any:
        """Shape and dtype."""

    @property
    def trainable(self) -> bool:
        """Whether it is a Parameter with gradients."""


class PlacedStep(Protocol):
    """What layouts are read from: a planned step (`planned.PlannedStep`)."""

    @property
    def graph(self) -> OperatorGraph:
        """Its operators."""

    @property
    def step(self) -> Ingested:
        """The traced program."""

    @property
    def plan(self) -> Plan:
        """Its plan."""

    @property
    def arguments(self) -> Sequence[StepArgument]:
        """What it takes."""

    @property
    def blocked(self) -> Mapping[int, Blocked]:
        """Variables that are kept in blocks, by position."""


class ParameterLayout(NamedTuple):
    """The layout of one Parameter; a tuple of lists like MindSpore's, whose first six entries are those of all versions.

    Attributes:
        device_matrix: how the devices are arranged.
        tensor_map: for each dimension the axis of the device matrix that shards it, counted from the right, -1 for none; a
            tuple of axes where several shard it.
        slice_shape: of what operators have on this rank.
        field_size: 0; MindSpore's recommendation networks had one.
        uniform_split: whether all slices are equally large.
        opt_shard_group: the ranks that share this slice in optimizer parallelism, ``"2-0-4"``: how many, and which; ""
            where a device keeps its slice whole.
        full_shape: of the Parameter.
        shard_shape: of what this rank keeps between steps.
        pipeline_shared, is_send: False; they are about pipelines.
        peer_rank, sr_tag: 0, likewise.
        split_rows: sizes of the uneven slices of dimension 0 (`manual_split`); empty where slices are equal.
    """

    device_matrix: list[int]
    tensor_map: list[int | tuple[int, ...]]
    slice_shape: list[int]
    field_size: int
    uniform_split: bool
    opt_shard_group: str
    full_shape: list[int]
    shard_shape: list[int]
    pipeline_shared: bool = False
    is_send: bool = False
    peer_rank: int = 0
    sr_tag: int = 0
    split_rows: Shape = ()


def parameter_layouts(step: PlacedStep, rank: int | None = None) -> dict[str, ParameterLayout]:
    """The layouts of all Parameters of a step, those of its optimizer included.

    Args:
        step: the step.
        rank: which sees them; None: this process's first device.
    """
    rank = _own_rank() if rank is None else rank
    names = {argument.name: number for number, argument in enumerate(step.arguments) if argument.role is Role.PARAMETER}
    reader = _Reader(step, rank)
    return {name: reader.layout(number, reader.weight_of(name, number, names)) for name, number in names.items()}


def ranks_with_same_slices(step: PlacedStep) -> list[int]:
    """The ranks that keep the same slices of all trained Parameters as this process's first device, itself included."""
    inputs = step.plan.inputs[len(step.step.constants) :]
    sharding = {
        axis
        for argument, placement in zip(step.arguments, inputs, strict=True)
        if argument.trainable
        for axis in placement.used
    }
    mesh, own = step.plan.mesh, _own_rank()

    def slices(rank: int) -> list[int]:
        # Ranks that differ along axes which shard nothing hold copies.
        return [position for axis, position in enumerate(mesh.coordinates(rank)) if axis in sharding]

    return [rank for rank in mesh.ranks if slices(rank) == slices(own)]


def _own_rank() -> int:
    # By position, not by id: on processors the ids of process 1 begin at 2048.
    return next(number for number, device in enumerate(jax.devices()) if device.process_index == jax.process_index())


def layouts_of_stage(step: Any) -> dict[str, ParameterLayout]:
    """As `parameter_layouts`, of a step (`PlannedStep` or `PipelinedStep`) that may have several stages.

    Raises:
        SporaxRuntimeError: it has several pipeline stages.
    """
    refuse_stages("parameter_layout_dict", "layouts", step)
    return parameter_layouts(step)


def refuse_stages(name: str, what: str, step: Any) -> None:
    """Check that a step has one pipeline stage; `what` is requested, by `name`.

    Raises:
        SporaxRuntimeError: it has several.
    """
    if step.settings.parallel.pipeline_stages > 1:
        raise SporaxRuntimeError(
            f"For '{name}', {what} of a network in several pipeline stages are not offered yet: the arrays of the Parameters say "
            "how they are sharded."
        )


@dataclass(frozen=True, slots=True)
class _Reader:
    step: PlacedStep
    rank: int

    def weight_of(self, name: str, argument: int, names: Mapping[str, int]) -> int:
        """For a moment, ``"moment1.fc.weight"``, that is sharded as its weight, the weight; else the argument itself."""
        # Optimizers call their state like "moment1.fc.weight".
        weight = names.get(name.partition(".")[2], argument)
        equal = self._stored(weight) == self._stored(argument) and self._full_shape(weight) == self._full_shape(
            argument
        )
        return weight if equal else argument

    def _stored(self, argument: int) -> Placement:
        return self.step.plan.inputs[len(self.step.step.constants) + argument]

    def _full_shape(self, argument: int) -> Shape:
        return tuple(self.step.arguments[argument].array.shape)

    def layout(self, argument: int, weight: int) -> ParameterLayout:
        """The layout of one argument, which operators have as they have `weight`."""
        plan = self.step.plan
        stored = self._stored(argument)
        resharding = plan.reshardings.get(self.step.graph.inputs[len(self.step.step.constants) + weight].tensor)
        used = stored if resharding is None else resharding.placement
        full_shape = self._full_shape(argument)
        matrix, tensor_map = device_arrangement(used, plan.mesh)
        return ParameterLayout(
            list(matrix),
            list(tensor_map),
            list(self._slice(argument, used, full_shape)),
            0,
            argument not in self.step.blocked,
            self._group(used, stored),
            list(full_shape),
            list(self._slice(argument, stored, full_shape)),
            split_rows=self._split_rows(argument, used),
        )

    def _slice(self, argument: int, placement: Placement, full_shape: Shape) -> Shape:
        """Shape of this rank's part."""
        mesh = self.step.plan.mesh
        how = self.step.blocked.get(argument)
        if how is None:
            return placement.local_shape(full_shape, mesh)
        local = list(placement.local_shape(how.shape(full_shape), mesh))
        parts = how.rows.rows
        # Where a device holds one block it has one part of the rows, otherwise all parts.
        if local[how.dim] == how.rows.block:
            local[how.dim] = parts[axes_index(mesh, placement.dims[how.dim], self.rank)]
        else:
            local[how.dim] = sum(parts)
        return tuple(local)

    def _split_rows(self, argument: int, placement: Placement) -> Shape:
        """Sizes of the uneven slices of dimension 0, where the placement has one for each part."""
        how = self.step.blocked.get(argument)
        if how is None or how.dim != 0:
            return ()
        count = math.prod(self.step.plan.mesh.shape[axis] for axis in placement.dims[0])
        return tuple(how.rows.rows) if count == len(how.rows.rows) else ()

    def _group(self, used: Placement, stored: Placement) -> str:
        mesh = self.step.plan.mesh
        # Axes that shard only what is stored, not what operators read: optimizer parallelism.
        shared = stored.used - used.used
        if not shared:
            return ""
        own = mesh.coordinates(self.rank)
        # The group of this rank differs from it along the shared axes only.
        members = [
            rank
            for rank in mesh.ranks
            if all(
                a == b
                for axis, (a, b) in enumerate(zip(own, mesh.coordinates(rank), strict=True))
                if axis not in shared
            )
        ]
        return "-".join(map(str, (len(members), *members)))


def device_arrangement(placement: Placement, mesh: DeviceMatrix) -> tuple[Shape, tuple[int | tuple[int, ...], ...]]:
    """The coarsest device matrix that describes the sharding of a tensor, and its tensor map.

    Example:
        >>> mesh = DeviceMatrix((2, 2, 2))
        >>> device_arrangement(Placement(((1, 2), ())), mesh)
        ((2, 4), (0, -1))
    """
    follows: dict[int, int] = {}
    for axes in placement.dims:
        follows.update({after: before for before, after in zip(axes, axes[1:], strict=False) if after == before + 1})
    groups: list[list[int]] = []
    for axis in range(mesh.num_axes):
        # Neighbouring axes that shard nothing merge, too, so that the matrix has as few axes as possible.
        idle = axis - 1 not in placement.used and axis not in placement.used
        if groups and (follows.get(axis) == axis - 1 or idle):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    # Tensor maps count axes from the right.
    owner = {axis: len(groups) - 1 - number for number, group in enumerate(groups) for axis in group}
    matrix = tuple(math.prod(mesh.shape[axis] for axis in group) for group in groups)
    return matrix, tuple(_entry(axes, owner) for axes in placement.dims)


def _entry(axes: Axes, owner: dict[int, int]) -> int | tuple[int, ...]:
    numbers = tuple(dict.fromkeys(owner[axis] for axis in axes))
    return -1 if not numbers else numbers[0] if len(numbers) == 1 else numbers
