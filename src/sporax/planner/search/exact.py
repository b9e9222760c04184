"""The exact searches: the plan of least predicted time, with a proof or a bound.

Problem: min_x c(x) over all plans x, and with a memory limit over those that fit.

Method: both search without the limit first: most plans of least time fit, and the limit takes longer. `dynamic` removes decisions
with few neighbours and candidates that cannot be optimal (`planner.solver.graph.reductions`) and eliminates the rest with larger
tables (`bucket_elimination`); where a table would be too large, messages give a bound and a choice, and where these differ an
integer program decides (`planner.solver.portfolio.quick_choice`). `ilp` gives the problem to the cost-graph solver.

If that plan does not fit, the solver bounds a graph whose memory is the bytes of the arguments a(x), which every plan holds
through the whole step: min_x c(x) subject to a(x) <= L. The bound holds for all plans that fit. The choice is measured
as a plan, next to what `limit` finds.
"""

from __future__ import annotations

import math
from operator import itemgetter

import numpy as np

from sporax.base.errors import SporaxRuntimeError
from sporax.planner.budget import Budget
from sporax.planner.cost.model import local_bytes
from sporax.planner.memory.peak import backend_of, memory_of
from sporax.planner.search.limit.limit import fit, nothing_fits
from sporax.planner.search.recursive import one_axis_after_another
from sporax.planner.search.space.measured_plan import MeasuredPlan, measured
from sporax.planner.search.space.problem import NANOSECONDS, Problem, SearchResult
from sporax.planner.search.task import SearchTask, searches
from sporax.planner.solver import CostGraph, Solution, solve
from sporax.planner.solver.graph.core import Core
from sporax.planner.solver.graph.cost_graph import OPTIMALITY_TOLERANCE, Moments
from sporax.planner.solver.graph.network import Network
from sporax.planner.solver.graph.reductions import reduce
from sporax.planner.solver.portfolio.quick_choice import LARGEST_TABLE, decide

SECONDS = 60.0
"""Most of the time for the solver, and for what elimination leaves over."""
_FREE_SHARE = 0.5
"""Most of the time that the question without a limit may take; the rest is for plans that fit."""


@searches
def ilp(task: SearchTask) -> SearchResult:
    """The plan of least predicted time, proven, or the best found in time with a bound.

    Args:
        task: its time is the solver's, a minute at most.
    """
    problem, options = task.builder().build(), task.options
    built = task.clock.used
    best, solution = _solve(problem, task.budget.at_most(SECONDS))
    plan, cost = best.plan, problem.seconds(best.chosen)
    bound = bound_below(cost, solution.bound, problem.scale)
    # A quick search may have met another plan; the better one is kept, and the bound holds for both.
    is_proven = bound is not None and cost <= bound * (1 + OPTIMALITY_TOLERANCE)
    if options.memory_bytes is not None and not is_proven:
        quick = one_axis_after_another(task, full=problem)
        plan, cost = min(((plan, cost), (quick.plan, quick.cost_seconds)), key=itemgetter(1))
        bound = bound_below(cost, solution.bound, problem.scale)
    statistics = {
        **solution.statistics,
        **problem.statistics(),
        "build_seconds": built,
        "peak_bytes": memory_of(task.graph, plan, backend=backend_of(options.platform)).peak_bytes,
    }
    return task.result("ilp", plan, cost, statistics, bound)


def _solve(problem: Problem, budget: Budget) -> tuple[MeasuredPlan, Solution]:
    """The best plan that was found, and a solution whose bound holds for all plans.

    The plan of least cost of all may fit. Where it does not, its cost is still a bound.
    """
    limit, seconds = problem.options.memory_bytes, budget.left
    free = solve(problem.cost_graph(), seconds=seconds if limit is None else _FREE_SHARE * seconds)
    best = None if free.choices is None else measured(problem, free.choices.tolist())
    if best is not None and (limit is None or best.peak_bytes <= limit):
        return best, free
    if limit is None:
        raise SporaxRuntimeError(
            f"For 'ilp', {round(budget.seconds, 3)} seconds must be enough to find a plan, but none was found."
        )
    best, within = solve_within(problem, limit, budget)
    # Both bounds hold for all plans that fit; the higher one says more.
    return best, max(free, within, key=lambda entry: -math.inf if entry.bound is None else entry.bound)


MEMORY_SECONDS = 20.0
"""Time for a plan that fits the memory."""


@searches
def dynamic(task: SearchTask, largest_table: int = LARGEST_TABLE) -> SearchResult:
    """The plan of least predicted time.

    Args:
        task: its time is for what elimination leaves over, a minute at most, and `MEMORY_SECONDS` at most for a plan that fits.
        largest_table: entries of the largest table that elimination may make.
    """
    options, budget = task.options, task.budget
    problem = task.builder().build()
    graph = problem.cost_graph()
    core = Core.of(reduce(Network.of(graph, Moments.of(graph.intervals))))
    decision = decide(core, budget.at_most(SECONDS), largest_table, options.epsilon)
    plan = measured(problem, [int(entry) for entry in core.expand(decision.positions)])
    bound, statistics = decision.bound, decision.statistics
    limit = options.memory_bytes
    # The limit is looked at only now: most plans of least time fit, and elimination with memory takes far longer.
    if limit is not None and plan.peak_bytes > limit:
        plan, solution = solve_within(problem, limit, budget.at_most(MEMORY_SECONDS), gap=options.epsilon)
        # A bound for all plans that fit may be above the free bound, which holds for all plans whatever they need.
        within = bound_below(problem.seconds(plan.chosen), solution.bound, problem.scale)
        bound = max(bound, -np.inf if within is None else within * problem.scale)
        statistics = {**statistics, "method": f"{solution.statistics['method']} for memory"}
    cost = problem.seconds(plan.chosen)
    facts: dict[str, int | float | str] = {
        **problem.statistics(),
        "reduced": len(problem.costs) - core.num_nodes,
        "core_nodes": core.num_nodes,
        **statistics,
        "peak_bytes": plan.peak_bytes,
    }
    return task.result("dynamic", plan.plan, cost, facts, bound / problem.scale if bound > -np.inf else None)


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
