"""A mesh of eight simulated devices, and running functions on it."""

import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.extend.core import Literal
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


def text_lines(program):
    """A program as text, an equation in each line, without types and parameters: values are called in their order."""
    names = {}

    def text(atoms):
        return " ".join(
            str(atom.val) if isinstance(atom, Literal) else names.setdefault(atom, _name(len(names))) for atom in atoms
        )

    lines = [f"in {text(program.jaxpr.invars)}"]
    # Constants are called like arguments.
    text(program.jaxpr.constvars)
    for eqn in program.jaxpr.eqns:
        operands = text(eqn.invars)
        lines.append(f"{text(eqn.outvars)} = {eqn.primitive.name} {operands}".rstrip())
    return [*lines, f"out {text(program.jaxpr.outvars)}"]


def _name(number):
    return chr(ord("a") + number % 26) + (str(number // 26) if number >= 26 else "")


@pytest.fixture(scope="session")
def lines():
    return text_lines
