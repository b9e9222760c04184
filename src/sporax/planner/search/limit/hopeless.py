"""Limits on memory that no plan keeps, told before the search.

Problem: a search under a limit proves bounds and repairs plans, which takes a minute for a transformer. A limit that is far
from what is possible needs none of it.

Method: where the memory of the unsharded step over the number of devices, about the best there is, is far below the limit,
nothing is done. Otherwise the plan of least memory is looked for alone: argmin_x sum_t w_t b_t(x), with b_t the bytes of the
tensors at operator t and w_t the bytes that are measured there, and a short local search from it (`repair`). The limit is
hopeless where a lower bound on all plans is above it (`memory_lower_bound`), or where that plan needs `_FAR` times as much: the
whole search brings it down by 1.6 at most on the networks of the tests. Of devices other than CPUs the bound knows little;
there a limit is hopeless where neither that plan keeps it nor, in small problems, one of a longer local search, from it and from
the Lagrangian loop's (`squeezed`).
"""

from __future__ import annotations

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import OperatorGraph
from sporax.planner.cost.model import CostModel
from sporax.planner.loops.inline import inline_loops
from sporax.planner.memory.peak import backend_of, memory_of
from sporax.planner.search.bound.memory_lower_bound import MemoryLowerBound, memory_lower_bound
from sporax.planner.search.limit.limit import is_large, nothing_fits, squeezed
from sporax.planner.search.limit.repair import reduce_memory
from sporax.planner.search.space.measured_plan import MeasuredPlan, measured
from sporax.planner.search.space.plan_assembly import replicated_plan
from sporax.planner.search.space.problem import Problem, ProblemBuilder, SearchOptions
from sporax.planner.search.space.tensor_memory import weighted_bytes
from sporax.planner.solver.portfolio.quick_choice import choose

_ROOM = 2.0
"""Times of the unsharded step's memory over the devices from which a limit is not looked at: nearly always a plan keeps it."""
_FAR = 2.0
"""Times of the limit that the smallest plan of the short search needs where a long search would find none that fits."""
_OPERATORS = 10_000
"""Operators of all plans together that the local search measures, a sixth of the long one's: a second or two."""
_MORE_OPERATORS = 5_000
"""The same of each longer search, which begins nearer to the limit."""
_ROUNDS = 4
"""Choices of least memory at most, while each needs less than the one before: operators weigh what they needed in those."""
_BYTE = 1e3
"""Cost of a byte next to a nanosecond: time decides between plans of equal memory alone."""
_MOMENTS = 4
"""Operators at which the lower bound looks: those with most bytes."""


def refuse_hopeless(graph: OperatorGraph, mesh: DeviceMatrix, model: CostModel, options: SearchOptions) -> None:
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
    if limit is None or options.gives_up:
        return
    inlined = inline_loops(graph).graph
    backend = backend_of(options.platform)
    shared = memory_of(inlined, replicated_plan(inlined, mesh), backend=backend).peak_bytes / mesh.num_devices
    if limit >= _ROOM * shared:
        return
    problem = ProblemBuilder(inlined, mesh, model, options, approximate=True).build()
    plan = small_plan(problem, limit)
    if plan.peak_bytes <= limit:
        return
    hopeless = plan.peak_bytes > _FAR * limit
    if not hopeless and options.platform == "cpu":
        # The bound takes a second or two: it is asked for last.
        hopeless = least_bytes(problem) > limit
    elif not hopeless:
        # Of other compilers no bound is known. In small problems, multipliers on what is too much find smaller plans.
        plan = plan if is_large(problem) else _smaller(problem, plan, limit)
        hopeless = plan.peak_bytes > limit
    if hopeless:
        raise nothing_fits(limit, plan.memory)


def small_plan(problem: Problem, enough: int = 0) -> MeasuredPlan:
    """A plan of little memory, whatever its time.

    Args:
        problem: the problem.
        enough: bytes of one device at which the search ends.
    """
    weights = dict.fromkeys(range(len(problem.graph.operators)), 1.0)
    needed: dict[int, float] = {}
    plans: list[MeasuredPlan] = []
    for _ in range(_ROUNDS):
        total = sum(weights.values())
        sizes = weighted_bytes(problem, {operator: weight / total for operator, weight in weights.items()})
        costs = [cost + _BYTE * size for cost, size in zip(problem.costs, sizes, strict=True)]
        plan = measured(problem, choose(problem.with_costs(costs).cost_graph()))
        if plan.peak_bytes <= enough:
            return plan
        if plans and plan.peak_bytes >= plans[-1].peak_bytes:
            break
        plans.append(plan)
        # The most that each operator needs of all plans: peaks move as memory is saved.
        for operator, uses in plan.history:
            needed[operator] = max(needed.get(operator, 0.0), float(sum(uses.values())))
        weights = needed
    return reduce_memory(problem, plans[-1], enough, num_operators=_OPERATORS)


def _smaller(problem: Problem, plan: MeasuredPlan, limit: int) -> MeasuredPlan:
    """The smallest of a search that goes on from a plan, and of one from where bytes above the limit cost time."""
    plans = [reduce_memory(problem, plan, limit, num_operators=_MORE_OPERATORS)]
    if plans[0].peak_bytes > limit:
        plans.append(reduce_memory(problem, squeezed(problem, limit), limit, num_operators=_MORE_OPERATORS))
    return min(plans, key=lambda entry: entry.peak_bytes)


def least_bytes(problem: Problem) -> int:
    """Bytes of one device that no plan is below."""
    return _least(memory_lower_bound(problem, _MOMENTS))


def _least(bound: MemoryLowerBound) -> int:
    """The lower bound of the choice that has the least of each table by itself."""
    held = sum(int(sizes.min()) for sizes in bound.always.values())
    moments = (
        # Decisions that are equal count their diagonal.
        sum(int((sizes.diagonal() if first == second else sizes).min()) for first, second, sizes in tables)
        for tables in bound.moments.values()
    )
    return held + max(moments, default=0)
