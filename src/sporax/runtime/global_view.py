"""The global view: one program for all devices, cut by a plan.

Tensors are logical wholes here. A step is traced once with the whole shapes, ingested as an operator graph, planned
(`sporax.planner`), and lowered to one manual program per device (`sporax.lowering.execute`) inside `shard_map`. Arrays
between steps are ordinary `jax.Array`s with a `NamedSharding`; one process may drive many devices, or each process its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.errors import SporaxRuntimeError
from sporax.ir.graph import MARK, OperatorGraph, Role
from sporax.ir.layout import Layout
from sporax.ir.marks import GradientMark
from sporax.ir.parallel_config import ParallelConfig
from sporax.ir.placement import Placement, prime_mesh
from sporax.ir.plan import Plan
from sporax.lowering.execute import rank_program
from sporax.lowering.ingest import Ingested, ingest
from sporax.planner.semi_auto import semi_auto_plan
from sporax.planner.summary import Summary, summarize
from sporax.planner.watch import announce
from sporax.runtime import joint

# XLA would merge collectives that are ready at the same time, against what a fusion setting asked for.
_OPTIONS = {"xla_disable_hlo_passes": "cpu-all-reduce-combiner"}


@dataclass(frozen=True, slots=True)
class Argument:
    """What is known of one argument of a step.

    Attributes:
        role: what it is.
        name: of the Parameter, or ``"input 0"``.
        array: its shape and dtype, and where it lies at present if it is an array already.
        cuttable: whether optimizer parallelism may cut it.
    """

    role: Role
    name: str
    array: Any
    cuttable: bool = True


def num_devices() -> int:
    """How many devices all processes have together."""
    return jax.device_count()


def mesh_of(config: ParallelConfig) -> DeviceMatrix:
    """The devices of a run, with axes of prime sizes.

    Raises:
        SporaxRuntimeError: there are fewer devices, or a number of them that parallel modes do not take.
    """
    wanted, there = config.device_num, num_devices()
    if wanted > there or (wanted != there and jax.process_count() > 1):
        raise SporaxRuntimeError(
            f"For 'set_auto_parallel_context', 'device_num' is {wanted}, but there are {there} devices. Start the script with "
            f"`sporax run --local_devices {wanted}` to simulate them on a CPU, or leave 'device_num' out."
        )
    if wanted not in (1, 2, 4) and wanted % 8:
        raise SporaxRuntimeError(
            f"For 'parallel_mode' {config.parallel_mode}, the number of devices must be 1, 2, 4 or a multiple of 8, but got "
            f"{wanted}."
        )
    return prime_mesh(DeviceMatrix((wanted,)))


@cache
def jax_mesh(mesh: DeviceMatrix) -> Mesh:
    """JAX's form of a mesh. Axes are called ``a0``, ``a1``, …"""
    devices = np.array(jax.devices())[list(mesh.ranks)].reshape(mesh.shape)
    return Mesh(devices, axis_names(mesh), axis_types=(AxisType.Auto,) * mesh.num_axes)


def axis_names(mesh: DeviceMatrix) -> tuple[str, ...]:
    """What the axes are called inside `shard_map`."""
    return tuple(f"a{axis}" for axis in range(mesh.num_axes))


def partition_spec(placement: Placement, mesh: DeviceMatrix) -> PartitionSpec:
    """JAX's form of a placement."""
    names = axis_names(mesh)
    return PartitionSpec(*(tuple(names[axis] for axis in axes) or None for axes in placement.dims))


def sharding_of(placement: Placement, mesh: DeviceMatrix) -> NamedSharding:
    """Where the slices of an array lie."""
    return NamedSharding(jax_mesh(mesh), partition_spec(placement, mesh))


