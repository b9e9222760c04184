"""Sharding propagation: start from a few decided operators and extend to their neighbours.

Problem: a plan from few user strategies, as MindSpore's mode `sharding_propagation` does it.

Method: seeds are the placements and strategies of the user. Without seeds, or if only inputs have placements, several
automatic seeds are tried and the best plan is kept: data sharded by batch, and the shardings of the heaviest operators
(MindSpore has one automatic seed, and so the same plan for tall and for narrow networks). Every newly reached decision
takes its candidate of least cost given its neighbours. Then decisions are improved one by one until none changes. Message
passing over the whole graph is one more attempt. If the plan does not fit the memory, the search runs again with exact
resharding costs and Lagrange multipliers of memory.

Reference: Y. Xu et al., "GSPMD: general and scalable parallelization for ML computation graphs", arXiv:2105.04663.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np

from sporax.base.identity import ByIdentity
from sporax.ir.graph import Role
from sporax.planner.budget import Budget
from sporax.planner.rules import local_flops, unsharded
from sporax.planner.search.limit.limit import least_cost
from sporax.planner.search.space.problem import Problem, ProblemBuilder
from sporax.planner.search.space.resharding_cost import Floats
from sporax.planner.search.task import Finding, SearchTask

Seeding = dict[int, int]
"""A candidate for some decisions."""

_HEAVIEST = 2
"""Kinds of operators whose shardings are tried as seeds, the heaviest ones."""
_SHARDINGS = 6
"""Shardings of each of them that are tried, the fastest ones."""


def from_seeds(task: SearchTask) -> Finding:
    """A choice that spreads from seeds; nothing is proven.

    Args:
        task: placements in `fixed` and `assignments` are the seeds; when its time is over, no more seeds are tried.
    """
    # The quick costs are enough for most plans; exact ones are worth their time when memory is short.
    return _search_from_seeds(task.builder(approximate=True, memory_aside=True), task.budget)


def from_seeds_within(task: SearchTask, found: Finding, limit: int) -> Finding:
    """The same by exact costs, within the task's limit."""
    del found, limit
    return _search_from_seeds(task.builder(), task.budget)


def _search_from_seeds(builder: ProblemBuilder, budget: Budget) -> Finding:
    problem = builder.build()
    descent = CoordinateDescent(problem)
    pinned = _fixed(problem)
    plans: list[list[int]] = []
    for seeding in _seedings(problem, pinned):
        if not plans or not budget.is_over:
            plans.append(_spread(descent, seeding, frozenset(pinned)))
    # Exact costs at the end, so that the result can be compared with those of other searches.
    final = builder.costed(problem.bases(least_cost(problem, plans)))
    return Finding(final, [0] * len(final.costs), None, {**problem.statistics(), "seedings": len(plans)})


def _spread(descent: CoordinateDescent, seeding: Seeding, stays: frozenset[int]) -> list[int]:
    """One candidate per decision: from the seeds to neighbours of neighbours, and again from decisions that were not reached.

    Args:
        descent: the decisions and their neighbours.
        seeding: where to begin.
        stays: seeds that are the user's and stay.
    """
    chosen = [-1] * len(descent.costs)
    for node, candidate in seeding.items():
        chosen[node] = candidate
    reached = dict.fromkeys(seeding)
    # Decisions that no seed reaches start spreading by themselves, in the order of the program.
    for start in (*seeding, *range(len(chosen))):
        # Breadth first, so that decisions near a seed are taken before those far away.
        waiting = deque([start] if start not in reached or start in seeding else ())
        reached[start] = None
        while waiting:
            node = waiting.popleft()
            if chosen[node] < 0:
                chosen[node] = int(descent.candidate_costs(node, chosen).argmin())
            fresh = dict.fromkeys(other for other, *_ in descent.links[node] if other not in reached)
            waiting.extend(fresh)
            reached.update(fresh)
    descent.improve(chosen, stays)
    return chosen


def _seedings(problem: Problem, pinned: Seeding) -> Iterator[Seeding]:
    """The user's seeds; with automatic seeds as well if the user gives placements of inputs only."""
    arguments = {argument.tensor for argument in problem.graph.inputs}
    # Given inputs say little about the rest of the network, pinned operators say enough.
    if arguments.issuperset(problem.options.fixed) and not problem.options.assignments:
        yield from ({**seeding, **pinned} for seeding in _automatic(problem))
    else:
        yield pinned


