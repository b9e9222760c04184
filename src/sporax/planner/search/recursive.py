"""The fast search: one mesh axis after another over the whole graph.

Problem: a good plan in seconds, without a proof.

Method: for every axis, from the outermost to the innermost, each decision extends its sharding by that axis at one
dimension or at none, so there are only a few candidates at a time. Message passing (`quick_choice`) decides each
round, and repeated layers are tied (`repeated_blocks`). Early rounds influence later ones, so two orders are tried: axis by
axis, and all axes in one round. Of a large graph all axes in one round come first, and where messages prove that choice to be
within 1 % of the best one, nothing else is tried.

If the best plan does not fit the memory, each round may use the memory that later rounds can still save (unless the
problem is large), and all axes are also decided at once, as in the other searches.

Reference: the double recursive algorithm, H. Wang et al., "Efficient and systematic partitioning of large and deep
neural networks for parallelization", Euro-Par 2021. It halves tensors with a constant cost per conflict, heaviest
operators first. Here axes have any size, conflicts cost what the resharding costs, and messages replace the order of
the operators.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from sporax.base.collector import gc_paused
from sporax.base.errors import SporaxRuntimeError
from sporax.ir.device_matrix import DeviceMatrix
from sporax.planner.budget import Budget
from sporax.planner.cost.model import CostModel
from sporax.planner.search.limit.limit import is_large, lagrangian_plan, least_cost
from sporax.planner.search.space.candidates import Base
from sporax.planner.search.space.measured_plan import MeasuredPlan, measured
from sporax.planner.search.space.operator_rules import Units, natural_units
from sporax.planner.search.space.plan_assembly import plan_of
from sporax.planner.search.space.problem import Problem, ProblemBuilder, SearchResult
from sporax.planner.search.space.repeated_blocks import choose_tied, choose_tied_with_bound
from sporax.planner.search.task import SearchTask, searches

Order = tuple[Units, ...]
"""The units of each round."""

_ROUNDS = 5
"""Most rounds of axis by axis: with more axes, several are handed out in one round."""
_WORTH = 0.1
"""Share by which an order's direct-route cost may exceed the least one for the order to be costed exactly."""
_FEW = 300
"""Decisions up to which all orders are tried: that takes a second at most."""
_GAP = 0.01
"""Share of its cost by which a choice of many decisions may be above its lower bound for no other order to be tried."""


@searches
@gc_paused()
def recursive(task: SearchTask) -> SearchResult:
    """A good plan quickly, with a note where it is not known to be within 1 % of the best one by costs of direct routes.

    Args:
        task: its `units` are the rounds; several orders are tried by default, no more of them when the time is over.
    """
    found = one_axis_after_another(task)
    gap = found.statistics.get("gap")
    if isinstance(gap, float) and gap <= _GAP:
        return found
    proof = "there is no bound on" if gap is None else f"this plan takes at most {gap:.1%} longer than"
    note = f"recursive_programming: {proof} the best of its search space; dynamic_programming may find a faster one"
    return replace(found, plan=replace(found.plan, notes=(*found.plan.notes, note)))


def one_axis_after_another(task: SearchTask, full: Problem | None = None) -> SearchResult:
    """As `recursive`, without a note.

    Args:
        full: the problem of all axes, where the caller has built it; what was found for it is used again.
    """
    options = task.options
    orders = [tuple((unit,) for unit in options.units)] if options.units else _orders(task.mesh, task.model)
    # Memory comes second: most plans fit, and free rounds find better plans than tight ones.
    builder = task.builder(replace(options, memory_bytes=None), approximate=True)
    order_results = list(_runs(builder, orders, task.budget))
    num_orders = len(order_results)
    least = min(order_result.seconds for order_result in order_results)
    # An order that is far behind by approximate costs will not win by exact ones.
    attempts = [
        _finished(builder, order_result)
        for order_result in order_results
        if order_result.seconds <= (1 + _WORTH) * least
    ]
    best = min(attempts, key=_cost)
    if not _fits(best, options.memory_bytes):
        builder = task.builder(approximate=True)
        tight = [] if is_large(best.final) else [_run(builder, order) for order in orders]
        order_results += tight
        attempts += [_finished(builder, entry) for entry in tight]
        best = _best_that_fits(builder, attempts, full or task.builder().build())
    final = best.final
    # One candidate per decision is left in `final`, so its plan is all zeros.
    plan = _measured(final).plan if options.memory_bytes is not None else plan_of(final, [0] * len(final.costs))
    statistics = {
        **final.statistics(),
        "candidates": sum(order_result.candidates for order_result in order_results),
        "orders": num_orders,
        **_gap(best, max(order_result.bound for order_result in order_results)),
    }
    return task.result("recursive", plan, _cost(best), statistics)


def _best_that_fits(builder: ProblemBuilder, attempts: Sequence[_FinishedOrder], full: Problem) -> _FinishedOrder:
    """The best of some attempts, and of all axes at once, that keeps the memory limit."""
    fitting = [attempt for attempt in attempts if _fits(attempt, builder.options.memory_bytes)]
    # Where another attempt fits, that this one does not is no error.
    with suppress(*([SporaxRuntimeError] if fitting else [])):
        last = _all_axes_at_once(builder, full)
        fitting += [last] if _fits(last, builder.options.memory_bytes) else []
    return min(fitting, key=_cost)


