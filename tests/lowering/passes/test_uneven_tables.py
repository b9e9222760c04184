"""Steps on blocks: what they compute from a table in uneven parts, whatever stands in spare rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import Role
from sporax.ir.placement import Placement
from sporax.ir.uneven import UnevenRows
from sporax.lowering.execute.part_lookup import part_lookup
from sporax.lowering.execute.rank_program import rank_program
from sporax.lowering.ingest.ingest import ingest
from sporax.lowering.passes.uneven_tables import in_blocks
from sporax.planner.propagation.propagate import plan_by_propagation

ROWS = (5, 1, 3, 4)
NUM_ROWS, COLUMNS = sum(ROWS), 2
BLOCKS = UnevenRows(ROWS)
TABLE = np.random.default_rng(0).normal(size=(NUM_ROWS, COLUMNS)).astype(np.float32) - 3
IDS = np.array([[4, 5, 6, 12], [0, 5, 8, 9], [2, 5, 7, 40]], np.int32)
MESH = DeviceMatrix((2, 2))


def lookup(table):
    return part_lookup(table, IDS, ROWS, BLOCKS.starts)


def choose(table, moments):
    def updated(table, moments):
        return table - moments, moments * 2

    return lax.cond(jnp.sum(lookup(table)) < 0, updated, lambda table, moments: (table, moments), table, moments)


def choose_late(table, moments, data):
    """The second branch alone puts data and table together."""

    def plain(table, data):
        return table * 2 + jnp.sum(data)

    return lax.cond(jnp.sum(data) > 0, plain, lambda table, data: table - data, table, data) + moments


def run(function, *whole, garbage):
    """The results of a step on four devices whose spare rows hold garbage, and the inputs and results kept in blocks."""
    jaxpr = jax.make_jaxpr(function)(*whole)
    roles = [(Role.PARAMETER if number == 0 else Role.STATE, f"x{number}") for number in range(len(whole))]
    step, blocked = in_blocks(ingest(jaxpr, roles, [(number, number) for number in range(len(whole))]))
    first = len(step.constants)
    tables = {step.graph.inputs[first].tensor: Placement(((0, 1), ()))}
    plan = plan_by_propagation(step.graph, MESH, tables)
    arguments = []
    for number, array in enumerate(whole):
        how = blocked.get(first + number)
        if how is not None:
            spare = np.asarray(how.blocks(jnp.ones_like(array))) == 0
            array = np.where(spare, np.float32(garbage), np.asarray(how.blocks(jnp.asarray(array))))
        arguments.append(array)
    mesh = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("a", "b"))
    specs = [tuple(tuple("ab"[axis] for axis in axes) or None for axes in item.dims) for item in plan.inputs[first:]]
    ends = [tuple(tuple("ab"[axis] for axis in axes) or None for axes in item.dims) for item in plan.outputs]
    mapped = jax.shard_map(
        rank_program(step, plan, ("a", "b")),
        mesh=mesh,
        in_specs=tuple(PartitionSpec(*item) for item in specs),
        out_specs=[PartitionSpec(*item) for item in ends],
        check_vma=False,
    )
    results = [np.asarray(item) for item in jax.jit(mapped)(*arguments)]
    real = np.concatenate([np.arange(size) + BLOCKS.block * number for number, size in enumerate(ROWS)])
    kept = [blocked.get(first + number) for number in range(len(whole))]
    actual = [
        np.take(item, real, kept[number].dim) if number < len(whole) and kept[number] else item
        for number, item in enumerate(results)
    ]
    return actual, kept, plan.notes


MOMENTS = np.abs(TABLE) + 1
STEPS = {
    "rows are found": lambda t, m: (t, m, lookup(t)),
    "rows are updated": lambda t, m: (t - jax.grad(lambda x: jnp.sum(lookup(x) ** 2))(t) / (jnp.sqrt(m) + 1), m * 0.5),
    "rows are summed": lambda t, m: (
        t,
        m,
        jnp.sum(jnp.exp(t)),
        jnp.sum(jnp.sum(t, 1) ** 2),
        jnp.mean(t + m),
        lookup(t),
    ),
    "rows are compared": lambda t, m: (t, m, jnp.max(t, 0), jnp.min(-t), jnp.prod(t), jnp.any(t > 0), lookup(t)),
    "rows are counted": lambda t, m: (t, m, jnp.min((t < -3).astype(jnp.int32), 0), jnp.all(t < 0), lookup(t)),
    "rows are contracted": lambda t, m: (t, m, t.T @ m, jnp.max(t @ jnp.ones((COLUMNS, 3), jnp.float32)), lookup(t)),
    "columns are moved": lambda t, m: (t, m, jnp.sum(t.T * m.T), lookup(t)),
    "rows are chosen": lambda t, m: (*choose(t, m), lookup(t)),
}
BROUGHT = {
    "rows meet data in a branch": lambda t, m: (choose_late(t, m, jnp.asarray(MOMENTS)), m, lookup(t)),
    "rows are sorted": lambda t, m: (t, m, jnp.sort(t, 0), lookup(t)),
    "rows are taken out": lambda t, m: (t, m, t[3:7], lookup(t)),
    "rows are numbered": lambda t, m: (t * lax.broadcasted_iota(jnp.float32, t.shape, 0), m, lookup(t)),
    "the table is handed out": lambda t, m: (t, m, t * 2, lookup(t)),
    "rows are put in order": lambda t, m: (jnp.sort(t, 0), m, lookup(t)),
    "a constant is added": lambda t, m: (t + jnp.asarray(TABLE), m, lookup(t)),
}


@pytest.mark.parametrize("garbage", [0.0, np.nan])
@pytest.mark.parametrize("name", {**STEPS, **BROUGHT})
def test_steps_on_blocks_compute_what_those_on_rows_do(name, garbage):
    function = {**STEPS, **BROUGHT}[name]
    actual, kept, notes = run(function, TABLE, MOMENTS, garbage=garbage)
    for item, whole in zip(actual, function(TABLE, MOMENTS), strict=True):
        np.testing.assert_allclose(item, whole, rtol=1e-5)
    assert kept[0] is not None
    assert bool(notes) == (name in BROUGHT), notes


def test_moments_come_in_blocks_only_with_their_table():
    _, kept, _ = run(STEPS["rows are found"], TABLE, MOMENTS, garbage=0)
    assert kept[1] is None
    _, kept, _ = run(STEPS["rows are updated"], TABLE, MOMENTS, garbage=0)
    assert kept[1] == kept[0]


def test_even_parts_stay_as_they_are():
    table = TABLE[:12]
    step = ingest(jax.make_jaxpr(lambda t: [part_lookup(t, IDS[:, :2], (6, 6), (0, 6))])(table))
    assert in_blocks(step) == (step, {})


def test_lookups_are_linear_in_the_table():
    values, pull = jax.vjp(lookup, TABLE)
    (slope,) = pull(values)
    starts = np.repeat(BLOCKS.starts, 1)
    expected = np.zeros_like(TABLE)
    for row in IDS:
        for field, index in enumerate(row):
            if starts[field] <= index < starts[field] + ROWS[field]:
                expected[index] += TABLE[index]
    np.testing.assert_allclose(slope, expected, rtol=1e-6)
    tangent = jax.jvp(lookup, (TABLE,), (2 * TABLE,))[1]
    np.testing.assert_allclose(tangent, 2 * values)
    curvature = jax.jvp(jax.grad(lambda t: jnp.sum(lookup(t) ** 3)), (TABLE,), (TABLE,))[1]
    np.testing.assert_allclose(curvature, jax.jvp(jax.grad(lambda t: jnp.sum(whole(t) ** 3)), (TABLE,), (TABLE,))[1])


def whole(table):
    reference = np.where(IDS < NUM_ROWS, IDS, 0)
    return jnp.where((IDS < NUM_ROWS)[..., None], table[reference], 0)
