"""Plans of less cost within a memory limit: a local search over measured plans.

Problem: bytes of resharding show only in the complete plan, so a plan that the Lagrangian loop suggests may be smaller than it
needs to be, and then too expensive.

Method: a region R of neighbouring decisions is decided again, all others as they are,

    min c(y) + p b(y) over all y with y_i = x_i for i not in R,

and the search goes to y where c(y) < c(x) and the plan of y fits; b(y) is the mean of the bytes at the operators where x
nearly fills the limit. First p = 0; then bytes have a penalty, so that what costs less than x is found where the least cost does
not fit.
Large regions come first: they change decisions that no single one can change.
How many plans are measured is a count and no time, so all processes of a job find the same plan.

Reference: P. Shaw, "Using constraint programming and local search methods to solve vehicle routing problems", CP 1998.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sporax.planner.search.space.measured_plan import MeasuredPlan, measured_within, num_plans, weighted_bytes
from sporax.planner.search.space.problem import Problem
from sporax.planner.solver.graph.core import Core
from sporax.planner.solver.graph.cost_graph import Ints, Moments
from sporax.planner.solver.graph.network import Network
from sporax.planner.solver.portfolio.quick_choice import neighborhood_order, reoptimized

_OPERATORS = 60_000
"""Operators of all measured plans together."""
_LARGEST_REGION, _LEAST_REGION = 96, 2
"""Decisions of the largest regions and of the smallest."""
_OVERLAP = 4
"""Regions of one size that contain each decision, about: borders of one are inside another."""
_FULL = 0.9
"""Share of the limit from which an operator's bytes have a penalty."""
_WORTH = 1 - 1e-4
"""Share of the cost that a region must bring it below."""


def improved(problem: Problem, plan: MeasuredPlan, limit: int) -> MeasuredPlan:
    """A plan that fits and costs no more, in which no region is better decided otherwise.

    Args:
        plan: where to begin; fits.
        limit: bytes of one device.
    """
    regions = problem.cached("regions", lambda: _Regions(problem), of_costs=True)
    plan, left = _improved(problem, plan, limit, regions, num_plans(problem, _OPERATORS))
    # With much room left, memory forbids nothing.
    if plan.peak_bytes > _FULL * limit:
        plan, _ = _improved(problem, plan, limit, _Regions(_penalized(problem, plan, limit)), left)
    return plan


def _penalized(problem: Problem, plan: MeasuredPlan, limit: int) -> Problem:
    """The problem with a penalty on bytes where a plan nearly fills the limit: as many as the limit cost as much as the step."""
    full = [operator for operator, uses in plan.history if sum(uses.values()) > _FULL * limit]
    penalty = problem.seconds(plan.chosen) * problem.scale / limit
    sizes = weighted_bytes(problem, dict.fromkeys(full, penalty / len(full)))
    return problem.with_costs([costs + size for costs, size in zip(problem.costs, sizes, strict=True)])


def _improved(
    problem: Problem, plan: MeasuredPlan, limit: int, regions: _Regions, left: int
) -> tuple[MeasuredPlan, int]:
    """`improved` by some regions; gives how many more plans may be measured, too."""
    too_large = set[_Changes]()
    # Half the decisions at most: a region of all of them is the problem without a limit.
    size = min(_LARGEST_REGION, regions.core.num_nodes // 2)
    while size >= _LEAST_REGION:
        better = False
        for region in regions.of(size):
            changes = regions.changes(plan.chosen, region)
            # What was too large most often stays so, since plans that cost less leave less room; the next size looks again.
            if not changes or changes in too_large:
                continue
            chosen = [*plan.chosen]
            for number, new in changes:
                chosen[number] = new
            if problem.seconds(chosen) >= _WORTH * problem.seconds(plan.chosen):
                continue
            if not left:
                return plan, left
            left -= 1
            candidate = measured_within(problem, chosen, limit)
            if candidate is not None:
                plan, better = candidate, True
            else:
                too_large.add(changes)
        # A size is used until it stops helping; then half of it.
        if not better:
            size //= 2
            too_large.clear()
    return plan, left


_Changes = tuple[tuple[int, int], ...]
"""Numbers of decisions, and their new candidates."""


class _Regions:
    """Regions of neighbouring decisions, and how each is decided best while all others stay as they are.

    That depends on a region and its neighbours alone, so the answers are remembered: most regions are asked for again when
    nothing near them has changed.
    """

    def __init__(self, problem: Problem) -> None:
        graph = problem.cost_graph()
        self.core = Core.of(Network.of(graph, Moments.of(graph.intervals)))
        self._by_size: dict[int, list[tuple[Ints, Ints]]] = {}
        self._known: dict[tuple[bytes, bytes], _Changes] = {}

    def of(self, size: int) -> list[tuple[Ints, Ints]]:
        """Balls around decisions that are spread evenly, and each with its neighbours."""
        if size not in self._by_size:
            starts = range(0, self.core.num_nodes, max(size // _OVERLAP, 1))
            self._by_size[size] = [
                self._with_neighbours(neighborhood_order(self.core, start, size)) for start in starts
            ]
        return self._by_size[size]

    def changes(self, chosen: Sequence[int], region: tuple[Ints, Ints]) -> _Changes:
        """What is chosen otherwise where the decisions of a region are decided again, all others being as they are."""
        free, near = region
        positions = np.array(chosen)
        key = free.tobytes(), positions[near].tobytes()
        if key not in self._known:
            new = reoptimized(self.core, positions, free)
            changed = np.flatnonzero(new != positions)
            self._known[key] = (*zip(changed.tolist(), new[changed].tolist(), strict=True),)
        return self._known[key]

    def _with_neighbours(self, free: Ints) -> tuple[Ints, Ints]:
        neighbours = {other for node in free.tolist() for other, _ in self.core.links[node]}
        return free, np.array(sorted(neighbours.union(free.tolist())))
