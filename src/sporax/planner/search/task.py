"""What all searches have in common: the question, loops and branches, the clock, and the answer.

Problem: a search gets a graph on a mesh, under a cost model, with options and a time; loops and branches have graphs of
their own. Method: a search is a function of a `SearchTask`, whose graph has its loops inlined (`planner.loops.inline`): an
operator in a loop counts as often as the loop runs, and a carried value is one decision at both ends of a round. So a search
needs no special case for loops. `searches` makes the function that users call, and folds the plans back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar, cast

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import OperatorGraph
from sporax.ir.plan import Plan
from sporax.planner.budget import UNLIMITED, Budget
from sporax.planner.cost.model import CostModel
from sporax.planner.cost.symbolic import unit_of
from sporax.planner.loops.inline import InlinedStep, inline_loops
from sporax.planner.search.space.problem import ProblemBuilder, SearchOptions, SearchResult
from sporax.planner.solver.graph.cost_graph import OPTIMALITY_TOLERANCE

P = ParamSpec("P")
Result = TypeVar("Result", bound="SearchResult | tuple[SearchResult, ...]", covariant=True)


class SearchMethod(Protocol[P, Result]):
    """A search, as it is called."""

    def __call__(
        self,
        graph: OperatorGraph,
        mesh: DeviceMatrix,
        model: CostModel,
        options: SearchOptions | None = None,
        budget: Budget | None = None,
        *settings: P.args,
        **named: P.kwargs,
    ) -> Result:
        """Search for plans.

        Args:
            budget: its time; what it is for, and what it is at most, each search says.
            settings, named: of the search itself.

        Raises:
            SporaxValueError: the options do not fit the graph or the mesh.
            SporaxRuntimeError: nothing fits the memory that the options allow, or nothing was found in time.
        """


@dataclass(frozen=True, slots=True)
class SearchTask:
    """What a search gets.

    Attributes:
        step: the graph with its loops inlined, and the way back.
        mesh: the devices.
        model: the cost of operators and links.
        options: what the search may do.
        requested: its time, where the caller has set one.
        clock: since the beginning.
    """

    step: InlinedStep
    mesh: DeviceMatrix
    model: CostModel
    options: SearchOptions
    requested: Budget | None
    clock: Budget = field(default_factory=Budget.unlimited)

    @property
    def graph(self) -> OperatorGraph:
        """The operators, without bodies."""
        return self.step.graph

    @property
    def budget(self) -> Budget:
        """Its time; without end where the caller has said none."""
        return self.requested or UNLIMITED

    def unfolded(self, plan: Plan | None) -> Plan | None:
        """A plan of the step with its loops as a plan of the graph."""
        return None if plan is None else self.step.unfolded(plan)

    def builder(self, options: SearchOptions | None = None, approximate: bool | None = None) -> ProblemBuilder:
        """What makes the problem; with other options than the task's where they are given."""
        return ProblemBuilder(self.graph, self.mesh, self.model, options or self.options, approximate)

    def result(
        self,
        method: str,
        plan: Plan,
        cost: float,
        statistics: Mapping[str, int | float | str],
        bound: float | None = None,
    ) -> SearchResult:
        """The answer; the plan is optimal where its cost has come down to the bound."""
        optimal = bound is not None and cost <= bound * (1 + OPTIMALITY_TOLERANCE)
        unit, used = unit_of(self.model), self.clock.used
        bound = None if bound is None else min(bound, cost)
        return SearchResult(plan, method, cost, bound, optimal, used, statistics, unit, self.options)


def searches(method: Callable[Concatenate[SearchTask, P], Result]) -> SearchMethod[P, Result]:
    """The search by a method, which works on graphs without loops; its plans are of the graph with them."""

    @wraps(method)
    def search(
        graph: OperatorGraph,
        mesh: DeviceMatrix,
        model: CostModel,
        options: SearchOptions | None = None,
        budget: Budget | None = None,
        *settings: P.args,
        **named: P.kwargs,
    ) -> Result:
        task = SearchTask(inline_loops(graph), mesh, model, options or SearchOptions(), budget)
        found = method(task, *settings, **named)
        if isinstance(found, SearchResult):
            return cast("Result", replace(found, plan=task.step.folded(found.plan)))
        return cast("Result", tuple(replace(one, plan=task.step.folded(one.plan)) for one in found))

    return search
