"""One equation as a rank runs it: where its tensors are, and where the rank is."""

import jax
import jax.numpy as jnp
import numpy as np

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.placement import Placement, axes_index
from sporax.lowering.execute.local_task import DevicePosition, LocalTask
from sporax.lowering.ingest.describe import describe
from sporax.planner.rules import FactorKind, rule_for

MESH = DeviceMatrix((2, 2, 2))
X, W = jnp.ones((8, 4)), jnp.ones((4, 6))


def task(function, *args, assignment):
    """The only equation of a function, as a task whose rule is assigned as `assignment` says, and the equation."""
    (eqn,) = jax.make_jaxpr(function)(*args).jaxpr.eqns
    operation = describe(eqn)
    rule = rule_for(operation)
    return LocalTask(eqn.primitive, operation, rule, assignment(rule), MESH), eqn


def by_size(rule, axes):
    """For each factor the axes that shard it, chosen by its size; none for partial sums that enter."""
    return tuple(axes.get(factor.size, ()) for factor in rule.factors)


def test_placements_follow_from_the_assignment():
    product, _ = task(jnp.matmul, X, W, assignment=lambda rule: by_size(rule, {8: (0,), 6: (2,), 4: (1,)}))
    assert product.operand_placement(0) == Placement(((0,), (1,)))
    assert product.operand_placement(1) == Placement(((1,), (2,)))
    result = product.result_placement(0)
    assert result.dims == ((0,), (2,))
    assert result.partial == (1,)  # the contraction is sharded


def test_axes_of_a_kind_of_factor():
    product, _ = task(jnp.matmul, X, W, assignment=lambda rule: by_size(rule, {8: (0,), 6: (), 4: (2, 1)}))
    assert product.axes_of(FactorKind.REDUCE) == (2, 1)
    assert product.axes_of(FactorKind.MAP) == (0,)
    assert product.axes_of(FactorKind.PARTIAL) == ()


def test_results_are_a_list_however_many_there_are():
    sine, eqn = task(jnp.sin, X, assignment=lambda rule: ((),) * len(rule.factors))
    (result,) = sine.bind([X], eqn.params)
    np.testing.assert_allclose(result, np.sin(1))
    top, eqn = task(lambda x: jax.lax.top_k(x, 2), X, assignment=lambda rule: ((),) * len(rule.factors))
    values, indices = top.bind([X], eqn.params)
    assert values.shape == indices.shape == (8, 2)


def test_a_device_knows_its_number_along_any_axes(devices):
    on = devices((2, 2, 2))
    position = DevicePosition(on.names)
    choices = [(0,), (2, 1), (0, 1, 2), ()]

    def program(x):
        return tuple(x + position.index(axes) for axes in choices)

    zeros = on.put(np.zeros(8, np.int32), Placement(((0, 1, 2),)))
    numbers = on.compile(program, [Placement(((0, 1, 2),))], [Placement(((0, 1, 2),))] * 4, zeros)(zeros)
    for axes, actual in zip(choices, numbers, strict=True):
        np.testing.assert_array_equal(actual, [axes_index(MESH, axes, rank) for rank in range(8)])


def test_pairs_of_places_along_axes_exchange_arrays(devices):
    on = devices((2, 2, 2))
    place = Placement(((0, 1, 2),))
    ranks = on.put(np.arange(1, 9, dtype=np.float32), place)
    moved = on.compile(
        lambda x: (DevicePosition(on.names).permute(x, (1, 2), [(0, 3), (3, 1)]),), [place], [place], ranks
    )(ranks)[0]
    np.testing.assert_array_equal(moved, [0, 4, 0, 1, 0, 8, 0, 5])
