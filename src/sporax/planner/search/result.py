"""What a search hands back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sporax.ir.plan import Plan


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A plan and what is known of it.

    Attributes:
        plan: the plan.
        method: which search found it.
        cost_seconds: predicted time of one step.
        bound_seconds: no plan of the same menu is faster than this; None when nothing was proven.
        optimal: `cost_seconds` is the least of the menu.
        seconds: what the search took.
        statistics: sizes and counts.
    """

    plan: Plan
    method: str
    cost_seconds: float
    bound_seconds: float | None
    optimal: bool
    seconds: float
    statistics: Mapping[str, int | float | str] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        bound = "no bound" if self.bound_seconds is None else f"bound {self.bound_seconds:.6g} s"
        return (
            f"SearchResult({self.method}: {self.cost_seconds:.6g} s, {'optimal' if self.optimal else bound}, "
            f"searched {self.seconds:.3f} s)"
        )
