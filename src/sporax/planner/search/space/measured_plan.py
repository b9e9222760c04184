"""A choice, its complete plan, and the memory of that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sporax.ir.plan import Plan
from sporax.planner.memory.peak import History, MemoryUse, backend_of, memory_with_history
from sporax.planner.search.space.plan_assembly import plan_of
from sporax.planner.search.space.problem import Problem


@dataclass(frozen=True, slots=True)
class MeasuredPlan:
    """A choice and its plan.

    Attributes:
        chosen: one candidate per decision.
        plan: the plan.
        memory: predicted memory of the plan.
        history: that memory over time.
        rounds: how many problems were solved for it.
    """

    chosen: list[int]
    plan: Plan
    memory: MemoryUse
    history: History
    rounds: int

    @property
    def peak_bytes(self) -> int:
        """Predicted memory of one device."""
        return self.memory.peak_bytes


def measured(problem: Problem, choices: Sequence[int], rounds: int = 1) -> MeasuredPlan:
    """The plan of a choice, with its memory; nodes of a solver's graph after the decisions are left out."""
    chosen = [int(choice) for choice in choices[: len(problem.costs)]]
    plan = plan_of(problem, chosen)
    memory, history = memory_with_history(problem.graph, plan, backend_of(problem.options.platform))
    return MeasuredPlan(chosen, plan, memory, history, rounds)
