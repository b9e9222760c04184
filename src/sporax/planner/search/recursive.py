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
from sporax.planner.search.space.measured_plan import measured
from sporax.planner.search.space.operator_rules import Units, natural_units
from sporax.planner.search.space.problem import Problem, ProblemBuilder
from sporax.planner.search.space.repeated_blocks import choose_tied, choose_tied_with_bound
from sporax.planner.search.task import Finding, SearchTask

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


@gc_paused()
def axis_after_axis(task: SearchTask) -> Finding:
    """A good choice quickly; a note where it is not known to be within 1 % of the best one by costs of direct routes.

    Args:
        task: its `units` are the rounds; several orders are tried by default, no more of them when the time is over.
    """
    limit, units = task.options.memory_bytes, task.options.units
    orders = [tuple((unit,) for unit in units)] if units else _orders(task.mesh, task.model)
    builder = task.builder(approximate=True, memory_aside=True)
    order_results = list(_runs(builder, orders, task.budget))
    num_orders, bound = len(order_results), max(order_result.bound for order_result in order_results)
    least = min(order_result.seconds for order_result in order_results)
    # An order that is far behind by approximate costs will not win by exact ones.
    attempts = [
        _finished(builder, order_result, bound)
        for order_result in order_results
        if order_result.seconds <= (1 + _WORTH) * least
    ]
    best = min(attempts, key=_cost)
    if limit is not None and not best.fits(limit):
        builder = task.builder(approximate=True)
        tight = [] if is_large(best.problem) else [_run(builder, order) for order in orders]
        order_results += tight
        attempts += [_finished(builder, entry, bound) for entry in tight]
        best = _best_that_fits(builder, attempts, task.problem, limit, bound)
    candidates = sum(order_result.candidates for order_result in order_results)
    return replace(best, statistics={**best.statistics, "candidates": candidates, "orders": num_orders})


def _best_that_fits(
    builder: ProblemBuilder, attempts: Sequence[Finding], full: Problem, limit: int, bound: float
) -> Finding:
    """The best of some attempts, and of all axes at once, that keeps the memory limit."""
    fitting = [attempt for attempt in attempts if attempt.fits(limit)]
    # Where another attempt fits, that this one does not is no error.
    with suppress(*([SporaxRuntimeError] if fitting else [])):
        last = _finished(builder, _result_of(full, least_cost(full, [])), bound)
        fitting += [last] if last.fits(limit) else []
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


def _finished(builder: ProblemBuilder, order_result: _OrderResult, bound: float) -> Finding:
    """What an order led to, by exact costs.

    Args:
        bound: seconds that no plan is below by costs of direct routes.
    """
    # One candidate per decision is left, so the choice is all zeros.
    final = builder.costed(order_result.bases)
    found = Finding(final, [0] * len(final.costs), None, final.statistics())
    gap = max(order_result.seconds, found.cost) / bound - 1 if bound > 0 else math.inf
    if gap <= _GAP:
        return replace(found, statistics={**found.statistics, "gap": max(gap, 0.0)})
    proof = "there is no bound on" if gap == math.inf else f"this plan takes at most {gap:.1%} longer than"
    note = f"recursive_programming: {proof} the best of its search space; dynamic_programming may find a faster one"
    return replace(found, statistics={**found.statistics, **({"gap": gap} if gap < math.inf else {})}, notes=(note,))


def _cost(attempt: Finding) -> float:
    return attempt.cost


def _orders(mesh: DeviceMatrix, model: CostModel) -> list[Order]:
    """Orders of rounds to try: axis by axis (a few at a time where there are many), and all axes in one round, in two runs."""
    axes = [axis for axis in mesh.device_axes if mesh.shape[axis] > 1]
    num_axes = -(-len(axes) // _ROUNDS) or 1
    # Rounded up, so that the rounds stay within `_ROUNDS`.
    single = tuple((tuple(axes[start : start + num_axes]),) for start in range(0, len(axes), num_axes))
    return list(dict.fromkeys([single, (natural_units(mesh, model.links),)]))


def _result_of(problem: Problem, chosen: list[int], bound: float = -math.inf) -> _OrderResult:
    """What a single round decided."""
    return _OrderResult(problem.bases(chosen), problem.seconds(chosen), sum(map(len, problem.costs)), bound)


def _run(builder: ProblemBuilder, order: Order) -> _OrderResult:
    """Round after round."""
    bases: list[Base] | None = None
    candidates, seconds = 0, 0.0
    for place, units in enumerate(order):
        problem = builder.build(units, bases)
        to_come = math.prod(builder.mesh.shape[axis] for rest in order[place + 1 :] for axis in itertools.chain(*rest))
        chosen = _choose(problem, to_come)
        bases, seconds = problem.bases(chosen), problem.seconds(chosen)
        # What all rounds looked at: the statistic that compares the searches' effort.
        candidates += sum(map(len, problem.costs))
    return _OrderResult(bases, seconds, candidates)


def _choose(problem: Problem, to_come: int) -> list[int]:
    """The choice of one round; a plan that is too large may still be sharded by the devices of later rounds (`to_come`)."""
    limit = problem.options.memory_bytes
    chosen = choose_tied(problem)
    if limit is None or measured(problem, chosen).peak_bytes <= limit:
        return chosen
    # Tensors can still become smaller by all factors of the later rounds.
    fitted = lagrangian_plan(problem, limit * to_come)
    return fitted.chosen if fitted.peak_bytes <= limit * to_come else chosen
