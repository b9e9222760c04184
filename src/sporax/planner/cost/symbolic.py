"""MindSpore's published cost model: weighted bytes that are computed on and communicated, independent of hardware.

A plan costs ``alpha * computation + beta * (communication forward + gamma * communication backward)`` in weighted
bytes. Messages below a threshold count as a constant, larger ones get a bias. MindSpore costs its own operators in the
forward graph and adds terms for their gradients. Here operators are lax primitives and the backward pass is in the
graph: its transfers are weighted by gamma; its computation and that of the optimizer count nothing, as in MindSpore. An
operator that is one in MindSpore and several in lax (softmax, layer norm) costs the sum of its primitives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from sporax.ir.config.search_config import CostModelConfig
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import MARK
from sporax.ir.operation import Operation
from sporax.ir.placement import Axes, Placement, num_parts
from sporax.planner.communication.moves import LinkCosts
from sporax.planner.cost.model import local_bytes
from sporax.planner.rules import Assignment, FactorKind, Rule, entry_for, placements

_FREE = ("2 dimensions", "9 creation", "12 annotations and opaque")
"""Families that MindSpore does not count: they are not operators of its graph, or are folded."""
SECONDS = "s"
"""Unit of models that predict time; all others count weighted bytes."""


@dataclass(frozen=True)
class SymbolicLinks(LinkCosts):
    """Communication in weighted bytes.

    Attributes:
        config: the model's numbers.
    """

    config: CostModelConfig = field(default_factory=CostModelConfig)

    def gather(self, axes: Axes, sizes: Sequence[int], local_bytes: float) -> float:
        """All-gather: half of what arrives; backward half of a slice."""
        members = math.prod(sizes)
        return self._weighted(0.5 * members * local_bytes, 0.5 * local_bytes) + self.copy(local_bytes * members)

    def reduce_scatter(self, axes: Axes, sizes: Sequence[int], local_bytes: float) -> float:
        """The model has none of its own: an all-reduce and a slice."""
        return self.all_reduce(axes, sizes, local_bytes) + self.copy(local_bytes)

    def all_reduce(self, axes: Axes, sizes: Sequence[int], local_bytes: float) -> float:
        """What every device holds."""
        return self._weighted(local_bytes, 0.0)

    def all_to_all(self, axes: Axes, sizes: Sequence[int], local_bytes: float) -> float:
        """Twice a slice, forward and backward."""
        return self._weighted(2.0 * local_bytes, 2.0 * local_bytes) + self.copy(local_bytes)

    def permute(self, axes: Axes, sizes: Sequence[int], local_bytes: float) -> float:
        """As an all-to-all."""
        return self.all_to_all(axes, sizes, local_bytes)

    def slice(self, sizes: Sequence[int], local_bytes: float) -> float:
        """What is sliced, as much as a copy."""
        return self.copy(local_bytes)

    def copy(self, local_bytes: float) -> float:
        """Slicing is computing."""
        return self.config.costmodel_alpha * local_bytes

    def _weighted(self, forward: float, backward: float) -> float:
        # In a prediction (`run_phase` 1) there is no backward pass.
        gamma = 0.0 if self.config.run_phase else self.config.costmodel_gamma
        return self.config.costmodel_beta * (self._refined(forward) + gamma * self._refined(backward))

    def _refined(self, size: float) -> float:
        config = self.config
        # Nothing to send starts no message, so the constant of small messages does not apply.
        if size <= 0:
            return 0.0
        if size <= config.costmodel_communi_threshold:
            return config.costmodel_communi_const
        return size + config.costmodel_communi_bias


@dataclass(frozen=True, slots=True)
class Symbolic:
    """The published model.

    Attributes:
        config: its numbers.
        weight_memory: what the slice of a product's second operand counts besides (`rp_matmul_mem_coef`).
        has_reduce_scatter: whether the devices scatter sums by one collective; it changes what is counted, and no cost.
        platform: as in `CostModel`.
    """

    config: CostModelConfig = field(default_factory=CostModelConfig)
    weight_memory: float = 0.0
    has_reduce_scatter: bool = True
    platform: str = "cpu"

    @property
    def links(self) -> SymbolicLinks:
        """Costs of communication."""
        return SymbolicLinks(config=self.config, has_reduce_scatter=self.has_reduce_scatter)

    @property
    def late_computing(self) -> float:
        """The backward pass and what follows it cost nothing."""
        return 0.0

    @property
    def late_communication(self) -> float:
        """Weight of transfers in the backward pass and after it."""
        return 0.0 if self.config.run_phase else self.config.costmodel_gamma

    def seconds(self, operation: Operation, rule: Rule, assignment: Assignment, mesh: DeviceMatrix) -> float:
        """Weighted bytes that the operator touches on one device; a tie goes to data parallel."""
        family = MARK if operation.name == MARK else entry_for(operation.name).family
        if family == MARK or family in _FREE:
            return 0.0
        operands, _ = found = placements(rule, assignment)
        touched = self._touched(operation, *found, _is_reduced(rule, assignment), mesh)
        # One byte less decides a tie, and is less than any tensor.
        rows = operands[0].dims[:1] if operands else ()
        if touched > 1.0 and rows and num_parts(mesh, rows[0]) == mesh.num_devices > 1:
            touched -= 1.0
        return self.config.costmodel_alpha * touched

    def _touched(
        self,
        operation: Operation,
        operands: Sequence[Placement],
        results: Sequence[Placement],
        reduced: bool,
        mesh: DeviceMatrix,
    ) -> float:
        """Bytes of the slices that the operator reads, and writes where its results are partial sums."""
        read = [local_bytes(spec, operand, mesh) for spec, operand in zip(operation.operands, operands, strict=True)]
        written = [local_bytes(spec, result, mesh) for spec, result in zip(operation.results, results, strict=True)]
        touched = float(sum(size for size, spec in zip(read, operation.operands, strict=True) if spec.num_dims))
        # Looking up in a sharded table: MindSpore's published weights of the table and of the indices.
        if operation.name == "gather" and reduced:
            touched = 3.0 * read[0] + 7.0 * read[1]
        elif reduced:
            touched += sum(written)
        if operation.name == "dot_general":
            touched += self.weight_memory * read[1]
        return touched


def _is_reduced(rule: Rule, assignment: Assignment) -> bool:
    """Whether an index that results lose is sharded."""
    pairs = zip(assignment, rule.factors, strict=True)
    return any(sharding for sharding, factor in pairs if factor.kind is FactorKind.REDUCE)


def unit_of(model: object) -> str:
    """What a model counts costs in."""
    return "weighted bytes" if isinstance(model, Symbolic) else SECONDS
