"""Writes the bodies of loops and branches into the graph around them.

Problem: searches look at single operators of one graph, but a step has loops and branches with graphs of their own.

Method: the operators of a body are copied to the place of its loop under new tensor numbers, with the number of rounds.
Edge operators (`planner.rules.loop_rules`) join tensors inside to tensors outside. `Part`, `Body` and `Control` record where
each operator went, so that plans can be translated both ways (`planner.loops.inline`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from sporax.ir.graph import LITERAL, Input, Operator, OperatorGraph, Role
from sporax.ir.operation import Operation, TensorSpec
from sporax.planner.rules.loop_rules import ARGUMENT, CARRY, ENTER, JOIN, SLICE, STACK, SUMMED

UNKNOWN_ROUNDS = 10
"""Rounds counted for a loop whose number of rounds is known only when it runs: more than one, so that its inside weighs more."""

_NOTHING: Mapping[str, bool] = MappingProxyType({})

Reader = tuple[int, int]
"""An operator of the inlined graph, and which of its operands is meant."""


@dataclass(frozen=True, slots=True)
class Body:
    """A body in the inlined graph.

    Attributes:
        part: what is in it.
        constants: operators that bring in what the body brought along.
        arguments: for every input of the body the operator that makes it, constants first.
        ends: for every output the operator that reads it; None where there is none.
    """

    part: Part
    constants: tuple[int, ...]
    arguments: tuple[int, ...]
    ends: tuple[Reader | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Control:
    """Control flow in the inlined graph.

    Attributes:
        operands: for every operand the operators that bring it in: its entrance and the arguments that it becomes, or a slice.
        results: for every result the operator that makes it.
        bodies: its bodies.
    """

    operands: tuple[tuple[int, ...], ...]
    results: tuple[int, ...]
    bodies: tuple[Body, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """A graph in the inlined graph.

    Attributes:
        graph: the graph.
        tensors: the number of each of its tensors.
        operators: the number of each of its operators; control flow by its parts.
    """

    graph: OperatorGraph
    tensors: tuple[int, ...]
    operators: tuple[int | Control, ...]


_Typed = tuple[int, TensorSpec]
"""A tensor or `LITERAL`, and what it is."""


class _Entry(NamedTuple):
    """How an operand comes in: as arguments of bodies, from behind an entrance, or in slices."""

    kind: str
    source: _Typed
    chain: list[int]


@dataclass(slots=True)
class Writer:
    """Writes bodies into one graph."""

    tensors: list[TensorSpec]
    inputs: list[Input]
    operators: list[Operator] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)
    depth: int = 0
    owner: int = 0

    def part(self, graph: OperatorGraph, numbers: tuple[int, ...], times: int) -> Part:
        """Add the operators of a graph whose tensors have the given numbers."""
        positions: list[int | Control] = []
        self.depth += 1
        for position, operator in enumerate(graph.operators):
            # Only the outermost graph's operators are owners; what is inside belongs to its loop.
            if self.depth == 1:
                self.owner = position
            operands = tuple(_number(numbers, operand) for operand in operator.operands)
            results = tuple(numbers[result] for result in operator.results)
            outside = replace(operator, operands=operands, results=results, times=times)
            positions.append(_KINDS[operator.name](self, outside) if operator.bodies else self._add(outside))
        self.depth -= 1
        return Part(graph, numbers, tuple(positions))

    def _add(self, operator: Operator) -> int:
        self.operators.append(operator)
        self.owners.append(self.owner)
        return len(self.operators) - 1

    def _tensor(self, spec: TensorSpec) -> int:
        # A constant's value belongs to one body only; the copy may hold another value in each round.
        self.tensors.append(replace(spec, constant=None))
        return len(self.tensors) - 1

    def _edge(
        self,
        name: str,
        around: Operator,
        operands: Sequence[_Typed],
        result: int,
        times: int,
        params: Mapping[str, bool] = _NOTHING,
    ) -> int:
        numbers, specs = zip(*operands, strict=True)
        operation = Operation(name, specs, (self.tensors[result],), params)
        return self._add(Operator(operation, numbers, (result,), around.path, around.backward, (), times))

    def scan(self, operator: Operator) -> Control:
        """Constants and what is carried come in whole, stacked operands in slices."""
        # JAX's order of operands: constants, carried values, stacked values.
        params, (graph,) = operator.operation.params, operator.bodies
        num_consts, num_carry = params["num_consts"], params["num_carry"]
        # A loop of length zero is still planned, and must not make its inside free of cost.
        times = operator.times * max(int(params["length"]), 1)
        carried = [argument.tensor for argument in graph.inputs[len(graph.inputs) - len(operator.operands) :]][
            num_consts:
        ]
        pairs = zip(carried, graph.outputs[:num_carry], strict=False)
        summed = [*[False] * num_consts, *(_adds_to(graph, got, output) for got, output in pairs)]
        entries = [self._enter(operator, position, entry) for position, entry in enumerate(summed)]
        typed = list(zip(operator.operands, operator.operation.operands, strict=True))
        entries += [_Entry(SLICE, entry, []) for entry in typed[num_consts + num_carry :]]
        body = self._body(operator, graph, entries, times)
        first = len(body.constants) + num_consts
        results = []
        for position, (tensor, stacked) in enumerate(zip(operator.results, operator.operation.results, strict=True)):
            if position < num_carry:
                # The value that a round got comes from the operator that carries it in.
                got = body.arguments[first + position]
                results.append(self._carry(operator, got, self._made(body, position, stacked), tensor))
            else:
                # The body sees one slice of what is stacked, without the dimension of the rounds.
                output = self._made(body, position, replace(stacked, shape=stacked.shape[1:]))
                results.append(self._edge(STACK, operator, [output], tensor, operator.times))
        # A carried result reads the end of the round as its second operand, a stacked one as its first.
        ends = [(number, int(position < num_carry)) for position, number in enumerate(results)]
        return _control(entries, results, [replace(body, ends=tuple(ends))])

    def while_(self, operator: Operator) -> Control:
        """What is carried comes to the condition and to the body."""
        params, (test, graph) = operator.operation.params, operator.bodies
        # JAX's order of operands: constants of the condition, constants of the body, carried values.
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
        # A carry's second operand is what the body makes; the condition's result ends nowhere.
        ends = tuple((number, 1) for number in results)
        return _control(entries, results, [replace(condition, ends=(None,)), replace(body, ends=ends)])

    def cond(self, operator: Operator) -> Control:
        """Every branch counts as if it ran."""
        entries = [self._enter(operator, position) for position in range(1, len(operator.operands))]
        bodies = [self._body(operator, body, entries, operator.times) for body in operator.bodies]
        # The index is no argument of the branches, and joins only at their end.
        index = operator.operands[0], operator.operation.operands[0]
        results = []
        for position, (tensor, spec) in enumerate(zip(operator.results, operator.operation.results, strict=True)):
            branch_results = [self._made(body, position, spec) for body in bodies]
            results.append(self._edge(JOIN, operator, [index, *branch_results], tensor, operator.times))
        # Operand 0 of a join is the index, so branch k is operand k + 1.
        ends = [tuple((number, 1 + branch) for number in results) for branch in range(len(bodies))]
        bodies = [replace(body, ends=end) for body, end in zip(bodies, ends, strict=True)]
        return _control([_Entry("", index, []), *entries], results, bodies)

    def _enter(self, operator: Operator, position: int, summed: bool = False) -> _Entry:
        """Bring an operand in; `summed` for what every round adds to."""
        source = operator.operands[position], operator.operation.operands[position]
        entered = self._tensor(source[1])
        params = {SUMMED: True} if summed else _NOTHING
        entrance = self._edge(ENTER, operator, [source], entered, operator.times, params)
        return _Entry(ARGUMENT, (entered, self.tensors[entered]), [entrance])

    def _body(self, operator: Operator, graph: OperatorGraph, entries: Sequence[_Entry], times: int) -> Body:
        """A body that is handed what came in; its constants come in as arguments of the step."""
        inside = tuple(map(self._tensor, graph.tensors))
        own = []
        # Constants that a body brings along precede its arguments and are unknown to the step.
        for argument in graph.inputs[: len(graph.inputs) - len(entries)]:
            spec = graph.tensors[argument.tensor]
            self.inputs.append(Input(self._tensor(spec), Role.CONSTANT, argument.name))
            entered = self._tensor(spec)
            entrance = self._edge(ENTER, operator, [(self.inputs[-1].tensor, spec)], entered, operator.times)
            own.append(_Entry(ARGUMENT, (entered, spec), [entrance]))
        constants = tuple(entry.chain[0] for entry in own)
        arguments = []
        # Entries are shared by condition and body, or by branches, so each of them adds to the chains.
        for entry, argument in zip([*own, *entries], graph.inputs, strict=True):
            arguments.append(self._edge(entry.kind, operator, [entry.source], inside[argument.tensor], times))
            entry.chain.append(arguments[-1])
        return Body(self.part(graph, inside, times), constants, tuple(arguments))

    def _carry(self, operator: Operator, got: int, output: _Typed, result: int) -> int:
        tensor = self.operators[got].results[0]
        return self._edge(CARRY, operator, [(tensor, self.tensors[tensor]), output], result, operator.times)

    def _made(self, body: Body, position: int, spec: TensorSpec) -> _Typed:
        """A result of a body; `spec` says what it is if it is a literal."""
        tensor = _number(body.part.tensors, body.part.graph.outputs[position])
        return tensor, spec if tensor == LITERAL else self.tensors[tensor]


def _adds_to(body: OperatorGraph, got: int, output: int) -> bool:
    """Whether a round adds to what it got, and does nothing else with it: so gradients are summed up."""
    readers = [operator for operator in body.operators if got in operator.operands]
    return (
        len(readers) == 1
        # Another reader would see the partial sum of the rounds so far.
        and readers[0].name in ("add", "add_any")
        and readers[0].results == (output,)
        # Only floating-point sums may be reduced in another order and place.
        and body.tensors[got].is_inexact
    )


def _control(entries: Sequence[_Entry], results: Sequence[int], bodies: Sequence[Body]) -> Control:
    return Control(tuple(tuple(entry.chain) for entry in entries), tuple(results), tuple(bodies))


def _number(numbers: Sequence[int], tensor: int) -> int:
    return LITERAL if tensor == LITERAL else numbers[tensor]


_KINDS: Mapping[str, Callable[[Writer, Operator], Control]] = {
    "scan": Writer.scan,
    "while": Writer.while_,
    "cond": Writer.cond,
}
