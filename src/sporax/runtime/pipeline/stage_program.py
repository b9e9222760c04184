"""One program of a chunk as a compiled function of whole arrays.

It is one rank's program inside `shard_map`, around which sums are added up where they are, and what is in host memory is fetched
and returned (`sporax.lowering.passes.pass_order.with_hosts`).

How much memory the stages of a running pipeline need: the arrays that are there, and what XLA needs inside a task.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from sporax.ir.pipeline_schedule import Task
from sporax.ir.placement import Placement
from sporax.lowering.compiler_options import merged_options
from sporax.lowering.execute.rank_program import rank_program
from sporax.lowering.marks.host_transfer import has_host_memory, is_on_host, on_host_of, place_of_work
from sporax.lowering.passes.pass_order import with_hosts
from sporax.lowering.pipeline.pipeline_plan import PlannedPipeline
from sporax.lowering.pipeline.programs import ChunkProgram, Slot
from sporax.runtime.devices.global_view import axis_names, fusion_options, jax_mesh, partition_spec, sharding_of
from sporax.runtime.process import step_verification
from sporax.runtime.process.step_verification import Steps
from sporax.runtime.ranks.collective_order import reusing


def compile_program(program: ChunkProgram, options: Mapping[str, Any], steps: Steps) -> Any:
    """The compiled form of a program, part of the `steps`; sums, carries and updated variables are donated."""
    jitted, shapes = jitted_program(program, options)
    return step_verification.compiled(jitted, program.name, shapes, steps)


def jitted_program(program: ChunkProgram, options: Mapping[str, Any]) -> tuple[Any, list[jax.ShapeDtypeStruct]]:
    """A program as a jitted function of whole arrays, compiled with these options of XLA, and what it takes."""
    mesh, tensors = program.plan.mesh, program.step.graph.tensors
    # A backend without a host memory space has the same sharding for both; nothing moves there.
    on_host = program.on_host if has_host_memory() else frozenset()

    def sharding_at(slot: Slot, place: Placement) -> NamedSharding:
        sharding = sharding_of(place.complete(), mesh)
        return on_host_of(sharding) if slot in on_host else sharding

    run = _of_one_device(program, on_host)
    # The name that profiles and XLA's messages show.
    run.__name__ = run.__qualname__ = program.name
    mapped = jax.shard_map(
        reusing(run, program.name),
        mesh=jax_mesh(mesh),
        in_specs=tuple(partition_spec(place.complete(), mesh) for _, place in program.inputs),
        out_specs=[partition_spec(place.complete(), mesh) for _, place in program.outputs],
        # The plan says which values are equal on several devices; JAX's own check cannot know it.
        check_vma=False,
    )
    donated = tuple(number for number, (slot, _) in enumerate(program.inputs) if slot in program.donated)
    jitted = jax.jit(
        mapped,
        donate_argnums=donated,
        # Said again, so that arrays have these very shardings: what comes back in a form of XLA's is brought here once more.
        out_shardings=list(itertools.starmap(sharding_at, program.outputs)),
        compiler_options=merged_options(fusion_options(program.plan), options),
    )
    # Constants are part of the program and no arguments.
    first = len(program.step.constants)
    numbers = [slot.number for slot, _ in program.inputs[: program.num_sums]]
    numbers += [entry.tensor for entry in program.step.graph.inputs[first:]]
    shapes = [
        jax.ShapeDtypeStruct(tensors[number].shape, tensors[number].dtype, sharding=sharding_at(slot, place))
        for number, (slot, place) in zip(numbers, program.inputs, strict=True)
    ]
    return jitted, shapes


def _of_one_device(program: ChunkProgram, on_host: frozenset[Slot]) -> Callable[..., list[jax.Array]]:
    """A program as one device runs it, with its sums; the values of these slots are in host memory before it and after it."""
    mesh, tensors, num_sums = program.plan.mesh, program.step.graph.tensors, program.num_sums
    inner = rank_program(program.step, program.plan, axis_names(mesh))
    sums_on_host = [slot in on_host for slot, _ in program.inputs[: program.num_sums]]
    zeros = [
        (place.local_shape(tensors[slot.number].shape, mesh), tensors[slot.number].dtype, slot in on_host)
        for slot, place in program.outputs[len(program.outputs) - program.zeros :]
    ]

    def run(*arguments: jax.Array) -> list[jax.Array]:
        results = inner(*arguments[num_sums:])
        # Added inside of the program that makes the addend: with donation XLA adds in place.
        sums = map(_added, arguments[:num_sums], results[:num_sums], sums_on_host)
        return [*sums, *results[num_sums:], *itertools.starmap(_zeros, zeros)]

    if not on_host and not any(equation.on_host for equation in program.step.equations):
        return run
    away, returned = (
        {number for number, (slot, _) in enumerate(entries) if slot in on_host}
        for entries in (program.inputs, program.outputs)
    )
    return with_hosts(run, away, returned)


def _added(total: jax.Array, addend: jax.Array, on_host: bool) -> jax.Array:
    with place_of_work(on_host):
        return total + addend


def _zeros(shape: tuple[int, ...], dtype: Any, on_host: bool) -> jax.Array:
    with place_of_work(on_host):
        return jnp.zeros(shape, dtype)


class MemoryWatch:
    """Notes before every task how much memory its stage will need.

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
