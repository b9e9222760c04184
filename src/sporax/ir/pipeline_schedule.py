"""A pipeline schedule as plain data: which stage does what, in which order.

A network is a chain of *chunks*; a stage owns one chunk, or several (virtual stages). For every micro batch each chunk has
one forward task and either one backward task or two: the gradient of its inputs, which the chunk before it waits for, and
the gradient of its weights, which can wait. A schedule is one ordered list of tasks per stage and one order of all
transfers between stages. It says nothing of devices or arrays: generators write it, a simulator times it, a runner follows
it, and users may hand in their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Struct

from sporax.base.documents import MalformedError, decode
from sporax.base.errors import For, SporaxValueError
from sporax.base.lazy_members import dataclass

VERSION = 1
"""Version of the JSON form."""


class TaskKind(Enum):
    """What a task computes; the value is its letter in the text form."""

    FORWARD = "F"
    BACKWARD = "B"
    """Gradients of inputs and weights in one task."""
    BACKWARD_INPUT = "I"
    BACKWARD_WEIGHT = "W"
    REDUCE = "R"
    """Combine the finished gradients of a chunk over the devices that repeat its weights; once per step."""
    UPDATE = "U"
    """The optimizer's update of a chunk; once per step."""


PER_STEP = (TaskKind.REDUCE, TaskKind.UPDATE)
"""Kinds of task that a chunk has once per step, not once per micro batch."""


@dataclass(frozen=True, slots=True)
class Task:
    """One piece of work.

    Attributes:
        stage: who does it.
        chunk: which of the stage's chunks it belongs to, counted in the order of the network.
        micro: number of the micro batch; -1 for tasks once per step.
        kind: what is computed.
    """

    stage: int
    chunk: int
    micro: int
    kind: TaskKind

    @property
    def text(self) -> str:
        """Its short form within its stage: ``F3``, or ``F3.1`` for the stage's second chunk."""
        micro = "" if self.micro < 0 else str(self.micro)
        return f"{self.kind.value}{micro}.{self.chunk}" if self.chunk else f"{self.kind.value}{micro}"

    def __str__(self) -> str:
        return f"{self.text} of stage {self.stage}"

    @property
    def key(self) -> tuple[int, int, int, str]:
        """For a fixed order."""
        return self.stage, self.chunk, self.micro, self.kind.value


@dataclass(frozen=True, slots=True)
class StageTransfer:
    """The result of a task on its way to another stage.

    Attributes:
        source: the task whose result is sent.
        target: the task that waits for it.
    """

    source: Task
    target: Task

    def __str__(self) -> str:
        return f"{self.source} -> {self.target}"


Route = tuple[tuple[int, int], ...]
"""The chunks in the order of the network, each as ``(stage, chunk of that stage)``."""


@dataclass(frozen=True)
class PipelineSchedule:
    """Who does what, in which order.

    Attributes:
        name: of the generator, or what a user calls it.
        num_micro: number of micro batches.
        route: the chunks in the order of the network.
        stages: for every stage its tasks in order.
        transfers: all transfers between stages, in one order that all stages keep.

    Example:
        >>> PipelineSchedule.from_text("F0 F1 B0 B1\\nF0 B0 F1 B1").num_stages
        2
    """

    name: str
    num_micro: int
    route: Route
    stages: tuple[tuple[Task, ...], ...]
    transfers: tuple[StageTransfer, ...] = ()

    @property
    def num_stages(self) -> int:
        """How many stages there are."""
        return len(self.stages)

    @cached_property
    def position(self) -> Mapping[tuple[int, int], int]:
        """Where a ``(stage, chunk)`` stands in the network."""
        return {place: number for number, place in enumerate(self.route)}

    def __iter__(self) -> Iterator[Task]:
        for tasks in self.stages:
            yield from tasks

    def waits_for(self, task: Task) -> tuple[Task, ...]:
        """The tasks whose results a task needs; of backward tasks, either form that the schedule has."""
        # A schedule has backward tasks whole or in halves; both are requested, and those that exist count.
        return tuple(need for need in self._needs(task) if need in self._tasks)

    @cached_property
    def _tasks(self) -> frozenset[Task]:
        return frozenset(self)

    def _needs(self, task: Task) -> Iterator[Task]:
        place = self.position[task.stage, task.chunk]
        if task.kind in PER_STEP:
            before = (
                (TaskKind.BACKWARD, TaskKind.BACKWARD_WEIGHT) if task.kind is TaskKind.REDUCE else (TaskKind.REDUCE,)
            )
            micros = range(self.num_micro) if task.kind is TaskKind.REDUCE else (-1,)
            # The reduction waits for the gradients of all micro batches.
            yield from (Task(task.stage, task.chunk, micro, kind) for micro in micros for kind in before)
            return
        if task.kind is TaskKind.FORWARD:
            if place:
                yield Task(*self.route[place - 1], task.micro, TaskKind.FORWARD)
            return
        if task.kind is TaskKind.BACKWARD_WEIGHT:
            yield Task(task.stage, task.chunk, task.micro, TaskKind.BACKWARD_INPUT)
            return
        # A backward task needs its own activations, and the cotangent from the next chunk.
        yield Task(task.stage, task.chunk, task.micro, TaskKind.FORWARD)
        if place + 1 < len(self.route):
            for kind in (TaskKind.BACKWARD, TaskKind.BACKWARD_INPUT):
                yield Task(*self.route[place + 1], task.micro, kind)

    def __str__(self) -> str:
        return "\n".join(" ".join(task.text for task in tasks) for tasks in self.stages)

    @classmethod
    def from_text(cls, text: str, name: str = "own", route: Route | None = None) -> PipelineSchedule:
        """A schedule from one line per stage: ``F0 F1 B0 B1``, chunks after a point: ``F0.1``.

        Args:
            text: the lines; what stands before a colon, and empty lines, are left out.
            route: order of the chunks; None: stage 0 to the last for chunk 0, then again for chunk 1, and so on.

        Raises:
            SporaxValueError: a word that is no task, or a schedule that cannot be executed.
        """
        lines = [line.rpartition(":")[2].split() for line in text.strip().splitlines() if line.strip()]
        stages = tuple(tuple(_task(word, stage) for word in words) for stage, words in enumerate(lines))
        tasks = [task for line in stages for task in line]
        For("PipelineSchedule").refuse(not tasks, "there must be a line of tasks for every stage, but got none")
        num_chunks = 1 + max(task.chunk for task in tasks)
        route = route or tuple((stage, chunk) for chunk in range(num_chunks) for stage in range(len(stages)))
        return with_transfers(cls(name, 1 + max(task.micro for task in tasks), route, stages))

    def to_json(self) -> str:
        """The schedule as JSON."""
        document = ScheduleDocument(
            VERSION,
            self.name,
            self.num_micro,
            self.route,
            tuple(tuple(task.text for task in tasks) for tasks in self.stages),
            tuple(
                (transfer.source.stage, transfer.source.text, transfer.target.stage, transfer.target.text)
                for transfer in self.transfers
            ),
        )
        return msgspec.json.encode(document).decode()

    @classmethod
    def from_json(cls, text: str) -> PipelineSchedule:
        """Read what `to_json` wrote.

        Raises:
            SporaxValueError: not a schedule, or of another version.
        """
        try:
            document = decode(text, ScheduleDocument)
            if document.version != VERSION:
                raise MalformedError(f"must be {VERSION}, but got {document.version}", "version")
            stages = tuple(tuple(_task(word, stage) for word in words) for stage, words in enumerate(document.stages))
            transfers = tuple(
                StageTransfer(_task(source, first), _task(target, second))
                for first, source, second, target in document.transfers
            )
            return cls(document.name, document.num_micro, document.route, stages, transfers)
        except (MalformedError, SporaxValueError) as error:
            problem = error.message if isinstance(error, SporaxValueError) else str(error)
            raise SporaxValueError(
                f"For 'PipelineSchedule.from_json', there must be a saved schedule, but {problem.rstrip('.')}."
            ) from None


