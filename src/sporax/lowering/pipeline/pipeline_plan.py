"""A step of the global view as a pipeline: its chunks, their plans and programs, and the schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sporax.ir.pipeline_schedule import PipelineSchedule
from sporax.ir.plan import Plan
from sporax.lowering.pipeline.chunk import ChunkGraph
from sporax.lowering.pipeline.flat import MicroStep
from sporax.lowering.pipeline.programs import ChunkPrograms


@dataclass(frozen=True, slots=True)
class PlannedChunk:
    """A chunk with its plan.

    Attributes:
        chunk: its graph.
        plan: the sharding of everything, on the devices of its stage.
        programs: what runs.
    """

    chunk: ChunkGraph
    plan: Plan
    programs: ChunkPrograms


@dataclass(frozen=True, slots=True)
class PlannedPipeline:
    """A whole step.

    Attributes:
        micro: the flat step.
        chunks: in the order of the route.
        schedule: who does what, in which order.
        num_levels: programs of the update per chunk.
        reason: why the stages are as they are, where the planner chose them.
        options: XLA's, for all programs: what the step was rewritten for (recomputation, offload) wants.
        on_host: variables that are in host memory between steps, by position of the argument.
    """

    micro: MicroStep
    chunks: tuple[PlannedChunk, ...]
    schedule: PipelineSchedule
    num_levels: int
    reason: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    on_host: frozenset[int] = frozenset()
