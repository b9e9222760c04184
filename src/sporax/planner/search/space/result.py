"""The result of a search: values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sporax.ir.plan import Plan
from sporax.planner.request import PlanRequest
from sporax.planner.search.space.problem import SearchOptions


@dataclass(frozen=True, slots=True, repr=False)
class SearchResult:
    """A plan and what is known of it.

    Attributes:
        plan: what it has decided, as a plan of its own; propagation finishes it (`planner.planning`).
        method: which search found it.
        cost_seconds: predicted time of one step, by the finished plan where there is one.
        bound_seconds: no plan of the same search space is faster than this; None when nothing was proven.
        optimal: `cost_seconds` is the least of the search space.
        seconds: what the search took.
        statistics: sizes and counts.
        unit: of costs: seconds, or what another cost model counts in their place.
        options: the options of the search.
        request: what was asked of the planner; None for a search by itself, whose plan needs no finish.
    """

    plan: Plan
    method: str
    cost_seconds: float
    bound_seconds: float | None
    optimal: bool
    seconds: float
    statistics: Mapping[str, int | float | str] = field(default_factory=dict, hash=False)
    unit: str = "s"
    options: SearchOptions | None = field(default=None, repr=False, compare=False)
    request: PlanRequest | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        bound = "no bound" if self.bound_seconds is None else f"bound {self.bound_seconds:.6g} {self.unit}"
        return (
            f"SearchResult({self.method}: {self.cost_seconds:.6g} {self.unit}, {'optimal' if self.optimal else bound}, "
            f"searched {self.seconds:.3f} s)"
        )

    __repr__ = __str__
