"""Whether a schedule can be executed, with two tasks named where it cannot.

Problem: a wrong schedule hangs a job of many processes, and none of them can say why.

Method: a runner goes through the list of each stage, and every stage takes part in its transfers in the one order that the
schedule gives. So a schedule runs to its end if and only if one graph has no cycle: tasks in the order of their stage,
transfers after their source and before their target, and transfers that share a stage in the order of the list.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping

from sporax.base.errors import SporaxValueError
from sporax.ir.pipeline_schedule import PER_STEP, PipelineSchedule, StageTransfer, Task, TaskKind

Node = Task | StageTransfer


def check_schedule(schedule: PipelineSchedule) -> None:
    """Check that a schedule is complete, that everything a task needs comes before it, and that it cannot deadlock.

    Raises:
        SporaxValueError: it is not valid; the message names the two tasks in conflict.
    """
    _check_route(schedule)
    _check_complete(schedule)
    _check_order(schedule)
    _check_transfers(schedule)
    _check_deadlock(schedule)


def _error(schedule: PipelineSchedule, text: str) -> SporaxValueError:
    return SporaxValueError(f"For 'PipelineSchedule' '{schedule.name}', {text}.")


def _check_route(schedule: PipelineSchedule) -> None:
    for stage, tasks in enumerate(schedule.stages):
        for task in tasks:
            if task.stage != stage or (stage, task.chunk) not in schedule.position:
                raise _error(schedule, f"the list of stage {stage} must hold its own tasks, but it has {task}")
    if len(schedule.position) != len(schedule.route):
        raise _error(schedule, f"a chunk must stand once in the route, but got {schedule.route}")


def _check_complete(schedule: PipelineSchedule) -> None:
    counts = Counter(schedule)
    # A schedule of forward tasks only is an evaluation.
    trains = any(task.kind is not TaskKind.FORWARD for task in schedule)
    for task, count in counts.items():
        if count > 1:
            raise _error(schedule, f"every task must be there once, but {task} is there {count} times")
    for stage, chunk in schedule.route:
        for micro in range(schedule.num_micro):
            have = {kind for kind in TaskKind if Task(stage, chunk, micro, kind) in counts}
            if TaskKind.FORWARD not in have:
                raise _error(schedule, f"{Task(stage, chunk, micro, TaskKind.FORWARD)} is missing")
            backward = have - {TaskKind.FORWARD}
            full, halves = {TaskKind.BACKWARD}, {TaskKind.BACKWARD_INPUT, TaskKind.BACKWARD_WEIGHT}
            # Either one backward task or both halves: with one half alone gradients of inputs or of weights are missing.
            if trains and backward not in (full, halves):
                names = [Task(stage, chunk, micro, kind).text for kind in sorted(have, key=lambda kind: kind.value)]
                raise _error(
                    schedule,
                    f"micro batch {micro} must go back through chunk {chunk} of stage {stage} once, in one task B or in the "
                    f"two tasks I and W, but the stage has {names}",
                )
    for task in counts:
        # Reductions and updates belong to the step and have no micro batch.
        if task.kind not in PER_STEP and task.micro >= schedule.num_micro:
            raise _error(schedule, f"there are {schedule.num_micro} micro batches, but it has {task}")


def _check_order(schedule: PipelineSchedule) -> None:
    """Inside a stage a task must come after what it needs of the same stage."""
    for tasks in schedule.stages:
        positions = {task: place for place, task in enumerate(tasks)}
        for task in tasks:
            for source in schedule.waits_for(task):
                if source.stage == task.stage and positions[source] > positions[task]:
                    raise _error(schedule, f"{task} must come after {source}, but it comes before it")


def _check_transfers(schedule: PipelineSchedule) -> None:
    required = {
        StageTransfer(source, task)
        for task in schedule
        for source in schedule.waits_for(task)
        if source.stage != task.stage
    }
    counts = Counter(schedule.transfers)
    for transfer in required - set(counts):
        raise _error(schedule, f"the transfer from {transfer.source} to {transfer.target} is missing")
    for transfer, count in counts.items():
        if transfer not in required:
            raise _error(schedule, f"{transfer.target} needs nothing of {transfer.source}, but there is a transfer")
        if count > 1:
            raise _error(schedule, f"the transfer from {transfer.source} to {transfer.target} is there {count} times")


def _check_deadlock(schedule: PipelineSchedule) -> None:
    after: dict[Node, list[Node]] = {}
    missing: Counter[Node] = Counter()
    for before, node in _edges(schedule):
        after.setdefault(before, []).append(node)
        missing[node] += 1
    # Kahn's algorithm: what is left when nothing is ready any more is on a cycle, or waits for one.
    ready = deque(node for node in (*schedule, *schedule.transfers) if not missing[node])
    while ready:
        for node in after.get(ready.popleft(), ()):
            missing[node] -= 1
            if not missing[node]:
                ready.append(node)
    stuck = {node for node, count in missing.items() if count}
    if stuck:
        first, second = _two_of_a_cycle(stuck, after)
        raise _error(schedule, f"{first} and {second} wait for each other, directly or through others: a deadlock")


def _edges(schedule: PipelineSchedule) -> Iterator[tuple[Node, Node]]:
    for tasks in schedule.stages:
        yield from zip(tasks, tasks[1:], strict=False)
    for task in schedule:
        yield from ((source, task) for source in schedule.waits_for(task) if source.stage == task.stage)
    # By stage and not by link: a stage takes part in one transfer at a time.
    last: dict[int, StageTransfer] = {}
    for transfer in schedule.transfers:
        yield transfer.source, transfer
        yield transfer, transfer.target
        for stage in (transfer.source.stage, transfer.target.stage):
            if stage in last:
                yield last[stage], transfer
            last[stage] = transfer


def _two_of_a_cycle(stuck: set[Node], after: Mapping[Node, list[Node]]) -> tuple[Task, Task]:
    """Two tasks of one cycle among the nodes that can never start."""
    # Every stuck node waits for another stuck one, so walking back along these edges must close a cycle.
    before = {node: source for source, nodes in after.items() if source in stuck for node in nodes if node in stuck}
    node = next(iter(before))
    seen: list[Node] = []
    while node not in seen:
        seen.append(node)
        node = before[node]
    tasks: list[Task] = []
    for member in seen[seen.index(node) :]:
        tasks += [member] if isinstance(member, Task) else [member.source, member.target]
    distinct = list(dict.fromkeys(tasks))
    first = distinct[0]
    # Two stages are named if the cycle has two: one stage alone seldom explains a deadlock.
    return first, next((task for task in distinct if task.stage != first.stage), distinct[-1])
