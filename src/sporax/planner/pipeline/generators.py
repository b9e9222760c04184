"""The published schedules.

| name | order | reference |
|---|---|---|
| ``gpipe`` | all forward tasks, then all backward tasks | Huang et al. 2019 |
| ``1f1b`` | stage s starts with S-1-s forward tasks, then one forward and one backward in turn | Narayanan et al. 2019 |
| ``interleaved_1f1b`` | the same with several chunks per stage, micro batches in groups of S | Narayanan et al. 2021 |
| ``zero_bubble_h1`` | 1F1B with the gradients of weights apart, which fill the end | Qi et al. 2023 |
| ``zero_bubble_v`` | two chunks per stage, down and up again; gradients of weights fill all holes | Qi et al. 2024 |

All of them end every stage with one gradient reduction and one update per chunk.

One order of all tasks and sends, which every process of a job follows.

Processes that exchange data one pair at a time cannot wait for each other in a circle if all of them go through the same
list and leave out what does not concern them. The list is in the order in which things would happen on devices of equal
speed: a task stands where it starts, and what it sends where it ends. So a process that waits in an exchange has started all
that it can do meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from sporax.base.errors import For, SporaxRuntimeError, SporaxValueError
from sporax.ir.pipeline_schedule import PipelineSchedule, Route, Task, TaskKind, with_transfers
from sporax.planner.pipeline.simulate import simulate, uniform_costs

F, B = TaskKind.FORWARD, TaskKind.BACKWARD
I, W = TaskKind.BACKWARD_INPUT, TaskKind.BACKWARD_WEIGHT  # noqa: E741 - the letters of the zero-bubble paper

SEQUENCE_CHUNKS = ("seqpipe", "seqvpp", "seqsmartvpp")
"""MindSpore's names for schedules whose micro batches are also split along the sequence."""


def gpipe(num_stages: int, num_micro: int, num_chunks: int = 1) -> PipelineSchedule:
    """All forward tasks, chunk after chunk, then all backward tasks, both in the order of the micro batches."""
    order = [(chunk, micro) for chunk in range(num_chunks) for micro in range(num_micro)]
    back = [(num_chunks - 1 - chunk, micro) for chunk, micro in order]
    stages = [
        [Task(stage, *at, kind) for kind, tasks in ((F, order), (B, back)) for at in tasks]
        for stage in range(num_stages)
    ]
    return _finished("gpipe", num_micro, _straight(num_stages, num_chunks), stages)


def one_forward_one_backward(num_stages: int, num_micro: int) -> PipelineSchedule:
    """1F1B: as many forward tasks as there are stages behind, then one forward and one backward in turn."""
    stages = []
    for stage in range(num_stages):
        # So many micro batches go forward before the first one can come back from the last stage.
        warmup = min(num_stages - 1 - stage, num_micro)
        tasks = [Task(stage, 0, micro, F) for micro in range(warmup)]
        for micro in range(num_micro):
            if warmup + micro < num_micro:
                tasks.append(Task(stage, 0, warmup + micro, F))
            tasks.append(Task(stage, 0, micro, B))
        stages.append(tasks)
    return _finished("1f1b", num_micro, _straight(num_stages), stages)


