"""The k best plans, and plans that trade time for memory.

Problem: many plans differ only in details that do not matter to a person. So two plans count as different only if they
shard one of the heaviest operators differently.

Method: Lawler's partition. The best plan splits the remaining search space into disjoint subspaces: plans that shard
the heaviest operator differently, plans that agree on it and shard the next one differently, and so on. The least of
the best plans of all subspaces is the next result, and its subspace is split again. All subspaces share one reduced
problem. A TRW-S bound per subspace says which ones can contain the next plan, so only these are solved.

`trade_offs` computes points of the Pareto front of time and memory.

Reference: E. L. Lawler, "A procedure for computing the K best solutions to discrete optimization problems", Management
Science 18 (1972).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from sporax.base.errors import For
from sporax.base.progress import activity
from sporax.base.text_tables import size_text
from sporax.ir.plan import Plan
from sporax.planner.budget import Budget
from sporax.planner.search.limit.limit import fit, lagrangian_plan, least_cost, nothing_fits, smallest
from sporax.planner.search.limit.local_search import improved, reduce_memory
from sporax.planner.search.sharding_propagation import CoordinateDescent, heaviest_first
from sporax.planner.search.space.measured_plan import MeasuredPlan, measured
from sporax.planner.search.space.problem import Problem, SearchResult
from sporax.planner.search.task import Finding, SearchTask
from sporax.planner.solver.graph.core import Core
from sporax.planner.solver.graph.cost_graph import OPTIMALITY_TOLERANCE, Booleans, Floats, Moments
from sporax.planner.solver.graph.network import Network
from sporax.planner.solver.graph.reductions import reduce
from sporax.planner.solver.methods.coordinate_descent import descend
from sporax.planner.solver.methods.trws import MessagePassing
from sporax.planner.solver.portfolio.quick_choice import choose, converge, decide

_SHARE = 0.5
"""Most of the time that is left that one subspace may take: later ones need some too."""
_LOOKS, _LOOKS_PER_CHOICE = 24, 4
"""Sweeps of messages that bound a subspace, and after how many of them a choice is read off."""
_LESS = 0.7
"""Share of the smallest peak so far that the next attempt may use."""

Allowed = Mapping[int, Sequence[int]]
"""For decisions that are not free the candidates that are left."""


@dataclass(frozen=True, slots=True, order=True)
class _Subspace:
    """The plans that are allowed.

    Attributes:
        seconds: what the best one costs, or, before that is known, what none is below.
        chosen: the best one, one candidate per decision; () before it is known.
        proven: no plan of the part costs less.
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
    task: SearchTask, count: int = 3, decisions: int = 6, incumbent: Plan | None = None
) -> tuple[SearchResult, ...]:
    """The `count` plans of least cost of which any two shard one of the heaviest operators differently, by rising cost.

    Each is the best plan with its shardings of these operators. They are proven to be of least cost while the time lasts: the
    statistics of each say ``"proven": 1`` where no plan of lower cost was left out. What is found after that is good, and
    no more; ``"cut_short"`` is how many parts were not looked through to the end. There are fewer than `count` where the
    operators cannot be sharded in so many ways, or nothing else was found that fits the memory.

    Args:
        task: its time is for all of it, the problem itself aside.
        decisions: how many of the heaviest operators must not all be sharded equally.
        incumbent: a plan that a search found; under a memory limit it saves the search for one that fits.

    Raises:
        SporaxValueError: a number below 1.
    """
    if count < 1 or decisions < 1:
        raise For("alternatives").error(f"'count' and 'decisions' must be at least 1, but got {count} and {decisions}")
    problem = task.problem
    heavy = heaviest_first(problem)[:decisions]
    subspaces = _Subspaces(problem, heavy, task.budget, task.unfolded(incumbent))
    subspaces_found = subspaces.least_cost(count)
    least = subspaces_found[0].seconds if subspaces_found[0].proven else None
    statistics = {**problem.statistics(), "parts": subspaces.proven, "cut_short": subspaces.unfinished}
    return tuple(
        task.result(
            "alternatives",
            Finding(problem, subspace.chosen, least, {**statistics, "rank": rank, "proven": int(subspace.proven)}),
        )
        for rank, subspace in enumerate(subspaces_found)
    )


