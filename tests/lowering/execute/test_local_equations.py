"""Primitives on slices under a real `shard_map`: borders, reversal, positions that are traced."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blocks import FixedPosition, assert_same, example, from_slices, needs_neighbours, spread, to_slices
from jax import lax
from samples import SAMPLES, floats

from sporax.ir.device_matrix import DeviceMatrix
from sporax.lowering.execute.local_equations import run
from sporax.lowering.execute.local_task import DevicePosition
from sporax.lowering.ingest.describe import describe
from sporax.planner.rules import assignments, exchanged_bytes, placements, problem, rule_for

MESH = DeviceMatrix((2, 4))


def conv(**options):
    settings = {"window_strides": (1,), "padding": "SAME", **options}
    return lambda x, w: lax.conv_general_dilated(x, w, **settings)


def pool(function, initial, window, stride, padding="SAME"):
    return lambda x: lax.reduce_window(x, np.float32(initial), function, (1, window), (1, stride), padding)


def pool_gradient(window):
    def loss(x):
        return (pool(lax.max, -np.inf, window, window, "VALID")(x) ** 2).sum()

    return jax.grad(loss)


NEIGHBOURS = {
    "same": ("conv_general_dilated", conv(), floats(2, 2, 16), floats(4, 2, 3)),
    "wide": ("conv_general_dilated", conv(), floats(2, 2, 16), floats(4, 2, 6)),
    "dilated window": ("conv_general_dilated", conv(rhs_dilation=(2,)), floats(2, 2, 16), floats(4, 2, 3)),
    "strided": ("conv_general_dilated", conv(window_strides=(2,)), floats(2, 2, 16), floats(4, 2, 3)),
    "strided, small window": ("conv_general_dilated", conv(window_strides=(2,)), floats(2, 2, 16), floats(4, 2, 1)),
    "dilated base": (
        "conv_general_dilated",
        conv(lhs_dilation=(2,), padding=((2, 1),)),
        floats(2, 2, 16),
        floats(4, 2, 3),
    ),
    "shifted": ("conv_general_dilated", conv(padding=((-1, 3),)), floats(2, 2, 16), floats(4, 2, 3)),
    "two dims": (
        "conv_general_dilated",
        conv(window_strides=(1, 2), padding="SAME"),
        floats(2, 2, 8, 8),
        floats(4, 2, 3, 3),
    ),
    "sum": ("reduce_window_sum", pool(lax.add, 0, 3, 1), floats(4, 16)),
    "max": ("reduce_window_max", pool(lax.max, -np.inf, 4, 2), -floats(4, 16)),
    "min": ("reduce_window_min", pool(lax.min, np.inf, 3, 2), floats(4, 16)),
    "left only": ("reduce_window_sum", pool(lax.add, 0, 2, 1, ((0, 0), (1, 0))), floats(4, 16)),
    "skipping": ("reduce_window_sum", pool(lax.add, 0, 2, 4, ((0, 0), (1, 0))), floats(4, 16)),
    "apart": ("reduce_window_max", pool(lax.max, -np.inf, 2, 2), floats(4, 16)),
    "gradient": ("select_and_scatter_add", pool_gradient(2), floats(4, 16)),
    "reversed": ("rev", lambda x: lax.rev(x, (0, 1)), floats(4, 16)),
}
OTHERS = [
    "dot_general",
    "gather",
    "scatter-add",
    "scatter",
    "iota",
    "random_bits",
    "reduce_sum",
    "reshape",
    "sort",
    "mul",
]


def run_on_devices(devices, sample, assignment):
    """The whole results, computed by eight devices; every device's block comes back for a check of copies and parts."""
    on = devices(MESH.shape)
    task = sample.task(assignment, MESH)
    where, whence = placements(task.rule, assignment)
    position = DevicePosition(on.names)

    def program(*blocks):
        return tuple(out[None] for out in run(task, position, [block[0] for block in blocks]))

    args = [jnp.stack(to_slices(x, placement, MESH, 0)) for x, placement in zip(sample.operands, where, strict=True)]
    spec = jax.sharding.PartitionSpec(on.names)
    mapped = jax.shard_map(program, mesh=on.mesh, in_specs=(spec,) * len(args), out_specs=spec, check_vma=False)
    results = jax.jit(mapped)(*args)
    return [
        from_slices(list(blocks), whence[number], task.operation.results[number].shape, MESH)
        for number, blocks in enumerate(results)
    ]