def interleaved(num_stages: int, num_micro: int, num_chunks: int) -> PipelineSchedule:
    """Interleaved 1F1B with `num_chunks` chunks per stage.

    Raises:
        SporaxRuntimeError: the number of micro batches is no multiple of the number of stages.
    """
    if num_chunks == 1:
        return one_forward_one_backward(num_stages, num_micro)
    For("interleaved_1f1b").refuse_state(
        num_micro % num_stages, f"the number of micro batches must be a multiple of the {num_stages} stages", num_micro
    )
    # Numbers count the tasks of one kind of a stage; a round is one group of micro batches through all chunks.
    total, round_ = num_micro * num_chunks, num_stages * num_chunks

    def task(stage: int, number: int, kind: TaskKind) -> Task:
        chunk = number % round_ // num_stages
        # Backward tasks go through the chunks in reverse.
        if kind is B:
            chunk = num_chunks - 1 - chunk
        return Task(stage, chunk, number // round_ * num_stages + number % num_stages, kind)

    stages = []
    for stage in range(num_stages):
        # Two per stage behind it (forward there, backward back), and one group for every further chunk (Narayanan et al., 2.2).
        warmup = min((num_stages - stage - 1) * 2 + (num_chunks - 1) * num_stages, total)
        tasks = [task(stage, number, F) for number in range(warmup)]
        for number in range(total):
            if warmup + number < total:
                tasks.append(task(stage, warmup + number, F))
            tasks.append(task(stage, number, B))
        stages.append(tasks)
    return _finished("interleaved_1f1b", num_micro, _straight(num_stages, num_chunks), stages)


def zero_bubble_h1(num_stages: int, num_micro: int) -> PipelineSchedule:
    """1F1B with the gradients of weights apart: stage s is s of them late, and does them where 1F1B would wait."""
    stages = []
    for stage in range(num_stages):
        warmup = min(num_stages - 1 - stage, num_micro)
        tasks = [Task(stage, 0, micro, F) for micro in range(warmup)]
        weights = 0
        for micro in range(num_micro):
            if warmup + micro < num_micro:
                tasks.append(Task(stage, 0, warmup + micro, F))
            tasks.append(Task(stage, 0, micro, I))
            # Stage s has s slots before its gradients come; from then on one gradient of weights per micro batch.
            if micro >= stage:
                tasks.append(Task(stage, 0, weights, W))
                weights += 1
        # What was put off fills the end, where 1F1B would wait for other stages.
        tasks += [Task(stage, 0, micro, W) for micro in range(weights, num_micro)]
        stages.append(tasks)
    return _finished("zero_bubble_h1", num_micro, _straight(num_stages), stages)


def zero_bubble_v(num_stages: int, num_micro: int) -> PipelineSchedule:
    """Two chunks per stage, from the first stage to the last and back; no stage keeps more than 1F1B's first.

    Built by simulation with tasks of equal length: whenever a stage is free it takes a gradient of inputs that is ready,
    else a forward task, of the later chunk first, if it may keep one more, else a gradient of weights.

    Raises:
        SporaxRuntimeError: there are fewer than two micro batches per stage.
    """
    if num_micro < 2 * num_stages:
        raise For("zero_bubble_v").state_error(
            f"there must be at least {2 * num_stages} micro batches for {num_stages} stages, but got {num_micro}"
        )
    route = (*((stage, 0) for stage in range(num_stages)), *((stage, 1) for stage in reversed(range(num_stages))))
    stages = _greedy(num_stages, num_micro, route, limit=2 * num_stages)
    return _finished("zero_bubble_v", num_micro, route, stages)


def _greedy(num_stages: int, num_micro: int, route: Route, limit: int) -> list[list[Task]]:
    """Every stage does the most urgent of its tasks that are ready, one per unit of time.

    Args:
        limit: how many micro batches of a chunk a stage may keep.
    """
    position = {place: number for number, place in enumerate(route)}
    finished: dict[Task, int] = {}
    stages: list[list[Task]] = [[] for _ in range(num_stages)]
    following = {(*place, kind): 0 for place in route for kind in (F, I, W)}
    stored = [0] * num_stages
    # Three tasks per micro batch and place: F, I and W.
    total, now = 3 * num_micro * len(route), 0

    def ready(task: Task) -> bool:
        if task.micro >= num_micro:
            return False
        place = position[task.stage, task.chunk]
        if task.kind is F:
            sources = [Task(*route[place - 1], task.micro, F)] if place else []
            # The last room is for the later chunk: without it the micro batches that are kept can never go back.
            room = limit if task.chunk == 1 else limit - 1
            if stored[task.stage] >= room:
                return False
        elif task.kind is I:
            sources = [Task(task.stage, task.chunk, task.micro, F)]
            sources += [Task(*route[place + 1], task.micro, I)] if place + 1 < len(route) else []
        else:
            sources = [Task(task.stage, task.chunk, task.micro, I)]
        # `now + 1` stands for not finished; tasks of one unit that end now can be read now.
        return all(finished.get(source, now + 1) <= now for source in sources)

    # Gradients of inputs first, since other stages wait for them; gradients of weights last, since none does.
    urgency = [(I, 1), (I, 0), (F, 1), (F, 0), (W, 1), (W, 0)]
    while len(finished) < total:
        # All stages choose before any task is noted, so that they act at the same time.
        chosen = []
        for stage in range(num_stages):
            heads = (Task(stage, chunk, following[stage, chunk, kind], kind) for kind, chunk in urgency)
            task = next(filter(ready, heads), None)
            if task is not None:
                chosen.append(task)
        for task in chosen:
            stages[task.stage].append(task)
            following[task.stage, task.chunk, task.kind] += 1
            finished[task] = now + 1
            # A micro batch is kept from its forward task until the gradients of its weights are done.
            stored[task.stage] += {F: 1, W: -1}.get(task.kind, 0)
        now += 1
    return stages


_GENERATORS: Mapping[str, Callable[[int, int, int], PipelineSchedule]] = {
    "gpipe": gpipe,
    "1f1b": lambda stages, micro, chunks: interleaved(stages, micro, chunks),
    "interleaved_1f1b": interleaved,
    "zero_bubble_h1": lambda stages, micro, chunks: zero_bubble_h1(stages, micro),
    "zero_bubble_v": lambda stages, micro, chunks: zero_bubble_v(stages, micro),
}

SCHEDULES = tuple(_GENERATORS)
"""Names that `generate` knows."""


def generate(name: str, num_stages: int, num_micro: int, num_chunks: int = 1) -> PipelineSchedule:
    """The schedule of one name.

    Args:
        name: one of `SCHEDULES`, or MindSpore's name.
        num_chunks: chunks per stage; ``1f1b`` is interleaved where there are several.

    Raises:
        SporaxRuntimeError: a schedule of sequence chunks, or numbers that the schedule does not allow.
        SporaxValueError: no such name.
    """
    if name in SEQUENCE_CHUNKS:
        raise SporaxRuntimeError(
            f"For 'pipeline_config', 'pipeline_scheduler' '{name}' splits micro batches along the sequence and needs attention "
            f"that keeps keys and values between its parts, which is not offered: take one of {[*SCHEDULES]}."
        )
    if name not in _GENERATORS:
        raise SporaxValueError(f"For 'pipeline_scheduler', the name must be one of {[*SCHEDULES]}, but got '{name}'.")
    # A schedule has as many chunks per stage as it is made for.
    chunks = {"zero_bubble_v": 2, "zero_bubble_h1": 1}.get(name, num_chunks)
    if num_chunks > 1 and chunks != num_chunks:
        raise SporaxRuntimeError(
            f"For 'pipeline_scheduler', '{name}' must have {chunks} segment(s) per stage, but the network has {num_chunks}."
        )
    return _GENERATORS[name](num_stages, num_micro, num_chunks)


def forward_only(route: Route, num_micro: int) -> PipelineSchedule:
    """For evaluation: every stage takes the micro batches in order."""
    num_stages = 1 + max(stage for stage, _ in route)
    stages = [
        [Task(stage, chunk, micro, F) for micro in range(num_micro) for place, chunk in route if place == stage]
        for stage in range(num_stages)
    ]
    return with_transfers(PipelineSchedule("forward", num_micro, route, tuple(map(tuple, stages))))


def _straight(num_stages: int, num_chunks: int = 1) -> Route:
    return tuple((stage, chunk) for chunk in range(num_chunks) for stage in range(num_stages))


def _finished(name: str, num_micro: int, route: Route, stages: Sequence[Sequence[Task]]) -> PipelineSchedule:
    """With gradient reduction and update at the end of every stage, and with transfers."""
    complete = []
    for stage, tasks in enumerate(stages):
        chunks = sorted(chunk for place, chunk in route if place == stage)
        end = [Task(stage, chunk, -1, kind) for chunk in chunks for kind in (TaskKind.REDUCE, TaskKind.UPDATE)]
        complete.append((*tasks, *end))
    return with_transfers(PipelineSchedule(name, num_micro, route, tuple(complete)))


class TaskEvent(NamedTuple):
    """A task starts, or its results are sent.

    Attributes:
        task: which one.
        starts: whether it starts; else its results are sent.
    """

    task: Task
    starts: bool


def linear_order(schedule: PipelineSchedule) -> list[TaskEvent]:
    """The events of all micro batches.

    Raises:
        SporaxValueError: the tasks wait for each other in a circle.
    """
    outcome = simulate(schedule, uniform_costs(schedule))
    # Reductions and updates happen inside a stage and send nothing to other stages.
    tasks = [task for task in schedule if task.micro >= 0]
    timed = [(outcome.start[task], True, -task.stage, TaskEvent(task, True)) for task in tasks]
    # At one time: sends first (False sorts before True), and later stages before earlier ones.
    timed += [(outcome.end[task], False, -task.stage, TaskEvent(task, False)) for task in tasks]
    return [event for *_, event in sorted(timed, key=lambda entry: entry[:3])]
