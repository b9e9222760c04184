"""Cost models: the time of an operator on the slices of one device, and the costs of links.

`Roofline` is the model in seconds: an operator with a kernel of its own takes the longer of its arithmetic and its
memory traffic. Operators that a compiler fuses into their neighbours (elementwise, reshaping) cost what they write, or
nothing.

Reference: S. Williams et al., "Roofline: an insightful visual performance model for multicore architectures", CACM 52
(2009).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import MARK
from sporax.ir.hardware import HardwareProfile
from sporax.ir.operation import Fused, Operation, TensorSpec
from sporax.ir.placement import Placement, num_parts
from sporax.planner.communication.moves import LinkCosts, MoveKind
from sporax.planner.rules import Assignment, Rule, entry_for, exchanged_bytes, local_flops, placements
from sporax.planner.rules.language import FactorKind


class CostModel(Protocol):
    """What a search reads."""

    @property
    def links(self) -> LinkCosts:
        """Costs of communication."""

    @property
    def late_computing(self) -> float:
        """What computing in the backward pass and after it counts, compared with 1 before."""

    @property
    def late_communication(self) -> float:
        """What transfers of tensors made in the backward pass or after it count, compared with 1 before."""

    @property
    def platform(self) -> str:
        """JAX's name of the devices, which decides how much memory a plan is predicted to need."""

    def seconds(self, operation: Operation, rule: Rule, assignment: Assignment, mesh: DeviceMatrix) -> float:
        """Time of one operator on one device, without the transfers of its operands."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """Seconds on devices of one kind.

    Attributes:
        profile: the devices.
        links: costs of communication between them.
        late_computing, late_communication: as in `CostModel`; what the profile says of overlap, by default.
    """

    profile: HardwareProfile
    links: LinkCosts
    late_computing: float = 1.0
    late_communication: float = -1.0

    def __post_init__(self) -> None:
        if self.late_communication < 0.0:
            # Frozen, and its default depends on another field: hence the detour.
            object.__setattr__(self, "late_communication", 1.0 - self.profile.overlap)

    @property
    def platform(self) -> str:
        """The compiler of the profile."""
        return self.profile.compiler

    def seconds(self, operation: Operation, rule: Rule, assignment: Assignment, mesh: DeviceMatrix) -> float:
        """Longer of arithmetic and memory traffic, plus the launch, plus what neighbours exchange meanwhile."""
        family = _family(operation.name)
        # Reshaping moves no bytes, and marks are identities.
        if family in _FREE:
            return 0.0
        fused = operation.fused if self.profile.attention else None
        operands, results = placements(rule, assignment)
        if fused:
            return self._fused_seconds(operation, fused, rule, assignment, mesh)
        written = sum(map(local_bytes, operation.results, results, [mesh] * len(results)))
        # The compiler fuses them into their producer or reader, so their operands are not read from memory.
        if family in _FUSED:
            return written / self.profile.bytes_per_second
        read = sum(map(local_bytes, operation.operands, operands, [mesh] * len(operands)))
        memory = (read + written) / self.profile.bytes_per_second
        arithmetic = local_flops(rule, assignment, mesh) / self.flops_per_second(operation)
        exchange = self._exchange(operation, rule, assignment, mesh) + self.island_seconds(operation, mesh)
        return self.profile.launch_seconds + max(memory, arithmetic) + exchange

    def island_seconds(self, operation: Operation, mesh: DeviceMatrix) -> float:
        """Time of the collectives inside of an island; 0 for all other operations."""
        island, total = operation.params.get("island"), 0.0
        runs = {} if island is None else island.runs(mesh)
        for collective in () if island is None else island.collectives:
            axes = tuple(axis for name in collective.axes for axis in runs.get(name, ()))
            sizes = [mesh.shape[axis] for axis in axes]
            kind = MoveKind(collective.kind)
            total += collective.times * self.links.seconds(kind, "sum", axes, sizes, collective.num_bytes)
        return total

    def flops_per_second(self, operation: Operation) -> float:
        """Rate of an operator's arithmetic: kernels that are written by hand reach what those of attention do."""
        if _is_kernel(operation):
            return self.profile.attention_flops_per_second()
        return self.profile.flops_per_second(*multiplied(operation))

    def _fused_seconds(
        self, operation: Operation, fused: Fused, rule: Rule, assignment: Assignment, mesh: DeviceMatrix
    ) -> float:
        """Share of a kernel of attention: its products, or reading and writing all but the scores; the rest is free."""
        if _family(operation.name) != _PRODUCTS:
            return 0.0
        operands, results = placements(rule, assignment)
        pairs = zip((*operation.operands, *operation.results), (*operands, *results), strict=True)
        outside = [(spec, where) for spec, where in pairs if math.prod(spec.shape) != fused.elements]
        memory = sum(local_bytes(spec, where, mesh) for spec, where in outside) / self.profile.bytes_per_second
        arithmetic = fused.share * local_flops(rule, assignment, mesh) / self.profile.attention_flops_per_second()
        return self.profile.launch_seconds / 2 + max(memory, arithmetic)

    def _exchange(self, operation: Operation, rule: Rule, assignment: Assignment, mesh: DeviceMatrix) -> float:
        axes = tuple(
            axis
            for factor, axes_of_factor in zip(rule.factors, assignment, strict=True)
            if factor.kind in (FactorKind.HALO, FactorKind.PERMUTE)
            for axis in axes_of_factor
        )
        # Without sharded factors of these kinds, no device needs elements of a neighbour.
        if not axes:
            return 0.0
        sizes = [mesh.shape[axis] for axis in axes]
        return self.links.permute(axes, sizes, exchanged_bytes(operation, rule, assignment, mesh))


_FREE = frozenset(["2 dimensions", "12 annotations and opaque", MARK])
"""Families that cost nothing: the compiler makes views of them, or nothing at all."""
_PRODUCTS = "3 contraction"
_FUSED = frozenset(["1 elementwise", "9 creation", "4 reduction"])
"""Families that the compiler fuses with their producers: they cost what they write."""


def _family(name: str) -> str:
    return MARK if name == MARK else entry_for(name).family


def _is_kernel(operation: Operation) -> bool:
    """Whether it is a program of its own, such as a kernel or an island, with operands of any kind."""
    return _family(operation.name) == "13 kernels" or "island" in operation.params


def is_product(operation: Operation) -> bool:
    """Whether it multiplies matrices, as convolutions and kernels of attention do."""
    return _family(operation.name) == "3 contraction" or _is_kernel(operation)


def multiplied(operation: Operation) -> tuple[str, ...]:
    """The dtypes that decide about an operator's rate; none for one that only creates values, without arithmetic of note."""
    # Kernels have indices in front, and masks behind.
    numbers = [operand.dtype for operand in operation.operands if operand.is_inexact or not _is_kernel(operation)]
    return tuple(numbers[: 2 if is_product(operation) else 1])


def local_bytes(spec: TensorSpec, placement: Placement, mesh: DeviceMatrix) -> int:
    """Bytes of one device's slice; the placement must fit."""
    num_slices = math.prod(num_parts(mesh, axes) for axes in placement.dims)
    return spec.num_bytes // num_slices
