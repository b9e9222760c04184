"""The k best plans, and plans that trade time for memory.

Problem: many plans differ only in details that do not matter to a person. So two plans count as different only if they
shard one of the heaviest operators differently.

Method: Lawler's partition. The best plan splits the remaining search space into disjoint subspaces: plans that shard
the heaviest operator differently, plans that agree on it and shard the next one differently, and so on. The cheapest of
the best plans of all subspaces is the next result, and its subspace is split again. All subspaces share one reduced
problem. A TRW-S bound per subspace tells which ones can contain the next plan, so only these are solved.

`trade_offs` computes points of the Pareto front of time and memory.

Reference: E. L. Lawler, "A procedure for computing the K best solutions to discrete optimization problems", Management
Science 18 (1972).
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from sporax.base.errors import SporaxValueError
from sporax.base.progress import doing
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import OperatorGraph
from sporax.ir.plan import Plan
from sporax.planner.cost.model import CostModel
from sporax.planner.cost.symbolic import unit_of
from sporax.planner.loops.inline import inline_loops
from sporax.planner.search.dynamic import decided
from sporax.planner.search.inlined_loops import inside_loops
from sporax.planner.search.limit.local_search import MeasuredPlan, measured, reduce_cost, reduce_memory
from sporax.planner.search.limit.memory_heuristic import cheapest
from sporax.planner.search.limit.memory_limit import fit, smallest, solve_within, unmodelled_bytes
from sporax.planner.search.limit.message_passing import CoordinateDescent, choose, choose_within, converge
from sporax.planner.search.limit.resident_memory import resident_usage
from sporax.planner.search.limit.transient_memory import transient_usage
from sporax.planner.search.sharding_propagation import heaviest_first
from sporax.planner.search.space.plan_assembly import plan_of
from sporax.planner.search.space.problem import Problem, ProblemBuilder, SearchOptions
from sporax.planner.search.space.result import SearchResult
from sporax.planner.solver.graph.core import Core
from sporax.planner.solver.graph.cost_graph import Booleans, Floats
from sporax.planner.solver.graph.moments import Timeline
from sporax.planner.solver.graph.network import Network
from sporax.planner.solver.graph.reductions import reduce
from sporax.planner.solver.methods.coordinate_descent import descend
from sporax.planner.solver.methods.trws import MessagePassing
from sporax.planner.solver.portfolio.solution import OPTIMALITY_TOLERANCE

SECONDS = 30.0
"""Time for a question."""
_SHARE = 0.5
"""Most of the time that is left that one subspace may take: later ones need some too."""
_LOOKS, _LOOKS_PER_CHOICE = 24, 4
"""Sweeps of messages that bound a subspace, and after how many of them a choice is read off."""
_SWEEPS = 18
"""Sweeps of messages where plans must fit a memory: many plans are requested, and none has to be the best."""
_LESS = 0.7
"""Share of the smallest peak so far that the next attempt may use."""
_ROUNDS = 2
"""How often a plan that is too large is tried again with less."""

Allowed = Mapping[int, Sequence[int]]
"""For decisions that are not free the candidates that are left."""


@dataclass(frozen=True, slots=True, order=True)
class _Subspace:
    """The plans that are allowed.

    Attributes:
        seconds: what the best one costs, or, before that is known, what none is below.
        chosen: the best one, one candidate per decision; () before it is known.
        proven: nothing in the part is cheaper.
        bound: what none is below.
        allowed: what makes the part.
        near: a plan that agrees with most of it.
    """

    seconds: float
    chosen: tuple[int, ...]
    proven: bool = field(compare=False)
    bound: float = field(compare=False)
    allowed: Allowed = field(compare=False)
    near: tuple[int, ...] = field(compare=False, default=())


def alternatives(
    graph: OperatorGraph,
    mesh: DeviceMatrix,
    model: CostModel,
    options: SearchOptions | None = None,
    *,
    count: int = 3,
    decisions: int = 6,
    seconds: float = SECONDS,
    incumbent: Plan | None = None,
) -> tuple[SearchResult, ...]:
    """The `count` cheapest plans of which any two cut one of the heaviest operators in different ways, the cheapest first.

    Each is the best plan with its shardings of these operators. They are proven to be the cheapest while the time lasts: the
    statistics of each say ``"proven": 1`` when nothing cheaper was left out before it. What is found after that is good, and
    no more; ``"cut_short"`` is how many parts were not looked through to the end. There are fewer than `count` where the
    operators cannot be sharded in so many ways, or nothing else was found that fits the memory.

    Args:
        graph: the step.
        mesh: the devices.
        model: the cost of operators and links.
        options: what the search may do.
        count: how many plans.
        decisions: how many of the heaviest operators must not all be sharded equally.
        seconds: time for all of it, the problem itself aside.
        incumbent: a plan that a search found; under a memory limit it saves the search for one that fits.

    Raises:
        SporaxValueError: a number below 1.
        SporaxRuntimeError: nothing fits the memory.
    """
    if count < 1 or decisions < 1:
        raise SporaxValueError(
            f"For 'alternatives', 'count' and 'decisions' must be at least 1, but got {count} and {decisions}."
        )
    incumbent = None if incumbent is None else inline_loops(graph).unfolded(incumbent)
    return _alternatives(graph, mesh, model, options or SearchOptions(), count, decisions, seconds, incumbent)


@inside_loops
def _alternatives(
    graph: OperatorGraph,
    mesh: DeviceMatrix,
    model: CostModel,
    options: SearchOptions,
    count: int,
    decisions: int,
    seconds: float,
    incumbent: Plan | None,
) -> tuple[SearchResult, ...]:
    start = time.monotonic()
    problem = ProblemBuilder(graph, mesh, model, options).build()
    subspaces = _Subspaces(problem, heaviest_first(problem)[:decisions], time.monotonic() + seconds, incumbent)
    subspaces_found = subspaces.cheapest(count)
    least = subspaces_found[0].seconds if subspaces_found[0].proven else None
    statistics = {**problem.statistics(), "parts": subspaces.proven, "cut_short": subspaces.cut_short}
    return tuple(
        SearchResult(
            plan_of(problem, subspace.chosen),
            "alternatives",
            subspace.seconds,
            least,
            least is not None and subspace.seconds <= least * (1 + OPTIMALITY_TOLERANCE),
            time.monotonic() - start,
            {**statistics, "rank": rank, "proven": int(subspace.proven)},
            unit_of(model),
            options,
        )
        for rank, subspace in enumerate(subspaces_found)
    )


class _Subspaces:
    """The plans of a problem, part by part.

    Args:
        problem: the problem.
        heavy: decisions on which plans must differ.
        deadline: of `time.monotonic`; after it parts are not looked through any more.
        incumbent: a plan of the problem.
    """

    def __init__(self, problem: Problem, heavy: Sequence[int], deadline: float, incumbent: Plan | None) -> None:
        self.problem, self.heavy, self.deadline, self.incumbent = problem, heavy, deadline, incumbent
        self.proven, self.cut_short = 0, 0
        graph = problem.cost_graph()
        network = Network.of(graph, Timeline.of(graph.intervals))
        # Decisions on which plans must differ keep all their candidates: a dominated one is the best of some subspace.
        self.core = Core.of(reduce(network, kept=frozenset(heavy)))
        self.place = {node: number for number, node in enumerate(self.core.nodes.tolist())}

    def cheapest(self, count: int) -> list[_Subspace]:
        """The best plans of parts, the cheapest first. One that is behind an unproven part is not proven either."""
        # A heap: subspaces without a plan stand in it by their lower bound, the others by the cost of their best plan.
        waiting = [self._decided(_Subspace(-math.inf, (), False, -math.inf, {}))]
        best: list[_Subspace] = []
        sure = True
        while waiting and len(best) < count:
            subspace = heapq.heappop(waiting)
            # A bound came first in the heap. Only now is its best plan worth working out.
            if not subspace.chosen:
                with doing(f"alternative plans, {len(best)} of {count} found"):
                    subspace = self._decided(subspace)
                if math.isfinite(subspace.seconds):
                    heapq.heappush(waiting, subspace)
                continue
            # A cheaper plan may be hidden in an unproven subspace that is still waiting.
            sure = (
                sure and subspace.proven and all(other.bound >= subspace.seconds or other.proven for other in waiting)
            )
            best.append(replace(subspace, proven=sure))
            for rest in self._split(subspace) if len(best) < count else ():
                # A subspace whose bound is above the `count`-th plan known so far cannot contribute, so its messages
                # may stop early.
                costs = sorted(other.seconds for other in (*best, *waiting) if other.chosen)
                heapq.heappush(waiting, self._looked_at(rest, costs[count - 1] if len(costs) >= count else math.inf))
        return sorted(best)

    def _split(self, subspace: _Subspace) -> Iterator[_Subspace]:
        """What is left of a part without the choices of its best plan, split by the first decision that is another."""
        allowed = dict(subspace.allowed)
        for node in self.heavy:
            # Subspaces are disjoint: before the first decision that differs, all are as in the best plan, and after it
            # they are free.
            before = allowed.get(node, range(len(self.problem.costs[node])))
            others = [earlier for earlier in before if earlier != subspace.chosen[node]]
            if others:
                yield _Subspace(subspace.bound, (), False, subspace.bound, {**allowed, node: others}, subspace.chosen)
            allowed[node] = (subspace.chosen[node],)

    def _looked_at(self, subspace: _Subspace, enough: float) -> _Subspace:
        """The part with a bound by messages, and with its best plan where they prove one; `enough` is a bound that is.

        They begin with what they have said of all plans, and hear of a price on what is not allowed.
        """
        messages, start = self._messages
        # Messages go on from those of all plans: a subspace is nearly the whole problem.
        messages.messages[:] = start
        costs, bound = self._restricted_costs(subspace.allowed), -math.inf
        for number in range(_LOOKS if time.monotonic() < self.deadline else 0):
            bound = max(bound, self.core.constant + max(messages.sweep(costs)))
            if bound / self.problem.scale >= enough:
                break
            if number % _LOOKS_PER_CHOICE == _LOOKS_PER_CHOICE - 1:
                choice = descend(self.core, messages.decode(costs), costs)
                if self.core.cost(choice) <= bound * (1 + OPTIMALITY_TOLERANCE):
                    return self._fitted(subspace, self.core.expand(choice).tolist(), True)
        below = max(subspace.bound, bound / self.problem.scale)
        return replace(subspace, seconds=below, bound=below)

    @cached_property
    def _messages(self) -> tuple[MessagePassing, Floats]:
        """Messages, and what they say where everything is allowed."""
        messages = MessagePassing(self.core)
        converge(messages)
        return messages, messages.messages.copy()

    def _restricted_costs(self, allowed: Allowed) -> Floats:
        """[strategies] costs of the core, with more than all of a plan on what is not allowed."""
        costs = self.core.costs.copy()
        for node, candidates in allowed.items():
            place = self.place[node]
            mine = costs[self.core.offsets[place] : self.core.offsets[place + 1]]
            # A finite penalty: messages must stay numbers, and a decoded choice that pays it is above every bound of
            # interest.
            mine[~self._among(node, candidates)] += self._prohibitive_cost
        return costs

    @cached_property
    def _prohibitive_cost(self) -> float:
        # Ten good plans: no plan of interest costs as much as what is not allowed.
        return 10 * self.problem.seconds(choose(self.problem.cost_graph())) * self.problem.scale

    def _among(self, node: int, candidates: Sequence[int]) -> Booleans:
        """[strategies] which strategies of the core are candidates."""
        return np.isin(self.core.strategies(self.place[node]), np.array(candidates))

    def _decided(self, subspace: _Subspace) -> _Subspace:
        """The part with its best plan; after the deadline, or where that does not fit the memory, with a good one."""
        left = self.deadline - time.monotonic()
        exact = self._exactly(subspace.allowed, _SHARE * left) if left > 0 else None
        return self._fitted(subspace, *(exact or (self._roughly(subspace.allowed, subspace.near), False)))

    def _fitted(self, subspace: _Subspace, chosen: list[int] | None, proven: bool) -> _Subspace:
        """The part with a plan, or with another one that fits the memory where that does not."""
        problem, limit = self.problem, self.problem.options.memory_bytes
        if chosen is not None and limit is not None and measured(problem, chosen).peak_bytes > limit:
            chosen, proven = self._fitting(subspace.allowed, subspace.near, limit), False
        self.proven += proven
        self.cut_short += not proven
        seconds = math.inf if chosen is None else problem.seconds(chosen)
        return replace(subspace, seconds=seconds, chosen=tuple(chosen or ()), proven=proven)

    def _exactly(self, allowed: Allowed, seconds: float) -> tuple[list[int] | None, bool]:
        """The best plan of a part, memory aside, and whether that is proven; None where there is none."""
        network = self.core.as_network()
        for node, candidates in allowed.items():
            network.keep(self.place[node], self._among(node, candidates))
        # A decision without candidates, or a reduction that fails, proves that the subspace is empty.
        if any(not len(network.costs[self.place[node]]) for node in allowed) or reduce(network).infeasible:
            return None, True
        core = Core.of(network)
        positions, proven = decided(core, seconds)
        # Twice: the inner core's positions belong to the outer core's positions.
        return self.core.expand(core.expand(positions)).tolist(), proven

    def _roughly(self, allowed: Allowed, near: Sequence[int]) -> list[int]:
        """A plan of a part: one that is near, with the decision that must change, and others as they then like it."""
        if not near:
            return choose(self.problem.cost_graph())
        chosen, descent = [*near], self._descent
        for node, candidates in allowed.items():
            if chosen[node] not in candidates:
                # The cheapest candidate next to the neighbours as they are; the descent then adapts the neighbours.
                candidate_costs = descent.candidate_costs(node, chosen)[list(candidates)]
                chosen[node] = candidates[int(candidate_costs.argmin())]
        descent.improve(chosen, frozenset(allowed))
        return chosen

    @cached_property
    def _descent(self) -> CoordinateDescent:
        return CoordinateDescent(self.problem)

    def _fitting(self, allowed: Allowed, near: Sequence[int], limit: int) -> list[int] | None:
        """A plan of a part that fits the memory, if one was found.

        Raises:
            SporaxRuntimeError: nothing at all fits.
        """
        if not allowed:
            return _fitting_one(self.problem, limit, self.incumbent, _SHARE * (self.deadline - time.monotonic())).chosen
        rough = measured(self.problem, self._roughly(allowed, near))
        plans = [rough] if rough.peak_bytes <= limit and math.isfinite(self.problem.seconds(rough.chosen)) else []
        if time.monotonic() < self.deadline:
            costs = [costs_of.copy() for costs_of in self.problem.costs]
            for node, candidates in allowed.items():
                costs[node][[number for number in range(len(costs[node])) if number not in candidates]] = np.inf
            usage = resident_usage(self.problem)
            # The plan nearby shows what resharding adds to the tensors; the new plan will be much like it.
            reserve = unmodelled_bytes(self.problem, measured(self.problem, near), usage)
            narrowed = self.problem.with_costs(costs)
            fitted = fit(narrowed, limit, _choose, _ROUNDS, reserve, usage)
            if fitted is None and not plans and time.monotonic() < self.deadline:
                fitted = _within(narrowed, limit)
            plans += [fitted] if fitted is not None else []
        best = min(plans, key=lambda item: self.problem.seconds(item.chosen), default=None)
        return None if best is None else best.chosen


_choose = partial(choose_within, sweeps=_SWEEPS)


def _fitting_one(problem: Problem, limit: int, incumbent: Plan | None, seconds: float) -> MeasuredPlan:
    """A good plan that fits the memory: the known one, if it does, or one that is looked for.

    Raises:
        SporaxRuntimeError: nothing fits.
    """
    chosen = None if incumbent is None else _choice_of(problem, incumbent)
    fitted = None if chosen is None else measured(problem, chosen)
    if fitted is not None and fitted.peak_bytes <= limit:
        return fitted
    # At least one second: also an expired question deserves a plan that fits, or an error that says what would.
    return _within(problem, limit) or solve_within(problem, limit, max(seconds, 1.0))[0]


def _choice_of(problem: Problem, plan: Plan) -> list[int] | None:
    """The choice that a plan was made of; None where it was not made of this problem's candidates."""
    inputs = {argument.tensor: where for argument, where in zip(problem.graph.inputs, plan.inputs, strict=True)}
    costs = []
    for number, (choices, mine) in enumerate(zip(problem.choices, problem.costs, strict=True)):
        planned = [plan.operators[number] for number in choices.operators]
        shardings = [(entry.assignment, entry.operands, entry.results) for entry in planned]
        # Without the seconds: the plan may have been made with other costs.
        same = np.array([[step[:3] for step in steps] == shardings for steps in choices.steps] or [True] * len(mine))
        for tensor, places in choices.tensor_placements.items():
            if tensor in inputs and problem.decisions.node_of[tensor] == number:
                same &= np.array([where == inputs[tensor] for where in places])
        if not same.any():
            return None
        costs.append(np.where(same, mine, np.inf))
    # Relays are not visible in a plan: the cheapest ones for its placements are chosen again.
    chosen = choose(problem.with_costs(costs).cost_graph())
    return chosen if math.isfinite(problem.seconds(chosen)) else None


