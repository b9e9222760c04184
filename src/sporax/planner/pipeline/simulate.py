"""A schedule's time, bubbles, memory and links, by discrete events, without devices.

Problem: schedules can only be compared with the costs of their tasks and transfers, before anything runs.

Method: every stage runs its tasks in order; a task starts when the stage is free and what it needs has arrived. A transfer
starts when its source is done and the link between the two stages is free. Memory counts what forward tasks keep for
backward ones on top of what a stage holds always.

On tasks of equal length this gives the closed forms: a share of (S-1)/(M+S-1) of bubbles for GPipe and 1F1B,
(S-1)/(vM+S-1) with v chunks per stage, and a span of 3M+S-1 for zero-bubble H1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sporax.ir.pipeline_schedule import PipelineSchedule, StageTransfer, Task, TaskKind, with_transfers

Place = tuple[int, int]
"""``(stage, chunk)``."""


@dataclass(frozen=True, slots=True)
class ChunkCosts:
    """What the tasks of one chunk cost.

    Attributes:
        seconds: by kind; kinds that are not there take no time. ``BACKWARD`` defaults to the sum of its two halves.
        saved_bytes: what one forward task keeps until the backward pass.
        weight_bytes: the share of it that is kept until the gradients of weights are computed, where that is a task.
        sent_bytes: of the result that goes to the next chunk, and of its gradient on the way back.
        working_bytes: by kind, the most that a task has on top of what is there when it starts; of a forward task what it
            keeps is a part of it.
    """

    seconds: Mapping[TaskKind, float]
    saved_bytes: float = 0.0
    weight_bytes: float = 0.0
    sent_bytes: float = 0.0
    working_bytes: Mapping[TaskKind, float] = field(default_factory=dict)

    def of(self, kind: TaskKind) -> float:
        """Seconds of one task."""
        if kind is TaskKind.BACKWARD and kind not in self.seconds:
            return self.of(TaskKind.BACKWARD_INPUT) + self.of(TaskKind.BACKWARD_WEIGHT)
        return self.seconds.get(kind, 0.0)


@dataclass(frozen=True, slots=True)
class PipelineCosts:
    """What a schedule is simulated with.

    Attributes:
        chunks: by ``(stage, chunk)``.
        base_bytes: per stage what it holds always: weights, optimizer state, gradients.
        link_seconds: latency of a transfer.
        link_bytes_per_second: bandwidth of the link between two stages; None for no time at all.
    """

    chunks: Mapping[Place, ChunkCosts]
    base_bytes: Mapping[int, float] = field(default_factory=dict)
    link_seconds: float = 0.0
    link_bytes_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class StageOutcome:
    """What one stage does.

    Attributes:
        busy_seconds: in tasks.
        bubble_share: share of the whole step in which it waits.
        peak_bytes: of memory per device.
        peak_saved: most micro batches, of all its chunks, kept at a time.
        sent_bytes: that it sends to other stages per step.
    """

    busy_seconds: float
    bubble_share: float
    peak_bytes: float
    peak_saved: int
    sent_bytes: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """A simulated step.

    Attributes:
        schedule: what was simulated.
        start, end: of every task in seconds.
        transfers: start and end of every transfer.
        stages: what each stage does.
        seconds: of the whole step.
    """

    schedule: PipelineSchedule
    start: Mapping[Task, float]
    end: Mapping[Task, float]
    transfers: Mapping[StageTransfer, tuple[float, float]]
    stages: tuple[StageOutcome, ...]
    seconds: float

    @property
    def bubble_share(self) -> float:
        """Share of the time of all stages in which they wait."""
        return sum(stage.bubble_share for stage in self.stages) / len(self.stages)


def simulate(schedule: PipelineSchedule, costs: PipelineCosts) -> Outcome:
    """Run a schedule in simulated time.

    Raises:
        SporaxValueError: its tasks wait for each other in a circle.
    """
    clock = _Clock(schedule, costs)
    with_transfers(schedule, clock.finish)  # reads the end of every task
    seconds = max(clock.end.values(), default=0.0) - min(clock.start.values(), default=0.0)
    stages = tuple(_stage_outcome(schedule, costs, clock, stage, seconds) for stage in range(schedule.num_stages))
    return Outcome(schedule, clock.start, clock.end, clock.links, stages, seconds)


class _Clock:
    """When each task starts and ends."""

    def __init__(self, schedule: PipelineSchedule, costs: PipelineCosts) -> None:
        self.schedule = schedule
        self.costs = costs
        self.start: dict[Task, float] = {}
        self.end: dict[Task, float] = {}
        self.links: dict[StageTransfer, tuple[float, float]] = {}
        self._run()

    def finish(self, task: Task) -> float:
        return self.end[task]

    def _run(self) -> None:
        schedule, positions = self.schedule, [0] * self.schedule.num_stages
        free = [0.0] * schedule.num_stages
        # By direction: links are full duplex.
        link_free: dict[tuple[int, int], float] = {}
        left = sum(map(len, schedule.stages))
        while left:
            ready = []
            for stage, tasks in enumerate(schedule.stages):
                if positions[stage] < len(tasks):
                    sources = schedule.waits_for(tasks[positions[stage]])
                    if all(source in self.end for source in sources):
                        arrived = max((self.end[source] for source in sources), default=0.0)
                        # Before transfers: enough to choose the next event, and the link's own time must not be booked yet.
                        ready.append((max(free[stage], arrived), stage, tasks[positions[stage]], sources))
            if not ready:
                with_transfers(schedule)  # says which tasks wait for each other
            # The earliest first, so that links are booked in the order of time.
            _, stage, task, sources = min(ready, key=lambda entry: entry[:2])
            arrivals = [self._arrival(source, task, link_free) for source in sources]
            begin = max([free[stage], *arrivals])
            self.start[task] = begin
            free[stage] = self.end[task] = begin + self.costs.chunks[task.stage, task.chunk].of(task.kind)
            positions[stage] += 1
            left -= 1

    def _arrival(self, source: Task, task: Task, link_free: dict[tuple[int, int], float]) -> float:
        """When the result of `source` is where `task` runs."""
        if source.stage == task.stage:
            return self.end[source]
        costs, ends = self.costs, (source.stage, task.stage)
        # A cotangent is as large as the activation that came the other way, from the chunk that `task` belongs to.
        sender = source if source.kind is TaskKind.FORWARD else task
        length = costs.link_seconds
        if costs.link_bytes_per_second is not None:
            length += costs.chunks[sender.stage, sender.chunk].sent_bytes / costs.link_bytes_per_second
        begin = max(self.end[source], link_free.get(ends, 0.0))
        link_free[ends] = begin + length
        self.links[StageTransfer(source, task)] = (begin, begin + length)
        return begin + length


def _stage_outcome(
    schedule: PipelineSchedule, costs: PipelineCosts, clock: _Clock, stage: int, seconds: float
) -> StageOutcome:
    tasks = schedule.stages[stage]
    busy = sum(clock.end[task] - clock.start[task] for task in tasks)
    peak, most = _peak(tasks, costs)
    sent = 0.0
    for transfer in clock.links:
        if transfer.source.stage == stage:
            sender = transfer.source if transfer.source.kind is TaskKind.FORWARD else transfer.target
            sent += costs.chunks[sender.stage, sender.chunk].sent_bytes
    # Of the whole step, so a stage that ends early counts as waiting.
    share = 1.0 - busy / seconds if seconds else 0.0
    return StageOutcome(busy, share, costs.base_bytes.get(stage, 0.0) + peak, most, sent)


def _peak(tasks: Iterable[Task], costs: PipelineCosts) -> tuple[float, int]:
    """Most bytes, and most micro batches, that forward tasks keep for backward tasks at a time."""
    saved = peak = 0.0
    count = most = 0
    for task in tasks:
        chunk = costs.chunks[task.stage, task.chunk]
        # Working memory comes on top of what is kept when the task starts.
        peak = max(peak, saved + chunk.working_bytes.get(task.kind, 0.0))
        if task.kind is TaskKind.FORWARD:
            saved, count = saved + chunk.saved_bytes, count + 1
        # What a forward task keeps is counted at its end, before its own backward task can free it.
        peak, most = max(peak, saved), max(most, count)
        if task.kind is TaskKind.BACKWARD:
            saved, count = saved - chunk.saved_bytes, count - 1
        elif task.kind is TaskKind.BACKWARD_INPUT:
            # With separate gradients of weights, their inputs are kept until those are computed.
            saved -= chunk.saved_bytes - chunk.weight_bytes
        elif task.kind is TaskKind.BACKWARD_WEIGHT:
            saved, count = saved - chunk.weight_bytes, count - 1
    return peak, most


def uniform_costs(schedule: PipelineSchedule) -> PipelineCosts:
    """Every part of every chunk takes a second, transfers cost nothing, and a micro batch of a chunk keeps one byte."""
    seconds = dict.fromkeys((TaskKind.FORWARD, TaskKind.BACKWARD_INPUT, TaskKind.BACKWARD_WEIGHT), 1.0)
    chunk = ChunkCosts(seconds, saved_bytes=1.0, weight_bytes=0.5, sent_bytes=1.0)
    return PipelineCosts(dict.fromkeys(schedule.route, chunk))
