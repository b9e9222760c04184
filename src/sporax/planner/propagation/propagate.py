"""A plan by propagation: the placements of a few tensors decide all others.

Problem: users give strategies for some operators; every other operator needs a sharding as well.

Method: operators are visited in order. A known placement decides how the next operator is sharded (`rules.propagate`).
An undecided tensor (a weight, a constant, a random number) waits until a reader needs a placement; that placement
is then passed back through the operators that produced it. So a weight gets the sharding of its first reader, its
optimizer state that of its gradient, and a dropout mask that of the activations.

Partial sums are passed on as long as operators are linear in them and do not make them larger. They are reduced after
that, or where a mark says so. A `Policy` decides the meaning of marks; the semi-automatic one is
`sporax.planner.propagation.semi_auto`.

Reference: Y. Xu et al., "GSPMD: general and scalable parallelization for ML computation graphs", arXiv:2105.04663.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sporax.base.errors import SporaxRuntimeError
from sporax.ir import marks
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import IDENTITIES, LITERAL, MARK, Input, Operator, OperatorGraph, Role
from sporax.ir.placement import Placement, num_parts
from sporax.ir.plan import OperatorPlan, Plan, Resharding
from sporax.planner.communication.gradient_fusion import gradient_terms
from sporax.planner.communication.moves import default_costs
from sporax.planner.communication.resharding import redistribute
from sporax.planner.propagation.loop_bodies import SCALAR, Fixed, plan_as_decided, plan_control_flow
from sporax.planner.propagation.policy import MaybePlacements, Policy
from sporax.planner.rules import Assignment, Rule, placements, propagate, rule_for, unsharded
from sporax.planner.rules.derive import only_assignment


def plan_by_propagation(
    graph: OperatorGraph,
    mesh: DeviceMatrix,
    inputs: Mapping[int, Placement] | None = None,
    policy: Policy | None = None,
    alltoall: bool = True,
    fixed: Fixed | None = None,
    has_reduce_scatter: bool = True,
) -> Plan:
    """A plan for `graph` that follows from where its inputs are and from its marks.

    Args:
        mesh: the devices, with axes of prime sizes.
        inputs: where arguments are, by number of the tensor; the others are decided by their readers.
        policy: what marks mean.
        alltoall, has_reduce_scatter: whether tensors may be moved by all-to-all and permute, and sums by reduce-scatter.
        fixed: how some operators are sharded; the others follow.
    """
    policy, facts = policy or Policy(), (alltoall, has_reduce_scatter)
    return _Propagation(graph, mesh, dict(inputs or {}), policy, *facts, fixed or Fixed()).run()


def plan_of_body(graph: OperatorGraph, mesh: DeviceMatrix) -> Plan:
    """The plan in which every device has arguments and results whole, as the body of an island has its slices."""
    inputs = {entry.tensor: Placement.replicated(graph.tensors[entry.tensor].num_dims) for entry in graph.inputs}
    plan = plan_by_propagation(graph, mesh, inputs)
    return replace(plan, outputs=tuple(Placement.replicated(len(place.dims)) for place in plan.outputs))


@dataclass(slots=True)
class _Propagation:
    graph: OperatorGraph
    mesh: DeviceMatrix
    inputs: dict[int, Placement]
    policy: Policy
    alltoall: bool
    has_reduce_scatter: bool
    fixed: Fixed
    outputs: Sequence[Placement | None] = ()
    stacked: int | None = None
    placement_of: dict[int, Placement] = field(default_factory=dict)
    storage_of: dict[int, Placement] = field(default_factory=dict)
    reshardings: dict[int, Resharding] = field(default_factory=dict)
    plans: dict[int, OperatorPlan] = field(default_factory=dict)
    waiting: dict[int, list[int]] = field(default_factory=dict)
    ready: deque[int] = field(default_factory=deque)
    notes: dict[str, None] = field(default_factory=dict)
    producers: dict[int, int] = field(default_factory=dict)
    consumers: dict[int, list[int]] = field(default_factory=dict)
    trainable: dict[int, str] = field(default_factory=dict)
    stored: dict[int, str] = field(default_factory=dict)
    moved: set[tuple[int, Placement]] = field(default_factory=set)
    passed: dict[marks.Mark, tuple[Placement | None, ...]] = field(default_factory=dict)
    busy: dict[int, set[int]] = field(default_factory=dict)
    entered: dict[marks.Mark, int] = field(default_factory=dict)
    update_from: int = 0
    pinned: dict[int, tuple[str, Placement]] = field(default_factory=dict)
    gradient_terms: dict[int, int] = field(default_factory=dict)
    converted: dict[int, int] = field(default_factory=dict)
    homes: dict[int, Placement] = field(default_factory=dict)

    def run(self) -> Plan:
        self.producers, self.consumers = self.graph.producers(), self.graph.consumers()
        # First, because storage shardings are decided with the first placement of a parameter.
        self._find_gradients()
        for tensor, placement in self.inputs.items():
            self._decide(tensor, placement)
        for argument in self.graph.inputs:
            # Scalars have one placement, so operators on scalars alone never wait.
            if not self.graph.tensors[argument.tensor].shape:
                self._decide(argument.tensor, SCALAR)
        for number in range(len(self.graph.operators)):
            self._visit(number)
            self._drain()
        # After all operators: only now is it certain that no operator needs these tensors.
        self._replicate_undecided()
        inputs = tuple(
            # Arguments are passed in their storage sharding; the gather for use is a resharding inside the step.
            self.storage_of.get(argument.tensor) or self.placement_of[argument.tensor]
            for argument in self.graph.inputs
        )
        return Plan(
            self.mesh,
            inputs,
            self._outputs(inputs),
            tuple(self.plans[number] for number in range(len(self.graph.operators))),
            self.reshardings,
            tuple(self.notes),
            self.alltoall,
            self.graph.fingerprint(),
            self.has_reduce_scatter,
        )

    def _find_gradients(self) -> None:
        """Note which inputs are trainable, where the update of the parameters starts, and what gradients are sums of."""
        by_name = {argument.name: argument.tensor for argument in self.graph.inputs if argument.role is Role.PARAMETER}
        self.update_from = len(self.graph.operators)
        # The update begins after the last gradient mark; without one there is no update.
        for number, operator in enumerate(self.graph.operators):
            mark = operator.mark
            if isinstance(mark, marks.GradientMark):
                self.trainable.update({by_name[name]: name for name in mark.parameters if name in by_name})
                parameters = [by_name.get(name, LITERAL) for name in mark.parameters]
                self.converted.update(zip(operator.results, parameters, strict=True))
                self.update_from = number + 1
        self._find_converted()
        self.stored = self.graph.parameters_with_storage(self.trainable.values())
        if self.policy.scatters_gradient_terms:
            self.gradient_terms = gradient_terms(self.graph)

    def _find_converted(self) -> None:
        """Note what becomes the gradient of a parameter by conversions alone."""
        for operator in reversed(self.graph.operators):
            for old, new in zip(operator.operands, operator.results, strict=False):
                hands_on = new in self.converted and len(self.consumers.get(old, ())) == 1
                if hands_on and operator.name in ("convert_element_type", *IDENTITIES):
                    self.converted[old] = self.converted[new]

    # ------------------------------------------------------------------------------------------------- one operator

    def _visit(self, number: int) -> None:
        """Shard an operator if enough is decided about its tensors; otherwise it waits for them."""
        if number in self.plans:
            return
        operator = self.graph.operators[number]
        current = [self._current_placement(tensor, number) for tensor in operator.operands]
        result_placements = [self.placement_of.get(tensor) for tensor in operator.results]
        if operator.name == MARK:
            self._mark(number, operator, current)
        elif operator.name in IDENTITIES:
            self._pass_through(number, operator, current, result_placements)
        elif operator.bodies:
            self._control(number, operator, current)
        elif (assignment := self._only_assignment(number, operator)) is not None:
            self._as_fixed(number, operator, current, assignment)
        elif self._is_decidable(operator, current, result_placements):
            self._shard(number, operator, current, result_placements)
        else:
            self._wait(number, operator.operands, current)

    def _wait(self, number: int, tensors: Sequence[int], current: MaybePlacements) -> None:
        """Visit an operator again when its tensors without a placement are decided."""
        for tensor, placement in zip(tensors, current, strict=True):
            if placement is None:
                self.waiting.setdefault(tensor, []).append(number)

    def _stay(self, number: int, operator: Operator, where: Sequence[Placement]) -> None:
        """An operator leaves its tensors where they are."""
        planned = OperatorPlan(unsharded(rule_for(operator.operation)), tuple(where), tuple(where))
        self._finish(number, operator, planned)

    def _current_placement(self, tensor: int, number: int) -> Placement | None:
        """Where an operator finds a tensor: the update of a parameter, in the parameter's storage sharding."""
        if tensor == LITERAL:
            return SCALAR
        # The optimizer works on stored slices: it needs no gathered weight.
        if number >= self.update_from and tensor in self.storage_of:
            return self.storage_of[tensor]
        return self.placement_of.get(tensor)

    def _is_decidable(self, operator: Operator, current: MaybePlacements, result_placements: MaybePlacements) -> bool:
        """Whether some tensor with dimensions is decided, or there are no dimensions to decide about."""
        if any(placement is not None and placement.dims for placement in (*current, *result_placements)):
            return True
        # Scalars alone never decide: their one placement says nothing about the others.
        specs = (*operator.operation.operands, *operator.operation.results)
        return not any(spec.shape for spec in specs) and None not in current

    def _pass_through(
        self, number: int, operator: Operator, current: MaybePlacements, result_placements: MaybePlacements
    ) -> None:
        """Every tensor passes through by itself; those of which nothing is known wait, for the others say nothing of them."""
        where = [here or there for here, there in zip(current, result_placements, strict=True)]
        known = tuple(placement for placement in where if placement is not None)
        if len(known) == len(where):
            self._stay(number, operator, known)
            return
        for old, new, placement in zip(operator.operands, operator.results, where, strict=True):
            if placement is None:
                self.waiting.setdefault(old, []).append(number)
            elif old not in self.placement_of and old != LITERAL:
                self._decide(old, placement)
            elif new not in self.placement_of:
                self._arrive(new, placement)

    def _only_assignment(self, number: int, operator: Operator) -> Assignment | None:
        """What a search has decided, or the author of an island."""
        if number in self.fixed.assignments:
            return self.fixed.assignments[number]
        return only_assignment(operator.operation, rule_for(operator.operation), self.mesh)

    def _as_fixed(self, number: int, operator: Operator, current: MaybePlacements, assignment: Assignment) -> None:
        """Shard an operator as a search decided; operands that it needs complete are combined for all their readers."""
        where, whence = placements(rule_for(operator.operation), assignment)
        # A second reader may need it complete too: one reduction for all costs less than one per reader.
        for tensor, here, there in zip(operator.operands, current, where, strict=True):
            if here is not None and here.partial and not there.partial and len(self.consumers[tensor]) > 1:
                self._combine(tensor, number)
        self._finish(number, operator, OperatorPlan(assignment, where, whence))

    def _shard(
        self, number: int, operator: Operator, current: Sequence[Placement | None], result_placements: MaybePlacements
    ) -> None:
        rule = rule_for(operator.operation)
        if rule.opaque:
            self.notes[rule.opaque + (f" ({operator.path})" if operator.path else "")] = None
        current = self._combined_where_needed(number, operator, current, result_placements)
        assignment = self._least_cost(operator, rule, current, result_placements)
        where, whence = placements(rule, assignment)
        homes = {self.homes.get(tensor) for tensor in operator.operands}
        if operator.name == "add_any" and whence[0].partial and len(homes) == 1 and (home := homes.pop()):
            self.homes[operator.results[0]] = home
        self._finish(number, operator, OperatorPlan(assignment, where, whence))

    def _least_cost(
        self, operator: Operator, rule: Rule, current: MaybePlacements, result_placements: MaybePlacements
    ) -> Assignment:
        """The sharding that agrees with the operands; where they disagree, the one whose moves cost least."""
        first = propagate(rule, self.mesh, current, result_placements)
        # Only placements that shard or are partial have an opinion.
        decided = [position for position, placement in enumerate(current) if placement is not None and placement.used]
        best = self._seconds(operator, rule, first, current)
        # Only a conflict between operands costs something, so single decided operands are tried only then.
        for position in decided[1:] if best else ():
            alone = [placement if number == position else None for number, placement in enumerate(current)]
            # The axes that this operand alone would take are removed from the others, which follow where they can.
            taken = frozenset(axis for axes in propagate(rule, self.mesh, alone) for axis in axes)
            others = [
                placement if number == position else _without(placement, taken)
                for number, placement in enumerate(current)
            ]
            merged = propagate(rule, self.mesh, others, result_placements)
            seconds = self._seconds(operator, rule, merged, current)
            if seconds < best:
                first, best = merged, seconds
        return first

    def _seconds(self, operator: Operator, rule: Rule, assignment: Assignment, current: MaybePlacements) -> float:
        """Time to bring the operands to where the sharding needs them; nothing for what is there already."""
        total, costs = 0.0, default_costs(self.has_reduce_scatter)
        specs, needed = operator.operation.operands, placements(rule, assignment)[0]
        for tensor, spec, here, there in zip(operator.operands, specs, current, needed, strict=True):
            # A copy at that placement exists already, made for another reader.
            if here is not None and here != there and (tensor, there) not in self.moved:
                total += redistribute(spec.shape, spec.itemsize, here, there, self.mesh, self.alltoall, costs).seconds
        return total

    def _combined_where_needed(
        self, number: int, operator: Operator, current: Sequence[Placement | None], result_placements: MaybePlacements
    ) -> list[Placement | None]:
        """Operands as they are, or complete where their parts cannot or should not be carried on."""
        operands = list(current)
        rule = rule_for(operator.operation)
        # Completing one operand may free others, so this is repeated until nothing changes.
        while any(item is not None and item.partial for item in operands):
            where, _ = placements(rule, propagate(rule, self.mesh, operands, result_placements))
            stuck = [
                position
                for position, placement in enumerate(operands)
                if placement is not None
                and placement.partial
                and (where[position].partial != placement.partial or self._grows(number, position))
            ]
            if not stuck:
                break
            for position in stuck:
                operands[position] = self._combine(operator.operands[position], number)
        return operands

    def _grows(self, number: int, position: int) -> bool:
        """Whether carrying parts on would be more expensive than combining them: more bytes, or several readers."""
        operator = self.graph.operators[number]
        readers = self.consumers.get(operator.operands[position], [])
        before = operator.operation.operands[position].num_bytes
        return len(readers) > 1 or sum(spec.num_bytes for spec in operator.operation.results) > before

    def _combine(self, tensor: int, number: int) -> Placement:
        """Have the parts of a tensor combined for all readers; where it is then."""
        # Of a gradient that is converted next, a device needs the shard of the parameter that it stores.
        stored = self.storage_of.get(self.converted.get(tensor, LITERAL))
        complete = stored or self.homes.get(tensor) or self.placement_of[tensor].complete()
        # A reader that was sharded for partial operands would compute something else on complete ones.
        if not any(reader in self.plans for reader in self.consumers[tensor] if reader != number):
            self.reshardings[tensor] = Resharding(complete, "combined")
            self.placement_of[tensor] = complete
        return complete

    def _finish(self, number: int, operator: Operator, planned: OperatorPlan) -> None:
        # Placements to which operands are moved; later readers find them there without cost.
        self.plans[number] = planned
        self.moved.update(zip(operator.operands, planned.operands, strict=True))
        for tensor, placement in zip(operator.operands, planned.operands, strict=True):
            if tensor != LITERAL and tensor not in self.placement_of:
                self._decide(tensor, placement)
        for tensor, placement in zip(operator.results, planned.results, strict=True):
            self._arrive(tensor, placement)

    def _arrive(self, tensor: int, placement: Placement) -> None:
        """Say where an operator leaves a result; it may be resharded there, which is what readers see."""
        # Terms of a gradient are reduced as soon as they exist.
        if tensor in self.gradient_terms and self.gradient_terms[tensor] in self.storage_of:
            name = self.trainable[self.gradient_terms[tensor]]
            self.reshardings[tensor] = self.policy.gradient_term(name, self.storage_of[self.gradient_terms[tensor]])
        elif tensor in self.fixed.shared and tensor not in self.reshardings:
            self.reshardings[tensor] = self.fixed.shared[tensor]
        resharding = self.reshardings.get(tensor)
        self.placement_of.pop(tensor, None)
        self._decide(tensor, placement if resharding is None else resharding.placement)

    def _decide(self, tensor: int, placement: Placement) -> None:
        """Say where readers find a tensor, and look again at operators that waited for it."""
        self.placement_of[tensor] = placement
        # A parameter gets its storage sharding with its placement for use, which only the first reader decides.
        if tensor in self.stored:
            storage = self.policy.storage(self.graph.tensors[tensor], placement, self.stored[tensor])
            if storage != placement:
                self.storage_of[tensor] = storage
                self.reshardings[tensor] = self.policy.weight(self.stored[tensor], placement)
        producer = self.producers.get(tensor)
        # The producer of an undecided tensor (a constant, a mask) may be sharded now.
        if producer is not None and producer not in self.plans:
            self.ready.append(producer)
        self.ready.extend(self.waiting.pop(tensor, ()))

    def _drain(self) -> None:
        # A queue and not recursion: chains of undecided operators can be as long as the network.
        while self.ready:
            self._visit(self.ready.popleft())

    # -------------------------------------------------------------------------------------------------------- marks

    def _mark(self, number: int, operator: Operator, current: Sequence[Placement | None]) -> None:
        mark = operator.operation.params["mark"]
        if isinstance(mark, marks.GradientMark):
            self._gradients(number, operator, mark, current)
        elif isinstance(mark, marks.DerivativeMark):
            self._derivatives(number, operator, mark, current)
        elif isinstance(mark, marks.LossMark):
            self._loss(number, operator, current)
        elif isinstance(mark, marks.RankSumMark):
            self._rank_sum(number, operator, mark, current[0])
        elif isinstance(mark, marks.WeightMark):
            self._regathered_weight(number, operator, mark, current)
        elif isinstance(mark, marks.OperatorMark):
            self._operator_mark(number, operator, mark, current)
        else:
            self.entered[mark] = operator.results[0]
            # Where the user leaves dimensions open, a search has decided about them.
            shared = [self.fixed.shared.get(tensor) if mark.free else None for tensor in operator.results]
            wanted = [here if entry is None else entry.placement for here, entry in zip(current, shared, strict=True)]
            answers = self.policy.at_layout(mark, operator.operation.operands, wanted)
            self._requested(number, operator, current, answers)

    def _operator_mark(
        self, number: int, operator: Operator, mark: marks.OperatorMark, current: MaybePlacements
    ) -> None:
        """Entrance or exit of an operator: the policy says where its tensors are."""
        # Its Cell path, for messages: marks are made before the path is known.
        mark = replace(mark, path=operator.path)
        answers = self.policy.at_operator(mark, operator.operation.operands, current)
        if mark.side is marks.Side.IN and mark.in_strategy is not None:
            self._pin(operator, mark, answers)
        operands = self._requested(number, operator, current, answers)
        # Axes that do work in this operator: its cotangents must not stay sharded along them.
        if operands is not None:
            self.busy.setdefault(mark.number, set()).update(*(operand.used for operand in operands))

    def _requested(
        self, number: int, operator: Operator, current: MaybePlacements, answers: Sequence[Resharding | None]
    ) -> list[Placement] | None:
        """Placements of the tensors that a mark passes on, as requested; None, and nothing is planned, while all are open."""
        # Cotangents come back to this mark; they should then be where the tensors were.
        self.passed[operator.operation.params["mark"]] = tuple(
            placement.complete() if placement is not None else resharding.placement if resharding is not None else None
            for placement, resharding in zip(current, answers, strict=True)
        )
        # Every tensor is open: the mark waits for its readers, unless one of its results has been decided already.
        if operator.operands and not any((*current, *answers)):
            self._wait(number, operator.operands, current)
            current = [self.placement_of.get(tensor) for tensor in operator.results]
            if not any(current):
                return None
        operands = [
            resharding.before_mark(placement) if resharding else placement or Placement.replicated(spec.num_dims)
            for placement, resharding, spec in zip(current, answers, operator.operation.operands, strict=True)
        ]
        for placement, resharding, result in zip(operands, answers, operator.results, strict=True):
            if resharding is not None and resharding.placement != placement:
                self.reshardings[result] = resharding
        self._stay(number, operator, operands)
        return operands

    def _pin(self, operator: Operator, mark: marks.OperatorMark, answers: Sequence[Resharding | None]) -> None:
        """Strategies of all operators that read a parameter must shard it equally: it has one storage sharding."""
        for position, (tensor, resharding) in enumerate(zip(operator.operands, answers, strict=True)):
            if resharding is None or tensor not in self.trainable:
                continue
            user, placement = self.pinned.setdefault(tensor, (mark.where, resharding.placement))
            if placement != resharding.placement:
                raise SporaxRuntimeError(
                    f"For '{mark.where}', the parameter '{self.trainable[tensor]}' has multiple users, which must shard it "
                    f"equally, but '{user}' shards it {placement.on(self.mesh)} and this one, as tensor {position}, "
                    f"{resharding.placement.on(self.mesh)}. Give both one strategy (or one Layout), or make it two parameters."
                )

    def _derivatives(
        self, number: int, operator: Operator, mark: marks.DerivativeMark, current: Sequence[Placement | None]
    ) -> None:
        """Cotangents go back to where their tensors came from; tangents stay."""
        before = self.passed.get(mark.of, ())
        operands: list[Placement] = []
        for position, placement in zip(mark.positions, current, strict=True):
            # A mark inside a body may have been passed outside of it, or never.
            source = before[position] if before else None
            if placement is None:
                spec = operator.operation.operands[len(operands)]
                placement = source or Placement.replicated(spec.num_dims)
            elif mark.backward and source is not None and self.policy.returns_cotangents:
                home = self._cotangent_placement(mark.of, source, placement)
                tensor = operator.results[len(operands)]
                if self._is_added(tensor) and placement.partial and not home.partial:
                    # Several operators read the tensor: the parts of all cotangents are combined once, in their sum.
                    self.homes[tensor] = home
                else:
                    placement = home
            if mark.backward and source is not None and isinstance(mark.of, marks.LayoutMark) and mark.of.bprop:
                self._at_bprop(mark.of, operator.results[0], source, placement)
            operands.append(placement)
        self._stay(number, operator, operands)

    def _at_bprop(self, mark: marks.LayoutMark, tensor: int, source: Placement, here: Placement) -> None:
        """A cotangent enters or leaves a `bprop` of the user, which MindSpore's ranks run by themselves, on slices.

        Ranks that repeat a result have equal shares of its cotangent there. Along axes that sharded an input no rank adds up
        what becomes of these shares: a `bprop` multiplies by the number of ranks, and here the plan divides by it.
        """
        assert mark.bprop is not None
        of_results = self.busy.setdefault(mark.number, set())
        if mark.bprop[0] is marks.Side.OUT:
            of_results.update(source.used)
            return
        # An input counts as the first operator takes it; the `bprop` reads it, too.
        entered, of_input = self.entered.get(mark, LITERAL), source.used
        for reader in self.consumers.get(entered, ())[:1]:
            first = self.graph.operators[reader]
            if isinstance(first.mark, marks.OperatorMark):
                of_input = frozenset(self.busy[first.mark.number])
            elif reader in self.plans:  # an operator without a rule takes it complete
                of_input = self.plans[reader].operands[first.operands.index(entered)].used
        if (shares := num_parts(self.mesh, tuple(of_input - of_results))) > 1:
            why = f"gradients by 'bprop' of {mark.requester}, over {shares}: as many ranks repeat its result, but not its input"
            self.notes[f"{why}. As in MindSpore, it must multiply by that"] = None
            self.reshardings[tensor] = Resharding(here, why, scale=1.0 / shares)

    def _is_added(self, tensor: int) -> bool:
        """Whether the one reader of a cotangent adds it to others."""
        readers = [self.graph.operators[reader] for reader in self.consumers.get(tensor, ())]
        return [reader.name for reader in readers] == ["add_any"]

    def _cotangent_placement(
        self, mark: marks.OperatorMark | marks.LayoutMark, source: Placement, here: Placement
    ) -> Placement:
        """Where a cotangent should be that passes a mark, given where its tensor came from.

        A derivative has the placements of its operator. But this need not hold along axes over which an operator is repeated:
        a cotangent that is sharded along these stays so, and the gradients of the operator's weights become partial sums
        over them. (The operator before it decides the same for itself, so at an entrance every finer sharding may stay.)
        """
        if isinstance(mark, marks.OperatorMark):
            busy = self.busy.get(mark.number, set()) if mark.side is marks.Side.OUT else set()
            refines = all(axes[: len(old)] == old for axes, old in zip(here.dims, source.dims, strict=True))
            # Sharded further along idle axes is as good, and saves gathering now what is sliced again later.
            if refines and not (here.used - source.used) & busy:
                return here
        # Partial along axes that the tensor did not use: these sums are reduced with the gradients of weights.
        remaining = tuple(axis for axis in here.partial if axis not in source.used)
        return Placement(source.dims, remaining, here.reduction)

    def _gradients(
        self, number: int, operator: Operator, mark: marks.GradientMark, current: Sequence[Placement | None]
    ) -> None:
        by_name = {name: tensor for tensor, name in self.trainable.items()}
        operands = []
        for position, name in enumerate(mark.parameters):
            spec = operator.operation.operands[position]
            placement = current[position] or Placement.replicated(spec.num_dims)
            parameter = by_name.get(name)
            if parameter is None:
                used = storage = placement.complete()
            else:
                # A parameter without a reader has a gradient of zeros; its placement decides the parameter's.
                if parameter not in self.placement_of:
                    self._decide(parameter, placement.complete())
                used = self.placement_of[parameter]
                storage = self.storage_of.get(parameter, used)
            resharding = self.policy.gradient(name, spec, storage, used)
            self.reshardings[operator.results[position]] = resharding
            operands.append(placement)
        self._stay(number, operator, operands)

    def _loss(self, number: int, operator: Operator, current: MaybePlacements) -> None:
        """The first cotangents have the placement of the loss, and count as often as the policy says."""
        half = len(current) // 2
        # The placement of the loss decides that of its cotangent, so it must be known first.
        if None in current[:half]:
            self._wait(number, operator.operands[:half], current[:half])
            return
        losses = [placement for placement in current[:half] if placement is not None]
        # A partial loss has a complete cotangent: each part contributes with the same factor.
        starts = [loss.complete() for loss in losses]
        for tensor, placement in zip(operator.results[half:], starts, strict=True):
            scale = self.policy.loss_scale(placement)
            if scale != 1.0:
                self.reshardings[tensor] = Resharding(placement, "start of the backward pass", scale=scale)
        self._stay(number, operator, (*losses, *starts))

    def _rank_sum(self, number: int, operator: Operator, mark: marks.RankSumMark, here: Placement | None) -> None:
        """Elements count as often as the ranks have them."""
        if here is None:
            self.waiting.setdefault(operator.operands[0], []).append(number)
            return
        ranks = [min(self.mesh.ranks) + rank for rank in mark.ranks]
        weights = [tensor for tensor, name in self.trainable.items() if name in mark.parameters]
        slices = [self.storage_of.get(tensor) or self.placement_of[tensor] for tensor in weights] or [here]
        copies, *others = {placement.copies(self.mesh, ranks) for placement in slices}
        if others:
            raise SporaxRuntimeError(
                f"For 'AllReduce', gradients that are combined element by element must have the same sharding, but ranks have "
                f"{copies} and {others[0]} copies of those of {', '.join(mark.parameters)}."
            )
        self.reshardings[operator.results[0]] = Resharding(here, "sum over ranks", scale=float(copies))
        self._stay(number, operator, (here,))

    def _regathered_weight(
        self, number: int, operator: Operator, mark: marks.WeightMark, current: MaybePlacements
    ) -> None:
        """A copy of a parameter as it is kept, which is then resharded to where operators have the parameter."""
        parameter = operator.operands[0]
        used, late = current
        if used is None:
            self.waiting.setdefault(parameter, []).append(number)
            return
        storage = self.storage_of.get(parameter, used)
        if storage != used:
            self.reshardings[operator.results[0]] = self.policy.weight(mark.parameter, used)
        self._stay(number, operator, (storage, late or Placement.replicated(operator.operation.operands[1].num_dims)))

    # ------------------------------------------------------------------------------------------------- control flow

    def _control(self, number: int, operator: Operator, current: Sequence[Placement | None]) -> None:
        if number in self.fixed.control:
            # A search has decided both ends of the rounds; anything else would contradict its costs.
            plan = plan_as_decided(operator, self.fixed.control[number], self.fixed.bodies[number], self._body)
        else:
            # Bodies take no partial sums: a round might use them twice.
            complete = [None if placement is None else placement.complete() for placement in current]
            plan = plan_control_flow(operator, complete, self._body)
        self._finish(number, operator, plan)

    def _body(
        self,
        body: OperatorGraph,
        arguments: MaybePlacements,
        outputs: MaybePlacements = (),
        stacked: int | None = None,
        fixed: Fixed | None = None,
    ) -> tuple[Plan, tuple[Placement, ...]]:
        """As `PlanBody`."""
        # What the body brought along comes before its arguments and is decided inside.
        first = len(body.inputs) - len(arguments)
        inputs = {
            argument.tensor: placement
            for argument, placement in zip(body.inputs[first:], arguments, strict=True)
            if placement is not None
        }
        inner = _Propagation(
            body,
            self.mesh,
            inputs,
            self.policy,
            self.alltoall,
            self.has_reduce_scatter,
            fixed or Fixed(),
            outputs=outputs,
            stacked=stacked,
            # Shared: a cotangent inside a body may belong to a mark that was passed outside.
            passed=self.passed,
            busy=self.busy,
        )
        plan = inner.run()
        self.notes.update(inner.notes)
        return plan, tuple(inner.placement_of[argument.tensor] for argument in body.inputs[first:])

    # ------------------------------------------------------------------------------------------------------- the end

    def _replicate_undecided(self) -> None:
        """Tensors for which no reader needs a placement are whole everywhere."""
        for argument in self.graph.inputs:
            # State first: it decides the update, and with it parameters that only the optimizer touches.
            if argument.tensor not in self.placement_of:
                self._decide(argument.tensor, self._placement_of_state(argument))
                self._drain()
        for number, operator in enumerate(self.graph.operators):
            if number not in self.plans:
                rule = rule_for(operator.operation)
                current = [self._current_placement(tensor, number) for tensor in operator.operands]
                if operator.name in (MARK, *IDENTITIES):
                    everywhere = (Placement.replicated(spec.num_dims) for spec in operator.operation.operands)
                    self._stay(
                        number, operator, [here or there for here, there in zip(current, everywhere, strict=True)]
                    )
                # Something is known after all, since an earlier one of these operators was decided.
                elif any(placement is not None and placement.dims for placement in current):
                    self._shard(number, operator, current, [None] * len(operator.results))
                else:
                    where, whence = placements(rule, unsharded(rule))
                    self._finish(number, operator, OperatorPlan(unsharded(rule), where, whence))
                self._drain()

    def _placement_of_state(self, state: Input) -> Placement:
        """For state that no operator touched (a momentum of 0): where the parameter is kept whose name ends its own."""
        spec = self.graph.tensors[state.tensor]
        for tensor, name in self.trainable.items():
            if (
                state.name.endswith(f".{name}")
                and self.graph.tensors[tensor].shape == spec.shape
                and tensor in self.placement_of
            ):
                return self.storage_of.get(tensor, self.placement_of[tensor])
        return Placement.replicated(spec.num_dims)

    def _outputs(self, inputs: Sequence[Placement]) -> tuple[Placement, ...]:
        aliased = {output: inputs[argument] for output, argument in self.graph.aliases}
        requested = dict(enumerate(self.outputs))
        outputs = []
        for position, tensor in enumerate(self.graph.outputs):
            here = SCALAR if tensor == LITERAL else self.placement_of[tensor]
            # Only stacked results of a loop may stay partial; all others leave complete.
            if self.stacked is None or position < self.stacked:
                here = here.complete()
            # An updated variable must end where it is stored, whatever else was requested.
            outputs.append(aliased.get(position) or requested.get(position) or here)
        return tuple(outputs)


def _without(placement: Placement | None, taken: frozenset[int]) -> Placement | None:
    """A placement without the axes that others use: of each dimension, the axes before the first of these."""
    # After an axis that is gone, inner ones would divide other parts of the dimension, so they go as well.
    if placement is None or not placement.used & taken:
        return placement
    dims = (tuple(itertools.takewhile(lambda axis: axis not in taken, axes)) for axes in placement.dims)
    return Placement(tuple(dims), tuple(axis for axis in placement.partial if axis not in taken), placement.reduction)
