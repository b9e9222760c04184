"""Groups: which of a step's many primitives belong to which operator of the facade, and what each group communicates.

Problem: a user wrote ``MatMul``; the graph has a mark at its entrance, a few primitives, a mark at its exit, and later
their derivatives between the derivatives of the marks.

Method: `operator_groups` walks through the graph once and collects the operators between two marks. Operators outside
of all marks (an optimizer's arithmetic, a random key) are collected by their path. Functions in plain JAX have no
marks. There every heavy operator is a group, with the light operators that use its results; its name is its path
(`jax.named_scope`, a module of Flax) or else the variable that it reads.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from sporax.base.identity import ByIdentity
from sporax.ir import marks
from sporax.ir.graph import LITERAL, MARK, Operator, OperatorGraph, Role
from sporax.ir.island import Island
from sporax.ir.placement import Placement
from sporax.ir.plan import OperatorPlan, Plan, Resharding
from sporax.planner.communication.transfers import TransferGroup, schedule
from sporax.planner.cost.combined_collectives import late_tensors
from sporax.planner.loops.graph_writer import Part
from sporax.planner.loops.inline import inline_loops
from sporax.planner.rules import local_flops, rule_for
from sporax.planner.search.space.operator_rules import is_identity, is_light
from sporax.report.view.operator_names import PREFIX, gradient_names, joined, product_name, variable_names


class StepPhase(Enum):
    """Part of a step."""

    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "update"
    """Combining gradients, and what follows on it."""


@dataclass(slots=True)
class OperatorGroup:
    """What belongs to one call of one operator of the facade, or to one heavy primitive, in one phase.

    Attributes:
        path, name: where it is and what it is; the name is "" for operators outside of all marks.
        phase: part of the step.
        requested: whether the user gave the strategy.
        inputs, results: where its tensors are at the entrance and at the exit; of the backward phase, the cotangents.
        transfers: what is moved for it, with the number of times per step.
        islands: those of the user in it, in the same way, for what is moved inside of them.
        flops: floating-point operations of one device.
        operators: positions in the step's graph; those inside of loops and branches are not listed.
        inner: positions in the step with its loops and branches written out.
    """

    path: str
    name: str
    phase: StepPhase
    requested: bool = False
    inputs: tuple[Placement, ...] = ()
    results: tuple[Placement, ...] = ()
    transfers: list[tuple[TransferGroup, int]] = field(default_factory=list)
    islands: list[tuple[Island, int]] = field(default_factory=list)
    flops: float = 0.0
    operators: list[int] = field(default_factory=list)
    inner: list[int] = field(default_factory=list)


def operator_groups(graph: OperatorGraph, plan: Plan) -> tuple[OperatorGroup, ...]:
    """The groups of a step, in the order in which their first operators run."""
    marked = any(isinstance(operator.mark, marks.OperatorMark) for operator in graph.walk())
    out = inline_loops(graph)
    # Without marks (plain JAX), heavy operators take the place of the facade's operators.
    walk = _GroupCollector(frozenset(plan.overwritten)) if marked else _UnmarkedGroupCollector(out.graph)
    walk.collect(out.root, plan, 1, outermost=True)
    groups = walk.groups.values()
    # What relates the inside of a loop to its outside belongs to the loop.
    loops = {number: group for group in groups for number in group.operators}
    listed = {number for group in groups for number in group.inner}
    for number, owner in enumerate(out.owners):
        if number not in listed:
            loops[owner].inner.append(number)
    return tuple(groups)


class _GroupCollector:
    def __init__(self, overwritten: frozenset[int] = frozenset()) -> None:
        self.overwritten = overwritten
        """Operators whose strategies are not the user's any more."""
        self.groups: dict[Hashable, OperatorGroup] = {}
        self.open: OperatorGroup | None = None
        self.updates = False

    def collect(self, part: Part, plan: Plan, times: int, outermost: bool = False) -> None:
        """Collect the operators of a part that runs `times` per step."""
        graph = part.graph
        transfers = schedule(graph, plan)
        gradients = _gradients(graph)
        # Where the last gradients are finished and the update starts; -1 where there are no gradients.
        learnt = max(
            (n for n, entry in enumerate(graph.operators) if isinstance(entry.mark, marks.GradientMark)), default=-1
        )
        self._collect_moves(transfers.at_start, "weights for use", StepPhase.FORWARD, times)
        for number, (operator, planned) in enumerate(zip(graph.operators, plan.operators, strict=True)):
            mark, place = operator.mark, part.operators[number]
            # Behind the last finished gradient everything belongs to the update.
            self.updates = self.updates or number == learnt
            group = self._group_of(part, number, planned)
            if isinstance(place, int):
                group.inner.append(place)
            if outermost:
                group.operators.append(number)
            group.flops += times * _flops(operator, planned, plan)
            if (island := operator.operation.params.get("island")) is not None:
                group.requested = True
                group.islands.append((island, times))
            for fused in (*transfers.before[number], *transfers.after[number]):
                # A gradient's transfer belongs to the gradients, even if the operator that reads it is the optimizer's.
                own = fused[0].tensor not in gradients
                (group if own else self._gradient_group()).transfers.append((fused, times))
            if mark is not None:
                self._record_placements(
                    group, mark, planned, [plan.reshardings.get(tensor) for tensor in operator.results]
                )
            # Bodies run as often as their loop; a body's operators have positions of their own and are not listed.
            inside = times * _rounds(operator)
            for body, body_plan in zip(() if isinstance(place, int) else place.bodies, planned.bodies, strict=True):
                self.collect(body.part, body_plan, inside)
        self._collect_moves(transfers.at_end, "results", StepPhase.UPDATE, times)

    def _collect_moves(self, transfers: Sequence[TransferGroup], name: str, phase: StepPhase, times: int) -> None:
        """Moves of arguments or results, which no operator requested."""
        if transfers:
            group = self._group(name, "", name, phase)
            group.transfers += [(fused, times) for fused in transfers]

    def _group(self, key: Hashable, path: str, name: str, phase: StepPhase) -> OperatorGroup:
        if key not in self.groups:
            self.groups[key] = OperatorGroup(path, name, phase)
        return self.groups[key]

    def _gradient_group(self) -> OperatorGroup:
        return self._group("gradients", "", "gradients", StepPhase.UPDATE)

    def _group_of(self, part: Part, number: int, planned: OperatorPlan) -> OperatorGroup:
        """The group of an operator."""
        operator = part.graph.operators[number]
        return self._group_at(operator, operator.mark)

    def _group_at(self, operator: Operator, mark: marks.Mark | None) -> OperatorGroup:
        """The group that an operator belongs to; an entrance opens one."""
        # Marks of other kinds end what was open, since they stand between operators.
        if isinstance(mark, marks.GradientMark):
            self.open = None
            return self._gradient_group()
        if isinstance(mark, marks.RankSumMark):  # a factor of what is around it
            return self._group((operator.path, StepPhase.UPDATE), operator.path, "", StepPhase.UPDATE)
        if isinstance(mark, marks.LossMark | marks.WeightMark):
            self.open = None
            name = "loss" if isinstance(mark, marks.LossMark) else "weights for use"
            return self._group((name, StepPhase.BACKWARD), "", name, StepPhase.BACKWARD)
        about = mark.of if isinstance(mark, marks.DerivativeMark) else mark
        # What says how many rows there are, or where a `bprop` begins, belongs to whatever is open.
        if mark is not None and about is not None and not isinstance(about, marks.RowsMark) and not _is_at_bprop(about):
            phase = self._phase(operator.backward or _is_backward(mark))
            name = about.operator if isinstance(about, marks.OperatorMark) else f"layout of {about.requester}"
            self.open = self._group((about.number, phase), operator.path, name, phase)
            return self.open
        # Backward operators may have left the Cell of the open group: then they belong to their own path.
        if self.open is not None and f"{operator.path}.".startswith(f"{self.open.path}." if self.open.path else ""):
            return self.open
        phase = self._phase(operator.backward)
        return self._group((operator.path, phase), operator.path, "", phase)

    def _phase(self, backward: bool) -> StepPhase:
        return StepPhase.BACKWARD if backward else StepPhase.UPDATE if self.updates else StepPhase.FORWARD

    def _record_placements(
        self, group: OperatorGroup, mark: marks.Mark, planned: OperatorPlan, reshardings: Sequence[Resharding | None]
    ) -> None:
        """Remember where tensors are at a mark; an exit closes its group."""
        about = mark.of if isinstance(mark, marks.DerivativeMark) else mark
        if isinstance(
            about, marks.GradientMark | marks.LossMark | marks.RankSumMark | marks.RowsMark | marks.WeightMark
        ) or _is_at_bprop(about):
            return
        # Backward, cotangents enter at the operator's exit and leave at its entrance.
        enters = isinstance(about, marks.LayoutMark) or (about.side is marks.Side.IN) != _is_backward(mark)
        exits = isinstance(about, marks.LayoutMark) or not enters
        if exits:
            self.open = None
        if isinstance(mark, marks.DerivativeMark) and not mark.backward:
            return  # tangents, next to the tensors themselves
        group.requested = isinstance(about, marks.LayoutMark) or (
            about.in_strategy is not None and about.number not in self.overwritten
        )
        if enters:
            group.inputs = planned.operands
        if exits:
            group.results = tuple(
                placement if resharding is None else resharding.placement
                for resharding, placement in zip(reshardings, planned.results, strict=True)
            )


