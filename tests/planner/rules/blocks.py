"""The mechanical test of a rule: cut the inputs, run the primitive on the slices, put the results together, compare.

Ranks are simulated one after another in a plain loop; only what talks to neighbours needs real devices
(`tests/lowering/test_local.py`).
"""

from dataclasses import dataclass

import jax
import numpy as np
from jax.extend import core

from sporax.ir.placement import axes_index, num_parts, ravel
from sporax.lowering.execute.local_equations import run
from sporax.lowering.execute.local_task import LocalTask
from sporax.lowering.ingest.describe import describe
from sporax.planner.rules import FactorKind, placements, rule_for

COMPOSED = ("fill_spare_rows", "gather", "iota", "part_", "random_")
"""How names of primitives begin whose ranks run many operators: one program for all ranks takes less than each by itself."""


@dataclass(frozen=True)
class Example:
    """One equation with concrete operands."""

    eqn: core.JaxprEqn
    operands: tuple

    def task(self, assignment, mesh):
        operation = describe(self.eqn)
        return LocalTask(self.eqn.primitive, operation, rule_for(operation), assignment, mesh)

    def whole(self):
        outputs = self.eqn.primitive.bind(*self.operands, **self.eqn.params)
        return list(outputs) if self.eqn.primitive.multiple_results else [outputs]


def example(primitive, function, *args):
    """The first equation of `primitive` in the function's jaxpr, with the operands it meets."""
    closed = jax.make_jaxpr(function)(*args)
    actual = _find(primitive, closed.jaxpr, closed.consts, list(args))
    assert actual is not None, f"{primitive} does not occur in {closed}"
    return actual


def _find(primitive, jaxpr, consts, args):
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))
    for eqn in jaxpr.eqns:
        operands = tuple(var.val if isinstance(var, core.Literal) else values[var] for var in eqn.invars)
        if eqn.primitive.name == primitive:
            return Example(eqn, operands)
        inner = eqn.params.get("jaxpr") or eqn.params.get("call_jaxpr")
        if inner is not None and hasattr(inner, "jaxpr"):
            actual = _find(primitive, inner.jaxpr, inner.consts, operands)
            if actual is not None:
                return actual
        outputs = eqn.primitive.bind(*operands, **eqn.params)
        outputs = outputs if eqn.primitive.multiple_results else [outputs]
        values.update(zip(eqn.outvars, outputs, strict=True))
    return None


class FixedPosition:
    """The place of one simulated rank. It cannot reach the others.

    Args:
        mesh: the devices.
        coordinates: where the rank is along each axis; traced numbers where one program serves all ranks.
    """

    def __init__(self, mesh, coordinates):
        self.mesh, self.coordinates = mesh, coordinates

    def index(self, axes):
        return ravel([self.coordinates[axis] for axis in axes], [self.mesh.shape[axis] for axis in axes])

    def permute(self, x, axes, pairs):
        raise AssertionError("a simulated rank cannot talk to its neighbours")


def needs_neighbours(rule, assignment):
    return any(
        axes and factor.kind in (FactorKind.HALO, FactorKind.PERMUTE)
        for factor, axes in zip(rule.factors, assignment, strict=True)
    )


def is_key(x):
    return jax.dtypes.issubdtype(getattr(x, "dtype", np.float32), jax.dtypes.prng_key)


def to_slices(x, placement, mesh, seed):
    """What each rank holds of `x`; parts are random and combine to x."""
    x = x if is_key(x) else np.asarray(x)
    copies = [x] * num_parts(mesh, placement.partial)
    if placement.partial:
        copies = make_parts(x, placement.reduction, len(copies), seed)
    return [
        jax.device_put(copies[axes_index(mesh, placement.partial, rank)][placement.block(x.shape, mesh, rank)])
        for rank in range(mesh.num_devices)
    ]


def make_parts(x, reduction, count, seed):
    random = np.random.default_rng(seed)
    if reduction == "sum":
        noise = [random.integers(-4, 5, x.shape).astype(x.dtype) for _ in range(count - 1)]
        return [(x - sum(noise)).astype(x.dtype), *noise]
    owner = random.integers(0, count, x.shape)
    if reduction in ("max", "min"):
        sign = -1 if reduction == "max" else 1
        worse = x + np.asarray(sign * random.integers(0, 5, x.shape), x.dtype)
        return [np.where(owner == number, x, worse) for number in range(count)]
    keep = {"and": np.ones_like(x) if x.dtype == bool else ~np.zeros_like(x)}.get(reduction, np.zeros_like(x))
    return [np.where(owner == number, x, keep) for number in range(count)]


COMBINE = {
    "sum": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "prod": np.multiply,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def from_slices(slices, placement, shape, mesh):
    """The whole tensor; ranks that should hold the same must do so."""
    slices = [np.asarray(jax.random.key_data(item) if is_key(item) else item) for item in slices]
    extra = slices[0].shape[len(shape) :]
    whole = np.zeros((*shape, *extra), slices[0].dtype)
    done = {}
    for place in range(num_parts(mesh, placement.partial)):
        layer = np.zeros_like(whole)
        for rank, block in enumerate(slices):
            if axes_index(mesh, placement.partial, rank) != place:
                continue
            where = placement.block(shape, mesh, rank)
            key = (place, str(where))
            assert block.shape[: len(shape)] == placement.local_shape(shape, mesh), f"slice of shape {block.shape}"
            if key in done:
                np.testing.assert_array_equal(block, done[key], err_msg="ranks that repeat a slice disagree")
            done[key] = block
            layer[where] = block
        whole = layer if place == 0 else COMBINE[placement.reduction](whole, layer)
    return whole


def run_in_blocks(sample, assignment, mesh, seed=0):
    """The whole results, computed by simulated ranks."""
    task = sample.task(assignment, mesh)
    where, whence = placements(task.rule, assignment)
    inputs = [to_slices(x, placement, mesh, seed) for x, placement in zip(sample.operands, where, strict=True)]

    def program(coordinates, slices):
        return run(task, FixedPosition(mesh, coordinates), slices)

    if sample.eqn.primitive.name.startswith(COMPOSED):
        program = jax.jit(program)
    outputs = [program(mesh.coordinates(rank), [slices[rank] for slices in inputs]) for rank in range(mesh.num_devices)]
    specs = task.operation.results
    return [
        from_slices([out[number] for out in outputs], whence[number], specs[number].shape, mesh)
        for number in range(len(specs))
    ]


def assert_same(actual, expected, label):
    for number, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
        theirs = np.asarray(jax.random.key_data(theirs) if is_key(theirs) else theirs)
        assert ours.dtype == theirs.dtype, f"{label}: result {number} has dtype {ours.dtype}, not {theirs.dtype}"
        if np.issubdtype(theirs.dtype, np.inexact):
            np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-4, err_msg=f"{label}: result {number}")
        else:
            np.testing.assert_array_equal(ours, theirs, err_msg=f"{label}: result {number}")


def spread(items, count):
    """`count` of the items, evenly spaced, first and last included."""
    items = list(items)
    if len(items) <= count:
        return items
    if count == 1:
        return items[:1]
    return [items[round(number * (len(items) - 1) / (count - 1))] for number in range(count)]
