"""Loops and branches inlined: one graph without bodies, for searches, costs and questions that look at single operators.

A body is inlined once in the place of its loop, and its operators say how often they run. Edge operators, which never
run (`planner.rules.loop_rules`), relate the tensors inside to the tensors outside:

    operand        enter -> argument                      resharded to the placement of the body, once per loop
    stacked        slice                                  the slice of a round has the placement of the whole, without
                                                          the dimension of the rounds
    carried        enter -> argument ... carry            the value for the next round has the placement of this round's
    results        stack, or carry, or join of branches

A plan of the inlined graph is a plan of the step and the reverse: `InlinedStep.folded` and `InlinedStep.unfolded`
translate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import OperatorGraph
from sporax.ir.placement import Placement
from sporax.ir.plan import OperatorPlan, Plan, Resharding
from sporax.planner.loops.graph_writer import Control, Part, Reader, Writer
from sporax.planner.rules import propagate, rule_for
from sporax.planner.rules.loop_rules import CARRY, STACK

_SCALAR = Placement(())
"""The placement of an index or a condition, which has no dimension to shard."""


@dataclass(frozen=True, slots=True)
class InlinedStep:
    """A step whose loops and branches are written out.

    Attributes:
        graph: the one graph; its first tensors and inputs, and its outputs, are those of the step.
        root: the step in it.
        owners: for every operator of the graph the operator of the step that it belongs to.
    """

    graph: OperatorGraph
    root: Part
    owners: tuple[int, ...]

    @property
    def step(self) -> OperatorGraph:
        """The step itself."""
        return self.root.graph

    def folded(self, plan: Plan) -> Plan:
        """The plan of the step that a plan of the inlined graph is."""
        if self.graph is self.step:
            return plan
        # The inlined graph's further inputs are constants of bodies, which belong to the bodies' plans.
        return _folded(self.root, plan, plan.inputs[: len(self.step.inputs)], plan.outputs, plan.notes)

    def unfolded(self, plan: Plan) -> Plan:
        """The plan of the inlined graph that a plan of the step is."""
        if self.graph is self.step:
            return plan
        unfolding = _Unfolding(self.graph, plan.mesh)
        unfolding.part(self.root, plan)
        return replace(
            plan,
            inputs=(*plan.inputs, *unfolding.constants),
            operators=tuple(unfolding.operators[number] for number in range(len(self.graph.operators))),
            reshardings=unfolding.reshardings,
            graph=self.graph.fingerprint(),
        )


def inline_loops(graph: OperatorGraph) -> InlinedStep:
    """A step with its loops and branches written out; the same graph where it has none."""
    # Nothing to do is the common case, and callers compare graphs by identity.
    if not any(operator.bodies for operator in graph.operators):
        positions = tuple(range(len(graph.operators)))
        return InlinedStep(graph, Part(graph, tuple(range(len(graph.tensors))), positions), positions)
    writer = Writer([*graph.tensors], [*graph.inputs])
    root = writer.part(graph, tuple(range(len(graph.tensors))), 1)
    one = replace(graph, tensors=tuple(writer.tensors), operators=tuple(writer.operators), inputs=tuple(writer.inputs))
    return InlinedStep(one, root, tuple(writer.owners))


def loops_around(graph: OperatorGraph) -> list[tuple[int, ...]]:
    """For every operator of a graph in which loops are written out those that it is in, outermost first.

    What takes the results of a loop is in it; loops that run once are left out.
    """
    operators = graph.operators
    around: list[tuple[int, ...]] = [()] * len(operators)
    edges = enumerate(number for number, operator in enumerate(operators) if operator.name in (STACK, CARRY))
    # Behind a loop are the operators that take its results; before these, all that runs more often is inside.
    for (_, times), group in groupby(edges, lambda edge: (edge[1] - edge[0], operators[edge[1]].times)):
        behind = [number for _, number in group]
        first = behind[0]
        while first and operators[first - 1].times > times:
            first -= 1
        if first < behind[0]:
            # Loops inside end before this one does.
            around[first : behind[-1] + 1] = [(first, *inner) for inner in around[first : behind[-1] + 1]]
    return around


def _folded(
    part: Part, plan: Plan, inputs: Sequence[Placement], outputs: Sequence[Placement], notes: tuple[str, ...] = ()
) -> Plan:
    """What a plan of the inlined graph says of a part of it."""
    operators = [
        _folded_control(operator, plan) if isinstance(operator, Control) else plan.operators[operator]
        for operator in part.operators
    ]
    reshardings = {
        tensor: plan.reshardings[number]
        for tensor, number in enumerate(part.tensors)
        if number in plan.reshardings
        # One number in the step's graph may be another one in the inlined graph; reshardings are keyed by number.
    }
    return replace(
        plan,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        operators=tuple(operators),
        reshardings=reshardings,
        notes=notes,
        graph=part.graph.fingerprint(),
    )


def _folded_control(control: Control, plan: Plan) -> OperatorPlan:
    def read(reader: Reader | None) -> Placement:
        return _SCALAR if reader is None else plan.operators[reader[0]].operands[reader[1]]

    bodies = [
        _folded(
            body.part,
            plan,
            [plan.operators[argument].results[0] for argument in body.arguments],
            [*map(read, body.ends)],
        )
        for body in control.bodies
    ]
    # The last of a chain is what the body reads; without a chain the operand is the index of a branch.
    return OperatorPlan(
        (),
        tuple(read((chain[-1], 0) if chain else None) for chain in control.operands),
        tuple(plan.operators[result].results[0] for result in control.results),
        tuple(bodies),
    )


@dataclass(slots=True)
class _Unfolding:
    """Collects what a plan of a step says of the inlined graph."""

    graph: OperatorGraph
    mesh: DeviceMatrix
    operators: dict[int, OperatorPlan] = field(default_factory=dict)
    reshardings: dict[int, Resharding] = field(default_factory=dict)
    constants: list[Placement] = field(default_factory=list)

    def part(self, part: Part, plan: Plan) -> None:
        """Note what `plan` says of a part."""
        self.reshardings.update((part.tensors[tensor], resharding) for tensor, resharding in plan.reshardings.items())
        for place, planned in zip(part.operators, plan.operators, strict=True):
            if isinstance(place, Control):
                self._control(place, planned)
            else:
                self.operators[place] = planned

    def _control(self, control: Control, planned: OperatorPlan) -> None:
        handed: dict[int, Placement] = {}
        for chain, placement in zip(control.operands, planned.operands, strict=True):
            handed.update(dict.fromkeys(chain, placement))
            # The entrance itself, which only chains of two or more have: slices come in without one.
            for number in chain[:-1][:1]:
                self._edge(number, [placement], placement)
        taken: dict[Reader, Placement] = {}
        for body, plan in zip(control.bodies, planned.bodies, strict=True):
            self.constants += plan.inputs[: len(body.constants)]
            for number, where in zip(body.constants, plan.inputs, strict=False):
                self._edge(number, [where], where)
            for number, where in zip(body.arguments, plan.inputs, strict=True):
                # A constant of the body is not handed by the step, so it is where its own plan says.
                self._edge(number, [handed.get(number, where)], where)
            self.part(body.part, plan)
            taken.update((end, where) for end, where in zip(body.ends, plan.outputs, strict=True) if end is not None)
        for number, result in zip(control.results, planned.results, strict=True):
            # What no body makes: the number of a branch, and what a round got, which has the placement of the result.
            operator = self.graph.operators[number]
            other = result if operator.name == CARRY else _SCALAR
            positions = [taken.get((number, place), other) for place in range(len(operator.operands))]
            self._edge(number, positions, result)

    def _edge(self, number: int, operands: Sequence[Placement], result: Placement) -> None:
        rule = rule_for(self.graph.operators[number].operation)
        # Edge operators are in no plan of the step: their assignment follows from both sides.
        assignment = propagate(rule, self.mesh, operands, [result])
        self.operators[number] = OperatorPlan(assignment, tuple(operands), (result,))
