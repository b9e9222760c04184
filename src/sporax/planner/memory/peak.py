"""The peak memory of a plan on one device, from the live ranges of its arrays.

Problem: predict whether a plan fits a device, without compiling it.

Method: live ranges over the finished schedule. A `Backend` (`backend`) says which kernels a compiler makes of operators and
transfers, in which order. An array is live from the kernel that writes it to the last kernel that reads it. Arguments and results
have buffers of their own; everything else shares one heap, gaps included (`buffer_assignment`). A kernel writes in place over an
operand of the same size that has no later reader, where the backend allows it.

Loops are inlined (`planner.loops`): arrays of a round are live within the loop; what the loop reads or stacks is live
as long as the loop runs.

Not modelled: workspace inside kernels, and rematerialization by the compiler.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from sporax.base.text_tables import size_text
from sporax.ir.graph import OperatorGraph, Role
from sporax.ir.plan import Plan
from sporax.planner.loops.inline import inline_loops
from sporax.planner.memory.backend import Backend, Kernel, Kind, replaced_by, results_of
from sporax.planner.memory.buffer_assignment import (
    Allocation,
    HeapBuffer,
    LiveArray,
    arrays_in_allocations,
    heap_offsets,
    least_height,
)
from sporax.planner.memory.plain import PLAIN, Plain
from sporax.planner.memory.step_events import Timeline, Value
from sporax.planner.memory.xla_cpu.kernel_fusion import XLA_CPU
from sporax.planner.rules.loop_rules import STACK


def backend_of(platform: str) -> Backend:
    """The compiler of devices by `HardwareProfile.compiler`: that of XLA for CPUs is modelled, of others no details are."""
    return XLA_CPU if platform == "cpu" else PLAIN if platform != "written" else Plain(fuses_attention=False)


class Use(Enum):
    """What memory is used for."""

    PARAMETERS = "parameters"
    STATE = "state"
    DATA = "data"
    ACTIVATIONS = "activations"
    """Made in the forward pass, read in the backward pass."""
    TRANSIENTS = "transients"
    """Everything else, gradients and gaps between arrays included; what takes an argument's place counts as that argument."""


_USES = (*Use,)
_ROLES = {Role.PARAMETER: Use.PARAMETERS, Role.STATE: Use.STATE, Role.DATA: Use.DATA, Role.CONSTANT: Use.DATA}
"""What inputs of each role are shown as; a constant is data to people."""


@dataclass(frozen=True, slots=True)
class LiveRange:
    """A tensor, or an array of the compiled program, that takes memory.

    Attributes:
        number: of it.
        begin, end: ticks between which it is there, `end` included; -1 is before the first operator. When so many
            operators, or kernels, have run, twice as many ticks have passed.
        use: what for.
    """

    number: int
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
        parts = ", ".join(f"{use.value} {size_text(size)}" for use, size in self.by_use.items() if size)
        return f"{size_text(self.peak_bytes)} at operator {self.operator} ({parts})"


History = tuple[tuple[int, Mapping[Use, int]], ...]
"""What memory is used for, from when so many operators have run; see `MemoryProfile.history`."""

_TICKS = 2
"""Ticks of every kernel: it runs, and then what it has written over is gone."""


