"""A choice, its complete plan, and the memory of that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

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
        rounds: how many problems were solved for it.
        look: gives that memory over time.
    """

    chosen: list[int]
    plan: Plan
    memory: MemoryUse
    rounds: int
    look: Callable[[], History] = field(repr=False, compare=False)

    @property
    def peak_bytes(self) -> int:
        """Predicted memory of one device."""
        return self.memory.peak_bytes

    @property
    def history(self) -> History:
        """The memory over time."""
        return self.look()


def measured(problem: Problem, choices: Sequence[int], rounds: int = 1) -> MeasuredPlan:
    """The plan of a choice, with its memory; nodes of a solver's graph after the decisions are left out."""
    chosen = [int(choice) for choice in choices[: len(problem.costs)]]
    plan = plan_of(problem, chosen)
    memory, look = memory_with_history(problem.graph, plan, backend_of(problem.options.platform))
    return MeasuredPlan(chosen, plan, memory, rounds, look)
