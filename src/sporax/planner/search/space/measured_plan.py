"""A choice, its complete plan, and the memory of that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sporax.ir.plan import Plan
from sporax.planner.memory.peak import MemoryUse, backend_of, memory_of
from sporax.planner.search.space.plan_assembly import plan_of
from sporax.planner.search.space.problem import Problem


@dataclass(frozen=True, slots=True)
class MeasuredPlan:
    """A choice and its plan.

    Attributes:
        chosen: one candidate per decision.
        plan: the plan.
        memory: predicted memory of the plan.
        rounds: how many problems were solved for it.
    """

    chosen: list[int]
    plan: Plan
    memory: MemoryUse
    rounds: int

    @property
    def peak_bytes(self) -> int:
        """Predicted memory of one device."""
        return self.memory.peak_bytes


def measured(problem: Problem, choices: Sequence[int], rounds: int = 1) -> MeasuredPlan:
    """The plan of a choice, with its memory; nodes of a solver's graph after the decisions are left out."""
    chosen = [int(choice) for choice in choices[: len(problem.costs)]]
    plan = plan_of(problem, chosen)
    return MeasuredPlan(
        chosen, plan, memory_of(problem.graph, plan, backend=backend_of(problem.options.platform)), rounds
    )
