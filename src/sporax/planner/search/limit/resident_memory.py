"""Memory of tensors for a solver, first model: tensors keep the placement of their bundle until their last reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sporax.planner.cost.model import local_bytes
from sporax.planner.memory.peak import live_ranges
from sporax.planner.search.limit.transient_memory import TickSpan
from sporax.planner.search.space.problem import Problem

Usage = Sequence[Mapping[TickSpan, Sequence[int]]]


def resident_usage(problem: Problem) -> Usage:
    """For every decision, when its tensors are live and how many bytes they take, per candidate."""
    if "usage" not in problem.cache:
        problem.cache["usage"] = _resident_usage(problem)
    cached: Usage = problem.cache["usage"]
    return cached


def _resident_usage(problem: Problem) -> Usage:
    graph, decisions = problem.graph, problem.decisions
    usage: list[dict[TickSpan, list[int]]] = [{} for _ in problem.choices]
    # A tensor is kept whole over its live range, though its readers may reshard it: the second model does otherwise.
    for life in live_ranges(graph):
        origin = decisions.origin[life.tensor]
        node = decisions.node_of[origin]
        where = problem.choices[node].tensor_placements[origin]
        sizes = [local_bytes(graph.tensors[origin], placement, problem.mesh) for placement in where]
        # Ticks of the solver's graph begin at 0, those of live ranges at -1, and spans are half open.
        piece = (life.begin + 1, life.end + 2)
        before = usage[node].get(piece, [0] * len(sizes))
        usage[node][piece] = [a + b for a, b in zip(before, sizes, strict=True)]
    return usage
