"""The search under a memory limit.

The solver knows what each decision's tensors take and from when to when; what transfers add shows only in the finished plan.
So plans are measured, and where one is too large the solver gets as much less as it was too much.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sporax.ir.errors import SporaxRuntimeError
from sporax.ir.plan import Plan
from sporax.planner.cost.model import local_bytes
from sporax.planner.memory import lives, memory_of
from sporax.planner.search.assemble import plan_of
from sporax.planner.search.problem import Problem
from sporax.planner.solver import CostGraph, Solution, solve

_ROUNDS = 8
"""How often a plan that is too large is tried again with less."""
_PRECISION = 0.02
"""To which share the smallest budget is worked out,"""
_FEASIBLE_SECONDS = 3.0
"""with so much time for each guess,"""
_STEP = 1.15
"""each so much larger than the one before."""

Piece = tuple[int, int]
"""First operator at which something is there, and the one after the last."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """A choice within a limit.

    Attributes:
        solution: of the solver.
        chosen: one candidate per decision.
        plan: the plan.
        peak_bytes: predicted memory of the plan.
        rounds: how often the solver was asked.
    """

    solution: Solution
    chosen: list[int]
    plan: Plan
    peak_bytes: int
    rounds: int


def usage(problem: Problem) -> list[dict[Piece, list[int]]]:
    """For every decision, when its tensors are there and how many bytes they take, per candidate."""
    graph, bundles = problem.graph, problem.bundles
    found: list[dict[Piece, list[int]]] = [{} for _ in problem.choices]
    for life in lives(graph):
        origin = bundles.origin[life.tensor]
        node = bundles.node_of[origin]
        where = problem.choices[node].lies[origin]
        sizes = [local_bytes(graph.tensors[origin], each, problem.mesh) for each in where]
        piece = (life.begin + 1, life.end + 2)
        before = found[node].get(piece, [0] * len(sizes))
        found[node][piece] = [a + b for a, b in zip(before, sizes, strict=True)]
    return found


def limited_graph(problem: Problem, limit: int, priced: bool = True) -> CostGraph:
    """The problem for the solver, with a memory limit in bytes.

    A decision whose tensors live at different times gets one more node for every further span, tied to the first.

    Args:
        problem: the problem.
        limit: bytes of one device.
        priced: False to ask only what fits.
    """
    costs = [each.tolist() if priced else [0.0] * len(each) for each in problem.costs]
    edges: list[tuple[int, int, object]] = [*problem.edges] if priced else []
    usages: list[Sequence[int]] = [[0] * len(each) for each in costs]
    spans: list[Piece] = [(0, 0)] * len(costs)
    for node, pieces in enumerate(usage(problem)):
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
    return CostGraph.build(costs, usages, spans, edges, limit, "plan")  # type: ignore[arg-type]


def solve_within(problem: Problem, limit: int, seconds: float) -> Fitted:
    """The plan of least time that fits.

    Args:
        problem: the problem.
        limit: bytes of one device.
        seconds: time for the solver, all rounds together.

    Raises:
        SporaxRuntimeError: nothing fits; says what would.
    """
    deadline = time.monotonic() + seconds
    too_little, too_much, allowed = 0, limit, limit
    for number in range(_ROUNDS):
        solution = solve(limited_graph(problem, allowed), seconds=max(deadline - time.monotonic(), 1.0))
        if solution.choices is None:
            too_little = allowed
            if number == 0:
                break
        else:
            fitted = _fitted(problem, solution, number + 1)
            if fitted.peak_bytes <= limit:
                return fitted
            too_much = allowed
            allowed -= fitted.peak_bytes - limit
        if allowed <= too_little:
            allowed = (too_little + too_much) // 2
    least = smallest(problem)
    if least.peak_bytes <= limit:
        return least
    raise SporaxRuntimeError(
        f"For 'memory', the plan must fit into {limit / 1e6:.3f} MB per device, but {least.peak_bytes / 1e6:.3f} MB is the "
        f"least that was found to do. More devices, optimizer parallel (cut variables) or recomputation need less."
    )


def _fitted(problem: Problem, solution: Solution, rounds: int) -> Fitted:
    assert solution.choices is not None
    chosen = solution.choices[: len(problem.costs)].tolist()
    plan = plan_of(problem, chosen)
    return Fitted(solution, chosen, plan, memory_of(problem.graph, plan).peak_bytes, rounds)


def smallest(problem: Problem) -> Fitted:
    """A plan that needs as little memory as was found to do, close to the least."""
    whole = memory_of(problem.graph, plan_of(problem, [0] * len(problem.costs))).peak_bytes
    allowed = _least_tensors(problem, whole)
    while True:
        solution = solve(limited_graph(problem, allowed), seconds=_FEASIBLE_SECONDS)
        if solution.choices is not None:
            return _fitted(problem, solution, _ROUNDS)
        allowed = int(allowed * _STEP) + 1


def _least_tensors(problem: Problem, whole: int) -> int:
    """The least peak of the tensors alone, however they would have to be moved about."""
    low, high = 0, whole
    while high - low > _PRECISION * high:
        middle = (low + high) // 2
        solution = solve(limited_graph(problem, middle, priced=False), seconds=_FEASIBLE_SECONDS)
        low, high = (middle, high) if solution.choices is None else (low, middle)
    return high
