"""Several tensors in one buffer arrive as each by itself, with one collective per move."""

import re

import jax.numpy as jnp
import numpy as np
import pytest

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.placement import Placement
from sporax.lowering.execute.redistribute import apply_redistributions
from sporax.planner.communication.moves import DEFAULT_COSTS, default_costs
from sporax.planner.communication.resharding import redistribute

MESH = DeviceMatrix((2, 4))
P = Placement
ARRAYS = [
    np.arange(64, dtype=np.float32).reshape(8, 8),
    np.arange(32, dtype=np.float32).reshape(8, 4) + 0.5,
    np.arange(64, dtype=np.float32).reshape(16, 4) - 9,
]


def fused(devices, source, target, costs=DEFAULT_COSTS):
    """The tensors after a fused redistribution, and the compiled program."""
    on = devices(MESH.shape)
    redistributions = [redistribute(array.shape, 4, source, target, MESH, costs=costs) for array in ARRAYS]

    def program(*slices):
        if source.partial:  # each rank has an equal share
            slices = [x / 8 for x in slices]
        return tuple(apply_redistributions(slices, redistributions, on.names))

    entering = P(source.dims)
    placed = [on.put(array, entering) for array in ARRAYS]
    compiled = on.compile(program, [entering] * 3, [target] * 3, *placed)
    return compiled(*placed), compiled.as_text()


@pytest.mark.parametrize(
    ("source", "target", "collective"),
    [
        (P(((), ()), (0, 1), "sum"), P(((), ())), "all-reduce"),
        (P(((0, 1), ())), P(((), ())), "all-gather"),
        (P(((), (1,))), P(((), ())), "all-gather"),  # along another dimension than the first
        (P(((), ()), (0, 1), "sum"), P(((0, 1), ())), "reduce-scatter"),
        (P(((), ()), (0, 1), "sum"), P(((0,), (1,))), "reduce-scatter"),
    ],
)
def test_tensors_that_travel_together_arrive_as_each_alone(devices, everywhere, source, target, collective):
    moved, text = fused(devices, source, target)
    for array, expected in zip(moved, ARRAYS, strict=True):
        everywhere(array, expected)
    count = len(re.findall(rf" {collective}(?:-start)?\(", text))
    alone = redistribute(ARRAYS[0].shape, 4, source, target, MESH)
    assert 0 < count == sum(bool(move.collective) for move in alone.moves)


def test_buffers_of_sums_are_traded_where_there_is_no_reduce_scatter(devices, everywhere):
    target = P(((0,), (1,)))
    moved, text = fused(devices, P(((), ()), (0, 1), "sum"), target, default_costs(False))
    for array, expected in zip(moved, ARRAYS, strict=True):
        everywhere(array, expected)
    assert "reduce-scatter" not in text
    assert len(re.findall(r" all-to-all(?:-start)?\(", text)) == 2  # one buffer a move, as above


def test_moves_without_communication_are_applied_to_each(devices, everywhere):
    moved, text = fused(devices, P(((), ())), P(((0,), (1,))))
    for array, expected in zip(moved, ARRAYS, strict=True):
        everywhere(array, expected)
    assert not re.findall(r" (all-|reduce-scatter|collective-)", text)
    assert jnp.asarray(moved[0]).dtype == jnp.float32
