"""The search under a memory limit.

The solver knows what each decision's tensors take and from when to when; what transfers add shows only in the finished plan.
So plans are measured, and whoever decides is asked again with so much held in reserve at every time as the plan took beside its
tensors. Messages are told of tensors in two ways: as lying where their bundles have them until the end (`usage`), and as brought
to their readers (`transients`); each finds plans that the other does not.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sporax.ir.errors import SporaxRuntimeError
from sporax.ir.plan import Plan
from sporax.planner.cost.model import local_bytes
from sporax.planner.memory import MemoryUse, Use, lives, memory_of, memory_over_time
from sporax.planner.search.assemble import plan_of
from sporax.planner.search.deciding import choose, choose_within, refine_within
from sporax.planner.search.problem import NANOSECONDS, Problem
from sporax.planner.search.transients import Piece, brought
from sporax.planner.solver import CostGraph, Solution, solve
from sporax.planner.solver.solution import OPTIMALITY_TOLERANCE

_ROUNDS = 6
"""How often a plan that is too large is tried again with less."""
_PROVING_ROUNDS = 3
"""and how often where the integer program decides."""
_TRIES = ((1.0, _ROUNDS), (0.96, 2))
"""Shares of the limit that messages are given, and rounds: with less they go other ways, and may find more."""
_WORTH = 0.99
"""Share of the cost that another round must bring it to."""
_PRECISION = 0.02
"""To which share the smallest budget is worked out,"""
_STEP = 1.15
"""each guess so much larger than the one before."""
_LESS = (0.85, 0.96)
"""Shares of the memory that the next tries to find less are given."""

Bytes = NDArray[np.int64]
"""Of one device."""

Decide = Callable[[CostGraph], "Sequence[int] | None"]
"""One candidate per node of a graph with a memory limit, or None where nothing that fits was found."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """A choice within a limit.

    Attributes:
        chosen: one candidate per decision.
        plan: the plan.
        memory: predicted memory of the plan.
        rounds: how often somebody had to decide.
    """

    chosen: list[int]
    plan: Plan
    memory: MemoryUse
    rounds: int

    @property
    def peak_bytes(self) -> int:
        """Predicted memory of one device."""
        return self.memory.peak_bytes


Usage = Sequence[Mapping[Piece, Sequence[int]]]


def usage(problem: Problem) -> Usage:
    """For every decision, when its tensors are there and how many bytes they take, per candidate."""
    if "usage" not in problem.remembered:
        problem.remembered["usage"] = _usage(problem)
    known: Usage = problem.remembered["usage"]
    return known


def _usage(problem: Problem) -> Usage:
    graph, bundles = problem.graph, problem.bundles
    found: list[dict[Piece, list[int]]] = [{} for _ in problem.choices]
    for life in lives(graph):
        origin = bundles.origin[life.tensor]
        node = bundles.node_of[origin]
        where = problem.choices[node].lies[origin]
        sizes = [local_bytes(graph.tensors[origin], each, problem.mesh) for each in where]
        piece = (life.begin + 1, life.end + 2)
        before = found[node].get(piece, [0] * len(sizes))
        found[node][piece] = [a + b for a, b in zip(before, sizes, strict=True)]
    return found


def limited_graph(
    problem: Problem, limit: int, reserve: Bytes | None = None, priced: bool = True, known: Usage | None = None
) -> CostGraph:
    """The problem for the solver, with a memory limit in bytes.

    A decision whose tensors live at different times gets one more node for every further span, tied to the first.

    Args:
        problem: the problem.
        limit: bytes of one device.
        reserve: [1 + operators + 1] bytes that are taken before the first operator, at each of them, and at the end.
        priced: False to ask only what fits.
        known: what tensors take; `usage` by default.
    """
    costs = [each.tolist() if priced else [0.0] * len(each) for each in problem.costs]
    edges: list[tuple[int, int, object]] = [*problem.edges] if priced else []
    usages: list[Sequence[int]] = [[0] * len(each) for each in costs]
    spans: list[Piece] = [(0, 0)] * len(costs)
    for node, pieces in enumerate(known or usage(problem)):
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
    for span, size in _stretches(reserve):
        costs.append([0.0])
        usages.append([size])
        spans.append(span)
    return CostGraph.build(costs, usages, spans, edges, limit, "plan")  # type: ignore[arg-type]


def _stretches(reserve: Bytes | None) -> Iterator[tuple[Piece, int]]:
    """When how much is reserved."""
    if reserve is None:
        return
    ends = [0, *(np.flatnonzero(np.diff(reserve)) + 1).tolist(), len(reserve)]
    for first, last in itertools.pairwise(ends):
        if reserve[first]:
            yield (max(2 * first - 1, 0), 2 * last - 1), int(reserve[first])


def fit(
    problem: Problem,
    limit: int,
    decide: Decide,
    rounds: int = _ROUNDS,
    reserve: Bytes | None = None,
    known: Usage | None = None,
) -> Fitted | None:
    """The cheapest plan that fits, of those that come of asking `decide` with ever better reserves.

    Args:
        problem: the problem.
        limit: bytes of one device.
        decide: chooses.
        rounds: how often it is asked, at most; two of them are spent where there is nothing to begin with.
        reserve: to begin with, as in `limited_graph`.
        known: what it is told of, as there.
    """
    known = known or usage(problem)
    asked = partial(_asked, problem, limit, decide, known)
    best: Fitted | None = None
    spent = 0
    if reserve is None:
        spent = 2
        first = asked(None, 1)
        if first is None or first.peak_bytes <= limit or rounds < 2:
            return first if first is not None and first.peak_bytes <= limit else None
        reserve = beside(problem, first, known)
        everywhere = asked(np.full_like(reserve, first.peak_bytes - limit), 2)
        best = everywhere if everywhere is not None and everywhere.peak_bytes <= limit else None
    for number in range(spent + 1, rounds + 1):
        fitted = asked(reserve, number)
        if fitted is None:
            reserve = reserve // 2  # another plan may get by with less
        elif fitted.peak_bytes > limit:
            reserve = np.maximum(reserve, beside(problem, fitted, known))
        elif best is None or problem.seconds(fitted.chosen) < _WORTH * problem.seconds(best.chosen):
            best, reserve = fitted, beside(problem, fitted, known)
        else:
            break
    return best


def _asked(
    problem: Problem, limit: int, decide: Decide, known: Usage, reserve: Bytes | None, number: int
) -> Fitted | None:
    """What comes of one decision."""
    choices = decide(limited_graph(problem, limit, reserve, known=known))
    return None if choices is None else measured(problem, choices, number)


def beside(problem: Problem, fitted: Fitted, known: Usage) -> Bytes:
    """[1 + operators + 1] what a plan takes beside the tensors that whoever decides knows of."""
    count = len(problem.graph.operators)
    taken = np.zeros(2 * count + 4, np.int64)
    for pieces, candidate in zip(known, fitted.chosen, strict=True):
        for (begin, end), sizes in pieces.items():
            taken[begin] += sizes[candidate]
            taken[end] -= sizes[candidate]
    taken = np.cumsum(taken)
    at_operator = np.concatenate([taken[:1], taken[1 : 2 * count + 3].reshape(-1, 2).max(axis=1)])
    told = np.zeros(count + 2, np.int64)
    for position, uses in memory_over_time(problem.graph, fitted.plan):
        told[min(position + 1, count + 1) :] = sum(uses.values())
    found: Bytes = np.maximum(told - at_operator, 0)
    return found


def measured(problem: Problem, choices: Sequence[int], rounds: int = 1) -> Fitted:
    """The plan of a choice, with its memory; further nodes of a graph with a limit say nothing new."""
    chosen = [int(each) for each in choices[: len(problem.costs)]]
    plan = plan_of(problem, chosen)
    return Fitted(chosen, plan, memory_of(problem.graph, plan), rounds)


def fit_quickly(problem: Problem, limit: int) -> Fitted | None:
    """As `fit`, by messages, told of tensors in both ways; what they suggest last is refined."""
    rough = _fit_in_both_ways(problem, limit)
    if rough is None:
        return fit(problem, limit, refine_within, rounds=2)
    best, known = rough
    fine = fit(problem, limit, refine_within, 2, beside(problem, best, known), known)
    return min((each for each in (best, fine) if each), key=lambda each: problem.seconds(each.chosen))


def _fit_in_both_ways(problem: Problem, limit: int) -> tuple[Fitted, Usage] | None:
    """The cheapest plan that fits of those that messages suggest, given the limit or less, and what they were told of."""
    found = [
        (fit(problem, int(limit * share), choose_within, rounds, known=known), known)
        for known in (usage(problem), brought(problem))
        for share, rounds in _TRIES
    ]
    fitting = [(each, known) for each, known in found if each is not None]
    return min(fitting, key=lambda pair: problem.seconds(pair[0].chosen), default=None)


def solve_within(problem: Problem, limit: int, seconds: float, tried: bool = False) -> tuple[Fitted, Solution]:
    """The plan of least time that fits, and what the solver says of the limit itself: its bound holds for every plan that fits.

    Args:
        problem: the problem.
        limit: bytes of one device.
        seconds: time for the solver, all rounds together.
        tried: messages have been asked, and know of nothing.

    Raises:
        SporaxRuntimeError: nothing fits; says what would.
    """
    deadline = time.monotonic() + seconds
    known: list[Solution] = []

    def decide(graph: CostGraph) -> Sequence[int] | None:
        known.append(solve(graph, seconds=max(deadline - time.monotonic(), 1.0)))
        choices = known[-1].choices
        return None if choices is None else choices.tolist()

    first = fit(problem, limit, decide, rounds=1)
    if first is not None:
        return first, known[0]
    quick = None if tried or known[0].infeasible else fit_quickly(problem, limit)
    later = fit(problem, limit, decide, _PROVING_ROUNDS, beside(problem, quick, usage(problem))) if quick else None
    found = min((each for each in (quick, later) if each), key=lambda each: problem.seconds(each.chosen), default=None)
    found = found or smallest(problem)
    if found.peak_bytes <= limit:
        return replace(found, rounds=len(known) + 1), known[0]  # later answers were about less memory
    raise SporaxRuntimeError(
        f"For 'memory', the plan must fit into {limit / 1e6:.3f} MB per device, but {found.peak_bytes / 1e6:.3f} MB is the "
        f"least that was found to do ({_spent(found.memory)}). {_advice(found.memory)}"
    )


def bound_below(cost: float, bound: float | None) -> float | None:
    """A solver's bound in seconds, if the plan that was found does not refute it.

    The solver takes tensors to lie where their bundles have them until their last reader. A plan that brings large ones to
    smaller places before may need less memory, and may be cheaper than what the solver takes to be possible.

    Args:
        cost: of the plan, in seconds.
        bound: of the solver, in nanoseconds.
    """
    if bound is None or bound / NANOSECONDS > cost * (1 + OPTIMALITY_TOLERANCE):
        return None
    return min(bound / NANOSECONDS, cost)


def _spent(memory: MemoryUse) -> str:
    """What the memory at the peak is for, the most first."""
    uses = sorted(memory.by_use.items(), key=lambda each: -each[1])
    return ", ".join(f"{use.value} {size / 1e6:.3f} MB" for use, size in uses if size)


_HELP = {
    Use.PARAMETERS: "Optimizer parallel cuts parameters and their state further",
    Use.STATE: "Optimizer parallel cuts parameters and their state further",
    Use.DATA: "A smaller batch needs less",
    Use.ACTIVATIONS: "Recomputation keeps fewer activations, and so does a smaller batch",
    Use.TRANSIENTS: "A smaller batch, or gradient accumulation, needs less at a time",
}


def _advice(memory: MemoryUse) -> str:
    """What would help against the largest share."""
    largest = max(memory.by_use, key=lambda use: memory.by_use[use])
    return f"{_HELP[largest]}; more devices share all of it."


def smallest(problem: Problem) -> Fitted:
    """A plan that needs as little memory as was found to do."""
    found = measured(problem, choose(problem.cost_graph()))
    allowed = _least_tensors(problem, found.peak_bytes)
    while allowed < found.peak_bytes:
        choices = choose_within(limited_graph(problem, allowed))
        if choices is not None:
            found = min(found, measured(problem, choices), key=lambda each: each.peak_bytes)
            break
        allowed = int(allowed * _STEP) + 1
    for share in _LESS:
        while (less := _fit_in_both_ways(problem, int(found.peak_bytes * share))) is not None:
            found, _ = less
    return found


def _least_tensors(problem: Problem, most: int) -> int:
    """The least peak of the tensors alone that was found, however they would have to be moved about."""
    low, high = 0, most
    while high - low > _PRECISION * high:
        middle = (low + high) // 2
        fits = choose_within(limited_graph(problem, middle, priced=False)) is not None
        low, high = (low, middle) if fits else (middle, high)
    return high