class ScheduleDocument(Struct, frozen=True):
    """A `PipelineSchedule` in a file; tasks in their text form."""

    version: int
    name: str
    num_micro: int
    route: Route
    stages: tuple[tuple[str, ...], ...]
    transfers: tuple[tuple[int, str, int, str], ...]


_WORD = re.compile(r"([FBIWRU])(\d*)(?:\.(\d+))?")
"""A task in a text: its letter, the number of its micro batch, and the chunk after a point."""


def _task(word: Any, stage: int) -> Task:
    match = _WORD.fullmatch(str(word))
    if match is None or (not match[2]) != (TaskKind(match[1]) in PER_STEP):
        raise SporaxValueError(
            f"For 'PipelineSchedule', a task must be a letter of FBIW with a number (F3, or F3.1 for a second chunk), or R or "
            f"U, but stage {stage} has '{word}'."
        )
    return Task(stage, int(match[3] or 0), int(match[2]) if match[2] else -1, TaskKind(match[1]))


def with_transfers(schedule: PipelineSchedule, order: Callable[[Task], float] | None = None) -> PipelineSchedule:
    """The schedule with its transfers, in the order in which their tasks finish.

    Args:
        schedule: with its tasks; transfers that it has are replaced.
        order: when a task finishes; None: every task takes one unit of time.

    Raises:
        SporaxValueError: the tasks wait for each other in a circle.
    """
    finish = order or _unit_times(schedule).__getitem__
    pairs = [
        StageTransfer(source, task)
        for task in schedule
        for source in schedule.waits_for(task)
        if source.stage != task.stage
    ]
    # The keys break ties, so that all processes have the same order.
    pairs.sort(key=lambda pair: (finish(pair.source), pair.source.key, pair.target.key))
    return PipelineSchedule(schedule.name, schedule.num_micro, schedule.route, schedule.stages, tuple(pairs))


def _unit_times(schedule: PipelineSchedule) -> dict[Task, float]:
    """When each task finishes if every task takes one unit of time and transfers none."""
    finished: dict[Task, float] = {}
    clocks = [0.0] * schedule.num_stages
    positions = [0] * schedule.num_stages
    left = sum(map(len, schedule.stages))
    while left:
        before = left
        for stage, tasks in enumerate(schedule.stages):
            # As far as each stage gets; then the next stage, until no stage moves any more.
            while positions[stage] < len(tasks):
                task = tasks[positions[stage]]
                sources = schedule.waits_for(task)
                if any(source not in finished for source in sources):
                    break
                clocks[stage] = 1.0 + max([clocks[stage], *(finished[source] for source in sources)])
                finished[task] = clocks[stage]
                positions[stage] += 1
                left -= 1
        # No stage moved: the heads of all lists wait for each other.
        if left == before:
            raise _stuck(
                schedule,
                [tasks[place] for tasks, place in zip(schedule.stages, positions, strict=True) if place < len(tasks)],
                finished,
            )
    return finished


def _stuck(schedule: PipelineSchedule, heads: Sequence[Task], finished: Mapping[Task, float]) -> SporaxValueError:
    """Name two tasks of a circle: a task at the head of its stage, and the one it waits for."""
    head = heads[0]
    source = next(task for task in schedule.waits_for(head) if task not in finished)
    return SporaxValueError(
        f"For 'PipelineSchedule' '{schedule.name}', the tasks must be in an order that can be executed, but {head} waits for "
        f"{source}, which can never start: the stages wait for each other."
    )
