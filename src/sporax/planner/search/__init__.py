"""Searches for plans.

The story, file by file: `operators` and `menu` say what can be cut and how; `bundles` finds the decisions of a graph, `choices`
what each can choose, `moving` what moves cost, and `problem` puts them together; `ilp`, `dynamic`, `recursive`, `seeds` and
`blocks` search (`deciding`, `elimination`, `repeats`, `tying`, `certificate`, `limit`, `usage`, `transients`, `measuring`,
`regions`, `fitting` are their tools; `order`, `written` and `surely` say what every plan needs, `bounding` asks what that proves)
and `alternatives` goes on to the next best; `assemble` makes the plan and `result` says what is known.
"""

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.errors import SporaxValueError
from sporax.ir.graph import OperatorGraph
from sporax.planner.cost.model import CostModel
from sporax.planner.cost.symbolic import unit_of
from sporax.planner.report.progress import doing
from sporax.planner.search.alternatives import alternatives, trade_offs
from sporax.planner.search.block_search import repeated
from sporax.planner.search.dynamic import dynamic
from sporax.planner.search.ilp import ilp
from sporax.planner.search.plan_assembly import whole_plan
from sporax.planner.search.problem import SearchOptions
from sporax.planner.search.recursive import recursive
from sporax.planner.search.result import SearchResult
from sporax.planner.search.sharding_propagation import propagation

__all__ = [
    "MODES",
    "SHORT_NAMES",
    "SearchOptions",
    "SearchResult",
    "alternatives",
    "dynamic",
    "ilp",
    "propagation",
    "recursive",
    "repeated",
    "search",
    "trade_offs",
    "whole_plan",
]

Search = Callable[[OperatorGraph, DeviceMatrix, CostModel, SearchOptions | None], SearchResult]

MODES: Mapping[str, Search] = {
    "dynamic_programming": dynamic,
    "recursive_programming": recursive,
    "sharding_propagation": propagation,
    "ilp": ilp,
    "repeated_blocks": repeated,
}
"""Searches by the names of `search_mode`; the first three are MindSpore's."""

SHORT_NAMES: Mapping[str, str] = {
    "dynamic": "dynamic_programming",
    "recursive": "recursive_programming",
    "propagation": "sharding_propagation",
}
"""What MindSpore's three are called for short."""


def search(
    graph: OperatorGraph, mesh: DeviceMatrix, model: CostModel, mode: str, options: SearchOptions | None = None
) -> SearchResult:
    """Search for a plan.

    Args:
        graph: the step.
        mesh: the devices.
        model: prices operators and links.
        mode: one of `MODES`, or of `SHORT_NAMES`.
        options: what the search may do.

    Raises:
        SporaxValueError: there is no such mode, or the options do not fit.
    """
    name = SHORT_NAMES.get(mode, mode)
    if name not in MODES:
        raise SporaxValueError(f"For 'search', 'mode' must be one of {(*SHORT_NAMES, *MODES)}, but got '{mode}'.")
    options = options or SearchOptions()
    with _uncollected(), doing(f"search ({name})"):
        found = MODES[name](graph, mesh, model, options)
    return replace(found, unit=unit_of(model), options=options)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Python's collector of cyclic garbage rests: searches make millions of small values, none of them in a cycle, and every
    time it looks it looks through the whole program, which was a third of the time of large searches.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
