"""The one way to a plan: from a `PlanRequest` to a `PlanResult`.

Problem: strategies of the user, and searches, decide a part of a plan; gradients must be reduced, fused and stored as the
settings say; and what is costed, limited and executed must be one plan.

Method: propagation finishes every plan. Without a search it starts from strategies and placements. A search sees the whole step
(forward, backward and update) with what the user fixed. Its *pins* are what is taken over: how the operators before the update
are sharded, and where parameters are stored. All else follows by propagation, so the same rules hold in both modes. The finished
plan is costed, and it must keep the memory limit: where it needs more than the search's own, the search is repeated with less.
Where a compiler is at hand, the limit holds for the compiled plan (`compiled_limit`).
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from functools import partial

from sporax.base.errors import SporaxRuntimeError
from sporax.base.text_tables import limit_text
from sporax.ir.config.plan_settings import PlanSettings
from sporax.ir.config.search_config import COEFFICIENTS, CostModelConfig
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import OperatorGraph, Role
from sporax.ir.marks import GradientMark, LayoutMark, OperatorMark, Side
from sporax.ir.placement import Placement
from sporax.ir.plan import Plan, Resharding
from sporax.planner.communication.gradient_fusion import FusionIds, fusion_ids
from sporax.planner.compiled_limit import Measure, within_compiled
from sporax.planner.cost.chosen_model import cost_model, link_costs
from sporax.planner.cost.evaluate import cost_of
from sporax.planner.cost.model import CostModel
from sporax.planner.cost.symbolic import unit_of
from sporax.planner.known_plans import known_inputs
from sporax.planner.loops.inline import inline_loops
from sporax.planner.memory.peak import backend_of, memory_of
from sporax.planner.propagation.loop_bodies import Fixed
from sporax.planner.propagation.propagate import plan_by_propagation
from sporax.planner.propagation.semi_auto import AutoPolicy, SemiAuto
from sporax.planner.request import PlanRequest
from sporax.planner.result import PlanResult, auto_policy, semi_auto_policy
from sporax.planner.rules import Assignment, rule_for
from sporax.planner.rules.derive import only_assignment
from sporax.planner.search import SearchOptions, SearchResult, search
from sporax.planner.search.limit.limit import PlanTooLargeError, reject_infeasible_limit
from sporax.planner.solver.graph.cost_graph import OPTIMALITY_TOLERANCE

_FEW_AXES = 3
"""Mesh axes that the published cost model hands out one by one; more of them go in two runs."""
_RUNS = 2
"""Runs of mesh axes that searches hand out."""
_SMALL = 500
"""Operators up to which a second, quick search takes little time compared with all else."""
_MORE_SEARCHES = 2
"""Searches with less and less memory after the first one, until a finished plan fits."""


def make_plan(request: PlanRequest, measure: Measure | None = None) -> PlanResult:
    """The plan of a step.

    Args:
        measure: compiles a plan and reads what it needs, where a compiler is at hand. A limit of a search then holds for the
            compiled program; without it, for the predicted memory.

    Raises:
        SporaxRuntimeError: a strategy that does not fit, one parameter sharded in two ways, or no plan fits the memory.
    """
    if not request.is_searched:
        return PlanResult(request, _propagated(request, semi_auto_policy(request), request.placements))
    _warn_of_ignored(request.settings)
    # Any setting about fusion switches the compiler's combining off, and with it the shared starts in the costs.
    merging = fusion_ids(request.graph, request.settings.parallel) == FusionIds()
    model = cost_model(request.settings, request.mesh, request.profile, merging)
    options = search_options(request)
    if options.memory_bytes is None:
        return _not_slower(request, _searched(request, options, None, model), options, model)
    planned = partial(_predicted_within, request, options, model)
    if measure is None:
        return planned(options.memory_bytes)
    return within_compiled(options.memory_bytes, planned, peak_bytes, measure)


def _predicted_within(request: PlanRequest, options: SearchOptions, model: CostModel, limit: int) -> PlanResult:
    """The finished plan of a search, or a known one, that is predicted to need at most `limit` bytes, or `PlanTooLargeError`."""
    graph = request.graph
    # Loops are written out before, where they may need more than the finished plan does.
    may_fit_finished = _has_loops(graph)
    try:
        reject_infeasible_limit(graph, request.mesh, model, replace(options, memory_bytes=limit))
        may_fit_finished = True
        found = _found_within(request, options, model, limit)
    except PlanTooLargeError:
        # The plan of least time may keep it once it is finished, and so may what there was without a search.
        free = [_searched(request, options, None, model)] if may_fit_finished else []
        known = (PlanResult(request, p, _search_of_known(request, p, options, model)) for _, p in _known_plans(request))
        for result in itertools.chain(free, known):
            if peak_bytes(result) <= limit:
                return _not_slower(request, result, options, model, limit)
        raise
    return _not_slower(request, found, options, model, limit)


def _found_within(request: PlanRequest, options: SearchOptions, model: CostModel, limit: int) -> PlanResult:
    """The finished plan of a search that is predicted to need at most `limit` bytes, or `PlanTooLargeError`."""
    result = _searched(request, options, limit, model)
    allowed, needed = limit, peak_bytes(result)
    for _ in range(_MORE_SEARCHES):
        if needed <= limit:
            break
        allowed -= needed - limit
        result = _searched(request, options, allowed, model)
        needed = peak_bytes(result)
    if needed > limit:
        raise PlanTooLargeError(
            f"For 'search_mode', a plan must fit into {limit_text(limit)} per device, but with gradients and parameters stored "
            f"as the settings say the best that was found needs {limit_text(needed)}.",
            needed,
        )
    return result


def _searched(request: PlanRequest, options: SearchOptions, memory_bytes: int | None, model: CostModel) -> PlanResult:
    """The finished plan of one search whose own plan keeps such a limit."""
    within = replace(options, memory_bytes=memory_bytes)
    found = search(request.graph, request.mesh, model, _mode(request.settings), within, request.budget)
    return finish(request, replace(found, options=options), model)


def _not_slower(
    request: PlanRequest, result: PlanResult, options: SearchOptions, model: CostModel, limit: int | None = None
) -> PlanResult:
    """The plan of a search, or another one that is predicted to be faster and keeps the limit."""
    for name, plan in itertools.chain(_known_plans(request), _by_single_axes(request, options, model)):
        assert result.search is not None
        cost, before = cost_of(request.graph, plan, model).seconds, result.search.cost_seconds
        if cost >= before * (1 - OPTIMALITY_TOLERANCE):
            continue
        note = f"{result.search.method}: what the search found takes {before / cost - 1:.1%} longer than {name}"
        known = replace(plan, notes=tuple(dict.fromkeys((*plan.notes, note))))
        better = PlanResult(request, known, _search_of_known(request, known, options, model, result.search))
        if limit is None or peak_bytes(better) <= limit:
            result = better
    return result


def _search_of_known(
    request: PlanRequest, plan: Plan, options: SearchOptions, model: CostModel, search: SearchResult | None = None
) -> SearchResult:
    """What is known of a plan that a search has not found; a bound that it is below was none of all plans."""
    cost = cost_of(request.graph, plan, model).seconds
    if search is None:
        search = SearchResult(
            plan, _mode(request.settings), cost, None, False, 0.0, {}, unit_of(model), options, request
        )
    bound = search.bound_seconds if (search.bound_seconds or math.inf) <= cost else None
    return replace(search, plan=plan, cost_seconds=cost, bound_seconds=bound, optimal=False, statistics={})


def _known_plans(request: PlanRequest) -> Iterator[tuple[str, Plan]]:
    """The plan of the script without a search, and those that everyone knows, as far as strategies allow them.

    Operators without a strategy are sharded as MindSpore's defaults say, and as they come.
    """
    graph, searched = request.graph, auto_policy(request)
    ways: list[tuple[SemiAuto, tuple[int, ...]]] = [(semi_auto_policy(request), ())]
    if any(isinstance(operator.mark, OperatorMark) for operator in graph.walk()):
        ways.append((searched, searched.overwritten(graph)))
    known = known_inputs(graph, request.mesh, link_costs(request.profile, request.mesh))
    for name, inputs in itertools.chain([("the script's own plan", {})], known):
        for policy, overwritten in ways:
            with suppress(SporaxRuntimeError):  # strategies that only a search may leave out contradict each other
                plan = _propagated(request, policy, {**inputs, **request.placements})
                yield name, replace(plan, overwritten=overwritten)


def _by_single_axes(request: PlanRequest, options: SearchOptions, model: CostModel) -> Iterator[tuple[str, Plan]]:
    """What the quick search finds, which hands out single axes where the others have runs of them; of small graphs."""
    num_axes = sum(request.mesh.shape[axis] > 1 for axis in request.mesh.device_axes)
    mode = "recursive_programming"
    is_small = len(request.graph.operators) <= _SMALL
    if is_small and not options.units and num_axes > _RUNS and _mode(request.settings) != mode:
        found = search(request.graph, request.mesh, model, mode, replace(options, memory_bytes=None), request.budget)
        yield f"that of {mode}", finish(request, replace(found, options=options), model).plan


def received(request: PlanRequest, text: str) -> PlanResult:
    """The result that another process has found for the same request.

    Args:
        text: `PlanResult.to_json` of that process.
    """
    return PlanResult.from_json(request, text, search_options(request) if request.is_searched else SearchOptions())


def remembered(request: PlanRequest, text: str) -> PlanResult:
    """As `received`, of an earlier run with an equal request; what it warned of, this one warns of."""
    _warn_of_ignored(request.settings)
    return received(request, text)


def finish(request: PlanRequest, found: SearchResult, model: CostModel) -> PlanResult:
    """The plan that executes what a search has decided, with its cost."""
    graph, policy, fixed = request.graph, auto_policy(request), request.placements
    pins = _pins(graph, found.plan, policy)
    plan = _propagated(
        request,
        policy,
        {**_pinned_inputs(graph, found.plan, request.settings.parallel.enable_parallel_optimizer), **fixed},
        pins,
    )
    notes = tuple(dict.fromkeys((*found.plan.notes, *plan.notes)))
    plan = replace(plan, overwritten=policy.overwritten(graph), notes=notes)
    cost = cost_of(graph, plan, model).seconds
    bound = None if found.bound_seconds is None else min(found.bound_seconds, cost)
    optimal = found.optimal and cost <= found.cost_seconds * (1 + OPTIMALITY_TOLERANCE)
    found = replace(found, cost_seconds=cost, bound_seconds=bound, optimal=optimal)
    return PlanResult(request, plan, replace(found, request=request))


def _propagated(
    request: PlanRequest, policy: SemiAuto, inputs: Mapping[int, Placement], pins: Fixed | None = None
) -> Plan:
    config = request.settings.parallel
    return plan_by_propagation(
        request.graph, request.mesh, inputs, policy, config.enable_alltoall, pins, config.has_reduce_scatter
    )


def _is_same(plan: Plan, other: Plan) -> bool:
    """Whether both do the same: everything that is executed is equal."""
    same = (plan.inputs, plan.outputs, plan.operators) == (other.inputs, other.outputs, other.operators)
    return same and plan.reshardings == other.reshardings and plan.alltoall == other.alltoall


def peak_bytes(result: PlanResult) -> int:
    """The peak of the finished plan; what the search has measured where that is its own, without loops, which it writes out."""
    search, graph = result.search, result.request.graph
    if search is not None and _is_same(result.plan, search.plan) and not _has_loops(graph):
        measured = search.statistics.get("peak_bytes")
        if isinstance(measured, int):
            return measured
    return memory_of(graph, result.plan, backend=backend_of(result.request.profile.compiler)).peak_bytes


def _has_loops(graph: OperatorGraph) -> bool:
    return any(operator.bodies for operator in graph.operators)


def search_options(request: PlanRequest) -> SearchOptions:
    """What the settings, and the strategies and layouts that the user has fixed, let a search do."""
    fixed, assignments = _fixed_by_user(request, auto_policy(request))
    config, mesh, symbolic = request.settings.search, request.mesh, request.settings.symbolic
    inlined = inline_loops(request.graph).graph
    single = tuple((axis,) for axis in mesh.device_axes if mesh.shape[axis] > 1)
    return SearchOptions(
        # One axis at a time is MindSpore's search space; with many axes it would be too large for exact searches.
        units=single if symbolic and len(single) <= _FEW_AXES else (),
        fully_use_devices=config.fully_use_devices,
        fixed={**request.placements, **fixed},
        free=_free_dims(inlined),
        assignments={**assignments, **_of_islands(inlined, mesh)},
        memory_bytes=request.memory_bytes,
        platform=request.profile.compiler,
        alltoall=request.settings.parallel.enable_alltoall,
        is_quick=request.settings.is_trial,
        follow=config.elementwise_op_strategy_follow,
        align=config.tensor_slice_align_size if config.tensor_slice_align_enable else 1,
        epsilon=config.algo_approxi_epsilon if config.enable_algo_approxi else 0.0,
    )


def _mode(settings: PlanSettings) -> str:
    """The search: of dynamic programming in a single loop the one that shards equal layers in the same way."""
    mode = settings.parallel.search_mode
    return "repeated_blocks" if mode == "dynamic_programming" and settings.cost.dp_algo_single_loop else mode


_FUSION = "gradients are fused as 'comm_fusion' says"
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
        why = f"plans are costed in seconds on '{settings.hardware}'; without a hardware profile the number counts"
        reasons |= dict.fromkeys(sorted(settings.cost.changed & COEFFICIENTS), why)
    for name, why in reasons.items():
        warnings.warn(f"For 'set_cost_model_context', '{name}' has no effect: {why}.", stacklevel=2)


# --------------------------------------------------------------------------------------------- what the user has fixed


def _of_islands(graph: OperatorGraph, mesh: DeviceMatrix) -> dict[int, Assignment]:
    """How the authors of islands have sharded them."""
    found = (
        (number, only_assignment(operator.operation, rule_for(operator.operation), mesh))
        for number, operator in enumerate(graph.operators)
        if "island" in operator.operation.params
    )
    return {number: assignment for number, assignment in found if assignment is not None}


def _free_dims(graph: OperatorGraph) -> dict[int, tuple[int, ...]]:
    """The dimensions that layouts leave open, by number of the tensor behind the mark."""
    marks = ((operator.mark, operator.results) for operator in graph.operators)
    return {results[0]: mark.free for mark, results in marks if isinstance(mark, LayoutMark) and mark.free}


def _fixed_by_user(request: PlanRequest, policy: AutoPolicy) -> tuple[dict[int, Placement], dict[int, Assignment]]:
    """Where the user's strategies and layouts put tensors, and how they shard operators, in the inlined step.

    A Parameter that has a layout is kept like that.
    """
    graph = request.graph
    out = inline_loops(graph)
    placements: dict[int, Placement] = {}
    assignments: dict[int, Assignment] = {}
    # Nothing to keep, so the whole propagation is saved.
    if not policy.fixes_any(out.graph):
        return placements, assignments
    # The user's strategies alone, propagated: this shows how they shard the operators between two marks.
    plan = out.unfolded(_propagated(request, policy, request.placements))
    parameters = {argument.tensor for argument in graph.inputs if argument.role is Role.PARAMETER}
    inside = False
    for number, (operator, planned) in enumerate(zip(out.graph.operators, plan.operators, strict=True)):
        mark, specs, stores = operator.mark, operator.operation.operands, False
        if isinstance(mark, OperatorMark):
            inside = mark.side is Side.IN and policy.keeps(mark)
            reshardings = policy.at_operator(replace(mark, path=operator.path), specs, planned.operands)
        elif isinstance(mark, LayoutMark):
            reshardings, stores = policy.at_layout(mark, specs, planned.operands), mark.is_stored
        else:
            # Primitives between entrance and exit belong to the operator with the strategy.
            if inside and mark is None and not operator.bodies:
                assignments[number] = planned.assignment
            continue
        for source, tensor, resharding in zip(operator.operands, operator.results, reshardings, strict=True):
            # A layout of a parameter holds for its storage as well.
            tensors = (tensor, source) if stores and source in parameters else (tensor,)
            placements |= {} if resharding is None else dict.fromkeys(tensors, resharding.placement)
    return placements, assignments


# ---------------------------------------------------------------------------------------------- what a search has fixed


def _pins(graph: OperatorGraph, plan: Plan, policy: AutoPolicy) -> Fixed:
    """How a search sharded the operators before the update of the parameters, but for those that the user has sharded."""
    operators, planned = graph.operators, plan.operators
    last = _start_of_update(graph)
    free = [number for number in _without_strategies(graph, policy) if number < last]
    control = [number for number in free if operators[number].bodies]
    bodies = {number: zip(operators[number].bodies, planned[number].bodies, strict=True) for number in control}
    produced = {tensor for operator in operators[:last] for tensor in operator.results}
    return Fixed(
        {number: planned[number].assignment for number in free if not operators[number].bodies},
        {number: planned[number] for number in control},
        {number: tuple(_pins(body, of_body, policy) for body, of_body in pairs) for number, pairs in bodies.items()},
        # Reshardings of what the update makes would contradict the storage that propagation decides.
        {tensor: resharding for tensor, resharding in plan.reshardings.items() if tensor in produced}
        | _opened(graph, plan),
    )


def _opened(graph: OperatorGraph, plan: Plan) -> dict[int, Resharding]:
    """Where a search put the tensors of which the user leaves dimensions open."""
    makers = graph.producers()
    found = {tensor: plan.operators[makers[tensor]].results[0] for tensor in _free_dims(graph)}
    return {tensor: Resharding(placement, "layout of the user") for tensor, placement in found.items()}


def _start_of_update(graph: OperatorGraph) -> int:
    """The last mark of gradients: operators after it are the update, which follows the storage sharding."""
    gradients = (number for number, operator in enumerate(graph.operators) if isinstance(operator.mark, GradientMark))
    return max(gradients, default=len(graph.operators))


def _without_strategies(graph: OperatorGraph, policy: AutoPolicy) -> Iterator[int]:
    """Numbers of the operators, marks aside, that are not between the marks of an operator that the user sharded."""
    inside = False
    for number, operator in enumerate(graph.operators):
        mark = operator.mark
        if isinstance(mark, OperatorMark):
            inside = mark.side is Side.IN and policy.keeps(mark)
        elif mark is None and not inside:
            yield number


def _pinned_inputs(graph: OperatorGraph, plan: Plan, shards_optimizer: bool) -> dict[int, Placement]:
    """Where a search put the parameters, and the data of a step that computes no gradients of them.

    What the update alone reads (moments) follows, with optimizer parallelism, the storage of its parameter, which the search does
    not know: it would stay whole, and be gathered at the end of each step.
    """
    has_gradients = any(isinstance(operator.mark, GradientMark) for operator in graph.walk())
    roles = (Role.PARAMETER,) if has_gradients else (Role.PARAMETER, Role.DATA)
    free = _read_by_the_update(graph) if shards_optimizer else frozenset()
    return {
        argument.tensor: placement
        for argument, placement in zip(graph.inputs, plan.inputs, strict=True)
        if argument.role in roles and argument.tensor not in free
    }


def _read_by_the_update(graph: OperatorGraph) -> frozenset[int]:
    """The inputs that no operator reads before the last gradient is complete."""
    start = _start_of_update(graph)
    before = {tensor for operator in graph.operators[:start] for tensor in operator.operands}
    return frozenset(argument.tensor for argument in graph.inputs) - before
