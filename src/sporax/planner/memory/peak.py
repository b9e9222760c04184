"""How much memory one device needs for a plan, by the lives of arrays.

The step is taken apart as a compiler does it: operators and transfers become pieces (`pieces`), pieces are melted into kernels,
and kernels run as soon as they can (`kernels`). An array lives from the kernel that writes it to the last one that reads it;
arguments and results have places of their own, everything else shares one piece of memory, gaps included (`heap`). A kernel of
elementwise operators writes over an operand of the same size that nobody reads later. What collectives and replaced arguments
do to memory is told in `transfer_memory`.

Loops are written out (`loops`): what a round makes lives within it, what the loop reads or stacks lives as long as the loop.

What is not known here: workspace inside kernels, and recomputation by the compiler.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from itertools import accumulate
from operator import itemgetter

from sporax.ir.graph import LITERAL, OperatorGraph, Role
from sporax.ir.plan import Plan
from sporax.planner.loops.inline import spans, written_out
from sporax.planner.memory.buffer_assignment import Guest, Place, Tenant, housed, places
from sporax.planner.memory.events import Event, Timeline
from sporax.planner.memory.instructions import Kind, Pieces
from sporax.planner.memory.kernel_fusion import Kernel, copied_arguments, kernels_of


class Use(Enum):
    """What memory is used for."""

    PARAMETERS = "parameters"
    STATE = "state"
    DATA = "data"
    ACTIVATIONS = "activations"
    """Made in the forward pass, read in the backward pass."""
    TRANSIENTS = "transients"
    """Everything else, gradients and gaps between arrays included; what takes an argument's place counts as that argument."""


_ROLES = {Role.PARAMETER: Use.PARAMETERS, Role.STATE: Use.STATE, Role.DATA: Use.DATA, Role.CONSTANT: Use.DATA}


