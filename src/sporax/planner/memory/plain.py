"""A compiler of which no details are known.

Problem: memory of devices whose compiler is not modelled.

Method: what all compilers of tensor programs do. Views take no memory. Loops over elements are computed inside of the loops that
read them: a loop is written for kernels of other kinds, for results, for loops, branches and barriers, and where it
computes a costly function for several readers. Reductions between devices that do not need each other are one collective. Kernels
run as soon as they can, or just before their first reader where they free nothing; what no result needs is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from itertools import chain
from math import prod

from sporax.ir.graph import LITERAL
from sporax.ir.placement import num_parts
from sporax.planner.communication.moves import NATIVE_REDUCTIONS, MoveKind
from sporax.planner.memory import backend
from sporax.planner.memory.step_events import Event, Timeline, Value
from sporax.planner.rules import entry_for
from sporax.planner.rules.loop_rules import CARRY, ENTER, RULES

_LOOPS = ("1 elementwise", "2 dimensions", "9 creation")
"""Families of rules whose operators are loops over elements."""
_IN_PLACE = ("scatter", "dynamic_update_slice", CARRY)
"""How names of operators begin that update their first operand."""


@dataclass(frozen=True, slots=True)
class Plain:
    """A compiler of which no details are known.

    Attributes:
        fuses_attention: it has kernels of attention, which do not write scores.
    """

    fuses_attention: bool = True

    def compiled(self, timeline: Timeline) -> backend.KernelSchedule:
        """One kernel for every event that is written."""
        pieces = _Pieces(timeline, self.fuses_attention)
        needed = [*backend.results_of(timeline, pieces.number), *backend.carried_by(pieces.instructions)]
        kernels = backend.in_order(_fused(pieces.instructions, needed, pieces.entering))
        return backend.KernelSchedule(pieces.sizes, pieces.number, _late(kernels))


PLAIN = Plain()
"""The compiler of most devices."""


def _edge(event: Event) -> str:
    return event.operator.name if event.operator and event.operator.name in RULES else ""


@dataclass(frozen=True, slots=True)
class _Traits:
    """What an operator's name says of its instructions, as in `Instruction`."""

    kind: backend.Kind
    elementwise: bool
    in_place: bool
    costly: bool


