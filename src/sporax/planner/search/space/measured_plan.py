"""A choice, its complete plan, and the memory of that.

Searches under a limit measure hundreds of plans, and most of them are too large. Of those only a lower bound is worked out: the
most live bytes at a time, without the assignment of buffers (`measured_within`). Both are remembered by the choice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from sporax.ir.plan import Plan
from sporax.planner.memory.peak import History, MemoryProfile, MemoryUse, backend_of, memory_profile
from sporax.planner.search.space.plan_assembly import plan_of
from sporax.planner.search.space.problem import Problem

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
    def memory(self) -> MemoryUse:
        """Predicted memory at the peak."""
        return self.profile.memory

    @property
    def peak_bytes(self) -> int:
        """Predicted memory of one device."""
        return self.memory.peak_bytes

    @property
    def history(self) -> History:
        """The memory over time."""
        return self.profile.history


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
        profile = memory_profile(problem.graph, plan, backend_of(problem.options.platform), limit)
        if isinstance(profile, int):
            known.least_bytes[key] = profile
        else:
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