def _runs(builder: ProblemBuilder, orders: Sequence[Order], budget: Budget) -> Iterator[_OrderResult]:
    """All axes in one round, where there are many decisions and that is good enough; else all orders while there is time."""
    *others, last = orders
    problem = builder.build(last[0]) if others else None
    if problem is not None and len(problem.costs) > _FEW:
        chosen, bound = choose_tied_with_bound(problem, known=0.0)
        if budget.is_over or problem.seconds(chosen) <= (1 + _GAP) * bound:
            yield _result_of(problem, chosen, bound)
            return
    known = math.inf
    for order in others or [last]:
        order_result = _run(builder, order)
        known = min(known, order_result.seconds)
        yield order_result
    if problem is not None and not budget.is_over:
        # Where it can hardly be better than the others, less time is spent on it.
        yield _result_of(problem, *choose_tied_with_bound(problem, known=known))


class _OrderResult(NamedTuple):
    """What one order of rounds decided.

    Attributes:
        bases: per decision.
        seconds: cost by the last round's costs, in which moves go the straight way.
        candidates: how many were looked at.
        bound: seconds, by the same costs, that no plan is below.
    """

    bases: list[Base] | None
    seconds: float
    candidates: int
    bound: float = -math.inf


class _FinishedOrder(NamedTuple):
    """What one order of rounds led to.

    Attributes:
        final: the problem with everything decided.
        seconds: its cost by direct routes.
        candidates: how many were looked at.
    """

    final: Problem
    seconds: float
    candidates: int


def _cost(attempt: _FinishedOrder) -> float:
    return attempt.final.seconds([0] * len(attempt.final.costs))


def _gap(attempt: _FinishedOrder, bound: float) -> dict[str, float]:
    """The share of the bound by which an attempt is above it, among the statistics; nothing where there is no bound."""
    seconds = max(attempt.seconds, _cost(attempt))
    return {"gap": max(seconds / bound - 1, 0.0)} if bound > 0 else {}


def _fits(attempt: _FinishedOrder, limit: int | None) -> bool:
    return limit is None or _measured(attempt.final).peak_bytes <= limit


def _measured(final: Problem) -> MeasuredPlan:
    """The plan and its memory, remembered with the problem."""
    return final.cached("final plan", lambda: measured(final, [0] * len(final.costs)))


def _all_axes_at_once(builder: ProblemBuilder, problem: Problem) -> _FinishedOrder:
    """All axes in one round."""
    chosen = least_cost(problem, [])
    return _FinishedOrder(builder.costed(problem.bases(chosen)), problem.seconds(chosen), sum(map(len, problem.costs)))


def _orders(mesh: DeviceMatrix, model: CostModel) -> list[Order]:
    """Orders of rounds to try: axis by axis (a few at a time where there are many), and all axes in one round, in two runs."""
    axes = [axis for axis in mesh.device_axes if mesh.shape[axis] > 1]
    num_axes = -(-len(axes) // _ROUNDS) or 1
    # Rounded up, so that the rounds stay within `_ROUNDS`.
    single = tuple((tuple(axes[start : start + num_axes]),) for start in range(0, len(axes), num_axes))
    return list(dict.fromkeys([single, (natural_units(mesh, model.links),)]))


def _result_of(problem: Problem, chosen: list[int], bound: float) -> _OrderResult:
    """What a single round decided."""
    return _OrderResult(problem.bases(chosen), problem.seconds(chosen), sum(map(len, problem.costs)), bound)


def _run(builder: ProblemBuilder, order: Order) -> _OrderResult:
    """Round after round."""
    bases: list[Base] | None = None
    candidates, seconds = 0, 0.0
    for place, units in enumerate(order):
        problem = builder.build(units, bases)
        to_come = math.prod(
            builder.mesh.shape[axis] for later in order[place + 1 :] for axis in itertools.chain(*later)
        )
        chosen = _choose(problem, to_come)
        bases, seconds = problem.bases(chosen), problem.seconds(chosen)
        # What all rounds looked at: the statistic that compares the searches' effort.
        candidates += sum(map(len, problem.costs))
    return _OrderResult(bases, seconds, candidates)


def _finished(builder: ProblemBuilder, order_result: _OrderResult) -> _FinishedOrder:
    return _FinishedOrder(builder.costed(order_result.bases), order_result.seconds, order_result.candidates)


def _choose(problem: Problem, to_come: int) -> list[int]:
    """The choice of one round; a plan that is too large may still be sharded by the devices of later rounds (`to_come`)."""
    limit = problem.options.memory_bytes
    chosen = choose_tied(problem)
    if limit is None or measured(problem, chosen).peak_bytes <= limit:
        return chosen
    # Tensors can still become smaller by all factors of the later rounds.
    fitted = lagrangian_plan(problem, limit * to_come)
    return fitted.chosen if fitted.peak_bytes <= limit * to_come else chosen
