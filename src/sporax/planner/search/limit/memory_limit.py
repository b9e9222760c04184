"""The search for the cheapest plan within a memory limit.

Problem: a solver knows what the tensors of each decision take and when. What resharding adds shows only in the complete
plan.

Method: solve, measure the complete plan, reserve the bytes that the solver did not know of at each moment, and solve
again. Two models of the tensors are used, since each finds plans that the other does not: tensors stay at the placement
of their bundle until the end (`resident_memory`), or they are resharded as soon as they are produced
(`transient_memory`). The proof uses a third model, the lower bound on peak memory (`memory_lower_bound`).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sporax.base.errors import SporaxRuntimeError
from sporax.planner.memory.peak import MemoryUse, Use, memory_over_time
from sporax.planner.search.bound.bound_problem import bounding_graph
from sporax.planner.search.limit.block_tying import choose_tied_within
from sporax.planner.search.limit.large_neighborhood import improved_within
from sporax.planner.search.limit.local_search import MeasuredPlan, measured, reduce_memory
from sporax.planner.search.limit.message_passing import choose, choose_within, refine_within
from sporax.planner.search.limit.resident_memory import Usage, resident_usage
from sporax.planner.search.limit.transient_memory import TickSpan, transient_usage
from sporax.planner.search.space.problem import NANOSECONDS, Problem
from sporax.planner.solver import CostGraph, Solution, solve
from sporax.planner.solver.portfolio.solution import OPTIMALITY_TOLERANCE

_ROUNDS = 6
"""How often a plan that is too large is tried again with less."""
_PROVING_ROUNDS = 3
"""The same where the integer program decides, whose rounds take longer."""
_PROVING_SHARE = 0.4
"""Share of the solver's time for the bound; the rest is for plans."""
_TRIES = ((1.0, _ROUNDS), (0.96, 2), (0.6, 2))
"""Shares of the limit that message passing may use, and rounds: with less it goes other ways, and may find better plans."""
_LEAST_ROUNDS = 2
"""Fewest rounds of message passing that look for a plan that fits."""
_DECISIONS = 8000
"""Most decisions in all these rounds together: a count and no clock, so that all processes of a job find the same plan. With more
decisions, repeated blocks are tied first (`block_tying`)."""
_WORTH = 0.99
"""Share of the cost that another round must reach."""
_PRECISION = 0.02
"""Share of the smallest budget to which it is worked out."""
_STEP = 1.15
"""Factor between guesses of a budget that is enough for a whole plan."""
_LESS = 0.7
"""Share of the memory that the next attempt to find less may use."""

Bytes = NDArray[np.int64]
"""Of one device."""

Decide = Callable[[CostGraph], "Sequence[int] | None"]
"""One candidate per node of a graph with a memory limit, or None where nothing that fits was found."""


def limited_graph(
    problem: Problem, limit: int, reserve: Bytes | None = None, priced: bool = True, usage: Usage | None = None
) -> CostGraph:
    """The problem for the solver, with a memory limit in bytes.

    A decision whose tensors live at different times gets one more node for every further span, tied to the first.

    Args:
        problem: the problem.
        limit: bytes of one device.
        reserve: [1 + operators + 1] bytes that are taken before the first operator, at each of them, and at the end.
        priced: False to ask only what fits.
        usage: what tensors take; `resident_usage` by default.
    """
    # Without prices only feasibility is asked: zero costs let the solver stop at the first choice.
    costs = [costs_of.tolist() if priced else [0.0] * len(costs_of) for costs_of in problem.costs]
    edges: list[tuple[int, int, object]] = [*problem.edges] if priced else []
    usages: list[Sequence[int]] = [[0] * len(costs_of) for costs_of in costs]
    spans: list[TickSpan] = [(0, 0)] * len(costs)
    for node, pieces in enumerate(usage or resident_usage(problem)):
        # Equal candidates for all nodes of one decision: the table forbids every other pair.
        same = np.full((len(costs[node]),) * 2, np.inf)
        np.fill_diagonal(same, 0.0)
        for number, (span, sizes) in enumerate(pieces.items()):
            if number == 0:
                usages[node], spans[node] = sizes, span
            else:
                edges.append((node, len(costs), same))
                costs.append([0.0] * len(sizes))
                usages.append(sizes)
                spans.append(span)
    # Reserved bytes are nodes with one strategy: the solver needs no other notion of a load that is there in any case.
    for span, size in _intervals(reserve):
        costs.append([0.0])
        usages.append([size])
        spans.append(span)
    return CostGraph.build(costs, usages, spans, edges, limit, "plan")  # type: ignore[arg-type]  # spans of one kind in this search


