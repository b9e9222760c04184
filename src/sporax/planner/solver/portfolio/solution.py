"""`solve`: the whole way from a cost graph to a checked solution.

Reduce; if what is left is small or memory limits it, solve it by integer program; what is large, or takes the program too long,
by messages first. Where the program runs out of time, messages and descent still give a choice. Whatever comes back is expanded
to the graph and measured by the checker. `benchmarks/iopddl` goes on from there with a team of processes, for hours if need be.

The checker: what a choice costs and whether it fits, worked out from the graph alone.

Nothing here shares code with the search. It walks the graph node by node and edge by edge in plain Python, adds costs
with `math.fsum` and usages as integers, and replays the live intervals as events; a solution is printed only after it
has passed through here.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import index

import numpy as np

from sporax.base.errors import For, SporaxRuntimeError, SporaxValueError
from sporax.planner.budget import Budget
from sporax.planner.solver.graph.core import Core
from sporax.planner.solver.graph.cost_graph import OPTIMALITY_TOLERANCE, CostGraph, Ints, Moments
from sporax.planner.solver.graph.network import Network
from sporax.planner.solver.graph.reductions import reduce
from sporax.planner.solver.methods.coordinate_descent import first_positions
from sporax.planner.solver.methods.exact import solve_exactly
from sporax.planner.solver.portfolio.quick_choice import decide


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
            raise For(graph.name).error(f"the choice of node {node} must be from 0 to {size - 1}", choice)
    # As Python lists: an index into a list is several times quicker than one into an array, and integers cannot overflow.
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


_SMALL_ENTRIES = 100_000
"""Table entries up to which a core is tried by integer program first."""
_SMALL_SHARE, _SMALL_SECONDS = 1 / 3, 20.0
"""Most of the time for that attempt."""
_GRACE_SECONDS = 2.0
"""Overtime for finishing the reduction, and again for a first choice when that has used up all the time."""


@dataclass(frozen=True, slots=True)
class Solution:
    """The answer to a cost graph.

    Attributes:
        choices: [nodes] the strategy of each node, or None when no choice that fits was found.
        cost: cost of `choices` as measured by the checker; None without choices.
        bound: proven lower bound on the cost of every choice that fits; None if there is none.
        optimal: `cost` has been proven least, to `OPTIMALITY_TOLERANCE`.
        infeasible: it has been proven that no choice fits.
        peak: greatest total usage at any time under `choices`; None without choices.
        limit: the graph's memory limit.
        seconds: wall time.
        statistics: sizes after reduction, and what the answer came from.
    """

    choices: Ints | None
    cost: float | None
    bound: float | None
    optimal: bool
    infeasible: bool
    peak: int | None
    limit: int | None
    seconds: float
    statistics: dict[str, int | float | str] = field(default_factory=dict)

    @property
    def gap(self) -> float | None:
        """Relative distance of cost and bound, or None."""
        if self.cost is None or self.bound is None:
            return None
        return (self.cost - self.bound) / max(abs(self.cost), 1e-300) if self.cost > self.bound else 0.0


@dataclass(slots=True)
class Incumbent:
    """What is known of a core.

    Attributes:
        positions: the best choice that fits; None where none was found.
        cost: of it; ``inf`` without one.
        bound: no choice that fits is below; ``inf`` where there is none.
        method: what gave them, in words.
        is_final: nothing better is looked for: the choice is good enough, or there is none.
    """

    positions: Ints | None = None
    cost: float = np.inf
    bound: float = -np.inf
    method: str = "descent"
    is_final: bool = False

    def take(self, core: Core, positions: Ints | None, bound: float = -np.inf) -> None:
        """Note a choice that fits and a bound, each where it is better."""
        self.bound = max(self.bound, bound)
        if positions is not None and (cost := core.cost(positions)) < self.cost:
            self.positions, self.cost = positions, cost


def solve(graph: CostGraph, *, seconds: float = 60.0, gap: float = 0.0) -> Solution:
    """Finds a choice of least cost within the memory limit.

    Args:
        seconds: wall-clock budget, kept to within a few seconds; an optimal answer comes earlier.
        gap: relative gap that is good enough.

    Raises:
        SporaxValueError: `seconds` is not positive.

    Example:
        >>> graph = CostGraph.build([[1, 5]], [[9, 2]], [(0, 1)], [], limit=4)
        >>> solve(graph).choices
        array([1])
    """
    For("solve").refuse(not seconds > 0, "seconds must be positive", seconds)
    budget = Budget.of(seconds)
    core, infeasible = reduced(graph, budget.longer(_GRACE_SECONDS))
    found = Incumbent(bound=np.inf, method="reduction", is_final=True)
    if not infeasible:
        found = _searched(core, budget, gap)
    return answer(graph, core, found, budget)


def reduced(graph: CostGraph, budget: Budget) -> tuple[Core, bool]:
    """What reduction leaves of a graph, and whether it has proven that nothing fits."""
    # An unfinished reduction is still exact: what is left is only larger.
    network = reduce(Network.of(graph, Moments.of(graph.intervals)), budget)
    network.interned.clear()  # the tables that were only steps on the way
    return Core.of(network), network.infeasible


def _searched(core: Core, budget: Budget, gap: float) -> Incumbent:
    found = Incumbent()
    if len(core.room):
        attempt(core, found, budget, gap)
    elif is_small(core):
        attempt(core, found, small_part(budget), gap)
    if not found.is_final and not len(core.room) and not budget.is_over:
        decision = decide(core, budget, epsilon=gap)
        found.take(core, decision.positions, decision.bound)
        found.method = str(decision.statistics["method"])
    if found.positions is None and not found.is_final:
        start_with_descent(core, found, budget)
    return found


def is_small(core: Core) -> bool:
    """Whether the integer program is worth an attempt."""
    return sum(table.size for table in core.tables) <= _SMALL_ENTRIES


def small_part(budget: Budget) -> Budget:
    """The time for that attempt."""
    return budget.part(_SMALL_SHARE).at_most(_SMALL_SECONDS)


def attempt(core: Core, found: Incumbent, budget: Budget, gap: float = 0.0) -> None:
    """Solve a core by integer program, as far as it comes in time."""
    outcome = solve_exactly(core, budget, gap=gap)
    found.take(core, outcome.positions, outcome.bound)
    found.is_final = outcome.optimal or outcome.bound == np.inf
    found.method = "integer program"
    if outcome.optimal and not gap:
        found.bound = found.cost


def start_with_descent(core: Core, found: Incumbent, budget: Budget) -> None:
    """A choice by descent. Even without time left: one that fits is worth more than the budget."""
    found.take(core, first_positions(core, budget if budget.left > _GRACE_SECONDS else Budget.of(_GRACE_SECONDS)))


def answer(graph: CostGraph, core: Core, found: Incumbent, budget: Budget) -> Solution:
    """Expands the best choice, has it checked, and states what is known."""
    statistics: dict[str, int | float | str] = {
        "method": found.method,
        "core_nodes": core.num_nodes,
        "core_strategies": len(core.costs),
        "core_entries": sum(table.size for table in core.tables),
    }
    bound = found.bound if np.isfinite(found.bound) else None
    if found.positions is None:
        infeasible = found.bound == np.inf
        return Solution(None, None, bound, False, infeasible, None, graph.limit, budget.used, statistics)
    choices = core.expand(found.positions)
    # By code that shares nothing with the search: an error there must not become a wrong plan.
    measured = evaluate(graph, choices.tolist())
    if not measured.feasible:
        raise SporaxRuntimeError(
            f"For '{graph.name}', the solver's choice must pass its checker, but got cost {measured.cost} and peak "
            f"{measured.peak} at time {measured.peak_time} with limit {graph.limit}. This is a bug in Sporax."
        )
    cost = measured.cost
    optimal = bound is not None and cost - bound <= OPTIMALITY_TOLERANCE * max(1.0, abs(cost))
    # Rounding may carry a bound above the cost that the checker measured.
    if optimal or (bound is not None and bound > cost):
        bound = cost
    return Solution(choices, cost, bound, optimal, False, measured.peak, graph.limit, budget.used, statistics)
