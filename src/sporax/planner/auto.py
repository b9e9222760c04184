"""Automatic parallelism: a search decides how operators are cut.

The search sees the whole step: forward, backward and update, with what the user fixed. Of its answer the cuts of the forward
and backward operators and the places of the parameters are kept; the rest follows by propagation, so that gradients are
combined, fused and scattered, and parameters kept, by the same rules as in semi-automatic parallelism.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import OperatorGraph, Role
from sporax.ir.hardware import HardwareProfile
from sporax.ir.marks import GradientMark, OperatorMark, Side
from sporax.ir.operation import TensorSpec
from sporax.ir.placement import Placement
from sporax.ir.plan import Plan, Settlement
from sporax.ir.plan_settings import PlanSettings
from sporax.ir.search_config import CostModelConfig
from sporax.planner.buffers import buffers_for
from sporax.planner.cost.links import link_costs
from sporax.planner.cost.model import CostModel, Roofline
from sporax.planner.lookup_cuts import is_split
from sporax.planner.memory import memory_of
from sporax.planner.policy import Known
from sporax.planner.propagation import plan_by_propagation
from sporax.planner.rules import Assignment
from sporax.planner.search import SearchOptions, SearchResult, search
from sporax.planner.semi_auto import SemiAuto


def auto_plan(
    graph: OperatorGraph,
    mesh: DeviceMatrix,
    settings: PlanSettings,
    data: Mapping[int, Placement],
    whole_parameters: frozenset[str],
    profile: HardwareProfile,
) -> tuple[Plan, SearchResult]:
    """The plan of AUTO_PARALLEL, and what the search says of it.

    Args:
        graph: the step.
        mesh: the devices, with axes of prime sizes.
        settings: the user's.
        data: where inputs lie that hold data, by number of the tensor.
        whole_parameters: names of those that optimizer parallelism shall not cut.
        profile: the devices' hardware.

    Raises:
        SporaxRuntimeError: a strategy of the user that does not fit, or no plan fits the memory.
    """
    config = settings.parallel
    _warn_of_ignored(settings)
    policy = AutoPolicy(mesh, config, whole_parameters, buffers_for(graph, config))
    found = _search(graph, mesh, settings, profile, {**data, **_users_cuts(graph, policy)})
    plan = plan_by_propagation(
        graph, mesh, _inputs(graph, found.plan, data), policy, config.enable_alltoall, _cuts(graph, found.plan, policy)
    )
    return plan, found


def _search(
    graph: OperatorGraph,
    mesh: DeviceMatrix,
    settings: PlanSettings,
    profile: HardwareProfile,
    fixed: Mapping[int, Placement],
) -> SearchResult:
    """The plan of the search that the user chose; where it does not fit the memory, the best one that does."""
    model: CostModel = Roofline(profile, link_costs(profile, mesh))
    options = SearchOptions(fully_use_devices=settings.search.fully_use_devices, fixed=fixed)
    found = search(graph, mesh, model, settings.parallel.search_mode, options)
    capacity = _capacity(settings, profile)
    if memory_of(graph, found.plan).peak_bytes <= capacity:
        return found
    return search(graph, mesh, model, "ilp", replace(options, memory_bytes=capacity))


def _capacity(settings: PlanSettings, profile: HardwareProfile) -> int:
    """Memory of one device: what the user said, or the profile's."""
    said = settings.cost.device_memory_capacity
    return profile.memory_bytes if said == CostModelConfig().device_memory_capacity else int(said)


def _warn_of_ignored(settings: PlanSettings) -> None:
    """Say which settings of MindSpore's own searches change nothing here."""
    for function, config, read in (
        ("set_algo_parameters", settings.search, {"fully_use_devices"}),
        ("set_cost_model_context", settings.cost, {"device_memory_capacity"}),
    ):
        default = type(config)()
        for each in fields(config):
            if each.name not in read and getattr(config, each.name) != getattr(default, each.name):
                warnings.warn(
                    f"For '{function}', '{each.name}' has no effect: the searches price plans in seconds, by a hardware profile "
                    "(docs/automatic_parallel.md).",
                    stacklevel=2,
                )


@dataclass(frozen=True, slots=True)
class AutoPolicy(SemiAuto):
    """Marks of operators say nothing, but for strategies that the search must keep."""

    def at_operator(self, mark: OperatorMark, specs: Sequence[TensorSpec], known: Known) -> Sequence[Settlement | None]:
        """As the user cut it, or as it comes."""
        if mark.side is Side.IN and self.keeps(mark):
            return super(AutoPolicy, self).at_operator(mark, specs, known)
        return [None] * len(specs)

    def keeps(self, mark: OperatorMark) -> bool:
        """Whether the operator has a strategy that counts: recursive programming decides for itself, as in MindSpore.

        Tables in uneven parts have one way to be cut, and `set_data_parallel` holds in every search.
        """
        if mark.get("strategy_gen_mode") == "data_parallel":
            return True
        counts = self.config.search_mode != "recursive_programming" or is_split(mark)
        return mark.in_strategy is not None and counts


def _users_cuts(graph: OperatorGraph, policy: AutoPolicy) -> dict[int, Placement]:
    """Where the user's strategies put tensors."""
    found: dict[int, Placement] = {}
    for operator in graph.operators:
        mark = operator.mark
        if isinstance(mark, OperatorMark) and mark.side is Side.IN and policy.keeps(mark):
            specs = operator.operation.operands
            wanted = policy.at_operator(replace(mark, path=operator.path), specs, [None] * len(specs))
            for tensor, settlement in zip(operator.results, wanted, strict=True):
                if settlement is not None:
                    found[tensor] = settlement.placement
    return found


def _cuts(graph: OperatorGraph, plan: Plan, policy: AutoPolicy) -> dict[int, Assignment]:
    """How the search cut the operators before the update of the parameters; where the user did, they follow him."""
    found: dict[int, Assignment] = {}
    last = len(graph.operators)
    kept: int | None = None
    for number, (operator, planned) in enumerate(zip(graph.operators, plan.operators, strict=True)):
        mark = operator.mark
        if isinstance(mark, GradientMark):
            last = number
        elif isinstance(mark, OperatorMark):
            kept = mark.number if mark.side is Side.IN and policy.keeps(mark) else None
        elif mark is None and kept is None and not operator.bodies:
            found[number] = planned.assignment
    return {number: assignment for number, assignment in found.items() if number < last}


def _inputs(graph: OperatorGraph, plan: Plan, data: Mapping[int, Placement]) -> dict[int, Placement]:
    """Where the search put the parameters."""
    places = {
        each.tensor: placement
        for each, placement in zip(graph.inputs, plan.inputs, strict=True)
        if each.role is Role.PARAMETER
    }
    return {**places, **data}
