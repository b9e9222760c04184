"""What tensors take under a memory limit when they lie where their bundles have them until the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sporax.planner.cost.model import local_bytes
from sporax.planner.memory.peak import lives
from sporax.planner.search.problem import Problem
from sporax.planner.search.transient_memory import Piece

Usage = Sequence[Mapping[Piece, Sequence[int]]]


def usage(problem: Problem) -> Usage:
    """For every decision, when its tensors are there and how many bytes they take, per candidate."""
    if "usage" not in problem.remembered:
        problem.remembered["usage"] = _usage(problem)
    known: Usage = problem.remembered["usage"]
    return known


def _usage(problem: Problem) -> Usage:
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
