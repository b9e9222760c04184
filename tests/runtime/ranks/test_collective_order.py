"""Collectives of one program keep their order: each depends on the one before, and the compiler cannot know that it need not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sporax.runtime.ranks import collective_order

X, Y = jnp.arange(3.0), jnp.arange(2)


def exchange(primitive, array):
    """Stands for a collective."""
    result = primitive(collective_order.follow(array))
    collective_order.record_collective(result)
    return result


def depends(closed, later, earlier):
    """Whether an equation of one name reads, directly or not, the result of an equation of the other one."""
    reached = set()
    for eqn in closed.jaxpr.eqns:
        if eqn.primitive.name == earlier or any(id(var) in reached for var in eqn.invars):
            reached.update(map(id, eqn.outvars))
            if eqn.primitive.name == later:
                return True
    return False


def traced(function, *args):
    def program(zero, *args):
        with collective_order.in_order(zero):
            return function(*args)

    return jax.make_jaxpr(program)(jnp.int32(0), *args)


def test_a_collective_waits_for_the_one_before_it():
    in_turn = traced(lambda x, y: (exchange(jnp.sin, x), exchange(jnp.bitwise_not, y), exchange(jnp.cos, x)), X, Y)
    assert depends(in_turn, "not", "sin")
    assert depends(in_turn, "cos", "not")
    assert not depends(in_turn, "sin", "not")
    alone = traced(lambda x, y: (jnp.sin(collective_order.follow(x)), exchange(jnp.bitwise_not, y)), X, Y)
    assert not depends(alone, "not", "sin")


def test_a_constant_is_no_constant_for_the_compiler():
    closed = traced(lambda: exchange(jnp.sin, jnp.ones(3)))
    reached = {id(closed.jaxpr.invars[0])}
    for eqn in closed.jaxpr.eqns:
        if any(id(var) in reached for var in eqn.invars):
            reached.update(map(id, eqn.outvars))
    (sine,) = (eqn for eqn in closed.jaxpr.eqns if eqn.primitive.name == "sin")
    assert id(sine.invars[0]) in reached


@pytest.mark.parametrize("dtype", ["float16", "complex64", "bool", "uint8"])
def test_values_stay_as_they_are(dtype):
    array = jnp.asarray([[0, 1], [1, 1]], dtype)
    with collective_order.in_order(jnp.int32(0)):
        collective_order.record_collective(jnp.asarray([7.0 + 1j]))
        followed = collective_order.follow(array)
    assert followed.dtype == array.dtype
    np.testing.assert_array_equal(followed, array)


def test_empty_arrays_and_programs_without_order_leave_no_token():
    empty = jnp.zeros((0, 3))
    collective_order.record_collective(X)  # outside of a program there is nothing to keep in order
    assert collective_order.order_token() is None
    with collective_order.in_order(jnp.int32(0)):
        assert collective_order.follow(empty) is empty
        collective_order.record_collective(empty)
        assert collective_order.order_token() is None


def test_an_inner_trace_knows_only_the_token_that_it_gets():
    inside = []

    @jax.jit
    def inner(x, before):
        inside.append(collective_order.order_token())
        collective_order.record_collective(before)
        inside.append(collective_order.order_token())
        return exchange(jnp.cos, x)

    def program(x):
        exchange(jnp.sin, x)
        before = collective_order.order_token()
        return inner(x, before)

    closed = traced(lambda x: (program(x), exchange(jnp.tanh, x)), X)
    assert inside[0] is None
    assert inside[1] is not None
    assert depends(closed, "jit", "sin")
    assert depends(closed, "tanh", "sin")  # the outer trace still knows its own last collective


def test_a_program_inside_a_program_keeps_an_order_of_its_own():
    with collective_order.in_order(jnp.int32(0)):
        collective_order.record_collective(jnp.asarray([5]))
        with collective_order.in_order(jnp.int32(0)):
            assert collective_order.order_token() is None
        assert int(collective_order.order_token()) == 5
