"""What the tasks of a planned pipeline cost.

Problem: schedules are compared, and shown to users, before anything runs.
Method: seconds of a task are those of its program by the planner's cost model, or medians of measured times. Bytes are those of
one device's slices of the values that programs hand on; what a task needs inside comes from the planner's memory model.
`sporax.planner.pipeline.simulate` puts tasks in order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from statistics import median

from sporax.base.errors import For, SporaxRuntimeError
from sporax.ir.graph import LITERAL
from sporax.ir.hardware import HardwareProfile
from sporax.ir.pipeline_schedule import PipelineSchedule, TaskKind
from sporax.ir.placement import Placement
from sporax.lowering.pipeline.pipeline_plan import PlannedChunk, PlannedPipeline
from sporax.lowering.pipeline.programs import ChunkProgram, Slot
from sporax.planner.cost.evaluate import cost_of
from sporax.planner.cost.model import CostModel, local_bytes
from sporax.planner.memory.backend import Backend
from sporax.planner.memory.peak import backend_of, memory_of
from sporax.planner.pipeline.generators import SCHEDULES, generate
from sporax.planner.pipeline.simulate import ChunkCosts, Outcome, PipelineCosts, simulate
from sporax.report.pipeline_summary import PipelineSummary
from sporax.report.render.pipeline_timeline import Times
from sporax.report.view.headline import Costs, pipeline_headline
from sporax.report.view.plan_view import TimePart


def pipeline_costs(pipeline: PlannedPipeline, model: CostModel, profile: HardwareProfile) -> PipelineCosts:
    """The costs that `simulate` takes.

    Args:
        profile: has the link between stages.
    """
    chunks = {
        place: _chunk_costs(chunk, model) for place, chunk in zip(pipeline.schedule.route, pipeline.chunks, strict=True)
    }
    base: dict[int, float] = {}
    for (stage, _), chunk in zip(pipeline.schedule.route, pipeline.chunks, strict=True):
        base[stage] = base.get(stage, 0.0) + _held_bytes(chunk, pipeline.on_host)
    # Stages are neighbours over the outermost, slowest level of the network.
    link = profile.links[-1]
    return PipelineCosts(chunks, base, link.alpha_seconds, link.bandwidth)


def simulated(pipeline: PlannedPipeline, model: CostModel, profile: HardwareProfile) -> Outcome:
    """One step of the pipeline in simulated time."""
    return simulate(pipeline.schedule, pipeline_costs(pipeline, model, profile))


def with_measured(costs: PipelineCosts, times: Times) -> PipelineCosts:
    """The costs with measured seconds: of every chunk and kind of task the median."""
    lengths: dict[tuple[int, int], dict[TaskKind, list[float]]] = {}
    for task, (start, end) in times.items():
        lengths.setdefault((task.stage, task.chunk), {}).setdefault(task.kind, []).append(end - start)
    chunks = {
        place: replace(
            # A kind of task that was not measured keeps the chunk's predicted times.
            chunk,
            seconds={kind: median(all_) for kind, all_ in lengths.get(place, {}).items()} or chunk.seconds,
        )
        for place, chunk in costs.chunks.items()
    }
    return replace(costs, chunks=chunks)


def summarize_pipeline(
    pipeline: PlannedPipeline,
    model: CostModel,
    profile: HardwareProfile,
    compare: str = "",
    reason: str = "",
    notes: tuple[str, ...] = (),
) -> PipelineSummary:
    """The tables for people.

    Args:
        pipeline, model, profile: see `pipeline_costs`.
        compare: ``"all"``, or the name of a schedule to compare with.
        reason: why the stages are as they are.

    Raises:
        SporaxValueError: no schedule of that name.
    """
    costs = pipeline_costs(pipeline, model, profile)
    outcome = simulate(pipeline.schedule, costs)
    others = []
    if compare and pipeline.micro.trains:
        names = SCHEDULES if compare == "all" else (compare,)
        # Checked here, since the name comes from the command line.
        if unknown := [name for name in names if name not in SCHEDULES]:
            raise For("sporax plan").error(f"--schedule must be 'all' or one of {[*SCHEDULES]}, but got '{unknown[0]}'")
        others = [other for name in names if (other := _other(name, pipeline, costs)) is not None]
    micro, peak_bytes = pipeline.micro, max(stage.peak_bytes for stage in outcome.stages)
    num_devices = len(outcome.stages) * pipeline.chunks[0].plan.mesh.num_devices
    head = pipeline_headline(
        micro.step.graph, micro.num_micro, num_devices, Costs(outcome.seconds, int(peak_bytes), model, None)
    )
    found, parts = (outcome, micro.num_micro, tuple(others), reason), _time_parts(pipeline, model, outcome)
    return PipelineSummary(*found, notes=notes, num_devices=num_devices, headline=head, parts=parts)


def _time_parts(pipeline: PlannedPipeline, model: CostModel, outcome: Outcome) -> tuple[TimePart, ...]:
    """What the stage that works longest spends a step on, with its wait for others."""
    busy = [stage.busy_seconds for stage in outcome.stages]
    totals = {"bubble": outcome.seconds - max(busy)}
    for (stage, _), chunk in zip(pipeline.schedule.route, pipeline.chunks, strict=True):
        updates, num_micro = chunk.programs.updates, pipeline.micro.num_micro
        for program in (chunk.programs.forward, chunk.programs.backward, *updates):
            if stage == busy.index(max(busy)) and not program.is_empty:
                cost = cost_of(program.step.graph, program.plan, model)
                for (_, name), seconds in cost.parts.items():
                    part = "update" if program in updates and name not in cost.collectives else name
                    totals[part] = totals.get(part, 0.0) + seconds * (1 if program in updates else num_micro)
    ordered = sorted(totals.items(), key=lambda entry: -entry[1])
    return tuple(TimePart(*entry) for entry in ordered if entry[1] > 0)


def _other(name: str, pipeline: PlannedPipeline, costs: PipelineCosts) -> Outcome | None:
    """The same chunks under another schedule; None where it needs other chunks, or the numbers do not fit it."""
    stages = pipeline.schedule.num_stages
    segments = len(pipeline.schedule.route) // stages
    try:
        schedule: PipelineSchedule = generate(name, stages, pipeline.micro.num_micro, segments)
    except SporaxRuntimeError:
        # Some schedules need another number of chunks or micro batches.
        return None
    if schedule.name == pipeline.schedule.name or set(schedule.route) != set(costs.chunks):
        return None
    return simulate(schedule, costs)


def _chunk_costs(chunk: PlannedChunk, model: CostModel) -> ChunkCosts:
    programs, backend = chunk.programs, backend_of(model.platform)
    mesh, tensors = chunk.plan.mesh, chunk.chunk.step.graph.tensors

    def size(program: ChunkProgram, entries: Iterable[tuple[Slot, Placement]], *kinds: str) -> float:
        # As a dict: a slot that is listed twice is stored once.
        stored = {
            slot: place for slot, place in dict(entries).items() if slot.kind in kinds and slot not in program.on_host
        }
        return float(sum(local_bytes(tensors[slot.number], place, mesh) for slot, place in stored.items()))

    def seconds(program: ChunkProgram) -> float:
        return 0.0 if program.is_empty else cost_of(program.step.graph, program.plan, model).seconds

    # What the backward pass reads stays in memory from the forward pass on.
    saved = size(programs.backward, programs.backward.inputs, "kept", "received", "micro")
    update = sum(map(seconds, programs.updates))
    # Updates run one after another, so the largest counts.
    working = {TaskKind.UPDATE: max(_working_bytes(update, backend) for update in programs.updates)}
    return ChunkCosts(
        {kind: seconds(program) for kind, program in programs.by_kind.items()} | {TaskKind.UPDATE: update},
        saved_bytes=saved,
        weight_bytes=size(programs.weights, programs.weights.inputs, "kept", "received", "micro"),
        sent_bytes=size(programs.forward, programs.forward.outputs, "sent"),
        working_bytes={kind: _working_bytes(program, backend) for kind, program in programs.by_kind.items()} | working,
    )


def _held_bytes(chunk: PlannedChunk, on_host: Collection[int]) -> float:
    """What a chunk holds on each device during the whole step: variables, prepared weights, sums; not what is on the host."""
    graph, mesh = chunk.chunk.step.graph, chunk.plan.mesh
    total = 0
    for entry, place in zip(graph.inputs, chunk.plan.inputs, strict=True):
        if entry.tensor in chunk.chunk.arguments and chunk.chunk.arguments[entry.tensor] not in on_host:
            # State and weights are there all the time; inputs of one micro batch are counted by their tasks.
            total += local_bytes(graph.tensors[entry.tensor], place, mesh)
    prepare = chunk.programs.prepare
    stored = [(slot, place) for slot, place in prepare.outputs if slot not in prepare.on_host]
    return float(total + sum(local_bytes(graph.tensors[slot.number], place, mesh) for slot, place in stored))


def _working_bytes(program: ChunkProgram, backend: Backend) -> float:
    """The most that a task needs on top of what is there. Its addends go into their sums at once, and new values of donated
    slots take the places of the old ones."""
    if program.is_empty:
        return 0.0
    graph, plan = program.step.graph, program.plan
    replacing = [
        place < program.num_sums or slot in program.donated
        for place, (slot, _) in enumerate(program.outputs[: len(graph.outputs)])
    ]
    new = [place for place, replaces in enumerate(replacing) if not replaces]
    memory = memory_of(graph, plan, backend=backend)
    last = sum(
        local_bytes(graph.tensors[tensor], place, plan.mesh)
        for tensor, place, replaces in zip(graph.outputs, plan.outputs, replacing, strict=True)
        if replaces and tensor != LITERAL
    )
    without = memory_of(
        replace(graph, outputs=tuple(graph.outputs[place] for place in new)),
        replace(plan, outputs=tuple(plan.outputs[place] for place in new)),
        backend=backend,
    )
    # The first counts all addends at the end; the second not the operators that make nothing but addends.
    return float(max(memory.peak_bytes - last, without.peak_bytes) - memory.held_bytes)
