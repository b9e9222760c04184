"""A choice, its complete plan, and the memory of that.

Searches under a limit measure hundreds of plans, and most of them are too large. Of those only a lower bound is worked out: the
most live bytes at a time, without the assignment of buffers (`measured_within`). Both are remembered by the choice.

Before there is a plan, `weighted_bytes` sums bytes by decision: every tensor has the placement of its bundle while it is live.
What resharding adds is left out: it depends on several decisions, and shows only in the complete plan.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

import numpy as np

from sporax.ir.plan import Plan
from sporax.planner.cost.model import local_bytes
from sporax.planner.memory.peak import MemoryProfile, backend_of, live_ranges
from sporax.planner.search.space.plan_assembly import plan_of
from sporax.planner.search.space.problem import Problem
from sporax.planner.search.space.resharding_cost import Floats

_FEWEST_PLANS, MOST_PLANS = 4, 300
"""Plans that a local search may measure, whatever the size of the graph."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class MeasuredPlan:
    """A choice and its plan.

    Attributes:
        chosen: one candidate per decision.
        plan: the plan.
        profile: predicted memory of the plan over time.
    """

    chosen: list[int]
    plan: Plan
    profile: MemoryProfile = field(repr=False, compare=False)

    @property
    def peak_bytes(self) -> int:
        """Predicted memory of one device."""
        return self.profile.memory.peak_bytes


def measured(problem: Problem, choices: Sequence[int]) -> MeasuredPlan:
    """The plan of a choice, with its memory."""
    plan = measured_within(problem, choices, math.inf)
    assert plan is not None
    return plan


def measured_within(problem: Problem, choices: Sequence[int], limit: float) -> MeasuredPlan | None:
    """As `measured`, and None where the plan needs more than `limit` bytes."""
    chosen = [int(choice) for choice in choices]
    key = tuple(chosen)
    known = problem.cached("measured", _Known)
    found = known.plans.get(key)
    if found is None and known.least_bytes.get(key, 0) <= limit:
        plan = plan_of(problem, chosen)
        profile = MemoryProfile(problem.graph, plan, backend_of(problem.options.platform))
        known.least_bytes[key] = profile.live_bytes
        if profile.live_bytes <= limit:
            found = known.plans[key] = MeasuredPlan(chosen, plan, profile)
            known.least_bytes[key] = found.peak_bytes
    return found if found is not None and found.peak_bytes <= limit else None


def num_plans(problem: Problem, num_operators: int) -> int:
    """How many plans a local search may measure, of so many operators together: measuring takes time in proportion to them."""
    return min(max(num_operators // max(len(problem.graph.operators), 1), _FEWEST_PLANS), MOST_PLANS)


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of choices, at whatever costs.

    Attributes:
        plans: those that somebody still has: many plans together would be large.
        least_bytes: bytes that plans need at least.
    """

    plans: WeakValueDictionary[tuple[int, ...], MeasuredPlan] = field(default_factory=WeakValueDictionary)
    least_bytes: dict[tuple[int, ...], int] = field(default_factory=dict)


TickSpan = tuple[int, int]
"""First tick of a tensor, and the tick after its last; tick 0 is the start, operator k runs in ticks 2k + 1 and 2k + 2."""

Usage = Sequence[Mapping[TickSpan, Sequence[int]]]
"""Per decision and span, bytes [candidates]."""


def resident_usage(problem: Problem) -> Usage:
    """For every decision, when its tensors are live and how many bytes they take, per candidate; cached."""
    return problem.cached("usage", lambda: _resident_usage(problem))


def _resident_usage(problem: Problem) -> Usage:
    graph, decisions = problem.graph, problem.decisions
    usage: list[dict[TickSpan, list[int]]] = [{} for _ in problem.choices]
    for life in live_ranges(graph, backend_of(problem.options.platform)):
        origin = decisions.origin[life.number]
        node = decisions.node_of[origin]
        placements = problem.choices[node].tensor_placements[origin]
        sizes = [local_bytes(graph.tensors[origin], placement, problem.mesh) for placement in placements]
        # Ticks of the solver's graph begin at 0, those of live ranges at -1, and spans are half open.
        span = (life.begin + 1, life.end + 2)
        before = usage[node].get(span, [0] * len(sizes))
        usage[node][span] = [a + b for a, b in zip(before, sizes, strict=True)]
    return usage


def weighted_bytes(problem: Problem, weights: Mapping[int, float]) -> list[Floats]:
    """For every decision [candidates] the sum of its bytes at some operators, times the weights of these.

    Args:
        weights: by operator; -1 is the start.
    """
    usage = resident_usage(problem)
    until = np.zeros(2 * len(problem.graph.operators) + 5)
    for operator, weight in weights.items():
        # An operator counts at its first tick: until[t] is the weight of all before tick t.
        until[max(2 * operator + 1, 0) + 1 :] += weight
    weighted = []
    for costs, spans in zip(problem.costs, usage, strict=True):
        total = np.zeros(len(costs))
        for (begin, end), sizes in spans.items():
            weight = until[end] - until[begin]
            if weight:
                total += weight * np.array(sizes)
        weighted.append(total)
    return weighted