def _within(problem: Problem, limit: int) -> MeasuredPlan | None:
    """The cheaper one of two plans that fit, each found with another view of what tensors take."""
    plans = [
        fit(problem, limit, _choose, 2 + _ROUNDS, usage=usage)
        for usage in (resident_usage(problem), transient_usage(problem))
    ]
    return min(filter(None, plans), key=lambda item: problem.seconds(item.chosen), default=None)


# ------------------------------------------------------------------------------------------------ time against memory


def trade_offs(
    graph: OperatorGraph,
    mesh: DeviceMatrix,
    model: CostModel,
    options: SearchOptions | None = None,
    *,
    count: int = 5,
    seconds: float = SECONDS,
    incumbent: Plan | None = None,
) -> tuple[SearchResult, ...]:
    """Plans of which none is both faster and smaller than another, the fastest first; the last needs as little as was found.

    Args:
        graph: the step.
        mesh: the devices.
        model: the cost of operators and links.
        options: what the search may do; the fastest keeps its memory limit.
        count: how many at most.
        seconds: time in which something new is tried, the fastest plan aside; the statistics' ``"cut_short"`` is how many tries
            were left out.
        incumbent: a plan that a search found, to begin with.

    Raises:
        SporaxValueError: a count below 1.
        SporaxRuntimeError: nothing fits the memory.
    """
    if count < 1:
        raise SporaxValueError(f"For 'trade_offs', 'count' must be at least 1, but got {count}.")
    incumbent = None if incumbent is None else inline_loops(graph).unfolded(incumbent)
    return _trade_offs(graph, mesh, model, options or SearchOptions(), count, seconds, incumbent)


