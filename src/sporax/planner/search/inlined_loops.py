"""Searches look into loops and branches: they work on the step with its loops inlined (`planner.loops.inline`).

An operator in a loop counts as often as the loop runs. A carried value is one decision at both ends of a round. So a
search needs no special case for loops; the number of rounds changes costs and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from sporax.ir.graph import OperatorGraph
from sporax.planner.loops.inline import InlinedStep, inline_loops
from sporax.planner.search.space.problem import SearchResult

P = ParamSpec("P")
Result = TypeVar("Result", SearchResult, tuple[SearchResult, ...])


def inside_loops(
    search: Callable[Concatenate[OperatorGraph, P], Result],
) -> Callable[Concatenate[OperatorGraph, P], Result]:
    """The search of a graph with bodies that works as `search` does on graphs without."""

    @wraps(search)
    def wrapped(graph: OperatorGraph, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        out = inline_loops(graph)
        result = search(out.graph, *args, **kwargs)
        if isinstance(result, SearchResult):
            return _folded(out, result)
        return tuple(_folded(out, item) for item in result)

    return wrapped


def _folded(out: InlinedStep, result: SearchResult) -> SearchResult:
    return replace(result, plan=out.folded(result.plan))
