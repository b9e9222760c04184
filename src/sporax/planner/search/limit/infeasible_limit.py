"""Limits on memory that no plan keeps, told before the search.

Problem: a search under a limit proves bounds, follows multipliers and improves plans, which takes a minute for a transformer. A
limit that cannot be kept needs none of it.

Method: where the memory of the unsharded step over the number of devices, about the best there is, is far below the limit,
nothing is done. Otherwise a plan that fits is looked for, whatever its time: first by few large multipliers
(`min_memory_plan`), then as the smallest plan there is (`smallest`). Where neither fits, no search is begun: it would end with
that plan, too. In a large problem, a limit that is far off is not looked at for so long.
"""

from __future__ import annotations

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import OperatorGraph
from sporax.planner.cost.model import CostModel
from sporax.planner.loops.inline import inline_loops
from sporax.planner.memory.peak import backend_of, memory_of
from sporax.planner.search.limit.limit import is_large, min_memory_plan, nothing_fits, smallest
from sporax.planner.search.limit.reduction import reduce_memory
from sporax.planner.search.space.plan_assembly import replicated_plan
from sporax.planner.search.space.problem import ProblemBuilder, SearchOptions

_ROOM = 2.0
"""Times of the unsharded step's memory over the devices from which a limit is not looked at: nearly always a plan keeps it."""
_FAR = 12.0
"""Times of the limit that a plan of large multipliers needs where no search would find one that fits: they save four fifths.
Asked of large problems alone, of which the smallest plan takes longer."""
_FEW_OPERATORS = 10_000
"""Operators of all plans together that may be measured then: how far the limit is off is what the error is to tell."""


def reject_infeasible_limit(graph: OperatorGraph, mesh: DeviceMatrix, model: CostModel, options: SearchOptions) -> None:
    """Raise the error of a search under a memory limit where it is known soon.

    Args:
        graph: the step.
        mesh: the devices.
        model: the cost of operators and links.
        options: those of the search; without a limit nothing is done, nor for one that gives up soon anyway.

    Raises:
        SporaxRuntimeError: no plan fits; names the smallest one that was found.
    """
    limit = options.memory_bytes
    if limit is None or options.is_quick:
        return
    inlined = inline_loops(graph).graph
    shared = memory_of(inlined, replicated_plan(inlined, mesh), backend=backend_of(options.platform))
    if limit >= _ROOM * shared.peak_bytes / mesh.num_devices:
        return
    problem = ProblemBuilder(inlined, mesh, model, options, approximate=True).build()
    plan = min_memory_plan(problem, limit)
    if plan.peak_bytes > limit:
        far = is_large(problem) and plan.peak_bytes > _FAR * limit
        plan = reduce_memory(problem, plan, limit, num_operators=_FEW_OPERATORS) if far else smallest(problem, limit)
    if plan.peak_bytes > limit:
        raise nothing_fits(limit, plan.memory)
