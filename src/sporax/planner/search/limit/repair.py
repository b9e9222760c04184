"""The repair of plans within a memory limit: a local search over measured plans.

Problem: bytes of resharding show only in the complete plan, so a plan that the Lagrangian loop suggests may be too large,
or smaller than it needs to be, and then too expensive.

Method: N(x) are the choices that differ from x in one decision, or in all decisions that are equal in x. `reduce_memory`
goes from x to the first of N(x) with a smaller peak, the smallest candidates first; of equal decisions the last step changes
only as many as it takes. `improved` decides a region R of neighbouring decisions again, all others as they are,

    min c(y) + p b(y) over all y with y_i = x_i for i not in R,

and goes to y where c(y) < c(x) and the plan of y fits; b(y) is the mean of the bytes at the operators where x nearly fills the
limit. First p = 0; then bytes have a penalty, so that what costs less than x is found where the least cost does not fit.
Large regions come first: they change decisions that no single one can change.
How many plans are measured is a count and no time, so all processes of a job find the same plan.

Reference: P. Shaw, "Using constraint programming and local search methods to solve vehicle routing problems", CP 1998.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from sporax.base.identity import ByIdentity
from sporax.planner.cost.model import local_bytes
from sporax.planner.search.space.measured_plan import MeasuredPlan, measured_within
from sporax.planner.search.space.problem import Problem
from sporax.planner.search.space.resharding_cost import Floats
from sporax.planner.search.space.tensor_memory import weighted_bytes
from sporax.planner.solver.graph.core import Core
from sporax.planner.solver.graph.cost_graph import Ints
from sporax.planner.solver.graph.moments import Moments
from sporax.planner.solver.graph.network import Network
from sporax.planner.solver.portfolio.quick_choice import ball, redecided

_OPERATORS = 60_000
"""Operators of all measured plans together: measuring takes time in proportion to them."""
_FEWEST, _MOST = 4, 400
"""Plans that may be measured, whatever the size of the graph."""
_CANDIDATES = 3
"""Candidates of a decision that are measured in the first pass, the smallest ones."""
_LARGEST_REGION, _LEAST_REGION = 96, 2
"""Decisions of the largest regions and of the smallest."""
_OVERLAP = 4
"""Regions of one size that contain each decision, about: borders of one are inside another."""
_FULL = 0.9
"""Share of the limit from which an operator's bytes have a penalty."""
_WORTH = 1 - 1e-4
"""Share of the cost that a region must bring it below."""


def reduce_memory(
    problem: Problem, plan: MeasuredPlan, enough: int = 0, *, num_operators: int = _OPERATORS
) -> MeasuredPlan:
    """A plan that needs less memory than one that is known.

    Args:
        problem: the problem.
        plan: where to begin.
        enough: bytes that are little enough.
        num_operators: of all plans together that may be measured.
    """
    sizes, left = _sizes(problem), _num_plans(problem, num_operators)
    # First the few smallest candidates of each decision, then all others.
    for few in (_CANDIDATES, None):
        better = True
        while better:
            better = False
            for members in _equal_groups(problem, plan.chosen, sizes):
                for candidate in _others(problem, plan.chosen, members, sizes, few):
                    if left == 0 or plan.peak_bytes <= enough:
                        return plan
                    left -= 1
                    # In the first pass plans of equal peak are taken too: one of several moments that need the most may
                    # be gone.
                    allowed = plan.peak_bytes - (few is None)
                    fitted = measured_within(problem, _changed(plan.chosen, members, candidate), allowed)
                    if fitted is not None and fitted.peak_bytes <= enough:
                        return _with_fewest(problem, plan, members, fitted, enough)
                    if fitted is not None:
                        plan, better = fitted, True
                        break
    return plan


def _with_fewest(
    problem: Problem, plan: MeasuredPlan, members: Sequence[int], fitted: MeasuredPlan, enough: int
) -> MeasuredPlan:
    """`fitted`, or a plan of less cost that is small enough though only the first or the last of the members are changed."""
    best = fitted
    for ordered in (members, members[::-1]):
        least, most = 0, len(ordered)
        while most - least > 1:
            middle = (least + most) // 2
            part = measured_within(problem, _changed(plan.chosen, ordered[:middle], fitted.chosen[members[0]]), enough)
            least, most = (middle, most) if part is None else (least, middle)
            if part is not None and problem.seconds(part.chosen) < problem.seconds(best.chosen):
                best = part
    return best


