"""The plan of least cost within a memory limit, with a bound that holds for all plans that fit.

Problem: as in `limit`, with a lower bound on the cost of all plans that fit.

Method: the solver bounds a graph whose memory is the bytes of the arguments a(x), which every plan holds through the whole step:
min_x c(x) subject to a(x) <= L. Its choice is measured as a plan, next to what `limit` finds.
"""

from __future__ import annotations

import numpy as np

from sporax.planner.budget import Budget
from sporax.planner.cost.model import local_bytes
from sporax.planner.search.limit.limit import fit, nothing_fits
from sporax.planner.search.space.measured_plan import MeasuredPlan, measured
from sporax.planner.search.space.problem import NANOSECONDS, Problem
from sporax.planner.solver import CostGraph, Solution, solve
from sporax.planner.solver.graph.cost_graph import OPTIMALITY_TOLERANCE

_PROVING_SHARE = 0.4
"""Share of the time for the bound; the rest is for plans."""


def solve_within(problem: Problem, limit: int, budget: Budget, gap: float = 0.0) -> tuple[MeasuredPlan, Solution]:
    """The plan of least cost that fits of all that were found, and the solution of the problem that bounds them from below.

    The solution's bound holds for all plans that fit; one that costs no more is the best.

    Args:
        problem: the problem.
        limit: bytes of one device.
        budget: time for the solver and for plans.
        gap: relative gap of the solver that is good enough.

    Raises:
        SporaxRuntimeError: nothing fits; says what would.
    """
    # On a busy machine the graph alone may take all of the time.
    proof = solve(bounding_graph(problem, limit), seconds=max(budget.part(_PROVING_SHARE).seconds, 1.0), gap=gap)
    # The bounding graph may allow plans that are too large, so its choice is measured as well.
    proven = None if proof.choices is None else measured(problem, proof.choices.tolist())
    plans = [] if proven is None or proven.peak_bytes > limit else [proven]
    if not (plans and proof.optimal):
        quick = fit(problem, limit)
        plans += [quick] if quick.peak_bytes <= limit else []
        if not plans:
            raise nothing_fits(limit, quick.memory)
    return min(plans, key=lambda plan: problem.seconds(plan.chosen)), proof


def bounding_graph(problem: Problem, limit: int) -> CostGraph:
    """The problem with a memory limit in bytes that no plan breaks which keeps it: its memory are the arguments alone."""
    usages = [np.zeros(len(costs), np.int64) for costs in problem.costs]
    for argument in problem.graph.inputs:
        node, spec = problem.decisions.node_of[argument.tensor], problem.graph.tensors[argument.tensor]
        placements = problem.choices[node].tensor_placements[argument.tensor]
        usages[node] += [local_bytes(spec, where, problem.mesh) for where in placements]
    costs = [costs.tolist() for costs in problem.costs]
    spans = [(0, 1)] * len(costs)
    return CostGraph.build(costs, [usage.tolist() for usage in usages], spans, problem.edges, limit, "plan")


def bound_below(cost: float, bound: float | None, scale: float = NANOSECONDS) -> float | None:
    """A solver's bound in seconds, if the plan that was found does not refute it.

    A solver's arithmetic rounds, and so may carry a bound above the cost of a plan that is there.

    Args:
        cost: of the plan, in seconds.
        bound: of the solver.
        scale: what a second counts there.
    """
    # A bound above a plan that exists is no bound; it is dropped instead of being shown.
    if bound is None or bound / scale > cost * (1 + OPTIMALITY_TOLERANCE):
        return None
    return min(bound / scale, cost)
