"""How a step becomes a planned step: a list of passes, each a function from state to state.

Problem: a step is rewritten, read as a graph, planned, checked and lowered, and some of it several times: for facts about a first
plan, and for each choice of what is computed again.

Method: `StepState` holds all that is known of a step. `STEP_PASSES` lists what happens in which order. A step of several pipeline
stages goes through the same list; `_one_stage` and `_stages` mark the passes that concern one of both kinds alone. A plan that is
made for its facts takes a shorter list (`FIRST_PASSES`, `TRIAL_PASSES`) from the same state, a function of plain JAX the list
`FUNCTION_PASSES` of `planned.function`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial, reduce, wraps
from typing import TypeVar

import jax
from jax.extend.core import ClosedJaxpr

from sporax.base.text_tables import cost_text, limit_text
from sporax.ir.config.parallel_config import ParallelMode
from sporax.ir.config.plan_settings import PlanSettings
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import OperatorGraph, Role
from sporax.ir.marks import GradientMark
from sporax.ir.placement import Placement, prime_mesh
from sporax.ir.plan import Plan
from sporax.ir.uneven import UnevenRows
from sporax.lowering.compiler_options import merged_options
from sporax.lowering.execute.local_norms import local_norms
from sporax.lowering.ingest.ingest import Ingested, ingest
from sporax.lowering.ingest.regather import regather_weights
from sporax.lowering.ingest.strategy_overrides import with_strategies
from sporax.lowering.marks.host_transfer import on_host_of, transfers
from sporax.lowering.passes.host.row_updates import by_rows_for_plan, without_row_updates
from sporax.lowering.passes.loop_constants import with_own_constants
from sporax.lowering.passes.pass_order import flat_for_plan, run_rewrites
from sporax.lowering.passes.pass_tags import AUTO, RANK_SUMS, SAVED_ON_HOSTS, WAITING, compiler_options
from sporax.lowering.passes.rank_sums import with_rank_sums
from sporax.lowering.passes.recompute.plan_facts import Roles, host_notes, plan_facts, recomputation_notes
from sporax.lowering.passes.recompute.recompute_choice import Choice
from sporax.lowering.passes.uneven_tables import Blocked, in_blocks
from sporax.lowering.pipeline.pipeline_plan import PlannedPipeline
from sporax.planner import PlanRequest, PlanResult, PlanTooLargeError, device_memory, is_close_to_limit, make_plan
from sporax.planner.cost.symbolic import unit_of
from sporax.planner.memory.backend import Backend
from sporax.planner.memory.peak import backend_of, memory_of
from sporax.planner.pins.data_placement import arranged_for, data_placement
from sporax.planner.pins.manual_split import check_splits
from sporax.report.questions import Planned
from sporax.runtime.devices.agreed_plan import agreed_plan
from sporax.runtime.devices.global_view import (
    Argument,
    device_program,
    devices_here,
    fusion_options,
    placement_of,
    sharding_of,
)
from sporax.runtime.pipeline.hosts import on_hosts
from sporax.runtime.pipeline.pipelined_step import PipelinedStep, peaks_of
from sporax.runtime.pipeline.planning import of_one_stage, plan_pipeline
from sporax.runtime.planned.compiled_plans import Compiled, CompiledPlans, can_compile_for_limit
from sporax.runtime.planned.recompute_auto import chosen_for_plan
from sporax.runtime.planned.step import PlannedStep, check_offload, sent_to_hosts
from sporax.runtime.session import SESSION

_WORTH_A_NOTE = 0.99
"""Share of the predicted time below which another setting is worth a note."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanState:
    """What is known between two passes of any program that is planned, a step or a function of plain JAX.

    Attributes:
        name: of the step.
        settings: the user's.
        read: the program as a graph.
        mesh: the devices, with their axes in order.
        request: what is requested from the planner, for a step of one stage.
        compile: compiles the program under a plan, where a limit of the user's is to hold for what is compiled.
        result: the plan, of a step of one stage.
        compiled: the program under the plan, where the memory limit needed it.
    """

    name: str
    settings: PlanSettings
    read: Ingested | None = None
    mesh: DeviceMatrix = field(default_factory=lambda: DeviceMatrix((1,)))
    request: PlanRequest | None = None
    compile: Callable[[PlanResult], Compiled | None] | None = None
    result: PlanResult | None = None
    compiled: Compiled | None = None

    @property
    def ingested(self) -> Ingested:
        """The program as a graph, which `read` makes."""
        assert self.read is not None
        return self.read

    @property
    def plan_result(self) -> PlanResult:
        """The plan, which `plan` makes."""
        assert self.result is not None
        return self.result