def improved(problem: Problem, plan: MeasuredPlan, limit: int) -> MeasuredPlan:
    """A plan that fits and costs no more, in which no region is better decided otherwise.

    Args:
        problem: the problem.
        plan: where to begin; fits.
        limit: bytes of one device.
    """
    if "regions" not in problem.plans:
        problem.plans["regions"] = _Regions(problem)
    plan, left = _improved(problem, plan, limit, problem.plans["regions"], _num_plans(problem))
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
            self._by_size[size] = [self._with_neighbours(ball(self.core, start, size)) for start in starts]
        return self._by_size[size]

    def changes(self, chosen: Sequence[int], region: tuple[Ints, Ints]) -> _Changes:
        """What is chosen otherwise where the decisions of a region are decided again, all others being as they are."""
        free, near = region
        positions = np.array(chosen)
        key = free.tobytes(), positions[near].tobytes()
        if key not in self._known:
            new = redecided(self.core, positions, free)
            changed = np.flatnonzero(new != positions)
            self._known[key] = (*zip(changed.tolist(), new[changed].tolist(), strict=True),)
        return self._known[key]

    def _with_neighbours(self, free: Ints) -> tuple[Ints, Ints]:
        neighbours = {other for node in free.tolist() for other, _ in self.core.links[node]}
        return free, np.array(sorted(neighbours.union(free.tolist())))


def _num_plans(problem: Problem, num_operators: int = _OPERATORS) -> int:
    """How many plans may be measured: a count and no clock, so that all processes find the same."""
    return min(max(num_operators // max(len(problem.graph.operators), 1), _FEWEST), _MOST)


def _sizes(problem: Problem) -> list[Floats]:
    """For every decision the bytes of its tensors and of what it wants of others, per candidate."""
    sizes = []
    for choices in problem.choices:
        total = np.zeros(choices.count)
        # Bytes of what a decision makes and of what it asks of others: the second part is the resharded copies.
        for tensor, where in (*choices.tensor_placements.items(), *choices.wants):
            total += [local_bytes(problem.graph.tensors[tensor], placement, problem.mesh) for placement in where]
        sizes.append(total)
    return sizes


def _groups(problem: Problem, chosen: Sequence[int]) -> list[list[int]]:
    """Isomorphic decisions that are sharded equally, those of repeated layers; then each by itself."""
    equal: dict[tuple[ByIdentity, int], list[int]] = {}
    for number, (choices, candidate) in enumerate(zip(problem.choices, chosen, strict=True)):
        equal.setdefault((ByIdentity(choices.steps), candidate), []).append(number)
    # Together first: layers changed one at a time need resharding between them, which hides the gain.
    return [*(members for members in equal.values() if len(members) > 1), *([number] for number in range(len(chosen)))]


def _equal_groups(problem: Problem, chosen: Sequence[int], sizes: Sequence[Floats]) -> list[list[int]]:
    """Groups, those first that could save most."""

    def saving(members: list[int]) -> float:
        return -sum(float(sizes[member][chosen[member]] - sizes[member].min()) for member in members)

    return sorted(_groups(problem, chosen), key=saving)


def _others(
    problem: Problem, chosen: Sequence[int], members: Sequence[int], sizes: Sequence[Floats], few: int | None
) -> Iterator[int]:
    """Other candidates by size and cost: a few that are smaller than the chosen one, or all there are."""
    # All members are in the same state, so the first one speaks for them.
    mine = sizes[members[0]]
    others = np.flatnonzero(mine < mine[chosen[members[0]]] if few else np.arange(len(mine)) != chosen[members[0]])
    costs = _costs_of_changes(problem, chosen, members)
    order = sorted(others.tolist(), key=lambda entry: (mine[entry], costs[entry]))
    # An infinite cost means that some pair is forbidden; its plan would not exist.
    possible = (entry for entry in order if math.isfinite(problem.seconds(_changed(chosen, members, entry))))
    return islice(possible, few)


def _costs_of_changes(problem: Problem, chosen: Sequence[int], members: Sequence[int]) -> Floats:
    """[candidates] what a choice costs in which all members have that candidate, but for what does not change."""
    if "edges of decisions" not in problem.cache:
        links: list[list[int]] = [[] for _ in problem.costs]
        for number, (first, second, _) in enumerate(problem.edges):
            links[first].append(number)
            links[second].append(number)
        problem.cache["edges of decisions"] = links
    inside = {*members}
    total: Floats = np.sum([problem.costs[member] for member in members], axis=0)
    for number in dict.fromkeys(edge for member in members for edge in problem.cache["edges of decisions"][member]):
        first, second, table = problem.edges[number]
        if first in inside:
            total = total + (table.diagonal() if second in inside else table[:, chosen[second]])
        else:
            total = total + table[chosen[first]]
    return total


def _changed(chosen: Sequence[int], members: Sequence[int], candidate: int) -> list[int]:
    choice = [*chosen]
    for member in members:
        choice[member] = candidate
    return choice
