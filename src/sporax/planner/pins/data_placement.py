"""Where the data of a step arrives: as `dataset_strategy` says."""

from __future__ import annotations

import math
from typing import Any

from sporax.base.errors import SporaxRuntimeError
from sporax.ir.config.parallel_config import ParallelConfig
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.layout import Layout
from sporax.ir.placement import Placement
from sporax.planner.pins.strategies import layout_placement


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
    layout = data_layout(shape, position, config, mesh)
    if any(size % parts for size, parts in zip(shape, layout.split, strict=True)):
        raise SporaxRuntimeError(
            f"For 'dataset_strategy', the entry of input {position} must divide its shape {shape}, but got {layout.split}."
        )
    return layout_placement("dataset_strategy", position, layout, shape, mesh)


def data_layout(shape: tuple[int, ...], position: int, config: ParallelConfig, mesh: DeviceMatrix) -> Layout:
    """The entry of an input in a `dataset_strategy` that has one for each.

    Raises:
        SporaxRuntimeError: it has none for this input, or one of another number of dimensions.
    """
    strategy = config.dataset_strategy
    if position >= len(strategy):
        raise SporaxRuntimeError(
            f"For 'dataset_strategy', there must be an entry for each input, but input {position} has none in {strategy}."
        )
    entry: Any = strategy[position]
    layout = entry if isinstance(entry, Layout) else Layout.from_split(entry, mesh.num_devices, ranks=mesh.ranks)
    if len(layout.shardings) != len(shape):
        raise SporaxRuntimeError(
            f"For 'dataset_strategy', the entry of input {position} must have a number for each dimension of its shape {shape}, "
            f"but got {entry}."
        )
    return layout
