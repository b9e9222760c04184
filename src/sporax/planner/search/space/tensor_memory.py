"""Bytes of the tensors of each decision over time: every tensor has the placement of its bundle while it is live.

What resharding adds is left out: it depends on several decisions, and shows only in the complete plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sporax.planner.cost.model import local_bytes
from sporax.planner.memory.peak import backend_of, live_ranges
from sporax.planner.search.space.problem import Problem
from sporax.planner.search.space.resharding_cost import Floats

TickSpan = tuple[int, int]
"""First tick of a tensor, and the tick after its last; tick 0 is the start, operator k runs in ticks 2k + 1 and 2k + 2."""

Usage = Sequence[Mapping[TickSpan, Sequence[int]]]
"""Per decision and span, bytes [candidates]."""


def resident_usage(problem: Problem) -> Usage:
    """For every decision, when its tensors are live and how many bytes they take, per candidate; cached."""
    return problem.cached("usage", lambda: _resident_usage(problem))


def _resident_usage(problem: Problem) -> Usage:
    graph, decisions = problem.graph, problem.decisions
    usage: list[dict[TickSpan, list[int]]] = [{} for _ in problem.choices]
    for life in live_ranges(graph, backend_of(problem.options.platform)):
        origin = decisions.origin[life.tensor]
        node = decisions.node_of[origin]
        placements = problem.choices[node].tensor_placements[origin]
        sizes = [local_bytes(graph.tensors[origin], placement, problem.mesh) for placement in placements]
        # Ticks of the solver's graph begin at 0, those of live ranges at -1, and spans are half open.
        span = (life.begin + 1, life.end + 2)
        before = usage[node].get(span, [0] * len(sizes))
        usage[node][span] = [a + b for a, b in zip(before, sizes, strict=True)]
    return usage


def weighted_bytes(problem: Problem, weights: Mapping[int, float]) -> list[Floats]:
    """For every decision [candidates] the sum of its bytes at some operators, times the weights of these.

    Args:
        problem: the problem.
        weights: by operator; -1 is the start.
    """
    usage = resident_usage(problem)
    until = np.zeros(2 * len(problem.graph.operators) + 5)
    for operator, weight in weights.items():
        # An operator counts at its first tick: until[t] is the weight of all before tick t.
        until[max(2 * operator + 1, 0) + 1 :] += weight
    weighted = []
    for costs, spans in zip(problem.costs, usage, strict=True):
        total = np.zeros(len(costs))
        for (begin, end), sizes in spans.items():
            weight = until[end] - until[begin]
            if weight:
                total += weight * np.array(sizes)
        weighted.append(total)
    return weighted
