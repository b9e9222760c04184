"""A step of several pipeline stages, with the same surface as a step of one (`sporax.runtime.planned.step.PlannedStep`)."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from sporax.ir.config.plan_settings import SCHEDULE, PlanSettings
from sporax.ir.graph import OperatorGraph
from sporax.ir.hardware import HardwareProfile
from sporax.ir.plan import Plan
from sporax.lowering.pipeline.pipeline_plan import PlannedPipeline
from sporax.planner import cost_model
from sporax.planner.cost.model import CostModel
from sporax.planner.pipeline.simulate import Outcome, simulate
from sporax.report.pipeline_summary import PipelineSummary
from sporax.report.plan_warnings import plan_warnings
from sporax.report.render.pipeline_timeline import Times
from sporax.report.view.headline import utilization
from sporax.runtime.devices.global_view import devices_here, zero_results
from sporax.runtime.pipeline import processes
from sporax.runtime.pipeline.costs import pipeline_costs, simulated, summarize_pipeline, with_measured
from sporax.runtime.pipeline.hosts import notes_of_hosts
from sporax.runtime.pipeline.runner import CompiledPipeline, compile_pipeline
from sporax.runtime.pipeline.stage_transfer import is_here, without_shards
from sporax.runtime.process.defects import report_internal_errors
from sporax.runtime.ranks import joint_arrays
from sporax.runtime.session import SESSION
from sporax.runtime.storage.variables import InMemory


@dataclass(frozen=True, slots=True)
class PipelinedStep:
    """A planned step of several stages.

    Attributes:
        pipeline: its chunks, plans and schedule.
        arguments: what it takes: variables that it updates, variables that it reads, data.
        num_updated: how many variables it updates.
        settings: what it was planned under.
        remarks: what the head of its summary says.
    """

    pipeline: PlannedPipeline
    arguments: tuple[Any, ...]
    num_updated: int
    settings: PlanSettings
    remarks: tuple[str, ...] = ()

    @property
    def graph(self) -> OperatorGraph:
        """The operators of one micro batch, of all stages."""
        return self.pipeline.micro.step.graph

    @property
    def is_one_program(self) -> bool:
        """Whether a step is one compiled program: each stage has several."""
        return False

    @property
    def plan(self) -> Plan:
        """The plan of the first chunk; each chunk has its own, see `pipeline`."""
        return self.pipeline.chunks[0].plan

    @property
    def search(self) -> None:
        """Searches are per chunk."""
        return

    @property
    def model(self) -> CostModel:
        """The cost model of operators and links of a stage."""
        return cost_model(self.settings, self.plan.mesh, self._profile, True)

    def utilization(self) -> tuple[float, str] | None:
        """Model FLOPs utilization of a step of one second, see `report.view.headline.utilization`."""
        num_devices = self.pipeline.schedule.num_stages * self.plan.mesh.num_devices
        of_micro = utilization(self.graph, num_devices, self.model)
        return None if of_micro is None else (of_micro[0] * self.pipeline.micro.num_micro, of_micro[1])

    def storage(self, position: int) -> NamedSharding | None:
        """Where an argument is kept between steps: in the chunk that updates it, else in the first that reads it."""
        return processes.storage_of(self.pipeline, position)

    def summary(self) -> PipelineSummary:
        """The table per stage, simulated; with other schedules where ``SPORAX_PLAN_SCHEDULE`` requests it."""
        compare = os.environ.get(SCHEDULE, "")
        notes = notes_of_hosts(self.pipeline, self.arguments)
        summary = summarize_pipeline(self.pipeline, self.model, self._profile, compare, self.pipeline.reason, notes)
        return replace(summary, warnings=(*self.remarks, *self.warnings()))

    def warnings(self) -> tuple[str, ...]:
        """What makes its plans worse than they need be."""
        chunks = self.pipeline.chunks
        texts = (plan_warnings(chunk.chunk.step.graph, chunk.plan, self.model) for chunk in chunks)
        return tuple(dict.fromkeys(itertools.chain(*texts)))

    def simulate(self) -> Outcome:
        """One step in simulated time."""
        return simulated(self.pipeline, self.model, self._profile)

    def measure(self, step: Any, *inputs: Any) -> Times:
        """How long each task takes on the devices: start and end in seconds. Runs two steps.

        Args:
            step: the Cell or compiled function that this was planned for, and that has run.
            inputs: Tensors.
        """
        executable = step.program.executable
        executable.measuring = True
        try:
            # Times of the second run count.
            for _ in range(2):  # the first run starts threads and allocates memory
                step(*inputs)
        finally:
            executable.measuring = False
        times: Times = executable.times
        return times

    def replayed(self, times: Times) -> Outcome:
        """One step in simulated time, with the times that tasks took when they were measured (`CompiledPipeline.timed`)."""
        costs = pipeline_costs(self.pipeline, self.model, self._profile)
        return simulate(self.pipeline.schedule, with_measured(costs, times))

    def report(self, path: str | Path) -> None:
        """Write a page for a browser: the table per stage and the timeline."""
        Path(path).write_text(self.summary().to_html(), encoding="utf-8")

    @property
    def _profile(self) -> HardwareProfile:
        return devices_here().profile(self.settings)

    def lower(self) -> PipelinedStep:
        """Itself: programs of stages are lowered when they are compiled."""
        return self

    def compile(self, name: str = "") -> CompiledPipeline:
        """Compile the programs of all stages, which have names of their own."""
        devices_here().check(self.settings.parallel.device_num)
        with report_internal_errors("lowering", name or "a pipeline", self.settings):
            return compile_pipeline(self.pipeline, self.settings.parallel)

    def as_text(self) -> str:
        """The compiled programs of all stages, one after another."""
        return "\n\n".join(executable.as_text() for executable in self.compile().executables.values())

    def stored(self, updated: Sequence[Any], read: Sequence[Any]) -> InMemory:
        """The variables as the step takes and returns them."""
        return InMemory(updated, read)

    def bring(self, updated: Sequence[Any], read: Sequence[Any]) -> None:
        """Bring variables to their stages; lazy ones are made there."""
        for position, variable in enumerate((*updated, *read)):
            # Other programs that read it, such as a prediction, must know.
            if position in self.pipeline.on_host:
                variable.on_host = True
            sharding = self.storage(position)
            # Another process may store the variable.
            if processes.several() and self._keeps_own(variable, position, sharding):
                continue
            if getattr(variable, "unmade", None) is not None:
                variable.make_at(sharding or sharding_of_first(self))
            elif sharding is not None:
                variable.raw = joint_arrays.place(variable.raw, sharding)

    def _keeps_own(self, variable: Any, position: int, storage: NamedSharding | None) -> bool:
        """Whether another process stores a variable: of small state this one keeps a copy, of others no part."""
        if storage is not None and is_here(storage) and not processes.is_broadcast(self.pipeline, position):
            return False
        if storage is not None and not processes.is_broadcast(self.pipeline, position):
            unmade = getattr(variable, "unmade", None)
            variable.raw = without_shards(variable.raw if unmade is None else unmade, storage)
            if unmade is not None:
                variable.forget_initializer()
        elif getattr(variable, "unmade", None) is not None:
            variable.init_data()
        return True

    def unrun(self) -> list[jax.Array] | None:
        """Zeros for the results where steps are only planned; else None."""
        return zero_results(self.pipeline.micro.step) if SESSION.plan_only else None

    def run(
        self, executable: CompiledPipeline, variables: Sequence[jax.Array], data: Sequence[jax.Array]
    ) -> list[jax.Array]:
        """Run one step.

        Args:
            variables: values of the variables, the updated ones first.
            data: the other arguments.
        """
        arguments = [*variables, *data]
        updated, results = executable(arguments)
        constants = self.pipeline.micro.step.literal_outputs
        outputs: list[jax.Array] = []
        for position in range(len(self.graph.outputs)):
            if position < self.num_updated:
                # A variable that no stage updates keeps the array that was passed in.
                outputs.append(updated.get(position, arguments[position]))
            elif position in results:
                outputs.append(results[position])
            else:
                # An output that is neither a variable nor computed is a constant of the trace.
                outputs.append(jnp.asarray(constants[position]))
        return outputs


def peaks_of(pipeline: PlannedPipeline, settings: PlanSettings) -> list[float]:
    """By stage the bytes that one of its devices is predicted to need."""
    return [stage.peak_bytes for stage in PipelinedStep(pipeline, (), 0, settings).simulate().stages]


def sharding_of_first(step: PipelinedStep) -> NamedSharding:
    """For variables that no operator reads: whole on the devices of the first stage."""
    storage = map(step.storage, range(len(step.arguments)))
    first = next(sharding for sharding in storage if sharding is not None)
    return NamedSharding(first.mesh, PartitionSpec())
