"""The global view: meshes of devices, where arrays are on them, and how data gets there.

Tensors are logical wholes here. Arrays between steps are ordinary `jax.Array`s with a `NamedSharding`; one process may drive
many devices, or each process its own. Steps themselves are in `sporax.runtime.planned.step`.

Next to them a plan as one program of all devices, and the arguments of a step: role, shape, what the planner may do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache, wraps
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from sporax.ir.config.parallel_config import ParallelConfig
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import LITERAL, Role
from sporax.ir.layout import Layout
from sporax.ir.placement import Placement, axes_index
from sporax.ir.plan import Plan
from sporax.lowering.execute.local_norms import LocalNorms
from sporax.lowering.execute.rank_program import rank_program
from sporax.lowering.ingest.ingest import Ingested
from sporax.lowering.passes.pass_order import with_hosts
from sporax.planner import Devices, on_devices
from sporax.planner.pins.data_placement import arranged, data_layout
from sporax.runtime import world
from sporax.runtime.ranks import joint_arrays
from sporax.runtime.ranks.collective_order import reusing


def devices_here() -> Devices:
    """The devices that all processes have together, as the planner gets them."""
    return Devices(jax.device_count(), jax.default_backend(), jax.process_count())


def zero_results(step: Ingested) -> list[jax.Array]:
    """The results of a step that is not run: zeros, and the constants of its trace."""
    tensors, constants = step.graph.tensors, step.literal_outputs
    return [
        jnp.asarray(constants[position])
        if tensor == LITERAL
        else jnp.zeros(tensors[tensor].shape, tensors[tensor].dtype)
        for position, tensor in enumerate(step.graph.outputs)
    ]


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
    """Where the slices of an array are."""
    return NamedSharding(jax_mesh(mesh), partition_spec(placement, mesh))


def placement_of(array: Any, mesh: DeviceMatrix) -> Placement | None:
    """Where an array is, if it is on the devices of `mesh`."""
    sharding = getattr(array, "sharding", None)
    if not isinstance(sharding, NamedSharding) or sharding.mesh != jax_mesh(mesh):
        return None
    numbers = {name: axis for axis, name in enumerate(axis_names(mesh))}
    dims = [entry if isinstance(entry, tuple) else () if entry is None else (entry,) for entry in sharding.spec]
    # JAX leaves out trailing dimensions that nothing shards.
    dims += [()] * (len(array.shape) - len(dims))
    return Placement(tuple(tuple(numbers[name] for name in dim) for dim in dims))


def is_on_devices(array: Any) -> bool:
    """Whether an array is spread over several devices already, so that no one has to bring it there."""
    sharding = getattr(array, "sharding", None)
    return isinstance(sharding, NamedSharding) and sharding.num_devices > 1


def global_shape(shape: tuple[int, ...], position: int, config: ParallelConfig) -> tuple[int, ...]:
    """The shape of a data input over all processes, from that of the part one process feeds.

    Args:
        shape: what this process feeds.
        position: number of the input among those that are fed.

    Raises:
        SporaxRuntimeError: a strategy that does not fit the input.
    """
    strategy = config.dataset_strategy
    feeders = max(1, world.num_feeders() // config.pipeline_stages)  # of one stage
    if feeders == 1 or not shape or strategy == "full_batch":
        return shape
    if strategy == "data_parallel":
        return (shape[0] * feeders, *shape[1:])
    mesh = devices_here().mesh(config)
    # A Layout may give several devices of this process the same rows, so distinct slices are counted.
    layout = data_layout(shape, position, config, mesh)
    own = [rank for rank in mesh.ranks if world.drives(jax.devices()[rank])]
    fed = [len({axes_index(layout.device_matrix, axes, rank) for rank in own}) for axes in layout.shardings]
    return tuple(size * count // mine for size, count, mine in zip(shape, layout.split, fed, strict=True))


def place_data(array: Any, sharding: NamedSharding, config: ParallelConfig) -> jax.Array:
    """Bring the part of a data input that this process feeds to its devices."""
    if jax.process_count() == 1 or config.dataset_strategy == "full_batch" or not array.shape:
        return joint_arrays.place(array, sharding)
    # An array that spans processes is whole already; only host arrays are a process's own part.
    if not getattr(array, "is_fully_addressable", True):
        return joint_arrays.place(array, sharding)
    local: jax.Array = jax.make_array_from_process_local_data(sharding, np.asarray(array))
    return local


def place_by_layout(array: jax.Array, layout: Layout, config: ParallelConfig) -> jax.Array:
    """Bring a whole array to the devices of a layout, which are all of the run."""
    plain = on_devices(layout)
    # The mesh must have axes that the layout can be expressed in.
    mesh = arranged(devices_here().mesh(config), [plain.device_matrix.shape])
    return joint_arrays.place(array, sharding_of(Placement.from_layout(plain, mesh), mesh))


def fusion_options(plan: Plan) -> dict[str, str]:
    """Options for XLA: it merges all-reduces that are ready at the same time only where nothing was said about fusion."""
    return {} if plan.fusion_is_free or jax.default_backend() != "cpu" else dict(joint_arrays.UNMERGED)


def device_program(
    step: Ingested,
    plan: Plan,
    name: str,
    norms: LocalNorms | None = None,
    away: Collection[int] = (),
    num_updated: int = 0,
) -> Callable[..., Any]:
    """The step by its plan: from its arguments, one after another, to the list of its results.

    Args:
        name: what it is called in the compiled module.
        norms: what is reported of gradients before they are combined, if anything.
        away: the arguments that are in host memory, by position.
        num_updated: how many arguments are updated.
    """
    mesh = plan.mesh
    program = rank_program(step, plan, axis_names(mesh), norms)
    if away or any(equation.on_host for equation in step.equations):
        # What a step updates comes first, in its results as in its arguments.
        program = with_hosts(program, away, {number for number in away if number < num_updated})
    program = reusing(program, name)
    # The name that profiles and XLA's messages show.
    program.__name__ = program.__qualname__ = name
    mapped: Callable[..., Any] = jax.shard_map(
        program,
        mesh=jax_mesh(mesh),
        in_specs=tuple(partition_spec(place, mesh) for place in plan.inputs[len(step.constants) :]),
        out_specs=[partition_spec(place, mesh) for place in plan.outputs],
        # The plan says which values are equal on several devices; JAX's own check cannot know it.
        check_vma=False,
    )

    # This program names the axes of its own mesh.
    return wraps(program)(outside_of_meshes(mapped))


def outside_of_meshes(program: Callable[..., Any]) -> Callable[..., Any]:
    """A program that runs without the mesh that the user may have set around its call."""

    def outside(*args: Any) -> Any:
        with jax.sharding.use_abstract_mesh(AbstractMesh((), ())):
            return program(*args)

    return outside


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a step.

    Attributes:
        role: what it is.
        name: of the Parameter, or ``"input 0"``.
        array: its shape and dtype, and where it is at present if it is an array already.
        shardable: whether optimizer parallelism may shard it.
        from_values: whether it was made of values, not by an initializer.
        trainable: whether it is a Parameter with gradients.
        on_host: whether it is in host memory between steps.
    """

    role: Role
    name: str
    array: Any
    shardable: bool = True
    from_values: bool = False
    trainable: bool = False
    on_host: bool = False
