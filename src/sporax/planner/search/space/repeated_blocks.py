"""Repeated blocks of decisions: the layers of a deep network, found without knowing what a layer is.

Problem: use the repetition of layers without annotations.

Method: in a network of sixty layers many kinds of decisions occur sixty times. Pick one such kind; its members are the
centres of blocks, and every other decision belongs to the nearest centre, counted in edges. Consecutive blocks with the
same decisions and the same edges, to each other and to their surroundings, are equal. This is checked edge by edge, so
a poor choice of centres costs time and never correctness.

Decisions at one position of the blocks are then tied: with K blocks of which every second is equal, one variable stands
for about K / 2 decisions, and its costs are their sum. The number of variables does not depend on the depth.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sporax.base.identity import ByIdentity
from sporax.planner.search.space.problem import Problem
from sporax.planner.search.space.resharding_cost import Floats
from sporax.planner.solver.graph.cost_graph import CostGraph
from sporax.planner.solver.portfolio.quick_choice import choose

Edge = tuple[int, int, Floats]
"""Two decisions, and a table of costs over their candidates."""
Wire = tuple[int, int, int]
"""An edge between blocks or within one: place in a block, place in the same block or a later one, how many blocks later."""

TURNS = 2
"""Blocks after which tied decisions may repeat: with two, neighbouring layers may alternate."""

_Key = TypeVar("_Key", bound=Hashable)
_SHARED = -1
"""In place of a block's number: decisions that many blocks read belong to no block."""
_MANY = 7
"""Most blocks that may meet in one decision of a block: neighbours of neighbours do, the whole network does not."""
_LEAST = 4
"""Fewest blocks that are worth tying."""
_STRIDES = (1, 2, 3, 4)
"""Layers per block that are tried: layers of several kinds may take turns."""


@dataclass(frozen=True, slots=True)
class Repeats:
    """Isomorphic blocks in a row, and everything else.

    Attributes:
        blocks: the decisions of each block; those at the same place are isomorphic.
        wires: edges within and between blocks, the same for every block as far as there are blocks.
        shared: by place and decision, edges of every block to what all blocks share.
        ends: edges of single blocks to what is before and behind: number of the block, which wire it would be, whether the
            block is the wire's first, and the decision outside.
        outside: decisions that belong to none of the blocks.
        others: edges among those.
    """

    blocks: tuple[tuple[int, ...], ...]
    wires: dict[Wire, Floats]
    shared: dict[tuple[int, int], Floats]
    ends: tuple[tuple[int, Wire, bool, int], ...]
    outside: tuple[int, ...]
    others: tuple[Edge, ...]

    @property
    def span(self) -> int:
        """Blocks that the longest wire is across."""
        return max((later for _, _, later in self.wires), default=0)


def find_repeats(labels: Sequence[Hashable], edges: Sequence[Edge]) -> Repeats | None:
    """The longest row of isomorphic blocks; None where there are too few.

    Args:
        labels: per decision what tells it from others: only those with equal labels may be tied.
        edges: between decisions.
    """
    middles = _middles(labels)
    neighbours: list[list[int]] = [[] for _ in labels]
    for first, second, _ in edges:
        neighbours[first].append(second)
        neighbours[second].append(first)
    contents = _contents(edges)
    best, covered = None, 0
    for stride in _STRIDES:
        # With a stride, only every second, third, … layer is a centre, so that a block holds layers of all kinds.
        row = _Row(labels, edges, contents, _nearest(neighbours, middles[::stride]))
        if len(row) >= _LEAST and row.size > covered:
            best, covered = row, row.size
        # More than half of all decisions are in blocks: no other stride can cover as many more.
        if 2 * covered > len(labels) or len(middles) < 2 * stride * _LEAST:
            break
    return None if best is None else best.found()


def _middles(labels: Sequence[Hashable]) -> list[int]:
    """The members of a label that occurs as often as most labels that repeat."""
    counts = Counter(labels)
    # The number of layers is the count that most repeated labels have in common.
    often = Counter(count for count in counts.values() if count > 1).most_common(1)
    if not often:
        return []
    chosen = next(label for label, count in counts.items() if count == often[0][0])
    return [number for number, label in enumerate(labels) if label == chosen]


def _contents(edges: Sequence[Edge]) -> list[int]:
    """For every edge a number that stands for its table's content."""
    by_object: dict[ByIdentity, int] = {}
    by_content: dict[Hashable, int] = {}
    # First by object, since layers share their tables and hashing megabytes for each edge takes long; then by content.
    for _, _, table in edges:
        key = ByIdentity(table)
        if key not in by_object:
            by_object[key] = by_content.setdefault((table.shape, table.tobytes()), len(by_content))
    return [by_object[ByIdentity(table)] for _, _, table in edges]


