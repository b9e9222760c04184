"""The cost of a complete plan: term by term (`cost_of`), and after fusion (`kernel_seconds`).

Problem: a search adds up costs of decisions and of pairs of decisions, where an error would go unseen, and it can know neither
what will be fused nor what will be hidden.

Method: `cost_of` uses none of a search's sums. Operators cost what the model says of their slices, and transfers are those of
the schedule that the lowering executes (`planner.communication.transfers`). `kernel_seconds` costs kernels: the compiler's
backend (`sporax.planner.memory.backend`) says of a complete plan which operators are fused and which arrays are written, and so
how many bytes are read and written. This ranks plans with similar communication better, and takes longer.

`exposed_shares`: collectives run while kernels compute, as far as programs arrange it. Weights are gathered ahead, gradients
reduced behind, activations between two products seldom. A kind of transfer hides behind at most a share of the computing that
there is for it (`HardwareProfile.hidden`): with plenty of computing all of it, and where transfers take longer, the rest shows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sporax.base.text_tables import size_text
from sporax.ir.graph import IDENTITIES, Operator, OperatorGraph
from sporax.ir.plan import Plan
from sporax.planner.communication.resharding import redistribute
from sporax.planner.communication.transfers import schedule
from sporax.planner.cost.combined_collectives import late_operators, late_tensors, num_sharing, overlaps, rounds
from sporax.planner.cost.model import CostModel, Roofline, is_product
from sporax.planner.loops.inline import inline_loops
from sporax.planner.memory.backend import Kernel, KernelSchedule, Kind
from sporax.planner.memory.peak import backend_of
from sporax.planner.memory.step_events import Timeline
from sporax.planner.rules import local_flops, rule_for

_BACKWARD = 2 / 3
"""Share of computing that is the backward pass, behind which gradients hide: two products of three."""


def exposed(transfers: Any, computing: Any, hidden: Any) -> Any:
    """Seconds of transfers that show: a number, or an array of several steps.

    Args:
        transfers: their seconds.
        computing: seconds of computing that they may hide behind.
        hidden: the share of these that they can, from 0 to 1.

    Example:
        >>> exposed(3.0, 4.0, 0.5)
        1.0
    """
    left = np.maximum(transfers - hidden * computing, 0.0)
    return float(left) if np.ndim(left) == 0 else left


def exposed_shares(
    transfers: Mapping[str, float], computing: float, hidden: Iterable[tuple[str, float]]
) -> dict[str, float]:
    """By kind of transfer the share of its seconds that shows.

    Args:
        transfers: seconds by kind, as of `PlanCost.by_overlap`.
        computing: seconds of computing; weights are gathered ahead of all of it, gradients are reduced behind the backward pass.
        hidden: kinds and shares, as in `HardwareProfile.hidden`.
    """
    behind, hides = {"weights": computing, "gradients": computing * _BACKWARD}, dict(hidden)
    return {
        kind: exposed(seconds, behind.get(kind, 0.0), hides.get(kind, 0.0)) / seconds if seconds else 1.0
        for kind, seconds in transfers.items()
    }


KINDS_OF_OVERLAP = ("weights", "gradients", "tensor")
MEMORY_BOUND = "memory-bound work"
"""Part of a step: what copies and elementwise operators do."""


@dataclass(frozen=True, slots=True)
class PlanCost:
    """Predicted time of one step.

    Attributes:
        operator_seconds: per operator of the step with its loops written out, as often as it runs.
        transfer_seconds: per operator, of the transfers that it needs; those of the step's results are last.
        collectives: per kind of collective how many there are and how many bytes one device brings along.
        parts: seconds by kind of work; of moves by what they hide behind (`overlaps`, "" for operators) and by collective.
    """

    operator_seconds: tuple[float, ...]
    transfer_seconds: tuple[float, ...]
    collectives: Mapping[str, tuple[int, int]]
    parts: Mapping[tuple[str, str], float] = field(default_factory=dict)

    @property
    def by_overlap(self) -> Mapping[str, float]:
        """Seconds of transfers that can be made ahead (``"weights"``) or behind (``"gradients"``) of computing; between products
        (``"tensor"``) devices wait.
        """
        return {kind: sum(self.parts[key] for key in self.parts if key[0] == kind) for kind in KINDS_OF_OVERLAP}

    @property
    def seconds_by_operator(self) -> list[float]:
        """Both, per operator of the step with its loops written out."""
        return [own + moved for own, moved in zip(self.operator_seconds, self.transfer_seconds, strict=False)]

    @property
    def compute_seconds(self) -> float:
        """Time of all operators."""
        return sum(self.operator_seconds)

    @property
    def communication_seconds(self) -> float:
        """Time of all transfers, slicing included."""
        return sum(self.transfer_seconds)

    @property
    def seconds(self) -> float:
        """Time of the step, nothing overlapping."""
        return self.compute_seconds + self.communication_seconds

    def __str__(self) -> str:
        moved = ", ".join(f"{count} {name} of {size_text(size)}" for name, (count, size) in self.collectives.items())
        return (
            f"{self.seconds:.6g} s = {self.compute_seconds:.6g} s of operators + {self.communication_seconds:.6g} s of "
            f"transfers ({moved or 'no collectives'})"
        )


def cost_of(graph: OperatorGraph, plan: Plan, model: CostModel) -> PlanCost:
    """Predicted time of one step of `plan`."""
    out = inline_loops(graph)
    parts: defaultdict[tuple[str, str], float] = defaultdict(float)
    graph, plan = out.graph, out.unfolded(plan)
    operators, transfers = [0.0] * len(graph.operators), [0.0] * (len(graph.operators) + 1)
    for number, (operator, planned, late) in enumerate(
        zip(graph.operators, plan.operators, late_operators(graph), strict=True)
    ):
        # Marks and barriers run no kernel.
        if operator.name not in IDENTITIES:
            rule = rule_for(operator.operation)
            weight = operator.times * (model.late_computing if late else 1.0)
            seconds = weight * model.seconds(operator.operation, rule, planned.assignment, plan.mesh)
            operators[number] += seconds
            parts["", _part(operator, late)] += seconds
    made_late, times, sharing = late_tensors(graph), rounds(graph), num_sharing(graph)
    collectives: dict[str, tuple[int, int]] = {}
    kinds = overlaps(graph)
    for group in schedule(graph, plan):
        for transfer in group:
            spec, way = graph.tensors[transfer.tensor], transfer.redistribution
            links = model.links.shared_by(sharing[transfer.tensor])
            # Costed again, since the links of this tensor may share their starts with other tensors.
            costed = redistribute(spec.shape, spec.itemsize, way.source, way.target, plan.mesh, plan.alltoall, links)
            # By the tensor's own rounds: a transfer happens as often as its tensor is made.
            count = times[transfer.tensor]
            weight = count * (model.late_communication if transfer.tensor in made_late else 1.0)
            transfers[transfer.operator] += weight * costed.seconds
            for move in costed.moves:
                parts[kinds[transfer.tensor], move.collective or MEMORY_BOUND] += weight * move.seconds
            for move in way.moves:
                if move.collective:
                    before, size = collectives.get(move.collective, (0, 0))
                    collectives[move.collective] = before + count, size + count * move.local_bytes
    return PlanCost(tuple(operators), tuple(transfers), collectives, dict(parts))


def _part(operator: Operator, late: bool) -> str:
    """What an operator's time counts as."""
    if late and not operator.backward:
        return "update"
    if operator.operation.fused:
        return "attention"
    return "products" if is_product(operator.operation) else MEMORY_BOUND