@dataclass(frozen=True, slots=True, kw_only=True)
class StepState(PlanState):
    """What is known of a step between two passes.

    Attributes:
        jaxpr: its program.
        arguments: what it takes, the updated ones first, with whole shapes.
        num_updated: how many of them are updated in place.
        tags: what the program is to be rewritten for.
        tables: uneven rows of tables, by number of the tensor.
        blocked: the inputs that are kept in blocks, by position.
        pipeline: the plans of all chunks, of a step of several stages.
        notes: what people should know of the plan.
        is_final: the plan is the one that runs, and is none of those that are made for facts or choices.
        planned: the step as it runs.
    """

    jaxpr: ClosedJaxpr
    arguments: tuple[Argument, ...]
    num_updated: int
    tags: frozenset[str] = frozenset()
    tables: Mapping[int, UnevenRows] = field(default_factory=dict)
    blocked: Mapping[int, Blocked] = field(default_factory=dict)
    pipeline: PlannedPipeline | None = None
    notes: tuple[str, ...] = ()
    is_final: bool = True
    planned: PlannedStep | PipelinedStep | None = None

    @property
    def roles(self) -> Roles:
        """Role and name of each argument."""
        return [(argument.role, argument.name) for argument in self.arguments]


State = TypeVar("State", bound=PlanState)
Pass = Callable[[StepState], StepState]


def run_passes(passes: Sequence[Callable[[State], State]], state: State) -> State:
    """The state after all of these passes, one after another."""
    return reduce(lambda before, one: one(before), passes, state)


def _only(several: bool, one: Pass) -> Pass:
    """A pass over steps of several pipeline stages alone, or of one alone."""

    @wraps(one)
    def passed_by(state: StepState) -> StepState:
        return one(state) if (state.settings.parallel.pipeline_stages > 1) == several else state

    return passed_by


_one_stage, _stages = partial(_only, False), partial(_only, True)


# --------------------------------------------------------------------------------------------------------- the program


def sum_over_ranks(state: StepState) -> StepState:
    """The program with the marks of its sums over ranks where slices are added up."""
    if RANK_SUMS not in state.tags:
        return state
    parallel = state.settings.parallel
    jaxpr = with_rank_sums(state.jaxpr, parallel.num_stage_devices, parallel.pipeline_stages)
    return replace(state, jaxpr=jaxpr, tags=state.tags - {RANK_SUMS})


def rewrite(state: StepState) -> StepState:
    """The program after the passes that its tags request: recomputation, repeated blocks, host memory."""
    check_offload(state.tags)
    if not state.tags:
        return state
    # Passes work on one flat program, without calls.
    program, parallel, tags = flat_for_plan(state.jaxpr), state.settings.parallel, state.tags
    may_be_rows = not (parallel.enable_parallel_optimizer or parallel.pipeline_stages > 1)
    semi_auto = parallel.parallel_mode == ParallelMode.SEMI_AUTO_PARALLEL
    program = by_rows_for_plan(program) if may_be_rows and semi_auto else without_row_updates(program)
    facts = plan_facts(program, partial(_first_plan, state), state.roles, partial(plan_micro_batch, state.settings))
    trial = partial(_trial_plan, state)
    choice = chosen_for_plan(program, tags, facts, trial, state.settings) if AUTO in tags else Choice()
    # In a pipeline activations wait between programs, which are not known yet.
    applied = tags - (WAITING if parallel.pipeline_stages > 1 else set())
    jaxpr, recomputed = run_rewrites(program, applied, facts, choice.chosen)
    return replace(state, jaxpr=jaxpr, notes=(*choice.notes, *recomputation_notes(recomputed)))


