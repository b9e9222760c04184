"""What a compiler makes of a step, as far as memory depends on it: the interface between `peak` and compilers.

Problem: which arrays are in memory depends on what the compiler fuses, in which order kernels run, and what it copies.

Method: a `Backend` turns the events of a step into a `KernelSchedule`; `peak` knows nothing else of a compiler. It takes the
backend of the hardware (`peak.backend_of`): `xla_cpu` for CPUs, `plain` for all other devices.

Backends share the order of kernels (`in_order`) and the combiner of all-reduces (`combined_all_reduces`). A combined one starts
when its last operand exists, so all operands, and then all results, are live together: in data-parallel training twice the
gradients. As in XLA, reductions over the same devices that do not depend on each other become one; a reduction that is one of
several moves of a tensor is combined as well, so the gathers after it can all start at the same time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Protocol

from sporax.ir.graph import LITERAL, MARK
from sporax.ir.operation import with_newer
from sporax.planner.memory.step_events import Timeline, Value
from sporax.planner.rules.loop_rules import ARGUMENT, CARRY, ENTER

BARRIER = "optimization_barrier"
VIEWS = frozenset(
    ["reshape", "squeeze", "expand_dims", BARRIER, "stop_gradient", "name", "pvary", MARK, ENTER, ARGUMENT]
)
"""Operators whose results are their operands under another number or in another shape."""

COSTLY = with_newer(
    (
        "acos acosh asin asinh atan atan2 atanh cos cosh sin sinh tan tanh erf erf_inv erfc exp exp2 expm1 log log1p logistic "
        "pow sqrt cbrt rsqrt div rem gather"
    ).split()
)
"""Operators that compilers do not compute twice, once for each reader."""


class Kind(Enum):
    """What compilers may do with an instruction."""

    LOOP = "loop"
    """Element by element; fused into the loops that read it."""
    REDUCTION = "reduction"
    """A kernel of its own, into which one elementwise operator before it is fused."""
    KERNEL = "kernel"
    """A kernel of its own."""
    FUSED = "fused"
    """A kernel of its own that computes the loops which it reads."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One step of a compiled program.

    Attributes:
        kind: what compilers may do with it.
        reads, writes: numbers of arrays.
        event: number of the event that it is of.
        elementwise: whether it computes every element from the elements at the same place.
        simple: whether a reduction takes it in.
        costly: whether computing it twice is more expensive than keeping it.
        spreads: whether it is made from less than it writes.
        joins: whether it puts operands side by side.
        in_place: whether it writes over its first operand.
        sends: whether devices communicate.
        combines: equal for reductions that may become one all-reduce; () for everything else.
        tuple_result: whether its result is a tuple, which is taken apart before its elements are read.
        view: whether it only reads an array in another shape: nothing is done for it if that array is written out.
        after: arrays that exist before it runs although it does not read them: what it reads passed a barrier with them.
        loops: those that it runs in, outermost first (`planner.loops.inline.loops_around`).
        edge: the name of the edge of a loop that it is (`planner.rules.loop_rules`).
    """

    kind: Kind
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    event: int
    elementwise: bool = False
    simple: bool = False
    costly: bool = False
    spreads: bool = False
    joins: bool = False
    in_place: bool = False
    sends: bool = False
    combines: tuple[object, ...] = ()
    view: bool = False
    tuple_result: bool = False
    after: frozenset[int] = frozenset()
    loops: tuple[object, ...] = ()
    edge: str = ""

    @property
    def outdated(self) -> Set[int]:
        """The old values of a carry: the next round needs the new one alone."""
        return {*self.reads[:-1]} - {*self.reads[-1:]} if self.edge == CARRY else frozenset()


@dataclass(slots=True)
class Kernel:
    """What runs at once: it reads arrays, writes others, and holds nothing in between.

    Attributes:
        roots: the instructions whose arrays it writes; several for a combined all-reduce.
        reads, writes: numbers of arrays.
        events: numbers of the timeline's events that are computed here, written or not.
        rank: its position when what each result needs is listed one after another: decides between buffers of equal size.
        after: arrays that exist before it runs although it does not read them.
        moved: arrays that it reads at other places than it writes what is made of them.
        counts: whether it needs the number of a round.
    """

    roots: list[Instruction]
    reads: set[int] = field(default_factory=set)
    writes: set[int] = field(default_factory=set)
    events: set[int] = field(default_factory=set)
    rank: int = 0
    after: set[int] = field(default_factory=set)
    moved: set[int] = field(default_factory=set)
    counts: bool = False

    @property
    def tuple_result(self) -> bool:
        """Whether it has several results, as a tuple that is taken apart before its elements are read."""
        return len(self.roots) > 1 or self.roots[0].tuple_result

    @property
    def loops(self) -> tuple[object, ...]:
        """Those that it runs in, outermost first."""
        return self.roots[0].loops

    @property
    def overwrites(self) -> bool:
        """Whether its only result may be written over an operand of the same size."""
        return len(self.roots) == 1 and (self.roots[0].elementwise or self.roots[0].in_place)

    @property
    def rearranges(self) -> bool:
        """Whether it only brings elements into another order."""
        return all(root.kind is Kind.LOOP and not root.elementwise for root in self.roots)

    def combine(self, other: Kernel) -> None:
        """Run another one at the same time: both wait for all operands and write all results at once."""
        self.roots += other.roots
        self.reads |= other.reads
        self.writes |= other.writes
        self.events |= other.events
        self.after |= other.after


@dataclass(frozen=True, slots=True)
class KernelSchedule:
    """The kernels of a step, and the arrays between them.

    Attributes:
        sizes: bytes of every array on one device, by its number.
        number: the array of each value of the timeline; views share one.
        kernels: in the order in which they run; what nothing needs is left out.
        fixed: arrays that nothing is written over.
        copied: arguments that are copied at the start, since the result that replaces them may come before a reader; and
            that result.
        early_stacks: whether what loops stack is there, as zeros, from the start of the program on.
    """

    sizes: Sequence[int]
    number: Mapping[Value, int]
    kernels: Sequence[Kernel]
    fixed: frozenset[int] = frozenset()
    copied: Mapping[int, int] = field(default_factory=dict)
    early_stacks: bool = False


class Backend(Protocol):
    """A compiler."""

    def compiled(self, timeline: Timeline) -> KernelSchedule:
        """What it makes of a step on one device."""


def results_of(timeline: Timeline, number: Mapping[Value, int]) -> list[int]:
    """The arrays that a step hands out."""
    return [number[value] for value in timeline.outputs if value[0] != LITERAL]


def carried_by(instructions: Sequence[Instruction]) -> list[int]:
    """The arrays that loops carry on: the next round may need them, be the last one read or not."""
    return [entry.writes[0] for entry in instructions if entry.edge == CARRY]


def replaced_by(timeline: Timeline, number: Mapping[Value, int]) -> dict[int, int]:
    """For every argument whose buffer a result takes, that result."""
    return {
        number[timeline.inputs[argument]]: number[timeline.outputs[result]]
        for result, argument in timeline.graph.aliases
        if timeline.outputs[result][0] != LITERAL
    }


def breadth_first(waits: Mapping[int, Set[int]]) -> list[int]:
    """Numbers in the order in which nothing is left that they wait for."""
    readers: dict[int, list[int]] = {number: [] for number in waits}
    for number, makers in waits.items():
        for maker in makers:
            readers[maker].append(number)
    missing = {number: len(makers) for number, makers in waits.items()}
    ready = deque(number for number, count in missing.items() if count == 0)
    order = []
    while ready:
        number = ready.popleft()
        order.append(number)
        for reader in readers[number]:
            missing[reader] -= 1
            if missing[reader] == 0:
                ready.append(reader)
    return order


def _by_loops(waits: Mapping[int, Set[int]], loops: Mapping[int, tuple[object, ...]], depth: int = 0) -> Iterator[int]:
    """Numbers breadth first; the rounds of a loop are one step, which is in the place of what is in it.

    Args:
        waits: for every number those it waits for.
        loops: that each of them is in, outermost first.
        depth: the number of loops that all of them are in.
    """
    # A loop has the number of the first that is in it.
    firsts: dict[object, int] = {}
    step = {
        number: firsts.setdefault(loops[number][depth], number) if len(loops[number]) > depth else number
        for number in waits
    }
    inside: dict[int, dict[int, Set[int]]] = {}
    steps: dict[int, set[int]] = {}
    for number, makers in waits.items():
        steps.setdefault(step[number], set()).update(step[maker] for maker in makers if step[maker] != step[number])
        inside.setdefault(step[number], {})[number] = {maker for maker in makers if step[maker] == step[number]}
    for first in breadth_first(steps):
        if len(loops[first]) > depth:
            yield from _by_loops(inside[first], loops, depth + 1)
        else:
            yield first


def _waits(kernels: Sequence[Kernel]) -> list[set[int]]:
    """For every kernel the numbers of those it waits for."""
    maker = {array: number for number, kernel in enumerate(kernels) for array in kernel.writes}
    needs = (maker.keys() & (kernel.reads | kernel.after) for kernel in kernels)
    return [{maker[array] for array in arrays} - {number} for number, arrays in enumerate(needs)]


def in_order(kernels: Sequence[Kernel], waits: Callable[[Sequence[Kernel]], list[set[int]]] = _waits) -> list[Kernel]:
    """Kernels as soon as they can run: what waits for nothing, then what waited for the first of these, and so on.

    `waits` may have entries behind the kernels, steps that do nothing but take a turn. A loop takes one turn.
    """
    order = _in_order(kernels, waits(kernels))
    # Without the barriers the combined reductions can be ordered.
    if len(order) < len(kernels):  # reductions that were combined wait for each other through a barrier
        order = _in_order(kernels, waits([replace(kernel, after=set()) for kernel in kernels]))
    return order


def _in_order(kernels: Sequence[Kernel], waits: Sequence[set[int]]) -> list[Kernel]:
    around = {number: kernel.loops for number, kernel in enumerate(kernels)}
    # A step is in the loops of what waits for it, and steps wait for earlier ones.
    for number in (*range(len(kernels)), *reversed(range(len(kernels), len(waits)))):
        for maker in waits[number]:
            around.setdefault(maker, around.get(number, ()))
    steps = dict(enumerate(waits))
    numbers = _by_loops(steps, around) if any(around.values()) else breadth_first(steps)
    return [kernels[number] for number in numbers if number < len(kernels)]


_MOST_COMBINED = 256
"""Most arrays in one all-reduce, as in XLA's combiner."""