class _Subspaces:
    """The plans of a problem, part by part.

    Args:
        heavy: decisions on which plans must differ.
        budget: when it is over, parts are not looked through any more.
        incumbent: a plan of the problem.
    """

    def __init__(self, problem: Problem, heavy: Sequence[int], budget: Budget, incumbent: Plan | None) -> None:
        self.problem, self.heavy, self.budget, self.incumbent = problem, heavy, budget, incumbent
        self.proven, self.unfinished = 0, 0
        graph = problem.cost_graph()
        network = Network.of(graph, Moments.of(graph.intervals))
        # Decisions on which plans must differ keep all their candidates: a dominated one is the best of some subspace.
        self.core = Core.of(reduce(network, remaining=frozenset(heavy)))
        self.place = {node: number for number, node in enumerate(self.core.nodes.tolist())}

    def least_cost(self, count: int) -> list[_Subspace]:
        """The best plans of parts, by rising cost. One that is behind an unproven part is not proven either."""
        # A heap: subspaces without a plan stand in it by their lower bound, the others by the cost of their best plan.
        waiting = [self._decided(_Subspace(-math.inf, (), False, -math.inf, {}))]
        best: list[_Subspace] = []
        sure = True
        while waiting and len(best) < count:
            subspace = heapq.heappop(waiting)
            # A bound came first in the heap. Only now is its best plan worth working out.
            if not subspace.chosen:
                with activity(f"alternative plans, {len(best)} of {count} found"):
                    subspace = self._decided(subspace)
                if math.isfinite(subspace.seconds):
                    heapq.heappush(waiting, subspace)
                continue
            # A plan of lower cost may be hidden in an unproven subspace that is still waiting.
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

    def _looked_at(self, subspace: _Subspace, target_bound: float) -> _Subspace:
        """The part with a bound by messages, and with its best plan where they prove one; `target_bound` is one that is enough.

        They begin with the messages of all plans; what is not allowed gets a cost of its own.
        """
        messages, start = self._messages
        # Messages go on from those of all plans: a subspace is nearly the whole problem.
        messages.messages[:] = start
        costs, bound = self._restricted_costs(subspace.allowed), -math.inf
        for number in range(0 if self.budget.is_over else _LOOKS):
            bound = max(bound, self.core.constant + max(messages.sweep(costs)))
            if bound / self.problem.scale >= target_bound:
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
            # A finite penalty: messages must stay numbers, and a decoded choice that pays it is above every bound of interest.
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
        """The part with its best plan; after its time, or where that does not fit the memory, with a good one."""
        exact = None if self.budget.is_over else self._exactly(subspace.allowed, self.budget.part(_SHARE))
        return self._fitted(subspace, *(exact or (self._roughly(subspace.allowed, subspace.near), False)))

    def _fitted(self, subspace: _Subspace, chosen: list[int] | None, proven: bool) -> _Subspace:
        """The part with a plan, or with another one that fits the memory where that does not."""
        problem, limit = self.problem, self.problem.options.memory_bytes
        if chosen is not None and limit is not None and measured(problem, chosen).peak_bytes > limit:
            chosen, proven = self._fitting(subspace.allowed, subspace.near, limit), False
        self.proven += proven
        self.unfinished += not proven
        seconds = math.inf if chosen is None else problem.seconds(chosen)
        return replace(subspace, seconds=seconds, chosen=tuple(chosen or ()), proven=proven)

    def _exactly(self, allowed: Allowed, budget: Budget) -> tuple[list[int] | None, bool]:
        """The best plan of a part, memory aside, and whether that is proven; None where there is none."""
        network = self.core.as_network()
        for node, candidates in allowed.items():
            network.keep(self.place[node], self._among(node, candidates))
        # A decision without candidates, or a reduction that fails, proves that the subspace is empty.
        if any(not len(network.costs[self.place[node]]) for node in allowed) or reduce(network).infeasible:
            return None, True
        core = Core.of(network)
        decision = decide(core, budget)
        # Twice: the inner core's positions belong to the outer core's positions.
        return self.core.expand(core.expand(decision.positions)).tolist(), decision.is_optimal(core)

    def _roughly(self, allowed: Allowed, near: Sequence[int]) -> list[int]:
        """A plan of a part: one that is near, with the decision that must change, and others as they then like it."""
        if not near:
            return choose(self.problem.cost_graph())
        chosen, descent = [*near], self._descent
        for node, candidates in allowed.items():
            if chosen[node] not in candidates:
                # The candidate of least cost with the neighbours as they are; the descent then adapts the neighbours.
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
            return _fitting_one(self.problem, limit, self.incumbent).chosen
        rough = measured(self.problem, self._roughly(allowed, near))
        plans = [rough] if rough.peak_bytes <= limit and math.isfinite(self.problem.seconds(rough.chosen)) else []
        if not self.budget.is_over:
            costs = [costs_of.copy() for costs_of in self.problem.costs]
            for node, candidates in allowed.items():
                costs[node][[number for number in range(len(costs[node])) if number not in candidates]] = np.inf
            narrowed = self.problem.with_costs(costs)
            fitted = reduce_memory(narrowed, lagrangian_plan(narrowed, limit), limit)
            fits = fitted.peak_bytes <= limit and math.isfinite(narrowed.seconds(fitted.chosen))
            plans += [fitted] if fits else []
        best = min(plans, key=lambda item: self.problem.seconds(item.chosen), default=None)
        return None if best is None else best.chosen


