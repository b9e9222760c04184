"""Collective-permute over several mesh axes counts places as the axes are listed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, PartitionSpec

from sporax.lowering.execute.redistribute import permute

NAMES = ("a0", "a1")


def sent(axes, pairs):
    mesh = Mesh(np.asarray(jax.devices()[:6]).reshape(2, 3), NAMES, axis_types=(AxisType.Explicit,) * 2)
    spec = PartitionSpec(NAMES)
    run = jax.shard_map(lambda x: permute(x, axes, NAMES, pairs), mesh=mesh, in_specs=spec, out_specs=spec)
    with jax.set_mesh(mesh):
        return np.asarray(jax.jit(run)(jax.device_put(jnp.arange(1.0, 7), jax.NamedSharding(mesh, spec))))


@pytest.mark.parametrize(
    ("axes", "pairs", "result"),
    [
        ((1,), [(0, 1), (1, 2)], [0, 1, 2, 0, 4, 5]),
        ((0, 1), [(0, 5)], [0, 0, 0, 0, 0, 1]),
        ((1, 0), [(1, 2)], [0, 4, 0, 0, 0, 0]),  # place 1 is (row 1, column 0), place 2 is (row 0, column 1)
    ],
)
def test_places_count_in_the_order_of_the_axes(axes, pairs, result):
    np.testing.assert_array_equal(sent(axes, pairs), result)
