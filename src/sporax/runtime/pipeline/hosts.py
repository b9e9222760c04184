"""Which variables of a pipeline are in host memory between steps, and what is transferred there.

The plan is made as if all was on the devices, as for steps of one stage (`sporax.runtime.planned.step`). Then the
marked variables go to the hosts of their stage, and all others with ``auto_offload=False``. With ``auto_offload=True`` each
stage sends its largest until the simulated peak of the stage fits. A weight that devices read for micro batches does not help
there: it is fetched at the beginning of a step and held to its end.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import numpy as np

from sporax.ir.graph import Role
from sporax.ir.pipeline_schedule import TaskKind
from sporax.lowering.marks.host_transfer import transfers
from sporax.lowering.passes.recompute.plan_facts import host_notes
from sporax.lowering.pipeline.chunk import read_on_devices
from sporax.lowering.pipeline.pipeline_plan import PlannedChunk, PlannedPipeline
from sporax.runtime.devices.global_view import Argument
from sporax.runtime.pipeline import processes
from sporax.runtime.pipeline.stage_program import jitted_program
from sporax.runtime.storage.host_memory import check_room, limits_of

Peaks = Callable[[PlannedPipeline], Sequence[float]]
"""By stage the bytes that one of its devices needs."""


def on_hosts(
    pipeline: PlannedPipeline, arguments: Sequence[Argument], tags: Collection[str], peaks: Peaks
) -> frozenset[int]:
    """The arguments that are in host memory between steps, by position.

    Args:
        pipeline: with everything on the devices.
        peaks: what stages need then.

    Raises:
        SporaxRuntimeError: the hosts may not hold so much.
    """
    marked = {
        number
        for number, argument in enumerate(arguments)
        # Every process keeps a copy of small state on a device.
        if argument.on_host and not processes.is_broadcast(pipeline, number)
    }
    for above, within in limits_of(tags):
        # Scalars, such as step counters, save nothing and would cost a transfer each.
        others = [
            number
            for number, argument in enumerate(arguments)
            if argument.role is Role.PARAMETER and argument.array.shape and number not in marked
        ]
        marked |= _largest(pipeline, others, above, peaks(_without(pipeline, marked))) if above else set(others)
        check_room(_most_on_one_host(pipeline, marked), within)
    return frozenset(marked)


def _without(pipeline: PlannedPipeline, marked: Collection[int]) -> PlannedPipeline:
    """The pipeline without those of these variables that devices need not hold during a step."""
    homes = ((position, processes.home_of(pipeline, position)) for position in marked)
    away = (place for place, home in homes if home is not None and not _is_fetched(pipeline.chunks[home], place))
    return replace(pipeline, on_host=frozenset(away))


def _largest(pipeline: PlannedPipeline, others: Sequence[int], above: int, needed: Sequence[float]) -> set[int]:
    """Of these variables the largest of every stage, until it fits `above` bytes."""
    homes = {position: home for position in others if (home := processes.home_of(pipeline, position)) is not None}
    helps = [position for position, home in homes.items() if not _is_fetched(pipeline.chunks[home], position)]
    sizes = {position: part_bytes(pipeline, position) for position in helps}
    sent: set[int] = set()
    for stage, left in enumerate(needed):
        # The largest first, so that few transfers bring the stage under its limit.
        for position in sorted(helps, key=lambda position: -sizes[position]):
            if left <= above:
                break
            if pipeline.schedule.route[homes[position]][0] == stage:
                sent.add(position)
                left -= sizes[position]
    return sent


def _is_fetched(item: PlannedChunk, position: int) -> bool:
    """Whether devices would still hold a variable during a step, since tasks of micro batches read it as it is stored."""
    programs, arguments = item.programs, item.chunk.arguments
    # A table that the host alone looks up rows in stays there.
    if not any(arguments.get(tensor) == position for tensor in read_on_devices(item.chunk)):
        return False
    tasks = (programs.forward, programs.backward, programs.inputs, programs.weights)
    return any((slot.kind, slot.number) == ("variable", position) for task in tasks for slot, _ in task.inputs)


def part_bytes(pipeline: PlannedPipeline, position: int) -> int:
    """What one device has of a variable."""
    storage, graph = processes.storage_of(pipeline, position), pipeline.micro.step.graph
    spec = graph.tensors[graph.inputs[len(pipeline.micro.step.constants) + position].tensor]
    if storage is None:
        return 0
    return math.prod(storage.shard_shape(tuple(spec.shape))) * int(np.dtype(spec.dtype).itemsize)


def _most_on_one_host(pipeline: PlannedPipeline, positions: Collection[int]) -> int:
    """The most bytes that one process would have on its host: all of its devices share that memory."""
    there: Counter[int] = Counter()
    for position in positions:
        storage = processes.storage_of(pipeline, position)
        devices = () if storage is None else storage.mesh.devices.flat
        for device in devices:
            there[device.process_index] += part_bytes(pipeline, position)
    return max(there.values(), default=0)


def notes_of_hosts(pipeline: PlannedPipeline, arguments: Sequence[Argument]) -> tuple[str, ...]:
    """For each stage what is in host memory between steps, and what devices send there and fetch in a step."""
    notes: list[str] = []
    for stage in range(pipeline.schedule.num_stages):
        own = [number for number, place in enumerate(pipeline.schedule.route) if place[0] == stage]
        held = [position for position in sorted(pipeline.on_host) if processes.home_of(pipeline, position) in own]
        names = [arguments[position].name for position in held]
        sent = [transfer for number in own for transfer in _sent(pipeline, pipeline.chunks[number])]
        size = sum(part_bytes(pipeline, position) for position in held)
        notes += (f"stage {stage}: {note}" for note in host_notes(names, size, sent))
    return tuple(notes)


def _sent(pipeline: PlannedPipeline, item: PlannedChunk) -> list[tuple[str, int]]:
    """What each device of a chunk sends between both memories in a step."""
    programs, num_micro = item.programs, pipeline.micro.num_micro
    kinds = {task.kind for tasks in pipeline.schedule.stages for task in tasks}
    backward = (programs.inputs, programs.weights) if TaskKind.BACKWARD_INPUT in kinds else (programs.backward,)
    times = [(programs.prepare, 1), *((program, num_micro) for program in (programs.forward, *backward))]
    sent: list[tuple[str, int]] = []
    for program, count in (*times, *((program, 1) for program in programs.updates)):
        # Traced only where there is something to find.
        if not program.is_empty and (program.on_host or any(equation.on_host for equation in program.step.equations)):
            jitted, shapes = jitted_program(program, {})
            sent += transfers(jitted.trace(*shapes).jaxpr) * count
    return sent
