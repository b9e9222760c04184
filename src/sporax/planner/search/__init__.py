"""Searches for plans: one candidate per decision, least predicted time, within the memory of a device.

`space` is the problem: `operator_rules` says how one operator may be sharded; `decisions` finds what there is to
decide in a graph; `candidates` lists the candidates of each decision; `resharding_cost` costs resharding; `problem` puts them
together; `plan_assembly` makes the plan, and `result` is what a search returns.

Searches are presets of one (`task`), in the table below: who decides (an integer program, elimination, axis after axis, from
seeds, repeated blocks as one), and what follows where memory is short. `alternatives` lists the next best plans.

Memory: `limit` fits a plan into a limit (`limit`: one Lagrangian loop; `local_search`: from plan to plan).
"""

from collections.abc import Mapping
from functools import partial

from sporax.base.errors import SporaxValueError, did_you_mean
from sporax.base.progress import activity
from sporax.ir.config.search_config import SEARCH_NAMES, full_name
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import OperatorGraph
from sporax.planner.budget import Budget
from sporax.planner.cost.model import CostModel
from sporax.planner.search.alternatives import alternatives, trade_offs
from sporax.planner.search.block_search import tied_blocks, tied_within
from sporax.planner.search.exact import MEMORY_SECONDS, by_elimination, by_program, proven_within
from sporax.planner.search.recursive import axis_after_axis
from sporax.planner.search.sharding_propagation import from_seeds, from_seeds_within
from sporax.planner.search.space.plan_assembly import replicated_plan
from sporax.planner.search.space.problem import SearchOptions, SearchResult
from sporax.planner.search.task import Search

__all__ = [
    "MODES",
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
    "replicated_plan",
]

recursive = Search("recursive", axis_after_axis)
ilp = Search("ilp", by_program, proven_within, measures=True, second=recursive)
dynamic = Search(
    "dynamic", by_elimination, partial(proven_within, seconds=MEMORY_SECONDS, takes_epsilon=True), measures=True
)
propagation = Search("propagation", from_seeds, from_seeds_within, measures=True)
repeated = Search("repeated", tied_blocks, tied_within)

MODES: Mapping[str, Search] = {
    "dynamic_programming": dynamic,
    "recursive_programming": recursive,
    "sharding_propagation": propagation,
    "ilp": ilp,
    "repeated_blocks": repeated,
}
"""Searches by the names of `search_mode`; the first three are MindSpore's."""


def search(
    graph: OperatorGraph,
    mesh: DeviceMatrix,
    model: CostModel,
    mode: str,
    options: SearchOptions | None = None,
    budget: Budget | None = None,
) -> SearchResult:
    """Search for a plan.

    Args:
        mode: one of `SEARCH_NAMES`, in letters of any case.
        budget: time for it; each search has a limit of its own, too.

    Raises:
        SporaxValueError: there is no such mode, or the options do not fit.
    """
    name = full_name(mode)
    if name not in MODES:
        raise SporaxValueError(
            f"For 'search', 'mode' must be one of {SEARCH_NAMES}, but got '{mode}'.{did_you_mean(mode, SEARCH_NAMES)}"
        )
    with activity(f"search ({name})"):
        return MODES[name](graph, mesh, model, options, budget)