def _first_plan(state: StepState, program: ClosedJaxpr) -> tuple[OperatorGraph, Plan]:
    """A plan of a program that is not recomputed, for facts about it."""
    # Of a pipeline as of one step over the devices of a stage, which strategies are written for.
    settings = of_one_stage(state.settings)
    first = run_passes(FIRST_PASSES, replace(state, jaxpr=program, settings=settings, is_final=False))
    return first.ingested.graph, first.plan_result.plan


def _trial_plan(state: StepState, program: ClosedJaxpr, is_quick: bool) -> tuple[OperatorGraph, Plan]:
    """The plan of a choice of what is computed again."""
    settings = replace(state.settings, is_trial=is_quick)
    trial = run_passes(TRIAL_PASSES, replace(state, jaxpr=program, settings=settings, is_final=False))
    return trial.ingested.graph, trial.plan_result.plan


def plan_micro_batch(settings: PlanSettings, program: ClosedJaxpr, roles: Roles) -> tuple[OperatorGraph, Plan]:
    """A plan of one round of the loops over micro batches, for the devices of one stage."""
    inner = of_one_stage(settings)
    config, graph = inner.parallel, ingest(program, roles).graph
    mesh = arranged_for(graph, prime_mesh(DeviceMatrix((config.device_num,))), config.dataset_strategy)
    rows = [entry.tensor for entry in graph.inputs if entry.role is Role.DATA]
    if not isinstance(config.dataset_strategy, str):  # rows that are no input of the user's come last and have no entry
        rows = rows[: len(config.dataset_strategy)]
    placements = {
        tensor: data_placement(graph.tensors[tensor].shape, position, config, mesh)
        for position, tensor in enumerate(rows)
    }
    profile = devices_here().profile(settings)
    request = PlanRequest(graph, mesh, inner, profile, placements, memory_bytes=device_memory(inner, profile))
    return graph, agreed_plan(request).plan


# ------------------------------------------------------------------------------------------------------------ the graph


def read(state: StepState) -> StepState:
    """The program as a graph, with the strategies of files."""
    # A carried variable takes its argument's buffer, so both must have the same sharding.
    jaxpr = with_own_constants(state.jaxpr)
    step = ingest(jaxpr, state.roles, [(number, number) for number in range(state.num_updated)])
    return replace(
        state, jaxpr=jaxpr, read=with_strategies(step, SESSION.strategies_for(step.graph, state.settings.parallel))
    )


@_one_stage
def arrange_axes(state: StepState) -> StepState:
    """The devices, with their axes in the order for which fewest strategies need slices in another order."""
    config = state.settings.parallel
    return replace(state, mesh=arranged_for(state.ingested.graph, devices_here().mesh(config), config.dataset_strategy))


@_one_stage
def check_tables(state: StepState) -> StepState:
    """The parts of tables that the user has split by hand."""
    inputs = state.ingested.graph.inputs[len(state.ingested.constants) :]
    made = {entry.tensor for entry, argument in zip(inputs, state.arguments, strict=True) if argument.from_values}
    return replace(state, tables=check_splits(state.ingested.graph, state.mesh.num_devices, made))


@_one_stage
def take_blocks(state: StepState) -> StepState:
    """Tables in uneven parts as blocks of equal size."""
    step, blocked = in_blocks(state.ingested)
    return replace(state, read=step, blocked=blocked)


@_one_stage
def gather_again(state: StepState) -> StepState:
    """At level 3 of optimizer parallelism weights are gathered again in the backward pass and not kept in between."""
    config = state.settings.parallel
    if not (config.enable_parallel_optimizer and config.optimizer_level == "level3"):
        return state
    return replace(state, read=regather_weights(state.ingested))


