"""Kernels: which instructions the compiler fuses, in which order kernels run, and what they read and write.

Problem: fused instructions write no arrays, so fusion decides what is live.

Method: as XLA for CPUs.

* A loop is fused into the loops that read it, into each of them if there are several. Its result is written if a kernel
  of another kind reads it or if it is a result of the program. An expensive loop is fused into one
  reader only, or written for all of them; so is one that reads several arrays of full size, if kernels are between it and a
  reader.
* A reduction absorbs the elementwise operator before it if it is the only reader.
* Kernels run as soon as the last array that they read exists (breadth first), even if their result is needed late:
  gathering a parameter, transposing an activation for the backward pass. Taking one result out of a tuple, or viewing
  what a collective reads or writes in another shape, does no work but takes a turn in the order. A loop is one kernel in this
  order, and nothing is fused into it or out of it.
* What passes a barrier is written, and what reads it runs when everything that passes this barrier exists.
* An argument that a result replaces is copied at the start, unless all its other readers must run before the kernel
  that writes the result.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from importlib import metadata

from sporax.planner.memory import backend
from sporax.planner.memory.step_events import Timeline
from sporax.planner.memory.xla_cpu.instructions import Instructions
from sporax.planner.rules.loop_rules import SLICE, STACK


@dataclass(frozen=True, slots=True)
class XlaCpu:
    """XLA's compiler for CPUs.

    Attributes:
        native: dtypes of half precision that its matrix products read as they are.
    """

    native: frozenset[str] = frozenset()

    def compiled(self, timeline: Timeline) -> backend.KernelSchedule:
        """Instructions, fused into kernels."""
        instructions = Instructions(timeline, self.native)
        number = instructions.number
        results = [*backend.results_of(timeline, number), *backend.carried_by(instructions.instructions)]
        kernels = kernels_of(instructions, results)
        copied = copied_arguments(kernels, backend.replaced_by(timeline, number))
        sizes = [array.num_bytes for array in instructions.arrays]
        return backend.KernelSchedule(sizes, number, kernels, frozenset(instructions.rigid), copied, early_stacks=True)


def of_jaxlib(version: str) -> XlaCpu:
    """The compiler that this version of jaxlib has, which is the one that predictions for CPUs are about."""
    numbers = tuple(map(int, re.findall(r"\d+", version)[:3]))
    return XlaCpu(frozenset(["bfloat16"]) if numbers >= (0, 11, 2) else frozenset())


XLA_CPU = of_jaxlib(metadata.version("jaxlib"))
"""The compiler that is installed."""


def kernels_of(instructions: Instructions, results: Sequence[int]) -> list[backend.Kernel]:
    """The kernels of a program, in the order in which they run.

    Args:
        results: arrays that are handed out.
    """
    fusion = _Fusion(instructions, frozenset(results))
    kernels = fusion.run()
    rank = fusion.depth_first(results)
    for kernel in kernels:
        # A kernel of several roots runs with its earliest one.
        kernel.rank = min(rank[root.writes[0]] for root in kernel.roots)
    return backend.in_order(sorted(kernels, key=lambda kernel: kernel.rank), partial(_waits, instructions))


class _Fusion:
    def __init__(self, instructions: Instructions, results: frozenset[int]) -> None:
        self.all = instructions
        self.instructions = instructions.instructions
        self.results = results
        self.maker = {
            array: number for number, instruction in enumerate(self.instructions) for array in instruction.writes
        }
        self.readers: dict[int, list[int]] = {}
        # Once per reader: an instruction that reads an array twice is one reader.
        for number, instruction in enumerate(self.instructions):
            for array in dict.fromkeys(instruction.reads):
                self.readers.setdefault(array, []).append(number)
        self.fused_into: list[frozenset[int]] = [frozenset()] * len(self.instructions)
        """For every instruction those in whose kernels it is computed; none if its result is not needed."""
        self.written: set[int] = set()
        self.absorbed: set[int] = set()
        self.followers: dict[int, int] = {}
        """For instructions that are still to be looked at, the set of those that need their results, as bits."""

    def run(self) -> list[backend.Kernel]:
        # From the results backwards: what an instruction is fused into depends on its readers.
        for number in reversed(range(len(self.instructions))):
            self.fused_into[number] = self._fusion_targets(number, self.instructions[number])
            self._follow(number)
        return self._kernels()

    def _fusion_targets(self, number: int, instruction: backend.Instruction) -> frozenset[int]:
        readers = [
            # Readers without a kernel are dead code and count for nothing.
            reader
            for array in instruction.writes
            for reader in self.readers.get(array, ())
            if self.fused_into[reader]
        ]
        handed_out = not self.results.isdisjoint(instruction.writes)
        if not readers and not handed_out:
            return frozenset()
        # Kernels and reductions are never fused into their readers here; and nothing is fused through a barrier or into a loop.
        is_apart = not self.all.barred.isdisjoint(instruction.writes) or any(
            self.instructions[reader].loops != instruction.loops for reader in readers
        )
        if instruction.kind is not backend.Kind.LOOP or is_apart:
            self.written.add(number)
            return frozenset([number])
        # A reduction absorbs one simple operator if no other reader needs its result.
        reader = self.instructions[readers[0]] if len(readers) == 1 and not handed_out else None
        if reader is not None and reader.kind is backend.Kind.REDUCTION and instruction.simple:
            self.absorbed.add(number)
            return self.fused_into[readers[0]]
        return self._loop_targets(number, instruction, readers, handed_out)

    def _loop_targets(
        self, number: int, instruction: backend.Instruction, readers: Sequence[int], handed_out: bool
    ) -> frozenset[int]:
        """The kernels that compute a loop."""
        alone = frozenset([number])
        # What a reduction absorbed is no place for a further loop: XLA fuses one operator only.
        fusible = [
            self.instructions[reader].kind is backend.Kind.LOOP and reader not in self.absorbed for reader in readers
        ]
        fused_into = frozenset[int]().union(
            *(self.fused_into[reader] for reader, can_fuse in zip(readers, fusible, strict=True) if can_fuse)
        )
        # Written for the kernels that cannot compute it; loops may still compute it again if that costs little.
        if handed_out or not all(fusible):
            self.written.add(number)
            return alone if instruction.costly or not self._is_repeatable(instruction) else fused_into | alone
        if len(fused_into) > 1 and self._is_written_once(number, instruction, readers):
            self.written.add(number)
            return alone
        return fused_into

    def _is_written_once(self, number: int, instruction: backend.Instruction, readers: Sequence[int]) -> bool:
        """Whether a loop that several kernels could compute is written for all of them."""
        if instruction.costly:
            return True
        return not self._is_repeatable(instruction) and any(self._is_between(number, reader) for reader in readers)

    def _is_repeatable(self, instruction: backend.Instruction) -> bool:
        """Whether computing it in several kernels reads no more than reading its result would."""
        size = max(self._num_elements(write) for write in instruction.writes)
        # Arrays as large as the result: smaller ones cost little to read again.
        full = [read for read in dict.fromkeys(instruction.reads) if self._num_elements(read) >= size]
        return not instruction.joins and sum(not self._is_spread(entry) for entry in full) <= 1

    def _num_elements(self, array: int) -> int:
        one = self.all.arrays[array]
        return one.num_bytes // one.itemsize if one.itemsize else 0  # in host memory

    def _is_spread(self, array: int) -> bool:
        return array in self.maker and self.instructions[self.maker[array]].spreads

    def _is_between(self, number: int, reader: int) -> bool:
        """Whether a kernel between an instruction and its reader, computed in one kernel, would be read by that kernel.

        Then its operands would be there for longer, so its result is written (`CanFuseOnAllPaths` in XLA's fusion).
        """
        seen, ahead = {reader}, [reader]
        while ahead:
            consumer = ahead.pop()
            for operand in self._makers(consumer):
                if operand in seen or not self.followers[number] >> operand & 1:
                    continue
                if self.fused_into[operand].isdisjoint(self.fused_into[consumer]):
                    return True
                seen.add(operand)
                ahead.append(operand)
        return False

    def _makers(self, number: int) -> list[int]:
        """The instructions that write what one reads or waits for."""
        instruction = self.instructions[number]
        return [self.maker[array] for array in (*instruction.reads, *instruction.after) if array in self.maker]

    def _follow(self, number: int) -> None:
        """Note what follows an instruction, and forget what no earlier one needs."""
        self.followers.setdefault(number, 0)
        makers = self._makers(number)
        for maker in makers:
            self.followers[maker] = self.followers.get(maker, 0) | self.followers[number] | 1 << number
        del self.followers[number]

    def depth_first(self, results: Sequence[int]) -> dict[int, int]:
        """For every array its place when what each result needs is listed one after another: where compilers keep it."""
        rank: dict[int, int] = {}
        for result in results:
            # An explicit stack: chains are as long as the network is deep.
            open_ends = [result]
            while open_ends:
                array = open_ends[-1]
                instruction = self.instructions[self.maker[array]] if array in self.maker else None
                reads = self.all.ends.get(array, instruction.reads) if instruction else ()
                missing = [read for read in reads if read not in rank]
                if missing:
                    open_ends.append(missing[0])
                else:
                    open_ends.pop()
                    for entry in instruction.writes if instruction else (array,):
                        rank.setdefault(entry, len(rank))
        return rank

    def _kernels(self) -> list[backend.Kernel]:
        """All kernels by their roots; the reductions of one group share one."""
        kernels = {number: backend.Kernel([self.instructions[number]]) for number in sorted(self.written)}
        # Backwards: what reads an array is known before the instruction that makes it.
        for number, instruction in reversed([*enumerate(self.instructions)]):
            for target in self.fused_into[number]:
                kernel = kernels[target]
                kernel.events.add(instruction.event)
                kernel.after |= instruction.after
                kernel.counts |= instruction.edge in (SLICE, STACK)
                if not (instruction.elementwise or instruction.in_place) or instruction.writes[0] in kernel.moved:
                    kernel.moved.update(instruction.reads)
                for array in instruction.reads:
                    maker = self.maker.get(array)
                    # Operands computed in the same kernel are never in memory.
                    if maker is None or target == maker or target not in self.fused_into[maker]:
                        kernel.reads.add(array)
        for number, kernel in kernels.items():
            kernel.writes.update(self.instructions[number].writes)
        return list(self._combined(self._without_views(kernels)))

    def _without_views(self, kernels: dict[int, backend.Kernel]) -> dict[int, backend.Kernel]:
        """Views of arrays that are written out are those arrays."""
        same = {}
        for kernel in kernels.values():
            (root,) = kernel.roots
            # A kernel that only changes the shape of a written array does nothing.
            if root.view and kernel.reads == {*root.reads} and root.writes[0] not in self.results:
                same[root.writes[0]] = root.reads[0]
        if not same:
            return kernels
        left = {number: kernel for number, kernel in kernels.items() if kernel.roots[0].writes[0] not in same}
        for kernel in left.values():
            kernel.reads = {same.get(array, array) for array in kernel.reads}
            kernel.after = {same.get(array, array) for array in kernel.after}
        return left

    def _combined(self, kernels: dict[int, backend.Kernel]) -> Iterator[backend.Kernel]:
        """Kernels of which reductions that are merged are one."""
        groups = backend.combined_all_reduces(self.instructions) if self.all.timeline.merging else []
        group_of = {number: group[0] for group in groups if len(group) > 1 for number in group}
        combined: dict[int, backend.Kernel] = {}
        for number, kernel in kernels.items():
            group = group_of.get(number)
            if group is None:
                yield kernel
            elif group not in combined:
                combined[group] = kernel
                yield kernel
            else:
                combined[group].combine(kernel)


def _waits(instructions: Instructions, kernels: Sequence[backend.Kernel]) -> list[set[int]]:
    """For every kernel the numbers of those it waits for; after the kernels come steps that do nothing but take a turn."""
    maker = {array: number for number, kernel in enumerate(kernels) for array in kernel.writes}
    waits: list[set[int]] = [set() for _ in kernels]
    steps: dict[object, int] = {}

    def after(before: Set[int], *key: object) -> int:
        if key not in steps:
            steps[key] = len(waits)
            waits.append({*before})
        return steps[key]

    # Steps are shared: the second reader of a tuple's element does not take it out again.
    for number, kernel in enumerate(kernels):
        for array in sorted(kernel.reads & maker.keys()):
            before = last = maker[array]
            if kernels[before].tuple_result:
                last = after({last}, array, "taken out")
            if _sees_another_shape(kernel, array, kernels[before], instructions.rigid):
                last = after({last}, array, "in another shape")
            if before != number:
                waits[number].add(last)
        waits[number].update(maker[array] for array in kernel.after & maker.keys() if maker[array] != number)
        # The number of a round is copied first.
        if kernel.counts:
            waits[number].add(after(set(), kernel.loops))
    return waits


def _sees_another_shape(kernel: backend.Kernel, array: int, maker: backend.Kernel, rigid: Container[int]) -> bool:
    """Whether a kernel reads an array in another shape than its maker writes it in, and neither is a loop that does that."""
    root, writer = kernel.roots[0], maker.roots[0]
    if root.sends:
        # A collective reads a view, or what a reduction wrote, in any shape.
        fusible = writer.view or writer.kind is backend.Kind.REDUCTION
        return root.writes[0] in rigid and array not in rigid and not fusible
    return array in rigid and root.kind is not backend.Kind.LOOP


def copied_arguments(kernels: Sequence[backend.Kernel], replaced: Mapping[int, int]) -> dict[int, int]:
    """The arguments that are copied, since a result that takes their place might come before a reader; and that result.

    Args:
        kernels: in order.
        replaced: the result for every argument that is replaced.
    """
    bits: dict[int, int] = {}
    readers = dict.fromkeys(replaced, 0)
    behind: dict[int, int] = {}
    for number, kernel in enumerate(kernels):
        # Bits are given only to kernels that read replaced arguments, so the numbers stay short.
        waits = 0
        for array in kernel.reads:
            waits |= behind.get(array, 0)
            if array in replaced and replaced[array] not in kernel.writes:
                readers[array] |= bits.setdefault(number, 1 << len(bits))
        behind.update(dict.fromkeys(kernel.writes, waits | bits.get(number, 0)))
    # Copied if some reader need not run before the result's kernel; -1 has all bits, for results that no kernel makes.
    return {array: result for array, result in replaced.items() if readers[array] & ~behind.get(result, -1)}
