"""A mesh of eight simulated devices, and running functions on it."""

import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

# Samples of primitives, and small pipelines.
sys.path[:0] = [str(Path(__file__).parents[1] / "planner" / "rules"), str(Path(__file__).parent / "pipeline")]

NAMES = ("a", "b", "c")
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


class Devices:
    """Eight devices as a mesh of a given shape, with axes called a, b, c."""

    def __init__(self, shape):
        devices = np.array(jax.devices()[:8]).reshape(shape)
        self.names = NAMES[: len(shape)]
        self.mesh = Mesh(devices, self.names, axis_types=(AxisType.Auto,) * len(shape))

    def spec(self, placement):
        return PartitionSpec(*(tuple(self.names[axis] for axis in axes) or None for axes in placement.dims))

    def put(self, x, placement):
        return jax.device_put(x, NamedSharding(self.mesh, self.spec(placement)))

    def compile(self, function, inputs, outputs, *args):
        """A function of local slices, as a compiled function of whole arrays."""
        mapped = jax.shard_map(
            function,
            mesh=self.mesh,
            in_specs=tuple(self.spec(item) for item in inputs),
            out_specs=tuple(self.spec(item) for item in outputs),
            check_vma=False,
        )
        return jax.jit(mapped).lower(*args).compile(QUICK)


@pytest.fixture(scope="session")
def devices():
    """Make `Devices` of a shape."""
    if jax.device_count() < 8:
        pytest.fail("tests/conftest.py should have made eight simulated devices before JAX started")
    return Devices


def assert_everywhere(array, expected):
    """Every device holds exactly its slice of `wanted`."""
    for shard in array.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), np.asarray(expected)[shard.index])


@pytest.fixture(scope="session")
def everywhere():
    return assert_everywhere