class _UnmarkedGroupCollector(_GroupCollector):
    """Through a graph without marks; facts are those of the graph with its loops written out."""

    def __init__(self, graph: OperatorGraph) -> None:
        super().__init__()
        self.makers: dict[int, tuple[int, OperatorGroup]] = {}
        """For every tensor the group that made it, and its place among them."""
        self.late, self.gradients = late_tensors(graph), gradient_names(graph)
        self.names = variable_names(graph, (Role.PARAMETER, Role.STATE))

    def _group_of(self, part: Part, number: int, planned: OperatorPlan) -> OperatorGroup:
        operator, place = part.graph.operators[number], part.operators[number]
        read = [part.tensors[operand] for operand in operator.operands if operand != LITERAL]
        made = [part.tensors[result] for result in operator.results]
        otherwise = StepPhase.FORWARD if self.late.isdisjoint(made) else StepPhase.UPDATE
        phase = StepPhase.BACKWARD if operator.backward else otherwise
        key = ByIdentity(part), number
        if not is_light(operator) and not is_identity(operator):
            path = operator.path
            if isinstance(place, int):
                # A layer of a functional network has no path of its own; its variable names it better than a number, and
                # distinguishes the products of one path.
                path = joined(path, next(filter(None, map(self.names.get, read)), ""))
                path = f"{PREFIX}{self.gradients[place]}" if place in self.gradients else path
            group = self._group(key, path, product_name(operator), phase)
            group.inputs, group.results = planned.operands, planned.results
            self.makers.update(dict.fromkeys(made, (len(self.groups), group)))
            return group
        maker = _latest(filter(None, map(self.makers.get, read)), phase)
        if maker is not None:
            self.makers.update(dict.fromkeys(made, maker))
        if isinstance(operator.mark, marks.LayoutMark):
            # What reads the tensor behind it still belongs to who made it.
            return self._group(key, operator.path, operator.mark.requester, phase)
        if maker is not None:
            return maker[1]
        # It reads nothing that was made by a group: constants and conversions of variables.
        return self._group((operator.path, phase), operator.path, "", phase)