def _fitting_one(problem: Problem, limit: int, incumbent: Plan | None) -> MeasuredPlan:
    """A good plan that fits the memory: the known one, if it does, or one that is looked for.

    Raises:
        SporaxRuntimeError: nothing fits.
    """
    chosen = None if incumbent is None else _choice_of(problem, incumbent)
    fitted = None if chosen is None else measured(problem, chosen)
    if fitted is not None and fitted.peak_bytes <= limit:
        return fitted
    found = fit(problem, limit)
    if found.peak_bytes > limit:
        raise nothing_fits(limit, found.profile.memory)
    return found


def _choice_of(problem: Problem, plan: Plan) -> list[int] | None:
    """The choice that a plan was made of; None where it was not made of this problem's candidates."""
    inputs = {argument.tensor: where for argument, where in zip(problem.graph.inputs, plan.inputs, strict=True)}
    costs = []
    for number, (choices, mine) in enumerate(zip(problem.choices, problem.costs, strict=True)):
        planned = [plan.operators[number] for number in choices.operators]
        shardings = [(entry.assignment, entry.operands, entry.results) for entry in planned]
        # Without the seconds: the plan may have been made with other costs.
        same = np.array([[step[:3] for step in steps] == shardings for steps in choices.steps] or [True] * len(mine))
        for tensor, placements_of in choices.tensor_placements.items():
            if tensor in inputs and problem.decisions.node_of[tensor] == number:
                same &= np.array([where == inputs[tensor] for where in placements_of])
        if not same.any():
            return None
        costs.append(np.where(same, mine, np.inf))
    # Relays are not visible in a plan: those of least cost for its placements are chosen again.
    chosen = choose(problem.with_costs(costs).cost_graph())
    return chosen if math.isfinite(problem.seconds(chosen)) else None


# ------------------------------------------------------------------------------------------------ time against memory