class _Pieces:
    """The events of a step before fusion.

    Attributes:
        sizes: bytes of every array.
        number: the array of each value.
        instructions: in the order of the graph.
        entering: arrays that loops and branches of the program are handed, and those that pass barriers.
    """

    def __init__(self, timeline: Timeline, fuses_attention: bool) -> None:
        self.timeline, self.fuses_attention = timeline, fuses_attention
        self._waits: dict[Value, frozenset[int]] = {}
        """For values that passed barriers the arrays that did so with them."""
        self.sizes: list[int] = []
        self.number: dict[Value, int] = {}
        self.entering: set[int] = set()
        self.traits: dict[tuple[str, bool], _Traits] = {}
        """By name of an operator, and whether it has bodies: a step has few names."""
        for value in timeline.inputs:
            self._array_of(value)
        # The last event only hands out results.
        self.instructions = [
            replace(instruction, after=self._after(event), loops=event.loops, edge=_edge(event))
            for number, event in enumerate(timeline.events[:-1])
            for instruction in self._of(number, event)
        ]

    def _after(self, event: Event) -> frozenset[int]:
        """Arrays that exist before an event, since values that it reads passed barriers with them."""
        return frozenset().union(*(self._waits.get(value, ()) for value in event.reads))

    def _of(self, number: int, event: Event) -> Iterator[backend.Instruction]:
        operator = event.operator
        if operator is None:
            yield from self._transfer(number, event)
        elif operator.name in backend.VIEWS:
            operands = iter(event.reads)
            # What passes a barrier waits for all that passes it; a view waits for what its operand does.
            passed = self._after(event)
            if operator.name == backend.BARRIER:
                passed |= {*map(self._array_of, event.reads)}
            self._waits.update(dict.fromkeys(event.writes, passed) if passed else {})
            for operand, result in zip(operator.operands, event.writes, strict=False):
                if operand == LITERAL:
                    yield backend.Instruction(backend.Kind.LOOP, (), (self._array_of(result),), number)
                else:
                    self.number[result] = array = self._array_of(next(operands))
                    self.entering.update([array] if operator.name in (ENTER, backend.BARRIER) else ())
        else:
            traits = self._traits(operator.name, bool(operator.bodies))
            reads, writes = self._arrays(event)
            fused = operator.operation.fused if self.fuses_attention else None
            if fused:
                spec = operator.operation.results[0]
                inside = (
                    traits.kind is backend.Kind.LOOP
                    or prod(spec.shape) == fused.elements
                    or operator.name != "dot_general"
                )
                yield backend.Instruction(backend.Kind.LOOP if inside else backend.Kind.FUSED, reads, writes, number)
                return
            alone = len(writes) == 1
            yield backend.Instruction(
                traits.kind,
                reads,
                writes,
                number,
                alone and traits.elementwise,
                in_place=alone and traits.in_place,
                costly=traits.costly,
            )

    def _traits(self, name: str, has_bodies: bool) -> _Traits:
        found = self.traits.get((name, has_bodies))
        if found is None:
            family = "" if has_bodies else entry_for(name).family
            # The edges of the program's loops are borders that no compiler fuses across.
            kind = backend.Kind.LOOP if family in _LOOPS and name not in RULES else backend.Kind.KERNEL
            found = _Traits(kind, family == _LOOPS[0], name.startswith(_IN_PLACE), name in backend.COSTLY)
            self.traits[name, has_bodies] = found
        return found

    def _transfer(self, number: int, event: Event) -> Iterator[backend.Instruction]:
        moves = event.transfers[0].redistribution.moves
        if not moves:
            self.number[event.writes[0]] = self._array_of(event.reads[0])
            return
        for value in event.writes:
            # What was there before under this name is gone; the new array has it.
            self.number.pop(value, None)
        reads, writes = self._arrays(event)
        reduced = [move for move in moves if move.kind is MoveKind.ALL_REDUCE and move.reduction in NATIVE_REDUCTIONS]
        combines: tuple[object, ...] = ()
        if reduced and self.timeline.merging and len(event.reads) == 1:
            dtype = self.timeline.tensors[event.reads[0][0]].dtype
            combines = (*sorted(reduced[0].axes), reduced[0].reduction, dtype)
        sends = any(move.kind is not MoveKind.SLICE for move in moves)
        yield backend.Instruction(
            backend.Kind.KERNEL if sends else backend.Kind.LOOP, reads, writes, number, sends=sends, combines=combines
        )

    def _arrays(self, event: Event) -> tuple[tuple[int, ...], tuple[int, ...]]:
        reads, writes = (tuple(map(self._array_of, values)) for values in (event.reads, event.writes))
        return reads, writes

    def _array_of(self, value: Value) -> int:
        array = self.number.get(value)
        if array is None:
            tensor, placement = value
            mesh = self.timeline.mesh
            # Without a plan tensors are whole.
            axes = () if placement is None else tuple(chain.from_iterable(placement.dims))
            array = self.number[value] = len(self.sizes)
            num_bytes = self.timeline.tensors[tensor].num_bytes
            self.sizes.append(num_bytes if mesh is None else num_bytes // num_parts(mesh, axes))
        return array


def _fused(
    instructions: Sequence[backend.Instruction], results: Sequence[int], entering: Set[int]
) -> list[backend.Kernel]:
    """The kernels, in the order of the graph; the reductions of one group are one kernel."""
    written = _written(instructions, results, entering)
    inside = {array: entry for entry in instructions for array in entry.writes if array not in written}
    kernels: dict[int, backend.Kernel] = {}
    for number, root in enumerate(instructions):
        if written.isdisjoint(root.writes):
            continue
        kernels[number] = kernel = backend.Kernel([root], set(), {*root.writes}, {root.event}, number, {*root.after})
        # What is not written is computed again from what is.
        missing = [*root.reads]
        while missing:
            array = missing.pop()
            if array not in inside:
                kernel.reads.add(array)
            elif inside[array].event not in kernel.events:
                kernel.events.add(inside[array].event)
                kernel.after |= inside[array].after
                missing += inside[array].reads
    for group in backend.combined_all_reduces(instructions):
        first, *others = [number for number in group if number in kernels] or [-1]
        for number in others:
            kernels[first].combine(kernels.pop(number))
    return [*kernels.values()]


def _late(kernels: Sequence[backend.Kernel]) -> list[backend.Kernel]:
    """The same order, but what frees nothing, as its operands are there anyway until its first reader, runs just before that."""
    made = set[int]().union(*(kernel.writes for kernel in kernels))
    reads = [(array, number) for number, kernel in enumerate(kernels) for array in kernel.reads & made]
    first, last = dict(reversed(reads)), dict(reads)
    waiting: dict[int, backend.Kernel] = {}
    order: list[backend.Kernel] = []

    def run(kernel: backend.Kernel) -> None:
        for array in sorted((kernel.reads | kernel.after) & waiting.keys()):
            make(array)
        order.append(kernel)

    def make(array: int) -> None:
        if array in waiting:
            maker = waiting[array]
            for written in maker.writes:
                del waiting[written]
            run(maker)

    for number, kernel in enumerate(kernels):
        reader = min((first[array] for array in kernel.writes & first.keys()), default=number)
        if reader > number and all(last[array] >= reader for array in kernel.reads & made):
            waiting.update(dict.fromkeys(kernel.writes, kernel))
        else:
            run(kernel)
    return order


def _written(instructions: Sequence[backend.Instruction], results: Sequence[int], entering: Set[int]) -> set[int]:
    """The arrays that are in memory."""
    written, readers = {*results}, dict.fromkeys(results, 0)
    # Backwards: what reads an array is known before the instruction that makes it.
    for entry in reversed(instructions):
        if readers.keys().isdisjoint(entry.writes):
            continue
        if entry.kind is not backend.Kind.LOOP:
            written.update(() if entry.kind is backend.Kind.FUSED else entry.reads, entry.writes)
        elif entry.costly and sum(readers.get(array, 0) for array in entry.writes) > 1:
            written.update(entry.writes)
        written.update(entering & {*entry.writes})
        for array in entry.reads:
            readers[array] = readers.get(array, 0) + 1
    return written
