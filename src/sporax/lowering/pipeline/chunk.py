"""One chunk of a pipeline as a graph of its own, which is planned like any step.

The graph holds forward pass, backward pass and update of the chunk for one micro batch, so the sharding of its tensors is
decided once for all its programs. Tensors keep the numbers they have in the whole step; what other chunks make is an
input. Marks and equations also say which of its tensors wait in host memory, which devices read, and which are gathered twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sporax.base.errors import SporaxRuntimeError
from sporax.ir.graph import IDENTITIES, LITERAL, Input, Operator, OperatorGraph, Role
from sporax.ir.marks import WeightMark
from sporax.lowering.ingest.ingest import Equation, Ingested
from sporax.lowering.pipeline.assign import Assigned
from sporax.lowering.pipeline.flat import Carry, Phase, part_of_identity


@dataclass(frozen=True, slots=True)
class ChunkGraph:
    """A chunk.

    Attributes:
        number: its position in the route.
        step: its operators, for one micro batch.
        phases: per operator.
        arguments: for inputs that are arguments of the whole step their positions, by tensor.
        micro_inputs: for inputs that hold a micro batch of an argument the argument's position, by tensor.
        received: tensors that other chunks make, with the phase in which they are read: forward and backward ones arrive
            once per micro batch, those of the update once per step.
        carries: values that its forward tasks hand on.
        updates: variables that it updates: position of the argument, and the tensor with the new value.
        results: other results of the step that it makes: position among the outputs, and tensor.
        sent: tensors that other chunks read, with the phase in which they do.
    """

    number: int
    step: Ingested
    phases: tuple[Phase, ...]
    arguments: dict[int, int]
    micro_inputs: dict[int, int]
    received: dict[int, Phase]
    carries: tuple[Carry, ...]
    updates: dict[int, int]
    results: dict[int, int]
    sent: dict[int, Phase] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """For messages and compiled modules."""
        return f"chunk{self.number}"


def chunk_graphs(assigned: Assigned) -> tuple[ChunkGraph, ...]:
    """The chunks of a step, in the order of the route.

    Raises:
        SporaxRuntimeError: chunks depend on each other in a way that a pipeline does not allow.
    """
    cutter = _Cutter(assigned)
    chunks = [cutter.chunk(number) for number in range(len(assigned.route))]
    for chunk in chunks:
        for tensor, phase in chunk.received.items():
            sender = chunks[assigned.chunk_of[tensor]]
            # Two receivers of one tensor read it in the same phase: it is made in one.
            sender.sent[tensor] = phase
    return tuple(chunks)


class _Cutter:
    def __init__(self, assigned: Assigned) -> None:
        self.assigned = assigned
        self.micro = assigned.micro
        self.graph = assigned.micro.step.graph
        self.inputs = {entry.tensor: entry for entry in self.graph.inputs}
        first = len(self.micro.step.constants)
        self.constants = {
            entry.tensor: value for entry, value in zip(self.graph.inputs, self.micro.step.constants, strict=False)
        }
        carried = {carry.before for carry in self.micro.carries}
        self.arguments = {
            entry.tensor: position
            for position, entry in enumerate(self.graph.inputs[first:])
            if entry.tensor not in self.micro.micro_inputs and entry.tensor not in carried
        }
        # Without a loop the whole batch is the one micro batch, so arguments are what they are.
        if not self.micro.looped:
            self.arguments.update(dict(self.micro.micro_inputs.items()))
        self.carry_of = {carry.before: carry for carry in self.micro.carries}
        self.after = {carry.after: carry for carry in self.micro.carries}
        self.makers = self.graph.producers()
        self.updates, self.results = self._owners(first)

    def _owners(self, first: int) -> tuple[dict[int, dict[int, int]], dict[int, dict[int, int]]]:
        """By chunk, the variables that it updates and the results that it makes."""
        updates: dict[int, dict[int, int]] = {}
        results: dict[int, dict[int, int]] = {}
        aliases = dict(self.graph.aliases)
        for position, tensor in enumerate(self.graph.outputs):
            if tensor == LITERAL:
                continue
            if position in aliases:
                argument = self.graph.inputs[aliases[position]].tensor
                # A variable that comes out as it went in is not updated.
                if argument != tensor:
                    updates.setdefault(self._maker(tensor, argument), {})[aliases[position] - first] = tensor
            else:
                results.setdefault(self._maker(tensor, None), {})[position] = tensor
        return updates, results

    def _maker(self, tensor: int, variable: int | None) -> int:
        """The chunk that makes a result; one that any may make, the first chunk that reads the variable makes."""
        if tensor in self.assigned.chunk_of:
            return self.assigned.chunk_of[tensor]
        readers = [
            chunk
            for operator, chunk in zip(self.graph.operators, self.assigned.chunks, strict=True)
            if chunk is not None and variable in operator.operands
        ]
        return min(readers, default=0)

    def chunk(self, number: int) -> ChunkGraph:
        own = {position for position, chunk in enumerate(self.assigned.chunks) if chunk == number}
        updates, results = self.updates.get(number, {}), self.results.get(number, {})
        needed, received, carried = self._demand(number, own, [*updates.values(), *results.values()])
        entries = self._entries(own, needed)
        read = {*updates.values(), *results.values(), *(carry.start for carry in carried)}
        constants, others = self._missing(entries, read, updates)
        inputs = [
            *(self.inputs[tensor] for tensor in (*constants, *others)),
            *(Input(tensor, Role.DATA, f"received {tensor}") for tensor in received),
        ]
        graph = self._graph([operator for operator, *_ in entries], inputs, updates, results, carried)
        step = Ingested(
            graph, tuple(equation for _, equation, _ in entries), tuple(self.constants[tensor] for tensor in constants)
        )
        micro_inputs = self.micro.micro_inputs
        full = self.arguments.keys() - micro_inputs
        return ChunkGraph(
            number,
            step,
            tuple(phase for *_, phase in entries),
            {tensor: self.arguments[tensor] for tensor in others if tensor in full},
            {tensor: micro_inputs[tensor] for tensor in others if tensor in micro_inputs},
            received,
            tuple(carried),
            updates,
            results,
        )

    def _entries(self, own: set[int], needed: set[int]) -> list[tuple[Operator, Equation, Phase]]:
        """The operators of a chunk: its own, and others that are made again."""
        entries: list[tuple[Operator, Equation, Phase]] = []
        again = needed & self.assigned.replicable
        for position, operator in enumerate(self.graph.operators):
            equation = self.micro.step.equations[position]
            if position not in own:
                # Not its own, but it costs less to make again than to receive.
                positions = [place for place, result in enumerate(operator.results) if result in again]
                if not positions:
                    continue
                if operator.name in IDENTITIES:
                    operator, equation = part_of_identity(operator, equation, positions)
            entries.append((operator, equation, self._phase(position, operator)))
        return entries

    def _missing(
        self, entries: Sequence[tuple[Operator, Equation, Phase]], results: set[int], updates: Mapping[int, int]
    ) -> tuple[list[int], list[int]]:
        """The constants and other inputs of the step that a chunk reads, returns or updates."""
        read = results.union(*(operator.operands for operator, *_ in entries)) - {LITERAL}
        read = read.difference(*(operator.results for operator, *_ in entries))
        # In the order of the step's inputs, so that a chunk's plan does not depend on the order of operators.
        missing = [tensor for tensor in self.inputs if tensor in read]
        # A variable that is written but not read (an overwritten statistic) still needs its buffer, to be donated.
        missing += [
            tensor for tensor, position in self.arguments.items() if position in updates and tensor not in missing
        ]
        constants = [tensor for tensor in missing if tensor in self.constants]
        return constants, [tensor for tensor in missing if tensor not in self.constants]

    def _phase(self, position: int, operator: Operator) -> Phase:
        if all(tensor in self.assigned.invariant for tensor in operator.results):
            return Phase.INVARIANT
        return self.micro.phases[position]

    def _graph(
        self,
        operators: Sequence[Operator],
        inputs: Sequence[Input],
        updates: dict[int, int],
        results: dict[int, int],
        carried: Sequence[Carry],
    ) -> OperatorGraph:
        positions = {entry.tensor: position for position, entry in enumerate(inputs)}
        outputs: list[int] = []
        aliases: list[tuple[int, int]] = []
        tensors = {position: tensor for tensor, position in self.arguments.items()}
        for argument, tensor in updates.items():
            aliases.append((len(outputs), positions[tensors[argument]]))
            outputs.append(tensor)
        for carry in carried:
            # A carry that is written and never read has no buffer to share.
            if carry.before in positions:
                aliases.append((len(outputs), positions[carry.before]))
                outputs.append(carry.after)
        outputs += results.values()
        return OperatorGraph(self.graph.tensors, tuple(operators), tuple(inputs), tuple(outputs), tuple(aliases))

    def _demand(
        self, number: int, own: set[int], results: Sequence[int]
    ) -> tuple[set[int], dict[int, Phase], list[Carry]]:
        """Tensors that the chunk needs, those that it receives, and its carries."""
        chunk_of, graph = self.assigned.chunk_of, self.graph
        left = [
            (tensor, self.micro.phases[position])
            for position in sorted(own)
            for tensor in graph.operators[position].operands
        ]
        # Results leave once per step, so what they need may arrive as late as the update.
        left += [(tensor, Phase.UPDATE) for tensor in results]
        needed: set[int] = set()
        received: dict[int, Phase] = {}
        carried: dict[int, Carry] = {}
        while left:
            tensor, phase = left.pop()
            # A received tensor is visited again: an earlier phase may need it too.
            if tensor == LITERAL or (tensor in needed and tensor not in received):
                continue
            needed.add(tensor)
            if tensor in chunk_of and tensor not in self.assigned.replicable:
                if chunk_of[tensor] != number:
                    received[tensor] = self._received_in(tensor, phase, received)
                continue
            carry = self.carry_of.get(tensor)
            if carry is not None:
                carried[tensor] = carry
                if chunk_of.get(carry.after, number) != number:
                    raise SporaxRuntimeError(
                        "For 'PipelineCell', a variable that a micro batch hands to the next must be read and written in one "
                        f"stage, but carry {tensor} is read in chunk {number} and written in chunk {chunk_of[carry.after]}."
                    )
                left += [(carry.after, Phase.FORWARD), (carry.start, Phase.INVARIANT)]
                continue
            left += [(operand, phase) for operand in self._made_of(tensor)]
        # A carry that the chunk's own operators write and that nothing reads first.
        return needed, received, list(carried.values())

    def _made_of(self, tensor: int) -> Sequence[int]:
        """What a tensor is computed from."""
        if tensor not in self.makers:
            return ()
        operator = self.graph.operators[self.makers[tensor]]
        return (operator.sources[tensor],) if operator.sources else operator.operands

    def _received_in(self, tensor: int, phase: Phase, received: dict[int, Phase]) -> Phase:
        """When a tensor arrives: with the micro batch's forward pass as soon as that is where it is made."""
        maker = self.makers[tensor]
        phase_of_maker = self.micro.phases[maker]
        # A gradient's norm, say: read once per step, unless a micro batch has already brought it.
        if phase is Phase.UPDATE:
            before = received.get(tensor)
            return Phase.UPDATE if before is None else before
        return phase_of_maker if phase_of_maker in (Phase.FORWARD, Phase.BACKWARD) else phase


