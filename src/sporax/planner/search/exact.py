"""The exact searches: the plan of least predicted time, with a proof or a bound.

Problem: min_x c(x) over all plans x, and with a memory limit over those that fit.

Method: `by_elimination` removes decisions with few neighbours and candidates that cannot be optimal
(`planner.solver.graph.reductions`) and eliminates the rest with larger tables (`bucket_elimination`); where a table would be too
large, messages give a bound and a choice, and where these differ an integer program decides
(`planner.solver.portfolio.quick_choice`). `by_program` gives the problem to the cost-graph solver.

If that plan does not fit (`proven_within`), the solver bounds a graph whose memory is the bytes of the arguments a(x), which
every plan holds through the whole step: min_x c(x) subject to a(x) <= L. The bound holds for all plans that fit. The choice is
measured as a plan, next to what `limit` finds.
"""

from __future__ import annotations

import numpy as np

from sporax.base.errors import SporaxRuntimeError
from sporax.planner.budget import Budget
from sporax.planner.cost.model import local_bytes
from sporax.planner.search.limit.limit import fit, nothing_fits
from sporax.planner.search.space.measured_plan import MeasuredPlan, measured
from sporax.planner.search.space.problem import Problem
from sporax.planner.search.task import Finding, SearchTask, bound_below
from sporax.planner.solver import CostGraph, Solution, solve
from sporax.planner.solver.graph.core import Core
from sporax.planner.solver.graph.cost_graph import Moments
from sporax.planner.solver.graph.network import Network
from sporax.planner.solver.graph.reductions import reduce
from sporax.planner.solver.portfolio.quick_choice import LARGEST_TABLE, choose, decide

SECONDS = 60.0
"""Most of the time for the solver, and for what elimination leaves over."""
_FREE_SHARE = 0.5
"""Most of the time that the solver may take without a limit; the rest is for plans that fit."""
MEMORY_SECONDS = 20.0
"""Time of `dynamic` for a plan that fits the memory."""


def by_program(task: SearchTask) -> Finding:
    """The choice of an integer program: proven, or the best found in time with a bound.

    Args:
        task: its time is the solver's, a minute at most.
    """
    problem, is_limited, built = task.problem, task.options.memory_bytes is not None, task.clock.used
    budget = task.budget.at_most(SECONDS)
    graph = problem.cost_graph()
    solution = solve(graph, seconds=_FREE_SHARE * budget.left if is_limited else budget.left)
    if solution.choices is None and not is_limited:
        raise SporaxRuntimeError(
            f"For 'ilp', {round(budget.seconds, 3)} seconds must be enough to find a plan, but none was found."
        )
    # Within a limit another search follows, so any choice will do where the solver had no time for one.
    chosen = choose(graph) if solution.choices is None else solution.choices.tolist()
    bound = bound_below(problem.seconds(chosen), solution.bound, problem.scale)
    statistics = {**solution.statistics, **problem.statistics(), "build_seconds": built}
    return Finding(problem, chosen, bound, statistics, budget=budget)


def by_elimination(task: SearchTask, largest_table: int = LARGEST_TABLE) -> Finding:
    """The choice of least cost.

    Args:
        task: its time is for what elimination leaves over, a minute at most.
        largest_table: entries of the largest table that elimination may make.
    """
    problem = task.problem
    graph = problem.cost_graph()
    core = Core.of(reduce(Network.of(graph, Moments.of(graph.intervals))))
    decision = decide(core, task.budget.at_most(SECONDS), largest_table, task.options.epsilon)
    statistics = {
        **problem.statistics(),
        "reduced": len(problem.costs) - core.num_nodes,
        "core_nodes": core.num_nodes,
        **decision.statistics,
    }
    bound = decision.bound / problem.scale if decision.bound > -np.inf else None
    return Finding(problem, core.expand(decision.positions).tolist(), bound, statistics)


def proven_within(
    task: SearchTask, found: Finding, limit: int, seconds: float = SECONDS, takes_epsilon: bool = False
) -> Finding:
    """A choice that fits, and the higher of two bounds: that of all plans, and that of those that fit.

    Args:
        seconds: most of the time.
        takes_epsilon: the proof may leave the task's `epsilon` open.
    """
    budget = (found.budget or task.budget).at_most(seconds)
    plan, proof = solve_within(found.problem, limit, budget, task.options.epsilon if takes_epsilon else 0.0)
    within = bound_below(found.problem.seconds(plan.chosen), proof.bound, found.problem.scale)
    bound = max((bound for bound in (found.bound, within) if bound is not None), default=None)
    statistics = {**found.statistics, "method": f"{proof.statistics['method']} for memory"}
    return Finding(found.problem, plan.chosen, bound, statistics)


_PROVING_SHARE = 0.4
"""Share of the time for the bound; the rest is for plans."""


def solve_within(problem: Problem, limit: int, budget: Budget, gap: float = 0.0) -> tuple[MeasuredPlan, Solution]:
    """The plan of least cost that fits of all that were found, and the solution of the problem that bounds them from below.

    The solution's bound holds for all plans that fit; one that costs no more is the best.

    Args:
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
            raise nothing_fits(limit, quick.profile.memory)
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
