"""Why an operator is sharded as it is: the alternatives, their costs, and why they were not chosen."""

from __future__ import annotations

import itertools
import math
import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property

from sporax.base.errors import For, SporaxTypeError
from sporax.ir.graph import LITERAL, OperatorGraph
from sporax.ir.placement import Placement, num_parts
from sporax.ir.plan import Plan
from sporax.planner.communication.resharding import redistribute
from sporax.planner.cost.combined_collectives import late_operators, late_tensors, num_sharing, rounds
from sporax.planner.cost.model import CostModel, local_bytes
from sporax.planner.cost.symbolic import unit_of
from sporax.planner.loops.inline import inline_loops
from sporax.planner.memory.peak import MemoryProfile, backend_of
from sporax.planner.rules import Assignment, FactorKind, Rule, placements, propagate
from sporax.planner.search.space.operator_rules import Units, assignments_of, is_identity, natural_units, rule_of
from sporax.report.view.axis_names import names_of
from sporax.report.view.explanation import Alternative, Explanation, Explanations, OperandTransfer, rule_text
from sporax.report.view.operator_names import OperatorNames


def explain(
    graph: OperatorGraph, plan: Plan, model: CostModel, path: str, most: int = 8, memory_bytes: int | None = None
) -> Explanations:
    """Why operators are sharded as they are: their alternatives, with everything around them as the plan has it.

    An alternative of lower cost here is one that the neighbours, too, would have to follow to be so, or one outside the
    search space. Loops are inlined: an operator inside counts as often as it runs, and has a number behind those before
    the loop.

    Args:
        graph: the step.
        plan: its plan.
        model: the cost of operators and moves.
        path: where the operators are: ``"layers.3.attn.q"`` or whole names out of it; or an operator's position,
            ``"#17"``; or a variable that they read; or an operator of the facade or a primitive, ``"MatMul"``,
            ``"dot_general"``; or a row of a summary, ``"layers.0-59.q MatMul"``.
        most: alternatives to report.
        memory_bytes: of one device; what does not fit says so.

    Raises:
        SporaxTypeError: a path that is no text, or a number that is none.
        SporaxValueError: no operator is there, or there is nothing to show.
    """
    For("explain").refuse_type(not isinstance(path, str), "'path' must be a text", path, show=reprlib.repr)
    check_count("explain", "most", most)
    out = inline_loops(graph)
    graph, plan = out.graph, out.unfolded(plan)
    names = OperatorNames(graph)
    explainer = _Explainer(graph, plan, model, names, natural_units(plan.mesh, model.links), memory_bytes)
    explanations = [explainer.explanation(number, most) for number in names.resolve(path)]
    placements = (
        place
        for item in explanations
        for alternative in item.alternatives
        for place in (*alternative.operands, *alternative.results)
    )
    axes = names_of(plan, placements)
    return Explanations(replace(item, axes=axes) for item in explanations)


