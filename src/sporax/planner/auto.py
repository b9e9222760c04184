"""Automatic parallelism: a search decides how operators are sharded.

Problem: a search minimizes time over the whole step, but gradients must be reduced, fused and stored as the settings say.

Method: the search sees the whole step (forward, backward and update) with the placements and strategies that the user
fixed. From its result the shardings of the forward and backward operators and the storage sharding of parameters are kept.
The rest follows by propagation, so the same rules hold as in semi-automatic parallelism.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

from sporax.ir.config.plan_settings import PlanSettings
from sporax.ir.config.search_config import PRICES, CostModelConfig
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import OperatorGraph, Role
from sporax.ir.hardware import HardwareProfile
from sporax.ir.marks import GradientMark, LayoutMark, Mark, OperatorMark, Side
from sporax.ir.operation import TensorSpec
from sporax.ir.placement import Placement
from sporax.ir.plan import OperatorPlan, Plan, Resharding
from sporax.planner.communication.gradient_fusion import FusionIds, fusion_ids
from sporax.planner.cost.link_rates import link_costs
from sporax.planner.cost.model import CostModel, Roofline
from sporax.planner.cost.symbolic import Symbolic
from sporax.planner.loops.inline import inline_loops
from sporax.planner.pins.manual_split import is_split
from sporax.planner.pins.named_strategies import FROM_FILE
from sporax.planner.propagation.loop_bodies import Given
from sporax.planner.propagation.policy import MaybePlacements
from sporax.planner.propagation.propagate import plan_by_propagation
from sporax.planner.propagation.semi_auto import SemiAuto, asks_for_results
from sporax.planner.rules import Assignment
from sporax.planner.search import SearchOptions, SearchResult, search

_FEW_AXES = 3
"""Mesh axes that the published cost model hands out one by one; more of them go in two runs."""


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
        data: where inputs are that hold data, by number of the tensor.
        whole_parameters: names of those that optimizer parallelism must not shard.
        profile: the devices' hardware.

    Raises:
        SporaxRuntimeError: a strategy of the user that does not fit, or no plan fits the memory.
    """
    config = settings.parallel
    _warn_of_ignored(settings)
    buffers = fusion_ids(graph, config)
    policy = AutoPolicy(mesh, config, whole_parameters, buffers, always=settings.search.recursive_keeps_strategies)
    places, kept = _user_cuts(graph, mesh, data, policy)
    options = replace(search_options(settings, mesh, profile, {**data, **places}), cuts=kept)
    # Any word about fusion switches the compiler's combining off, and with it the shared starts in the costs.
    prices = price_list(settings, mesh, profile, merging=buffers == FusionIds())
    result = search(graph, mesh, prices, _mode(settings), options)

    overwritten = overwritten_strategies(graph, policy)

    # Only the placements and shardings of the search are kept; the policy decides again what is stored and reduced
    # where.
    def finished(result: SearchResult) -> Plan:
        inputs, cuts = _inputs(graph, result.plan, data), _cuts(graph, result.plan, policy)
        plan = plan_by_propagation(graph, mesh, inputs, policy, config.enable_alltoall, cuts, config.has_reduce_scatter)
        return replace(plan, overwritten=overwritten)

    return finished(result), replace(result, finish=finished)


def price_list(settings: PlanSettings, mesh: DeviceMatrix, profile: HardwareProfile, merging: bool = True) -> CostModel:
    """What prices plans: seconds on the devices, or MindSpore's published cost model where the settings ask for it.

    Args:
        settings: the user's.
        mesh: the devices.
        profile: their hardware.
        merging: whether the compiler may merge collectives: nothing was said about fusion.
    """
    if settings.symbolic:
        recursive = settings.parallel.search_mode == "recursive_programming"
        weight_memory = settings.cost.rp_matmul_mem_coef if recursive else 0.0
        return Symbolic(settings.cost, weight_memory, settings.parallel.has_reduce_scatter)
    return Roofline(profile, link_costs(profile, mesh, merging, settings.parallel.has_reduce_scatter))


