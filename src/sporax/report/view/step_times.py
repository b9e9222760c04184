"""Where the time of recorded steps went: totals per Cell path and kind of work, from the operators that devices ran.

Problem: a recording has thousands of operators with the names of a compiler. A user wants the part of the network that takes the
time, how much of it is communication, and how long devices wait. Method: each operator that ran is an `OperatorRun` with the path
of the Cell that it was compiled from. Their times are added by path and kind, over all devices and steps. What a device does at
one moment is counted once (`busy_seconds`): the rest of the step it waits. An operator that only contains others (a loop) has no
time of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

COMPUTE, COLLECTIVE, COPY = "compute", "collective", "copy"
"""Kinds of work: arithmetic, communication between devices, copies between devices and hosts."""
KINDS = (COMPUTE, COLLECTIVE, COPY)
ELSEWHERE = "(outside of Cells)"
"""Path of operators that belong to no Cell, such as the arithmetic of an optimizer."""


class OperatorRun(NamedTuple):
    """An operator that a device ran once.

    Attributes:
        device: its number in this process.
        line: number of the line in the recording: what is on one line does not overlap, or contains the other.
        start, end: seconds since the recording began.
        path: of the Cell and operator, ``"network.fc1.MatMul"``; "" where it belongs to none.
        kind: one of `KINDS`.
        name: what it is: ``"dot_general"``, or of a collective what it does and for what.
        program: the compiled program that it is part of.
        task: the task of a pipeline, ``"F3 of stage 1"``; "" elsewhere.
        execution: number of the run of the program.
    """

    device: int
    line: int
    start: float
    end: float
    path: str
    kind: str
    name: str
    program: str
    task: str = ""
    execution: int = 0


class PathTime(msgspec.Struct, frozen=True):
    """Time of one kind at one path.

    Attributes:
        path, kind: as of `OperatorRun`.
        seconds: over all devices and steps.
        count: how many operators ran.
    """

    path: str
    kind: str
    seconds: float
    count: int


class TaskTime(msgspec.Struct, frozen=True):
    """Time of the tasks of one kind of a pipeline's stage.

    Attributes:
        name: ``"forward of stage 0"``.
        seconds: from the beginning of a task to its end, over all tasks; of several devices the mean.
        count: how many tasks ran.
    """

    name: str
    seconds: float
    count: int


class StepTimes(msgspec.Struct, frozen=True):
    """The recorded steps of one process.

    Attributes:
        rank, ranks: whose, and how many there are.
        first: number of the first recorded step, from 0.
        num_steps: how many were recorded; 0 where they are not counted.
        seconds: they took.
        num_devices: of this process.
        busy_seconds: in which a device ran at least one operator of a kind, over all devices; compute and collectives at the same
            moment count for compute.
        paths: times, the longest first.
        tasks: of a pipeline.
    """

    rank: int
    ranks: int
    first: int
    num_steps: int
    seconds: float
    num_devices: int
    busy_seconds: dict[str, float]
    paths: tuple[PathTime, ...]
    tasks: tuple[TaskTime, ...] = ()

    @property
    def device_seconds(self) -> float:
        """Time of all devices."""
        return self.seconds * max(self.num_devices, 1)

    @property
    def waiting_seconds(self) -> float:
        """In which devices ran nothing."""
        return max(self.device_seconds - sum(self.busy_seconds.values()), 0.0)


def step_times(
    runs: Sequence[OperatorRun], first: int, num_steps: int, seconds: float, rank: int = 0, ranks: int = 1
) -> StepTimes:
    """Add up the operators of some steps.

    Args:
        runs: what devices ran.
        first: number of the first step.
        num_steps: how many.
        seconds: they took.
        rank, ranks: whose they are.
    """
    totals: dict[tuple[str, str], list[float]] = defaultdict(list)
    for run in runs:
        totals[run.path or ELSEWHERE, run.kind].append(run.end - run.start)
    paths = [PathTime(path, kind, sum(times), len(times)) for (path, kind), times in totals.items()]
    paths.sort(key=lambda entry: (-entry.seconds, entry.path, entry.kind))
    devices = {run.device for run in runs}
    busy = dict.fromkeys(KINDS, 0.0)
    for device in devices:
        covered: list[tuple[float, float]] = []
        before = 0.0
        # A moment belongs to the first kind that has it: communication that hides behind computing costs nothing.
        for kind in KINDS:
            covered = _union([*covered, *((r.start, r.end) for r in runs if r.device == device and r.kind == kind)])
            length = sum(end - start for start, end in covered)
            busy[kind] += length - before
            before = length
    return StepTimes(rank, ranks, first, num_steps, seconds, len(devices), busy, tuple(paths), _tasks(runs))


def by_depth(times: Iterable[PathTime], depth: int) -> tuple[PathTime, ...]:
    """The times with paths of at most so many parts, the longest first; a depth of 0 leaves paths as they are."""
    totals: dict[tuple[str, str], tuple[float, int]] = {}
    for entry in times:
        path = ".".join(entry.path.split(".")[:depth]) if depth and entry.path != ELSEWHERE else entry.path
        seconds, count = totals.get((path, entry.kind), (0.0, 0))
        totals[path, entry.kind] = (seconds + entry.seconds, count + entry.count)
    merged = [PathTime(path, kind, seconds, count) for (path, kind), (seconds, count) in totals.items()]
    return tuple(sorted(merged, key=lambda entry: (-entry.seconds, entry.path, entry.kind)))


def by_path(times: Iterable[PathTime]) -> dict[str, Mapping[str, float]]:
    """Seconds by kind for each path, the longest path first."""
    totals: dict[str, dict[str, float]] = {}
    for entry in times:
        kinds = totals.setdefault(entry.path, dict.fromkeys(KINDS, 0.0))
        kinds[entry.kind] += entry.seconds
    return dict(sorted(totals.items(), key=lambda item: (-sum(item[1].values()), item[0])))


def task_spans(runs: Iterable[OperatorRun]) -> dict[tuple[str, int, int], tuple[float, float]]:
    """Start and end of each task of a pipeline, by task, device and number of the run of its program."""
    spans: dict[tuple[str, int, int], tuple[float, float]] = {}
    for run in runs:
        if run.task:
            key = (run.task, run.device, run.execution)
            start, end = spans.get(key, (run.start, run.end))
            spans[key] = (min(start, run.start), max(end, run.end))
    return spans


def _tasks(runs: Sequence[OperatorRun]) -> tuple[TaskTime, ...]:
    times: dict[str, list[float]] = defaultdict(list)
    devices: dict[str, set[int]] = defaultdict(set)
    for (task, device, _), (start, end) in task_spans(runs).items():
        name = task_kind(task)
        times[name].append(end - start)
        devices[name].add(device)
    # All devices of a stage run the same task at the same time.
    return tuple(
        TaskTime(name, sum(spans) / len(devices[name]), len(spans) // len(devices[name]))
        for name, spans in sorted(times.items())
    )


_TASKS = {
    "F": "forward",
    "B": "backward",
    "I": "backward of inputs",
    "W": "backward of weights",
    "R": "reduce",
    "U": "update",
    "P": "prepare",
}


def task_kind(task: str) -> str:
    """``"F3 of stage 1"`` -> ``"stage 1: forward"``."""
    letter, _, stage = task.partition(" of ")
    return f"{stage}: {_TASKS.get(letter[:1], letter)}"


def _union(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Intervals without overlaps that cover the same moments."""
    merged: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
