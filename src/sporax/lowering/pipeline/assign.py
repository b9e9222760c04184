"""Which chunk of the pipeline every operator belongs to.

* A forward operator belongs where its Cell says; without that, to the last chunk that it reads from.
* A backward operator belongs where its forward operator does (its Cell's, or that of the call whose mark it passes), but never
  after a chunk that it reads a cotangent from.
* An operator of the update belongs where most of its bytes are, so a factor of one number is sent, not a gradient.
* What depends on variables alone belongs nowhere: every chunk that needs it computes it. So do random counters.

A sum whose terms come from several chunks (the gradient of a tied embedding) becomes one sum per chunk; the first chunk,
which owns the weight, adds them before the update.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from sporax.base.errors import SporaxRuntimeError
from sporax.ir.graph import IDENTITIES, LITERAL, MICRO_LOOP, Operator
from sporax.ir.marks import DerivativeMark, LayoutMark, OperatorMark
from sporax.ir.operation import TensorSpec
from sporax.ir.pipeline_schedule import Route
from sporax.lowering.ingest.ingest import Equation
from sporax.lowering.pipeline.flat import MicroStep, Phase, Sum, computed_from, invariant_tensors, part_of_identity

StageOf = Callable[[Operator], tuple[int, int] | None]
"""Stage and segment of an operator, where something says them."""


def stage_of_cell(operator: Operator) -> tuple[int, int] | None:
    """As the Cells say that an operator stands in."""
    return None if operator.stage is None else (operator.stage, operator.segment or 0)


def in_order(micro: MicroStep, num_stages: int) -> StageOf:
    """Segments where Cells say their stages alone: data that comes back to an earlier stage begins the next segment."""
    replicable = _replicable(micro, invariant_tensors(micro))
    positions: dict[int, int] = {}  # by tensor, in a route through all stages again and again
    found: dict[int, tuple[int, int]] = {}
    for operator, phase in zip(micro.step.graph.operators, micro.phases, strict=True):
        if phase is not Phase.FORWARD or replicable.issuperset(operator.results):
            continue
        position = max((positions[tensor] for tensor in operator.operands if tensor in positions), default=0)
        if operator.stage is not None:
            position += (operator.stage - position) % num_stages
            found[operator.results[0]] = operator.stage, position // num_stages
        positions.update((tensor, position) for tensor in operator.results if tensor not in replicable)
    return lambda operator: next((found[tensor] for tensor in operator.results if tensor in found), None)


@dataclass(frozen=True, slots=True)
class Assigned:
    """A step whose operators know their chunks.

    Attributes:
        micro: the step; sums are resolved, see `summed`.
        chunks: per operator the position of its chunk in the route; None for those that belong nowhere.
        chunk_of: the chunk that makes a tensor, of those that are made in one place.
        invariant: tensors that depend on no micro batch.
        replicable: tensors that every chunk that needs them makes for itself, in the phase that they belong to.
        summed: tensors of one micro batch that readers of the update phase have added up over all of them.
        route: the chunks.
    """

    micro: MicroStep
    chunks: tuple[int | None, ...]
    chunk_of: dict[int, int]
    invariant: frozenset[int]
    replicable: frozenset[int]
    summed: frozenset[int]
    route: Route


def assign(micro: MicroStep, route: Route, stage_of: StageOf = stage_of_cell) -> Assigned:
    """Give every operator its chunk.

    Args:
        route: the chunks in the order of the network.
        stage_of: what is said of an operator.

    Raises:
        SporaxRuntimeError: an operator is in an earlier chunk than what it reads.
    """
    worker = _Assigner(micro, route, stage_of)
    return worker.run()


@dataclass(slots=True)
class _Assigner:
    micro: MicroStep
    route: Route
    stage_of: StageOf
    chunks: list[int | None] = field(default_factory=list)
    chunk_of: dict[int, int] = field(default_factory=dict)
    replicable: frozenset[int] = frozenset()
    makers: dict[int, Operator] = field(default_factory=dict)

    def run(self) -> Assigned:
        graph = self.micro.step.graph
        invariant = invariant_tensors(self.micro)
        self.replicable = _replicable(self.micro, invariant)
        self.chunks = [None] * len(graph.operators)
        self.makers = {tensor: operator for operator in graph.operators for tensor in operator.results}
        # Backward operators look up where forward ones are, sums where their terms are, updates where sums are.
        self._forward()
        self._backward()
        writer = _Writer(self.micro, self.replicable, self.chunk_of)
        additions, added = self._resolve_sums(writer)
        entries = list(zip(graph.operators, self.micro.step.equations, self.micro.phases, self.chunks, strict=True))
        # Additions come where the loop ends: behind all they read, before all that reads them.
        border = next((number for number, entry in enumerate(entries) if entry[2] is Phase.UPDATE), len(entries))
        for entry in [*entries[:border], *additions, *entries[border:]]:
            writer.visit(*entry)
        chunks = tuple(chunk for *_, chunk in writer.entries)
        return Assigned(writer.micro(), chunks, self.chunk_of, invariant, self.replicable, frozenset(added), self.route)

    def _operators(self, phase: Phase) -> list[tuple[int, Operator]]:
        """Operators of a phase that belong somewhere."""
        step = self.micro
        return [
            (number, operator)
            for number, (operator, here) in enumerate(zip(step.step.graph.operators, step.phases, strict=True))
            if here is phase and not all(tensor in self.replicable for tensor in operator.results)
        ]

    def _specified(self, operator: Operator) -> int | None:
        specified = self.stage_of(operator)
        if specified is None:
            return None
        if specified not in self.route:
            raise SporaxRuntimeError(
                f"For '{operator.path}', 'pipeline_stage' and 'pipeline_segment' must be among the stages and segments of the "
                f"pipeline, {sorted(self.route)}, but got stage {specified[0]}, segment {specified[1]}."
            )
        return self.route.index(specified)

    def _put(self, number: int, operator: Operator, chunk: int) -> None:
        self.chunks[number] = chunk
        self.chunk_of.update((tensor, chunk) for tensor in operator.results if tensor not in self.replicable)

    def _forward(self) -> None:
        operators = self._operators(Phase.FORWARD)
        waiting = []
        for number, operator in operators:
            specified = self._specified(operator)
            # The last chunk, not the first: data flows forward only, and here every operand can have arrived.
            votes = [self.chunk_of[tensor] for tensor in operator.operands if tensor in self.chunk_of]
            if specified is not None and votes and max(votes) > specified:
                self._refuse(operator, specified, max(votes))
            chunk = specified if specified is not None else max(votes, default=None)
            if chunk is None:
                waiting.append((number, operator))
            else:
                self._put(number, operator, chunk)
        # The earliest reader: values flow only to later chunks.
        self._by_readers(waiting, min, 0)

    def _refuse(self, operator: Operator, specified: int, chunk: int) -> None:
        sources = [tensor for tensor in operator.operands if self.chunk_of.get(tensor) == chunk]
        maker = self.makers[sources[0]]
        before, here = self.route[chunk], self.route[specified]
        raise SporaxRuntimeError(
            f"For '{operator.path}', the pipeline stage must not be smaller than that of what it reads, but it is in stage "
            f"{here[0]} (segment {here[1]}) and reads from '{maker.path}', PreNode, whose stage {before[0]} (segment "
            f"{before[1]}) is larger."
        )

    def _by_readers(self, waiting: Sequence[tuple[int, Operator]], best: Callable[..., int], otherwise: int) -> None:
        """Operators that read nothing of the pipeline go where their readers are."""
        readers: dict[int, list[int]] = {}
        for number, operator in enumerate(self.micro.step.graph.operators):
            for tensor in operator.operands:
                readers.setdefault(tensor, []).append(number)
        # Backwards, since a waiting operator may be read by another one that waits.
        for number, operator in reversed(waiting):
            chunks = [
                chunk
                for tensor in operator.results
                for reader in readers.get(tensor, ())
                if (chunk := self.chunks[reader]) is not None
            ]
            self._put(number, operator, best(chunks) if chunks else otherwise)

    def _backward(self) -> None:
        waiting = []
        of_path, of_mark = self._forward_chunks()
        # Values kept from the forward pass do not order the chunks, cotangents do: they flow to earlier chunks only.
        cotangents: set[int] = set()
        for number, operator in self._operators(Phase.BACKWARD):
            arriving = [self.chunk_of[tensor] for tensor in operator.operands if tensor in cotangents]
            # The last chunk, where backward passes begin.
            arriving += [len(self.route) - 1 for tensor in operator.operands if tensor in self.micro.starts]
            stated = self._specified(operator)
            if stated is None:
                stated = of_mark.get(_call(operator)) if _call(operator) is not None else of_path.get(operator.path)
            cotangents.update(tensor for tensor in operator.results if tensor not in self.replicable)
            chunk = self._backward_chunk(operator, arriving, stated)
            if chunk is None:
                waiting.append((number, operator))
                # A constant seed of the backward pass carries no order of its own.
                cotangents.difference_update(operator.results)
                continue
            self._put(number, operator, chunk)
        # The last chunk, where backward passes begin.
        self._by_readers(waiting, max, len(self.route) - 1)

    def _backward_chunk(self, operator: Operator, arriving: Sequence[int], stated: int | None) -> int | None:
        """The chunk of an operator of the backward pass; None where nothing says."""
        if arriving:
            # A Cell in a later stage does not hold back a cotangent that has already gone below it.
            return min(arriving) if stated is None else min(stated, *arriving)
        if stated is not None:
            return stated
        return max((self.chunk_of[tensor] for tensor in operator.operands if tensor in self.chunk_of), default=None)

    def _forward_chunks(self) -> tuple[dict[str, int | None], dict[int | None, int]]:
        """The chunk of the forward operators of a Cell, None where they are in several, and of the calls with a mark."""
        of_path: dict[str, int | None] = {}
        of_mark: dict[int | None, int] = {}
        for number, operator in self._operators(Phase.FORWARD):
            chunk = self.chunks[number]
            if chunk is None:
                continue
            # What is in the loop and in no Cell says nothing of what else is.
            cell = operator.path.rpartition(".")[2] not in ("", MICRO_LOOP)
            if of_path.setdefault(operator.path, chunk if cell else None) != chunk:
                of_path[operator.path] = None
            if isinstance(operator.mark, OperatorMark | LayoutMark):
                of_mark[operator.mark.number] = chunk
        return of_path, of_mark

    # --------------------------------------------------------------------------------------------------------- sums

    def _resolve_sums(self, writer: _Writer) -> tuple[list[_Entry], set[int]]:
        """Give every sum its terms per chunk: additions, and the tensors that are added up over the micro batches."""
        early: list[_Entry] = []
        late: list[_Entry] = []
        summed: set[int] = set()
        # A term in no place depends on variables alone; the loss is in the last chunk, and most such terms are of it.
        last = len(self.route) - 1
        for micro_sum in self.micro.sums:
            is_backward = self.micro.trains and micro_sum.adding.name == "add_any"
            by_chunk: dict[int, list[int]] = {}
            for term in micro_sum.terms:
                by_chunk.setdefault(self.chunk_of.get(term, last), []).append(term)
            parts = []
            for chunk, terms in sorted(by_chunk.items()):
                # Within a chunk terms are added per micro batch, before they join the sum: one accumulator per chunk.
                part, phase = terms[0], Phase.BACKWARD if is_backward else Phase.FORWARD
                for term in terms[1:]:
                    early.append(self._addition(micro_sum, (part, term), writer.another(part), phase, chunk))
                    part = early[-1][0].results[0]
                summed.add(part)
                self.chunk_of[part] = chunk
                parts.append((chunk, part))
            owner, total = parts[0]
            for number, (_, part) in enumerate(parts[1:], 2):
                # The last addition writes the tensor that readers know; the others write new ones.
                result = micro_sum.total if number == len(parts) else writer.another(total)
                late.append(self._addition(micro_sum, (total, part), result, Phase.UPDATE, owner))
                total = result
            if total != micro_sum.total:
                writer.renamed[micro_sum.total] = total
        return [*early, *late], summed

    def _addition(self, how: Sum, operands: tuple[int, int], result: int, phase: Phase, chunk: int) -> _Entry:
        self.chunk_of[result] = chunk
        return Operator(how.adding, operands, (result,)), how.equation, phase, chunk


_Entry = tuple[Operator, Equation, Phase, int | None]
"""An operator with what runs for it, when it runs, and its chunk."""


class _Writer:
    """Writes a step whose operators of the update know their chunks, and whose marks of the update are of one chunk each.

    A gradient mark says something of each of its tensors by itself; an operator's mark says something of all together, and is
    left out where they are in several chunks.

    Attributes:
        tensors, entries: what is written.
        chunk_of: by tensor the chunk that makes it, as far as that is known.
        renamed: tensors behind marks that are left out, and totals, by what they were before.
    """

    def __init__(self, micro: MicroStep, replicable: frozenset[int], chunk_of: dict[int, int]) -> None:
        self.before, self.replicable, self.chunk_of = micro, replicable, chunk_of
        self.tensors = list(micro.step.graph.tensors)
        self.entries: list[_Entry] = []
        self.renamed: dict[int, int] = {}

    def another(self, tensor: int) -> int:
        """A new tensor of the type of this one."""
        self.tensors.append(self.tensors[tensor])
        return len(self.tensors) - 1

    def visit(self, operator: Operator, equation: Equation, phase: Phase, chunk: int | None) -> None:
        """Write what takes the place of an operator."""
        operator = replace(operator, operands=tuple(map(self._now, operator.operands)))
        if phase is not Phase.UPDATE or chunk is not None:
            self.entries.append((operator, equation, phase, chunk))
        elif len({self.chunk_of.get(tensor) for tensor in operator.operands}) > 1 and operator.name in IDENTITIES:
            self._identity(operator, equation)
        else:
            votes = [
                (-_bytes(self.tensors[tensor]), self.chunk_of[tensor])
                for tensor in operator.operands
                if tensor in self.chunk_of
            ]
            # Ties go to the earlier chunk, so that the assignment does not depend on the order of dictionaries.
            self._put(operator, equation, min(votes, default=(0, 0))[1])

    def _put(self, operator: Operator, equation: Equation, chunk: int) -> None:
        """Write an operator of the update."""
        made = [tensor for tensor in operator.results if tensor not in self.replicable]
        self.chunk_of.update(dict.fromkeys(made, chunk))
        self.entries.append((operator, equation, Phase.UPDATE, chunk if made else None))

    def _identity(self, operator: Operator, equation: Equation) -> None:
        """Write a mark or barrier of the update, in a part for each chunk."""
        # Its strategy would have to hold in several chunks, whose meshes differ.
        if isinstance(operator.mark, OperatorMark | DerivativeMark):
            self.renamed.update((result, source) for result, source in operator.sources.items() if source != LITERAL)
            return
        chunks = [self.chunk_of.get(tensor) for tensor in operator.operands]
        for chunk in sorted({chunk for chunk in chunks if chunk is not None}):
            positions = [number for number, other in enumerate(chunks) if other == chunk]
            self._put(*part_of_identity(operator, equation, positions), chunk)
        # What is in no chunk needs no mark: every chunk computes it for itself.
        for number, other in enumerate(chunks):
            if other is None:
                self.renamed[operator.results[number]] = operator.operands[number]

    def _now(self, tensor: int) -> int:
        """What a tensor is called now."""
        while tensor in self.renamed:
            tensor = self.renamed[tensor]
        return tensor

    def micro(self) -> MicroStep:
        """The step that was written."""
        operators, equations, phases, _ = zip(*self.entries, strict=True)
        graph = self.before.step.graph
        outputs = tuple(map(self._now, graph.outputs))
        graph = replace(graph, tensors=tuple(self.tensors), operators=operators, outputs=outputs)
        return replace(
            self.before, step=replace(self.before.step, graph=graph, equations=equations), phases=phases, sums=()
        )


def _replicable(micro: MicroStep, invariant: frozenset[int]) -> frozenset[int]:
    """Tensors that depend on variables and on carries of their own kind alone: random counters."""
    # Greatest fixed point: assume that all carries are free of data, and drop those whose new value is not.
    free = {carry.before for carry in micro.carries}
    while True:
        replicable = computed_from(micro, set(invariant) | free)
        remaining = {carry.before for carry in micro.carries if carry.before in free and carry.after in replicable}
        if remaining == free:
            return frozenset(replicable)
        free = remaining


def _call(operator: Operator) -> int | None:
    """The number of the call whose cotangents pass a mark."""
    return operator.mark.of.number if isinstance(operator.mark, DerivativeMark) else None


def _bytes(spec: TensorSpec) -> int:
    return math.prod(spec.shape) * spec.itemsize