def placement_of(array: Any, mesh: DeviceMatrix) -> Placement | None:
    """Where an array lies, if it lies on the devices of `mesh`."""
    sharding = getattr(array, "sharding", None)
    if not isinstance(sharding, NamedSharding) or sharding.mesh != jax_mesh(mesh):
        return None
    numbers = {name: axis for axis, name in enumerate(axis_names(mesh))}
    dims = [entry if isinstance(entry, tuple) else () if entry is None else (entry,) for entry in sharding.spec]
    dims += [()] * (len(array.shape) - len(dims))
    return Placement(tuple(tuple(numbers[name] for name in dim) for dim in dims))


# --------------------------------------------------------------------------------------------------------------- data


def whole_shape(shape: tuple[int, ...], position: int, config: ParallelConfig) -> tuple[int, ...]:
    """The shape of a data input over all processes, from that of the part one process feeds.

    Args:
        shape: what this process feeds.
        position: number of the input among the data.
        config: the user's settings.
    """
    num_processes = jax.process_count()
    strategy = config.dataset_strategy
    if num_processes == 1 or not shape or strategy == "full_batch":
        return shape
    if strategy == "data_parallel":
        return (shape[0] * num_processes, *shape[1:])
    parts = _strategy_parts(position, config)
    return tuple(size * cut for size, cut in zip(shape, parts, strict=True)) if parts else shape


def place_data(array: Any, sharding: NamedSharding, config: ParallelConfig) -> jax.Array:
    """Bring the part of a data input that this process feeds to its devices."""
    if jax.process_count() == 1 or config.dataset_strategy == "full_batch" or not array.shape:
        return joint.place(array, sharding)
    if not getattr(array, "is_fully_addressable", True):
        return joint.place(array, sharding)
    local: jax.Array = jax.make_array_from_process_local_data(sharding, np.asarray(array))
    return local


def data_placement(shape: tuple[int, ...], position: int, config: ParallelConfig, mesh: DeviceMatrix) -> Placement:
    """Where a data input lies: as `dataset_strategy` says; by default its first dimension is cut over all devices.

    Raises:
        SporaxRuntimeError: a strategy that does not fit the input.
    """
    if not shape or config.dataset_strategy == "full_batch":
        return Placement.replicated(len(shape))
    if config.dataset_strategy == "data_parallel":
        axes = tuple(range(mesh.num_axes))
        while axes and shape[0] % math.prod(mesh.shape[axis] for axis in axes):
            axes = axes[:-1]
        return Placement((axes, *((),) * (len(shape) - 1)))
    strategy = config.dataset_strategy
    if position >= len(strategy):
        raise SporaxRuntimeError(
            f"For 'dataset_strategy', there must be an entry for each input, but input {position} has none in {strategy}."
        )
    entry: Any = strategy[position]
    layout = entry if isinstance(entry, Layout) else Layout.from_split(entry, mesh.num_devices, ranks=mesh.ranks)
    if len(layout.cuts) != len(shape) or any(size % cut for size, cut in zip(shape, layout.split, strict=True)):
        raise SporaxRuntimeError(
            f"For 'dataset_strategy', the entry of input {position} must fit its shape {shape}, but got {entry}."
        )
    return Placement.from_layout(layout, mesh)


def _strategy_parts(position: int, config: ParallelConfig) -> tuple[int, ...]:
    strategy = config.dataset_strategy
    if isinstance(strategy, str) or position >= len(strategy):
        return ()
    entry: Any = strategy[position]
    return entry.split if isinstance(entry, Layout) else tuple(entry)


