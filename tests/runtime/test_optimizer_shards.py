"""Layouts in strategy files, merged as tools merge them: each rank's slice goes where the plan has it."""

import itertools
import json
import math
from types import SimpleNamespace

import pytest

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.placement import Placement, axes_index, num_parts
from sporax.runtime.parameter_layouts import ParameterLayout, _Reader, device_arrangement
from sporax.runtime.strategy_files import layout_to_json
from sporax.train.checkpoint.slices import layout_of

WHOLE = (48, 48)


def kept_by(placement, mesh, rank):
    """The region of a rank by the plan."""
    sizes = [size // num_parts(mesh, axes) for size, axes in zip(WHOLE, placement.dims, strict=True)]
    places = [axes_index(mesh, axes, rank) for axes in placement.dims]
    return tuple(slice(place * size, (place + 1) * size) for place, size in zip(places, sizes, strict=True))


def placements(mesh):
    """Every way to shard two dimensions, and every number of the innermost free axes for the optimizer."""
    axes = range(mesh.num_axes)
    for first in itertools.chain(*(itertools.permutations(axes, count) for count in range(mesh.num_axes + 1))):
        rest = [axis for axis in axes if axis not in first]
        for second in itertools.chain(*(itertools.permutations(rest, count) for count in range(len(rest) + 1))):
            used = Placement((first, second))
            free = tuple(axis for axis in axes if axis not in used.used)
            for start in range(len(free) + 1):
                stored = Placement(((*first, *free[start:]), second))
                if not WHOLE[0] % num_parts(mesh, stored.dims[0]):
                    yield used, stored


def entry_of(used, stored, mesh):
    matrix, tensor_map = device_arrangement(used, mesh)
    reader = _Reader(SimpleNamespace(plan=SimpleNamespace(mesh=mesh)), 0)
    group = reader._group(used, stored)
    shapes = [tuple(placement.local_shape(WHOLE, mesh)) for placement in (used, stored)]
    return json.loads(
        json.dumps(layout_to_json(ParameterLayout(matrix, tensor_map, shapes[0], 0, True, group, WHOLE, shapes[1])))
    )


@pytest.mark.parametrize("shape", [(2, 2), (2, 3), (2, 2, 2), (2, 2, 3), (2, 2, 2, 2)])
def test_slices_merge_to_the_parameter(shape):
    mesh = DeviceMatrix(shape)
    for used, stored in placements(mesh):
        entry = entry_of(used, stored, mesh)
        shared = math.prod(mesh.shape[axis] for axis in stored.used - used.used)
        assert entry["opt_weight_shard_size"] == (shared if shared > 1 else 0)
        layout = layout_of(entry)
        for rank in mesh.ranks:
            assert layout.region(rank, WHOLE) == kept_by(stored, mesh, rank), (used, stored, entry, rank)


def test_axes_in_another_order_are_lists_where_slices_are_shared():
    """MindSpore's tools read plain numbers as if they were in the order of the device matrix."""
    mesh = DeviceMatrix((2, 2, 2))
    used = Placement(((2,), (1,)))
    assert entry_of(used, Placement(((2, 0), (1,))), mesh)["tensor_map"] == [[0], [1]]
    assert entry_of(used, used, mesh)["tensor_map"] == [0, 1]
    assert entry_of(Placement(((1,), (2,))), Placement(((1, 0), (2,))), mesh)["tensor_map"] == [1, 0]
