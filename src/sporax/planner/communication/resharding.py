"""Redistribution of a tensor: the sequence of moves of least cost from one placement to another.

Method: build the *factored shape*, in which every dimension is split where source or target shards it, so that an axis
can move alone even when it is not the innermost one of its dimension (`sporax.planner.communication.factored_shape`).
Dijkstra's algorithm finds the shortest path over the placements of that shape
(`sporax.planner.communication.shortest_path`) with the costs of `LinkCosts`. Gathering everything and slicing again is
always possible, so a path always exists.
"""

from __future__ import annotations

from functools import lru_cache

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.placement import Placement
from sporax.planner.communication.moves import DEFAULT_COSTS, LinkCosts, Redistribution, Shape
from sporax.planner.communication.shortest_path import find_moves


# Searches need the same few thousand redistributions again and again, and each one takes a search of its own.
@lru_cache(maxsize=65536)
def redistribute(
    shape: Shape,
    itemsize: int,
    source: Placement,
    target: Placement,
    mesh: DeviceMatrix,
    alltoall: bool = True,
    costs: LinkCosts = DEFAULT_COSTS,
) -> Redistribution:
    """The moves of least cost that bring a tensor from one placement to another. Remembered per set of arguments.

    Args:
        shape: shape of the whole tensor.
        itemsize: bytes per element.
        source, target: where it is and where it should be.
        mesh: the mesh of both placements.
        alltoall: whether all-to-all and permute may be used; without them axes that move are gathered and sliced again
            (MindSpore's `enable_alltoall=False`).
        costs: of communication.

    Raises:
        SporaxValueError: a dimension of the tensor cannot be sharded as one of the placements says.

    Example:
        >>> mesh = DeviceMatrix((2, 4))
        >>> print(redistribute((8, 8), 4, Placement(((1,), ())), Placement(((), (1,))), mesh))
        [1, -] → [-, 1]: all_to_all(1, 0→1)
    """
    before, after = source.local_shape(shape, mesh), target.local_shape(shape, mesh)
    # Nothing has to be sent of a tensor without elements either.
    if source == target or 0 in shape:
        return Redistribution(source, target, after, before, (), 0.0)
    return find_moves(shape, itemsize, source, target, mesh, alltoall, costs)
