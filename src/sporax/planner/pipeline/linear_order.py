"""One order of all tasks and sends, which every process of a job follows.

Processes that exchange data one pair at a time cannot wait for each other in a circle if all of them go through the same
list and leave out what does not concern them. The list is in the order in which things would happen on devices of equal
speed: a task stands where it starts, and what it sends where it ends. So a process that waits in an exchange has started all
that it can do meanwhile.
"""

from __future__ import annotations

from typing import NamedTuple

from sporax.ir.pipeline_schedule import PipelineSchedule, Task
from sporax.planner.pipeline.simulate import simulate, uniform_costs


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
