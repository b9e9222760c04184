"""A step whose loop over micro batches is opened: one flat graph of one micro batch.

`PipelineCell` makes one scan of its micro batches; differentiation makes two of it, one forward and one backward, and the
values kept in between are stacked. Here both bodies take the place of their loops. What a body adds up (gradients, the
loss) becomes a *sum*: one tensor per micro batch, accumulated by whoever runs the graph. What it hands from one micro batch
to the next in any other way (random counters, running statistics) becomes a *carry*.

    loss, grads, state = scan(body, …, x)        x[m] -> body -> loss[m], grads[m]; state[m] -> state[m + 1]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np

from sporax.base.errors import For, SporaxRuntimeError
from sporax.ir.graph import IDENTITIES, LITERAL, MICRO_LOOP, Input, Operator, OperatorGraph, Role
from sporax.ir.marks import LossMark
from sporax.ir.operation import Operation, TensorSpec
from sporax.lowering.ingest.ingest import Equation, Ingested
from sporax.lowering.jax_versions import scan_numbers
from sporax.lowering.pipeline.flat import (
    BARRIER,
    Carry,
    MicroStep,
    Phase,
    Sum,
    additions,
    part_of_identity,
    with_invariants,
)

_KEEP_ROWS = ("convert_element_type", "copy", "copy_p", "mark", "optimization_barrier", "stop_gradient")
"""Operations on a batch, before it is divided into micro batches, that can as well run on each micro batch."""


def open_micro_loop(step: Ingested) -> MicroStep:
    """The flat form of a step.

    Raises:
        SporaxRuntimeError: several loops over micro batches, or one that does something else than described here.
    """
    # The loop is known by the name that PipelineCell gives its scope: a scan that the network itself runs has another path.
    loops = [
        number
        for number, operator in enumerate(step.graph.operators)
        if operator.name == "scan" and MICRO_LOOP in operator.path.split(".")
    ]
    forward = [number for number in loops if not step.graph.operators[number].backward]
    backward = [number for number in loops if step.graph.operators[number].backward]
    if len(forward) > 1 or len(backward) > 1:
        raise For("PipelineCell").state_error(f"there must be one in a step, but this step runs {len(forward)} of them")
    if not forward:
        return _without_loop(step)
    return _Opener(step).open(forward[0], backward[0] if backward else None)


def _without_loop(step: Ingested) -> MicroStep:
    """A step that has no loop over micro batches: one forward pass."""
    first = len(step.constants)
    micro = {
        entry.tensor: position for position, entry in enumerate(step.graph.inputs[first:]) if entry.role is Role.DATA
    }
    flat = MicroStep(step, (Phase.FORWARD,) * len(step.graph.operators), 1, micro, looped=False)
    return replace(flat, phases=with_invariants(flat))


@dataclass(slots=True)
class _Opener:
    step: Ingested
    tensors: list[TensorSpec] = field(default_factory=list)
    constants: list[tuple[int, Any]] = field(default_factory=list)
    same: dict[int, int] = field(default_factory=dict)
    before: list[tuple[Operator, Equation]] = field(default_factory=list)
    inside: list[tuple[Operator, Equation, Phase]] = field(default_factory=list)
    micro: dict[int, int] = field(default_factory=dict)  # stacked tensor -> tensor of one micro batch
    micro_inputs: dict[int, int] = field(default_factory=dict)
    raw_micro: dict[int, int] = field(default_factory=dict)  # argument position -> tensor
    stacked: dict[int, int] = field(default_factory=dict)  # stacked result of the forward loop -> tensor inside
    sums: list[Sum] = field(default_factory=list)
    carries: list[Carry] = field(default_factory=list)
    carry_inputs: list[Input] = field(default_factory=list)
    repeated: set[int] = field(default_factory=set)
    starts: set[int] = field(default_factory=set)

    def open(self, forward: int, backward: int | None) -> MicroStep:
        graph = self.step.graph
        self.tensors = list(graph.tensors)
        num_micro = int(self.step.equations[forward].params["length"])
        self._body(forward, Phase.FORWARD)
        if backward is not None:
            self._body(backward, Phase.BACKWARD)
        outer: list[tuple[Operator, Equation]] = []
        for number, (operator, equation) in enumerate(zip(graph.operators, self.step.equations, strict=True)):
            if number in (forward, backward):
                continue
            # After the loop a cond is the skipped update of loss scaling. Kept whole it would tie all stages' updates to one
            # place; both branches cost little next to an exchange of gradients.
            if operator.name == "cond" and number > forward:
                outer += self._branches_and_choice(operator, equation)
                continue
            # The mark has shown ingestion which scan is differentiated; behind it the loss is the loop's own sum.
            if isinstance(operator.mark, LossMark):
                self.same.update(zip(operator.results, operator.operands, strict=True))
                if LITERAL in operator.operands:
                    self._literal_marks(operator, equation)
                continue
            outer.append((operator, equation))
        return self._finish(outer, num_micro, backward is not None)

    def _branches_and_choice(self, operator: Operator, equation: Equation) -> list[tuple[Operator, Equation]]:
        """A branch around the update, as both branches and a choice per result: so every stage has its own part of it."""
        entries: list[tuple[Operator, Equation]] = []
        outputs: list[list[int]] = []
        for body in equation.bodies:
            arguments, members, results = self._written_out(body)
            self.same.update((entry, self._operand(operator, equation, n)) for n, entry in enumerate(arguments, 1))
            entries += members
            outputs.append(results)
        index = self._operand(operator, equation, 0)
        primitive = jax.lax.select_n_p
        for result, *cases in zip(operator.results, *outputs, strict=True):
            # The branches agree on this result: a choice would only force both to be computed.
            if len({self._now(case) for case in cases}) == 1:
                self.same[result] = cases[0]
                continue
            specs = (self.tensors[index], *(self.tensors[case] for case in cases))
            choice = Operation(str(primitive.name), specs, (self.tensors[result],))
            chooses = Operator(choice, (index, *cases), (result,), operator.path)
            entries.append((chooses, Equation(primitive, {})))
        return entries

    def _literal_marks(self, operator: Operator, equation: Equation) -> None:
        for position, (result, operand) in enumerate(zip(operator.results, operator.operands, strict=True)):
            if operand == LITERAL:
                self.same[result] = self._constant(equation.literals[position], self.step.graph.tensors[result])

    def _finish(self, outer: Sequence[tuple[Operator, Equation]], num_micro: int, trains: bool) -> MicroStep:
        graph = self.step.graph
        early, after = self._around_the_loop(outer)
        # Operators must stay in an order in which every tensor is made before it is read.
        entries = [(*pair, Phase.FORWARD) for pair in self.before]
        entries += [(*pair, Phase.INVARIANT) for pair in early]
        entries += self.inside
        entries += [(*pair, Phase.UPDATE) for pair in after]
        operators = tuple(
            replace(operator, operands=tuple(map(self._now, operator.operands))) for operator, _, _ in entries
        )
        # Constants come first among the inputs, as in every ingested step, so arguments move back by their number.
        old = len(self.step.constants)
        inputs = (
            *graph.inputs[:old],
            *(Input(tensor, Role.CONSTANT, f"constant of the loop {tensor}") for tensor, _ in self.constants),
            *graph.inputs[old:],
            *(
                Input(tensor, Role.DATA, f"micro batch of input {position}")
                for tensor, position in self.micro_inputs.items()
            ),
            *self.carry_inputs,
        )
        shift = len(self.constants)
        flat = OperatorGraph(
            tuple(self.tensors),
            operators,
            inputs,
            tuple(map(self._now, graph.outputs)),
            tuple((output, argument + shift) for output, argument in graph.aliases),
        )
        step = Ingested(
            flat,
            tuple(equation for _, equation, _ in entries),
            (*self.step.constants, *(value for _, value in self.constants)),
            self.step.literal_outputs,
        )
        sums = tuple(
            replace(micro_sum, total=self._now(micro_sum.total), terms=tuple(map(self._now, micro_sum.terms)))
            for micro_sum in self.sums
        )
        carries = tuple(
            replace(carry, after=self._now(carry.after), start=self._now(carry.start)) for carry in self.carries
        )
        opened = MicroStep(
            step,
            tuple(phase for _, _, phase in entries),
            num_micro,
            self.micro_inputs,
            sums,
            carries,
            trains,
            repeated=frozenset(self.repeated),
            starts=frozenset(map(self._now, self.starts)),
        )
        return replace(opened, phases=with_invariants(opened))

    def _around_the_loop(
        self, outer: Sequence[tuple[Operator, Equation]]
    ) -> tuple[list[tuple[Operator, Equation]], list[tuple[Operator, Equation]]]:
        """The operators around the loops: those that do not read what these compute, and those that do."""
        # Only totals and last carries are known after the loop; whatever reads neither can run before it.
        late = {self._now(micro_sum.total) for micro_sum in self.sums} | {
            self._now(carry.after) for carry in self.carries
        }
        before: list[tuple[Operator, Equation]] = []
        after: list[tuple[Operator, Equation]] = []
        for operator, equation in outer:
            reads = [self._now(tensor) in late for tensor in operator.operands]
            if operator.name not in IDENTITIES or all(reads) or not any(reads):
                (after if any(reads) else before).append((operator, equation))
                late.update(operator.results if any(reads) else ())
                continue
            # One mark over tensors of both sides would pull the early ones behind the loop: it becomes two.
            for is_before, entries in ((False, before), (True, after)):
                positions = [position for position, is_late in enumerate(reads) if is_late is is_before]
                entries.append(part_of_identity(operator, equation, positions))
            late.update(result for result, is_late in zip(operator.results, reads, strict=True) if is_late)
        return before, after

    # ------------------------------------------------------------------------------------------------------- a body

    def _body(self, number: int, phase: Phase) -> None:
        operator, equation = self.step.graph.operators[number], self.step.equations[number]
        num_consts, num_carry = scan_numbers(equation.params)
        (body,) = equation.bodies
        arguments, members, outputs = self._written_out(body)
        entries = [(replace(member, backward=phase is Phase.BACKWARD), how) for member, how in members]
        for position in range(num_consts):
            self.same[arguments[position]] = self._operand(operator, equation, position)
        dropped, terms = self._hand_over(operator, equation, phase, entries, arguments, outputs)
        for position in range(num_consts + num_carry, len(operator.operands)):
            self.same[arguments[position]] = self._one_micro_batch(operator, position)
        self._stacked_results(operator, outputs, num_carry, phase)
        self.inside += [
            (operator, how, phase) for number, (operator, how) in enumerate(entries) if number not in dropped
        ]
        self.inside += [(*term, phase) for term in terms]

    def _written_out(self, body: Ingested) -> tuple[list[int], list[tuple[Operator, Equation]], list[int]]:
        """Arguments, operators and results of a body, by the numbers that its tensors get here."""
        offset = len(self.tensors)
        self.tensors.extend(body.graph.tensors)

        def inner(tensor: int) -> int:
            return tensor if tensor == LITERAL else tensor + offset

        inputs = [inner(entry.tensor) for entry in body.graph.inputs]
        self.constants += zip(inputs, body.constants, strict=False)
        entries = []
        for member, how in zip(body.graph.operators, body.equations, strict=True):
            operands, results = tuple(map(inner, member.operands)), tuple(map(inner, member.results))
            entries.append((replace(member, operands=operands, results=results), how))
        outputs = [
            self._constant(body.literal_outputs[position]) if tensor == LITERAL else inner(tensor)
            for position, tensor in enumerate(body.graph.outputs)
        ]
        return inputs[len(body.constants) :], entries, outputs

    def _hand_over(
        self,
        operator: Operator,
        equation: Equation,
        phase: Phase,
        entries: Sequence[tuple[Operator, Equation]],
        arguments: Sequence[int],
        outputs: Sequence[int],
    ) -> tuple[set[int], list[tuple[Operator, Equation]]]:
        """Make sums and carries of what goes from one round to the next.

        Gives the additions that are left out, and copies that become terms of sums.
        """
        num_consts, num_carry = scan_numbers(equation.params)
        producers = {tensor: number for number, (operator, _) in enumerate(entries) for tensor in operator.results}
        readers: dict[int, int] = {}
        for member, _ in entries:
            for tensor in member.operands:
                readers[tensor] = readers.get(tensor, 0) + 1
        for tensor in outputs:
            readers[tensor] = readers.get(tensor, 0) + 1
        dropped: set[int] = set()
        copies: list[tuple[Operator, Equation]] = []
        for position in range(num_carry):
            before, after = arguments[num_consts + position], outputs[position]
            start, result = self._operand(operator, equation, num_consts + position), operator.results[position]
            # A carry that no round changes is a constant of the loop; backward it is the cotangent of what the loop adds up.
            if after == before:
                self.same[before] = self.same[result] = start
                if phase is Phase.BACKWARD:
                    self._begins_backward(before, entries)
                continue
            chain = additions(after, before, entries, producers, readers)
            # A sum may start anywhere else than at zero only if one of them adds the start once: not worth a second form.
            if chain is not None and self._is_zero(start):
                numbers, terms = chain
                adding, how = entries[numbers[0]]
                dropped.update(numbers)
                own = tuple(self._term(term, entries, producers, readers, copies) for term in terms)
                self.sums.append(Sum(result, own, adding.operation, how))
                continue
            # A backward carry would order the backward passes of micro batches, which schedules run in an order of their own.
            if phase is Phase.BACKWARD:
                raise SporaxRuntimeError(
                    "For 'PipelineCell', gradients must be sums over the micro batches, but the backward pass hands something "
                    f"else from one micro batch to the next, of shape {self.tensors[after].shape}."
                )
            self.carries.append(Carry(before, after, start))
            # STATE: a planner may place it as it likes, but the same in every round.
            self.carry_inputs.append(Input(before, Role.STATE, f"carry {len(self.carries)} of the micro batches"))
            self.same[result] = after
        return dropped, copies

    def _begins_backward(self, cotangent: int, entries: Sequence[tuple[Operator, Equation]]) -> None:
        """Note what reads a cotangent that all micro batches have: each of them goes back from it by itself."""
        self.starts.add(cotangent)
        for operator, _ in entries:
            if operator.name in IDENTITIES:
                self.repeated.update(result for result, operand in operator.sources.items() if operand == cotangent)
            elif cotangent in operator.operands:
                self.repeated.update(operator.results)

    def _term(
        self,
        term: int,
        entries: Sequence[tuple[Operator, Equation]],
        producers: Mapping[int, int],
        readers: Mapping[int, int],
        copies: list[tuple[Operator, Equation]],
    ) -> int:
        """A tensor that is nothing but the term of one sum: the term, or a copy of it.

        The total takes the term's number (`sporax.lowering.pipeline.assign`), so it must not be what others read, too: an
        activation, a weight, a row of the batch.
        """
        number = producers.get(term)
        if number is not None and readers[term] == 1:
            self.repeated.add(term)
            return term
        copy, how = self._barrier(term)
        self.repeated.update(copy.results)
        if number is not None:
            maker = entries[number][0]
            copy = replace(copy, path=maker.path, backward=maker.backward, stage=maker.stage, segment=maker.segment)
        copies.append((copy, how))
        return copy.results[0]

    def _barrier(self, tensor: int) -> tuple[Operator, Equation]:
        """A copy of a tensor."""
        spec = self.tensors[tensor]
        operation = Operation(str(BARRIER.name), (spec,), (spec,))
        return Operator(operation, (tensor,), (self._new(spec),)), Equation(BARRIER, {})

    def _new(self, spec: TensorSpec) -> int:
        self.tensors.append(spec)
        return len(self.tensors) - 1

    def _stacked_results(self, operator: Operator, outputs: Sequence[int], num_carry: int, phase: Phase) -> None:
        """Stacked results of the forward loop are what the backward loop reads; nothing else may read any."""
        befores = {carry.before for carry in self.carries}
        read = {
            tensor for operator in self.step.graph.operators if operator.name != "scan" for tensor in operator.operands
        }
        # A stacked value would hold all micro batches at once, the memory that a pipeline exists to save.
        read.update(self.step.graph.outputs)
        for result, inside in zip(operator.results[num_carry:], outputs[num_carry:], strict=True):
            if result in read:
                raise SporaxRuntimeError(
                    "For 'PipelineCell', only the sum over the micro batches and gradients of Parameters may be used after it, "
                    f"but something reads a stacked value of shape {self.step.graph.tensors[result].shape}."
                )
            if phase is Phase.FORWARD:
                self.stacked[result] = self._copy(inside) if inside in befores else inside

    def _copy(self, tensor: int) -> int:
        """What a carry is in this micro batch, for readers that come when it has moved on."""
        operator, equation = self._barrier(tensor)
        self.inside.append((operator, equation, Phase.FORWARD))
        return operator.results[0]

    # ---------------------------------------------------------------------------------------------------- its inputs

    def _operand(self, operator: Operator, equation: Equation, position: int) -> int:
        tensor = operator.operands[position]
        return self._constant(equation.literals[position]) if tensor == LITERAL else tensor

    def _constant(self, value: Any, spec: TensorSpec | None = None) -> int:
        array = np.asarray(value, None if spec is None else np.dtype(spec.dtype))
        tensor = self._new(TensorSpec(array.shape, str(array.dtype), array.dtype.itemsize))
        self.constants.append((tensor, array))
        return tensor

    def _one_micro_batch(self, operator: Operator, position: int) -> int:
        """What a round has of a stacked operand: a value of the forward pass, or a part of an argument of the step."""
        stacked = operator.operands[position]
        if stacked in self.stacked:
            return self.stacked[stacked]
        if stacked not in self.micro:
            self.micro[stacked] = self._part_of_argument(stacked, position)
        return self.micro[stacked]

    def _part_of_argument(self, stacked: int, position: int) -> int:
        graph = self.step.graph
        producers = graph.producers()
        first = len(self.step.constants)
        arguments = {
            entry.tensor: number for number, entry in enumerate(graph.inputs[first:]) if entry.role is Role.DATA
        }
        # Reshapes only split the batch into micro batches; the other operations are run again on each part.
        chain: list[int] = []
        tensor, shape = stacked, graph.tensors[stacked].shape
        while tensor not in arguments:
            number = producers.get(tensor)
            operator = None if number is None else graph.operators[number]
            reshapes = (
                operator is not None and operator.name == "reshape" and not operator.operation.params.get("dimensions")
            )
            if operator is None or number is None or not (reshapes or operator.name in _KEEP_ROWS):
                raise SporaxRuntimeError(
                    f"For 'PipelineCell', input {position} must be an input of the step, but it is computed from others"
                    f"{f' by {operator.name} at {operator.path}' if operator else ''}: compute it in the data set, or inside "
                    "the network."
                )
            if not reshapes:
                chain.append(number)
            tensor = operator.sources.get(tensor, operator.operands[0])
        micro_shape = shape[1:]
        here = self._raw_part(arguments[tensor], tensor, micro_shape)
        for number in reversed(chain):
            here = self._on_part(number, here, micro_shape)
        return here

    def _raw_part(self, position: int, argument: int, shape: tuple[int, ...]) -> int:
        if position not in self.raw_micro:
            self.raw_micro[position] = part = self._new(replace(self.step.graph.tensors[argument], shape=shape))
            self.micro_inputs[part] = position
        return self.raw_micro[position]

    def _on_part(self, number: int, here: int, shape: tuple[int, ...]) -> int:
        """The same operation on one micro batch."""
        operator, equation = self.step.graph.operators[number], self.step.equations[number]
        if operator.name in IDENTITIES:
            return here
        operation = operator.operation
        operand, result = (replace(spec, shape=shape) for spec in (operation.operands[0], operation.results[0]))
        operation, there = replace(operation, operands=(operand,), results=(result,)), self._new(result)
        self.before.append((replace(operator, operation=operation, operands=(here,), results=(there,)), equation))
        return there

    def _is_zero(self, tensor: int) -> bool:
        """Whether a tensor is zeros, as far as its producer says it."""
        for constant, value in self.constants:
            if constant == tensor:
                return not np.any(np.asarray(value))
        number = self.step.graph.producers().get(tensor)
        if number is None:
            return False
        operator, equation = self.step.graph.operators[number], self.step.equations[number]
        # JAX makes the zeros of a scan's start by one of these; marks and barriers hand them on.
        if operator.name not in ("broadcast_in_dim", "convert_element_type", *IDENTITIES):
            return False
        place = operator.results.index(tensor)
        if operator.operands[place] == LITERAL:
            return not np.any(np.asarray(equation.literals[place]))
        return self._is_zero(operator.operands[place])

    def _now(self, tensor: int) -> int:
        # Chains are short (a loop inside a branch), so no path compression.
        while tensor in self.same:
            tensor = self.same[tensor]
        return tensor