def _fixed(problem: Problem) -> Seeding:
    """Decisions on tensors whose placement is pinned; they have one candidate."""
    nodes = problem.decisions.nodes
    fixed = problem.options.fixed.keys() - problem.options.free.keys()
    return {number: 0 for number, node in enumerate(nodes) if node.root in fixed and not node.is_relay}


def _automatic(problem: Problem) -> Iterator[Seeding]:
    """Seedings to try: data by batch, nothing at all, and the fastest shardings of the heaviest operators."""
    yield _by_batch(problem)
    yield {}
    tried: set[object] = set()
    for number in heaviest_first(problem):
        choices = problem.choices[number]
        # Layers that repeat share their steps, so one of them stands for all.
        kind = ByIdentity(choices.steps)
        if kind in tried:
            continue
        tried.add(kind)
        if len(tried) > _HEAVIEST:
            return
        # A stable order, so that all processes try the same seeds.
        for candidate in choices.seconds.argsort(kind="stable")[:_SHARDINGS].tolist():
            yield {number: candidate}


def _by_batch(problem: Problem) -> Seeding:
    """Data sharded along its first dimension as far as it goes."""
    seeding: Seeding = {}
    for argument in problem.graph.inputs:
        if argument.role is not Role.DATA or not problem.graph.tensors[argument.tensor].num_dims:
            continue
        number = problem.decisions.node_of[argument.tensor]
        assignments = [
            # Placements that shard another dimension as well do not count as batch-parallel.
            len(where.dims[0]) if where.used == {*where.dims[0]} else -1
            for where in problem.choices[number].placements
        ]
        seeding[number] = int(np.argmax(assignments))
    return seeding


def heaviest_first(problem: Problem) -> list[int]:
    """Decisions of heavy operators by their arithmetic."""

    def flops(number: int) -> float:
        producer = problem.decisions.nodes[number].producer
        rule = problem.rule(producer)
        return problem.graph.operators[producer].times * local_flops(rule, unsharded(rule), problem.mesh)

    heavy = [number for number, node in enumerate(problem.decisions.nodes) if not node.is_bundle]
    return sorted(heavy, key=lambda number: -flops(number))


class CoordinateDescent:
    """Coordinate descent on a problem: each decision takes the candidate that costs least next to its neighbours.

    x_i <- argmin_a c_i(a) + sum_j t_ij(a, x_j), and min_b t_ij(a, b) for neighbours j that are open
    """

    def __init__(self, problem: Problem) -> None:
        self.costs = problem.costs
        self.links: list[list[tuple[int, Floats, Floats]]] = [[] for _ in problem.costs]
        # With the minima over the neighbour, which spreading reads again and again.
        for first, second, table in problem.edges:
            self.links[first].append((second, table, table.min(axis=1)))
            self.links[second].append((first, table.T, table.min(axis=0)))

    def candidate_costs(self, node: int, chosen: Sequence[int]) -> Floats:
        """Cost of each candidate next to its neighbours; those that are open (-1) are taken to agree."""
        candidate_costs = self.costs[node].copy()
        for other, table, least in self.links[node]:
            # An open neighbour will take what suits it best, so its minimum is the fair guess.
            candidate_costs += least if chosen[other] < 0 else table[:, chosen[other]]
        return candidate_costs

    def improve(self, chosen: list[int], fixed: frozenset[int] = frozenset()) -> None:
        """Change `chosen` in place until no decision improves; those in `fixed` stay."""
        waiting = dict.fromkeys(node for node in range(len(chosen)) if node not in fixed)
        while waiting:
            node = next(iter(waiting))
            del waiting[node]
            candidate_costs = self.candidate_costs(node, chosen)
            best = int(candidate_costs.argmin())
            # An improvement within rounding could alternate between two candidates for ever.
            if candidate_costs[best] < candidate_costs[chosen[node]] * (1 - 1e-12):
                chosen[node] = best
                waiting.update(dict.fromkeys(other for other, *_ in self.links[node] if other not in fixed))