@pytest.mark.parametrize("name", NEIGHBOURS)
@pytest.mark.sampled(8)
def test_operations_that_fetch_borders_equal_one_device(devices, name):
    """Every way to cut a dimension along which ranks talk."""
    sample = example(*NEIGHBOURS[name])
    rule = rule_for(describe(sample.eqn))
    talking = [item for item in assignments(rule, MESH, ()) if needs_neighbours(rule, item)]
    assert talking, rule
    for assignment in spread(talking, 3):
        assert_same(run_on_devices(devices, sample, assignment), sample.whole(), f"{name} {rule} under {assignment}")


@pytest.mark.parametrize("name", OTHERS)
def test_places_are_traced(devices, name):
    """The same as rank by rank, which the test of the rules runs for all primitives."""
    sample = example(name, *SAMPLES[name][0])
    rule = rule_for(describe(sample.eqn))
    assignment = spread([item for item in assignments(rule, MESH) if any(item)], 3)[1]
    assert_same(run_on_devices(devices, sample, assignment), sample.whole(), f"{name} {rule} under {assignment}")


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("scatter", lambda x, y: x.at[()].set(y)),
        ("scatter-mul", lambda x, y: x.at[()].multiply(y)),
        ("scatter-add", lambda x, y: x.at[()].add(y)),
    ],
)
def test_scalars_are_written_as_vectors(devices, name, function):
    """XLA of JAX 0.11.2 crashes at scatters into scalars."""
    sample = example(name, function, floats(), floats())
    for assignment in assignments(rule_for(describe(sample.eqn)), MESH):
        assert_same(run_on_devices(devices, sample, assignment), sample.whole(), f"{name} under {assignment}")


def test_keys_of_random_bits_are_not_spread():
    """The hash carries its keys through its rounds: at full size they would take three arrays more."""
    sample = example("random_bits", *SAMPLES["random_bits"][0])
    rule = rule_for(describe(sample.eqn))
    assignment = next(item for item in assignments(rule, MESH) if any(item))
    position = FixedPosition(MESH, (0, 0))
    jaxpr = jax.make_jaxpr(lambda key: run(sample.task(assignment, MESH), position, [key]))(*sample.operands)
    (hashed,) = (equation for equation in jaxpr.eqns if equation.primitive.name == "threefry2x32")
    sizes = [variable.aval.size for variable in hashed.invars]
    assert sizes == [1, 1, hashed.outvars[0].aval.size, hashed.outvars[0].aval.size]


@pytest.mark.parametrize("number", [0, 2])
def test_bits_that_depend_on_the_whole_shape_are_those_of_one_device(devices, number):
    """With ``jax_threefry_partitionable=False``, the default of older versions."""
    sample = example("random_bits", *SAMPLES["random_bits"][number])
    rule = rule_for(describe(sample.eqn))
    with jax.threefry_partitionable(False):
        for assignment in spread([item for item in assignments(rule, MESH) if any(item)], 3):
            assert_same(run_on_devices(devices, sample, assignment), sample.whole(), f"{rule} under {assignment}")


def test_border_bytes():
    """A window of 3 over 16 elements, 4 slices: one element from each side, for 2 batches of 2 features."""
    sample = example(*NEIGHBOURS["same"])
    operation = describe(sample.eqn)
    rule = rule_for(operation)
    assignment = next(
        item for item in assignments(rule, MESH, ()) if needs_neighbours(rule, item) and flat(item) == [1]
    )
    assert exchanged_bytes(operation, rule, assignment, MESH) == 2 * 2 * 2 * 4


def test_border_beyond_the_neighbour():
    """Two elements per slice and a window of 6: three elements to the right are farther than the next rank."""
    sample = example("conv_general_dilated", conv(), floats(2, 2, 16), floats(4, 2, 6))
    rule = rule_for(describe(sample.eqn))
    spatial = next(number for number, factor in enumerate(rule.factors) if factor.window is not None)
    both = tuple((0, 1) if number == spatial else () for number in range(len(rule.factors)))
    assert "cannot be sharded into 8" in problem(rule, both, MESH)


def flat(assignment):
    return [axis for axes in assignment for axis in axes]