# ------------------------------------------------------------------------------------------------------------- the plan


@_one_stage
def make_request(state: StepState) -> StepState:
    """What is requested from the planner."""
    request = _request(state)
    compiles = state.is_final and can_compile_for_limit(request)
    return replace(state, request=request, compile=partial(_compiled, state) if compiles else None)


def plan(state: State) -> State:
    """The plan, whose compiled program keeps a limit that the user has set; one that is known stays."""
    if state.request is None or state.result is not None:
        return state
    if state.compile is None:
        return replace(state, result=agreed_plan(state.request))
    trials = CompiledPlans(state.compile)
    result = agreed_plan(state.request, trials.measure)
    return replace(state, result=result, compiled=trials.of(result.plan))


def _compiled(state: StepState, result: PlanResult) -> Compiled | None:
    """The compiled step; None where a part of it is in host memory, which compilers may count with the device's."""
    planned = run_passes((send_to_hosts, lower), replace(state, result=result)).planned
    assert isinstance(planned, PlannedStep)
    return None if planned.uses_hosts() else Compiled(planned, planned.compile(state.name))


@_stages
def plan_stages(state: StepState) -> StepState:
    """The plans of a pipeline, chunk after chunk, and what its hosts hold."""
    settings, tags = state.settings, state.tags
    hosts = partial(on_hosts, arguments=state.arguments, tags=tags, peaks=partial(peaks_of, settings=settings))
    waits, profile = SAVED_ON_HOSTS in tags, devices_here().profile(settings)
    pipeline = plan_pipeline(state.ingested, _unsharded(state.arguments), settings, profile, agreed_plan, hosts, waits)
    return replace(state, pipeline=replace(pipeline, options=compiler_options(tags)))


def _request(state: StepState) -> PlanRequest:
    """The request for a step whose last inputs are its arguments.

    Variables stay where they are in steps that do not compute gradients; otherwise their users decide.
    """
    graph, mesh, settings = state.ingested.graph, state.mesh, state.settings
    inputs = graph.inputs[len(graph.inputs) - len(state.arguments) :]
    has_gradients = any(isinstance(operator.mark, GradientMark) for operator in graph.walk())
    placements: dict[int, Placement] = {}
    fed: list[tuple[int, tuple[int, ...]]] = []
    for entry, argument in zip(inputs, state.arguments, strict=True):
        here = placement_of(argument.array, mesh)
        if here is None and argument.role is Role.DATA:
            fed.append((entry.tensor, tuple(argument.array.shape[settings.num_stacked :])))
        # In evaluation a variable stays as training has left it: moving it would cost every step of training.
        elif here is not None and (argument.role is Role.DATA or not has_gradients):
            placements[entry.tensor] = here
    placements |= _fed_placements(fed, mesh, settings)
    profile = devices_here().profile(settings)
    limit = device_memory(settings, profile)
    return PlanRequest(graph, mesh, settings, profile, placements, _unsharded(state.arguments), limit)


def _fed_placements(
    fed: Sequence[tuple[int, tuple[int, ...]]], mesh: DeviceMatrix, settings: PlanSettings
) -> dict[int, Placement]:
    """Where data arrives that is not on devices yet, as `dataset_strategy` says, by number of the tensor."""
    if fed:
        SESSION.check_inputs(settings.parallel, [shape for _, shape in fed], mesh.num_devices)
    # Sink mode stacks batches of several steps in front; that dimension is not sharded.
    steps = ((),) * settings.num_stacked
    batches = (data_placement(shape, number, settings.parallel, mesh) for number, (_, shape) in enumerate(fed))
    return {tensor: Placement((*steps, *batch.dims)) for (tensor, _), batch in zip(fed, batches, strict=True)}


def _unsharded(arguments: Sequence[Argument]) -> frozenset[str]:
    return frozenset(argument.name for argument in arguments if not argument.shardable)