@dataclass(slots=True)
class _CombinedGroup:
    """Reductions that become one.

    Attributes:
        members: numbers of their instructions.
        mask: the same as bits.
        waits: what any of them waits for, as bits.
    """

    members: list[int] = field(default_factory=list)
    mask: int = 0
    waits: int = 0


def combined_all_reduces(instructions: Sequence[Instruction]) -> list[list[int]]:
    """Numbers of the instructions that become one all-reduce; those that stay alone are groups of one.

    Args:
        instructions: in an order in which they can run.
    """
    groups: list[_CombinedGroup] = []
    by_key: dict[tuple[object, ...], list[_CombinedGroup]] = {}
    for bit, (number, before) in enumerate(_array_waits(instructions).items()):
        # Integers as bit sets: a test for a circle is then one operation.
        waits = _with_groups(before, groups)
        # The rounds of a loop are a program of their own.
        key = (*instructions[number].combines, instructions[number].loops)
        candidates = by_key.setdefault(key, [])
        group = next(
            (
                candidate
                for candidate in candidates
                # If the new reduction waited for a member, and the members for all of the group, the group could never start.
                if not waits & candidate.mask and len(candidate.members) < _MOST_COMBINED
            ),
            None,
        )
        if group is None:
            group = _CombinedGroup()
            groups.append(group)
            candidates.append(group)
        group.members.append(number)
        group.mask |= 1 << bit
        group.waits |= before
    return [group.members for group in groups]


