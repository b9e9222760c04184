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

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sporax.base.identity import ByIdentity
from sporax.planner.search.space.problem import Problem
from sporax.planner.search.space.resharding_cost import Floats
from sporax.planner.solver.graph.cost_graph import CostGraph
from sporax.planner.solver.portfolio.quick_choice import choose, choose_with_bound

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
        labels: per decision what distinguishes it from others: only those with equal labels may be tied.
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


_Contents = tuple[int, ...]
"""Numbers of the tables between two decisions, sorted; the complement of a number stands for the transposed table."""


class _Row:
    """The longest row of isomorphic blocks, for one way to divide decisions into blocks.

    The decisions next to a row may be in blocks of another size, so of an edge that leaves the row its end inside and its table
    count; of edges inside the row both ends do.
    """

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
        own = self._own(kind_of, contents)
        self.pairs = self._pairs(contents)
        borders: list[list[tuple[int, bool, int, _Contents]]] = [[] for _ in self.members]
        between: dict[tuple[int, int], list[tuple[int, int, _Contents]]] = {}
        for (first, second), tables in self.pairs.items():
            here, there = block[first], block[second]
            borders[here].append((self.place[first], True, there - here, tables))
            borders[there].append((self.place[second], False, there - here, tables))
            between.setdefault((here, there), []).append((self.place[first], self.place[second], tables))
        # Sorted, so that the order of the edges does not matter.
        looks = [(entry, tuple(sorted(border))) for entry, border in zip(own, borders, strict=True)]
        self.first, self.last = _longest_row(looks, {pair: sorted(entry) for pair, entry in between.items()})
        span = max((later for border in borders[self.first : self.last] for _, _, later, _ in border), default=0)
        if span >= len(self):
            # No two blocks of the row have such an edge between them: nothing says what its other end is.
            self.last = self.first

    def __len__(self) -> int:
        return self.last - self.first

    @property
    def size(self) -> int:
        """Decisions in the row."""
        return len(self) * len(self.members[self.first]) if len(self) else 0

    def _own(self, kind_of: Sequence[int], contents: Sequence[int]) -> list[Hashable]:
        """Per block what is in it, and its edges to itself and to what is shared."""
        inside: list[list[tuple[int, int, int]]] = [[] for _ in self.members]
        block, place = self.block, self.place
        for (first, second, _), content in zip(self.edges, contents, strict=True):
            here, there = block[first], block[second]
            if here == there:
                if here != _SHARED:
                    inside[here].append((place[first], place[second], content))
            # Negative numbers distinguish shared decisions from places.
            # A shared decision keeps its own number: equal blocks read the very same one, not one that is equal to it.
            elif there == _SHARED:
                inside[here].append((place[first], ~second, content))
            elif here == _SHARED:
                inside[there].append((~first, place[second], content))
        return [
            (tuple(kind_of[node] for node in members), tuple(sorted(entry)))
            for members, entry in zip(self.members, inside, strict=True)
        ]

    def _pairs(self, contents: Sequence[int]) -> dict[tuple[int, int], _Contents]:
        """For decisions of two blocks, the one of the earlier block first, the tables of all edges between them."""
        pairs: dict[tuple[int, int], _Contents] = {}
        block = self.block
        for (first, second, _), content in zip(self.edges, contents, strict=True):
            here, there = block[first], block[second]
            if here != there and here != _SHARED and there != _SHARED:
                key, content = ((first, second), content) if here < there else ((second, first), ~content)
                pairs[key] = tuple(sorted((*pairs[key], content))) if key in pairs else (content,)
        return pairs

    def found(self) -> Repeats:
        """What the row says of all edges. Several between the same two decisions are one."""
        wires: dict[Wire, Floats] = {}
        shared: dict[tuple[int, int], Floats] = {}
        others: list[Edge] = []
        inside = range(self.first, self.last)
        for edge in self.edges:
            if self.block[edge[0]] not in inside and self.block[edge[1]] not in inside:
                others.append(edge)
                continue
            first, second, table = self._in_order(edge)
            here, there = self.block[first], self.block[second]
            # Taken down once, from the first block; equal blocks have equal ones.
            if here != self.first:
                continue
            if there == _SHARED:
                _add(shared, (self.place[first], second), table)
            elif there in inside:
                _add(wires, (self.place[first], self.place[second], there - here), table)
        return Repeats(
            tuple(tuple(self.members[number]) for number in inside),
            wires,
            shared,
            tuple(self._ends(inside)),
            tuple(node for node, number in enumerate(self.block) if number not in inside),
            tuple(others),
        )

    def _ends(self, inside: range) -> Iterator[tuple[int, Wire, bool, int]]:
        """The edges between the row and the blocks around it, each as the wire with the same end inside and the same table."""
        wires: dict[tuple[int, bool, int, _Contents], list[Wire]] = {}
        for (first, second), tables in self.pairs.items():
            if self.block[first] == self.first and self.block[second] in inside:
                later = self.block[second] - self.first
                wire = self.place[first], self.place[second], later
                wires.setdefault((self.place[first], True, later, tables), []).append(wire)
                wires.setdefault((self.place[second], False, later, tables), []).append(wire)
        # Of several that are equal, each block uses each one once.
        used: Counter[Hashable] = Counter()
        for (first, second), tables in self.pairs.items():
            here, there = self.block[first], self.block[second]
            if (here in inside) != (there in inside):
                is_first = here in inside
                mine, other = (first, second) if is_first else (second, first)
                key = self.place[mine], is_first, there - here, tables
                number = self.block[mine]
                yield number - self.first, wires[key][used[number, key]], is_first, other
                used[number, key] += 1

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


