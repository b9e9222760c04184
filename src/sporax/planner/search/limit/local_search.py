"""Local search over measured plans: change one decision, or all equal decisions together, and measure the complete plan.

Problem: resharding adds memory that only the complete plan shows, so choices that a solver suggests may not fit.

Method: greedy descent, first towards less memory (`reduce_memory`), then towards less time within the same memory
(`reduce_cost`). The number of measured plans is a count and not a time limit, so all processes of a job find the same
plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sporax.base.identity import ByIdentity
from sporax.ir.plan import Plan
from sporax.planner.cost.model import local_bytes
from sporax.planner.memory.peak import MemoryUse, memory_of
from sporax.planner.search.limit.message_passing import CoordinateDescent
from sporax.planner.search.space.plan_assembly import plan_of
from sporax.planner.search.space.problem import Problem
from sporax.planner.search.space.resharding_cost import Floats

_OPERATORS = 60_000
"""Operators of all measured plans together: measuring takes time in proportion to them."""
_FEWEST, _MOST = 4, 400
"""Plans that may be measured, whatever the size of the graph."""
_CANDIDATES = 3
"""Candidates of a decision that are measured in the first pass, the smallest ones."""


@dataclass(frozen=True, slots=True)
class MeasuredPlan:
    """A choice and what its plan needs.

    Attributes:
        chosen: one candidate per decision.
        plan: the plan.
        memory: predicted memory of the plan.
        rounds: how often somebody had to decide.
    """

    chosen: list[int]
    plan: Plan
    memory: MemoryUse
    rounds: int

    @property
    def peak_bytes(self) -> int:
        """Predicted memory of one device."""
        return self.memory.peak_bytes


def measured(problem: Problem, choices: Sequence[int], rounds: int = 1) -> MeasuredPlan:
    """The plan of a choice, with its memory; further nodes of a graph with a limit say nothing new."""
    chosen = [int(choice) for choice in choices[: len(problem.costs)]]
    plan = plan_of(problem, chosen)
    return MeasuredPlan(chosen, plan, memory_of(problem.graph, plan), rounds)


def reduce_memory(problem: Problem, plan: MeasuredPlan, enough: int = 0) -> MeasuredPlan:
    """A plan that needs less memory than one that is known.

    Args:
        problem: the problem.
        plan: where to begin.
        enough: bytes that are little enough.
    """
    sizes, left = _sizes(problem), _num_plans(problem)
    # First the few smallest candidates of each decision, then all others.
    for few in (_CANDIDATES, None):
        better = True
        while better:
            better = False
            for members in _alike(problem, plan.chosen, sizes):
                for candidate in _others(problem, plan.chosen, members, sizes, few):
                    if left == 0 or plan.peak_bytes <= enough:
                        return plan
                    left -= 1
                    fitted = measured(problem, _changed(plan.chosen, members, candidate))
                    # In the first pass plans of equal peak are taken too.
                    level = few is not None and fitted.peak_bytes == plan.peak_bytes
                    if (
                        level or fitted.peak_bytes < plan.peak_bytes
                    ):  # one of several moments that need the most may be gone
                        plan, better = fitted, True
                        break
    return plan


def reduce_cost(problem: Problem, plan: MeasuredPlan, limit: int) -> MeasuredPlan:
    """A plan that costs less than one that fits, and fits as well.

    Args:
        problem: the problem.
        plan: where to begin.
        limit: bytes of one device.
    """
    descent, attempts = CoordinateDescent(problem), Attempts(problem, limit)
    better = True
    while better:
        better = False
        cost = problem.seconds(plan.chosen)
        for members, candidate in _savings(problem, descent, plan.chosen):
            fitted = attempts.cheaper(_changed(plan.chosen, members, candidate), cost)
            if fitted is not None:
                plan, better = fitted, True
                break
    return plan


class Attempts:
    """Choices that are measured, as many as may be.

    Args:
        problem: the problem.
        limit: bytes of one device.

    Attributes:
        left: how many more may be measured.
    """

    def __init__(self, problem: Problem, limit: int) -> None:
        self.problem, self.limit, self.left = problem, limit, _num_plans(problem)
        self._too_large: set[tuple[int, ...]] = set()

    def cheaper(self, chosen: list[int], cost: float) -> MeasuredPlan | None:
        """The plan of a choice, if that costs less than `cost` seconds and fits."""
        if self.left == 0 or tuple(chosen) in self._too_large or self.problem.seconds(chosen) >= cost:
            return None
        self.left -= 1
        fitted = measured(self.problem, chosen)
        if fitted.peak_bytes <= self.limit:
            return fitted
        self._too_large.add(tuple(chosen))
        return None


def _num_plans(problem: Problem) -> int:
    """How many plans may be measured: a count and no clock, so that all processes find the same."""
    return min(max(_OPERATORS // max(len(problem.graph.operators), 1), _FEWEST), _MOST)


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
    """Decisions that are alike and sharded equally, those of repeated layers; then each by itself."""
    alike: dict[tuple[ByIdentity, int], list[int]] = {}
    for number, (choices, candidate) in enumerate(zip(problem.choices, chosen, strict=True)):
        alike.setdefault((ByIdentity(choices.steps), candidate), []).append(number)
    # Together first: layers changed one at a time need resharding between them, which hides the gain.
    return [*(members for members in alike.values() if len(members) > 1), *([number] for number in range(len(chosen)))]


def _alike(problem: Problem, chosen: Sequence[int], sizes: Sequence[Floats]) -> list[list[int]]:
    """Groups, those first that could save most."""

    def saving(members: list[int]) -> float:
        return -sum(float(sizes[member][chosen[member]] - sizes[member].min()) for member in members)

    return sorted(_groups(problem, chosen), key=saving)


def _others(
    problem: Problem, chosen: Sequence[int], members: Sequence[int], sizes: Sequence[Floats], few: int | None
) -> list[int]:
    """Other candidates, the smallest first, of these the cheapest: a few that take less than the chosen one, or all there are."""
    # All members are in the same state, so the first one speaks for them.
    mine = sizes[members[0]]
    others = np.flatnonzero(mine < mine[chosen[members[0]]] if few else np.arange(len(mine)) != chosen[members[0]])
    costs = {other: problem.seconds(_changed(chosen, members, other)) for other in others.tolist()}
    # An infinite cost means that some pair is forbidden; its plan would not exist.
    possible = [candidate for candidate, cost in costs.items() if math.isfinite(cost)]
    return sorted(possible, key=lambda entry: (mine[entry], costs[entry]))[:few]


def _savings(problem: Problem, descent: CoordinateDescent, chosen: Sequence[int]) -> Iterator[tuple[list[int], int]]:
    """Groups and other candidates for them that seem to save time, those that save most first."""
    # Per decision alone, its neighbours as they are: only a guess for groups, whose members may be neighbours.
    gains = [descent.candidate_costs(node, chosen) for node in range(len(chosen))]
    gains = [
        candidate_costs - candidate_costs[candidate] for candidate_costs, candidate in zip(gains, chosen, strict=True)
    ]
    moves = []
    for members in _groups(problem, chosen):
        total = np.sum([gains[member] for member in members], axis=0)
        moves += [(float(total[entry]), members, entry) for entry in np.flatnonzero(total < 0).tolist()]
    yield from ((members, candidate) for _, members, candidate in sorted(moves))


def _changed(chosen: Sequence[int], members: Sequence[int], candidate: int) -> list[int]:
    choice = [*chosen]
    for member in members:
        choice[member] = candidate
    return choice
