"""A plan by propagation: what is said of a few tensors decides all others.

Operators are visited in order. What lies somewhere already decides how the next operator is cut (`rules.propagate`), and
what nothing is known of yet (weights, constants, random numbers) waits until a reader asks for it in some way; then the
answer travels back through the operators that made it. So a weight lies as its first operator wants it, its optimizer
state as its gradient does, and a dropout mask is drawn as the activations are cut.

Parts of sums are carried on as long as operators are linear in them and do not make them larger, and are added up after
that, or where a mark says so. Marks are decided by a `Policy`: the semi-automatic one is in
`sporax.planner.propagation.semi_auto`.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.errors import SporaxRuntimeError
from sporax.ir.graph import IDENTITIES, LITERAL, MARK, Input, Operator, OperatorGraph, Role
from sporax.ir.marks import DerivativeMark, GradientMark, LayoutMark, LossMark, Mark, OperatorMark, Side, WeightMark
from sporax.ir.placement import Placement
from sporax.ir.plan import OperatorPlan, Plan, Settlement
from sporax.planner.communication.resharding import redistribute
from sporax.planner.propagation.gradient_terms import addends_of
from sporax.planner.propagation.loop_bodies import SCALAR, Given, plan_as_decided, plan_control_flow
from sporax.planner.propagation.policy import Known, NoPolicy, Policy
from sporax.planner.rules import Assignment, Rule, nothing_cut, placements, propagate, rule_for


def plan_by_propagation(
    graph: OperatorGraph,
    mesh: DeviceMatrix,
    inputs: Mapping[int, Placement] | None = None,
    policy: Policy | None = None,
    alltoall: bool = True,
    given: Given | None = None,
) -> Plan:
    """A plan for `graph` that follows from where its inputs lie and from its marks.

    Args:
        graph: the step.
        mesh: the devices, with axes of prime sizes.
        inputs: where arguments lie, by number of the tensor; the others are decided by their readers.
        policy: what marks mean.
        alltoall: whether tensors may be moved by all-to-all and permute.
        given: how some operators are cut; the others follow.
    """
    return _Propagation(graph, mesh, dict(inputs or {}), policy or NoPolicy(), alltoall, given or Given()).run()


@dataclass(slots=True)
class _Propagation:
    graph: OperatorGraph
    mesh: DeviceMatrix
    inputs: dict[int, Placement]
    policy: Policy
    alltoall: bool
    given: Given = field(default_factory=Given)
    outputs: Sequence[Placement | None] = ()
    stacked: int | None = None
    lies: dict[int, Placement] = field(default_factory=dict)
    homes: dict[int, Placement] = field(default_factory=dict)
    settled: dict[int, Settlement] = field(default_factory=dict)
    plans: dict[int, OperatorPlan] = field(default_factory=dict)
    waiting: dict[int, list[int]] = field(default_factory=dict)
    ready: deque[int] = field(default_factory=deque)
    notes: dict[str, None] = field(default_factory=dict)
    producers: dict[int, int] = field(default_factory=dict)
    consumers: dict[int, list[int]] = field(default_factory=dict)
    trainable: dict[int, str] = field(default_factory=dict)
    moved: set[tuple[int, Placement]] = field(default_factory=set)
    passed: dict[Mark, tuple[Placement | None, ...]] = field(default_factory=dict)
    busy: dict[int, set[int]] = field(default_factory=dict)
    update_from: int = 0
    pinned: dict[int, tuple[str, Placement]] = field(default_factory=dict)
    addends: dict[int, int] = field(default_factory=dict)

    def run(self) -> Plan:
        self.producers, self.consumers = self.graph.producers(), self.graph.consumers()
        self._find_gradients()
        for tensor, placement in self.inputs.items():
            self._decide(tensor, placement)
        for each in self.graph.inputs:
            if not self.graph.tensors[each.tensor].shape:
                self._decide(each.tensor, SCALAR)
        for number in range(len(self.graph.operators)):
            self._visit(number)
            self._drain()
        self._decide_the_rest()
        inputs = tuple(self.homes.get(each.tensor) or self.lies[each.tensor] for each in self.graph.inputs)
        return Plan(
            self.mesh,
            inputs,
            self._outputs(inputs),
            tuple(self.plans[number] for number in range(len(self.graph.operators))),
            self.settled,
            tuple(self.notes),
            self.alltoall,
            self.graph.fingerprint(),
        )

    def _find_gradients(self) -> None:
        """Note which inputs are trainable, where the update of the parameters starts, and what gradients are sums of."""
        by_name = {each.name: each.tensor for each in self.graph.inputs if each.role is Role.PARAMETER}
        self.update_from = len(self.graph.operators)
        for number, operator in enumerate(self.graph.operators):
            mark = operator.mark
            if isinstance(mark, GradientMark):
                self.trainable.update({by_name[name]: name for name in mark.parameters if name in by_name})
                self.update_from = number + 1
        if self.policy.scatters_addends:
            self.addends = addends_of(self.graph)

    # ------------------------------------------------------------------------------------------------- one operator

    def _visit(self, number: int) -> None:
        """Cut an operator if enough is known of its tensors; else it waits for them."""
        if number in self.plans:
            return
        operator = self.graph.operators[number]
        known = [self._seen(tensor, number) for tensor in operator.operands]
        made = [self.lies.get(tensor) for tensor in operator.results]
        if operator.name == MARK:
            self._mark(number, operator, known)
        elif operator.name in IDENTITIES:
            self._hand_on(number, operator, known, made)
        elif operator.bodies:
            self._control(number, operator, known)
        elif number in self.given.cuts:
            self._as_given(number, operator, known)
        elif self._enough(operator, known, made):
            self._cut(number, operator, known, made)
        else:
            for tensor, placement in zip(operator.operands, known, strict=True):
                if placement is None:
                    self.waiting.setdefault(tensor, []).append(number)

    def _seen(self, tensor: int, number: int) -> Placement | None:
        """Where an operator finds a tensor: the update of a parameter, at the parameter's home."""
        if tensor == LITERAL:
            return SCALAR
        if number >= self.update_from and tensor in self.homes:
            return self.homes[tensor]
        return self.lies.get(tensor)

    def _enough(self, operator: Operator, known: Known, made: Known) -> bool:
        """Whether some tensor with dimensions is decided, or there are no dimensions to decide about."""
        if any(placement is not None and placement.dims for placement in (*known, *made)):
            return True
        specs = (*operator.operation.operands, *operator.operation.results)
        return not any(spec.shape for spec in specs) and None not in known

    def _hand_on(self, number: int, operator: Operator, known: Known, made: Known) -> None:
        """Every tensor passes through by itself; those of which nothing is known wait, if there are no others."""
        if not any(known) and not any(made):
            for tensor in operator.operands:
                self.waiting.setdefault(tensor, []).append(number)
            return
        specs = operator.operation.operands
        where = tuple(
            here or there or Placement.replicated(spec.num_dims)
            for here, there, spec in zip(known, made, specs, strict=True)
        )
        self._finish(number, operator, OperatorPlan(nothing_cut(rule_for(operator.operation)), where, where))

    def _as_given(self, number: int, operator: Operator, known: Known) -> None:
        """Cut an operator as a search decided; operands that it wants complete are combined for all their readers."""
        assignment = self.given.cuts[number]
        where, whence = placements(rule_for(operator.operation), assignment)
        for tensor, here, wanted in zip(operator.operands, known, where, strict=True):
            if here is not None and here.partial and not wanted.partial and len(self.consumers[tensor]) > 1:
                self._combine(tensor, number)
        self._finish(number, operator, OperatorPlan(assignment, where, whence))

    def _cut(self, number: int, operator: Operator, known: Sequence[Placement | None], made: Known) -> None:
        rule = rule_for(operator.operation)
        if rule.opaque:
            self.notes[rule.opaque + (f" ({operator.path})" if operator.path else "")] = None
        known = self._combined_where_needed(number, operator, known, made)
        assignment = self._cheapest(operator, rule, known, made)
        where, whence = placements(rule, assignment)
        self._finish(number, operator, OperatorPlan(assignment, where, whence))

    def _cheapest(self, operator: Operator, rule: Rule, known: Known, made: Known) -> Assignment:
        """The cut that agrees with the operands; where they disagree, the one for which the cheapest of them move."""
        first = propagate(rule, self.mesh, known, made)
        decided = [position for position, each in enumerate(known) if each is not None and each.used]
        best = self._seconds(operator, rule, first, known)
        for position in decided[1:] if best else ():
            alone = [each if number == position else None for number, each in enumerate(known)]
            taken = frozenset(axis for axes in propagate(rule, self.mesh, alone) for axis in axes)
            others = [each if number == position else _without(each, taken) for number, each in enumerate(known)]
            merged = propagate(rule, self.mesh, others, made)
            seconds = self._seconds(operator, rule, merged, known)
            if seconds < best:
                first, best = merged, seconds
        return first

    def _seconds(self, operator: Operator, rule: Rule, assignment: Assignment, known: Known) -> float:
        """Time to bring the operands to where the cut needs them; nothing for what is there already."""
        total = 0.0
        specs = operator.operation.operands
        for tensor, spec, here, wanted in zip(
            operator.operands, specs, known, placements(rule, assignment)[0], strict=True
        ):
            if here is not None and here != wanted and (tensor, wanted) not in self.moved:
                total += redistribute(spec.shape, spec.itemsize, here, wanted, self.mesh, self.alltoall).seconds
        return total

    def _combined_where_needed(
        self, number: int, operator: Operator, known: Sequence[Placement | None], made: Known
    ) -> list[Placement | None]:
        """Operands as they are, or complete where their parts cannot or should not be carried on."""
        found = list(known)
        rule = rule_for(operator.operation)
        while any(each is not None and each.partial for each in found):
            where, _ = placements(rule, propagate(rule, self.mesh, found, made))
            stuck = [
                position
                for position, placement in enumerate(found)
                if placement is not None
                and placement.partial
                and (where[position].partial != placement.partial or self._grows(number, position))
            ]
            if not stuck:
                break
            for position in stuck:
                found[position] = self._combine(operator.operands[position], number)
        return found

    def _grows(self, number: int, position: int) -> bool:
        """Whether carrying parts on would be dearer than combining them: more bytes, or several readers."""
        operator = self.graph.operators[number]
        readers = self.consumers.get(operator.operands[position], [])
        before = operator.operation.operands[position].num_bytes
        return len(readers) > 1 or sum(spec.num_bytes for spec in operator.operation.results) > before

    def _combine(self, tensor: int, number: int) -> Placement:
        """Have the parts of a tensor combined for all readers; where it lies then."""
        complete = self.lies[tensor].complete()
        if self._may_settle(tensor, number):
            self.settled[tensor] = Settlement(complete, "combined")
            self.lies[tensor] = complete
        return complete

    def _may_settle(self, tensor: int, number: int) -> bool:
        """Whether no operator has been cut on the assumption that the tensor is in parts."""
        return not any(reader in self.plans for reader in self.consumers[tensor] if reader != number)

    def _finish(self, number: int, operator: Operator, planned: OperatorPlan) -> None:
        self.plans[number] = planned
        self.moved.update(zip(operator.operands, planned.operands, strict=True))
        for tensor, placement in zip(operator.operands, planned.operands, strict=True):
            if tensor != LITERAL and tensor not in self.lies:
                self._decide(tensor, placement)
        for tensor, placement in zip(operator.results, planned.results, strict=True):
            if tensor in self.addends and self.addends[tensor] in self.homes:
                name = self.trainable[self.addends[tensor]]
                self.settled[tensor] = self.policy.addend(name, self.homes[self.addends[tensor]])
            elif tensor in self.given.shared and tensor not in self.settled:
                self.settled[tensor] = self.given.shared[tensor]
            settlement = self.settled.get(tensor)
            self.lies.pop(tensor, None)
            self._decide(tensor, placement if settlement is None else settlement.placement)

    def _decide(self, tensor: int, placement: Placement) -> None:
        """Say where readers find a tensor, and look again at operators that waited for it."""
        self.lies[tensor] = placement
        if tensor in self.trainable:
            home = self.policy.home(self.graph.tensors[tensor], placement, self.trainable[tensor])
            if home != placement:
                self.homes[tensor] = home
                self.settled[tensor] = self.policy.weight(self.trainable[tensor], placement)
        producer = self.producers.get(tensor)
        if producer is not None and producer not in self.plans:
            self.ready.append(producer)
        self.ready.extend(self.waiting.pop(tensor, ()))

    def _drain(self) -> None:
        while self.ready:
            self._visit(self.ready.popleft())

    # -------------------------------------------------------------------------------------------------------- marks

    def _mark(self, number: int, operator: Operator, known: Sequence[Placement | None]) -> None:
        mark = operator.operation.params["mark"]
        specs = operator.operation.operands
        if isinstance(mark, GradientMark):
            self._gradients(number, operator, mark, known)
            return
        if isinstance(mark, DerivativeMark):
            self._derivatives(number, operator, mark, known)
            return
        if isinstance(mark, LossMark):
            self._loss(number, operator, known)
            return
        if isinstance(mark, WeightMark):
            self._weight_again(number, operator, mark, known)
            return
        if isinstance(mark, OperatorMark):
            mark = replace(mark, path=operator.path)
        wanted = (
            self.policy.at_operator(mark, specs, known)
            if isinstance(mark, OperatorMark)
            else self.policy.at_layout(mark, specs)
        )
        if isinstance(mark, OperatorMark) and mark.side is Side.IN and mark.in_strategy is not None:
            self._pin(operator, mark, wanted)
        self.passed[operator.operation.params["mark"]] = tuple(
            each.complete() if each is not None else settlement.placement if settlement is not None else None
            for each, settlement in zip(known, wanted, strict=True)
        )
        operands: list[Placement] = []
        undecided = [
            position
            for position, pair in enumerate(zip(known, wanted, strict=True))
            if pair[0] is None and pair[1] is None
        ]
        if undecided and len(undecided) == len(known):
            for position in undecided:
                self.waiting.setdefault(operator.operands[position], []).append(number)
            made = [self.lies.get(tensor) for tensor in operator.results]
            if not any(made):
                return
            known = made
        for position, (placement, settlement) in enumerate(zip(known, wanted, strict=True)):
            if placement is None:
                placement = settlement.placement if settlement else Placement.replicated(specs[position].num_dims)
            elif settlement is not None and settlement == Settlement(settlement.placement, settlement.reason):
                placement = settlement.placement  # a plain move, which other readers may share
            operands.append(placement)
            if settlement is not None and settlement.placement != placement:
                self.settled[operator.results[position]] = settlement
        if isinstance(mark, OperatorMark):
            self.busy.setdefault(mark.number, set()).update(*(each.used for each in operands))
        assignment = ((),) * len(rule_for(operator.operation).factors)
        self._finish(number, operator, OperatorPlan(assignment, tuple(operands), tuple(operands)))

    def _pin(self, operator: Operator, mark: OperatorMark, wanted: Sequence[Settlement | None]) -> None:
        """Strategies of all operators that read a parameter must cut it alike: it is kept in one way."""
        for position, (tensor, settlement) in enumerate(zip(operator.operands, wanted, strict=True)):
            if settlement is None or tensor not in self.trainable:
                continue
            user, placement = self.pinned.setdefault(tensor, (mark.where, settlement.placement))
            if placement != settlement.placement:
                raise SporaxRuntimeError(
                    f"For '{mark.where}', the parameter '{self.trainable[tensor]}' has multiple users, which must cut it alike, "
                    f"but '{user}' cuts it {placement.on(self.mesh)} and this one, as tensor {position}, "
                    f"{settlement.placement.on(self.mesh)}. Give both one strategy (or one Layout), or make it two parameters."
                )

    def _derivatives(
        self, number: int, operator: Operator, mark: DerivativeMark, known: Sequence[Placement | None]
    ) -> None:
        """Cotangents go back to where their tensors came from; tangents stay."""
        before = self.passed.get(mark.of, ())
        operands: list[Placement] = []
        for position, placement in zip(mark.positions, known, strict=True):
            source = before[position] if before else None
            if placement is None:
                spec = operator.operation.operands[len(operands)]
                placement = source or Placement.replicated(spec.num_dims)
            elif mark.backward and source is not None and self.policy.returns_cotangents:
                placement = self._way_back(mark.of, source, placement)
            operands.append(placement)
        assignment = ((),) * len(rule_for(operator.operation).factors)
        self._finish(number, operator, OperatorPlan(assignment, tuple(operands), tuple(operands)))

    def _way_back(self, mark: OperatorMark | LayoutMark, source: Placement, here: Placement) -> Placement:
        """Where a cotangent shall be that passes a mark, given where its tensor came from.

        A derivative lies as its operator did. But along axes over which an operator is repeated, its derivative need not be:
        a cotangent that arrives cut along these stays cut, and the gradients of the operator's weights become parts of a sum
        over them. (The operator before it decides the same for itself, so at an entrance every finer cut may stay.)
        """
        if isinstance(mark, OperatorMark):
            busy = self.busy.get(mark.number, set()) if mark.side is Side.OUT else set()
            if _refines(here, source) and not (here.used - source.used) & busy:
                return here
        kept = tuple(axis for axis in here.partial if axis not in source.used)
        return Placement(source.dims, kept, here.reduction)

    def _gradients(
        self, number: int, operator: Operator, mark: GradientMark, known: Sequence[Placement | None]
    ) -> None:
        by_name = {name: tensor for tensor, name in self.trainable.items()}
        operands = []
        for position, name in enumerate(mark.parameters):
            spec = operator.operation.operands[position]
            placement = known[position] or Placement.replicated(spec.num_dims)
            parameter = by_name.get(name)
            if parameter is None:
                used = home = placement.complete()
            else:
                if parameter not in self.lies:
                    self._decide(parameter, placement.complete())
                used = self.lies[parameter]
                home = self.homes.get(parameter, used)
            settlement = self.policy.gradient(name, spec, home, used)
            self.settled[operator.results[position]] = settlement
            operands.append(placement)
        assignment = ((),) * len(rule_for(operator.operation).factors)
        self._finish(number, operator, OperatorPlan(assignment, tuple(operands), tuple(operands)))

    def _loss(self, number: int, operator: Operator, known: Known) -> None:
        """The first cotangents lie as the loss does, and count as often as the policy says."""
        half = len(known) // 2
        if None in known[:half]:
            for tensor, placement in zip(operator.operands[:half], known, strict=False):
                if placement is None:
                    self.waiting.setdefault(tensor, []).append(number)
            return
        losses = [each for each in known[:half] if each is not None]
        starts = [each.complete() for each in losses]
        for tensor, placement in zip(operator.results[half:], starts, strict=True):
            scale = self.policy.loss_scale(placement)
            if scale != 1.0:
                self.settled[tensor] = Settlement(placement, "start of the backward pass", scale=scale)
        where = (*losses, *starts)
        self._finish(number, operator, OperatorPlan(nothing_cut(rule_for(operator.operation)), where, where))

    def _weight_again(self, number: int, operator: Operator, mark: WeightMark, known: Known) -> None:
        """A copy of a parameter as it is kept, which is then brought to where operators have the parameter."""
        parameter = operator.operands[0]
        used, late = known
        if used is None:
            self.waiting.setdefault(parameter, []).append(number)
            return
        home = self.homes.get(parameter, used)
        if home != used:
            self.settled[operator.results[0]] = self.policy.weight(mark.parameter, used)
        where = (home, late or Placement.replicated(operator.operation.operands[1].num_dims))
        self._finish(number, operator, OperatorPlan(nothing_cut(rule_for(operator.operation)), where, where))

    # ------------------------------------------------------------------------------------------------- control flow

    def _control(self, number: int, operator: Operator, known: Sequence[Placement | None]) -> None:
        if number in self.given.control:
            plan = plan_as_decided(operator, self.given.control[number], self.given.bodies[number], self._body)
        else:
            complete = [None if each is None else each.complete() for each in known]
            plan = plan_control_flow(operator, complete, self._body)
        self._finish(number, operator, plan)

    def _body(
        self,
        body: OperatorGraph,
        arguments: Known,
        outputs: Known = (),
        stacked: int | None = None,
        given: Given | None = None,
    ) -> tuple[Plan, tuple[Placement, ...]]:
        """The plan of a body whose arguments lie as given, and whose results shall lie as given where that is said.

        Results from number `stacked` on may be parts of sums. Beside it, where operators inside have the arguments;
        parameters may be kept elsewhere. Operators are cut as given.
        """
        first = len(body.inputs) - len(arguments)
        inputs = {
            each.tensor: placement
            for each, placement in zip(body.inputs[first:], arguments, strict=True)
            if placement is not None
        }
        inner = _Propagation(
            body,
            self.mesh,
            inputs,
            self.policy,
            self.alltoall,
            given or Given(),
            outputs=outputs,
            stacked=stacked,
            passed=self.passed,
            busy=self.busy,
        )
        plan = inner.run()
        self.notes.update(inner.notes)
        return plan, tuple(inner.lies[each.tensor] for each in body.inputs[first:])

    # ------------------------------------------------------------------------------------------------------- the end

    def _decide_the_rest(self) -> None:
        """What no reader asked for in any way is whole everywhere."""
        for each in self.graph.inputs:
            if each.tensor not in self.lies:
                self._decide(each.tensor, self._as_its_parameter(each))
                self._drain()
        for number, operator in enumerate(self.graph.operators):
            if number not in self.plans:
                rule = rule_for(operator.operation)
                known = [self._seen(tensor, number) for tensor in operator.operands]
                if operator.name == MARK:
                    whole = tuple(Placement.replicated(spec.num_dims) for spec in operator.operation.operands)
                    self._finish(number, operator, OperatorPlan(nothing_cut(rule), whole, whole))
                elif any(placement is not None and placement.dims for placement in known):
                    self._cut(number, operator, known, [None] * len(operator.results))
                else:
                    where, whence = placements(rule, nothing_cut(rule))
                    self._finish(number, operator, OperatorPlan(nothing_cut(rule), where, whence))
                self._drain()

    def _as_its_parameter(self, each: Input) -> Placement:
        """For state that no operator touched (a momentum of 0): where the parameter is kept whose name ends its own."""
        spec = self.graph.tensors[each.tensor]
        for tensor, name in self.trainable.items():
            if (
                each.name.endswith(f".{name}")
                and self.graph.tensors[tensor].shape == spec.shape
                and tensor in self.lies
            ):
                return self.homes.get(tensor, self.lies[tensor])
        return Placement.replicated(spec.num_dims)

    def _outputs(self, inputs: Sequence[Placement]) -> tuple[Placement, ...]:
        aliased = {output: inputs[argument] for output, argument in self.graph.aliases}
        asked = dict(enumerate(self.outputs))
        found = []
        for position, tensor in enumerate(self.graph.outputs):
            here = SCALAR if tensor == LITERAL else self.lies[tensor]
            if self.stacked is None or position < self.stacked:
                here = here.complete()
            found.append(aliased.get(position) or asked.get(position) or here)
        return tuple(found)


def _refines(placement: Placement, coarser: Placement) -> bool:
    """Whether every dimension is cut as in the coarser placement, and perhaps further."""
    return all(axes[: len(before)] == before for axes, before in zip(placement.dims, coarser.dims, strict=True))


def _without(placement: Placement | None, taken: frozenset[int]) -> Placement | None:
    """What is left of a placement when others have taken some axes: of each dimension, the cuts before the first of these."""
    if placement is None or not placement.used & taken:
        return placement
    dims = (tuple(itertools.takewhile(lambda axis: axis not in taken, axes)) for axes in placement.dims)
    return Placement(tuple(dims), tuple(axis for axis in placement.partial if axis not in taken), placement.reduction)
