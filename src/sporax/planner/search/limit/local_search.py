"""Local searches over measured plans: to smaller ones (`reduce_memory`), and to ones of less cost within a limit (`improved`).

Problem: bytes of resharding show only in the complete plan, so a plan that the Lagrangian loop suggests may be too large, or
smaller than it needs to be and then too expensive. It has thousands of neighbours, and to measure one takes milliseconds.

Method: `reduce_memory` looks at choices that differ from x in one decision, or in all decisions that are equal in x. First the
decisions whose tensors could save most get their smallest candidates, as long as the peak does not grow. Then the peak leads. Let
the plan have tensor t at placement q there, with s_tq bytes, and let s_t(k) be its bytes where candidate k of decision i has it.
The gain of a candidate,

    g_i(k) = sum_tq (s_tq - s_t(k)) over all that decision i makes, or reads, at q,

is what it saves if the decisions near it follow. The search goes to the first neighbour, in the order of gains, with a smaller
peak, or with as large a one at fewer operators: equal layers reach it one after another. Candidates without a gain come last,
since another layout of equal size may save a copy. Of equal decisions the last step changes only as many as it takes.

`improved` decides a region R of neighbouring decisions again, all others as they are,

    min c(y) + p b(y) over all y with y_i = x_i for i not in R,

and goes to y where c(y) < c(x) and the plan of y fits; b(y) is the mean of the bytes at the operators where x nearly fills the
limit. First p = 0; then bytes have a penalty, so that what costs less than x is found where the least cost does not fit.
Large regions come first: they change decisions that no single one can change.

How many plans are measured is a count and no time, so all processes of a job find the same plan.

References: F. Glover and M. Laguna, "Tabu Search", 1997, section 3.2: candidate lists, of which the first better one is taken;
P. Shaw, "Using constraint programming and local search methods to solve vehicle routing problems", CP 1998.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np

from sporax.base.identity import ByIdentity
from sporax.ir.placement import Placement
from sporax.planner.cost.model import local_bytes
from sporax.planner.search.space.measured_plan import (
    MOST_PLANS,
    MeasuredPlan,
    measured_within,
    num_plans,
    weighted_bytes,
)
from sporax.planner.search.space.problem import Problem
from sporax.planner.search.space.resharding_cost import Floats
from sporax.planner.solver.graph.core import Core
from sporax.planner.solver.graph.cost_graph import Ints, Moments
from sporax.planner.solver.graph.network import Network
from sporax.planner.solver.portfolio.quick_choice import neighborhood_order, reoptimized

_OPERATORS = 60_000
"""Operators of all measured plans together: measuring takes time in proportion to them."""
_MORE = 100
"""As many operators are measured in the time that a plan takes anyway."""
_UNLED = 1 / 3
"""Share of the plans that may be measured before the peak leads."""
_CANDIDATES = 3
"""Candidates of a decision that are measured until then, the smallest ones."""

_Neighbours = Iterator[tuple[list[int], int]]
"""Decisions that are equal, and a candidate for all of them."""


def reduce_memory(
    problem: Problem, plan: MeasuredPlan, target_bytes: int = 0, *, num_operators: int = _OPERATORS, led: bool = True
) -> MeasuredPlan:
    """A plan that needs less memory than one that is known.

    Args:
        target_bytes: bytes that are little enough.
        num_operators: of all plans together that may be measured.
        led: let the peak lead; without it, sizes do so to the end, on a longer way that ends at other plans.
    """
    return _reduced(problem, plan, target_bytes, num_plans(problem, num_operators), led)[0]


def smallest_of(problem: Problem, starts: Iterable[MeasuredPlan], target_bytes: int = 0) -> MeasuredPlan:
    """The smallest plan that is found from any of several, one after another while plans may be measured.

    A start is left when half of them were measured without success: other starts lead elsewhere.

    Args:
        starts: where to begin; one at least.
        target_bytes: bytes that are little enough.
    """
    most, found = num_plans(problem, _OPERATORS), list[MeasuredPlan]()
    left = max(_OPERATORS // (len(problem.graph.operators) + _MORE), most)
    for start in starts:
        plan, used = _reduced(problem, start, target_bytes, min(most, left), patience=max(most // 2, 1))
        found.append(plan)
        left -= used
        if left <= 0 or plan.peak_bytes <= target_bytes:
            break
    return min(found, key=lambda plan: plan.peak_bytes)


def _reduced(
    problem: Problem, plan: MeasuredPlan, target_bytes: int, most: int, led: bool = True, patience: int = MOST_PLANS
) -> tuple[MeasuredPlan, int]:
    """`reduce_memory` with so many plans, and no more than `patience` without success; how many were measured, too."""
    smallest = partial(_by_size, few=_CANDIDATES)
    plan, used = _descended(problem, plan, target_bytes, smallest, math.ceil(_UNLED * most), patience, level=True)
    if plan.peak_bytes <= target_bytes:
        return plan, used
    plan, more = _descended(problem, plan, target_bytes, _by_gain if led else _by_size, most - used, patience)
    return plan, used + more


def _descended(
    problem: Problem,
    plan: MeasuredPlan,
    target_bytes: int,
    neighbours: Callable[[Problem, MeasuredPlan], _Neighbours],
    most: int,
    patience: int,
    level: bool = False,
) -> tuple[MeasuredPlan, int]:
    """From neighbour to neighbour, to one that is small enough or to where no one is better; how many were measured, too.

    Args:
        neighbours: of a plan, in the order in which they are measured.
        most: plans that may be measured.
        patience: how many one after another may be no better.
        level: take those whose peak is as large, too.
    """
    tried, since, better = set[tuple[int, ...]](), 0, True
    while better:
        better = False
        for members, candidate in neighbours(problem, plan):
            if len(tried) == most or len(tried) - since == patience or plan.peak_bytes <= target_bytes:
                break
            chosen = _changed(plan.chosen, members, candidate)
            # An infinite cost means that some pair is forbidden; its plan would not exist.
            if tuple(chosen) in tried or not math.isfinite(problem.seconds(chosen)):
                continue
            tried.add(tuple(chosen))
            found = measured_within(problem, chosen, plan.peak_bytes)
            if found is not None and found.peak_bytes <= target_bytes:
                return _with_fewest(problem, plan, members, found, target_bytes), len(tried)
            if found is not None and (level or _extent(found) < _extent(plan)):
                plan, better, since = found, True, len(tried)
                break
    return plan, len(tried)


def _extent(plan: MeasuredPlan) -> tuple[int, int]:
    """The peak, and at how many operators it is reached."""
    return plan.peak_bytes, sum(sum(uses.values()) == plan.peak_bytes for _, uses in plan.profile.history)


def _with_fewest(
    problem: Problem, plan: MeasuredPlan, members: Sequence[int], fitted: MeasuredPlan, target_bytes: int
) -> MeasuredPlan:
    """`fitted`, or a plan of less cost that is small enough though only the first or the last of the members are changed."""
    best = fitted
    for ordered in (members, members[::-1]):
        least, most = 0, len(ordered)
        while most - least > 1:
            middle = (least + most) // 2
            part = measured_within(
                problem, _changed(plan.chosen, ordered[:middle], fitted.chosen[members[0]]), target_bytes
            )
            least, most = (middle, most) if part is None else (least, middle)
            if part is not None and problem.seconds(part.chosen) < problem.seconds(best.chosen):
                best = part
    return best


# ----------------------------------------------------------------------------------------------------------- neighbours


def _by_size(problem: Problem, plan: MeasuredPlan, few: int | None = None) -> _Neighbours:
    """Decisions, those first that could save most whenever their tensors are there, and their candidates by size and cost.

    Args:
        plan: whose neighbours.
        few: only so many of the candidates that are smaller than the chosen one.
    """
    sizes = _sizes(problem)

    def saving(members: list[int]) -> float:
        return sum(float(sizes[member][plan.chosen[member]] - sizes[member].min()) for member in members)

    for members in sorted(_groups(problem, plan.chosen), key=saving, reverse=True):
        # All members are in the same state, so the first one speaks for them.
        mine, now, costs = sizes[members[0]], plan.chosen[members[0]], _costs_of_changes(problem, plan.chosen, members)
        others = (mine < mine[now] if few else np.arange(len(mine)) != now) & np.isfinite(costs)
        ordered = sorted(np.flatnonzero(others).tolist(), key=lambda entry: (mine[entry], costs[entry]))
        yield from ((members, candidate) for candidate in ordered[:few])


def _by_gain(problem: Problem, plan: MeasuredPlan) -> _Neighbours:
    """All candidates, those of most gain first; of equal gain those of least cost."""
    gains, groups = _gains(problem, plan), _groups(problem, plan.chosen)
    ranked = []
    for number, members in enumerate(groups):
        at_peak = [gains[member] for member in members if member in gains]
        gain = np.max(at_peak, axis=0) if at_peak else np.full(len(problem.costs[members[0]]), -np.inf)
        ranked += [
            (-value, len(members) == 1, number, candidate)
            for candidate, value in enumerate(gain.tolist())
            if candidate != plan.chosen[members[0]]
        ]
    for (_, _, number), entries in itertools.groupby(sorted(ranked), key=lambda entry: entry[:3]):
        candidates = [candidate for *_, candidate in entries]
        if len(candidates) > 1:
            costs = _costs_of_changes(problem, plan.chosen, groups[number])
            candidates.sort(key=costs.__getitem__)
        yield from ((groups[number], candidate) for candidate in candidates)


def _gains(problem: Problem, plan: MeasuredPlan) -> dict[int, Floats]:
    """For decisions that make something that is there at the peak, or read it, the gain [candidates]."""
    gains: dict[int, Floats] = {}
    origin, placements = problem.decisions.origin, _placements_by_tensor(problem)
    for (tensor, where), num_bytes in plan.profile.at_peak:
        for number, candidates, sizes in placements.get(origin[tensor], ()):
            if candidates[plan.chosen[number]] == where:
                gains[number] = gains.get(number, 0.0) + (num_bytes - sizes)
    return gains


_ByTensor = dict[int, list[tuple[int, Sequence[Placement], Floats]]]


def _placements_by_tensor(problem: Problem) -> _ByTensor:
    """For every tensor the decisions that make it or read it, with its placement and its bytes per candidate; cached."""

    def make() -> _ByTensor:
        found: _ByTensor = {}
        for number, choices in enumerate(problem.choices):
            # What a decision makes, and what it reads of others: the second part is the resharded copies.
            for tensor, where in (*choices.tensor_placements.items(), *choices.wants):
                spec = problem.graph.tensors[tensor]
                sizes = np.array([local_bytes(spec, placement, problem.mesh) for placement in where], np.float64)
                found.setdefault(tensor, []).append((number, where, sizes))
        return found

    return problem.cached("placements by tensor", make)


def _sizes(problem: Problem) -> list[Floats]:
    """For every decision the bytes of all that it makes and reads [candidates]."""
    sizes: list[Floats] = [np.zeros(choices.count) for choices in problem.choices]
    for entries in _placements_by_tensor(problem).values():
        for number, _, num_bytes in entries:
            sizes[number] += num_bytes
    return sizes


def _groups(problem: Problem, chosen: Sequence[int]) -> list[list[int]]:
    """Isomorphic decisions that are sharded equally, those of repeated layers; then each by itself."""
    equal: dict[tuple[ByIdentity, int], list[int]] = {}
    for number, (choices, candidate) in enumerate(zip(problem.choices, chosen, strict=True)):
        equal.setdefault((ByIdentity(choices.steps), candidate), []).append(number)
    # Together first: layers changed one at a time need resharding between them, which hides the gain.
    return [*(members for members in equal.values() if len(members) > 1), *([number] for number in range(len(chosen)))]


def _costs_of_changes(problem: Problem, chosen: Sequence[int], members: Sequence[int]) -> Floats:
    """[candidates] what a choice costs in which all members have that candidate, but for what does not change."""
    links, inside = problem.cached("edges of decisions", lambda: _links(problem)), {*members}
    total: Floats = np.sum([problem.costs[member] for member in members], axis=0)
    for number in dict.fromkeys(edge for member in members for edge in links[member]):
        first, second, table = problem.edges[number]
        if first in inside:
            total = total + (table.diagonal() if second in inside else table[:, chosen[second]])
        else:
            total = total + table[chosen[first]]
    return total


def _links(problem: Problem) -> list[list[int]]:
    """The edges of each decision, by number."""
    links: list[list[int]] = [[] for _ in problem.costs]
    for number, (first, second, _) in enumerate(problem.edges):
        links[first].append(number)
        links[second].append(number)
    return links


def _changed(chosen: Sequence[int], members: Sequence[int], candidate: int) -> list[int]:
    choice = [*chosen]
    for member in members:
        choice[member] = candidate
    return choice


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
    full = [operator for operator, uses in plan.profile.history if sum(uses.values()) > _FULL * limit]
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

    That depends on a region and its neighbours alone, so the answers are remembered: most regions come again when
    nothing near them has changed.
    """

    def __init__(self, problem: Problem) -> None:
        graph = problem.cost_graph()
        self.core = Core.of(Network.of(graph, Moments.of(graph.intervals)))
        self._by_size: dict[int, list[tuple[Ints, Ints]]] = {}
        self._known: dict[tuple[bytes, bytes], _Changes] = {}

    def of(self, size: int) -> list[tuple[Ints, Ints]]:
        """Neighborhoods of decisions that are spread evenly, and each with its neighbours."""
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