@_one_stage
def check_memory(state: StepState) -> StepState:
    """Strategies may go beyond the limit; a search keeps it by itself."""
    limit, result = state.settings.limit_bytes, state.plan_result
    if not limit or result.search is not None:
        return state
    needed = memory_of(state.ingested.graph, result.plan, backend=_backend(state)).peak_bytes
    compiled = None
    if state.compile is not None and is_close_to_limit(needed, limit):
        trials = CompiledPlans(state.compile)
        needed = trials.measure(result) or needed
        compiled = trials.of(result.plan)
    _check_memory(needed, state.settings, "with these strategies the plan")
    return replace(state, compiled=compiled)


def _backend(state: StepState) -> Backend:
    """The compiler of the devices that the step is planned for."""
    return backend_of(state.plan_result.request.profile.compiler)


@_stages
def check_memory_of_stages(state: StepState) -> StepState:
    """The largest stage must keep the limit."""
    if state.settings.limit_bytes and isinstance(state.planned, PipelinedStep):
        peak = max(stage.peak_bytes for stage in state.planned.simulate().stages)
        _check_memory(math.ceil(peak), state.settings, "its largest stage")
    return state


def _check_memory(needed: int, settings: PlanSettings, what: str) -> None:
    """Raise if what was planned needs more memory than the user allows."""
    if needed > settings.limit_bytes:
        raise PlanTooLargeError(
            f"For 'memory', the step must fit into {limit_text(settings.limit_bytes)} per device, but {what} needs "
            f"{limit_text(needed)}. `--mode dynamic_programming` searches for a plan that fits; `recompute()` and "
            "'enable_parallel_optimizer' save memory.",
            needed,
        )


@_one_stage
def send_to_hosts(state: StepState) -> StepState:
    """The variables that are in host memory between steps."""
    placements = state.plan_result.plan.inputs[len(state.ingested.constants) :]
    sent = sent_to_hosts(
        state.arguments, state.tags, state.ingested.graph, state.plan_result.plan, placements, _backend(state)
    )
    return replace(state, arguments=tuple(sent))


@_one_stage
def add_notes(state: StepState) -> StepState:
    """What people should know of the step becomes a part of its plan."""
    names = {entry.tensor: entry.name for entry in state.ingested.graph.inputs}
    tables = (
        f"{names[tensor]}: {rows.num_rows} rows in parts of {rows.rows}, kept in blocks of {rows.block}"
        for tensor, rows in state.tables.items()
        if not rows.is_even
    )
    plan = state.plan_result.plan
    notes = (*plan.notes, *tables, *_notes_of_alltoall(state), *state.notes)
    return replace(state, result=replace(state.plan_result, plan=replace(plan, notes=notes)))


def _notes_of_alltoall(state: StepState) -> Iterator[str]:
    """What it costs that the settings forbid all-to-all, where a plan is all that is requested."""
    request = state.plan_result.request
    parallel = request.settings.parallel
    if not (SESSION.plan_only and state.is_final) or parallel.enable_alltoall:
        return
    settings = replace(request.settings, parallel=replace(parallel, enable_alltoall=True))
    with suppress(PlanTooLargeError):
        allowed, here = make_plan(replace(request, settings=settings)).predicted, state.plan_result.predicted
        if allowed < _WORTH_A_NOTE * here:
            unit = unit_of(state.plan_result.model)
            yield (
                f"'enable_alltoall=True' would give {cost_text(allowed, unit)} in place of {cost_text(here, unit)}: without it, "
                "tensors whose sharding goes to another dimension are gathered"
            )


# ----------------------------------------------------------------------------------------------------------- the program


