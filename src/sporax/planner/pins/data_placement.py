"""Where the data of a step arrives: as `dataset_strategy` says.

In which order the prime axes of a mesh are, where its number of devices has several primes.

Problem: a strategy takes runs of axes from the left, as MindSpore counts ranks. 24 devices as (2, 2, 2, 3) have a run of 8
at the left and none of 3, as (3, 2, 2, 2) the other way round.

Method: each strategy means one device matrix, such as (3, 8). The mesh is the coarsest grid that refines those of all
strategies, written in primes. Two strategies that no grid refines, (3, 8) and (8, 3), cannot meet in one step: the first one
decides, and the second is refused where it is placed, with its operator's name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from sporax.base.errors import For, SporaxRuntimeError
from sporax.ir.config.parallel_config import ParallelConfig
from sporax.ir.device_matrix import DeviceMatrix, common_shape
from sporax.ir.graph import OperatorGraph
from sporax.ir.layout import Layout
from sporax.ir.marks import LayoutMark, OperatorMark, Side
from sporax.ir.placement import Placement, prime_mesh
from sporax.planner.pins.strategies import device_matrix_of, layout_placement


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
    For("dataset_strategy").refuse_state(
        position >= len(strategy), f"there must be an entry for each input, but input {position} has none in {strategy}"
    )
    entry: Any = strategy[position]
    layout = entry if isinstance(entry, Layout) else Layout.from_split(entry, mesh.num_devices, ranks=mesh.ranks)
    if len(layout.shardings) != len(shape):
        raise For("dataset_strategy").state_error(
            f"the entry of input {position} must have a number for each dimension of its shape {shape}, but got {entry}"
        )
    return layout


def arranged(mesh: DeviceMatrix, matrices: Iterable[tuple[int, ...]]) -> DeviceMatrix:
    """The ranks of `mesh` on axes of prime sizes, in an order that has runs for as many of the device matrices as possible.

    Example:
        >>> arranged(DeviceMatrix((24,)), [(3, 8)]).shape
        (3, 2, 2, 2)
    """
    shape: tuple[int, ...] = (mesh.num_devices,)
    for matrix in matrices:
        # Each strategy refines the grid so far, or leaves it as it is where the two cannot meet.
        shape = common_shape(shape, matrix) or shape
    return prime_mesh(DeviceMatrix(shape, (), mesh.ranks))


def arranged_for(graph: OperatorGraph, mesh: DeviceMatrix, dataset_strategy: Any) -> DeviceMatrix:
    """The mesh for a step whose operators have strategies and whose data is as `dataset_strategy` says."""
    # All axes have the same size, so no order has runs that another lacks.
    if len(set(mesh.shape)) < 2:
        return mesh  # one prime: one order
    return arranged(mesh, [*_of_operators(graph, mesh.num_devices), *_of_data(dataset_strategy, mesh.num_devices)])


def _of_operators(graph: OperatorGraph, num_devices: int) -> Iterator[tuple[int, ...]]:
    for operator in graph.walk():
        mark = operator.mark
        if isinstance(mark, OperatorMark) and mark.side is Side.IN and mark.in_strategy is not None:
            try:
                yield device_matrix_of(mark, operator.operation.operands, num_devices)
            except SporaxRuntimeError:
                continue  # said where the operator is placed, unless a search is free to leave the strategy out
        elif isinstance(mark, LayoutMark):
            yield from (layout.device_matrix.device_shape for layout in mark.layouts if isinstance(layout, Layout))


def _of_data(strategy: Any, num_devices: int) -> Iterator[tuple[int, ...]]:
    # "data_parallel" and "full_batch" take axes from the left in any order.
    if isinstance(strategy, str):
        return
    for entry in strategy:
        layout = entry if isinstance(entry, Layout) else Layout.from_split(entry, num_devices)
        yield layout.device_matrix.device_shape