def kernel_seconds(graph: OperatorGraph, plan: Plan, model: Roofline) -> float:
    """Predicted time of one step of the compiled plan."""
    # Communication is the same with and without fusion, so it is taken over.
    cost = cost_of(graph, plan, model)
    out = inline_loops(graph)
    plan = out.unfolded(plan)
    timeline = Timeline(out.graph, plan)
    step = backend_of(model.platform).compiled(timeline)
    # Collectives are in the communication already; several products, and one of several kernels of an operator, are costed by it.
    roots = ((kernel, kernel.roots[0]) for kernel in step.kernels)
    alone = ((kernel, root) for kernel, root in roots if not root.sends and root.kind is not Kind.FUSED)
    working = [kernel for kernel, root in alone if timeline.events[root.event].island is None]
    computing = sum(_seconds(kernel, step, timeline, plan, model) for kernel in working)
    computing += _seconds_of_parts(out.graph, plan, model)
    shares = exposed_shares(cost.by_overlap, computing, model.profile.hidden.items())
    return float(computing + sum(shares[kind] * seconds for kind, seconds in cost.by_overlap.items()))


def _seconds_of_parts(graph: OperatorGraph, plan: Plan, model: Roofline) -> float:
    """Kernels of attention and of islands."""
    return sum(
        operator.times
        * (model.late_computing if operator.backward else 1.0)
        * model.seconds(operator.operation, rule_for(operator.operation), planned.assignment, plan.mesh)
        for operator, planned in zip(graph.operators, plan.operators, strict=True)
        if (operator.operation.fused and model.profile.attention) or "island" in operator.operation.params
    )


def _seconds(kernel: Kernel, step: KernelSchedule, timeline: Timeline, plan: Plan, model: Roofline) -> float:
    """The longer of arithmetic and memory traffic, plus the launch."""
    # Each array once: what a kernel computes inside stays in registers.
    moved = sum(step.sizes[array] for array in (*kernel.reads, *kernel.writes))
    arithmetic = 0.0
    (root,) = kernel.roots
    event = timeline.events[root.event]
    operator = event.operator
    # Only products do enough arithmetic to be slower than their memory traffic.
    if operator is not None and is_product(operator.operation) and not kernel.rearranges:
        assignment = plan.operators[event.position].assignment
        rate = model.flops_per_second(operator.operation)
        arithmetic = local_flops(rule_for(operator.operation), assignment, plan.mesh) / rate
    late = operator is not None and operator.backward
    seconds = model.profile.launch_seconds + max(moved / model.profile.bytes_per_second, arithmetic)
    return seconds * (1 if operator is None else operator.times) * (model.late_computing if late else 1.0)