def search_options(
    settings: PlanSettings, mesh: DeviceMatrix, profile: HardwareProfile, fixed: Mapping[int, Placement]
) -> SearchOptions:
    """What the settings let a search do.

    Args:
        settings, mesh, profile: as for `price_list`.
        fixed: placements that are given, by number of the tensor.
    """
    config = settings.search
    single = tuple((axis,) for axis in mesh.device_axes if mesh.shape[axis] > 1)
    return SearchOptions(
        # One axis at a time is MindSpore's search space; with many axes it would be too large for exact searches.
        units=single if settings.symbolic and len(single) <= _FEW_AXES else (),
        fully_use_devices=config.fully_use_devices,
        fixed=fixed,
        memory_bytes=capacity(settings, profile),
        gives_up=settings.is_trial,
        follow=config.elementwise_op_strategy_follow,
        align=config.tensor_slice_align_size if config.tensor_slice_align_enable else 1,
        epsilon=config.algo_approxi_epsilon if config.enable_algo_approxi else 0.0,
    )


def _mode(settings: PlanSettings) -> str:
    """The search: of dynamic programming in a single loop the one that shards layers that look alike in the same way."""
    mode = settings.parallel.search_mode
    return "repeated_blocks" if mode == "dynamic_programming" and settings.cost.dp_algo_single_loop else mode


def capacity(settings: PlanSettings, profile: HardwareProfile) -> int:
    """Memory of one device: what the user said, or the profile's; the published cost model has its own default."""
    # A value that equals the default may still be the user's; only the record of changes tells.
    unsaid = "device_memory_capacity" not in settings.cost.changed
    there = profile.memory_bytes if unsaid and not settings.symbolic else int(settings.cost.device_memory_capacity)
    # `max_device_memory` is a limit of the process, so the smaller one holds.
    return min(there, settings.max_device_bytes or there)


_FUSION = "gradients travel together as 'comm_fusion' says"
_WITHOUT_EFFECT = {
    **{
        setting.name: _FUSION
        for setting in fields(CostModelConfig)
        if setting.name.startswith("costmodel_allreduce_fusion")
    },
    "is_multi_subgraphs": "a step is one graph, whatever it is made of",
}
"""Settings of MindSpore's own searches that change nothing here, and why."""


def _warn_of_ignored(settings: PlanSettings) -> None:
    """Say which settings change nothing here."""
    reasons = {name: why for name, why in _WITHOUT_EFFECT.items() if name in settings.cost.changed}
    if not settings.symbolic:
        # The numbers of the published model have no meaning next to seconds.
        why = f"plans are priced in seconds on '{settings.hardware}'; without a hardware profile the number counts"
        reasons |= dict.fromkeys(sorted(settings.cost.changed & PRICES), why)
    for name, why in reasons.items():
        warnings.warn(f"For 'set_cost_model_context', '{name}' has no effect: {why}.", stacklevel=2)


@dataclass(frozen=True, slots=True)
class AutoPolicy(SemiAuto):
    """Marks of operators say nothing, but for strategies that the search must keep.

    Attributes:
        always: recursive programming keeps the user's strategies, too.
    """

    always: bool = False

    @property
    def returns_cotangents(self) -> bool:
        """The search has decided where they are."""
        return False

    def at_operator(
        self, mark: OperatorMark, specs: Sequence[TensorSpec], current: MaybePlacements
    ) -> Sequence[Resharding | None]:
        """As the user's strategy says, or as it comes; results as they come, unless the user gave a strategy for them."""
        if self.keeps(mark) and (mark.side is Side.IN or asks_for_results(mark)):
            return super(AutoPolicy, self).at_operator(mark, specs, current)
        return [None] * len(specs)

    def keeps(self, mark: OperatorMark) -> bool:
        """Whether the operator has a strategy that counts: recursive programming decides for itself by default, as in MindSpore.

        Tables in uneven parts have one way to be sharded, and `set_data_parallel` and strategy files hold in every search.
        """
        if mark.get("strategy_gen_mode") == "data_parallel":
            return True
        free = self.config.search_mode == "recursive_programming" and not (self.always or mark.get(FROM_FILE))
        counts = not free or is_split(mark)
        return mark.in_strategy is not None and counts