def _intervals(reserve: Bytes | None) -> Iterator[tuple[TickSpan, int]]:
    """When how much is reserved."""
    if reserve is None:
        return
    ends = [0, *(np.flatnonzero(np.diff(reserve)) + 1).tolist(), len(reserve)]
    for first, last in itertools.pairwise(ends):
        if reserve[first]:
            # Entry k + 1 of the reserve is operator k, which takes ticks 2k + 1 and 2k + 2; entry 0 is before the
            # first.
            yield (max(2 * first - 1, 0), 2 * last - 1), int(reserve[first])


def fit(
    problem: Problem,
    limit: int,
    decide: Decide,
    rounds: int = _ROUNDS,
    reserve: Bytes | None = None,
    usage: Usage | None = None,
) -> MeasuredPlan | None:
    """The cheapest plan that fits, of those that come of asking `decide` with ever better reserves.

    Args:
        problem: the problem.
        limit: bytes of one device.
        decide: chooses a candidate per decision.
        rounds: how often it is asked, at most; two of them are spent where there is nothing to begin with.
        reserve: to begin with, as in `limited_graph`.
        usage: the tensors that it considers, as there.
    """
    usage = usage or resident_usage(problem)
    asked = partial(_solve_round, problem, limit, decide, usage)
    best: MeasuredPlan | None = None
    spent = 0
    if reserve is None:
        # Without a reserve the first plan shows how much is missing. It is tried at every moment as well: the peak
        # may move.
        spent = 2
        first = asked(None, 1)
        if first is None or first.peak_bytes <= limit or rounds < 2:
            return first if first is not None and first.peak_bytes <= limit else None
        reserve = unmodelled_bytes(problem, first, usage)
        everywhere = asked(np.full_like(reserve, first.peak_bytes - limit), 2)
        best = everywhere if everywhere is not None and everywhere.peak_bytes <= limit else None
    for number in range(spent + 1, rounds + 1):
        fitted = asked(reserve, number)
        if fitted is None:
            reserve = reserve // 2  # another plan may get by with less
        elif fitted.peak_bytes > limit:
            # The larger of both: forgetting an earlier reserve would lead back to the earlier plan.
            reserve = np.maximum(reserve, unmodelled_bytes(problem, fitted, usage))
        elif best is None or problem.seconds(fitted.chosen) < _WORTH * problem.seconds(best.chosen):
            # The plan fits and another round may find a cheaper one, since the reserve now belongs to this plan.
            best, reserve = fitted, unmodelled_bytes(problem, fitted, usage)
        else:
            break
    return best


def _solve_round(
    problem: Problem, limit: int, decide: Decide, usage: Usage, reserve: Bytes | None, number: int
) -> MeasuredPlan | None:
    """Solve once and measure the plan; None where the solver has no solution."""
    choices = decide(limited_graph(problem, limit, reserve, usage=usage))
    return None if choices is None else measured(problem, choices, number)


def unmodelled_bytes(problem: Problem, fitted: MeasuredPlan, usage: Usage) -> Bytes:
    """[1 + operators + 1] bytes of a plan in addition to the tensors that the solver knows of."""
    count = len(problem.graph.operators)
    # Ticks: 0, two for each operator, and those after the last one, see `_intervals`.
    taken = np.zeros(2 * count + 4, np.int64)
    for pieces, candidate in zip(usage, fitted.chosen, strict=True):
        for (begin, end), sizes in pieces.items():
            taken[begin] += sizes[candidate]
            taken[end] -= sizes[candidate]
    taken = np.cumsum(taken)
    # An operator has two ticks; the fuller one counts.
    at_operator = np.concatenate([taken[:1], taken[1 : 2 * count + 3].reshape(-1, 2).max(axis=1)])
    predicted = np.zeros(count + 2, np.int64)
    for position, uses in memory_over_time(problem.graph, fitted.plan):
        # From here on, until the next position sets it again: memory changes only at the positions listed.
        predicted[min(position + 1, count + 1) :] = sum(uses.values())
    rest: Bytes = np.maximum(predicted - at_operator, 0)
    return rest


