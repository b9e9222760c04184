"""Exact solution of a network: reduce, solve with few memory rows, add the rows that the answer broke, again.

Rows that are left out make the program a relaxation, so every round's bound is a bound of the whole, and the first
choice that breaks no row is optimal. A few dozen rows out of tens of thousands are enough on real graphs, and nodes
that are not live at any of them lose their memory, so that far more of the graph can be eliminated.

What is left is an integer program (`build_program`, `solve_program`): the local polytope with equality marginals, on HiGHS
(through SciPy). One binary column per strategy, one continuous column per finite pair of an edge table; the pairs of an edge sum
to the strategies at both its ends. Two exact compressions keep it small:

* rows (columns) of a table that are equal up to a constant form one *class*: the constant moves into the node's costs,
  and the edge has columns only between classes, each class standing for the sum of its strategies;
* only the memory rows of the given network are there; callers add rows as they turn out to be violated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy  # its packages are loaded at their first use: few programs need them, and they take long

from sporax.base.identity import ByIdentity
from sporax.planner.budget import Budget
from sporax.planner.solver.graph.core import Core
from sporax.planner.solver.graph.cost_graph import Floats, Ints
from sporax.planner.solver.graph.network import Network
from sporax.planner.solver.graph.reductions import reduce


@dataclass(frozen=True, slots=True)
class Compressed:
    """A table as ``first_costs[p] + second_costs[q] + core[first[p], second[q]]``; core entries are >= 0 or inf."""

    first: Ints
    second: Ints
    core: Floats
    first_costs: Floats
    second_costs: Floats


def compress(table: Floats) -> Compressed:
    """Groups rows, then columns, that are equal up to a constant."""
    # Minima are subtracted first: rows that differ by a constant only then become equal bytes, one class.
    first_costs = _finite(table.min(axis=1))
    core, first = _distinct_rows(table - first_costs[:, None])
    second_costs = _finite(core.min(axis=0))
    columns, second = _distinct_rows((core - second_costs).T)
    return Compressed(first, second, np.ascontiguousarray(columns.T), first_costs, second_costs)


def _finite(costs: Floats) -> Floats:
    """Zero in the place of ``inf``: rows without a finite entry keep their infinite entries in the core."""
    return np.where(np.isfinite(costs), costs, 0.0)


def _distinct_rows(table: Floats) -> tuple[Floats, Ints]:
    seen: dict[bytes, int] = {}
    # Adding 0.0 turns -0.0 into 0.0, whose bytes differ though the values are equal.
    classes = np.array([seen.setdefault(row.tobytes(), len(seen)) for row in np.ascontiguousarray(table + 0.0)])
    _, representatives = np.unique(classes, return_index=True)
    return table[representatives], classes


@dataclass(frozen=True, slots=True)
class IntegerProgram:
    """A network as a linear program ``min costs @ x, matrix @ x = right (equality rows) or <= right (memory rows)``.

    Columns: strategies of the nodes in `nodes`, node by node, then the pairs of the edges. The objective is divided by
    `scale`; the network's constant is left out.
    """

    nodes: tuple[int, ...]
    starts: Ints
    num_strategies: int
    costs: Floats
    matrix: scipy.sparse.csr_array
    lower: Floats
    upper: Floats
    scale: float
    constant: float


def build_program(network: Network) -> IntegerProgram:
    """Writes the network as a program, over all its memory rows."""
    nodes = network.alive()
    sizes = [len(network.costs[node]) for node in nodes]
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    place = dict(zip(nodes, starts.tolist(), strict=False))
    costs = [np.concatenate([network.costs[node] for node in nodes] or [np.zeros(0)])]
    rows: list[Ints] = [np.repeat(np.arange(len(nodes)), sizes)]
    columns: list[Ints] = [np.arange(starts[-1])]
    values: list[Floats] = [np.ones(starts[-1])]
    right: list[Floats] = [np.ones(len(nodes))]
    row, column = len(nodes), int(starts[-1])
    compressed: dict[ByIdentity, tuple[Compressed, Ints, Ints]] = {}
    for node in nodes:
        for other, table in network.links[node].items():
            # Every edge is stored at both its nodes; one side is enough.
            if other < node:
                continue
            key = ByIdentity(table)
            if key not in compressed:
                packed = compress(table)
                p, q = np.nonzero(np.isfinite(packed.core))
                compressed[key] = (packed, p.astype(np.int64), q.astype(np.int64))
            packed, p, q = compressed[key]
            here, there = place[node], place[other]
            costs[0][here : here + len(packed.first)] += packed.first_costs
            costs[0][there : there + len(packed.second)] += packed.second_costs
            tall, wide = packed.core.shape
            pairs = column + np.arange(len(p))
            costs.append(packed.core[p, q])
            # Pairs of one row class sum to the strategies of that class, and so do pairs of one column class.
            rows += [row + p, row + tall + q, row + packed.first, row + tall + packed.second]
            columns += [pairs, pairs, here + np.arange(len(packed.first)), there + np.arange(len(packed.second))]
            values += [np.ones(2 * len(p)), -np.ones(len(packed.first) + len(packed.second))]
            right.append(np.zeros(tall + wide))
            row += tall + wide
            column += len(p)
    upper = np.concatenate(right)
    lower = upper
    if len(network.base):
        extra = _memory_rows(network, place, row)
        rows, columns, values = rows + [extra[0]], columns + [extra[1]], values + [extra[2]]
        upper = np.concatenate([upper, extra[3]])
        lower = np.concatenate([lower, np.full(len(extra[3]), -np.inf)])
        row += len(extra[3])
    matrix = scipy.sparse.csr_array(
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape=(row, column)
    )
    objective = np.concatenate(costs)
    # HiGHS has absolute tolerances of about 1e-6, so costs are scaled until their differences are far larger.
    scale = 1e-4 * float(np.median(objective[objective > 0])) if (objective > 0).any() else 1.0
    return IntegerProgram(
        tuple(nodes), starts, int(starts[-1]), objective / scale, matrix, lower, upper, scale, network.constant
    )


def _memory_rows(network: Network, place: dict[int, int], row: int) -> tuple[Ints, Ints, Floats, Floats]:
    """Entries (row, column, value) and right sides of the memory rows, each scaled to a right side near one."""
    room = (network.capacity - network.base).astype(np.float64)
    unit = np.maximum(room, 1.0)
    rows, columns, values = [], [], []
    for node, start in place.items():
        memory = network.memory[node]
        for (first, last), usage in zip(memory.spans.tolist(), memory.usages, strict=True):
            used = np.flatnonzero(usage)
            # Every row of the span has the same usages: the program has no notion of ranges.
            r = np.repeat(np.arange(first, last), len(used))
            rows.append(row + r)
            columns.append(np.tile(start + used, last - first))
            values.append(np.tile(usage[used].astype(np.float64), last - first) / unit[r])
    empty = np.zeros(0, np.int64)
    return (
        np.concatenate([empty, *rows]),
        np.concatenate([empty, *columns]),
        np.concatenate([np.zeros(0), *values]),
        room / unit,
    )


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one round: positions per node (None without a solution), a lower bound, and whether it is final.

    `infeasible` is set when it was proven that no choice satisfies the rows.
    """

    positions: Ints | None
    bound: float
    finished: bool
    infeasible: bool = False