@inside_loops
def _trade_offs(
    graph: OperatorGraph,
    mesh: DeviceMatrix,
    model: CostModel,
    options: SearchOptions,
    count: int,
    seconds: float,
    incumbent: Plan | None,
) -> tuple[SearchResult, ...]:
    start = time.monotonic()
    problem = ProblemBuilder(graph, mesh, model, options).build()
    with doing("the fastest plan"):
        chosen = None if incumbent is None else _choice_of(problem, incumbent)
        fastest = measured(problem, cheapest(problem, []) if chosen is None else chosen)
    front = _ParetoFront(problem, fastest, time.monotonic() + seconds)
    if count > 1:
        front.down()
        front.between(count)
        front.least()
    return tuple(
        SearchResult(
            entry.plan,
            "trade-offs",
            problem.seconds(entry.chosen),
            None,
            False,
            time.monotonic() - start,
            {**problem.statistics(), "peak_bytes": entry.peak_bytes, "cut_short": front.cut_short},
            unit_of(model),
            options,
        )
        for entry in front.spread(count)
    )


class _ParetoFront:
    """Plans, by time and memory.

    Args:
        problem: the problem.
        fastest: where to begin.
        deadline: of `time.monotonic`; after it nothing new is tried.
    """

    def __init__(self, problem: Problem, fastest: MeasuredPlan, deadline: float) -> None:
        self.problem, self.deadline = problem, deadline
        self.plans = [fastest]
        self.cut_short = 0

    def down(self) -> None:
        """Look for less and less memory, and for the time that the least of it costs."""
        # Each attempt asks for 70 % of the last peak, so their number grows with the logarithm of the memory.
        while self._try(int(self.plans[-1].peak_bytes * _LESS)):
            pass
        self._smaller(lambda: reduce_memory(self.problem, self.plans[-1]))

    def least(self) -> None:
        """Look for the least memory that there is."""
        self._smaller(lambda: smallest(self.problem))

    def _smaller(self, search: Callable[[], MeasuredPlan]) -> None:
        """What is found in one way, and made cheaper in the same memory."""
        searches = (search, lambda: reduce_cost(self.problem, self.plans[-1], self.plans[-1].peak_bytes))
        for entry in searches:
            if self._in_time():
                with doing("the least memory"):
                    self.plans.append(entry())

    def between(self, count: int) -> None:
        """Look for plans between the fastest and the smallest, where there is none."""
        sizes = [plan.peak_bytes for plan in self.plans]
        step = (max(sizes) - min(sizes)) / max(count - 1, 1)
        # Limits at equal steps of memory; a step that already has a plan of the front is left out.
        for limit in (int(max(sizes) - number * step) for number in range(1, count - 1)):
            if not any(limit - step < entry.peak_bytes <= limit for entry in self.front()):
                self._try(limit)

    def front(self) -> list[MeasuredPlan]:
        """Those that no other one beats in both, the fastest first."""
        efficient: list[MeasuredPlan] = []
        for plan in sorted(self.plans, key=lambda plan: (self.problem.seconds(plan.chosen), plan.peak_bytes)):
            # In order of cost, a plan belongs to the front if it needs less memory than all before it.
            if not efficient or plan.peak_bytes < efficient[-1].peak_bytes:
                efficient.append(plan)
        return efficient

    def spread(self, count: int) -> list[MeasuredPlan]:
        """So many of them: the fastest, the smallest, and what is most evenly between."""
        front = self.front()
        while len(front) > max(count, 1):
            sizes = [entry.peak_bytes for entry in front]
            inner = range(1, len(front) - 1)
            # The plan whose neighbours are closest to each other is missed least; both ends always stay.
            front.pop(min(inner, key=lambda n: sizes[n - 1] - sizes[n + 1], default=len(front) - 1))
        return front

    def _try(self, limit: int) -> bool:
        """Look for a plan that fits; says whether there is one."""
        if not self._in_time():
            return False
        with doing(f"a plan within {limit / 1e6:.0f} MB"):
            fitted = _within(self.problem, limit)
        self.plans += [fitted] if fitted is not None else []
        return fitted is not None

    def _in_time(self) -> bool:
        in_time = time.monotonic() < self.deadline
        # Counted, so that the statistics say what the deadline left out.
        self.cut_short += not in_time
        return in_time