def is_large(problem: Problem) -> bool:
    """Whether there are too many decisions for all rounds of message passing."""
    # Both models of the tensors, hence twice.
    return 2 * len(problem.costs) * sum(rounds for _, rounds in _TRIES) > _DECISIONS


def fit_quickly(problem: Problem, limit: int) -> MeasuredPlan | None:
    """As `fit`, by message passing with both models of the tensors; the best plan is refined. Cached.

    A large problem is tried with tied blocks first, and less often with free ones.
    """
    name = f"fitted quickly, within {limit}"
    if name not in problem.plans:
        problem.plans[name] = _fit_quickly(problem, limit)
    cached: MeasuredPlan | None = problem.plans[name]
    return cached


def _fit_quickly(problem: Problem, limit: int) -> MeasuredPlan | None:
    if is_large(problem):
        alike = choose_tied_within(problem, limit)
        if alike.peak_bytes <= limit:
            return alike
    rough = _fit_with_both_models(problem, limit)
    if is_large(problem):
        return rough[0] if rough else None
    if rough is None:
        return fit(problem, limit, refine_within, rounds=2)
    best, usage = rough
    # The finer messages start where the rough ones ended: with the reserve of the best plan so far.
    fine = fit(problem, limit, refine_within, 2, unmodelled_bytes(problem, best, usage), usage)
    return min((entry for entry in (best, fine) if entry), key=lambda entry: problem.seconds(entry.chosen))


