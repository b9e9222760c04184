"""Loops and branches written out: one graph without bodies, for searches, prices and questions that look at operators one by one.

A body stands there once, in place of its loop, and its operators say how often they run. At its edges there are operators that
never run (`planner.rules.loops`) and say how tensors inside and outside belong together:

    operand        enter -> argument                      brought to where the body has it, once per loop
    stacked        slice                                  a round's slice lies as the whole does, but for the rounds
    carried        enter -> argument ... carry            what the next round gets must lie as what this one got
    results        stack, or carry, or join of branches

A plan of the one graph is a plan of the other: `WrittenOut.folded` and `WrittenOut.unfolded` translate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import LITERAL, Input, Operator, OperatorGraph, Role
from sporax.ir.operation import Operation, TensorSpec
from sporax.ir.placement import Placement
from sporax.ir.plan import OperatorPlan, Plan, Settlement
from sporax.planner.rules import propagate, rule_for
from sporax.planner.rules.loops import ARGUMENT, CARRY, ENTER, JOIN, SLICE, STACK

UNKNOWN_ROUNDS = 10
"""What the rounds of a loop count whose number nobody knows before it runs."""

_SCALAR = Placement(())

Reader = tuple[int, int]
"""An operator of the written out graph, and which of its operands is meant."""


@dataclass(frozen=True, slots=True)
class _Body:
    """A body in the written out graph.

    Attributes:
        part: what is in it.
        constants: operators that bring in what the body brought along.
        arguments: for every input of the body the operator that makes it, constants first.
        ends: for every output who takes it over; None where nobody does.
    """

    part: _Part
    constants: tuple[int, ...]
    arguments: tuple[int, ...]
    ends: tuple[Reader | None, ...] = ()


@dataclass(frozen=True, slots=True)
class _Control:
    """Control flow in the written out graph.

    Attributes:
        operands: for every operand the operators that bring it in: its entrance and the arguments that it becomes, or a slice.
        results: for every result the operator that makes it.
        bodies: its bodies.
    """

    operands: tuple[tuple[int, ...], ...]
    results: tuple[int, ...]
    bodies: tuple[_Body, ...]


@dataclass(frozen=True, slots=True)
class _Part:
    """A graph in the written out graph.

    Attributes:
        graph: the graph.
        tensors: the number of each of its tensors.
        operators: the number of each of its operators; control flow by its parts.
    """

    graph: OperatorGraph
    tensors: tuple[int, ...]
    operators: tuple[int | _Control, ...]


@dataclass(frozen=True, slots=True)
class WrittenOut:
    """A step whose loops and branches are written out.

    Attributes:
        graph: the one graph; its first tensors and inputs, and its outputs, are those of the step.
        whole: the step in it.
        owners: for every operator of the graph the operator of the step that it belongs to.
    """

    graph: OperatorGraph
    whole: _Part
    owners: tuple[int, ...]

    @property
    def step(self) -> OperatorGraph:
        """The step itself."""
        return self.whole.graph

    def folded(self, plan: Plan) -> Plan:
        """The plan of the step that a plan of the written out graph is."""
        if self.graph is self.step:
            return plan
        return _folded(self.whole, plan, plan.inputs[: len(self.step.inputs)], plan.outputs, plan.notes)

    def unfolded(self, plan: Plan) -> Plan:
        """The plan of the written out graph that a plan of the step is."""
        if self.graph is self.step:
            return plan
        unfolding = _Unfolding(self.graph, plan.mesh)
        unfolding.part(self.whole, plan)
        return replace(
            plan,
            inputs=(*plan.inputs, *unfolding.constants),
            operators=tuple(unfolding.operators[number] for number in range(len(self.graph.operators))),
            settled=unfolding.settled,
            graph=self.graph.fingerprint(),
        )


def written_out(graph: OperatorGraph) -> WrittenOut:
    """A step with its loops and branches written out; the same graph where it has none."""
    if not any(operator.bodies for operator in graph.operators):
        places = tuple(range(len(graph.operators)))
        return WrittenOut(graph, _Part(graph, tuple(range(len(graph.tensors))), places), places)
    writer = _Writer([*graph.tensors], [*graph.inputs])
    whole = writer.part(graph, tuple(range(len(graph.tensors))), 1)
    one = replace(graph, tensors=tuple(writer.tensors), operators=tuple(writer.operators), inputs=tuple(writer.inputs))
    return WrittenOut(one, whole, tuple(writer.owners))


# --------------------------------------------------------------------------------------------------------------- plans


def _folded(
    part: _Part,
    plan: Plan,
    inputs: Sequence[Placement],
    outputs: Sequence[Placement],
    notes: tuple[str, ...] = (),
) -> Plan:
    """What a plan of the written out graph says of a part of it."""
    operators = [
        _folded_control(each, plan) if isinstance(each, _Control) else plan.operators[each] for each in part.operators
    ]
    settled = {tensor: plan.settled[number] for tensor, number in enumerate(part.tensors) if number in plan.settled}
    return replace(
        plan,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        operators=tuple(operators),
        settled=settled,
        notes=notes,
        graph=part.graph.fingerprint(),
    )


def _folded_control(control: _Control, plan: Plan) -> OperatorPlan:
    def read(reader: Reader | None) -> Placement:
        return _SCALAR if reader is None else plan.operators[reader[0]].operands[reader[1]]

    bodies = [
        _folded(body.part, plan, [plan.operators[each].results[0] for each in body.arguments], [*map(read, body.ends)])
        for body in control.bodies
    ]
    return OperatorPlan(
        (),
        tuple(read((chain[-1], 0) if chain else None) for chain in control.operands),
        tuple(plan.operators[each].results[0] for each in control.results),
        tuple(bodies),
    )


@dataclass(slots=True)
class _Unfolding:
    """Collects what a plan of a step says of the written out graph."""

    graph: OperatorGraph
    mesh: DeviceMatrix
    operators: dict[int, OperatorPlan] = field(default_factory=dict)
    settled: dict[int, Settlement] = field(default_factory=dict)
    constants: list[Placement] = field(default_factory=list)

    def part(self, part: _Part, plan: Plan) -> None:
        """Note what `plan` says of a part."""
        self.settled.update((part.tensors[tensor], settlement) for tensor, settlement in plan.settled.items())
        for place, planned in zip(part.operators, plan.operators, strict=True):
            if isinstance(place, _Control):
                self._control(place, planned)
            else:
                self.operators[place] = planned

    def _control(self, control: _Control, planned: OperatorPlan) -> None:
        handed: dict[int, Placement] = {}
        for chain, placement in zip(control.operands, planned.operands, strict=True):
            handed.update(dict.fromkeys(chain, placement))
            for number in chain[:-1][:1]:
                self._edge(number, [placement], placement)
        taken: dict[Reader, Placement] = {}
        for body, plan in zip(control.bodies, planned.bodies, strict=True):
            self.constants += plan.inputs[: len(body.constants)]
            for number, where in zip(body.constants, plan.inputs, strict=False):
                self._edge(number, [where], where)
            for number, where in zip(body.arguments, plan.inputs, strict=True):
                self._edge(number, [handed.get(number, where)], where)
            self.part(body.part, plan)
            taken.update((end, where) for end, where in zip(body.ends, plan.outputs, strict=True) if end is not None)
        for number, result in zip(control.results, planned.results, strict=True):
            # What no body makes: the number of a branch, and what a round got, which lies as the result does.
            operator = self.graph.operators[number]
            other = result if operator.name == CARRY else _SCALAR
            places = [taken.get((number, place), other) for place in range(len(operator.operands))]
            self._edge(number, places, result)

    def _edge(self, number: int, operands: Sequence[Placement], result: Placement) -> None:
        rule = rule_for(self.graph.operators[number].operation)
        assignment = propagate(rule, self.mesh, operands, [result])
        self.operators[number] = OperatorPlan(assignment, tuple(operands), (result,))


# -------------------------------------------------------------------------------------------------------------- graphs

_Typed = tuple[int, TensorSpec]
"""A tensor or `LITERAL`, and what it is."""


class _Entry(NamedTuple):
    """How an operand comes in: as arguments of bodies, from behind an entrance, or in slices."""

    kind: str
    source: _Typed
    chain: list[int]


@dataclass(slots=True)
class _Writer:
    """Writes bodies into one graph."""

    tensors: list[TensorSpec]
    inputs: list[Input]
    operators: list[Operator] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)
    depth: int = 0
    owner: int = 0

    def part(self, graph: OperatorGraph, numbers: tuple[int, ...], times: int) -> _Part:
        """Add the operators of a graph whose tensors have the given numbers."""
        places: list[int | _Control] = []
        self.depth += 1
        for position, operator in enumerate(graph.operators):
            if self.depth == 1:
                self.owner = position
            operands = tuple(_number(numbers, each) for each in operator.operands)
            results = tuple(numbers[each] for each in operator.results)
            outside = replace(operator, operands=operands, results=results, times=times)
            places.append(_KINDS[operator.name](self, outside) if operator.bodies else self._add(outside))
        self.depth -= 1
        return _Part(graph, numbers, tuple(places))

    def _add(self, operator: Operator) -> int:
        self.operators.append(operator)
        self.owners.append(self.owner)
        return len(self.operators) - 1

    def _tensor(self, spec: TensorSpec) -> int:
        self.tensors.append(replace(spec, constant=None))
        return len(self.tensors) - 1

    def _edge(self, name: str, around: Operator, operands: Sequence[_Typed], result: int, times: int) -> int:
        numbers, specs = zip(*operands, strict=True)
        operation = Operation(name, specs, (self.tensors[result],))
        return self._add(Operator(operation, numbers, (result,), around.path, around.backward, (), times))

    # --------------------------------------------------------------------------------------------------- loops, branches

    def scan(self, operator: Operator) -> _Control:
        """Constants and what is carried come in whole, stacked operands in slices."""
        params, (graph,) = operator.operation.params, operator.bodies
        num_consts, num_carry = params["num_consts"], params["num_carry"]
        times = operator.times * max(int(params["length"]), 1)
        entries = [self._enter(operator, position) for position in range(num_consts + num_carry)]
        typed = list(zip(operator.operands, operator.operation.operands, strict=True))
        entries += [_Entry(SLICE, each, []) for each in typed[num_consts + num_carry :]]
        body = self._body(operator, graph, entries, times)
        first = len(body.constants) + num_consts
        results = []
        for position, (tensor, whole) in enumerate(zip(operator.results, operator.operation.results, strict=True)):
            if position < num_carry:
                got = body.arguments[first + position]
                results.append(self._carry(operator, got, self._made(body, position, whole), tensor))
            else:
                made = self._made(body, position, replace(whole, shape=whole.shape[1:]))
                results.append(self._edge(STACK, operator, [made], tensor, operator.times))
        ends = [(number, int(position < num_carry)) for position, number in enumerate(results)]
        return _control(entries, results, [replace(body, ends=tuple(ends))])

    def while_(self, operator: Operator) -> _Control:
        """What is carried comes to the condition and to the body."""
        params, (test, graph) = operator.operation.params, operator.bodies
        num_test, num_body = params["cond_nconsts"], params["body_nconsts"]
        times = operator.times * UNKNOWN_ROUNDS
        entries = [self._enter(operator, position) for position in range(len(operator.operands))]
        carried = entries[num_test + num_body :]
        condition = self._body(operator, test, [*entries[:num_test], *carried], times)
        body = self._body(operator, graph, entries[num_test:], times)
        first = len(body.constants) + num_body
        results = [
            self._carry(operator, got, self._made(body, position, spec), tensor)
            for position, (got, tensor, spec) in enumerate(
                zip(body.arguments[first:], operator.results, operator.operation.results, strict=True)
            )
        ]
        ends = tuple((number, 1) for number in results)
        return _control(entries, results, [replace(condition, ends=(None,)), replace(body, ends=ends)])

    def cond(self, operator: Operator) -> _Control:
        """Every branch counts as if it ran."""
        entries = [self._enter(operator, position) for position in range(1, len(operator.operands))]
        bodies = [self._body(operator, body, entries, operator.times) for body in operator.bodies]
        index = operator.operands[0], operator.operation.operands[0]
        results = []
        for position, (tensor, spec) in enumerate(zip(operator.results, operator.operation.results, strict=True)):
            made = [self._made(body, position, spec) for body in bodies]
            results.append(self._edge(JOIN, operator, [index, *made], tensor, operator.times))
        ends = [tuple((number, 1 + branch) for number in results) for branch in range(len(bodies))]
        bodies = [replace(body, ends=each) for body, each in zip(bodies, ends, strict=True)]
        return _control([_Entry("", index, []), *entries], results, bodies)

    def _enter(self, operator: Operator, position: int) -> _Entry:
        """Bring an operand in."""
        source = operator.operands[position], operator.operation.operands[position]
        entered = self._tensor(source[1])
        entrance = self._edge(ENTER, operator, [source], entered, operator.times)
        return _Entry(ARGUMENT, (entered, self.tensors[entered]), [entrance])

    def _body(self, operator: Operator, graph: OperatorGraph, entries: Sequence[_Entry], times: int) -> _Body:
        """A body that is handed what came in; its constants come in as arguments of the step."""
        inside = tuple(map(self._tensor, graph.tensors))
        own = []
        for each in graph.inputs[: len(graph.inputs) - len(entries)]:
            spec = graph.tensors[each.tensor]
            self.inputs.append(Input(self._tensor(spec), Role.CONSTANT, each.name))
            entered = self._tensor(spec)
            entrance = self._edge(ENTER, operator, [(self.inputs[-1].tensor, spec)], entered, operator.times)
            own.append(_Entry(ARGUMENT, (entered, spec), [entrance]))
        constants = tuple(each.chain[0] for each in own)
        arguments = []
        for entry, each in zip([*own, *entries], graph.inputs, strict=True):
            arguments.append(self._edge(entry.kind, operator, [entry.source], inside[each.tensor], times))
            entry.chain.append(arguments[-1])
        return _Body(self.part(graph, inside, times), constants, tuple(arguments))

    def _carry(self, operator: Operator, got: int, made: _Typed, result: int) -> int:
        tensor = self.operators[got].results[0]
        return self._edge(CARRY, operator, [(tensor, self.tensors[tensor]), made], result, operator.times)

    def _made(self, body: _Body, position: int, spec: TensorSpec) -> _Typed:
        """A result of a body; `spec` says what it is if it is a literal."""
        tensor = _number(body.part.tensors, body.part.graph.outputs[position])
        return tensor, spec if tensor == LITERAL else self.tensors[tensor]


def _control(entries: Sequence[_Entry], results: Sequence[int], bodies: Sequence[_Body]) -> _Control:
    return _Control(tuple(tuple(each.chain) for each in entries), tuple(results), tuple(bodies))


def _number(numbers: Sequence[int], tensor: int) -> int:
    return LITERAL if tensor == LITERAL else numbers[tensor]


_KINDS: Mapping[str, Callable[[_Writer, Operator], _Control]] = {
    "scan": _Writer.scan,
    "while": _Writer.while_,
    "cond": _Writer.cond,
}
