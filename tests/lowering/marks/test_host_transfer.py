"""Work and values in host memory: who works there, and transfers that are not needed."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun

from sporax.lowering.marks import host_transfer
from sporax.lowering.passes.pass_order import with_hosts
from sporax.lowering.rewriter import flat

X = jnp.arange(4, dtype=jnp.float32)


def program(function, *args):
    return flat(jax.make_jaxpr(function)(*(args or (X,))))


def test_a_function_of_the_host_and_its_derivative_run_there():
    def function(x):
        (y,) = host_transfer.run_on_host(lambda x: [jnp.sin(x)], x)
        return jnp.tanh(y).sum()

    closed = program(jax.grad(function))
    on_host = {eqn.primitive.name: host_transfer.runs_on_host(eqn) for eqn in closed.jaxpr.eqns}
    assert on_host["sin"]
    assert on_host["cos"]
    assert not on_host["tanh"]
    with host_transfer.place_of_work(on_host=False):
        assert not any(host_transfer.runs_on_host(eqn) for eqn in program(jnp.sin).jaxpr.eqns)


def test_what_comes_from_the_host_is_not_brought_back_to_be_fetched(lines):
    def function(x):
        (away,) = host_transfer.to_host([x * 2])
        (here,) = host_transfer.to_device([away])
        (again,) = host_transfer.to_host([here])
        return jnp.sin(here), again

    before = program(function)
    after = host_transfer.without_round_trips(before)
    assert host_transfer.transfers(before) == [("to host", 16), ("to device", 16), ("to host", 16)]
    assert host_transfer.transfers(after) == [("to host", 16)]  # the result; the sine reads what never left
    assert lines(before) == [
        "in a",
        "b = mul a 2.0",
        *("c = device_put b", "d = device_put c", "e = device_put d"),
        "f = sin d",
        "out f e",
    ]
    assert lines(after) == ["in a", "b = mul a 2.0", "c = device_put b", "d = sin b", "out d c"]
    for one, other in zip(jaxpr_as_fun(after)(X), function(X), strict=True):
        np.testing.assert_array_equal(one, other)


def test_transfers_that_no_one_reads_are_left_out():
    def function(x):
        host_transfer.to_host([x])
        return x + 1

    assert host_transfer.transfers(host_transfer.without_round_trips(program(function))) == []


def test_arguments_on_the_host_are_fetched_and_the_updated_ones_returned():
    step = with_hosts(lambda w, v, x: [w + x, (v * x).sum()], {0, 1}, {0})
    w, v = (host_transfer.stored_on_host(jax.device_put(X, jax.devices()[0])) for _ in range(2))
    assert host_transfer.is_on_host(w)
    updated, total = step(w, v, X)
    assert host_transfer.is_on_host(updated)
    assert not host_transfer.is_on_host(total)
    np.testing.assert_array_equal(updated, 2 * X)
    assert float(total) == float((X * X).sum())


def test_what_the_host_works_on_stays_there():
    def function(w, x):
        return [*host_transfer.run_on_host(lambda a, b: [a * b], w, x), w.sum()]

    w = host_transfer.stored_on_host(jax.device_put(X, jax.devices()[0]))
    closed = jax.make_jaxpr(with_hosts(function, {0}, {0}))(w, X)
    assert host_transfer.transfers(closed) == [
        ("to device", X.nbytes),
        ("to host", X.nbytes),
    ]  # for the sum; the second factor
    assert not host_transfer.is_on_host(np.arange(3))
