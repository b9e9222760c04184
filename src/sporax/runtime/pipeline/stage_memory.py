"""How much memory the stages of a running pipeline need: the arrays that are there, and what XLA needs inside a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from sporax.ir.pipeline_schedule import Task
from sporax.lowering.marks.host_transfer import is_on_host
from sporax.lowering.pipeline.pipeline_plan import PlannedPipeline
from sporax.runtime.devices.global_view import jax_mesh


class MemoryWatch:
    """Notes before every task how much memory its stage will need.

    Args:
        planned: the step.

    Attributes:
        peaks: by stage the most bytes on the first of its devices that this process drives.
    """

    # In stages of several devices all hold equal slices, so one of them stands for all.
    def __init__(self, planned: PlannedPipeline) -> None:
        self.peaks: dict[int, int] = {}
        self.devices: dict[int, Any] = {}
        for (stage, _), chunk in zip(planned.schedule.route, planned.chunks, strict=True):
            own = [
                device
                for device in jax_mesh(chunk.plan.mesh).devices.flat
                if device.process_index == jax.process_index()
            ]
            if own:
                self.devices[stage] = own[0]

    def note(self, instruction: Any, values: Sequence[Any]) -> None:
        """Look at what is there before an instruction.

        Args:
            instruction: it counts when it is a task, whose results and temporary buffers come on top.
            values: all values of the pipeline.
        """
        task = instruction.label
        if not isinstance(task, Task):
            return
        needs = instruction.run.memory_analysis()
        # What reuses the buffer of an argument is counted there already.
        more = needs.temp_size_in_bytes + needs.output_size_in_bytes - needs.alias_size_in_bytes
        held = bytes_on(self.devices[task.stage], values)
        self.peaks[task.stage] = max(self.peaks.get(task.stage, 0), held + more)


def bytes_on(device: Any, values: Sequence[Any]) -> int:
    """Bytes of arrays on a device, not of those on its host; an array that stands for two values counts once."""
    there = (array for array in values if array is not None and not array.is_deleted())
    arrays = {id(array): array for array in there if not is_on_host(array)}
    return sum(
        shard.data.nbytes for array in arrays.values() for shard in array.addressable_shards if shard.device == device
    )
