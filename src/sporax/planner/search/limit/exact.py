"""The exact path to the plan of least cost within a memory limit: a solver, with what it cannot know reserved.

Problem: as in `limit`, with a lower bound on the cost of all plans that fit.

Method: the bound is that of a graph whose memory is the bytes of the arguments a(x), which every plan holds through the whole
step: min_x c(x) subject to a(x) <= L. Plans come of a graph with the bytes of the tensors (`tensor_memory`) as memory rows. A
plan of it is measured; with r_t >= 0 the bytes of the measured plan at operator t above those of its tensors,

    min_x c(x) subject to b_t(x) + r_t <= L at all t

is the next problem, until a round brings next to nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sporax.planner.budget import Budget
from sporax.planner.cost.model import local_bytes
from sporax.planner.search.limit.limit import fit, nothing_fits
from sporax.planner.search.space.measured_plan import MeasuredPlan, measured
from sporax.planner.search.space.problem import NANOSECONDS, Problem
from sporax.planner.search.space.tensor_memory import TickSpan, resident_usage
from sporax.planner.solver import CostGraph, Solution, solve
from sporax.planner.solver.graph.cost_graph import OPTIMALITY_TOLERANCE

_PROVING_SHARE = 0.4
"""Share of the solver's time for the bound; the rest is for plans."""
_ROUNDS = 3
"""Most problems with reserves."""
_WORTH = 0.99
"""Share of the cost that another round must reach."""

Bytes = NDArray[np.int64]
"""Of one device."""


def solve_within(
    problem: Problem, limit: int, budget: Budget, solver: Callable[..., Solution] = solve
) -> tuple[MeasuredPlan, Solution]:
    """The plan of least cost that fits of all that were found, and the solution of the problem that bounds them from below.

    The solution's bound holds for all plans that fit; one that costs no more is the best.

    Args:
        problem: the problem.
        limit: bytes of one device.
        budget: time for the solver, all rounds together.
        solver: `solve`, or a function with its parameters.

    Raises:
        SporaxRuntimeError: nothing fits; says what would.
    """
    graph = bounding_graph(problem, limit)
    # On a busy machine the graph alone may take all of the time.
    proof = solver(graph, seconds=max(budget.part(_PROVING_SHARE).seconds, 1.0))
    # The bounding graph may allow plans that are too large, so its choice is measured as well.
    plans = [] if proof.choices is None else _fitting(limit, measured(problem, proof.choices.tolist()))
    if plans and proof.optimal:
        return plans[0], proof
    quick = fit(problem, limit)
    plans += _fitting(limit, quick)
    if not plans:
        raise nothing_fits(limit, quick.memory)
    best, asked = min(plans, key=lambda entry: problem.seconds(entry.chosen)), 1
    reached = (1 + OPTIMALITY_TOLERANCE) * (proof.bound or 0.0) / problem.scale
    # The reserve of a plan that fits belongs to that plan: its neighbours need about as much.
    reserve = unmodelled_bytes(problem, best)
    while asked <= _ROUNDS and problem.seconds(best.chosen) > reached and not budget.is_over:
        asked += 1
        choices = solver(limited_graph(problem, limit, reserve), seconds=max(budget.left, 1.0)).choices
        if choices is None:
            break
        plan, before = measured(problem, choices.tolist()), problem.seconds(best.chosen)
        if plan.peak_bytes > limit:
            # The larger of both: without the earlier reserve, the earlier plan would come again.
            reserve = np.maximum(reserve, unmodelled_bytes(problem, plan))
            continue
        if problem.seconds(plan.chosen) < before:
            best, reserve = plan, unmodelled_bytes(problem, plan)
        if problem.seconds(plan.chosen) > _WORTH * before:
            break
    return replace(best, rounds=asked), proof


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


def _fitting(limit: int, plan: MeasuredPlan) -> list[MeasuredPlan]:
    return [plan] if plan.peak_bytes <= limit else []


def limited_graph(problem: Problem, limit: int, reserve: Bytes | None = None) -> CostGraph:
    """The problem for the solver, with a memory limit in bytes.

    A decision whose tensors live at different times gets one more node for every further span, tied to the first.

    Args:
        problem: the problem.
        limit: bytes of one device.
        reserve: [1 + operators + 1] bytes that are taken before the first operator, at each of them, and at the end.
    """
    costs = [costs_of.tolist() for costs_of in problem.costs]
    edges: list[tuple[int, int, object]] = [*problem.edges]
    usages: list[Sequence[int]] = [[0] * len(costs_of) for costs_of in costs]
    spans: list[TickSpan] = [(0, 0)] * len(costs)
    for node, pieces in enumerate(resident_usage(problem)):
        # Equal candidates for all nodes of one decision: the table forbids every other pair.
        same = np.full((len(costs[node]),) * 2, np.inf)
        np.fill_diagonal(same, 0.0)
        for number, (span, sizes) in enumerate(pieces.items()):
            if number == 0:
                usages[node], spans[node] = sizes, span
            else:
                edges.append((node, len(costs), same))
                costs.append([0.0] * len(sizes))
                usages.append(sizes)
                spans.append(span)
    # Reserved bytes are nodes with one strategy: the solver needs no other notion of a load that is there in any case.
    for span, size in _intervals(reserve):
        costs.append([0.0])
        usages.append([size])
        spans.append(span)
    return CostGraph.build(costs, usages, spans, edges, limit, "plan")  # type: ignore[arg-type]  # spans of one kind in this search


def _intervals(reserve: Bytes | None) -> Iterator[tuple[TickSpan, int]]:
    """When how much is reserved."""
    if reserve is None:
        return
    ends = [0, *(np.flatnonzero(np.diff(reserve)) + 1).tolist(), len(reserve)]
    for first, last in itertools.pairwise(ends):
        if reserve[first]:
            # Entry k + 1 of the reserve is operator k, which takes ticks 2k + 1 and 2k + 2; entry 0 is before the
            # first.
            yield (max(2 * first - 1, 0), 2 * last - 1), int(reserve[first])


def unmodelled_bytes(problem: Problem, fitted: MeasuredPlan) -> Bytes:
    """[1 + operators + 1] bytes of a plan above those of its tensors, r_t."""
    count = len(problem.graph.operators)
    # Ticks: 0, two for each operator, and those after the last one, see `_intervals`.
    taken = np.zeros(2 * count + 4, np.int64)
    for pieces, candidate in zip(resident_usage(problem), fitted.chosen, strict=True):
        for (begin, end), sizes in pieces.items():
            taken[begin] += sizes[candidate]
            taken[end] -= sizes[candidate]
    taken = np.cumsum(taken)
    # An operator has two ticks; the fuller one counts.
    at_operator = np.concatenate([taken[:1], taken[1 : 2 * count + 3].reshape(-1, 2).max(axis=1)])
    predicted = np.zeros(count + 2, np.int64)
    for position, uses in fitted.history:
        # From here on, until the next position sets it again: memory changes only at the positions listed.
        predicted[min(position + 1, count + 1) :] = sum(uses.values())
    rest: Bytes = np.maximum(predicted - at_operator, 0)
    return rest


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