def _longest_row(looks: Sequence[Hashable], between: Mapping[tuple[int, int], Sequence[Hashable]]) -> tuple[int, int]:
    """Where the longest row begins and ends: its blocks look the same, and so do the edges of those equally far apart."""
    best = (0, 0)
    distances = sorted({second - first for first, second in between})
    for first, last in _runs(looks):
        start = first
        for block in range(first, last):
            for distance in distances:
                pair = between.get((block - distance, block))
                # All earlier pairs of the row equal its first one, so a new one that differs must be the only one.
                if block - distance > start and pair != between.get((start, start + distance)):
                    start = block - distance
            best = max(best, (start, block + 1), key=lambda row: row[1] - row[0])
    return best


def _runs(values: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    first = 0
    for place in range(1, len(values) + 1):
        if place == len(values) or values[place] != values[first]:
            yield first, place
            first = place


def choose_tied(problem: Problem) -> list[int]:
    """A good choice in which blocks that repeat are decided equally, without regard to memory; nothing is proven."""
    repeats = find_repeats(labels(problem), problem.edges)
    # Without blocks there is nothing to tie, and the problem is solved as it is.
    if repeats is None:
        return choose(problem.cost_graph())
    return tied_choice(problem, repeats)[0]


def choose_tied_with_bound(problem: Problem, known: float) -> tuple[list[int], float]:
    """As `choose_tied`, and seconds that no choice with such blocks is below.

    A choice from elsewhere takes `known` seconds; where this one can hardly be better, less time is spent on it: none, for 0.
    """
    repeats = find_repeats(labels(problem), problem.edges)
    if repeats is None:
        chosen, bound = choose_with_bound(problem.cost_graph(), known=known * problem.scale)
        return chosen, bound / problem.scale
    small, variable = tied_problem(problem.costs, repeats, TURNS)
    decided, bound = choose_with_bound(small, known=known * problem.scale)
    return [decided[entry] for entry in variable], bound / problem.scale


def tied_choice(problem: Problem, repeats: Repeats, turns: int = TURNS) -> tuple[list[int], int]:
    """A choice in which blocks are decided equally, repeating after so many of them, and how many variables it took."""
    small, variable = tied_problem(problem.costs, repeats, turns)
    decided = choose(small)
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
