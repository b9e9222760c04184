"""The result of a search."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sporax.ir.plan import Plan
from sporax.planner.search.space.problem import SearchOptions


@dataclass(frozen=True, slots=True, repr=False)
class SearchResult:
    """A plan and what is known of it.

    Attributes:
        plan: the plan.
        method: which search found it.
        cost_seconds: predicted time of one step.
        bound_seconds: no plan of the same search space is faster than this; None when nothing was proven.
        optimal: `cost_seconds` is the least of the search space.
        seconds: what the search took.
        statistics: sizes and counts.
        unit: of costs: seconds, or what another cost model counts in their place.
        options: the options of the search.
        finish: what makes the plan that is run of such a result, where more than the search decides; None for the plan as it is.
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
    finish: Callable[[SearchResult], Plan] | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        bound = "no bound" if self.bound_seconds is None else f"bound {self.bound_seconds:.6g} {self.unit}"
        return (
            f"SearchResult({self.method}: {self.cost_seconds:.6g} {self.unit}, {'optimal' if self.optimal else bound}, "
            f"searched {self.seconds:.3f} s)"
        )

    __repr__ = __str__