def _user_cuts(
    graph: OperatorGraph, mesh: DeviceMatrix, data: Mapping[int, Placement], policy: AutoPolicy
) -> tuple[dict[int, Placement], dict[int, Assignment]]:
    """Where the user's strategies and layouts put tensors, and how they shard operators, in the inlined step.

    A Parameter that has a layout is kept like that.
    """
    out = inline_loops(graph)
    places: dict[int, Placement] = {}
    cuts: dict[int, Assignment] = {}
    # Nothing to keep, so the whole propagation is saved.
    if not any(_is_kept(operator.mark, policy) for operator in out.graph.operators):
        return places, cuts
    # The user's strategies alone, propagated: this shows how they shard the operators between two marks.
    alltoall, has_reduce_scatter = policy.config.enable_alltoall, policy.config.has_reduce_scatter
    plan = plan_by_propagation(graph, mesh, data, policy, alltoall, has_reduce_scatter=has_reduce_scatter)
    plan = out.unfolded(plan)
    parameters = {argument.tensor for argument in graph.inputs if argument.role is Role.PARAMETER}
    inside = False
    for number, (operator, planned) in enumerate(zip(out.graph.operators, plan.operators, strict=True)):
        mark, specs = operator.mark, operator.operation.operands
        if isinstance(mark, OperatorMark):
            inside = mark.side is Side.IN and policy.keeps(mark)
            reshardings = policy.at_operator(replace(mark, path=operator.path), specs, planned.operands)
        elif isinstance(mark, LayoutMark):
            reshardings = policy.at_layout(mark, specs)
        else:
            # Primitives between entrance and exit belong to the operator with the strategy.
            if inside and mark is None and not operator.bodies:
                cuts[number] = planned.assignment
            continue
        for given, tensor, resharding in zip(operator.operands, operator.results, reshardings, strict=True):
            if resharding is not None:
                places[tensor] = resharding.placement
                # A layout of a parameter holds for its storage as well.
                if given in parameters and isinstance(mark, LayoutMark):
                    places[given] = resharding.placement
    return places, cuts


def overwritten_strategies(graph: OperatorGraph, policy: AutoPolicy) -> tuple[int, ...]:
    """Numbers of the operators whose strategies the search replaces by its own."""
    marks = (operator.mark for operator in graph.walk())
    given = [mark for mark in marks if isinstance(mark, OperatorMark) and mark.in_strategy is not None]
    return tuple(sorted({mark.number for mark in given if not policy.keeps(mark)}))


def _is_kept(mark: Mark | None, policy: AutoPolicy) -> bool:
    """Whether a mark says something that a search must keep."""
    return isinstance(mark, LayoutMark) or (isinstance(mark, OperatorMark) and policy.keeps(mark))


def _cuts(graph: OperatorGraph, plan: Plan, policy: AutoPolicy) -> Given:
    """How the search cut the operators before the update of the parameters; where the user did, they follow him."""
    assignments: dict[int, Assignment] = {}
    control: dict[int, OperatorPlan] = {}
    bodies: dict[int, tuple[Given, ...]] = {}
    last = len(graph.operators)
    kept: int | None = None
    for number, (operator, planned) in enumerate(zip(graph.operators, plan.operators, strict=True)):
        mark = operator.mark
        if isinstance(mark, GradientMark):
            # Operators after the last gradient are the update, which follows the storage sharding.
            last = number
        elif isinstance(mark, OperatorMark):
            # Between the marks of an operator that the user sharded, nothing of the search is taken over.
            kept = mark.number if mark.side is Side.IN and policy.keeps(mark) else None
        elif mark is not None or kept is not None:
            continue
        elif operator.bodies:
            control[number] = planned
            pairs = zip(operator.bodies, planned.bodies, strict=True)
            bodies[number] = tuple(_cuts(body, body_plan, policy) for body, body_plan in pairs)
        else:
            assignments[number] = planned.assignment
    produced = {tensor for operator in graph.operators[:last] for tensor in operator.results}
    return Given(
        {number: assignment for number, assignment in assignments.items() if number < last},
        {number: planned for number, planned in control.items() if number < last},
        bodies,
        # Reshardings of what the update makes would contradict the storage that propagation decides.
        {tensor: resharding for tensor, resharding in plan.reshardings.items() if tensor in produced},
    )


def _inputs(graph: OperatorGraph, plan: Plan, data: Mapping[int, Placement]) -> dict[int, Placement]:
    """Where the search put the parameters."""
    places = {
        argument.tensor: placement
        for argument, placement in zip(graph.inputs, plan.inputs, strict=True)
        if argument.role is Role.PARAMETER
    }
    # Data last: where an input was given a placement, that one holds.
    return {**places, **data}
