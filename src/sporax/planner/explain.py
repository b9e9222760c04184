"""Plans that can be questioned: what a plan does, why an operator is cut as it is, how two plans differ."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sporax.ir.errors import SporaxValueError
from sporax.ir.graph import LITERAL, MARK, Operator, OperatorGraph, Role
from sporax.ir.placement import Placement
from sporax.ir.plan import Plan
from sporax.planner.cost.evaluate import cost_of
from sporax.planner.cost.lateness import late_operators, late_tensors, rounds
from sporax.planner.cost.model import CostModel
from sporax.planner.cost.symbolic import unit_of
from sporax.planner.loops import written_out
from sporax.planner.memory import memory_of
from sporax.planner.redistribution import redistribute
from sporax.planner.rules import Assignment, Rule, placements, rule_for
from sporax.planner.rules.loops import RULES
from sporax.planner.search.menu import Units, cuts_of, natural_units
from sporax.planner.search.operators import is_light


def summary(graph: OperatorGraph, plan: Plan, model: CostModel | None = None) -> str:
    """What a plan does, for people: variables, operators that are cut, cost and memory.

    Args:
        graph: the step.
        plan: its plan.
        model: prices the plan; without one no times are given.
    """
    rows = [("variable", "shape", "placement", "on one device")]
    for each, placement in zip(graph.inputs, plan.inputs, strict=True):
        if each.role is not Role.CONSTANT:
            shape = graph.tensors[each.tensor].shape
            local = placement.local_shape(shape, plan.mesh)
            rows.append((each.name or str(each.tensor), str(shape), _at(placement, plan), str(local)))
    operators = [("operator", "at", "operands", "results")]
    for operator, planned in zip(graph.operators, plan.operators, strict=True):
        if not is_light(operator) and operator.name != MARK:
            operators.append(
                (operator.name, operator.path, _listed(planned.operands, plan), _listed(planned.results, plan))
            )
    lines = [str(plan), "", *_table(rows), "", *_table(operators), ""]
    if model is not None:
        lines.append(f"time    {cost_of(graph, plan, model)}")
    lines.append(f"memory  {memory_of(graph, plan)}")
    return "\n".join([*lines, *(f"note    {note}" for note in plan.notes)])


@dataclass(frozen=True, slots=True)
class Alternative:
    """One way to cut an operator, everything else staying as it is.

    Attributes:
        assignment: the cut.
        operands, results: where they lie then.
        operator_seconds: the operator's own time.
        fetch_seconds: to bring its operands there from where they lie.
        deliver_seconds: to bring its results to where their readers want them.
        chosen: whether it is the plan's.
    """

    assignment: Assignment
    operands: tuple[Placement, ...]
    results: tuple[Placement, ...]
    operator_seconds: float
    fetch_seconds: float
    deliver_seconds: float
    chosen: bool = False

    @property
    def seconds(self) -> float:
        """All three together."""
        return self.operator_seconds + self.fetch_seconds + self.deliver_seconds

    def why_not(self, chosen: Alternative, unit: str = "s") -> str:
        """The terms in which it is dearer or cheaper than the chosen one; `unit` is that of the costs."""
        if self.chosen:
            return "chosen"
        terms = {
            "computing": self.operator_seconds - chosen.operator_seconds,
            "operands": self.fetch_seconds - chosen.fetch_seconds,
            "results": self.deliver_seconds - chosen.deliver_seconds,
        }
        shown, scale = _shown(unit)
        told = [f"{name} {change * scale:+.3f} {shown}" for name, change in terms.items() if abs(change) > 1e-12]
        return ", ".join(told) or "as good"


@dataclass(frozen=True, slots=True)
class Explanation:
    """The alternatives of one operator, the cheapest first.

    Attributes:
        operator: its position.
        title: what it is.
        rule: as text.
        alternatives: the plan's own is among them.
        unit: of their costs.
    """

    operator: int
    title: str
    rule: str
    alternatives: tuple[Alternative, ...]
    unit: str = "s"

    @property
    def chosen(self) -> Alternative:
        """The plan's way."""
        return next(each for each in self.alternatives if each.chosen)

    def __str__(self) -> str:
        shown, scale = _shown(self.unit)
        rows = [("", "operands", "results", shown, "beside the chosen one")]
        for each in self.alternatives:
            operands, results = (" ".join(map(str, places)) for places in (each.operands, each.results))
            mark = "*" if each.chosen else ""
            rows.append((mark, operands, results, f"{each.seconds * scale:.3f}", each.why_not(self.chosen, self.unit)))
        return "\n".join([f"{self.title}", f"  {self.rule}", *_table(rows)])