def _latest(makers: Iterable[tuple[int, OperatorGroup]], phase: StepPhase) -> tuple[int, OperatorGroup] | None:
    """The latest group of a phase: an operator that reads two belongs to the one that it had to wait for."""
    return max((maker for maker in makers if maker[1].phase is phase), key=lambda maker: maker[0], default=None)


def _is_at_bprop(mark: marks.Mark) -> bool:
    """Whether it is where a call enters or ends whose gradients the user computes."""
    return isinstance(mark, marks.LayoutMark) and mark.bprop is not None


def _is_backward(mark: marks.Mark) -> bool:
    """Whether cotangents pass, on their way back."""
    return isinstance(mark, marks.DerivativeMark) and mark.backward


def _gradients(graph: OperatorGraph) -> frozenset[int]:
    """Tensors that are finished gradients."""
    return frozenset(
        tensor
        for operator in graph.operators
        if isinstance(operator.mark, marks.GradientMark)
        for tensor in operator.results
    )


def _flops(operator: Operator, planned: OperatorPlan, plan: Plan) -> float:
    if operator.name == MARK or operator.bodies:
        return 0.0
    return local_flops(rule_for(operator.operation), planned.assignment, plan.mesh)


def _rounds(operator: Operator) -> int:
    """How often the bodies run; loops of unknown length count once, and so does every branch."""
    return int(operator.operation.params["length"]) if operator.name == "scan" else 1