def live_ranges(graph: OperatorGraph, backend: Backend) -> tuple[LiveRange, ...]:
    """The tensors of a graph that take memory, whatever the plan."""
    ranges = _LiveRanges(Timeline(graph), backend)
    clock = ranges.clock

    def tick(time: int) -> int:
        # From ticks of kernels to ticks of operators, which do not depend on fusion.
        return -1 if time < 0 else _TICKS * clock[time // _TICKS] + time % _TICKS

    return tuple(
        LiveRange(ranges.names[array.number][0], tick(array.begin), tick(array.end), array.use)
        for array in ranges.arrays
        if array.number in ranges.names
    )


def memory_of(graph: OperatorGraph, plan: Plan, backend: Backend, with_host: bool = False) -> MemoryUse:
    """Memory of one device that runs `plan`, in the bodies of loops as well.

    Args:
        backend: the compiler of the devices, as `backend_of` says.
        with_host: count what is in host memory, too: device and host are one memory, as they are on CPUs.
    """
    return MemoryProfile(graph, plan, backend, with_host).memory


def _in_one_memory(graph: OperatorGraph) -> OperatorGraph:
    tensors = (replace(spec, itemsize=spec.itemsize or spec.host_itemsize) for spec in graph.tensors)
    return replace(graph, tensors=tuple(tensors))


class MemoryProfile:
    """Memory over time of one device that runs a plan; arguments as for `memory_of`.

    Plans of a search that are too large are known by their live bytes, and most others are compared by their peak alone: all is
    worked out when it is first read.
    """

    def __init__(self, graph: OperatorGraph, plan: Plan, backend: Backend, with_host: bool = False) -> None:
        out = inline_loops(graph)
        graph = _in_one_memory(out.graph) if with_host else out.graph
        self._ranges, self._owners = _LiveRanges(Timeline(graph, out.unfolded(plan)), backend), out.owners

    @property
    def live_bytes(self) -> int:
        """The most live bytes at a time: what the plan needs at least, before buffers are assigned."""
        return self._ranges.live_bytes

    @cached_property
    def _usage(self) -> _Usage:
        return self._ranges.usage()

    @cached_property
    def memory(self) -> MemoryUse:
        """At the peak."""
        row, usage = self._usage.peak, self._usage
        position, uses = self._ranges.position(usage.times[row]), usage.uses(row)
        operator = self._owners[position] if position >= 0 else -1
        return MemoryUse(sum(uses.values()), operator, uses, self._ranges.held_bytes)

    @cached_property
    def history(self) -> History:
        """Numbers of operators that have run, from which on it is so much, by use; loops are written out.

        The first is -1, the start; the last one the number of all, at which only the results remain. If several values
        have one number, the largest counts.
        """
        clock, usage = self._ranges.clock, self._usage
        totals = usage.table.sum(axis=1).tolist()
        most: dict[int, int] = {}
        for row, time in enumerate(usage.times):
            count = -1 if time < 0 else clock[min(time // _TICKS, len(clock) - 1)]
            # Several kernels may belong to one operator; the fullest of them counts.
            if count not in most or totals[row] > totals[most[count]]:
                most[count] = row
        return tuple((count, usage.uses(row)) for count, row in most.items())

    @cached_property
    def at_peak(self) -> list[tuple[Value, int]]:
        """What is in memory at the peak, each with its bytes."""
        return self._ranges.values_at(self._usage.times[self._usage.peak])


@dataclass(frozen=True, slots=True)
class _Usage:
    """What memory is used for, from every tick on at which that changes.

    Attributes:
        times: the ticks, ascending; -1 is the start.
        table: [times, `_USES`] bytes.
    """

    times: list[int]
    table: NDArray[np.int64]

    @property
    def peak(self) -> int:
        """The row of most bytes: the first of several, so that messages are reproducible."""
        return int(self.table.sum(axis=1).argmax())

    def uses(self, row: int) -> dict[Use, int]:
        """Bytes by use at one of the times."""
        return dict(zip(_USES, self.table[row].tolist(), strict=True))


def _shared(ranges: Sequence[tuple[LiveRange, int]], height: int) -> _Usage:
    """What is taken of the shared memory. What is lost to gaps is lost all the time.

    Args:
        ranges: arrays in the shared memory, with their bytes.
        height: bytes of the shared memory.
    """
    # One tick after the end: ranges include it.
    begins, ends = [span.begin for span, _ in ranges], [span.end + 1 for span, _ in ranges]
    times = sorted({*begins, *ends})
    row = {time: number for number, time in enumerate(times)}
    changes = np.zeros((len(times), len(_USES)), np.int64)
    sizes, columns = [num_bytes for _, num_bytes in ranges], [_USES.index(span.use) for span, _ in ranges]
    np.add.at(changes, ([row[time] for time in begins], columns), sizes)
    np.subtract.at(changes, ([row[time] for time in ends], columns), sizes)
    table = np.cumsum(changes, axis=0)
    # What is lost to gaps between buffers is memory that nothing else can use.
    table[:, _USES.index(Use.TRANSIENTS)] += max(height - int(table.sum(axis=1).max(initial=0)), 0)
    return _Usage(times, table)


class _LiveRanges:
    """When arrays are there, in ticks of the kernels of a program."""

    def __init__(self, timeline: Timeline, backend: Backend) -> None:
        self.timeline = timeline
        step = backend.compiled(timeline)
        self.sizes, self.number, self.kernels = step.sizes, step.number, step.kernels
        self.fixed, self.copied, self.early_stacks = step.fixed, step.copied, step.early_stacks
        self.results = results_of(timeline, self.number)
        self.inputs = [self.number[value] for value in timeline.inputs]
        self.replaced = replaced_by(timeline, self.number)
        self.rank = {array: kernel.rank for kernel in self.kernels for array in kernel.writes}
        self.begin, self.end = self._ticks()
        # The second tick of the kernel: by then the operand that it is written over is gone.
        for array in self._in_place(frozenset()):
            self.begin[array] = min(self.begin[array] + 1, self.end[array])

    @property
    def _last(self) -> int:
        return _TICKS * len(self.kernels)

    def _ticks(self) -> tuple[dict[int, int], dict[int, int]]:
        begin, end = dict.fromkeys(self.inputs, -1), dict.fromkeys(self.inputs, -1)
        reduced: set[int] = set()
        for number, kernel in enumerate(self.kernels):
            root = kernel.roots[0]
            reduced |= kernel.reads if root.kind is Kind.REDUCTION else set()
            # CPUs make one kernel of a reduction and what reads it and its operand, which is not written over.
            old = {array for array in root.outdated if array not in reduced or end[array] < begin[root.reads[-1]]}
            for array in kernel.reads - old:
                # The last reader's tick stays, because kernels are in order.
                end[array] = _TICKS * number
            for array in kernel.writes:
                begin[array] = end[array] = _TICKS * number
        self._through_loops(begin, end)
        # Results are handed out at the end, whatever reads them before.
        end.update(dict.fromkeys(self.results, self._last))
        # Arguments that are replaced die with their last reader; all others belong to the caller.
        end.update((array, self._last) for array in self.inputs if array not in self.replaced)
        return begin, end

    def _through_loops(self, begin: dict[int, int], end: dict[int, int]) -> None:
        """What a loop reads in every round is there until its end, and what it stacks is there from its start on, or earlier."""
        inside: dict[tuple[object, ...], list[int]] = {}
        for number, kernel in enumerate(self.kernels):
            for depth in range(len(kernel.loops)):
                inside.setdefault(kernel.loops[: depth + 1], []).append(number)
        for loops, numbers in inside.items():
            first, last = _TICKS * numbers[0], _TICKS * numbers[-1]
            kernels = [self.kernels[number] for number in numbers]
            roots = [kernel.roots[0] for kernel in kernels if kernel.loops == loops]
            made = set[int]().union(*(kernel.writes for kernel in kernels))
            carried = set[int]().union(*(root.outdated for root in roots))
            entering = set[int]().union(*(kernel.reads for kernel in kernels)) - made - carried
            end.update({array: max(end[array], last) for array in entering})
            # Zeros wait for nothing: compilers that run what can run make them first, but those inside of a loop in its round.
            since = 0 if self.early_stacks and len(loops) == 1 else first
            begin.update({root.writes[0]: min(begin[root.writes[0]], since) for root in roots if root.edge == STACK})

    def _in_place(self, reusing: Set[int]) -> dict[int, int]:
        """Arrays that are written over an operand without later readers, and that operand; `reusing` arrays are elsewhere."""
        # Two results cannot be written over one operand, so it is taken after the first.
        taken = {*self.inputs} | self.fixed | reusing
        operand_of: dict[int, int] = {}
        for number, kernel in enumerate(self.kernels):
            for operand, result in self._in_place_candidates(number, kernel):
                # Writing a variable's new value over its old one is the rule (donation), unless the old one was copied.
                replaces = self.replaced.get(operand) == result and operand not in self.copied
                if (replaces or operand not in taken) and result not in reusing:
                    taken.add(operand)
                    operand_of[result] = operand
                    break
        return operand_of

    def _in_place_candidates(self, number: int, kernel: Kernel) -> Iterator[tuple[int, int]]:
        """Operands of a kernel without later readers, and the result that may be written over any of them."""
        if kernel.overwrites:
            (result,) = kernel.writes
            for operand in sorted(kernel.reads - kernel.moved):
                # Only at the last reader, and only a result of the same size, can take the operand's place.
                if self.end[operand] == _TICKS * number and self.sizes[operand] == self.sizes[result]:
                    yield operand, result

    @cached_property
    def _copies(self) -> dict[int, LiveRange]:
        """Copies of arguments that are replaced before they have been read: made at the start, one after another."""
        order = sorted(self.copied)
        return {
            # Copies are made before the first kernel, one tick each, hence negative ticks.
            argument: LiveRange(argument, time - len(order), self.end[argument], Use.TRANSIENTS)
            for time, argument in enumerate(order)
        }

    def _reusing(self) -> set[int]:
        """Arrays that are where an argument was, or where a result will be; of copies the arguments."""
        sizes = self.sizes
        over: dict[int, list[int]] = {}
        read: dict[int, int] = {}
        for number, kernel in enumerate(self.kernels):
            for array in kernel.reads:
                read[array] = min(read.get(array, kernel.rank), kernel.rank)
            for operand, result in self._in_place_candidates(number, kernel):
                if operand not in self.fixed:
                    over.setdefault(result, []).append(operand)

        def live_array(array: int) -> LiveArray:
            # From the kernel's first tick: in its own place, a result may not overlap its operand.
            begin = self.begin[array] // _TICKS * _TICKS
            return LiveArray(array, begin, self.end[array], sizes[array], over.get(array, ()))

        def before(argument: int) -> LiveArray:
            end = self._copies[argument].begin if argument in self._copies else self.end[argument]
            return LiveArray(argument, -1 - len(self._copies), end, sizes[argument])

        # XLA's order of allocations: replaced arguments by their first reader, then further results.
        arguments = sorted(self.replaced, key=lambda entry: read.get(entry, 0))
        results = sorted({*self.results} - {*self.inputs, *self.replaced.values()})
        allocations = [
            Allocation(sizes[argument], before(argument), live_array(self.replaced[argument])) for argument in arguments
        ]
        allocations += [Allocation(sizes[result], None, live_array(result)) for result in results]
        ranked = [
            (read[copy], LiveArray(copy, life.begin, life.end, sizes[copy])) for copy, life in self._copies.items()
        ]
        ranked += [(rank, live_array(array)) for array, rank in self.rank.items() if array not in self.own]
        return arrays_in_allocations(allocations, [entry for _, entry in sorted(ranked, key=itemgetter(0))])

    @cached_property
    def arrays(self) -> list[LiveRange]:
        """All arrays."""
        graph, number = self.timeline.graph, self.number
        roles = {
            number[value]: _ROLES[argument.role]
            for value, argument in zip(self.timeline.inputs, graph.inputs, strict=True)
        }
        saved = self._activations()
        return [
            LiveRange(
                array, begin, self.end[array], roles.get(array, Use.ACTIVATIONS if array in saved else Use.TRANSIENTS)
            )
            for array, begin in self.begin.items()
        ]

    def _activations(self) -> set[int]:
        """What is made of arguments and read by kernels that depend on the backward pass."""
        events = self.timeline.events
        late: set[int] = set()
        saved: set[int] = set()
        for kernel in self.kernels:
            operators = (events[root.event].operator for root in kernel.roots)
            backward = any(operator is not None and operator.backward for operator in operators)
            # Rearranging a stored activation early does not make the activation itself late.
            if not kernel.reads.isdisjoint(late) or (backward and not kernel.rearranges):
                late |= kernel.writes
                saved |= kernel.reads - late
        return saved

    @cached_property
    def own(self) -> frozenset[int]:
        """Arrays with a place of their own: arguments, results, and what takes an argument's place."""
        return frozenset([*self.inputs, *self.results])

    @cached_property
    def held(self) -> Set[int]:
        """Arrays with a buffer all the time; a result that replaces an argument is in the argument's, which is counted."""
        return {*self.results} - {*self.replaced.values()} | {*self.inputs}

    @cached_property
    def held_bytes(self) -> int:
        """Bytes of the arguments."""
        return sum(self.sizes[array] for array in {*self.inputs})

    def usage(self) -> _Usage:
        """Memory of one device from the start on."""
        shared = _shared([(span, num_bytes) for num_bytes, spans in self._groups for span in spans], self._height())
        return _Usage([-1, *shared.times], np.concatenate([self._held, self._held + shared.table]))

    def values_at(self, time: int) -> list[tuple[Value, int]]:
        """What is in memory at a tick, each with its bytes; arguments and results have their buffers all the time."""
        held = (entry.number for entry in self.arrays if entry.number in self.held)
        shared = (span.number for _, spans in self._groups for span in spans if span.begin <= time <= span.end)
        names = {**self._copied_values(), **self.names}
        return [(names[array], self.sizes[array]) for array in (*held, *shared) if array in names]

    @cached_property
    def names(self) -> dict[int, Value]:
        """The value that an array is: the first of those that are views of it."""
        named: dict[int, Value] = {}
        for value, array in self.number.items():
            named.setdefault(array, value)
        return named

    def _copied_values(self) -> dict[int, Value]:
        """What operators write in addition to results, as operands in another order: a value of theirs of the same size."""
        copied: dict[int, Value] = {}
        for root in (root for kernel in self.kernels for root in kernel.roots):
            event = self.timeline.events[root.event]
            for array, value in itertools.product(root.writes, (*event.reads, *event.writes)):
                if value in self.number and self.sizes[self.number[value]] == self.sizes[array]:
                    copied[array] = value
        return copied

    @cached_property
    def live_bytes(self) -> int:
        """The most live bytes at a time, in whole buffers: the peak is above that by the gaps between buffers."""
        return int(self._held.sum()) + least_height(self._buffers)

    @cached_property
    def _held(self) -> NDArray[np.int64]:
        """[1, `_USES`] bytes of arguments and results."""
        held = np.zeros((1, len(_USES)), np.int64)
        # What is handed out twice, or as it came in, is copied, unless it is in an argument's place.
        copies = Counter([*self.results, *self.inputs])
        copies.subtract([*copies, *(array for array in self.replaced.values() if array in self.held)])
        held[0, _USES.index(Use.TRANSIENTS)] = sum(self.sizes[array] * count for array, count in copies.items())
        for array in self.arrays:
            if array.number in self.held:
                held[0, _USES.index(array.use)] += self.sizes[array.number]
        return held

    def _height(self) -> int:
        """Bytes of the shared memory, gaps included."""
        offsets = zip(heap_offsets(self._buffers), self._buffers, strict=True)
        return max((start + buffer.num_bytes for start, buffer in offsets), default=0)

    @cached_property
    def _buffers(self) -> list[HeapBuffer]:
        return [
            HeapBuffer(tuple((span.begin // _TICKS * _TICKS, span.end) for span in spans), num_bytes)
            for num_bytes, spans in self._groups
        ]

    @cached_property
    def _groups(self) -> list[tuple[int, list[LiveRange]]]:
        """Bytes and arrays of each buffer of the shared memory; what is written over another array is in the same place."""
        sizes = self.sizes
        reusing = self._reusing()
        # Empty arrays need no place.
        groups = [(sizes[first], spans) for first, spans in self._chains(reusing).items() if sizes[first]]
        groups += ((sizes[result.number], [result]) for result in self._temporary_results())
        groups += (
            (sizes[copy], [replace(life, begin=0)]) for copy, life in self._copies.items() if copy not in reusing
        )
        # XLA's order of buffers decides between equal sizes.
        groups.sort(key=lambda group: self.rank.get(group[1][0].number, 0))
        return groups

    def _chains(self, reusing: Set[int]) -> dict[int, list[LiveRange]]:
        """The arrays of each buffer of the shared memory: those that are written over each other, by the first of them."""
        over = self._in_place(reusing)
        chains: dict[int, list[LiveRange]] = {}
        for array in self.arrays:
            if array.number not in self.own and array.number not in reusing:
                first = array.number
                while first in over and over[first] not in self.own:
                    first = over[first]
                chains.setdefault(first, []).append(array)
        return chains

    def _temporary_results(self) -> Iterator[LiveRange]:
        """Results that cannot be written where they belong: their kernel reads the argument that is there."""
        for argument, result in self.replaced.items():
            handed_on = result in self.inputs
            # The kernel that writes the new value still reads the old one, so the result waits in the heap and is copied.
            if not handed_on and argument not in self.copied and self.begin[result] <= self.end[argument]:
                yield LiveRange(result, self.begin[result], self.end[argument], Use.TRANSIENTS)

    def position(self, time: int) -> int:
        """The operator that runs at a tick; -1 for the start."""
        if time < 0:
            return -1
        kernel = self.kernels[min(time // _TICKS, len(self.kernels) - 1)]
        # The last root: a combined all-reduce belongs to its last operator.
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
        ready: dict[int, int] = {}
        counts = [0] * (len(self.kernels) + 1)
        for event, other_event in enumerate(self.timeline.events[:-1]):
            if other_event.operator is not None:
                operands = (ready.get(tensor, 0) for tensor, _ in other_event.reads)
                # A fused operator counts with the kernel that first computes it.
                time = first.get(event, max(operands, default=0))  # a view is there with its operand
                ready.update((tensor, time) for tensor, _ in other_event.writes)
                # What is inside of an island is no operator of the step.
                counts[time + 1 if event in first else time] += other_event.island is None
        totals = list(itertools.accumulate(counts))
        return [*totals[:-1], len(graph.operators)]