@dataclass(frozen=True, slots=True)
class Life:
    """One tensor that takes memory.

    Attributes:
        tensor: its number.
        begin, end: ticks between which it is there, `end` included; -1 is before the first operator. When so many
            operators have run, twice as many ticks have passed.
        use: what for.
    """

    tensor: int
    begin: int
    end: int
    use: Use


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Predicted memory of one device.

    Attributes:
        peak_bytes: the most that is in use at a time.
        operator: position of the operator at which that is; -1 for the start.
        by_use: what it is used for at that time.
        held_bytes: the arguments alone.
    """

    peak_bytes: int
    operator: int
    by_use: Mapping[Use, int]
    held_bytes: int

    def __str__(self) -> str:
        parts = ", ".join(f"{use.value} {size / 1e6:.4g}" for use, size in self.by_use.items() if size)
        return f"{self.peak_bytes / 1e6:.4g} MB at operator {self.operator} ({parts})"


_TICKS = 2
"""Of every kernel: it runs, and then what it has written over is gone."""


def lives(graph: OperatorGraph) -> tuple[Life, ...]:
    """The tensors of a graph that take memory, whatever the plan."""
    found = _Lives(Timeline(graph))
    named: dict[int, int] = {}
    for value, array in found.pieces.number.items():
        named.setdefault(array, value[0])
    clock = found.clock

    def tick(time: int) -> int:
        return -1 if time < 0 else _TICKS * clock[time // _TICKS] + time % _TICKS

    return tuple(
        Life(named[each.array], tick(each.begin), tick(each.end), each.use)
        for each in found.arrays()
        if each.array in named
    )


def memory_of(graph: OperatorGraph, plan: Plan) -> MemoryUse:
    """Memory of one device that runs `plan`, in the bodies of loops as well."""
    out = written_out(graph)
    found = _Lives(Timeline(out.graph, out.unfolded(plan)))
    time, uses = max(found.over_time(), key=lambda each: sum(each[1].values()))
    position = found.position(time)
    return MemoryUse(sum(uses.values()), out.owners[position] if position >= 0 else -1, uses, found.held_bytes)


def memory_over_time(graph: OperatorGraph, plan: Plan) -> tuple[tuple[int, Mapping[Use, int]], ...]:
    """Memory of one device that runs `plan`: numbers of operators that have run, from which on it is so much, by use.

    The first is -1, the start; the last one the number of all, where all is given back but for what nobody counts. Of all that
    happens meanwhile, the most is told.
    """
    found = _Lives(Timeline(graph, plan))
    most: dict[int, Mapping[Use, int]] = {}
    for time, present in found.over_time():
        count = -1 if time < 0 else found.clock[min(time // _TICKS, len(found.clock) - 1)]
        if count not in most or sum(present.values()) > sum(most[count].values()):
            most[count] = present
    return tuple(most.items())


@dataclass(frozen=True, slots=True)
class _Room:
    """Part of the shared memory that is taken for a while.

    Attributes:
        begin, end: ticks, `end` included.
        use: what for.
        num_bytes: how much.
        place: the byte of the shared memory at which it begins.
    """

    begin: int
    end: int
    use: Use
    num_bytes: int
    place: int


def _over_time(rooms: Sequence[_Room]) -> Iterator[tuple[int, dict[Use, int]]]:
    """Every time at which something changes, with what is taken from then on. What is lost to gaps is lost all the time."""
    changes: dict[int, dict[Use, int]] = {}
    for room in rooms:
        for time, change in ((room.begin, room.num_bytes), (room.end + 1, -room.num_bytes)):
            at = changes.setdefault(time, {})
            at[room.use] = at.get(room.use, 0) + change
    present = dict.fromkeys(Use, 0)
    found: list[tuple[int, dict[Use, int]]] = []
    for time in sorted(changes):
        for use, change in changes[time].items():
            present[use] += change
        found.append((time, dict(present)))
    most = max((sum(uses.values()) for _, uses in found), default=0)
    gaps = max(max((room.place + room.num_bytes for room in rooms), default=0) - most, 0)
    for time, uses in found:
        uses[Use.TRANSIENTS] += gaps
        yield time, uses


@dataclass(frozen=True, slots=True)
class _ArrayLife:
    """When an array is there, in ticks, and what for."""

    array: int
    begin: int
    end: int
    use: Use


class _Lives:
    """When arrays are there, in ticks of the kernels of a program."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.pieces = Pieces(timeline)
        number = self.pieces.number
        self.results = [number[value] for value in timeline.outputs if value[0] != LITERAL]
        self.kernels = kernels_of(self.pieces, self.results)
        self.inputs = [number[value] for value in timeline.inputs]
        self.replaced = {
            self.inputs[argument]: number[timeline.outputs[result]]
            for result, argument in timeline.graph.aliases
            if timeline.outputs[result][0] != LITERAL
        }
        self.copied = copied_arguments(self.kernels, self.replaced)
        self.rank = {array: kernel.rank for kernel in self.kernels for array in kernel.writes}
        self.begin, self.end = self._spans()
        for array in self._written_over(frozenset()):
            self.begin[array] = min(self.begin[array] + 1, self.end[array])

    @property
    def _last(self) -> int:
        return _TICKS * len(self.kernels)

    def _spans(self) -> tuple[dict[int, int], dict[int, int]]:
        begin, end = dict.fromkeys(self.inputs, -1), dict.fromkeys(self.inputs, -1)
        for number, kernel in enumerate(self.kernels):
            for array in kernel.reads:
                end[array] = _TICKS * number
            for array in kernel.writes:
                begin[array] = end[array] = _TICKS * number
        self._through_loops(begin, end)
        end.update(dict.fromkeys(self.results, self._last))
        end.update((array, self._last) for array in self.inputs if array not in self.replaced)
        return begin, end

    def _through_loops(self, begin: dict[int, int], end: dict[int, int]) -> None:
        """What a loop reads in every round is there until its end, and what it stacks is there from its start on."""
        loops = [*spans(self.timeline.graph)]
        happens: dict[int, Event] = {}
        ran: dict[int, list[int]] = {}
        for number, kernel in enumerate(self.kernels if loops else ()):
            for event in (self.timeline.events[each] for each in kernel.events):
                ran.setdefault(event.position, []).append(_TICKS * number)
                if event.operator is not None:
                    happens[event.position] = event
        for loop in loops:
            times = [time for position in range(loop.first, loop.last + 1) for time in ran.get(position, ())]
            if not times:
                continue
            entering = [value for each in loop.enter if each in happens for value in happens[each].reads]
            leaving = [value for each in loop.leave if each in happens for value in happens[each].writes]
            for array in map(self.pieces.number.__getitem__, entering):
                end[array] = max(end[array], *times)
            for array in map(self.pieces.number.__getitem__, leaving):
                begin[array] = min(begin[array], *times)

    def _written_over(self, guests: Set[int]) -> dict[int, int]:
        """Arrays that are written over an operand that nobody else reads later, and that operand; `guests` lie elsewhere."""
        taken = {*self.inputs} | self.pieces.rigid | guests
        found: dict[int, int] = {}
        for number, kernel in enumerate(self.kernels):
            for operand, result in self._overwritable(number, kernel):
                replaces = self.replaced.get(operand) == result and operand not in self.copied
                if (replaces or operand not in taken) and result not in guests:
                    taken.add(operand)
                    found[result] = operand
                    break
        return found

    def _overwritable(self, number: int, kernel: Kernel) -> Iterator[tuple[int, int]]:
        """Operands of a kernel that nobody reads later, and the result that may be written over any of them."""
        root = kernel.roots[0]
        if len(kernel.roots) == 1 and (root.elementwise or root.in_place):
            (result,) = root.writes
            size = self.pieces.arrays[result].num_bytes
            for operand in sorted(kernel.reads):
                if self.end[operand] == _TICKS * number and self.pieces.arrays[operand].num_bytes == size:
                    yield operand, result

    @cached_property
    def _copies(self) -> dict[int, _ArrayLife]:
        """Copies of arguments that are replaced before they have been read: made at the start, one after another."""
        order = sorted(self.copied)
        return {
            argument: _ArrayLife(argument, time - len(order), self.end[argument], Use.TRANSIENTS)
            for time, argument in enumerate(order)
        }

    def _guests(self) -> set[int]:
        """Arrays that lie where an argument was, or where a result will be; of copies the arguments."""
        sizes = [each.num_bytes for each in self.pieces.arrays]
        over: dict[int, list[int]] = {}
        read: dict[int, int] = {}
        for number, kernel in enumerate(self.kernels):
            for array in kernel.reads:
                read[array] = min(read.get(array, kernel.rank), kernel.rank)
            for operand, result in self._overwritable(number, kernel):
                if operand not in self.pieces.rigid:
                    over.setdefault(result, []).append(operand)

        def guest(array: int) -> Guest:
            begin = self.begin[array] // _TICKS * _TICKS
            return Guest(array, begin, self.end[array], sizes[array], over.get(array, ()))

        def before(argument: int) -> Guest:
            end = self._copies[argument].begin if argument in self._copies else self.end[argument]
            return Guest(argument, -1 - len(self._copies), end, sizes[argument])

        arguments = sorted(self.replaced, key=lambda each: read.get(each, 0))
        results = sorted({*self.results} - {*self.inputs, *self.replaced.values()})
        vacant = [Place(sizes[each], before(each), guest(self.replaced[each])) for each in arguments]
        vacant += [Place(sizes[each], None, guest(each)) for each in results]
        ranked = [(read[each], Guest(each, life.begin, life.end, sizes[each])) for each, life in self._copies.items()]
        ranked += [(rank, guest(array)) for array, rank in self.rank.items() if array not in self.own]
        return housed(vacant, [each for _, each in sorted(ranked, key=itemgetter(0))])

    def arrays(self) -> Iterator[_ArrayLife]:
        """All arrays."""
        graph, number = self.timeline.graph, self.pieces.number
        roles = {
            number[value]: _ROLES[each.role] for value, each in zip(self.timeline.inputs, graph.inputs, strict=True)
        }
        kept = self._kept_for_later()
        for array, begin in self.begin.items():
            use = roles.get(array, Use.ACTIVATIONS if array in kept else Use.TRANSIENTS)
            yield _ArrayLife(array, begin, self.end[array], use)

    def _kept_for_later(self) -> set[int]:
        """What is made of arguments and read by kernels that depend on the backward pass."""
        events = self.timeline.events
        late: set[int] = set()
        kept: set[int] = set()
        for kernel in self.kernels:
            backward = any(
                operator is not None and operator.backward
                for root in kernel.roots
                for operator in (events[root.event].operator,)
            )
            rearranges = all(root.kind is Kind.LOOP and not root.elementwise for root in kernel.roots)
            if not kernel.reads.isdisjoint(late) or (backward and not rearranges):
                late |= kernel.writes
                kept |= kernel.reads - late
        return kept

    @cached_property
    def own(self) -> frozenset[int]:
        """Arrays with a place of their own: arguments, results, and what takes an argument's place."""
        return frozenset([*self.inputs, *self.results])

    @cached_property
    def held_bytes(self) -> int:
        """Bytes of the arguments."""
        return sum(self.pieces.arrays[array].num_bytes for array in {*self.inputs})

    def over_time(self) -> Iterator[tuple[int, dict[Use, int]]]:
        """Memory of one device from the start on, by use, at every tick at which it changes."""
        held = dict.fromkeys(Use, 0)
        for each in self.arrays():
            if each.array in self.own and each.array not in self.replaced.values():
                held[each.use] += self.pieces.arrays[each.array].num_bytes
        yield -1, held
        for time, shared in _over_time(self._rooms()):
            yield time, {use: held[use] + shared[use] for use in Use}

    def _rooms(self) -> list[_Room]:
        """What lies in the shared memory; arrays that are written over each other lie in one place."""
        size = [each.num_bytes for each in self.pieces.arrays]
        guests = self._guests()
        over = self._written_over(guests)
        chains: dict[int, list[_ArrayLife]] = {}
        for each in self.arrays():
            if each.array not in self.own and each.array not in guests:
                first = each.array
                while first in over and over[first] not in self.own:
                    first = over[first]
                chains.setdefault(first, []).append(each)
        groups = [(size[first], spans) for first, spans in chains.items() if size[first]]
        groups += ((size[each.array], [each]) for each in self._detours())
        groups += ((size[each], [replace(life, begin=0)]) for each, life in self._copies.items() if each not in guests)
        groups.sort(key=lambda each: self.rank.get(each[1][0].array, 0))
        tenants = [
            Tenant(tuple((each.begin // _TICKS * _TICKS, each.end) for each in spans), num_bytes)
            for num_bytes, spans in groups
        ]
        return [
            _Room(each.begin, each.end, each.use, num_bytes, start)
            for (num_bytes, spans), start in zip(groups, places(tenants), strict=True)
            for each in spans
        ]

    def _detours(self) -> Iterator[_ArrayLife]:
        """Results that cannot be written where they belong: their kernel reads the argument that lies there."""
        for argument, result in self.replaced.items():
            handed_on = result in self.inputs
            if not handed_on and argument not in self.copied and self.begin[result] <= self.end[argument]:
                yield _ArrayLife(result, self.begin[result], self.end[argument], Use.TRANSIENTS)

    def position(self, time: int) -> int:
        """The operator that runs at a tick; -1 for the start."""
        if time < 0:
            return -1
        kernel: Kernel = self.kernels[min(time // _TICKS, len(self.kernels) - 1)]
        last = self.timeline.events[kernel.roots[-1].event].position
        return min(last, len(self.timeline.graph.operators) - 1)

    @cached_property
    def clock(self) -> list[int]:
        """[kernels + 1] how many operators have run before each kernel, and at the end."""
        graph = self.timeline.graph
        first: dict[int, int] = {}
        for number, kernel in enumerate(self.kernels):
            for event in kernel.events:
                first.setdefault(event, number)
        made: dict[int, int] = {}
        counts = [0] * (len(self.kernels) + 1)
        for event, each in enumerate(self.timeline.events[:-1]):
            if each.operator is not None:
                operands = (made.get(tensor, 0) for tensor, _ in each.reads)
                time = first.get(event, max(operands, default=0))  # a view is there with its operand
                made.update((tensor, time) for tensor, _ in each.writes)
                counts[time + 1 if event in first else time] += 1
        found = list(accumulate(counts))
        return [*found[:-1], len(graph.operators)]
