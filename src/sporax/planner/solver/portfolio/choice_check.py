"""The checker: what a choice costs and whether it fits, worked out from the graph alone.

Nothing here shares code with the search. It walks the graph node by node and edge by edge in plain Python, adds costs
with `math.fsum` and usages as integers, and replays the live intervals as events; a solution is printed only after it
has passed through here.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from operator import index

from sporax.base.errors import SporaxValueError
from sporax.planner.solver.graph.cost_graph import CostGraph


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A choice, measured.

    Attributes:
        cost: sum of node and edge costs; ``inf`` when a forbidden strategy or pair is used.
        peak: greatest total usage at any time.
        peak_time: a time at which it occurs (0 when nothing is ever live).
        feasible: the cost is finite and the peak within the limit.
    """

    cost: float
    peak: int
    peak_time: int
    feasible: bool


def evaluate(graph: CostGraph, choices: Sequence[int]) -> Evaluation:
    """Measures `choices`, one strategy number per node.

    Raises:
        SporaxValueError: there are too few or too many choices, or one is not a strategy of its node.
    """
    sizes, offsets = graph.sizes.tolist(), graph.offsets.tolist()
    try:
        # `operator.index` takes numpy's integers too, and refuses floats, which would be rounded without a word.
        picked = [index(choice) for choice in choices]
    except TypeError:
        raise SporaxValueError(
            f"For '{graph.name}', the choices must be a list of whole numbers, but got {reprlib.repr(choices)}."
        ) from None
    if len(picked) != len(sizes):
        raise SporaxValueError(
            f"For '{graph.name}', there must be one choice per node, but got {len(picked)} choices and {len(sizes)} nodes."
        )
    for node, (choice, size) in enumerate(zip(picked, sizes, strict=True)):
        if not 0 <= choice < size:
            raise SporaxValueError(
                f"For '{graph.name}', the choice of node {node} must be from 0 to {size - 1}, but got {choice}."
            )
    # As Python lists: an index into a list is several times quicker than one into an array, and integers cannot
    # overflow.
    costs, usages = graph.costs.tolist(), graph.usages.tolist()
    terms = [costs[offset + choice] for offset, choice in zip(offsets, picked, strict=False)]
    for (first, second), table in zip(graph.edges.tolist(), graph.edge_tables.tolist(), strict=True):
        terms.append(float(graph.tables[table][picked[first], picked[second]]))
    cost = math.fsum(terms)
    peak, peak_time = _peak(graph.intervals.tolist(), [usages[o + c] for o, c in zip(offsets, picked, strict=False)])
    fits = graph.limit is None or peak <= graph.limit
    return Evaluation(cost, peak, peak_time, fits and math.isfinite(cost))


def _peak(intervals: list[list[int]], usages: list[int]) -> tuple[int, int]:
    events: dict[int, int] = {}
    for (begin, end), usage in zip(intervals, usages, strict=True):
        # A node with an empty interval is never live, so its usage counts nowhere.
        if begin < end:
            events[begin] = events.get(begin, 0) + usage
            events[end] = events.get(end, 0) - usage
    # At one moment, what ends is counted together with what begins: intervals are half open.
    peak, peak_time, load = 0, 0, 0
    for moment in sorted(events):
        load += events[moment]
        if load > peak:
            peak, peak_time = load, moment
    return peak, peak_time
