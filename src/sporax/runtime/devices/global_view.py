"""The global view: meshes of devices, where arrays are on them, and how data gets there.

Tensors are logical wholes here. Arrays between steps are ordinary `jax.Array`s with a `NamedSharding`; one process may drive
many devices, or each process its own. Steps themselves are in `sporax.runtime.planned.step`.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from sporax.base.errors import SporaxRuntimeError
from sporax.ir.config.parallel_config import ParallelConfig
from sporax.ir.config.plan_settings import PlanSettings
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.hardware import HardwareProfile, load_profile
from sporax.ir.layout import Layout
from sporax.ir.placement import Placement, axes_index, prime_mesh
from sporax.planner.pins.strategies import layout_placement
from sporax.runtime import world
from sporax.runtime.ranks import joint_arrays


def fitting_hardware(platform: str) -> str:
    """The hardware profile that fits devices of a kind best: ``"cpu"``, ``"gpu"``, ``"tpu"``."""
    # One profile stands for each kind of device; a profile of the user's, or a measured one, is more precise.
    return {"gpu": "h100", "tpu": "tpu-v5e"}.get(platform, "cpu")


def num_devices() -> int:
    """How many devices all processes have together."""
    return jax.device_count()


def mesh_of(config: ParallelConfig) -> DeviceMatrix:
    """The devices of a run, with axes of prime sizes.

    Raises:
        SporaxRuntimeError: there are fewer devices, or a number of them that parallel modes do not take.
    """
    needed, there = config.device_num, num_devices()
    if needed > there or (needed != there and jax.process_count() > 1):
        raise SporaxRuntimeError(
            f"For 'set_auto_parallel_context', 'device_num' is {needed}, but there are {there} devices. Start the script with "
            f"`sporax run --local_devices {needed}` to simulate them on a CPU, or leave 'device_num' out."
        )
    # MindSpore accepts only these numbers of devices in its parallel modes.
    if needed not in (1, 2, 4) and needed % 8:
        raise SporaxRuntimeError(
            f"For 'parallel_mode' {config.parallel_mode}, the number of devices must be 1, 2, 4 or a multiple of 8, but got "
            f"{needed}."
        )
    return prime_mesh(DeviceMatrix((needed,)))


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


# --------------------------------------------------------------------------------------------------------------- data


def is_on_devices(array: Any) -> bool:
    """Whether an array is spread over several devices already, so that no one has to bring it there."""
    sharding = getattr(array, "sharding", None)
    return isinstance(sharding, NamedSharding) and sharding.num_devices > 1


def whole_shape(shape: tuple[int, ...], position: int, config: ParallelConfig) -> tuple[int, ...]:
    """The shape of a data input over all processes, from that of the part one process feeds.

    Args:
        shape: what this process feeds.
        position: number of the input among those that are fed.
        config: the user's settings.

    Raises:
        SporaxRuntimeError: a strategy that does not fit the input.
    """
    strategy = config.dataset_strategy
    feeders = max(1, world.num_feeders() // config.pipeline_stages)  # of one stage
    if feeders == 1 or not shape or strategy == "full_batch":
        return shape
    if strategy == "data_parallel":
        return (shape[0] * feeders, *shape[1:])
    mesh = mesh_of(config)
    # A Layout may give several devices of this process the same rows, so distinct slices are counted.
    layout = _layout(shape, position, config, mesh)
    own = [rank for rank in mesh.ranks if world.drives(jax.devices()[rank])]
    fed = [len({axes_index(layout.device_matrix, axes, rank) for rank in own}) for axes in layout.cuts]
    return tuple(size * cut // mine for size, cut, mine in zip(shape, layout.split, fed, strict=True))


def place_data(array: Any, sharding: NamedSharding, config: ParallelConfig) -> jax.Array:
    """Bring the part of a data input that this process feeds to its devices."""
    if jax.process_count() == 1 or config.dataset_strategy == "full_batch" or not array.shape:
        return joint_arrays.place(array, sharding)
    # An array that spans processes is whole already; only host arrays are a process's own part.
    if not getattr(array, "is_fully_addressable", True):
        return joint_arrays.place(array, sharding)
    local: jax.Array = jax.make_array_from_process_local_data(sharding, np.asarray(array))
    return local


def data_placement(shape: tuple[int, ...], position: int, config: ParallelConfig, mesh: DeviceMatrix) -> Placement:
    """Where a data input is: as `dataset_strategy` says; by default its first dimension is sharded over all devices.

    Raises:
        SporaxRuntimeError: a strategy that does not fit the input.
    """
    if not shape or config.dataset_strategy == "full_batch":
        return Placement.replicated(len(shape))
    if config.dataset_strategy == "data_parallel":
        # Where the batch does not divide by all devices, the last axes hold copies.
        axes = tuple(range(mesh.num_axes))
        while axes and shape[0] % math.prod(mesh.shape[axis] for axis in axes):
            axes = axes[:-1]
        return Placement((axes, *((),) * (len(shape) - 1)))
    layout = _layout(shape, position, config, mesh)
    if any(size % cut for size, cut in zip(shape, layout.split, strict=True)):
        raise SporaxRuntimeError(
            f"For 'dataset_strategy', the entry of input {position} must divide its shape {shape}, but got {layout.split}."
        )
    return layout_placement("dataset_strategy", position, layout, shape, mesh)


def _layout(shape: tuple[int, ...], position: int, config: ParallelConfig, mesh: DeviceMatrix) -> Layout:
    """The entry of an input in a `dataset_strategy` that has one for each."""
    strategy = config.dataset_strategy
    if position >= len(strategy):
        raise SporaxRuntimeError(
            f"For 'dataset_strategy', there must be an entry for each input, but input {position} has none in {strategy}."
        )
    entry: Any = strategy[position]
    layout = entry if isinstance(entry, Layout) else Layout.from_split(entry, mesh.num_devices, ranks=mesh.ranks)
    if len(layout.cuts) != len(shape):
        raise SporaxRuntimeError(
            f"For 'dataset_strategy', the entry of input {position} must have a number for each dimension of its shape {shape}, "
            f"but got {entry}."
        )
    return layout


def profile_of(settings: PlanSettings) -> HardwareProfile:
    """The hardware that the settings name, or that fits the devices at hand.

    Raises:
        SporaxValueError: no such profile.
    """
    return load_profile(settings.profile or fitting_hardware(jax.default_backend()))
