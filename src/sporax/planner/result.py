"""A plan, its request, and how it was found: values only, which can be sent to other processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from sporax.ir.marks import OperatorMark
from sporax.ir.plan import Plan
from sporax.planner.communication.gradient_fusion import fusion_ids
from sporax.planner.cost.chosen_model import cost_model
from sporax.planner.cost.evaluate import cost_of
from sporax.planner.cost.model import CostModel
from sporax.planner.propagation.semi_auto import AutoPolicy, SemiAuto
from sporax.planner.request import PlanRequest
from sporax.planner.search.space.problem import SearchOptions, SearchResult


class _Search(msgspec.Struct, frozen=True):
    """What is sent of a search."""

    plan: str
    method: str
    cost_seconds: float
    bound_seconds: float | None
    optimal: bool
    seconds: float
    statistics: Mapping[str, int | float | str]
    unit: str


class _Document(msgspec.Struct, frozen=True):
    """What is sent of a result."""

    plan: str
    search: _Search | None


@dataclass(frozen=True, slots=True)
class PlanResult:
    """A finished plan.

    Attributes:
        request: what was requested.
        plan: how the step is sharded; what is executed.
        search: how it was found, with the cost of `plan`; None where the user's strategies decided.
    """

    request: PlanRequest
    plan: Plan
    search: SearchResult | None = None

    @property
    def model(self) -> CostModel:
        """The cost of operators and links."""
        # Where nothing was set about fusion, the compiler merges, and that is part of the cost.
        request = self.request
        return cost_model(request.settings, self.plan.mesh, request.profile, self.plan.fusion_is_free)

    @property
    def predicted(self) -> float:
        """Predicted time of a step, in the unit of the model."""
        return cost_of(self.request.graph, self.plan, self.model).seconds

    def keeps(self, mark: OperatorMark) -> bool:
        """Whether the plan has to keep the user's strategy of an operator: a search may be free to find its own."""
        return self.search is None or auto_policy(self.request).keeps(mark)

    def to_json(self) -> str:
        """The result as text, without the request, which every process has."""
        found, sent = self.search, None
        if found is not None:
            sent = _Search(found.plan.to_json(), *(getattr(found, name) for name in _Search.__struct_fields__[1:]))
        return msgspec.json.encode(_Document(self.plan.to_json(), sent), enc_hook=_plain).decode()

    @classmethod
    def from_json(cls, request: PlanRequest, text: str, options: SearchOptions) -> PlanResult:
        """Read what `to_json` wrote in a process with the same request, and so with the same options of the search."""
        document = msgspec.json.decode(text, type=_Document)
        plan, sent = Plan.from_json(document.plan), document.search
        if sent is None:
            return cls(request, plan)
        facts = {**msgspec.structs.asdict(sent), "plan": Plan.from_json(sent.plan)}
        return cls(request, plan, SearchResult(**facts, options=options, request=request))


def _plain(value: object) -> int | float:
    """Numbers of numpy as those of Python."""
    item = getattr(value, "item", None)
    if item is None:
        raise TypeError(f"a result holds no {type(value).__name__}")
    number: int | float = item()
    return number


def semi_auto_policy(request: PlanRequest) -> SemiAuto:
    """What marks mean where the user's strategies decide."""
    config = request.settings.parallel
    return SemiAuto(request.mesh, config, request.unsharded_parameters, fusion_ids(request.graph, config))


def auto_policy(request: PlanRequest) -> AutoPolicy:
    """What marks mean where a search has decided."""
    config, always = request.settings.parallel, request.settings.search.recursive_keeps_strategies
    return AutoPolicy(
        request.mesh, config, request.unsharded_parameters, fusion_ids(request.graph, config), always=always
    )