def _array_waits(instructions: Sequence[Instruction]) -> dict[int, int]:
    """What every reduction waits for: other reductions, as bits in the order of this list."""
    waits_of: dict[int, int] = {}
    behind: dict[int, int] = {}
    # In an order in which they can run, what a reduction waits for has its bits already.
    for number, instruction in enumerate(instructions):
        waits = 0
        # What passed a barrier with an operand counts as well: the compiler's graph has the barrier between them.
        for array in (*instruction.reads, *instruction.after):
            waits |= behind.get(array, 0)
        own = 0
        if instruction.combines:
            own = 1 << len(waits_of)
            waits_of[number] = waits
        behind.update(dict.fromkeys(instruction.writes, waits | own))
    return waits_of


def _with_groups(waits: int, groups: Iterable[_CombinedGroup]) -> int:
    """All that a reduction waits for which waits for `waits`: one of a group exists only when all of it does."""
    # Groups of one add nothing: their only member's bits are in `waits` already.
    left = [group for group in groups if len(group.members) > 1]
    while True:
        ready = [entry for entry in left if waits & entry.mask]
        # One group may pull in another one that it waits for, hence until nothing is added.
        if not ready:
            return waits
        left = [entry for entry in left if not waits & entry.mask]
        for entry in ready:
            waits |= entry.mask | entry.waits