def _fit_with_both_models(problem: Problem, limit: int) -> tuple[MeasuredPlan, Usage] | None:
    """The cheapest plan that fits of those that message passing finds within the limit or less, and the model it used."""
    left = max(_DECISIONS // len(problem.costs), _LEAST_ROUNDS)
    fitting: list[tuple[MeasuredPlan, Usage]] = []
    # In this order, so that the full limit has been tried with both models before rounds run out.
    for (share, rounds), usage in itertools.product(_TRIES, (resident_usage(problem), transient_usage(problem))):
        if left:
            plan = fit(problem, int(limit * share), choose_within, min(rounds, left), usage=usage)
            fitting += [] if plan is None else [(plan, usage)]
            left -= min(rounds, left)
    return min(fitting, key=lambda pair: problem.seconds(pair[0].chosen), default=None)


def solve_within(
    problem: Problem, limit: int, seconds: float, tried: bool = False, solver: Callable[..., Solution] = solve
) -> tuple[MeasuredPlan, Solution]:
    """The cheapest plan that fits of all that were found, and the solution of the problem that bounds them from below.

    The solution's bound holds for all plans that fit; one that costs no more is the best.

    Args:
        problem: the problem.
        limit: bytes of one device.
        seconds: time for the solver, all rounds together.
        tried: message passing has been tried and has no plan that fits.
        solver: `solve`, or something like it.

    Raises:
        SporaxRuntimeError: nothing fits; says what would.
    """
    start = time.monotonic()
    proof = solver(bounding_graph(problem, limit), seconds=_PROVING_SHARE * seconds)
    # The bounding graph may allow plans that are too large, so its choice is measured as well.
    plans = [] if proof.choices is None else _those_that_fit(limit, measured(problem, proof.choices.tolist()))
    # The bound holds for all plans that fit, so a plan that meets it needs no further search.
    if plans and proof.optimal:
        return plans[0], proof
    asked = 1

    def decide(graph: CostGraph) -> Sequence[int] | None:
        nonlocal asked
        asked += 1
        # At least one second: the solver needs some time to find any choice.
        choices = solver(graph, seconds=max(start + seconds - time.monotonic(), 1.0)).choices
        return None if choices is None else choices.tolist()

    def cost(fitted: MeasuredPlan) -> float:
        return problem.seconds(fitted.chosen)

    def is_open(fitted: MeasuredPlan) -> bool:
        return cost(fitted) > (1 + OPTIMALITY_TOLERANCE) * (proof.bound or 0.0) / problem.scale

    if not proof.infeasible:
        plans += _those_that_fit(limit, fit(problem, limit, decide, rounds=1))
        plans += [] if tried else _those_that_fit(limit, fit_quickly(problem, limit))
        for usage in (resident_usage(problem), transient_usage(problem)) if plans else ():
            least = min(plans, key=cost)
            if is_open(least) and time.monotonic() < start + seconds:
                reserve = unmodelled_bytes(problem, least, usage)
                plans += _those_that_fit(limit, fit(problem, limit, decide, _PROVING_ROUNDS, reserve, usage))
    # Where nothing fits, the smallest plan is looked for: it may fit after all, and otherwise the error names it.
    least = min(plans, key=cost) if plans else smallest(problem, limit)
    if least.peak_bytes <= limit:
        # What cannot be improved in reasonable time, or is proven, stays as it is.
        ready = is_large(problem) or not is_open(least)
        return replace(least if ready else improved_within(problem, least, limit), rounds=asked), proof
    raise SporaxRuntimeError(
        f"For 'memory', the plan must fit into {limit / 1e6:.3f} MB per device, but {_kilobytes(least.peak_bytes) / 1e3:.3f} MB "
        f"is the smallest plan that was found ({_usage_text(least.memory)}). {_advice(least.memory)}"
    )


def _those_that_fit(limit: int, *plans: MeasuredPlan | None) -> list[MeasuredPlan]:
    return [item for item in plans if item is not None and item.peak_bytes <= limit]


def bound_below(cost: float, bound: float | None, scale: float = NANOSECONDS) -> float | None:
    """A solver's bound in seconds, if the plan that was found does not refute it.

    The lower bound on memory follows from the memory model; a plan below it would show a mistake there.

    Args:
        cost: of the plan, in seconds.
        bound: of the solver.
        scale: what a second counts there.
    """
    # A bound above a plan that exists is no bound; it is dropped instead of being shown.
    if bound is None or bound / scale > cost * (1 + OPTIMALITY_TOLERANCE):
        return None
    return min(bound / scale, cost)


def _kilobytes(num_bytes: int) -> int:
    """Rounded up, so that a limit of as much as the message says is enough."""
    return -(-num_bytes // 1000)


def _usage_text(memory: MemoryUse) -> str:
    """What the memory at the peak is for, the most first."""
    uses = sorted(memory.by_use.items(), key=lambda entry: -entry[1])
    return ", ".join(f"{use.value} {size / 1e6:.3f} MB" for use, size in uses if size)


_HELP = {
    Use.PARAMETERS: "Optimizer parallel stores parameters and their state in smaller slices",
    Use.STATE: "Optimizer parallel stores parameters and their state in smaller slices",
    Use.DATA: "A smaller batch needs less",
    Use.ACTIVATIONS: "Recomputation keeps fewer activations, and so does a smaller batch",
    Use.TRANSIENTS: "A smaller batch, or gradient accumulation, needs less at a time",
}


def _advice(memory: MemoryUse) -> str:
    """Advice on the largest share of the memory."""
    largest = max(memory.by_use, key=lambda use: memory.by_use[use])
    return f"{_HELP[largest]}; more devices share all of it."


def smallest(problem: Problem, enough: int = 0) -> MeasuredPlan:
    """The smallest plan that was found; cached.

    Args:
        problem: the problem.
        enough: stop at a plan of no more bytes than this.
    """
    name = f"smallest, {enough} are enough"
    if name not in problem.plans:
        problem.plans[name] = _smallest(problem, enough)
    cached: MeasuredPlan = problem.plans[name]
    return cached


def _smallest(problem: Problem, enough: int) -> MeasuredPlan:
    large = is_large(problem)
    # For a large problem, tied blocks give a start in a time that does not grow with the depth.
    plan = choose_tied_within(problem, enough) if large else measured(problem, choose(problem.cost_graph()))
    # Tensors alone need no less than this, so smaller budgets need not be tried with costs.
    allowed = _least_tensors(problem, plan.peak_bytes)
    while allowed < plan.peak_bytes:
        choices = choose_within(limited_graph(problem, allowed))
        if choices is not None:
            plan = min(plan, measured(problem, choices), key=lambda entry: entry.peak_bytes)
            break
        allowed = int(allowed * _STEP) + 1
    # While both models still find something 30 % smaller; each success lowers the next budget.
    while not large and (less := _fit_with_both_models(problem, int(plan.peak_bytes * _LESS))) is not None:
        plan, _ = less
    return reduce_memory(problem, plan, enough)


def _least_tensors(problem: Problem, most: int) -> int:
    """The least peak of the tensors alone that was found, however they would have to be moved about."""
    low, high = 0, most
    # Bisection: whether tensors fit grows with the budget, up to what message passing misses.
    while high - low > _PRECISION * high:
        middle = (low + high) // 2
        fits = choose_within(limited_graph(problem, middle, priced=False)) is not None
        low, high = (low, middle) if fits else (middle, high)
    return high