# ------------------------------------------------------------------------------------------------------------- a step


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A compiled step of the global view.

    Attributes:
        step: the traced program and its graph.
        plan: how it is cut.
        jitted: the program of all devices; takes the arguments one after another, the updated ones first.
        shardings: where each argument must lie.
        config: the settings it was made under.
    """

    step: Ingested
    plan: Plan
    jitted: Any
    shardings: tuple[NamedSharding, ...]
    config: ParallelConfig

    @property
    def graph(self) -> OperatorGraph:
        """The operators of the step."""
        return self.step.graph

    def summary(self) -> Summary:
        """The plan for people: what is cut how, what travels, what every device holds. ``print`` shows it as tables."""
        return summarize(self.graph, self.plan)


def plan_step(
    function: Callable[..., Any], arguments: Sequence[Argument], num_updated: int, config: ParallelConfig
) -> PlannedStep:
    """Trace, plan and lower a step.

    Args:
        function: takes the arguments one after another, gives a list of arrays, the new values of the updated ones first.
        arguments: what they are, with whole shapes.
        num_updated: how many of them are updated in place.
        config: the user's settings.
    """
    mesh = mesh_of(config)
    jaxpr = jax.make_jaxpr(function)(*(each.array for each in arguments))
    step = ingest(
        jaxpr,
        [(each.role, each.name) for each in arguments],
        [(number, number) for number in range(num_updated)],
    )
    plan = make_plan(step.graph, arguments, mesh, config)
    announce(step.graph, plan)
    first = len(step.constants)
    program = rank_program(step, plan, axis_names(mesh))
    program.__name__ = program.__qualname__ = getattr(function, "__name__", "step")
    mapped = jax.shard_map(
        program,
        mesh=jax_mesh(mesh),
        in_specs=tuple(partition_spec(each, mesh) for each in plan.inputs[first:]),
        out_specs=[partition_spec(each, mesh) for each in plan.outputs],
        check_vma=False,
    )
    options = _OPTIONS if jax.default_backend() == "cpu" else {}
    jitted = jax.jit(mapped, donate_argnums=tuple(range(num_updated)), compiler_options=options)
    return PlannedStep(step, plan, jitted, tuple(sharding_of(each, mesh) for each in plan.inputs[first:]), config)


def make_plan(graph: OperatorGraph, arguments: Sequence[Argument], mesh: DeviceMatrix, config: ParallelConfig) -> Plan:
    """The plan for a graph whose last inputs are `arguments`.

    Variables stay where they are in steps that do not compute gradients; otherwise their users decide.
    """
    inputs = graph.inputs[len(graph.inputs) - len(arguments) :]
    placed: dict[int, Placement] = {}
    position = 0
    learns = _learns(graph)
    for each, argument in zip(inputs, arguments, strict=True):
        here = placement_of(argument.array, mesh)
        if argument.role is Role.DATA:
            placed[each.tensor] = here or data_placement(tuple(argument.array.shape), position, config, mesh)
            position += 1
        elif here is not None and not learns:
            placed[each.tensor] = here
    whole = frozenset(argument.name for argument in arguments if not argument.cuttable)
    return semi_auto_plan(graph, mesh, config, placed, whole)


def _learns(graph: OperatorGraph) -> bool:
    """Whether gradients of parameters are computed."""
    return any(
        isinstance(operator.operation.params.get("mark"), GradientMark)
        for operator in graph.operators
        if operator.name == MARK
    )


def run(planned: PlannedStep, executable: Any, arguments: Sequence[jax.Array], num_data: int) -> list[jax.Array]:
    """Run a compiled step; arguments that do not lie where they must are brought there.

    Args:
        planned: the step.
        executable: its compiled program.
        arguments: one after another, the data last.
        num_data: how many of them are data.
    """
    first_data = len(arguments) - num_data
    data = [
        place_data(array, sharding, planned.config)
        for array, sharding in zip(arguments[first_data:], planned.shardings[first_data:], strict=True)
    ]
    variables: Sequence[jax.Array] = arguments[:first_data]
    try:
        return _started(executable(*variables, *data))
    except (TypeError, ValueError):
        # A variable lies elsewhere (at the first step, after loading a checkpoint), and nothing ran; unless it did, and failed.
        if any(array.is_deleted() for array in variables):
            raise
    variables = [joint.place(array, sharding) for array, sharding in zip(variables, planned.shardings, strict=False)]
    return _started(executable(*variables, *data))


def _started(outputs: list[jax.Array]) -> list[jax.Array]:
    """The results of a program that has been started.

    On CPUs two programs that do not depend on each other may run at the same time, and their messages would mix: with
    several processes each waits for its end.
    """
    if jax.process_count() > 1 and jax.default_backend() == "cpu":
        jax.block_until_ready(outputs)
    return list(outputs)
