"""What runs: pieces that are melted into kernels, the order in which these run, and what they read and write.

As XLA does it for CPUs:

* A loop is melted into the loops that read it, into each of them if there are several. It is written out if a kernel of
  another kind reads it or it is a result. What is costly, or reads several arrays of full size, is melted into one reader
  only, or written out for all.
* A reduction takes in the elementwise operator before it, if nobody else reads that.
* Kernels run in the order in which the last of what they read is there: breadth first. So everything that can run early
  does, even if it is wanted late: gathering a parameter, rearranging an activation for the backward pass. Taking one result out
  of several, and looking at what a collective reads or leaves in another shape, is no work, but takes a turn.
* An argument that a result replaces is copied at the start, unless all its other readers must have run before the kernel that
  writes the result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sporax.planner.memory.all_reduce_combiner import merged
from sporax.planner.memory.instructions import Kind, Piece, Pieces


@dataclass(slots=True)
class Kernel:
    """Something that runs at once.

    Attributes:
        roots: the pieces whose arrays it writes; several for a combined all-reduce.
        reads, writes: numbers of arrays.
        events: of the pieces that are computed here, whether written or not.
        rank: its place when what each result needs is listed one after another.
    """

    roots: list[Piece]
    reads: set[int] = field(default_factory=set)
    writes: set[int] = field(default_factory=set)
    events: set[int] = field(default_factory=set)
    rank: int = 0

    @property
    def in_parts(self) -> bool:
        """Whether it has several results, which are taken apart before anybody reads them."""
        return len(self.roots) > 1 or self.roots[0].in_parts


def kernels_of(pieces: Pieces, results: Sequence[int]) -> list[Kernel]:
    """The kernels of a program, in the order in which they run.

    Args:
        pieces: the program.
        results: arrays that are handed out.
    """
    melting = _Melting(pieces, frozenset(results))
    found = melting.run()
    rank = melting.depth_first(results)
    for kernel in found:
        kernel.rank = min(rank[root.writes[0]] for root in kernel.roots)
    return _in_order(sorted(found, key=lambda kernel: kernel.rank), pieces.rigid)


class _Melting:
    def __init__(self, pieces: Pieces, results: frozenset[int]) -> None:
        self.all = pieces
        self.pieces = pieces.pieces
        self.results = results
        self.maker = {array: number for number, piece in enumerate(self.pieces) for array in piece.writes}
        self.readers: dict[int, list[int]] = {}
        for number, piece in enumerate(self.pieces):
            for array in dict.fromkeys(piece.reads):
                self.readers.setdefault(array, []).append(number)
        self.homes: list[frozenset[int]] = [frozenset()] * len(self.pieces)
        """For every piece the pieces in whose kernels it is computed; none if nobody needs it."""
        self.written: set[int] = set()
        self.absorbed: set[int] = set()

    def run(self) -> list[Kernel]:
        for number in reversed(range(len(self.pieces))):
            self.homes[number] = self._home(number, self.pieces[number])
        return self._kernels()

    def _home(self, number: int, piece: Piece) -> frozenset[int]:
        readers = [reader for array in piece.writes for reader in self.readers.get(array, ()) if self.homes[reader]]
        handed_out = not self.results.isdisjoint(piece.writes)
        if not readers and not handed_out:
            return frozenset()
        alone = frozenset([number])
        if piece.kind is not Kind.LOOP:
            self.written.add(number)
            return alone
        if len(readers) == 1 and not handed_out and piece.simple and self._takes_in(readers[0]):
            self.absorbed.add(number)
            return self.homes[readers[0]]
        melts = [self.pieces[each].kind is Kind.LOOP and each not in self.absorbed for each in readers]
        homes = frozenset[int]().union(*(self.homes[each] for each, melt in zip(readers, melts, strict=True) if melt))
        if handed_out or not all(melts):
            self.written.add(number)
            return alone if piece.costly or not self._is_repeatable(piece) else homes | alone
        if len(homes) > 1 and (piece.costly or (not self._is_repeatable(piece) and self._one_feeds_another(homes))):
            self.written.add(number)
            return alone
        return homes

    def _takes_in(self, reader: int) -> bool:
        return self.pieces[reader].kind is Kind.REDUCTION

    def _is_repeatable(self, piece: Piece) -> bool:
        """Whether computing it in several kernels reads no more than reading its result would."""
        size = max(self._num_elements(each) for each in piece.writes)
        full = [each for each in dict.fromkeys(piece.reads) if self._num_elements(each) >= size]
        return not piece.joins and sum(not self._is_spread(each) for each in full) <= 1

    def _num_elements(self, array: int) -> int:
        found = self.all.arrays[array]
        return found.num_bytes // self.all.timeline.graph.tensors[found.tensor].itemsize

    def _is_spread(self, array: int) -> bool:
        return array in self.maker and self.pieces[self.maker[array]].spreads

    def _one_feeds_another(self, homes: frozenset[int]) -> bool:
        """Whether a kernel in which something is computed reads the result of another one."""
        makers = {home: {self.maker.get(array, -1) for array in self.pieces[home].reads} & homes for home in homes}
        return any(home not in self.homes[maker] for home, found in makers.items() for maker in found)

    def depth_first(self, results: Sequence[int]) -> dict[int, int]:
        """For every array its place when what each result needs is listed one after another: where compilers keep it."""
        rank: dict[int, int] = {}
        for result in results:
            open_ends = [result]
            while open_ends:
                array = open_ends[-1]
                piece = self.pieces[self.maker[array]] if array in self.maker else None
                missing = [each for each in piece.reads if each not in rank] if piece else []
                if missing:
                    open_ends.append(missing[0])
                else:
                    open_ends.pop()
                    for each in piece.writes if piece else (array,):
                        rank.setdefault(each, len(rank))
        return rank

    def _kernels(self) -> list[Kernel]:
        """All kernels by their roots; the reductions of one group share one."""
        found = {number: Kernel([self.pieces[number]]) for number in sorted(self.written)}
        for number, piece in enumerate(self.pieces):
            for home in self.homes[number]:
                kernel = found[home]
                kernel.events.add(piece.event)
                for array in piece.reads:
                    maker = self.maker.get(array)
                    if maker is None or home == maker or home not in self.homes[maker]:
                        kernel.reads.add(array)
        for number, kernel in found.items():
            kernel.writes.update(self.pieces[number].writes)
        return list(self._combined(self._without_views(found)))

    def _without_views(self, found: dict[int, Kernel]) -> dict[int, Kernel]:
        """Views of arrays that are written out are those arrays."""
        same = {}
        for kernel in found.values():
            (root,) = kernel.roots
            if root.view and kernel.reads == {*root.reads} and root.writes[0] not in self.results:
                same[root.writes[0]] = root.reads[0]
        if not same:
            return found
        left = {number: kernel for number, kernel in found.items() if kernel.roots[0].writes[0] not in same}
        for kernel in left.values():
            kernel.reads = {same.get(array, array) for array in kernel.reads}
        return left

    def _combined(self, found: dict[int, Kernel]) -> Iterator[Kernel]:
        """Kernels of which reductions that are merged are one."""
        groups = merged(self.pieces) if self.all.timeline.merging else []
        group_of = {number: group[0] for group in groups if len(group) > 1 for number in group}
        combined: dict[int, Kernel] = {}
        for number, kernel in found.items():
            group = group_of.get(number)
            if group is None:
                yield kernel
            elif group not in combined:
                combined[group] = kernel
                yield kernel
            else:
                whole = combined[group]
                whole.roots += kernel.roots
                whole.reads |= kernel.reads
                whole.writes |= kernel.writes
                whole.events |= kernel.events


def _in_order(kernels: Sequence[Kernel], rigid: Container[int]) -> list[Kernel]:
    """Breadth first: first what waits for nothing, then what waited for the first of these, and so on."""
    waits = _waits(kernels, rigid)
    readers: list[list[int]] = [[] for _ in waits]
    for number, makers in enumerate(waits):
        for each in makers:
            readers[each].append(number)
    missing = [len(makers) for makers in waits]
    ready = deque(number for number, count in enumerate(missing) if count == 0)
    order = []
    while ready:
        number = ready.popleft()
        if number < len(kernels):
            order.append(kernels[number])
        for reader in readers[number]:
            missing[reader] -= 1
            if missing[reader] == 0:
                ready.append(reader)
    return order


def _waits(kernels: Sequence[Kernel], rigid: Container[int]) -> list[set[int]]:
    """For every kernel the numbers of those it waits for; after the kernels come steps that do nothing but take a turn."""
    maker = {array: number for number, kernel in enumerate(kernels) for array in kernel.writes}
    waits: list[set[int]] = [set() for _ in kernels]
    steps: dict[tuple[int, str], int] = {}

    def after(number: int, array: int, what: str) -> int:
        if (array, what) not in steps:
            steps[array, what] = len(waits)
            waits.append({number})
        return steps[array, what]

    for number, kernel in enumerate(kernels):
        for array in sorted(kernel.reads & maker.keys()):
            before = last = maker[array]
            if kernels[before].in_parts:
                last = after(last, array, "taken out")
            if _sees_another_shape(kernel, array, kernels[before], rigid):
                last = after(last, array, "in another shape")
            if before != number:
                waits[number].add(last)
    return waits


def _sees_another_shape(kernel: Kernel, array: int, maker: Kernel, rigid: Container[int]) -> bool:
    """Whether a kernel reads an array in another shape than its maker writes it in, and neither is a loop that does that."""
    root, made = kernel.roots[0], maker.roots[0]
    if root.sends:
        melts = made.view or made.kind is Kind.REDUCTION
        return root.writes[0] in rigid and array not in rigid and not melts
    return array in rigid and root.kind is not Kind.LOOP


def copied_arguments(kernels: Sequence[Kernel], replaced: Mapping[int, int]) -> dict[int, int]:
    """The arguments that are copied, since a result that takes their place might come before a reader; and that result.

    Args:
        kernels: in order.
        replaced: the result for every argument that is replaced.
    """
    bits: dict[int, int] = {}
    readers = dict.fromkeys(replaced, 0)
    behind: dict[int, int] = {}
    for number, kernel in enumerate(kernels):
        waits = 0
        for array in kernel.reads:
            waits |= behind.get(array, 0)
            if array in replaced and replaced[array] not in kernel.writes:
                readers[array] |= bits.setdefault(number, 1 << len(bits))
        behind.update(dict.fromkeys(kernel.writes, waits | bits.get(number, 0)))
    return {array: result for array, result in replaced.items() if readers[array] & ~behind.get(result, -1)}
