"""Redistributions executed on eight devices: values and collectives."""

import collections
import functools
import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from every_placement import every_placement
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.placement import Placement, axes_index, num_parts
from sporax.lowering.execute.redistribute import apply_redistributions
from sporax.lowering.execute.reductions import sum_in_order
from sporax.planner.communication.moves import DEFAULT_COSTS, default_costs
from sporax.planner.communication.resharding import redistribute

SHAPE = (8, 16)
X = np.arange(SHAPE[0] * SHAPE[1], dtype=np.float32).reshape(SHAPE)
MESH = DeviceMatrix((2, 2, 2))
PLACEMENTS = list(every_placement(2, 3))
HLO = {
    "all_gather": "all-gather",
    "all_reduce": "all-reduce",
    "all_to_all": "all-to-all",
    "reduce_scatter": "reduce-scatter",
    "permute": "collective-permute",
}


def count_collectives(text):
    """Collectives of a compiled program. XLA merges all-reduces into one with several operands: these count one each."""
    actual = collections.Counter()
    for kind, word in re.findall(r"= (\(.*?\)|\S+) ([a-z-]+?)(?:-start)?\(", re.sub(r"/\*.*?\*/", "", text)):
        if word in HLO.values():
            actual[word] += len(re.findall(r"\w+\[", kind)) if word == "all-reduce" else 1
    return actual


def planned(plans):
    return collections.Counter(HLO[move.collective] for plan in plans for move in plan.moves if move.collective)


def run(devices, plans, inputs, mesh=MESH):
    """Execute many redistributions in one program; every input goes through its own plan."""
    on = devices(mesh.shape)

    def program(*slices):
        return tuple(apply_redistributions([x], [plan], on.names)[0] for x, plan in zip(slices, plans, strict=True))

    args = [on.put(x, plan.source) for x, plan in zip(inputs, plans, strict=True)]
    compiled = on.compile(program, [plan.source for plan in plans], [plan.target for plan in plans], *args)
    return compiled(*args), compiled.as_text()


def renamed(placement, order):
    return Placement(tuple(tuple(order[axis] for axis in axes) for axes in placement.dims))


def up_to_names():
    """One pair of placements out of all that differ in the names of the (equally large) axes only: now this, now that."""
    classes = collections.defaultdict(list)
    for source, target in itertools.product(PLACEMENTS, PLACEMENTS):
        forms = [(renamed(source, order), renamed(target, order)) for order in itertools.permutations(range(3))]
        classes[min(map(str, forms))].append((source, target))
    return [members[number % len(members)] for number, members in enumerate(classes.values())]


def check_pairs(devices, everywhere, pairs, alltoall):
    plans = [redistribute(SHAPE, 4, source, target, MESH, alltoall) for source, target in pairs]
    results, text = run(devices, plans, [X + number for number in range(len(plans))])
    for offset, result in enumerate(results):
        everywhere(result, X + offset)
    assert count_collectives(text) == planned(plans)


@pytest.mark.parametrize("third", range(3))
@pytest.mark.parametrize("alltoall", [True, False])
@pytest.mark.sampled(3)
def test_every_pair_up_to_names(devices, everywhere, alltoall, third):
    check_pairs(devices, everywhere, up_to_names()[third::3], alltoall)


@pytest.mark.soak
@pytest.mark.parametrize("alltoall", [True, False])
@pytest.mark.parametrize("number", range(0, len(PLACEMENTS), 7))
def test_every_pair(devices, everywhere, number, alltoall):
    """Seven sources to all targets, one program: what the test above has but for names of axes."""
    pairs = itertools.product(PLACEMENTS[number : number + 7], PLACEMENTS)
    check_pairs(devices, everywhere, list(pairs), alltoall)


@pytest.mark.parametrize("shape", [(4, 2), (2, 4), (8,)])
def test_axes_of_other_sizes(devices, everywhere, shape):
    """Cuts that do not nest, units that must be taken apart."""
    mesh = DeviceMatrix(shape)
    placements = list(every_placement(2, mesh.num_axes))
    plans = [redistribute((8, 16), 4, *pair, mesh) for pair in itertools.product(placements, placements)]
    results, text = run(devices, plans, [X + number for number in range(len(plans))], mesh)
    for offset, result in enumerate(results):
        everywhere(result, X + offset)
    assert count_collectives(text) == planned(plans)


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
@pytest.mark.sampled(1)
def test_partial_values_become_complete_and_move(devices, dtype):
    """Parts become complete, move as parts, and are made from copies, for every reduction."""
    check_partial_values(devices, dtype, DEFAULT_COSTS)