@_one_stage
def lower(state: StepState) -> StepState:
    """One program for all devices."""
    step, plan, settings, num_updated = state.ingested, state.plan_result.plan, state.settings, state.num_updated
    # A plan's first inputs are the constants of the trace, which are no arguments.
    first = len(step.constants)
    shardings = tuple(sharding_of(place, state.mesh) for place in plan.inputs[first:])
    on_host = list(map(on_host_of, shardings))
    # A backend without a host memory space gives the same sharding for both; nothing moves there.
    away = {
        number
        for number, argument in enumerate(state.arguments)
        if argument.on_host and on_host[number] != shardings[number]
    }
    norms = local_norms(settings.parallel, state.mesh.ranks, SESSION.saved_norms)
    mapped = device_program(step, plan, state.name, norms, away, num_updated)
    options = merged_options(fusion_options(plan), compiler_options(state.tags))
    blocked = {number - first: how for number, how in state.blocked.items()}
    # Between steps such variables are in host memory, so the program takes them from there.
    shardings = tuple(on_host[number] if number in away else sharding for number, sharding in enumerate(shardings))
    jitted = jax.jit(mapped, donate_argnums=tuple(range(num_updated)), compiler_options=options)
    arguments, search = _without_values(state.arguments), state.plan_result.search
    planned = PlannedStep(
        step,
        plan,
        jitted,
        arguments,
        shardings,
        settings,
        search,
        blocked,
        state.compiled and state.compiled.executable,
    )
    return replace(state, planned=planned)


@_stages
def lower_stages(state: StepState) -> StepState:
    """One program per task of each stage; they are compiled by the runner."""
    assert state.pipeline is not None
    arguments = _without_values(state.arguments)
    return replace(state, planned=PipelinedStep(state.pipeline, arguments, state.num_updated, state.settings))


def _without_values(arguments: Sequence[Argument]) -> tuple[Argument, ...]:
    """Shapes and dtypes alone: a plan would otherwise keep the first values of all variables alive."""
    return tuple(
        replace(argument, array=jax.ShapeDtypeStruct(argument.array.shape, argument.array.dtype))
        for argument in arguments
    )


@_one_stage
def note_transfers(state: StepState) -> StepState:
    """The plan says what is on the hosts and what is sent there; the program of the devices is read."""
    planned = state.planned
    assert isinstance(planned, PlannedStep)
    if not planned.uses_hosts():
        return state
    away = [argument for argument in planned.arguments if argument.on_host]
    # The traced program is read, since passes may add or remove transfers.
    sent = transfers(planned.jitted.trace(*planned.structs()).jaxpr)
    notes = host_notes([argument.name for argument in away], planned.host_bytes(), sent)
    plan = replace(planned.plan, notes=(*planned.plan.notes, *notes))
    return replace(state, planned=replace(planned, plan=plan))


@_one_stage
def save_strategies(state: StepState) -> StepState:
    """The files that the settings name."""
    # A step that is planned for information only must not overwrite the script's files.
    if not SESSION.plans_all and isinstance(state.planned, PlannedStep):
        SESSION.announce_step(state.planned, state.plan_result.keeps)
    return state


def announce(planned: Planned, texts: Sequence[str], stacklevel: int = 2) -> None:
    """Warn of what a plan has lost, and call listeners with it; where plans are only shown, their heads say it."""
    if not SESSION.plan_only and jax.process_index() == 0:
        for text in texts:
            warnings.warn(text, stacklevel=stacklevel)
    SESSION.announce(planned)


FIRST_PASSES: tuple[Pass, ...] = (read, arrange_axes, take_blocks, make_request, plan)
"""A plan for its facts alone, of which each equation must have one operator."""
TRIAL_PASSES: tuple[Pass, ...] = (read, arrange_axes, check_tables, take_blocks, gather_again, make_request, plan)
"""The plan of a rewritten program."""
STEP_PASSES: tuple[Pass, ...] = (
    sum_over_ranks,
    rewrite,
    *TRIAL_PASSES,
    plan_stages,
    check_memory,
    send_to_hosts,
    add_notes,
    lower,
    lower_stages,
    check_memory_of_stages,
    note_transfers,
    save_strategies,
)
"""All of them, in their order."""
