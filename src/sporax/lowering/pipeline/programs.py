"""The programs of a chunk, sliced from its planned graph.

| program | runs | what it does |
|---|---|---|
| prepare | once per step | gathers weights that optimizer parallelism keeps in shards; zeros for sums |
| forward | per micro batch | activations for the next chunk, values that the backward pass needs |
| backward | per micro batch | cotangents for the chunk before, gradients added to their sums |
| inputs, weights | per micro batch | the same in two, for schedules that want it so |
| update | once per step | reduces gradients and updates variables; several where chunks exchange numbers in between |

All of them take their operators' placements from the one plan of the chunk. A tensor that two programs share is handed on
with the placement it has once it is resharded, and a sum is added up as it is: in partial sums, which are reduced once per step.

Variables may be in host memory between steps. What the host itself works on (a table that it looks up rows in, and the sum of the
gradients that it makes of it) stays there; any other is fetched once per step, with the weights that are gathered.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from sporax.ir.graph import IDENTITIES, LITERAL, Input, Operator, OperatorGraph, Role
from sporax.ir.pipeline_schedule import TaskKind
from sporax.ir.placement import Placement
from sporax.ir.plan import OperatorPlan, Plan
from sporax.lowering.ingest.ingest import Equation, Ingested
from sporax.lowering.pipeline.assign import Assigned
from sporax.lowering.pipeline.chunk import ChunkGraph, gathered_again, read_on_devices, waiting_on_hosts
from sporax.lowering.pipeline.flat import Phase, part_of_identity
from sporax.planner.rules import entry_for


class Slot(NamedTuple):
    """Where a value is kept between programs.

    Attributes:
        kind: ``variable``, ``data`` (arguments of the step by position), ``micro`` (a part of an argument), ``ready``
            (a variable as operators want it), ``carry``, ``sum``, ``kept`` (of one micro batch), ``received``, ``arrived`` (once
            per step), ``step`` (of the update), ``sent``.
        number: position of the argument, or number of the tensor.
    """

    kind: str
    number: int


PER_MICRO = ("micro", "kept", "received", "sent")
"""Kinds of slot that there is one of per micro batch."""


@dataclass(frozen=True, slots=True)
class ChunkProgram:
    """One program.

    Attributes:
        name: for messages and the compiled module.
        step, plan: its operators and where they run.
        inputs, outputs: where its values come from and go to, with their placements. Sums come first in both.
        num_sums: how many sums it adds to.
        zeros: for a program that starts sums, how many of its last outputs are zeros.
        donated: slots whose old values it may overwrite.
        on_host: slots whose values are in host memory.
    """

    name: str
    step: Ingested
    plan: Plan
    inputs: tuple[tuple[Slot, Placement], ...]
    outputs: tuple[tuple[Slot, Placement], ...]
    num_sums: int = 0
    zeros: int = 0
    donated: frozenset[Slot] = frozenset()
    on_host: frozenset[Slot] = frozenset()

    @property
    def is_empty(self) -> bool:
        """Whether it has nothing to do."""
        return not self.outputs


@dataclass(frozen=True, slots=True)
class ChunkPrograms:
    """All programs of a chunk; `updates` by level."""

    prepare: ChunkProgram
    forward: ChunkProgram
    backward: ChunkProgram
    inputs: ChunkProgram
    weights: ChunkProgram
    updates: tuple[ChunkProgram, ...]

    @property
    def by_kind(self) -> dict[TaskKind, ChunkProgram]:
        """Those of tasks of a micro batch."""
        return {
            TaskKind.FORWARD: self.forward,
            TaskKind.BACKWARD: self.backward,
            TaskKind.BACKWARD_INPUT: self.inputs,
            TaskKind.BACKWARD_WEIGHT: self.weights,
        }


def update_levels(assigned: Assigned, chunks: Sequence[ChunkGraph]) -> dict[int, int]:
    """For every tensor of the update phase after how many exchanges between chunks it can be made."""
    levels: dict[int, int] = {}
    graph = assigned.micro.step.graph
    phases, chunk_of = assigned.micro.phases, assigned.chunk_of
    for operator, phase, chunk in zip(graph.operators, phases, assigned.chunks, strict=True):
        if phase is not Phase.UPDATE or chunk is None:
            continue
        # A tensor from another chunk is there only after one more exchange than it took to make.
        level = 0
        for tensor in operator.operands:
            if tensor in chunk_of and tensor not in assigned.replicable:
                level = max(level, levels.get(tensor, 0) + (chunk_of[tensor] != chunk))
        levels.update(dict.fromkeys(operator.results, level))
    return levels


def programs_of(
    chunk: ChunkGraph,
    plan: Plan,
    assigned: Assigned,
    levels: Mapping[int, int],
    num_levels: int,
    gather_each_time: bool = False,
    hosted: Collection[int] = (),
    checkpoints_wait: bool = False,
) -> ChunkPrograms:
    """Slice a planned chunk into programs.

    Args:
        levels: of tensors of the update phase.
        num_levels: how many there are, in all chunks.
        gather_each_time: weights in shards are gathered by every task instead of once per step.
        hosted: variables that are in host memory between steps, by position of the argument.
        checkpoints_wait: whether what is kept for recomputed calls waits for the backward pass in host memory.
    """
    away = waiting_on_hosts(chunk, assigned, checkpoints_wait)
    return _Maker(chunk, plan, assigned, levels, gather_each_time, hosted, away).make(num_levels)


class _Maker:
    def __init__(
        self,
        chunk: ChunkGraph,
        plan: Plan,
        assigned: Assigned,
        levels: Mapping[int, int],
        gather_each_time: bool,
        hosted: Collection[int],
        away: Collection[int],
    ) -> None:
        self.chunk, self.plan, self.assigned, self.levels = chunk, plan, assigned, levels
        graph = chunk.step.graph
        self.gathered_by_tasks = frozenset(chunk.arguments) if gather_each_time else gathered_again(graph)
        self.graph = graph
        self.makers = graph.producers()
        self.stored = {entry.tensor: place for entry, place in zip(graph.inputs, plan.inputs, strict=True)}
        self.current = dict(self.stored)
        for operator, planned in zip(graph.operators, plan.operators, strict=True):
            self.current.update(zip(operator.results, planned.results, strict=True))
        self.current.update(
            {tensor: resharding.placement for tensor, resharding in plan.reshardings.items() if tensor in self.current}
        )
        self.carries = {carry.before: carry for carry in chunk.carries}
        self.afters = {carry.after: carry for carry in chunk.carries}
        self.constants = {entry.tensor for entry in graph.inputs[: len(chunk.step.constants)]}
        self.hosted, self.away = frozenset(hosted), frozenset(away)
        there = {tensor for tensor, position in chunk.arguments.items() if position in self.hosted}
        self.fetched = there & read_on_devices(chunk)
        self.equal = self._equal_tensors()
        self.made_again = self._made_again()

    def _equal_tensors(self) -> dict[int, int]:
        """For every tensor of the forward pass the first one with its values and placement: one array is kept for both."""
        origins: dict[int, int] = {}
        first: dict[tuple[int, Placement, bool], int] = {}
        for operator, phase in zip(self.graph.operators, self.chunk.phases, strict=True):
            if phase is Phase.FORWARD:
                sources = operator.operands if operator.name in IDENTITIES else operator.results
                origins |= {new: origins.get(old, old) for old, new in zip(sources, operator.results, strict=True)}
        keys = {tensor: (origin, self.current[tensor], tensor in self.away) for tensor, origin in origins.items()}
        return {tensor: first.setdefault(key, tensor) for tensor, key in keys.items()}

    def _stored_as(self, tensor: int) -> int:
        return self.equal.get(tensor, tensor)

    def _made_again(self) -> frozenset[int]:
        """What the backward pass makes element by element of others that it reads, rather than have it kept.

        Kernels of activations and norms keep their operands alone, too.
        """
        pairs = [*zip(self.graph.operators, self.plan.operators, self.chunk.phases, strict=True)]
        backward = (operator for operator, _, phase in pairs if phase is Phase.BACKWARD)
        read = {self._stored_as(tensor) for operator in backward for tensor in operator.operands}
        there = {LITERAL, *self.assigned.invariant, *self.chunk.micro_inputs}
        again: set[int] = set()
        for operator, planned, phase in pairs:
            if phase is not Phase.FORWARD:
                continue
            ends = [
                *zip(operator.operands, planned.operands, strict=True),
                *zip(operator.results, planned.results, strict=True),
            ]
            moves = any(self.current.get(tensor, place) != place for tensor, place in ends)
            light = entry_for(operator.name).family == "1 elementwise" and not moves
            if (
                light
                and self.away.isdisjoint((*operator.operands, *operator.results))
                and there.issuperset(map(self._stored_as, operator.operands))
            ):
                again.update(operator.results)
                there.update(operator.results)
            there |= read.intersection(operator.results)
        return frozenset(again)

    # ------------------------------------------------------------------------------------------------------- all of them

    def make(self, num_levels: int) -> ChunkPrograms:
        updates: list[ChunkProgram] = []
        # Last level first: what later levels read of an earlier one is among its outputs.
        for level in reversed(range(num_levels)):
            updates.insert(0, self._update(level, updates))
        summed = sorted({slot.number for program in updates for slot, _ in program.inputs if slot.kind == "sum"})
        backward, inputs, weights = self._backward_programs(
            [tensor for tensor in summed if self._phase(tensor) is Phase.BACKWARD]
        )
        # Whatever any of the three backward programs reads, so that one forward program serves every schedule.
        stored = {
            slot: place
            for program in (backward, weights, inputs)
            for slot, place in program.inputs
            if slot.kind == "kept" and self._is_there_forward(slot.number)
        }
        forward = self._forward_program(stored, [tensor for tensor in summed if self._phase(tensor) is Phase.FORWARD])
        prepare = self._prepare([*updates, backward, weights, inputs, forward], summed)
        return ChunkPrograms(
            prepare,
            _overwriting(forward),
            _overwriting(backward),
            _overwriting(inputs),
            _overwriting(weights),
            tuple(_overwriting(program, updates[level + 1 :]) for level, program in enumerate(updates)),
        )

    def _backward_programs(self, sums: Sequence[int]) -> tuple[ChunkProgram, ChunkProgram, ChunkProgram]:
        """The backward pass as one program, and in two: of activations, and of weights."""
        name = self.chunk.name
        entries = self.chunk.sent.items()
        sent = [tensor for tensor, phase in entries if phase is Phase.BACKWARD and self._phase(tensor) is phase]
        backward = self._program(f"{name}_backward", Phase.BACKWARD, self._sent(sent), sums)
        of_weights = self._weight_operators(sent, sums)
        weights = self._program(f"{name}_weights", Phase.BACKWARD, [], sums, of_weights.__contains__)
        # What the backward pass of activations makes and that of weights reads: stored between the two.
        stored = [entry for entry in weights.inputs if entry[0].kind == "kept"]
        handed = [entry for entry in stored if not self._is_there_forward(entry[0].number)]
        outputs = [*self._sent(sent), *handed]
        inputs = self._program(f"{name}_inputs", Phase.BACKWARD, outputs, [], lambda number: number not in of_weights)
        return backward, inputs, weights

    def _forward_program(self, stored: Mapping[Slot, Placement], sums: Sequence[int]) -> ChunkProgram:
        """The forward pass, which leaves what the backward pass reads."""
        chunk = self.chunk
        sent = [
            tensor
            for tensor in chunk.sent
            if self._phase(tensor) is Phase.FORWARD and chunk.sent[tensor] is not Phase.UPDATE
        ]
        outputs = [*self._sent(sent), *stored.items()]
        outputs += [
            (Slot("carry", carry.before), self.stored[carry.before])
            for carry in chunk.carries
            if carry.before in self.stored
        ]
        outputs += self._results(self._is_forward)
        return self._program(f"{chunk.name}_forward", Phase.FORWARD, outputs, sums)

    def _phase(self, tensor: int) -> Phase:
        return self.chunk.phases[self.makers[tensor]]

    def _is_there_forward(self, tensor: int) -> bool:
        """Whether the forward pass has what the backward pass reads; what another stage has sent is kept where it waits."""
        return tensor in self.chunk.received or self._phase(tensor) is Phase.FORWARD

    def _sent(self, tensors: Iterable[int]) -> list[tuple[Slot, Placement]]:
        return [(Slot("sent", tensor), self.current[tensor].complete()) for tensor in tensors]

    def _update(self, level: int, later: Sequence[ChunkProgram]) -> ChunkProgram:
        chunk = self.chunk
        outputs = self._results(lambda tensor: not self._is_forward(tensor) and self._level_of(tensor) == level)
        for tensor, phase in chunk.sent.items():
            if phase is Phase.UPDATE and self._level_of(tensor) == level:
                outputs.append((Slot("sent", tensor), self.current[tensor].complete()))
        for program in later:
            outputs += [
                (slot, place)
                for slot, place in program.inputs
                if slot.kind == "step" and self._level_of(slot.number) == level and (slot, place) not in outputs
            ]
        return self._program(
            f"{chunk.name}_update{level}",
            Phase.UPDATE,
            list(dict.fromkeys(outputs)),
            [],
            lambda number: self._level_of(self.graph.operators[number].results[0]) == level,
        )

    def _is_forward(self, tensor: int) -> bool:
        """Whether a result of the step is made by the forward pass itself, where there is no loop."""
        if tensor in self.afters or tensor in self.assigned.summed or tensor not in self.makers:
            return False
        return self._phase(tensor) is Phase.FORWARD

    def _results(self, belongs: Callable[[int], bool]) -> list[tuple[Slot, Placement]]:
        """Updated variables and other results of the step."""
        chunk = self.chunk
        arguments = {position: tensor for tensor, position in chunk.arguments.items()}
        updated = [
            (Slot("variable", position), self.stored[arguments[position]])
            for position, tensor in chunk.updates.items()
            if belongs(tensor)
        ]
        results = [
            (Slot("result", position), self.current[tensor].complete())
            for position, tensor in chunk.results.items()
            if belongs(tensor)
        ]
        return [*updated, *results]

    def _level_of(self, tensor: int) -> int:
        return self.levels.get(tensor, 0)

    def _prepare(self, programs: Sequence[ChunkProgram], summed: Sequence[int]) -> ChunkProgram:
        entries = [
            (slot, place) for program in programs for slot, place in program.inputs if slot.kind in ("ready", "carry")
        ]
        outputs = list(dict.fromkeys(entries))
        program = self._program(f"{self.chunk.name}_prepare", Phase.INVARIANT, outputs, [])
        # Zeros in the placement of partial sums: adding them needs no communication.
        zeros = [(Slot("sum", tensor), self.current[tensor]) for tensor in summed]
        on_host = program.on_host | {slot for slot, _ in zeros if self._is_on_host(slot)}
        return replace(program, outputs=(*program.outputs, *zeros), zeros=len(zeros), on_host=on_host)

    def _weight_operators(self, sent: Sequence[int], sums: Sequence[int]) -> set[int]:
        """Backward operators that only gradients of one Cell's weights need: they can wait."""
        needed = self._ancestors(sent)
        reached: dict[int, set[str]] = {}
        operators = self.graph.operators
        # Weights of one Cell only: an operator below two Cells' gradients is on the way of a cotangent.
        for tensor in sums:
            path = operators[self.makers[tensor]].path
            for number in self._ancestors([tensor]):
                reached.setdefault(number, set()).add(path)
        return {number for number, paths in reached.items() if number not in needed and len(paths) == 1}

    def _ancestors(self, tensors: Iterable[int]) -> set[int]:
        ancestors: set[int] = set()
        left = list(tensors)
        while left:
            tensor = left.pop()
            number = self.makers.get(tensor)
            if number is None or number in ancestors or self.chunk.phases[number] is not Phase.BACKWARD:
                continue
            ancestors.add(number)
            operator = self.graph.operators[number]
            left += operator.operands
        return ancestors

    # ------------------------------------------------------------------------------------------------------ one of them

    def _program(
        self,
        name: str,
        phase: Phase,
        outputs: Sequence[tuple[Slot, Placement]],
        sums: Sequence[int],
        belongs: Callable[[int], bool] = lambda number: True,
    ) -> ChunkProgram:
        """The program that makes `outputs` and one addend for each of `sums`."""
        addends = [(Slot("sum", tensor), self.current[tensor]) for tensor in sums]
        # Sums first, in inputs and in outputs, so that the runner pairs them by position.
        results = [*addends, *outputs]
        numbers = [self._tensor(slot) for slot, _ in results]
        entries = self._operators(numbers, phase, belongs)
        produced = {tensor for operator, *_ in entries for tensor in operator.results}
        constants, others = self._read(entries, numbers, produced | {LITERAL})
        slots = [self._source(tensor, phase) for tensor in others]
        # A tensor is resharded once, by the program that makes it; its readers get it as it is then.
        resharded = set(produced)
        if phase is not Phase.UPDATE:  # the update reads variables as they are stored
            resharded |= {tensor for tensor, (slot, _) in zip(others, slots, strict=True) if slot.kind == "variable"}
        sources = (*addends, *slots)
        on_host = frozenset(slot for slot, _ in (*sources, *results) if self._is_on_host(slot))
        step = self._step(entries, constants, others, numbers)
        inputs = (*(self.stored[tensor] for tensor in constants), *(place for _, place in slots))
        plan = self._plan(entries, inputs, [place for _, place in results], resharded)
        return ChunkProgram(name, step, plan, sources, tuple(results), len(addends), on_host=on_host)

    def _read(
        self,
        entries: Sequence[tuple[Operator, Equation, OperatorPlan]],
        outputs: Sequence[int],
        inside: Collection[int],
    ) -> tuple[list[int], list[int]]:
        """The constants and other tensors that a program reads and does not make."""
        tensors = [tensor for operator, *_ in entries for tensor in operator.operands]
        read = [tensor for tensor in dict.fromkeys([*tensors, *outputs]) if tensor not in inside]
        constants = [tensor for tensor in read if tensor in self.constants]
        return constants, [tensor for tensor in read if tensor not in self.constants]

    def _plan(
        self,
        entries: Sequence[tuple[Operator, Equation, OperatorPlan]],
        inputs: Sequence[Placement],
        outputs: Sequence[Placement],
        resharded: Collection[int],
    ) -> Plan:
        """The part of the chunk's plan that is of a program."""
        reshardings = {tensor: how for tensor, how in self.plan.reshardings.items() if tensor in resharded}
        return Plan(
            self.plan.mesh,
            tuple(inputs),
            tuple(outputs),
            tuple(entry[2] for entry in entries),
            reshardings,
            alltoall=self.plan.alltoall,
            has_reduce_scatter=self.plan.has_reduce_scatter,
        )

    def _step(
        self,
        entries: Sequence[tuple[Operator, Equation, OperatorPlan]],
        constants: Sequence[int],
        others: Sequence[int],
        outputs: Sequence[int],
    ) -> Ingested:
        """The graph of a program with what is needed to run it."""
        inputs = {entry.tensor: entry for entry in self.graph.inputs}
        graph = OperatorGraph(
            self.graph.tensors,
            tuple(operator for operator, *_ in entries),
            tuple(
                inputs.get(tensor) or Input(tensor, Role.DATA, f"tensor {tensor}") for tensor in (*constants, *others)
            ),
            tuple(outputs),
        )
        values = dict(zip((entry.tensor for entry in self.graph.inputs), self.chunk.step.constants, strict=False))
        return Ingested(graph, tuple(entry[1] for entry in entries), tuple(values[tensor] for tensor in constants))

    def _is_on_host(self, slot: Slot) -> bool:
        """Whether a value is in host memory between programs: a variable, or the sum of what the host makes."""
        if slot.kind == "sum":
            return self._is_made_there(slot.number)
        if slot.kind == "kept":
            return slot.number in self.away
        return slot.kind == "variable" and slot.number in self.hosted

    def _is_made_there(self, tensor: int) -> bool:
        """Whether the host makes a tensor, or all terms of it."""
        number = self.makers.get(tensor)
        if number is None:
            return False
        operator = self.graph.operators[number]
        if tensor in operator.sources:
            return self._is_made_there(operator.sources[tensor])
        adds = operator.name in ("add", "add_any") and all(map(self._is_made_there, operator.operands))
        return adds or self.chunk.step.equations[number].on_host

    def _tensor(self, slot: Slot) -> int:
        """The tensor that a slot is filled with."""
        if slot.kind == "carry":
            return -2 - slot.number  # LITERAL is -1: below it are a carry's old or new value, resolved in `_operators`
        tables = {"variable": self.chunk.updates, "result": self.chunk.results}
        return tables.get(slot.kind, {slot.number: slot.number})[slot.number]

    def _operators(
        self, numbers: list[int], phase: Phase, belongs: Callable[[int], bool]
    ) -> list[tuple[Operator, Equation, OperatorPlan]]:
        """What has to run for the tensors `numbers`, in order."""
        for place, tensor in enumerate(numbers):
            if tensor < LITERAL:
                carry = self.carries[-2 - tensor]
                numbers[place] = carry.start if phase is Phase.INVARIANT else carry.after
        needed = set(numbers)
        entries: list[tuple[Operator, Equation, OperatorPlan]] = []
        # Backwards from what is needed: an operator joins only if one of its results is read.
        for number in reversed(range(len(self.graph.operators))):
            operator, equation = self.graph.operators[number], self.chunk.step.equations[number]
            planned = self.plan.operators[number]
            positions = [
                place
                for place, tensor in enumerate(operator.results)
                if tensor in needed and self._made_here(number, tensor, phase, belongs)
            ]
            if not positions:
                continue
            if operator.name in IDENTITIES and len(positions) < len(operator.results):
                operator, equation = part_of_identity(operator, equation, positions)
                planned = replace(
                    planned,
                    operands=tuple(planned.operands[place] for place in positions),
                    results=tuple(planned.results[place] for place in positions),
                )
            needed.update(operator.operands)
            entries.append((operator, equation, planned))
        return entries[::-1]

    def _made_here(self, number: int, tensor: int, phase: Phase, belongs: Callable[[int], bool]) -> bool:
        # Made again by each program: it depends on variables alone, and keeping it per micro batch costs more.
        if tensor in self.assigned.invariant or (
            phase is Phase.BACKWARD and self._stored_as(tensor) in self.made_again
        ):
            return True
        return self.chunk.phases[number] is phase and belongs(number)

    def _source(self, tensor: int, phase: Phase) -> tuple[Slot, Placement]:
        """Where a program finds a tensor that it does not make."""
        chunk = self.chunk
        if tensor in chunk.micro_inputs:
            return Slot("micro", tensor), self.stored[tensor]
        if tensor in self.carries:
            return Slot("carry", tensor), self.stored[tensor]
        if tensor in chunk.arguments:
            position = chunk.arguments[tensor]
            once = phase in (Phase.FORWARD, Phase.BACKWARD) and tensor not in self.gathered_by_tasks
            if once and (tensor in self.plan.reshardings or tensor in self.fetched):
                return Slot("ready", tensor), self.current[tensor]
            return Slot("variable", position), self.stored[tensor]
        if tensor in self.away and phase is Phase.BACKWARD and chunk.received.get(tensor) is Phase.FORWARD:
            return Slot("kept", tensor), self.stored[tensor]
        if tensor in chunk.received:
            per_step = chunk.received[tensor] is Phase.UPDATE
            return Slot("arrived" if per_step else "received", tensor), self.stored[tensor]
        if phase is Phase.UPDATE:
            return self._source_in_update(tensor)
        return Slot("kept", self._stored_as(tensor)), self.current[tensor]

    def _source_in_update(self, tensor: int) -> tuple[Slot, Placement]:
        """Where the update finds a tensor of this chunk that it does not make."""
        if tensor in self.afters:
            before = self.afters[tensor].before
            return Slot("carry", before), self.stored[before]
        kind = "step" if self._phase(tensor) is Phase.UPDATE else "sum"
        return Slot(kind, tensor), self.current[tensor]


def _overwriting(program: ChunkProgram, later: Sequence[ChunkProgram] = ()) -> ChunkProgram:
    """A program that may overwrite what it gives new values of, unless programs after it read the old ones."""
    # Values of a micro batch are not overwritten: another task may still read them.
    read = {slot for slot, _ in program.inputs if slot.kind in ("sum", "carry", "variable")}
    read_later = {slot for program in later for slot, _ in program.inputs}
    return replace(program, donated=frozenset((read & {slot for slot, _ in program.outputs}) - read_later))
