"""Exact reductions: what can be decided before any search.

Each rule leaves the optimum reachable and unchanged; `reduce` applies them until none fires.

* *Impossible*: a strategy of infinite cost, or without a finite partner across some edge, goes.
* *Dominated* (Goldstein's criterion of dead-end elimination; soft neighbourhood substitution in the constraint
  literature): strategy p goes when some q is never worse whatever the neighbours do and uses no more memory anywhere.
* *Oversized*: a strategy that does not fit next to the load that no choice can change goes.
* *Slack*: a memory row that no choice overloads goes.
* *Separable*: an edge table that is a sum of a row vector and a column vector moves into the two nodes' costs.
* *Single*: a node with one strategy folds into its neighbours and the base load.
* *Low degree*: a node free of memory with at most two neighbours is minimised out (bucket elimination of width 2).
* *Substitution*: a node whose strategy is a function of a neighbour's joins that neighbour, memory included.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Hashable, Iterable

import numpy as np

from sporax.base.identity import ByIdentity
from sporax.planner.budget import UNLIMITED, Budget
from sporax.planner.solver.graph.cost_graph import Booleans, Floats, Ints
from sporax.planner.solver.graph.network import Eliminated, Memory, Network, Substitution

_HUGE = 1e30
"""In place of ``inf`` in differences, since ``inf - inf`` is no number; far above every sum of allowed costs."""
_DOMINANCE_WORK = 4e7
"""Most table entries looked at for one dominance matrix, a fraction of a second; larger tables skip the rule."""
_AT_ONCE = 1 << 16
"""Table entries of one block of differences: half a megabyte stays in the cache of a core."""
_MAX_TABLE = 1 << 18
"""Most entries of a table that comes of a node of degree two: 2 MB."""


class Reducer:
    """Applies the rules to one network. Results on equal tables are remembered: real graphs repeat themselves.

    Nodes that are `remaining` stay, with every strategy that is possible: questions about them come later.
    """

    def __init__(self, network: Network, budget: Budget = UNLIMITED, remaining: frozenset[int] = frozenset()) -> None:
        self.network = network
        self.remaining = remaining
        self._budget = budget
        self._gains: dict[ByIdentity, Floats] = {}
        self._separated: dict[ByIdentity, tuple[Floats, Floats] | None] = {}
        self._functions: dict[ByIdentity, Ints | None] = {}
        self._masks: dict[tuple[Hashable, ...], Booleans | None] = {}
        self._minimised: dict[tuple[ByIdentity, ByIdentity, bytes], tuple[Floats, Floats]] = {}
        self._queue: list[tuple[int, int]] = []
        self._queued: set[int] = set()
        # Nodes that took over memory from others; their pieces overlap until the node is visited.
        self._untidy: set[int] = set()

    def run(self, nodes: Iterable[int] | None = None) -> Network:
        """Reduces until nothing changes or time is up, looking first at `nodes` (all by default)."""
        network = self.network
        self._touch(network.alive() if nodes is None else nodes)
        while self._queue and not network.infeasible:
            if self._budget.is_over:
                break
            # The node of fewest neighbours is visited first: its elimination makes the smallest tables.
            _, node = heapq.heappop(self._queue)
            self._queued.discard(node)
            if network.ids[node] is not None:
                self._visit(node)
        return network

    def _touch(self, nodes: Iterable[int]) -> None:
        for node in nodes:
            # The degree at the time of queueing may be out of date when it is popped: the order is a heuristic only.
            if node not in self._queued:
                self._queued.add(node)
                heapq.heappush(self._queue, (len(self.network.links[node]), node))

    def _visit(self, node: int) -> None:
        network = self.network
        if node in self._untidy:
            self._untidy.discard(node)
            network.set_memory(node, network.memory[node])
        # Later rules assume that every strategy is possible, so this one comes first.
        if not self._drop_impossible(node):
            return
        # Before dominance: each edge that is gone makes more strategies comparable.
        self._drop_separable(node)
        if node in self.remaining:
            return
        # Dominance removes strategies that no question needs; a kept node must answer questions about all of them.
        if len(network.costs[node]) > 1:
            self._drop_dominated(node)
        if len(network.costs[node]) == 1:
            self._fix(node)
        elif not len(network.memory[node]) and len(network.links[node]) <= 2:
            self._eliminate(node)
        else:
            self._absorb(node)

    def _shrink(self, node: int, mask: Booleans) -> None:
        self.network.keep(node, mask)
        self._touch(self.network.links[node])

    def _drop_impossible(self, node: int) -> bool:
        possible = self._left(_possible, node)
        if possible is not None:
            if not possible.any():
                self.network.infeasible = True
                return False
            self._shrink(node, possible)
        return True

    def _left(self, rule: _Rule, node: int) -> Booleans | None:
        """What a rule leaves of a node's strategies; remembered for nodes whose costs, tables and memory are the same."""
        network = self.network
        # Neighbours in the order of the links: equal layers have equal orders, and a different order only misses the cache.
        costs, usages, tables = network.costs[node], network.memory[node].usages, network.links[node].values()
        key = rule, costs.tobytes(), usages.tobytes(), *map(ByIdentity, tables)
        # One look-up and not two: hashing these keys is a good part of the reduction's time. None is an answer, too.
        try:
            return self._masks[key]
        except KeyError:
            mask = self._masks[key] = rule(self, costs, usages, tables)
            return mask

    def _drop_separable(self, node: int) -> None:
        network = self.network
        for other, table in list(network.links[node].items()):
            parts = self._separate(table)
            if parts is not None:
                network.costs[node] = network.costs[node] + parts[0]
                network.costs[other] = network.costs[other] + parts[1]
                del network.links[node][other]
                del network.links[other][node]
                self._touch([other])

    def _separate(self, table: Floats) -> tuple[Floats, Floats] | None:
        """Vectors whose outer sum is `table`, or None."""
        key = ByIdentity(table)
        try:
            return self._separated[key]
        except KeyError:
            # The first row and column determine the sum, if the table is one.
            rows, columns = table[:, 0], table[0]
            finite = bool(np.isfinite(rows).all() and np.isfinite(columns).all())
            # Exact equality: a tolerance would let errors of many edges add up in the node's costs.
            equal = finite and bool((rows[:, None] + (columns - rows[0]) == table).all())
            parts = self._separated[key] = (rows, columns - rows[0]) if equal else None
            return parts

    def drop_oversized(self, node: int) -> bool:
        """Removes strategies that cannot fit; says whether there were any."""
        oversized = _oversized(self.network, node)
        if oversized.all():
            self.network.infeasible = True
        elif oversized.any():
            self._shrink(node, np.logical_not(oversized))
        return bool(oversized.any())

    def _drop_dominated(self, node: int) -> None:
        winners = self._left(_undominated, node)
        if winners is not None:
            self._shrink(node, winners)

    def gain(self, table: Floats) -> Floats | None:
        """[p, q] least of table[p, y] - table[q, y] over y possible with p: what changing p to q saves at least."""
        key = ByIdentity(table)
        gains = self._gains.get(key)
        if gains is None:
            rows, columns = table.shape
            if rows * rows * columns > _DOMINANCE_WORK:
                return None
            # Forbidden pairs: leaving p is free where p is forbidden, and going to q is not allowed where q is.
            forbidden = ~np.isfinite(table)
            # Twice as much for p: where both are forbidden, the difference must count as free, and `_HUGE` of it is enough.
            minuend, subtrahend = np.where(forbidden, 2 * _HUGE, table).T, np.where(forbidden, _HUGE, table).T
            gains = np.empty((rows, rows))
            # In blocks, since all differences at once would be a large array.
            step = max(_AT_ONCE // table.size, 1)
            for p in range(0, rows, step):
                gains[p : p + step] = np.minimum.reduce(minuend[:, p : p + step, None] - subtrahend[:, None])
            self._gains[key] = gains
        return gains

    def _fix(self, node: int) -> None:
        network = self.network
        ids = network.ids[node]
        assert ids is not None
        # Trailed with no neighbours: there is one strategy left, so nothing is to be looked up later.
        network.trail.append(Eliminated(node, ids, network.costs[node], ()))
        network.constant += float(network.costs[node][0])
        neighbours = list(network.links[node])
        for other in neighbours:
            network.costs[other] = network.costs[other] + network.links[other][node][:, 0]
        network.remove(node)
        self._touch(neighbours)

    def _eliminate(self, node: int) -> None:
        network = self.network
        links, costs, ids = network.links[node], network.costs[node], network.ids[node]
        assert ids is not None
        neighbours = list(links)
        if len(neighbours) == 2:
            first, second = neighbours
            if len(network.costs[first]) * len(network.costs[second]) > _MAX_TABLE:
                return
            joined = self._minimise(links[first], links[second], costs)
        # The entry says later how to choose the node, so it needs the tables as they are now.
        # Strategies of neighbours may vanish later; the ids recorded here find the row that belongs to a choice.
        snapshot = tuple((other, network.left(other), links[other]) for other in neighbours)
        network.trail.append(Eliminated(node, ids, costs, snapshot))
        network.remove(node)
        if not neighbours:
            network.constant += float(costs.min())
        elif len(neighbours) == 1:
            other, _, table = snapshot[0]
            network.costs[other] = network.costs[other] + (costs[:, None] + table).min(axis=0)
        else:
            network.add_table(first, second, *joined)
        self._touch(neighbours)

    def _minimise(self, first: Floats, second: Floats, costs: Floats) -> tuple[Floats, Floats]:
        key = (ByIdentity(first), ByIdentity(second), costs.tobytes())
        tables = self._minimised.get(key)
        if tables is None:
            left = first.T + costs
            table = np.empty((left.shape[0], second.shape[1]))
            # Row by row: the whole sum would have one more dimension than the result.
            for row, line in enumerate(left):
                table[row] = (line[:, None] + second).min(axis=0)
            joined = self.network.intern(table)
            tables = self._minimised[key] = (joined, self.network.intern(joined.T))
        return tables

    def _absorb(self, node: int) -> None:
        """Joins `node` to a neighbour that determines it, if there is one."""
        network = self.network
        for master in network.links[node]:
            size, master_size = len(network.costs[node]), len(network.costs[master])
            # A larger master would only make the tables of the node's other neighbours larger.
            if len(network.links[node]) > 2 and master_size > 2 * size:
                continue
            function = self._function(network.links[master][node])
            if function is not None:
                self._join(node, master, function)
                return

    def _function(self, table: Floats) -> Ints | None:
        """For each row its only finite column, or None when some row has several."""
        key = ByIdentity(table)
        try:
            return self._functions[key]
        except KeyError:
            finite = np.isfinite(table)
            single = bool((finite.sum(axis=1) == 1).all())
            function = self._functions[key] = finite.argmax(axis=1) if single else None
            return function

    def _join(self, node: int, master: int, function: Ints) -> None:
        network = self.network
        links = dict(network.links[node])
        # One finite entry per row: the master's strategy picks the node's, and that entry is paid with it.
        along = links.pop(master)[function, np.arange(len(function))]
        network.trail.append(Substitution(node, master, network.left(master), network.left(node)[function]))
        network.costs[master] = network.costs[master] + network.costs[node][function] + along
        memory = network.memory[node]
        network.remove(node)
        if len(memory):
            network.add_memory(master, Memory(memory.spans, memory.usages[:, function]))
            self._untidy.add(master)
        for other, table in links.items():
            wider = network.intern(table[function])
            network.add_table(master, other, wider, network.intern(wider.T))
        self._touch([master, *links])


_Rule = Callable[[Reducer, Floats, Ints, Collection[Floats]], "Booleans | None"]
"""From a node's costs, usages [pieces, strategies] and tables [strategies, neighbour's] to what stays; None for all."""


def _possible(_: Reducer, costs: Floats, usages: Ints, tables: Collection[Floats]) -> Booleans | None:
    # Each table's least entry is added, so a strategy without a partner anywhere becomes infinite.
    for table in tables:
        costs = costs + table.min(axis=1)
    possible = np.isfinite(costs)
    return None if possible.all() else possible


def _undominated(reducer: Reducer, costs: Floats, usages: Ints, tables: Collection[Floats]) -> Booleans | None:
    worse = costs[:, None] - costs[None, :]
    for table in tables:
        gain = reducer.gain(table)
        if gain is None:
            return None
        worse = worse + gain
    # worse[p, q] is the least by which p is worse than q; where that is not negative, q can stand in for p.
    never_better: Booleans = np.asarray(worse >= 0)
    for usage in usages:
        if not never_better.any():
            return None
        np.logical_and(never_better, usage[:, None] >= usage[None, :], out=never_better)
    size = len(costs)
    # Of two strategies that are equal in everything, the earlier one stays.
    earlier = np.arange(size)[None, :] < np.arange(size)[:, None]
    # p and q that are never better than each other are equal; both would go without the second condition.
    loses: Booleans = np.any(never_better & (earlier | ~never_better.T), axis=1)
    return ~loses if loses.any() else None


def _oversized(network: Network, node: int) -> Booleans:
    """Strategies of `node` that break a capacity even when all others use the least they can."""
    memory = network.memory[node]
    room = [int((network.capacity[a:b] - network.base[a:b]).min()) for a, b in memory.spans.tolist()]
    oversized: Booleans = np.any(memory.usages > np.array(room)[:, None], axis=0)
    return oversized


def reduce(network: Network, budget: Budget = UNLIMITED, remaining: frozenset[int] = frozenset()) -> Network:
    """Applies every rule until none fires, or until the budget is over; changes and returns `network`.

    Nodes that are `remaining` lose no strategy but those that are impossible, or too large for the memory.
    """
    reducer = Reducer(network, budget, remaining)
    reducer.run()
    while not network.infeasible and not budget.is_over:
        if (network.base > network.capacity).any():
            network.infeasible = True
            break
        # Fewer rows free nodes of memory, and those may be eliminated; that in turn empties rows.
        binding = network.binding_rows()
        touched = network.keep_rows(binding) if len(binding) < len(network.base) else []
        touched += [node for node in network.alive() if len(network.memory[node]) and reducer.drop_oversized(node)]
        if not touched:
            break
        reducer.run(touched)
    return network
