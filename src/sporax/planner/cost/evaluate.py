"""The cost of a complete plan, term by term, from the plan alone.

Problem: a search adds up costs of decisions and of pairs of decisions; an error there would go unseen.

Method: none of a search's sums is used. Operators cost what the model says of their slices, and transfers are those of the
schedule that the lowering executes (`planner.communication.transfers`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from sporax.base.text_tables import size_text
from sporax.ir.graph import IDENTITIES, Operator, OperatorGraph
from sporax.ir.plan import Plan
from sporax.planner.communication.resharding import redistribute
from sporax.planner.communication.transfers import schedule
from sporax.planner.cost.combined_collectives import late_operators, late_tensors, num_sharing, overlaps, rounds
from sporax.planner.cost.model import CostModel, is_product
from sporax.planner.loops.inline import inline_loops
from sporax.planner.rules import rule_for

KINDS_OF_OVERLAP = ("weights", "gradients", "tensor")
MEMORY_BOUND = "memory-bound work"
"""Part of a step: what copies and elementwise operators do."""


@dataclass(frozen=True, slots=True)
class PlanCost:
    """Predicted time of one step.

    Attributes:
        operator_seconds: per operator of the step with its loops written out, as often as it runs.
        transfer_seconds: per operator, of the transfers that it asks for; those of the step's results are last.
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
