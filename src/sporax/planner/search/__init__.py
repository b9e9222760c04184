"""Searches for plans: one candidate per decision, least predicted time, within the memory of a device.

Problem: `operator_rules` and `search_space` say how one operator may be sharded; `decisions` finds what there is to
decide in a graph; `candidates` lists the candidates of each decision; `resharding_cost` prices resharding; `problem`
puts them together.

Searches: `ilp`, `dynamic`, `recursive`, `sharding_propagation` and `block_search`. Their tools: `message_passing`,
`bucket_elimination`, `repeated_blocks`, `block_tying`, `local_search`, `large_neighborhood`.

Memory: `memory_limit` fits a plan into a limit, by `resident_memory` and `transient_memory`; `memory_lower_bound` (with
`partial_order` and `materialization`) bounds what every plan needs, and `bound_problem` gives that to the solver.

Results: `plan_assembly` makes the plan, `lower_bound` certifies it, `result` is what a search returns, `alternatives`
lists the next best plans.
"""

from collections.abc import Callable, Mapping
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
        model: the cost of operators and links.
        mode: one of `MODES`, or of `SHORT_NAMES`.
        options: what the search may do.

    Raises:
        SporaxValueError: there is no such mode, or the options do not fit.
    """
    name = SHORT_NAMES.get(mode, mode)
    if name not in MODES:
        raise SporaxValueError(f"For 'search', 'mode' must be one of {(*SHORT_NAMES, *MODES)}, but got '{mode}'.")
    options = options or SearchOptions()
    with doing(f"search ({name})"):
        result = MODES[name](graph, mesh, model, options)
    # The searches know neither the unit nor that they were asked with defaults: one place adds both for all of them.
    return replace(result, unit=unit_of(model), options=options)