def solve_program(program: IntegerProgram, budget: Budget, *, gap: float = 0.0) -> Answer:
    """Solves the program to optimality, or until the budget is over.

    Args:
        budget: time limit; HiGHS may overrun it by a little.
        gap: relative gap at which to stop.
    """
    if program.num_strategies == 0:
        return Answer(np.zeros(0, np.int64), program.constant, True)
    # Pair columns become 0 or 1 by themselves once the strategies are, so only strategies are integers.
    integrality = np.zeros(len(program.costs))
    integrality[: program.num_strategies] = 1
    result = scipy.optimize.milp(
        program.costs,
        integrality=integrality,
        bounds=scipy.optimize.Bounds(0, 1),
        constraints=scipy.optimize.LinearConstraint(program.matrix, program.lower, program.upper),
        options={"time_limit": max(budget.left, 0.01), "mip_rel_gap": gap},
    )
    bound = result.mip_dual_bound
    bound = -np.inf if bound is None or np.isnan(bound) else bound * program.scale + program.constant
    # 2 is the status of SciPy for an infeasible program, 0 that for an optimal one.
    if result.status == 2:
        return Answer(None, np.inf, True, True)
    positions = None if result.x is None else _rounded(program, result.x)
    return Answer(positions, bound, result.status == 0)