def test_devices_without_a_reduce_scatter_get_the_same_sums_by_an_all_to_all(devices):
    text, plans = check_partial_values(devices, np.float32, default_costs(False))
    assert any(move.trades_parts and move.reduction == "sum" for plan in plans for move in plan.moves)
    assert "reduce-scatter" not in text


def check_partial_values(devices, dtype, costs):
    small = np.random.default_rng(0).integers(1, 4, SHAPE).astype(dtype)
    places = [
        ((), (), (0,)),
        ((), (1,), (0,)),
        ((0,), (), ()),
        ((), (0, 1), ()),
        ((), (), ()),
        ((), (2, 0), ()),
        ((1,), (), (0, 2)),
    ]
    reductions = ["sum", "max", "min", "prod", *(["and", "or", "xor"] if dtype is np.int32 else [])]
    cases = [
        (Placement(old[:2], old[2], reduction), Placement(new[:2], new[2], reduction))
        for reduction in reductions
        for old, new in itertools.product(places, places)
    ]
    plans = [redistribute(SHAPE, 4, source, target, MESH, costs=costs) for source, target in cases]
    results, text = run_parts(devices, plans, small)
    for (source, target), result in zip(cases, results, strict=True):
        whole = combined(small, source.partial, source.reduction)
        ours = combined_blocks(result, target)
        np.testing.assert_allclose(ours, whole, rtol=1e-6, err_msg=f"{source} to {target}")
    assert count_collectives(text) == planned(plans)
    return text, plans


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float8_e4m3fn", "int8", "uint32", "complex64"])
def test_sums_are_added_rank_by_rank_and_small_floats_are_rounded_once(dtype):
    rng = np.random.default_rng(0)
    dtype = jnp.dtype(dtype)
    values = rng.normal(size=(5, 64)) * 10.0 ** rng.integers(-3, 2, (5, 64)) * (100 if dtype.kind in "iu" else 1)
    parts = values.astype(np.int64).astype(dtype) if dtype.kind in "iu" else values.astype(dtype)
    wide = np.float32 if jnp.issubdtype(dtype, jnp.floating) else dtype
    expected = parts[0].astype(wide)
    for part in parts[1:]:
        expected = expected + part.astype(wide)
    result = np.asarray(jax.jit(sum_in_order)(parts))
    assert result.dtype == dtype
    assert result.tobytes() == expected.astype(dtype).tobytes()


def test_a_sum_of_negative_zeros_keeps_its_sign():
    assert np.signbit(sum_in_order(jnp.full((3, 2), -0.0))).all()


def combined(x, partial, reduction):
    count = num_parts(MESH, tuple(partial))
    layers = [x + place for place in range(count)] if partial else [x]
    return functools.reduce(COMBINE[reduction], layers) if partial else x


def run_parts(devices, plans, x):
    """As `run`, but results come back as one block per device, because parts are no array of their own."""
    on = devices(MESH.shape)

    def program(*slices):
        outputs = []
        for local, plan in zip(slices, plans, strict=True):
            partial = tuple(on.names[axis] for axis in plan.source.partial)
            if partial:
                local = local + jax.lax.axis_index(partial).astype(local.dtype)
            outputs.append(apply_redistributions([local], [plan], on.names)[0][None])
        return tuple(outputs)

    args = [on.put(x + 0 * number, plan.source) for number, plan in enumerate(plans)]
    stacked = [Placement(((0, 1, 2), (), ()))] * len(plans)
    compiled = on.compile(program, [plan.source for plan in plans], stacked, *args)
    return [np.asarray(item) for item in compiled(*args)], compiled.as_text()


def combined_blocks(blocks, placement):
    """The whole tensor from the block (or part) of every rank."""
    layers = [np.zeros(SHAPE, blocks.dtype) for _ in range(num_parts(MESH, placement.partial))]
    for rank, block in enumerate(blocks):
        layers[axes_index(MESH, placement.partial, rank)][placement.block(SHAPE, MESH, rank)] = block
    return functools.reduce(COMBINE[placement.reduction], layers) if placement.partial else layers[0]


COMBINE = {
    "sum": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "prod": np.multiply,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
