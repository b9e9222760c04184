"""Elimination with labels: memory rows next to costs.

Nodes are taken out one by one, each with all tables that it is in, as in bucket elimination. Where that keeps the least cost
for every choice of the neighbours, here every such entry has a list of *labels*: what it costs, and how much it takes in every
memory row. Tables are lists of labels and of nothing else: joining two adds costs and loads of labels that agree, taking a node
out drops it from their names, and whatever cannot matter is dropped on the way:

* a label that does not fit, or costs more than it may (`cutoff`);
* a label next to one of the same entry that costs no more and takes no more in any row (Pareto). What the rest cannot overload,
  whatever it takes, counts as nothing there.

Costs are *slacks*, parts of what a choice costs above a lower bound, none of them below zero (`MessagePassing.slacks`), memory
charged by its multipliers. So most pairs of strategies are gone before anything begins, and tables over many nodes stay short.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from sporax.planner.budget import UNLIMITED, Budget
from sporax.planner.solver.graph.core import Core
from sporax.planner.solver.graph.cost_graph import Booleans, Floats, Ints

_FEWEST_BITS = 1e-12
"""Share of the bound below which two costs count as equal: sums in different order differ by some 1e-16 per term."""
_MOST_NUMBERS = 1 << 62
"""Largest number that stands for a combination of choices: one bit is left so that a sum cannot overflow int64."""
_ROUND_OFF = 1e-9
"""Absolute tolerance where labels are looked up by slack; labels that come in by it are checked again."""


class TooManyLabels(Exception):  # noqa: N818 - it ends an attempt and is no error
    """More labels would have to be made than may be."""


@dataclass(slots=True)
class Allowance:
    """How much elimination may do, and what it did.

    Attributes:
        joins: pairs of labels that may still be put together.
        budget: when it is over, elimination gives up.
        labels: labels that were kept, all tables together.
        largest: labels in the largest table.
    """

    joins: int
    budget: Budget = UNLIMITED
    labels: int = 0
    largest: int = 0

    def spend(self, joins: int) -> None:
        """Count pairs.

        Raises:
            TooManyLabels: there would be too many, or time is up.
        """
        self.joins -= joins
        if self.joins < 0 or self.budget.is_over:
            raise TooManyLabels

    def keep(self, labels: int) -> None:
        """Count labels of a table."""
        self.labels += labels
        self.largest = max(self.largest, labels)


@dataclass(frozen=True, slots=True)
class _Table:
    """Labels of some nodes' choices; L labels, k rows.

    Attributes:
        scope: the nodes.
        choices: [L, scope] a strategy of each.
        slacks: [L] cost above the bound, charges for memory included.
        loads: [L, k] what is taken in each row.
        most: [k] the most that the nodes whose memory `loads` counts could take.
        came: of which taken-out nodes the labels are, and per label which of theirs.
    """

    scope: tuple[int, ...]
    choices: Ints
    slacks: Floats
    loads: Ints
    most: Ints
    came: tuple[tuple[int, Ints], ...] = ()

    def __len__(self) -> int:
        return len(self.slacks)

    def take(self, which: Ints | Booleans) -> _Table:
        """Some of the labels."""
        came = tuple((number, labels[which]) for number, labels in self.came)
        return _Table(self.scope, self.choices[which], self.slacks[which], self.loads[which], self.most, came)

    def at(self, nodes: Sequence[int]) -> Ints:
        """[L, nodes] what the labels choose there."""
        return self.choices[:, [self.scope.index(node) for node in nodes]]


@dataclass(frozen=True, slots=True)
class _Bucket:
    """A node that is gone: the strategy of every label that was kept, and the labels of earlier buckets that it is made of."""

    node: int
    strategies: Ints
    came: tuple[tuple[int, Ints], ...]


class Elimination:
    """Elimination of all nodes of a core, with all of its memory rows.

    Args:
        core: the problem; its rows are few.
        multipliers: [rows] what a unit of load is charged.
        nodes: [strategies] per node, slacks.
        edges: (first, second, [strategies of first, strategies of second]) slacks.
        scale: what costs are of the order of.
    """

    def __init__(
        self,
        core: Core,
        multipliers: Floats,
        nodes: Sequence[Floats],
        edges: Iterable[tuple[int, int, Floats]],
        scale: float,
    ) -> None:
        self.core, self.multipliers, self.nodes, self.edges = core, multipliers, nodes, list(edges)
        # Costs are compared as multiples of a grain: otherwise equal labels that were added in different order would
        # all stay.
        self._grain = _FEWEST_BITS * scale
        self._sizes = [int(size) for size in np.diff(core.offsets)]
        self._usages = [_usages(core, node, size) for node, size in enumerate(self._sizes)]

    @property
    def most(self) -> float:
        """A cutoff that leaves every choice that costs less than infinity."""
        slacks = [*self.nodes, *(table for _, _, table in self.edges)]
        return float(sum(slack[np.isfinite(slack)].max(initial=0.0) for slack in slacks))

    def run(self, cutoff: float, allowance: Allowance) -> Ints | None:
        """The choice of least cost of those that fit and cost at most `cutoff` above the bound, where there is one;
        otherwise maybe one of higher cost.

        Raises:
            TooManyLabels: it would take more than is allowed.
        """
        tables = self._tables(cutoff)
        return None if tables is None else _Run(self, tables, cutoff, allowance).run()

    def _tables(self, cutoff: float) -> list[_Table] | None:
        """The slacks as tables; None where nothing is left of one."""
        rows = len(self.core.room)
        # A strategy whose slack alone is over the cutoff is in no choice of interest: slacks are never negative.
        left = [
            (slacks <= cutoff) & (usages <= self.core.room).all(axis=1)
            for slacks, usages in zip(self.nodes, self._usages, strict=True)
        ]
        tables = []
        for node, (slacks, usages) in enumerate(zip(self.nodes, self._usages, strict=True)):
            remaining = np.flatnonzero(left[node])
            most = usages[remaining].max(axis=0, initial=0)
            tables.append(_Table((node,), remaining[:, None], slacks[remaining], usages[remaining], most))
        for first, second, slacks in self.edges:
            # A pair without a label is forbidden; that is how pruned pairs and strategies keep the tables short.
            choices = np.argwhere((slacks <= cutoff) & left[first][:, None] & left[second])
            # An edge takes no memory: only the tables of nodes carry loads, so each load is counted once.
            loads = np.zeros((len(choices), rows), np.int64)
            tables.append(_Table((first, second), choices, slacks[tuple(choices.T)], loads, np.zeros(rows, np.int64)))
        return tables if all(map(len, tables)) else None

    def undominated(self, table: _Table, rest: Ints, entries: Ints) -> Ints:
        """The labels of a table that matter, `rest` [k] being the most that other nodes can take."""
        # Below `least` a row cannot overflow, whatever the others take, so all smaller loads are equally good there.
        least = np.maximum(self.core.room - rest, 0)
        loads = np.maximum(table.loads, least)
        # A row in which no label is above that level cannot tell labels apart.
        loads = loads[:, (loads > least).any(axis=0)]
        # The charges are taken out again: they are part of the slack, but a load must count once, as memory.
        costs = np.rint((table.slacks - table.loads @ self.multipliers) / self._grain)
        return undominated(entries, costs, loads)

    @property
    def sizes(self) -> list[int]:
        """Number of strategies of each node."""
        return self._sizes


class _Run:
    """One elimination."""

    def __init__(self, problem: Elimination, tables: list[_Table], cutoff: float, allowance: Allowance) -> None:
        self.problem, self.cutoff, self.allowance = problem, cutoff, allowance
        self.room, self.sizes = problem.core.room, problem.sizes
        # What all nodes together can take at most; a table's share of it leaves what the rest can take.
        self.total: Ints = np.sum([table.most for table in tables], axis=0)
        self.tables: list[dict[int, _Table]] = [{} for _ in self.sizes]
        """Per node the tables that it is in, by their numbers."""
        self.left = [len(table) for table in tables[: len(self.sizes)]]
        """Strategies of each node that are left."""
        self.trail: list[_Bucket] = []
        self.ends: list[_Table] = []
        """Tables of no node at all: the parts of the graph that do not touch."""
        self.count = 0
        for table in tables:
            self._add(table)

    def run(self) -> Ints | None:
        # Greedy order by the expected size of the table: the best order is NP-hard, as for tree width.
        waiting = {node: self._expected(node) for node in range(len(self.sizes))}
        while waiting:
            node = min(waiting, key=waiting.__getitem__)
            del waiting[node]
            table = self._take_out(node)
            if not len(table):
                return None
            # Only the neighbours' expectations change, since only their tables did.
            waiting.update((other, self._expected(other)) for other in table.scope)
        # Parts of the graph that share no edge still share memory, so their labels are joined like the others.
        end, *others = sorted(self.ends, key=len)
        for other in others:
            end = self._thinned(self._joined(end, other), ())
            if not len(end):
                return None
        return self._unwound(end, int((end.slacks - end.loads @ self.problem.multipliers).argmin()))

    def _add(self, table: _Table) -> None:
        for node in table.scope:
            self.tables[node][self.count] = table
        self.count += 1

    def _expected(self, node: int) -> float:
        """How many labels there would be when a node is taken out, if tables knew nothing of each other."""
        tables = self.tables[node].values()
        scope = {node for table in tables for node in table.scope}
        # Tables are taken to be independent: shares of the combinations that are left multiply.
        shares = (len(table) / self._entries(table.scope) for table in tables)
        return self._entries(scope) * math.prod(shares)

    def _entries(self, scope: Iterable[int]) -> float:
        return math.prod(float(self.left[node]) for node in scope)

    def _take_out(self, node: int) -> _Table:
        """Join the tables of a node, drop the node, and keep what matters."""
        first, *others = sorted(self.tables[node].items(), key=lambda item: len(item[1]))
        joined, waiting = first[1], dict(others)
        # The table that multiplies the labels least comes next, so that the cutoff prunes early.
        while waiting and len(joined):
            scope = frozenset(joined.scope)
            nearest = min(waiting, key=lambda number: self._growth(waiting[number], scope))
            joined = self._joined(joined, waiting.pop(nearest))
        for number, table in [first, *others]:
            for other_node in table.scope:
                del self.tables[other_node][number]
        table = self._thinned(joined, tuple(other_node for other_node in joined.scope if other_node != node))
        place = joined.scope.index(node)
        remaining, choices = table.choices[:, place], np.delete(table.choices, place, axis=1)
        self.trail.append(_Bucket(node, remaining, table.came))
        # The label's own number is its trail from here on; older trails are in the bucket.
        came = ((len(self.trail) - 1, np.arange(len(table))),)
        table = _Table(
            tuple(np.delete(joined.scope, place).tolist()), choices, table.slacks, table.loads, table.most, came
        )
        if table.scope:
            self._add(table)
        else:
            self.ends.append(table)
        return table

    def _growth(self, table: _Table, scope: frozenset[int]) -> float:
        """How many labels of a table each one of a table over `scope` meets."""
        return len(table) / self._entries(scope.intersection(table.scope))

    def _joined(self, one: _Table, other: _Table) -> _Table:
        """Labels of both that agree where both choose, and that may be had together."""
        shared = [node for node in one.scope if node in other.scope]
        first, second = self._meeting(one, other, shared)
        slacks = one.slacks[first] + other.slacks[second]
        remaining = slacks <= self.cutoff
        for row, room in enumerate(self.room.tolist()):
            remaining &= one.loads[first, row] + other.loads[second, row] <= room
        first, second = first[remaining], second[remaining]
        fresh = [place for place, node in enumerate(other.scope) if node not in shared]
        came = [(number, labels[first]) for number, labels in one.came]
        came += [(number, labels[second]) for number, labels in other.came]
        return _Table(
            (*one.scope, *(other.scope[place] for place in fresh)),
            np.concatenate([one.choices[first], other.choices[second][:, fresh]], axis=1),
            slacks[remaining],
            one.loads[first] + other.loads[second],
            one.most + other.most,
            tuple(came),
        )

    def _meeting(self, one: _Table, other: _Table, shared: list[int]) -> tuple[Ints, Ints]:
        """Pairs of labels that agree at the shared nodes and that are, but for rounding, within the cutoff together."""
        # Both tables are numbered in one call, so that equal choices get equal numbers.
        both = numbered(np.concatenate([one.at(shared), other.at(shared)]))
        requested, offered = both[: len(one)], both[len(one) :]
        order = np.lexsort((other.slacks, offered))
        entries, group = np.unique(offered[order], return_inverse=True)
        # Sorted by entry and slack at once: the number of the entry, and behind the point half of the slack's share.
        share = 0.5 / self.cutoff if self.cutoff > 0 else 0.0
        keys = group + share * other.slacks[order]
        number = np.searchsorted(entries, requested)
        first = np.flatnonzero(entries[np.minimum(number, len(entries) - 1)] == requested)
        number = number[first]
        begins = np.searchsorted(group, number)
        ends = np.searchsorted(keys, number + share * (self.cutoff - one.slacks[first]) + _ROUND_OFF, side="right")
        counts = np.maximum(ends - begins, 0)
        # Counted before the pairs are made: memory would run out first otherwise.
        self.allowance.spend(int(counts.sum()))
        # For each pair, its number within its group: the usual trick for ragged ranges without a loop.
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.repeat(first, counts), order[np.repeat(begins, counts) + within]

    def _thinned(self, table: _Table, scope: tuple[int, ...]) -> _Table:
        """The labels that matter to tables over no more than `scope`."""
        remaining = table.take(self.problem.undominated(table, self.total - table.most, numbered(table.at(scope))))
        self.allowance.keep(len(remaining))
        return remaining

    def _unwound(self, end: _Table, label: int) -> Ints:
        """What a label at the very end chose."""
        positions = np.zeros(len(self.sizes), dtype=np.int64)
        waiting = [(number, int(labels[label])) for number, labels in end.came]
        while waiting:
            number, label = waiting.pop()
            bucket = self.trail[number]
            positions[bucket.node] = bucket.strategies[label]
            waiting += [(earlier, int(labels[label])) for earlier, labels in bucket.came]
        return positions


def _usages(core: Core, node: int, size: int) -> Ints:
    """[strategies, rows] what a node takes in each row."""
    usages = np.zeros((size, len(core.room)), np.int64)
    memory = core.network.memory[int(core.nodes[node])]
    for (first, last), usage in zip(memory.spans.tolist(), memory.usages, strict=True):
        usages[:, first:last] += usage[:, None]
    return usages


def numbered(choices: Ints) -> Ints:
    """[L] one number for each of the rows [L, nodes] of what is chosen, the same for equal rows."""
    numbers, count = np.zeros(len(choices), np.int64), 1
    for chosen in choices.T:
        size = int(chosen.max(initial=0)) + 1
        # Mixed-radix numbers grow with each node; before they overflow they are replaced by their ranks.
        if count * size > _MOST_NUMBERS:
            numbers, count = np.unique(numbers, return_inverse=True)[1], len(numbers)
        numbers, count = numbers * size + chosen, count * size
    return numbers


def undominated(entries: Ints, costs: Floats, loads: Ints) -> Ints:
    """The labels next to which none of the same entry costs no more and takes no more; of equal ones the first.

    Args:
        entries: [L] to which entry each belongs.
        costs: [L] what each costs.
        loads: [L, k] what each takes in every row.
    """
    # By entry, then cost, then load: a label can be dominated only by one that comes before it.
    order = np.lexsort((loads.sum(axis=1), costs, entries))
    entries, loads = entries[order], loads[order]
    if (
        loads.shape[1] == 1
    ):  # along the labels of an entry, in order of cost, those that take less memory than all before
        number = np.cumsum(_begins(entries))
        # Each entry gets a band of its own below the one before, so that one running minimum serves all entries.
        falling = loads[:, 0] - number * (int(loads.max(initial=0)) + 1)
        least = np.minimum.accumulate(falling)
        remaining = np.flatnonzero(np.append(True, falling[1:] < least[:-1]))
        return order[remaining]
    left = np.arange(len(order))
    chunks = []
    while len(left):
        begins = _begins(entries[left])
        first_labels = left[begins]  # of every entry: nothing that is left is better
        chunks.append(first_labels)
        below = loads[first_labels][np.cumsum(begins) - 1]
        left = left[(loads[left] < below).any(axis=1)]
    return order[np.sort(np.concatenate(chunks))] if chunks else order


def _begins(entries: Ints) -> Booleans:
    """[L] whether a label is the first of its entry."""
    begins = np.ones(len(entries), dtype=np.bool_)
    begins[1:] = entries[1:] != entries[:-1]
    return begins
