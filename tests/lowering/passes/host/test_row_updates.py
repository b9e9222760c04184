"""Gradients of tables as ids and rows: equal to dense ones, and nothing as large as a table travels."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxpr_as_fun

from sporax.lowering.marks.host_transfer import (
    DEVICE,
    HOST,
    place_of_work,
    space_of,
    stored_on_host,
    transfers,
    without_round_trips,
)
from sporax.lowering.passes.host.offload import in_host_memory
from sporax.lowering.passes.host.row_updates import by_rows, row_update
from sporax.lowering.rewriter import flat

ROWS, WIDTH = 50, 4
TABLE = jnp.asarray(np.random.default_rng(0).normal(size=(ROWS, WIDTH)).astype(np.float32))
SUMS = jnp.full((ROWS, WIDTH), 0.1, jnp.float32)
IDS = jnp.asarray([[3, 7, 3], [0, 49, 7]], jnp.int32)
OUT_OF_RANGE = jnp.asarray([[3, 99, 3], [0, 49, -1]], jnp.int32)


def adagrad(gradient, values, scalars):
    (table, sums), (rate,) = values, scalars
    touched = jnp.any(gradient != 0, 1, keepdims=True)
    squares = sums + gradient * gradient
    return [jnp.where(touched, table - rate * gradient / jnp.sqrt(squares), table), jnp.where(touched, squares, sums)]


def rows_of(table, ids):
    with place_of_work(on_host=True):
        return jnp.take(table, jnp.where(ids < 0, ROWS, ids), 0, mode="fill", fill_value=0)


def one_lookup(table, ids):
    return (rows_of(table, ids) ** 2).sum() + rows_of(table, ids)[0].sum()


def one_lookup_only(table, ids):
    return (rows_of(table, ids) ** 2).sum()


def scaled(table, ids):
    return (rows_of(table * 2.0, ids) ** 3).sum() / 7.0


def dense(table, ids):
    return one_lookup_only(table, ids) + (table**2).sum()


def step(loss, by_host=True):
    """A step of a table and its state, which come from host memory and go back there."""

    def program(table, sums, ids, rate):
        here, state = jax.device_put(table, DEVICE), jax.device_put(sums, DEVICE)
        gradient = jax.grad(loss)(here, ids)
        with place_of_work(by_host):
            new, newer = row_update(adagrad, gradient, [here, state], [rate])
        return jax.device_put(new, HOST), jax.device_put(newer, HOST)

    return program


def programs(loss, ids, by_host=True):
    args = (stored_on_host(TABLE), stored_on_host(SUMS), ids, jnp.float32(0.1))
    before = flat(jax.make_jaxpr(step(loss, by_host))(*args))
    return before, without_round_trips(in_host_memory(by_rows(before))), args


def largest(program, space):
    """Elements of the largest array in a memory."""
    avals = [var.aval for eqn in program.jaxpr.eqns for var in eqn.outvars if space_of(var) == space]
    return max(aval.size for aval in avals)


@pytest.mark.parametrize("by_host", [True, False], ids=["update on the host", "update on the device"])
@pytest.mark.parametrize("ids", [IDS, OUT_OF_RANGE], ids=["in range", "out of range"])
@pytest.mark.parametrize("loss", [one_lookup, one_lookup_only])
def test_rows_alone_are_updated(loss, ids, by_host):
    before, after, args = programs(loss, ids, by_host)
    for one, other in zip(jaxpr_as_fun(after)(*args), jaxpr_as_fun(before)(*args), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-6)
        assert one.sharding.memory_kind == "pinned_host"
    assert largest(after, DEVICE) < ROWS * WIDTH <= largest(before, DEVICE)


def test_ids_go_once_and_rows_once_each_way():
    _, after, _ = programs(one_lookup_only, IDS)
    rows = IDS.size * WIDTH * 4
    sent = [size for direction, size in transfers(after) if direction == "to host"]
    assert sorted(sent) == [4, IDS.size * 4, rows]  # the learning rate, ids, rows of the gradient
    assert [size for direction, size in transfers(after) if direction == "to device"] == [rows]


@pytest.mark.parametrize("loss", [scaled, dense])
def test_other_gradients_stay_dense(loss):
    """The product of the table with a number hides the lookup, a penalty of all rows reaches all of them."""
    before, after, args = programs(loss, IDS)
    for one, other in zip(jaxpr_as_fun(after)(*args), jaxpr_as_fun(before)(*args), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-6)
    assert not any(eqn.primitive.name == "row_update" for eqn in after.jaxpr.eqns)


def test_scaled_gradients_are_rows():
    """Dividing a finished gradient, as loss scales do, divides its rows."""

    def program(table, sums, ids, rate):
        here, state = jax.device_put(table, DEVICE), jax.device_put(sums, DEVICE)
        gradient = -jax.grad(one_lookup_only)(here, ids) / rate * 0.5
        with place_of_work(on_host=True):
            return row_update(adagrad, gradient, [here, state], [rate])

    args = (stored_on_host(TABLE), stored_on_host(SUMS), IDS, jnp.float32(8.0))
    before = flat(jax.make_jaxpr(program)(*args))
    rewritten = by_rows(before)
    assert all(
        eqn.primitive.name != "scatter-add" or eqn.outvars[0].aval.shape[0] < ROWS for eqn in rewritten.jaxpr.eqns
    )
    for one, other in zip(jaxpr_as_fun(rewritten)(*args), jaxpr_as_fun(before)(*args), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-6)


def test_without_the_pass_the_update_is_dense():
    args = (TABLE, SUMS, IDS, jnp.float32(0.1))

    def program(table, sums, ids, rate):
        return row_update(adagrad, jax.grad(one_lookup)(table, ids), [table, sums], [rate])

    expected = adagrad(jax.grad(one_lookup)(TABLE, IDS), [TABLE, SUMS], [jnp.float32(0.1)])
    for one, other in zip(jax.jit(program)(*args), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("ids", [IDS, OUT_OF_RANGE], ids=["in range", "out of range"])
@pytest.mark.parametrize("loss", [one_lookup, one_lookup_only])
def test_rows_are_added_to_a_sum_of_the_host(loss, ids):
    """One micro batch: what a sum gets is made of ids and rows, and the sum stays where it is."""

    def program(total, table, ids):
        gradient = jax.grad(loss)(jax.device_put(table, DEVICE), ids)
        with place_of_work(on_host=True):
            return [jax.device_put(jax.device_put(total, DEVICE) + gradient, HOST)]

    args = (stored_on_host(SUMS), stored_on_host(TABLE), ids)
    before = flat(jax.make_jaxpr(program)(*args))
    after = without_round_trips(in_host_memory(by_rows(before)))
    (one,), (other,) = jaxpr_as_fun(after)(*args), jaxpr_as_fun(before)(*args)
    np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-6)
    assert one.sharding.memory_kind == "pinned_host"
    assert largest(after, DEVICE) < ROWS * WIDTH <= largest(before, DEVICE)


def test_a_dense_gradient_is_added_to_a_sum_as_it_is():
    def program(total, table):
        with place_of_work(on_host=True):
            return [jax.device_put(jax.device_put(total, DEVICE) + jax.device_put(table, DEVICE) * 2.0, HOST)]

    args = (stored_on_host(SUMS), stored_on_host(TABLE))
    after = without_round_trips(in_host_memory(by_rows(flat(jax.make_jaxpr(program)(*args)))))
    np.testing.assert_allclose(np.asarray(jaxpr_as_fun(after)(*args)[0]), SUMS + 2 * TABLE, rtol=1e-6)


def test_what_the_host_finds_out_about_its_values_stays_there():
    """Which rows have a gradient is read from values of the host; ids alone are made ready on the device."""

    def program(table, gradient):
        with place_of_work(on_host=True):
            here, touched = jax.device_put(table, DEVICE), jnp.any(gradient != 0, 1, keepdims=True)
            return [jax.device_put(jnp.where(touched, here - gradient, here), HOST)]

    args = (stored_on_host(TABLE), SUMS)
    after = without_round_trips(in_host_memory(by_rows(flat(jax.make_jaxpr(program)(*args)))))
    assert {(way, size) for way, size in transfers(after) if size > 4} == {("to host", SUMS.nbytes)}
    np.testing.assert_allclose(np.asarray(jaxpr_as_fun(after)(*args)[0]), TABLE - SUMS, rtol=1e-6)