def _nearest(neighbours: Sequence[Sequence[int]], middles: Sequence[int]) -> list[int]:
    """For every decision the number of the nearest middle, of several the first; `_SHARED` for what many blocks read.

    What is joined to no middle goes with the decision before it.
    """
    block = [_SHARED] * len(neighbours)
    for number, middle in enumerate(middles):
        block[middle] = number
    reached = list(middles)
    while reached:
        fresh: dict[int, int] = {}
        for node in reached:
            mine = block[node]
            for other in neighbours[node]:
                # All blocks grow at once, one edge per round, so each decision goes to the nearest centre; ties to the
                # earlier one.
                if block[other] == _SHARED and fresh.get(other, mine) >= mine:
                    fresh[other] = mine
        for node, number in fresh.items():
            block[node] = number
        reached = list(fresh)
    for node in range(1, len(block)):
        if block[node] == _SHARED:
            block[node] = block[node - 1]
    # After the growth: only then is it known in how many blocks the readers are.
    shared = [node for node, others in enumerate(neighbours) if len({block[other] for other in others}) > _MANY]
    for node in shared:
        block[node] = _SHARED
    return block


class _Row:
    """The longest row of isomorphic blocks, for one way to divide decisions into blocks."""

    def __init__(
        self, labels: Sequence[Hashable], edges: Sequence[Edge], contents: Sequence[int], block: Sequence[int]
    ) -> None:
        self.edges, self.block = edges, block
        self.members: list[list[int]] = [[] for _ in range(max(block, default=_SHARED) + 1)]
        for node, number in enumerate(block):
            if number != _SHARED:
                self.members[number].append(node)
        kinds: dict[Hashable, int] = {}
        kind_of = [kinds.setdefault(label, len(kinds)) for label in labels]
        self.place = [0] * len(block)
        for members in self.members:
            # Equal blocks get equal orders: by kind, and within a kind by the order of the program.
            members.sort(key=lambda node: (kind_of[node], node))
            for place, node in enumerate(members):
                self.place[node] = place
        self.first, self.last = _longest_run(self._looks(kind_of, contents))

    def __len__(self) -> int:
        return self.last - self.first

    @property
    def size(self) -> int:
        """Decisions in the row."""
        return len(self) * len(self.members[self.first]) if len(self) else 0

    def _looks(self, kind_of: Sequence[int], contents: Sequence[int]) -> list[Hashable]:
        """Per block all there is to know about it, itself at the centre."""
        seen: list[list[tuple[int, int, int, int]]] = [[] for _ in self.members]
        block, place = self.block, self.place
        for (first, second, _), content in zip(self.edges, contents, strict=True):
            here, there = block[first], block[second]
            if here == _SHARED or there == _SHARED:
                if here != there:
                    # Negative numbers tell shared decisions from places.
                    ends = (place[first], ~second) if there == _SHARED else (~first, place[second])
                    # A shared decision keeps its own number: equal blocks read the very same one, not one that is
                    # equal to it.
                    seen[max(here, there)].append((*ends, 0, content))
                continue
            seen[here].append((place[first], place[second], there - here, content))
            if here != there:
                seen[there].append((place[first], place[second], there - here, content))
        # Sorted, so that the order of the edges does not matter.
        return [
            (tuple(kind_of[node] for node in members), tuple(sorted(entry)))
            for members, entry in zip(self.members, seen, strict=True)
        ]

    def found(self) -> Repeats:
        """What the row says of all edges. Several between the same two decisions are one."""
        # A block in the middle has all its neighbours, so its edges show all wires.
        middle = (self.first + self.last) // 2
        wires: dict[Wire, Floats] = {}
        shared: dict[tuple[int, int], Floats] = {}
        ends: dict[tuple[int, Wire, bool, int], None] = {}
        others: list[Edge] = []
        inside = range(self.first, self.last)
        for edge in self.edges:
            if self.block[edge[0]] not in inside and self.block[edge[1]] not in inside:
                others.append(edge)
                continue
            first, second, table = self._in_order(edge)
            here, there = self.block[first], self.block[second]
            if there == _SHARED:
                if here == middle:
                    _add(shared, (self.place[first], second), table)
                continue
            wire = (self.place[first], self.place[second], there - here)
            # Each wire is taken down once, from the middle block; equal blocks have equal ones.
            if here == middle:
                _add(wires, wire, table)
            # The row's first and last blocks have wires into the surroundings.
            if here not in inside:
                ends[there - self.first, wire, False, first] = None
            elif there not in inside:
                ends[here - self.first, wire, True, second] = None
        return Repeats(
            tuple(tuple(self.members[number]) for number in inside),
            wires,
            shared,
            tuple(ends),
            tuple(node for node, number in enumerate(self.block) if number not in inside),
            tuple(others),
        )

    def _in_order(self, edge: Edge) -> Edge:
        """An edge in its one form: from the earlier block to the later one or to what is shared; in a block, by places."""
        first, second, table = edge
        here, there = self.block[first], self.block[second]
        if here == there:
            turned = self.place[first] > self.place[second]
        else:
            turned = here == _SHARED or (there != _SHARED and here > there)
        return (second, first, table.T) if turned else edge


