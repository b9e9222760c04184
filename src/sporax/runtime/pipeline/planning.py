"""Plans a step of the global view as a pipeline.

Problem: one traced step has to become programs for several stages, each with a plan for the devices of that stage alone.
Method: the loop over micro batches is opened, operators get their chunks, and each chunk becomes a graph of its own. Chunks are
planned like any step, in the order of the route: what a chunk receives keeps the placement with which it was sent. The programs
of a chunk are then sliced from its one plan (`sporax.lowering.pipeline`). What no pipeline can run is refused first.
Reference: Huang et al., GPipe, 2019; Narayanan et al., Megatron-LM, 2021 (interleaved stages).
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from sporax.base.errors import For, SporaxRuntimeError
from sporax.ir.config.parallel_config import ParallelConfig, ParallelMode
from sporax.ir.config.plan_settings import PlanSettings
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import Operator, OperatorGraph, Role
from sporax.ir.hardware import HardwareProfile
from sporax.ir.marks import GradientMark
from sporax.ir.pipeline_schedule import PipelineSchedule, Route
from sporax.ir.placement import Placement, prime_mesh
from sporax.lowering.ingest.ingest import Ingested
from sporax.lowering.passes.host.host_rows import with_replicated_rows
from sporax.lowering.pipeline.assign import StageOf, assign, in_order, stage_of_cell
from sporax.lowering.pipeline.chunk import ChunkGraph, chunk_graphs
from sporax.lowering.pipeline.flat import MicroStep
from sporax.lowering.pipeline.micro_step import open_micro_loop
from sporax.lowering.pipeline.pipeline_plan import PlannedChunk, PlannedPipeline
from sporax.lowering.pipeline.programs import ChunkPrograms, programs_of, update_levels
from sporax.planner import PlanRequest, PlanResult, device_memory, make_plan
from sporax.planner.pins.data_placement import arranged_for, data_placement
from sporax.planner.pins.manual_split import check_splits
from sporax.planner.pipeline.generators import forward_only, generate
from sporax.planner.pipeline.schedule_check import check_schedule
from sporax.runtime.pipeline.processes import check_processes
from sporax.runtime.pipeline.stages import chosen_stages


def plan_pipeline(
    step: Ingested,
    unsharded_parameters: frozenset[str],
    settings: PlanSettings,
    profile: HardwareProfile,
    plan_of: Callable[[PlanRequest], PlanResult] = make_plan,
    hosts: Callable[[PlannedPipeline], frozenset[int]] = lambda pipeline: frozenset(),
    checkpoints_wait: bool = False,
) -> PlannedPipeline:
    """Divide a step into chunks and plan it.

    Args:
        unsharded_parameters: names of those that optimizer parallelism shall not shard.
        plan_of: plans a chunk.
        hosts: says of a pipeline with everything on the devices which arguments are in host memory between steps.
        checkpoints_wait: whether what is kept for recomputed Cells waits for the backward pass in host memory.

    Raises:
        SporaxRuntimeError: the network, its stages or the number of micro batches do not fit a pipeline.
    """
    config = settings.parallel
    # Refused before anything is planned, which may take minutes.
    check_processes(config)
    micro = open_micro_loop(step)
    _check_loop(micro, step.graph, config)
    # A search finds strategies of its own.
    if config.parallel_mode == ParallelMode.SEMI_AUTO_PARALLEL:
        micro = with_replicated_rows(micro, unsharded_parameters if config.enable_parallel_optimizer else None)
    # A schedule of the user's is for training; evaluation runs forward tasks only.
    own_schedule = config.pipeline_schedule if micro.trains else None
    stage_of, reason = chosen_stages(micro, settings, profile) if config.auto_pipeline else (stage_of_cell, "")
    stage_of, segments = _with_segments(micro, config, stage_of, own_schedule is not None)
    schedule = own_schedule or _schedule(config, segments, micro)
    _check_numbers(schedule, config, segments, micro)
    check_schedule(schedule)
    assigned = assign(micro, schedule.route, stage_of)
    chunks = chunk_graphs(assigned)
    levels = update_levels(assigned, chunks)
    num_levels = 1 + max(levels.values(), default=0)
    # Sums and carries that another chunk reads are exported by level 0, so their readers come after it.
    planned: list[PlannedChunk] = []
    sent: dict[int, Placement] = {}
    level3 = config.enable_parallel_optimizer and config.optimizer_level == "level3"
    split = partial(
        programs_of,
        assigned=assigned,
        levels=levels,
        num_levels=num_levels,
        gather_each_time=level3,
        checkpoints_wait=checkpoints_wait,
    )
    # One order of axes for all stages, so that what is sent needs no reordering.
    axes = stage_axes(step.graph, config)
    for chunk, (stage, _) in zip(chunks, schedule.route, strict=True):
        mesh = stage_mesh(stage, axes)
        plan = plan_of(_request(chunk, mesh, sent, unsharded_parameters, settings, micro, profile)).plan
        programs = split(chunk, plan)
        planned.append(PlannedChunk(chunk, plan, programs))
        # Later chunks must take what is sent with the sharding it has.
        sent |= _sent_by(programs)
    pipeline = PlannedPipeline(micro, tuple(planned), schedule, num_levels, reason)
    on_host = hosts(pipeline)
    # Plans stay: where a value is stored decides what its programs fetch, not how it is sharded.
    chunks_with_hosts = (replace(item, programs=split(item.chunk, item.plan, hosted=on_host)) for item in planned)
    return replace(pipeline, chunks=tuple(chunks_with_hosts), on_host=on_host) if on_host else pipeline


def _sent_by(programs: ChunkPrograms) -> dict[int, Placement]:
    """Where a chunk has what it sends, by number."""
    outputs = (program.outputs for program in (programs.forward, programs.backward, *programs.updates))
    return {slot.number: place for slot, place in itertools.chain(*outputs) if slot.kind == "sent"}


def _with_segments(micro: MicroStep, config: ParallelConfig, stage_of: StageOf, scheduled: bool) -> tuple[StageOf, int]:
    """Where operators belong, and the number of segments. `scheduled`: the user has a schedule, which says all.

    Raises:
        SporaxRuntimeError: the network has not as many segments as the settings say.
    """
    segments = _check_stages(micro, config, stage_of)
    # Segments belong to interleaved schedules; others run one chunk per stage.
    if not (config.pipeline_interleave or config.pipeline_segments > 1) and not scheduled:
        stage_of, segments = _without_segments(stage_of), 1
    elif segments == 1 and config.pipeline_scheduler != "zero_bubble_v" and not scheduled:
        stage_of = in_order(micro, config.pipeline_stages)
        segments = _check_stages(micro, config, stage_of)
    if config.pipeline_segments not in (1, segments):
        raise SporaxRuntimeError(
            f"For 'set_auto_parallel_context', 'pipeline_segments' is {config.pipeline_segments}, but the Cells of the network "
            f"are in {segments} segment(s): set 'pipeline_segment' of its Cells, or 'segment_config' of PipelineCell."
        )
    return stage_of, segments


def _without_segments(stage_of: StageOf) -> StageOf:
    """One chunk per stage: segments count only where schedules are interleaved."""

    def stage_alone(operator: Operator) -> tuple[int, int] | None:
        specified = stage_of(operator)
        return None if specified is None else (specified[0], 0)

    return stage_alone


def stage_axes(graph: OperatorGraph, config: ParallelConfig) -> tuple[int, ...]:
    """The prime axes of every stage's devices, in an order that suits the strategies of all stages: what one stage sends is at
    the next one on the same axes.
    """
    devices = prime_mesh(DeviceMatrix((config.num_stage_devices,)))
    return arranged_for(graph, devices, config.dataset_strategy).shape


def stage_mesh(stage: int, axes: tuple[int, ...]) -> DeviceMatrix:
    """The devices of a stage: N ranks in a row, from ``stage * N`` on."""
    size = math.prod(axes)
    return DeviceMatrix(axes, (), tuple(range(stage * size, (stage + 1) * size)))


def _request(
    chunk: ChunkGraph,
    mesh: DeviceMatrix,
    sent: dict[int, Placement],
    unsharded_parameters: frozenset[str],
    settings: PlanSettings,
    micro: MicroStep,
    profile: HardwareProfile,
) -> PlanRequest:
    """The request for a chunk. What arrives from a stage before keeps its sharding; what will arrive from a later one is
    decided by its readers."""
    # Inside of a stage the step is an ordinary one over the devices of the stage.
    inner = of_one_stage(settings)
    config = inner.parallel
    graph = chunk.step.graph
    _check_tables(graph, mesh)
    placed: dict[int, Placement] = {}
    for tensor, argument in chunk.micro_inputs.items():
        placed[tensor] = data_placement(graph.tensors[tensor].shape, _fed_position(micro, argument), config, mesh)
    step_inputs = micro.step.graph.inputs[len(micro.step.constants) :]
    for tensor, argument in chunk.arguments.items():
        if step_inputs[argument].role is Role.DATA:  # read whole by every micro batch
            placed[tensor] = Placement.replicated(graph.tensors[tensor].num_dims)
    placed.update((tensor, sent[tensor]) for tensor in chunk.received if tensor in sent)
    return PlanRequest(graph, mesh, inner, profile, placed, unsharded_parameters, device_memory(inner, profile))


def of_one_stage(settings: PlanSettings) -> PlanSettings:
    """The settings for the devices of one stage alone; a single device leaves nothing to search."""
    parallel = settings.parallel
    mode = parallel.parallel_mode if parallel.num_stage_devices > 1 else ParallelMode.SEMI_AUTO_PARALLEL
    config = replace(parallel, device_num=parallel.num_stage_devices, pipeline_stages=1, parallel_mode=mode)
    return replace(settings, parallel=config)


def _check_tables(graph: OperatorGraph, mesh: DeviceMatrix) -> None:
    """Check the parts of tables that the user has split by hand; inside of a stage tables are kept in even parts."""
    names = {entry.tensor: entry.name for entry in graph.inputs}
    for table, rows in check_splits(graph, mesh.num_devices, ()).items():
        if not rows.is_even:
            warnings.warn(
                f"For '{names[table]}', parts of {rows.rows} rows are not offered inside of a pipeline stage: each device keeps "
                f"the same number of rows. Values are the same.",
                stacklevel=2,
            )


def _fed_position(micro: MicroStep, argument: int) -> int:
    """The number of an argument among those that hold data."""
    inputs = micro.step.graph.inputs[len(micro.step.constants) :]
    return sum(1 for entry in inputs[:argument] if entry.role is Role.DATA)


def _schedule(config: ParallelConfig, segments: int, micro: MicroStep) -> PipelineSchedule:
    stages, name = config.pipeline_stages, config.pipeline_scheduler
    if not micro.trains:
        return forward_only(_route(stages, segments, name), micro.num_micro)
    # MindSpore's rule: the V passes every stage twice.
    if name == "zero_bubble_v" and micro.num_micro < 2 * stages:
        raise SporaxRuntimeError(
            f"For 'PipelineCell', 'micro_size' must be at least {2 * stages} with {stages} stages and 'zero_bubble_v', but got "
            f"{micro.num_micro}."
        )
    return generate(name, stages, micro.num_micro, segments)


def _route(stages: int, segments: int, name: str) -> Route:
    # The V shape: the second half of the network runs through the stages backwards, so that the last Cells and the first
    # are in one stage (Qi et al., Pipeline Parallelism with Controllable Memory, 2024).
    if name == "zero_bubble_v" and segments == 2:
        return (*((stage, 0) for stage in range(stages)), *((stage, 1) for stage in reversed(range(stages))))
    return tuple((stage, segment) for segment in range(segments) for stage in range(stages))


def _check_numbers(schedule: PipelineSchedule, config: ParallelConfig, segments: int, micro: MicroStep) -> None:
    expected = (config.pipeline_stages, config.pipeline_stages * segments, micro.num_micro)
    actual = (schedule.num_stages, len(schedule.route), schedule.num_micro)
    if expected != actual:
        raise For("pipeline_schedule").state_error(
            f"the schedule must be for (stages, chunks, micro batches) {expected}, but '{schedule.name}' is for {actual}"
        )


def _check_loop(micro: MicroStep, graph: OperatorGraph, config: ParallelConfig) -> None:
    has_gradients = any(isinstance(operator.mark, GradientMark) for operator in graph.walk())
    if has_gradients and not micro.looped:
        raise SporaxRuntimeError(
            f"For 'set_auto_parallel_context', pipeline_stages={config.pipeline_stages} must be trained with micro batches, but "
            "the step has no PipelineCell: wrap the network with its loss, PipelineCell(net_with_loss, micro_size)."
        )
    # MindSpore's rule: with fewer micro batches the stages never all work at the same time.
    if micro.looped and micro.num_micro < config.pipeline_stages:
        raise For("PipelineCell").state_error(
            f"'micro_size' must not be smaller than the {config.pipeline_stages} pipeline stages, but got {micro.num_micro}"
        )
    if micro.trains and not config.loss_repeated_mean:
        raise SporaxRuntimeError(
            "For 'set_auto_parallel_context', 'loss_repeated_mean' must be True with several pipeline stages, but got False."
        )


def _check_stages(micro: MicroStep, config: ParallelConfig, stage_of: StageOf) -> int:
    """The number of segments; every stage must be used, and there must be no others."""
    stages: set[int] = set()
    segments: set[int] = {0}
    for operator in micro.step.graph.operators:
        specified = stage_of(operator)
        if specified is None:
            continue
        stage, segment = specified
        if stage >= config.pipeline_stages:
            raise For(operator.path).state_error(
                f"'pipeline_stage' must be smaller than the {config.pipeline_stages} pipeline stages", stage
            )
        stages.add(stage)
        segments.add(segment)
    if not stages and not micro.looped and micro.step.graph.aliases:
        raise SporaxRuntimeError(
            f"For 'set_auto_parallel_context', with pipeline_stages={config.pipeline_stages} the forward pass, the gradients and "
            "the update must be one step, but this step updates variables without running a Cell of a stage. Write one function, "
            "'def step(*data): loss, grads = grad_fn(*data); optimizer(grads); return loss', and call ms.jit(step), or use "
            "nn.TrainOneStepCell(PipelineCell(net_with_loss, micro_size), optimizer)."
        )
    # A stage without Cells would leave its devices idle without saying so.
    if len(stages) != config.pipeline_stages:
        raise SporaxRuntimeError(
            f"For 'set_auto_parallel_context', 'pipeline_stages' is {config.pipeline_stages}, but the Cells of the network are "
            f"in {len(stages)} stage(s), {sorted(stages)}: set 'pipeline_stage' of its Cells, or 'stage_config' of PipelineCell."
        )
    return 1 + max(segments)
