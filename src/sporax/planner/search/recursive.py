"""The fast search: mesh axis by mesh axis over the whole graph.

For every axis, from the outermost to the innermost, each decision extends what it has by that axis at one place or none, so
there are only a handful of candidates at a time. Double recursion (Wang et al., Euro-Par 2021) works this way, with halves and
a constant for every disagreement, heaviest operators first; here axes have any size, disagreements cost what the moves cost,
and messages between the decisions take the place of an order (`deciding`); layers that repeat are decided alike (`tying`).
What is decided first weighs on the rest, so two orders are tried: axis by axis, and all axes in one round, those of one kind of
link together.

Where the best of these plans does not fit the memory, every round may take what the rounds to come can still make fit by cutting
it (unless the problem is large); and all axes are handed out at once as well, as the other searches do.
"""

from __future__ import annotations

import itertools
import math
import time
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.errors import SporaxRuntimeError
from sporax.ir.graph import OperatorGraph
from sporax.planner.cost.model import CostModel
from sporax.planner.search.block_tying import choose_alike
from sporax.planner.search.candidates import Base
from sporax.planner.search.local_search import Fitted, measured
from sporax.planner.search.loop_bodies import inside_loops
from sporax.planner.search.memory_heuristic import cheapest
from sporax.planner.search.memory_limit import fit, is_large
from sporax.planner.search.message_passing import choose_within
from sporax.planner.search.plan_assembly import plan_of
from sporax.planner.search.problem import Problem, ProblemBuilder, SearchOptions
from sporax.planner.search.result import SearchResult
from sporax.planner.search.search_space import Units, natural_units

Order = tuple[Units, ...]
"""What each round hands out."""

_ROUNDS = 5
"""Rounds at most, of axis by axis."""
_WORTH = 0.1
"""How much dearer than the other an order's plan may be by quick prices to be priced by the cheapest ways, which takes longer."""


@inside_loops
def recursive(
    graph: OperatorGraph, mesh: DeviceMatrix, model: CostModel, options: SearchOptions | None = None
) -> SearchResult:
    """A good plan quickly; nothing is proven.

    Args:
        graph: the step.
        mesh: the devices.
        model: prices operators and links.
        options: what the search may do; `units` are its rounds; several orders are tried by default.

    Raises:
        SporaxRuntimeError: nothing fits the memory.
    """
    start = time.monotonic()
    options = options or SearchOptions()
    orders = [tuple((unit,) for unit in options.units)] if options.units else _orders(mesh, model)
    free = replace(options, memory_bytes=None)
    builder = ProblemBuilder(graph, mesh, model, free, hurry=True)
    sketches = [_run(builder, order) for order in orders]
    least = min(each.seconds for each in sketches)
    attempts = [_finished(builder, each) for each in sketches if each.seconds <= (1 + _WORTH) * least]
    best = min(attempts, key=_cost)
    if not _fits(best, options.memory_bytes):
        builder = ProblemBuilder(graph, mesh, model, options, hurry=True)
        tight = [] if is_large(best.final) else [_run(builder, order) for order in orders]
        sketches += tight
        attempts += [_finished(builder, each) for each in tight]
        known = any(_fits(each, options.memory_bytes) for each in attempts)
        with suppress(*([SporaxRuntimeError] if known else [])):
            attempts.append(_at_once(graph, mesh, model, options))
        best = min((each for each in attempts if _fits(each, options.memory_bytes)), key=_cost)
    final = best.final
    return SearchResult(
        _measured(final).plan if options.memory_bytes is not None else plan_of(final, [0] * len(final.costs)),
        "recursive",
        _cost(best),
        None,
        False,
        time.monotonic() - start,
        {**final.statistics(), "candidates": sum(each.candidates for each in sketches), "orders": len(orders)},
    )


class _Sketch(NamedTuple):
    """What one order of rounds decided.

    Attributes:
        bases: per decision.
        seconds: cost by the prices of the last round, in which moves go the straight way.
        candidates: how many were looked at.
    """

    bases: list[Base] | None
    seconds: float
    candidates: int


class _Attempt(NamedTuple):
    """What one order of rounds led to.

    Attributes:
        final: the problem with everything decided.
        candidates: how many were looked at.
    """

    final: Problem
    candidates: int


def _cost(attempt: _Attempt) -> float:
    return attempt.final.seconds([0] * len(attempt.final.costs))


def _fits(attempt: _Attempt, limit: int | None) -> bool:
    return limit is None or _measured(attempt.final).peak_bytes <= limit


def _measured(final: Problem) -> Fitted:
    """The plan and its memory, remembered with the problem."""
    if "measured" not in final.remembered:
        final.remembered["measured"] = measured(final, [0] * len(final.costs))
    known: Fitted = final.remembered["measured"]
    return known


def _at_once(graph: OperatorGraph, mesh: DeviceMatrix, model: CostModel, options: SearchOptions) -> _Attempt:
    """All axes in one round."""
    builder = ProblemBuilder(graph, mesh, model, options)
    problem = builder.build()
    return _Attempt(builder.priced(problem.bases(cheapest(problem, []))), sum(map(len, problem.costs)))


def _orders(mesh: DeviceMatrix, model: CostModel) -> list[Order]:
    """Orders of rounds to try: axis by axis (a few at a time where there are many), and all axes in one round, in two runs."""
    axes = [axis for axis in mesh.device_axes if mesh.shape[axis] > 1]
    together = -(-len(axes) // _ROUNDS) or 1
    single = tuple((tuple(axes[start : start + together]),) for start in range(0, len(axes), together))
    return list(dict.fromkeys([single, (natural_units(mesh, model.links),)]))


def _run(builder: ProblemBuilder, order: Order) -> _Sketch:
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
        candidates += sum(map(len, problem.costs))
    return _Sketch(bases, seconds, candidates)


def _finished(builder: ProblemBuilder, sketch: _Sketch) -> _Attempt:
    return _Attempt(builder.priced(sketch.bases), sketch.candidates)


def _choose(problem: Problem, to_come: int) -> list[int]:
    """The choice of one round; what is too large may still be cut by the devices `to_come`."""
    limit = problem.options.memory_bytes
    chosen = choose_alike(problem)
    if limit is None or measured(problem, chosen).peak_bytes <= limit:
        return chosen
    fitted = fit(problem, limit * to_come, choose_within)
    return chosen if fitted is None else fitted.chosen