def _shown(unit: str) -> tuple[str, float]:
    """What costs are shown in, and how many of these are one of theirs."""
    return ("µs", 1e6) if unit == "s" else (unit, 1.0)


class Explanations(tuple[Explanation, ...]):
    """Several explanations; ``print`` shows them one below the other."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n\n".join(map(str, self))


def explain(
    graph: OperatorGraph, plan: Plan, model: CostModel, path: str, units: Units = (), most: int = 8
) -> Explanations:
    """Why operators are cut as they are: their alternatives, with everything around them as the plan has it.

    An alternative that looks cheaper here is one that the neighbours, too, would have to follow to be so, or one outside the
    menu of the search. Loops are written out: an operator inside counts as often as it runs, and has a number behind those before
    the loop.

    Args:
        graph: the step.
        plan: its plan.
        model: prices operators and moves.
        path: where the operators stand: ``"layers.3.attn.q"`` or whole names out of it; or an operator's position,
            ``"#17"``.
        units: axes to hand out together; two runs by default.
        most: alternatives to tell of.

    Raises:
        SporaxValueError: no operator stands there, or nothing is to be told.
    """
    if not isinstance(path, str) or most < 1:
        raise SporaxValueError(
            f"For 'explain', 'path' must be a text and 'most' at least 1, but got {path!r} and {most!r}."
        )
    out = written_out(graph)
    graph, plan = out.graph, out.unfolded(plan)
    numbers = [number for number, operator in enumerate(graph.operators) if _stands_at(number, operator, path)]
    heavy = [number for number in numbers if not is_light(graph.operators[number])]
    if not numbers:
        known = sorted({operator.path for operator in graph.operators if operator.path})
        near = difflib.get_close_matches(path, known, 3, cutoff=0.0)
        such = f"one of the program's, such as {near}, or " if near else ""
        raise SporaxValueError(
            f"For 'explain', 'path' must be {such}'#' with a number below {len(graph.operators)}, but got '{path}'."
        )
    questioner = _Questioner(graph, plan, model, units or natural_units(plan.mesh, model.links))
    return Explanations(questioner.explanation(number, most) for number in heavy or numbers)


def _stands_at(number: int, operator: Operator, path: str) -> bool:
    if operator.name == MARK or operator.name in RULES:
        return False
    if path.startswith("#"):
        return path[1:] == str(number)
    return f".{path}." in f".{operator.path}."


class _Questioner:
    def __init__(self, graph: OperatorGraph, plan: Plan, model: CostModel, units: Units) -> None:
        self.graph, self.plan, self.model, self.units = graph, plan, model, units
        self.late, self.made_late, self.rounds = late_operators(graph), late_tensors(graph), rounds(graph)
        self.lies: dict[int, Placement] = dict(zip((each.tensor for each in graph.inputs), plan.inputs, strict=True))
        self.wanted: dict[int, dict[Placement, None]] = {}
        for operator, planned in zip(graph.operators, plan.operators, strict=True):
            self.lies.update(zip(operator.results, planned.results, strict=True))
            for tensor, where in zip(operator.operands, planned.operands, strict=True):
                self.wanted.setdefault(tensor, {})[where] = None
        for tensor, where in zip(graph.outputs, plan.outputs, strict=True):
            self.wanted.setdefault(tensor, {})[where] = None
        for tensor, settlement in plan.settled.items():
            self.lies[tensor] = settlement.placement
            self.wanted[tensor] = {settlement.placement: None}

    def explanation(self, number: int, most: int) -> Explanation:
        operator, planned = self.graph.operators[number], self.plan.operators[number]
        rule = rule_for(operator.operation)
        own = self._alternative(number, rule, planned.assignment, chosen=True)
        found = {(own.operands, own.results): own}
        for assignment in cuts_of(rule, self.plan.mesh, self.units):
            each = self._alternative(number, rule, assignment)
            found.setdefault((each.operands, each.results), each)
        ordered = sorted(found.values(), key=lambda each: (each.seconds, not each.chosen))
        told = ordered[:most] if own in ordered[:most] else [*ordered[: most - 1], own]
        return Explanation(number, f"operator {number}: {operator}", str(rule), tuple(told), unit_of(self.model))

    def _alternative(self, number: int, rule: Rule, assignment: Assignment, chosen: bool = False) -> Alternative:
        operator = self.graph.operators[number]
        operands, results = placements(rule, assignment)
        weight = operator.times * (self.model.late_computing if self.late[number] else 1.0)
        seconds = weight * self.model.seconds(operator.operation, rule, assignment, self.plan.mesh)
        fetch = {
            (tensor, where): self._move(tensor, self.lies[tensor], where)
            for tensor, where in zip(operator.operands, operands, strict=True)
            if tensor != LITERAL
        }
        deliver = {
            (tensor, where): self._move(tensor, result, where)
            for tensor, result in zip(operator.results, results, strict=True)
            for where in self.wanted.get(tensor, ())
        }
        return Alternative(assignment, operands, results, seconds, sum(fetch.values()), sum(deliver.values()), chosen)

    def _move(self, tensor: int, source: Placement, target: Placement) -> float:
        spec = self.graph.tensors[tensor]
        way = redistribute(
            spec.shape, spec.itemsize, source, target, self.plan.mesh, self.plan.alltoall, self.model.links
        )
        return way.seconds * self.rounds[tensor] * (self.model.late_communication if tensor in self.made_late else 1.0)


def diff(graph: OperatorGraph, first: Plan, second: Plan, every: bool = False) -> str:
    """Where two plans of one graph differ: variables, results, operators. "" when they do not.

    Args:
        graph: the graph of both.
        first, second: the plans.
        every: also tell of operators that follow others.

    Raises:
        SporaxValueError: the plans are of different meshes.
    """
    if first.mesh != second.mesh:
        raise SporaxValueError(f"For 'diff', the plans must be of one mesh, but got {first.mesh} and {second.mesh}.")
    return "\n".join(_table([*_differences(graph, first, second, every)]))


def _differences(graph: OperatorGraph, first: Plan, second: Plan, every: bool) -> Iterator[tuple[str, ...]]:
    for each, one, other in zip(graph.inputs, first.inputs, second.inputs, strict=True):
        if one != other:
            yield f"variable {each.name or each.tensor}", _at(one, first), "→", _at(other, second)
    for position, (one, other) in enumerate(zip(first.outputs, second.outputs, strict=True)):
        if one != other:
            yield f"result {position}", _at(one, first), "→", _at(other, second)
    for number, (a, b) in enumerate(zip(first.operators, second.operators, strict=True)):
        operator = graph.operators[number]
        if (a.operands, a.results) != (b.operands, b.results) and (every or not is_light(operator)):
            texts = [f"{_listed(each.operands, first)} → {_listed(each.results, first)}" for each in (a, b)]
            yield f"operator {number} {operator.name} {operator.path}".rstrip(), texts[0], "→", texts[1]


def _listed(places: Sequence[Placement], plan: Plan) -> str:
    return " ".join(_at(each, plan) for each in places)


def _at(placement: Placement, plan: Plan) -> str:
    """With names of axes where the mesh has them, else with their numbers."""
    return placement.on(plan.mesh) if plan.mesh.names else str(placement)


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns lined up."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