def _add(tables: dict[_Key, Floats], key: _Key, table: Floats) -> None:
    tables[key] = tables[key] + table if key in tables else table


def _longest_run(values: Sequence[Hashable]) -> tuple[int, int]:
    """Where the longest run of equal values begins and ends."""
    best = (0, 0)
    for first, last in _runs(values):
        if last - first > best[1] - best[0]:
            best = (first, last)
    return best


def _runs(values: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    first = 0
    for place in range(1, len(values) + 1):
        if place == len(values) or values[place] != values[first]:
            yield first, place
            first = place


# ------------------------------------------------------------------------------------------------------------- tying


def choose_tied(problem: Problem, turns: int = TURNS, known: float = math.inf) -> list[int]:
    """A good choice in which blocks that repeat are decided equally, without regard to memory; nothing is proven.

    Args:
        problem: the problem.
        turns: after how many tied blocks the choice repeats.
        known: seconds of a choice from elsewhere; where this one can hardly be better, less time is spent on it.
    """
    repeats = find_repeats(labels(problem), problem.edges)
    # Without blocks there is nothing to tie, and the problem is solved as it is.
    if repeats is None:
        return choose(problem.cost_graph(), known=known * problem.scale)
    return tied_choice(problem, repeats, turns, known)[0]


def tied_choice(problem: Problem, repeats: Repeats, turns: int, known: float = math.inf) -> tuple[list[int], int]:
    """A choice in which blocks are decided equally, and how many variables it took; `known` as in `choose_tied`."""
    small, variable = tied_problem(problem.costs, repeats, turns)
    decided = choose(small, known=known * problem.scale)
    return [decided[entry] for entry in variable], small.num_nodes


def labels(problem: Problem) -> list[Hashable]:
    """Per decision what it is by itself: its candidates and their costs."""
    return [
        (ByIdentity(choice.steps), costs.tobytes())
        for choice, costs in zip(problem.choices, problem.costs, strict=True)
    ]


def tied_problem(costs: Sequence[Floats], repeats: Repeats, turns: int) -> tuple[CostGraph, list[int]]:
    """The problem in which blocks are decided equally, and for every decision its variable there.

    Args:
        costs: per decision [candidates].
        repeats: which blocks are isomorphic, and all edges.
        turns: after how many blocks the decisions repeat.
    """
    count, turns = len(repeats.blocks), min(turns, len(repeats.blocks))
    # Variables: first those of the decisions outside, then one set for every turn.
    variable = [0] * len(costs)
    for place, decision in enumerate(repeats.outside):
        variable[decision] = place
    for number, block in enumerate(repeats.blocks):
        first = len(repeats.outside) + number % turns * len(block)
        for place, decision in enumerate(block):
            variable[decision] = first + place
    small = [costs[decision] for decision in repeats.outside]
    edges: list[Edge] = [(variable[first], variable[second], table) for first, second, table in repeats.others]
    for turn, block in enumerate(repeats.blocks[:turns]):
        # Blocks of a turn share variables, so their costs add up: a factor instead of a sum over blocks.
        times = len(range(turn, count, turns))
        small += [times * costs[decision] for decision in block]
        for (place, decision), table in repeats.shared.items():
            edges.append((variable[block[place]], variable[decision], times * table))
        for (here, there, later), table in repeats.wires.items():
            # The last blocks have no block `later` after them, so a wire has fewer pairs than there are blocks.
            pairs = len(range(turn, count - later, turns))
            second = repeats.blocks[(turn + later) % turns][there]
            edges += [(variable[block[here]], variable[second], pairs * table)] if pairs else []
    for number, wire, is_first, decision in repeats.ends:
        inside, table = repeats.blocks[number][wire[0 if is_first else 1]], repeats.wires[wire]
        edges.append((variable[inside], variable[decision], table if is_first else table.T))
    return CostGraph.unlimited(small, edges, "repeated blocks"), variable