def trade_offs(task: SearchTask, count: int = 5, incumbent: Plan | None = None) -> tuple[SearchResult, ...]:
    """Plans of which none is both faster and smaller than another, the fastest first; the last needs as little as was found.

    Args:
        task: the fastest keeps its memory limit; its time is for trying something new, the fastest plan aside. The
            statistics' ``"cut_short"`` is how many tries were left out.
        incumbent: a plan that a search found, to begin with.

    Raises:
        SporaxValueError: a count below 1.
    """
    For("trade_offs").refuse(count < 1, "'count' must be at least 1", count)
    problem, known = task.problem, task.unfolded(incumbent)
    with activity("the fastest plan"):
        chosen = None if known is None else _choice_of(problem, known)
        fastest = measured(problem, least_cost(problem, []) if chosen is None else chosen)
    pareto_front = _ParetoFront(problem, fastest, task.budget)
    if count > 1:
        pareto_front.down()
        pareto_front.between(count)
        pareto_front.least()
    return tuple(
        task.result(
            "trade-offs",
            Finding(problem, entry.chosen, None, {**problem.statistics(), "cut_short": pareto_front.unfinished}),
            measures=True,
        )
        for entry in pareto_front.spread(count)
    )


class _ParetoFront:
    """Plans, by time and memory.

    Args:
        fastest: where to begin.
        budget: when it is over, nothing new is tried.
    """

    def __init__(self, problem: Problem, fastest: MeasuredPlan, budget: Budget) -> None:
        self.problem, self.budget = problem, budget
        self.plans = [fastest]
        self.unfinished = 0

    def down(self) -> None:
        """Look for less and less memory, and for the time that the least of it costs."""
        # Each attempt aims at 70 % of the last peak, so their number grows with the logarithm of the memory.
        while self._try(int(self.plans[-1].peak_bytes * _LESS)):
            pass
        self._smaller(lambda: reduce_memory(self.problem, self.plans[-1]))

    def least(self) -> None:
        """Look for the least memory that there is."""
        self._smaller(lambda: smallest(self.problem))

    def _smaller(self, search: Callable[[], MeasuredPlan]) -> None:
        """What is found in one way, and improved within the same memory."""
        searches = (search, lambda: improved(self.problem, self.plans[-1], self.plans[-1].peak_bytes))
        for entry in searches:
            if self._in_time():
                with activity("the least memory"):
                    self.plans.append(entry())

    def between(self, count: int) -> None:
        """Look for plans between the fastest and the smallest, where there is none."""
        sizes = [plan.peak_bytes for plan in self.plans]
        step = (max(sizes) - min(sizes)) / max(count - 1, 1)
        # Limits at equal steps of memory; a step that already has a plan of the front is left out.
        for limit in (int(max(sizes) - number * step) for number in range(1, count - 1)):
            if not any(limit - step < entry.peak_bytes <= limit for entry in self.pareto_front()):
                self._try(limit)

    def pareto_front(self) -> list[MeasuredPlan]:
        """Those that no other one beats in both, the fastest first."""
        efficient: list[MeasuredPlan] = []
        for plan in sorted(self.plans, key=lambda plan: (self.problem.seconds(plan.chosen), plan.peak_bytes)):
            # In order of cost, a plan belongs to the front if it needs less memory than all before it.
            if not efficient or plan.peak_bytes < efficient[-1].peak_bytes:
                efficient.append(plan)
        return efficient

    def spread(self, count: int) -> list[MeasuredPlan]:
        """So many of them: the fastest, the smallest, and what is most evenly between."""
        pareto_front = self.pareto_front()
        while len(pareto_front) > max(count, 1):
            sizes = [entry.peak_bytes for entry in pareto_front]
            inner = range(1, len(pareto_front) - 1)
            # The plan whose neighbours are closest to each other is missed least; both ends always stay.
            pareto_front.pop(min(inner, key=lambda n: sizes[n - 1] - sizes[n + 1], default=len(pareto_front) - 1))
        return pareto_front

    def _try(self, limit: int) -> bool:
        """Look for a plan that fits; says whether there is one."""
        if not self._in_time():
            return False
        with activity(f"a plan within {size_text(limit)}"):
            found = lagrangian_plan(self.problem, limit)
        fits = found.peak_bytes <= limit
        self.plans += [found] if fits else []
        return fits

    def _in_time(self) -> bool:
        in_time = not self.budget.is_over
        # Counted, so that the statistics say what was left out.
        self.unfinished += not in_time
        return in_time