def _rounded(program: IntegerProgram, x: Floats) -> Ints:
    """The largest strategy column of each node."""
    starts = program.starts
    # HiGHS returns values within 1e-6 of 0 and 1, so the largest column of a node is its choice.
    return np.array([int(x[a:b].argmax()) for a, b in zip(starts[:-1], starts[1:], strict=True)], dtype=np.int64)


_ROWS_AT_ONCE = 10
"""Most of the rows that an answer breaks that the next round has."""


@dataclass(frozen=True, slots=True)
class ExactOutcome:
    """Result of `solve_exactly`.

    Attributes:
        positions: a choice on the core that fits, or None when none was found in time.
        bound: lower bound on the cost of any choice that fits (``inf`` when there is none).
        optimal: `positions` is optimal, up to the gap requested.
        rows: the memory rows in use at the end.
    """

    positions: Ints | None
    bound: float
    optimal: bool
    rows: Ints


def solve_exactly(
    core: Core,
    budget: Budget,
    *,
    rows: Ints | None = None,
    gap: float = 0.0,
    report: Callable[[float], None] | None = None,
) -> ExactOutcome:
    """Solves a core to optimality, or until the budget is over.

    Args:
        budget: when to give up; rounds may overrun it by a little.
        rows: memory rows to begin with (none by default).
        gap: relative optimality gap that is good enough.
        report: called with the bound after each round.
    """
    # Rows of the last attempt may be given twice; `active` is sorted because `restricted` searches in it.
    active = np.zeros(0, np.int64) if rows is None else np.unique(rows)
    # Extra room that a row must leave. While it is not zero, the program is no relaxation, so its bound proves nothing.
    margin = np.zeros(len(core.room), np.int64)
    bound = -np.inf
    # Each round adds rows, and there are finitely many, so the loop ends without a budget too.
    while not budget.is_over:
        network = core.as_network()
        network.capacity = network.capacity - margin
        network = reduce(network.restricted(active))
        exact = not margin.any()
        if network.infeasible:
            # With a margin, infeasible means only that there is no choice which leaves the margin free.
            return ExactOutcome(None, np.inf if exact else bound, False, active)
        answer = solve_program(build_program(network), budget, gap=gap)
        bound = max(bound, answer.bound) if exact else bound
        if report is not None:
            report(bound)
        if answer.positions is None:
            return ExactOutcome(None, bound, False, active)
        choice = np.zeros(core.num_nodes, dtype=np.int64)
        for node, position in zip(network.alive(), answer.positions.tolist(), strict=True):
            ids = network.ids[node]
            assert ids is not None
            choice[node] = ids[position]
        # Relaxed answer on the core's own rows: those that were left out are checked here for the first time.
        choice = network.unwind(choice)
        excess = core.loads(choice) - core.room
        if (excess <= 0).all():
            return ExactOutcome(choice, bound, answer.finished and exact, active)
        # An unfinished answer that breaks rows is no optimum of the relaxation: more rows would not be aimed at anything.
        if not answer.finished:
            break
        broken = peaks(excess / np.maximum(core.room, 1), _ROWS_AT_ONCE)
        # A row that is there and broken all the same was kept only to HiGHS's tolerance: demand a little more room.
        again = np.intersect1d(broken, active)
        margin[again] = 2 * np.maximum(margin[again], excess[again])
        active = np.union1d(active, broken)
    return ExactOutcome(None, bound, False, active)


def peaks(excess: Floats, most: int = 10, apart: float = 0.005) -> Ints:
    """Rows of greatest positive `excess`, greedily, with a stretch of `apart` x rows around each left out."""
    left = excess.copy()
    # Neighbouring rows are overloaded by the same arrays, so one row of a peak usually repairs its neighbours.
    width = max(1, int(len(left) * apart))
    rows: list[int] = []
    while len(rows) < most and left.max(initial=0.0) > 0:
        row = int(left.argmax())
        rows.append(row)
        left[max(0, row - width) : row + width + 1] = 0
    return np.array(rows, dtype=np.int64)