def waiting_on_hosts(chunk: ChunkGraph, assigned: Assigned, checkpoints_wait: bool) -> set[int]:
    """The tensors of a micro batch that wait for the backward pass in host memory: as marks say, and what is kept for recomputed
    calls. Scalars are not worth a transfer."""
    step = assigned.micro.step
    waiting: set[int] = set()
    for operator, equation in zip(step.graph.operators, step.equations, strict=True):
        waiting.update(result for result, operand in operator.sources.items() if operand in waiting)
        if equation.waits and not operator.sources:
            waiting.update(operator.results)
    if checkpoints_wait:
        waiting |= _read_again(chunk)
    return {tensor for tensor in waiting if step.graph.tensors[tensor].shape}


def _read_again(chunk: ChunkGraph) -> set[int]:
    """The tensors of the forward pass that recomputed calls read."""
    phases = zip(chunk.step.graph.operators, chunk.phases, strict=True)
    forward = {tensor for operator, phase in phases if phase is Phase.FORWARD for tensor in operator.results}
    forward |= {tensor for tensor, phase in chunk.received.items() if phase is Phase.FORWARD}
    entries = zip(chunk.step.graph.operators, chunk.step.equations, strict=True)
    return forward & {tensor for operator, equation in entries if equation.again for tensor in operator.operands}


def read_on_devices(chunk: ChunkGraph) -> set[int]:
    """What operators of the devices read in a micro batch, by way of marks, too."""
    read: set[int] = set()
    entries = zip(chunk.step.graph.operators, chunk.step.equations, chunk.phases, strict=True)
    # Backwards, so that what reads the result of a mark is known before the mark.
    for operator, equation, phase in reversed(list(entries)):
        read.update(operand for result, operand in operator.sources.items() if result in read)
        if phase is not Phase.UPDATE and not equation.on_host and not operator.sources:
            read.update(operator.operands)
    return read


def gathered_again(graph: OperatorGraph) -> frozenset[int]:
    """The inputs that a recomputed Cell gathers a second time (``parallel_optimizer_comm_recompute``)."""
    source: dict[int, int] = {}
    again: set[int] = set()
    for operator in graph.operators:
        source.update((result, source.get(operand, operand)) for result, operand in operator.sources.items())
        if isinstance(operator.mark, WeightMark):
            again.add(source[operator.results[0]])
    return frozenset(again)
