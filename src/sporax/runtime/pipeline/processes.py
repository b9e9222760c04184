"""What changes when several processes drive the stages: who holds which variable, who feeds what, who learns the results.

* A variable is stored on the devices of one chunk: the one that updates it, else the first that reads it. Other processes hold an
  array without any part (`without_shards`).
* Small state (counters, learning rates, states of random generators) and results that are single numbers are broadcast to all
  processes at the end of a step, so every process has them as with one process.
* Every process feeds the rows of its stage: all of them where it drives whole stages, else its part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from sporax.base.errors import For, SporaxRuntimeError
from sporax.ir.config.parallel_config import ParallelConfig
from sporax.ir.graph import Role
from sporax.lowering.marks.host_transfer import on_host_of
from sporax.lowering.pipeline.pipeline_plan import PlannedPipeline
from sporax.runtime import world
from sporax.runtime.devices.global_view import sharding_of
from sporax.runtime.pipeline.stage_transfer import DeviceTransfer, Line, is_here, without_shards
from sporax.runtime.ranks import joint_arrays
from sporax.runtime.session import SESSION

_SMALL = 64
"""Elements of state that is broadcast to all processes."""


def several() -> bool:
    """Whether there are other processes."""
    return int(jax.process_count()) > 1


def storage_of(planned: PlannedPipeline, position: int) -> NamedSharding | None:
    """Where an argument is kept between steps: in the chunk that updates it, else in the first that reads it."""
    home = home_of(planned, position)
    if home is None:
        return None
    chunk = planned.chunks[home]
    tensor = next(tensor for tensor, number in chunk.chunk.arguments.items() if number == position)
    inputs = chunk.chunk.step.graph.inputs
    place = next(place for entry, place in zip(inputs, chunk.plan.inputs, strict=True) if entry.tensor == tensor)
    return stored_sharding(planned, position, sharding_of(place, chunk.plan.mesh))


def home_of(planned: PlannedPipeline, position: int) -> int | None:
    """The chunk that keeps an argument between steps; None where no chunk reads it."""
    chunks = [item.chunk for item in planned.chunks]
    readers = [number for number, chunk in enumerate(chunks) if position in chunk.arguments.values()]
    # The chunk that updates has the new value: everywhere else it would have to be sent back.
    return next((reader for reader in readers if position in chunks[reader].updates), readers[0] if readers else None)


def stored_sharding(planned: PlannedPipeline, position: int, sharding: NamedSharding) -> NamedSharding:
    """Where a copy of an argument is between steps, on the devices of `sharding` or on their hosts."""
    return on_host_of(sharding) if position in planned.on_host else sharding


def is_broadcast(planned: PlannedPipeline, position: int) -> bool:
    """Whether an argument is small state, which every process keeps a copy of."""
    graph = planned.micro.step.graph
    argument = graph.inputs[len(planned.micro.step.constants) + position]
    return argument.role is Role.STATE and math.prod(graph.tensors[argument.tensor].shape) <= _SMALL


def is_data(planned: PlannedPipeline, position: int) -> bool:
    """Whether an argument is fed at every step."""
    return planned.micro.step.graph.inputs[len(planned.micro.step.constants) + position].role is Role.DATA


def placed_rows(rows: Any, shape: tuple[int, ...], sharding: NamedSharding, config: ParallelConfig) -> jax.Array:
    """Bring data to the devices of a stage.

    Args:
        rows: what this process feeds of it.
        shape: of the whole.
        sharding: the one that it gets.
    """
    # The process has fed all rows, and each device takes its own.
    if tuple(rows.shape) == tuple(shape) or config.dataset_strategy == "full_batch":
        return joint_arrays.place(rows, sharding)
    # Each process has read its part of the batch, and no process has all rows.
    fed: jax.Array = jax.make_array_from_process_local_data(sharding, np.asarray(rows), tuple(shape))
    return fed


class ProcessBroadcast:
    """Sends all processes what some of them have made.

    Args:
        makers: for every key the sharding of the array that has it, and its shape and dtype.
    """

    def __init__(self, makers: Mapping[Any, tuple[NamedSharding, Any]], line: Line) -> None:
        self.line = line
        self.transfers: dict[Any, tuple[DeviceTransfer, bool]] = {}
        # Sorted: all processes must exchange in the same order.
        for key, (sharding, spec) in sorted(makers.items()):
            others = _receivers(sharding)
            if others is not None:
                self.transfers[key] = DeviceTransfer(spec, sharding, others, line), is_here(sharding)

    def __call__(self, arrays: Mapping[Any, jax.Array]) -> dict[Any, jax.Array]:
        """What the other processes have made, by key.

        Args:
            arrays: what this process has made.
        """
        values: dict[Any, jax.Array] = {}
        for key, (transfer, here) in self.transfers.items():
            (array,) = transfer(arrays[key] if here else None)
            if array is not None:
                # Every process gets the whole value, so it keeps it as a local array.
                values[key] = array.addressable_data(0)
        # The step ends when all is sent: its results may be read from now on.
        self.line.finish()
        return values


def _receivers(storage: NamedSharding) -> NamedSharding | None:
    """The first device of every process that drives no device of `storage`; None where there is none."""
    owners = {device.process_index for device in storage.mesh.devices.flat}
    # One receiver per process: the value moves once over the network.
    firsts: dict[int, Any] = {}
    for device in jax.devices():
        if device.process_index not in owners:
            firsts.setdefault(device.process_index, device)
    if not firsts:
        return None
    mesh = Mesh(np.array(list(firsts.values())), ("process",), axis_types=(AxisType.Auto,))
    return NamedSharding(mesh, PartitionSpec())


class ManyProcesses:
    """What a step does for the other processes.

    Args:
        updated: positions of the variables that it updates.
        results: shardings of its results, by position, and their shapes and dtypes.
    """

    def __init__(
        self,
        planned: PlannedPipeline,
        config: ParallelConfig,
        line: Line,
        updated: set[int],
        results: Mapping[int, tuple[NamedSharding, Any]],
    ) -> None:
        self.config = config
        self.num_micro = planned.micro.num_micro
        graph = planned.micro.step.graph
        inputs = graph.inputs[len(planned.micro.step.constants) :]
        specs = [graph.tensors[entry.tensor] for entry in inputs]
        self.shapes = [tuple(spec.shape) for spec in specs]
        variables = {
            position: (storage, specs[position])
            for position in updated
            if (storage := storage_of(planned, position)) is not None
        }
        # Small state lives everywhere; large arrays live with the stage that updates them.
        announced, remaining = _divided(variables, lambda position: is_broadcast(planned, position))
        self.elsewhere = {position: without_shards(spec, storage) for position, (storage, spec) in remaining.items()}
        # A loss is needed by every process's callbacks; large results stay where they are unless the user requests them.
        announced_results, remaining = _divided(
            results, lambda position: not results[position][1].shape or config.pipeline_result_broadcast
        )
        self.dummies = {position: spec for position, (_, spec) in remaining.items()}
        self.broadcast = ProcessBroadcast(
            {
                **{("result", position): result for position, result in announced_results.items()},
                **{("variable", position): variable for position, variable in announced.items()},
            },
            line,
        )

    def collected(
        self, updated: dict[int, jax.Array], results: dict[int, jax.Array]
    ) -> tuple[dict[int, jax.Array], dict[int, jax.Array]]:
        """The updated variables and the results as this process has them at the end of a step."""
        own = {("variable", position): array for position, array in updated.items()}
        own.update((("result", position), array) for position, array in results.items())
        values = self.broadcast(own)
        # Values that were broadcast win, since they are local arrays that every process can read.
        updated = {**self.elsewhere, **updated, **_of_kind("variable", values)}
        zeros = {position: jnp.zeros(spec.shape, spec.dtype) for position, spec in self.dummies.items()}
        return updated, {**zeros, **results, **_of_kind("result", values)}


def _divided(
    arrays: Mapping[int, tuple[NamedSharding, Any]], is_announced: Callable[[int], bool]
) -> tuple[dict[int, tuple[NamedSharding, Any]], dict[int, tuple[NamedSharding, Any]]]:
    """Arrays that every process gets, and of the others those that this process has no part of."""
    announced = {position: array for position, array in arrays.items() if is_announced(position)}
    remaining = {position: array for position, array in arrays.items() if position not in announced}
    return announced, {position: array for position, array in remaining.items() if not is_here(array[0])}


def _of_kind(kind: str, values: Mapping[Any, jax.Array]) -> dict[int, jax.Array]:
    return {position: array for (entry_kind, position), array in values.items() if entry_kind == kind}


def together(name: str, step: Callable[[], Any]) -> Any:
    """Run a step in which all processes take part; `name` stands in the report if one never comes.

    Raises:
        SporaxRuntimeError: another rank is lost.
    """
    # Joint programs before this step are ordered by a number that programs of stages do not take.
    SESSION.turn.finish()
    watchdog = SESSION.watchdog
    if watchdog is None:
        return step()
    watchdog.note_start(name, joint_arrays.all_devices())
    try:
        results = step()
    except (RuntimeError, ValueError) as error:
        raise watchdog.explain(name, error) from None
    watchdog.note_end(jnp.zeros(()))  # which is ready: the step has ended
    return results


def check_processes(config: ParallelConfig) -> None:
    """Refuse processes that do not fit the stages.

    Raises:
        SporaxRuntimeError: a process drives a part of two stages, or devices are left over.
    """
    if not several():
        return
    if world.world() is None:
        raise SporaxRuntimeError(
            f"For 'set_auto_parallel_context', pipeline_stages={config.pipeline_stages} over {jax.process_count()} processes "
            "needs the ranks joined: call init() first."
        )
    own, stage = jax.local_device_count(), config.num_stage_devices
    # A process must know all programs of its devices in order: it drives whole stages, or a part of one.
    if config.device_num != jax.device_count() or (own % stage and stage % own):
        raise For("set_auto_parallel_context").state_error(
            f"the devices of a process must be whole stages or a part of one, but 'device_num' is {config.device_num} "
            f"with {config.pipeline_stages} stages, and {jax.process_count()} processes have {own} devices each"
        )
