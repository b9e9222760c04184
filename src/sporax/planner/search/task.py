"""One search: the question, loops and branches, the clock, who decides, and the answer.

Problem: plans are searched in several ways, and most of each way is the same: a problem is made of a graph on a mesh, somebody
decides it while memory is left aside, since most plans of least time fit and a limit takes longer; a plan that is too large is
decided again within the limit; and what came of it is measured and reported.

Method: a `Search` has these phases as settings. They are functions of a `SearchTask`, whose graph has its loops inlined
(`planner.loops.inline`): an operator in a loop counts as often as the loop runs, and a carried value is one decision at both ends
of a round. So a phase needs no special case for loops; results are folded back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import OperatorGraph
from sporax.ir.plan import Plan
from sporax.planner.budget import UNLIMITED, Budget
from sporax.planner.cost.model import CostModel
from sporax.planner.cost.symbolic import unit_of
from sporax.planner.loops.inline import InlinedStep, inline_loops
from sporax.planner.search.space.measured_plan import MeasuredPlan, measured
from sporax.planner.search.space.plan_assembly import plan_of
from sporax.planner.search.space.problem import NANOSECONDS, Problem, ProblemBuilder, SearchOptions, SearchResult
from sporax.planner.solver.graph.cost_graph import OPTIMALITY_TOLERANCE


@dataclass(frozen=True)
class SearchTask:
    """What a search gets.

    Attributes:
        step: the graph with its loops inlined, and the way back.
        mesh: the devices.
        model: the cost of operators and links.
        options: what the search may do.
        budget: its time; without end where the caller has set none.
        clock: since the beginning.
    """

    step: InlinedStep
    mesh: DeviceMatrix
    model: CostModel
    options: SearchOptions
    budget: Budget = UNLIMITED
    clock: Budget = field(default_factory=Budget.unlimited)

    @classmethod
    def of(
        cls,
        graph: OperatorGraph,
        mesh: DeviceMatrix,
        model: CostModel,
        options: SearchOptions | None = None,
        budget: Budget | None = None,
    ) -> SearchTask:
        """The task of a graph, which may have loops."""
        return cls(inline_loops(graph), mesh, model, options or SearchOptions(), budget or UNLIMITED)

    @cached_property
    def problem(self) -> Problem:
        """The problem in which all axes are handed out at once."""
        return self.builder().build()

    def builder(self, approximate: bool | None = None, memory_aside: bool = False) -> ProblemBuilder:
        """What makes the problems of this task; `memory_aside` those without its limit."""
        options = replace(self.options, memory_bytes=None) if memory_aside else self.options
        return ProblemBuilder(self.step.graph, self.mesh, self.model, options, approximate)

    def unfolded(self, plan: Plan | None) -> Plan | None:
        """A plan of the step with its loops as a plan of the graph."""
        return None if plan is None else self.step.unfolded(plan)

    def result(self, method: str, found: Finding, measures: bool = False) -> SearchResult:
        """The answer; `measures` says that the memory of its plan is among the statistics."""
        plan = found.measured.plan if measures else plan_of(found.problem, found.chosen)
        return SearchResult(
            self.step.folded(replace(plan, notes=(*plan.notes, *found.notes)) if found.notes else plan),
            method,
            found.cost,
            None if found.bound is None else min(found.bound, found.cost),
            found.is_optimal,
            self.clock.used,
            {**found.statistics, "peak_bytes": found.measured.peak_bytes} if measures else found.statistics,
            unit_of(self.model),
            self.options,
        )


@dataclass(frozen=True)
class Finding:
    """A choice that a phase has found.

    Attributes:
        problem: whose choice.
        chosen: one candidate per decision.
        bound: seconds that no plan is below; None where nothing was proven.
        statistics: sizes and counts.
        notes: what people should know of the plan.
        budget: the time that is left for a plan that fits; None for that of the task.
    """

    problem: Problem
    chosen: Sequence[int]
    bound: float | None = None
    statistics: Mapping[str, int | float | str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    budget: Budget | None = None

    @cached_property
    def cost(self) -> float:
        """Seconds."""
        return self.problem.seconds(self.chosen)

    @cached_property
    def measured(self) -> MeasuredPlan:
        """The plan, with its memory."""
        return measured(self.problem, self.chosen)

    @property
    def is_optimal(self) -> bool:
        """Whether the bound proves that nothing is better."""
        return self.bound is not None and self.cost <= self.bound * (1 + OPTIMALITY_TOLERANCE)

    def fits(self, limit: int) -> bool:
        """Whether the plan needs no more than so many bytes of a device."""
        return self.measured.peak_bytes <= limit


@dataclass(frozen=True, slots=True)
class Search:
    """A search by its phases; called with a graph, it gives the plan.

    Attributes:
        method: its name in results.
        decide: finds a choice while memory is left aside.
        within: finds one that keeps a limit in bytes, where the first choice does not; None: `decide` keeps it already.
        measures: whether the memory of the plan is reported, with or without a limit.
        second: run as well where a limit leaves a plan unproven; the plan of less cost is kept.
    """

    method: str
    decide: Callable[[SearchTask], Finding]
    within: Callable[[SearchTask, Finding, int], Finding] | None = None
    measures: bool = False
    second: Search | None = None

    def __call__(
        self,
        graph: OperatorGraph,
        mesh: DeviceMatrix,
        model: CostModel,
        options: SearchOptions | None = None,
        budget: Budget | None = None,
    ) -> SearchResult:
        """Search for a plan.

        Args:
            budget: its time; what it is for, and what it is at most, each phase says.

        Raises:
            SporaxValueError: the options do not fit the graph or the mesh.
            SporaxRuntimeError: nothing fits the memory that the options allow, or nothing was found in time.
        """
        task = SearchTask.of(graph, mesh, model, options, budget)
        return task.result(self.method, self.found(task), self.measures)

    def found(self, task: SearchTask) -> Finding:
        """What the phases have found, one after another."""
        found, limit = self.decide(task), task.options.memory_bytes
        if limit is not None and self.within is not None and not found.fits(limit):
            found = self.within(task, found, limit)
        if limit is not None and self.second is not None and not found.is_optimal:
            other = self.second.found(task)
            if other.cost < found.cost:
                bound = bound_below(other.cost, found.bound, scale=1.0)
                found = replace(found, problem=other.problem, chosen=other.chosen, bound=bound)
        return found


def bound_below(cost: float, bound: float | None, scale: float = NANOSECONDS) -> float | None:
    """A solver's bound in seconds, if the plan that was found does not refute it.

    A solver's arithmetic rounds, and so may carry a bound above the cost of a plan that is there.

    Args:
        cost: of the plan, in seconds.
        bound: of the solver.
        scale: what a second counts there.
    """
    # A bound above a plan that exists is no bound; it is dropped instead of being shown.
    if bound is None or bound / scale > cost * (1 + OPTIMALITY_TOLERANCE):
        return None
    return min(bound / scale, cost)