def check_count(question: str, name: str, value: object) -> None:
    """Raise unless a number of answers is one, 1 or more."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise SporaxTypeError(f"For '{question}', '{name}' must be an int, but got {reprlib.repr(value)}.")
    For(question).refuse(value < 1, f"'{name}' must be at least 1", value)


class _Explainer:
    """Costs of other ways to shard single operators. Arguments as for `explain`; `names` are those of the graph."""

    def __init__(
        self,
        graph: OperatorGraph,
        plan: Plan,
        model: CostModel,
        names: OperatorNames,
        units: Units,
        memory_bytes: int | None,
    ) -> None:
        self.graph, self.plan, self.model, self.names, self.units = graph, plan, model, names, units
        self.memory_bytes = memory_bytes
        self.late, self.made_late, self.rounds = late_operators(graph), late_tensors(graph), rounds(graph)
        self.sharing = num_sharing(graph)
        self.placement_of: dict[int, Placement] = dict(
            zip((argument.tensor for argument in graph.inputs), plan.inputs, strict=True)
        )
        self.read_placements: dict[int, dict[Placement, None]] = {}
        for operator, planned in zip(graph.operators, plan.operators, strict=True):
            self.placement_of.update(zip(operator.results, planned.results, strict=True))
            for tensor, where in zip(operator.operands, planned.operands, strict=True):
                self.read_placements.setdefault(tensor, {})[where] = None
        for tensor, where in zip(graph.outputs, plan.outputs, strict=True):
            self.read_placements.setdefault(tensor, {})[where] = None
        for tensor, resharding in plan.reshardings.items():
            # It is resharded once, where it is made; after that it is at the new placement for every reader.
            self.placement_of[tensor] = resharding.placement
            self.read_placements[tensor] = {resharding.placement: None}

    def explanation(self, number: int, most: int) -> Explanation:
        operator, planned = self.graph.operators[number], self.plan.operators[number]
        rule, assignment = rule_of(operator), planned.assignment
        if is_identity(operator):
            assignment = propagate(rule, self.plan.mesh, planned.operands)
        own = self._alternative(number, rule, assignment, chosen=True)
        # By placements, not by assignment: shardings with equal placements are one answer to the reader. The one of the plan
        # comes first and stands for those like it.
        alternatives = {(own.operands, own.results): own}
        is_island = "island" in operator.operation.params
        for assignment in () if is_island else assignments_of(rule, self.plan.mesh, self.units):
            other = self._alternative(number, rule, assignment)
            alternatives.setdefault((other.operands, other.results), other)
        ordered = sorted(alternatives.values(), key=lambda item: (item.seconds, not item.chosen))
        # The plan's own choice is always shown, whatever else is left out.
        reported = ordered[:most] if own in ordered[:most] else [*ordered[: most - 1], own]
        notes = (
            ["the user's program says this sharding: no search takes another"]
            if operator.constraint or is_island
            else []
        )
        notes += () if is_island else self._impossible(rule)
        if len(ordered) > len(reported):
            notes.append(f"{len(ordered) - len(reported)} more alternatives: most={len(ordered)} shows them")
        # The plan as a whole has the least cost; equal costs differ in the last digits by the order of summation.
        if ordered[0].seconds < own.seconds * (1 - 1e-9):
            notes.append("an alternative of lower cost would also change its neighbours, which costs more in total")
        return Explanation(
            number,
            self.names.title(number),
            rule_text(rule),
            tuple(self._within_memory(number, own, entry) for entry in reported),
            names_of(self.plan),
            unit_of(self.model),
            tuple(notes),
        )

    def _alternative(self, number: int, rule: Rule, assignment: Assignment, chosen: bool = False) -> Alternative:
        operator = self.graph.operators[number]
        operands, results = placements(rule, assignment)
        weight = operator.times * (self.model.late_computing if self.late[number] else 1.0)
        seconds = weight * self.model.seconds(operator.operation, rule, assignment, self.plan.mesh)
        # An operand that is read twice at one placement is brought there once.
        pairs = dict.fromkeys(zip(operator.operands, operands, strict=True))
        fetches = (
            self._operand_transfer(self.names.operand(tensor, number), tensor, self.placement_of[tensor], where)
            for tensor, where in pairs
            if tensor != LITERAL and self.placement_of[tensor] != where
        )
        deliveries = (
            self._operand_transfer(self.names.reader(tensor, number), tensor, result, where)
            for tensor, result in zip(operator.results, results, strict=True)
            for where in self.read_placements.get(tensor, ())
            if result != where
        )
        parts = num_parts(self.plan.mesh, tuple(itertools.chain(*assignment)))
        return Alternative(assignment, operands, results, parts, seconds, tuple(fetches), tuple(deliveries), chosen)

    def _operand_transfer(self, what: str, tensor: int, source: Placement, target: Placement) -> OperandTransfer:
        spec, mesh = self.graph.tensors[tensor], self.plan.mesh
        links = self.model.links.shared_by(self.sharing[tensor])
        way = redistribute(spec.shape, spec.itemsize, source, target, mesh, self.plan.alltoall, links)
        count = self.rounds[tensor] * (self.model.late_communication if tensor in self.made_late else 1.0)
        moves = tuple((move.collective, move.local_bytes) for move in way.moves if move.collective)
        return OperandTransfer(what, moves, way.seconds * count)

    def _impossible(self, rule: Rule) -> Iterator[str]:
        """Shardings that are not among the alternatives, and why."""
        sets = itertools.chain(*(itertools.combinations(self.units, count + 1) for count in range(len(self.units))))
        # Products over all sets of units: a dimension can be sharded over several at once.
        sizes = sorted({math.prod(num_parts(self.plan.mesh, unit) for unit in units) for units in sets})
        shardable = [factor for factor in rule.factors if factor.kind not in (FactorKind.PARTIAL, FactorKind.BLOCKED)]
        for size in dict.fromkeys(factor.size for factor in shardable):
            factors = [factor for factor in shardable if factor.size == size]
            uneven = [str(parts) for parts in sizes if not all(factor.allows(parts) for factor in factors)]
            if uneven and size > 1:
                yield f"a dimension of {size} does not divide into {' or '.join(uneven)} parts"

    def _within_memory(self, number: int, own: Alternative, other: Alternative) -> Alternative:
        """An alternative with what it lacks: it takes more than the chosen one does, and that is not there."""
        if self.memory_bytes is None or other.chosen:
            return other
        more = self._extra_bytes(number, other) - self._extra_bytes(number, own)
        if more <= 0:
            return other
        # Before it runs its operands are there, after it its results; which one is more depends on what it frees.
        in_use = max(self._memory.get(number, 0), self._memory.get(number + 1, 0))
        lacking = in_use + more - self.memory_bytes
        return replace(other, lacking_bytes=max(lacking, 0))

    def _extra_bytes(self, number: int, alternative: Alternative) -> int:
        """Bytes of one device: the results, and copies of operands that are elsewhere."""
        operator, tensors, mesh = self.graph.operators[number], self.graph.tensors, self.plan.mesh
        copies = {
            tensor: where
            for tensor, where in zip(operator.operands, alternative.operands, strict=True)
            if tensor != LITERAL and self.placement_of[tensor] != where
        }
        results = zip(operator.results, alternative.results, strict=True)
        return sum(local_bytes(tensors[tensor], where, mesh) for tensor, where in (*copies.items(), *results))

    @cached_property
    def _memory(self) -> Mapping[int, int]:
        """For how many operators have run the bytes in use; what is not listed is as before."""
        reported = {
            count: sum(uses.values())
            for count, uses in MemoryProfile(self.graph, self.plan, backend_of(self.model.platform)).history
        }
        in_use, last = {}, reported.get(-1, 0)
        for count in range(len(self.graph.operators) + 1):
            in_use[count] = last = reported.get(count, last)
        return in_use
