"""Searches look inside loops and branches: they work on the step with its bodies written out (`planner.loops.inline`).

What is inside a loop counts as often as the loop runs, and what it carries is one decision at both ends of a round, so every
search sees bodies as it sees the rest; the number of rounds changes prices and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from sporax.ir.graph import OperatorGraph
from sporax.planner.loops.inline import WrittenOut, written_out
from sporax.planner.search.result import SearchResult

P = ParamSpec("P")
Found = TypeVar("Found", SearchResult, tuple[SearchResult, ...])


def inside_loops(
    search: Callable[Concatenate[OperatorGraph, P], Found],
) -> Callable[Concatenate[OperatorGraph, P], Found]:
    """The search of a graph with bodies that works as `search` does on graphs without."""

    @wraps(search)
    def wrapped(graph: OperatorGraph, /, *args: P.args, **kwargs: P.kwargs) -> Found:
        out = written_out(graph)
        found = search(out.graph, *args, **kwargs)
        if isinstance(found, SearchResult):
            return _folded(out, found)
        return tuple(_folded(out, each) for each in found)

    return wrapped


def _folded(out: WrittenOut, found: SearchResult) -> SearchResult:
    return replace(found, plan=out.folded(found.plan))
