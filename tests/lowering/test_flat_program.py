"""Calls are written out in their caller's place, with their whole name stack."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun
from jax.sharding import PartitionSpec

from sporax.lowering.flat_program import barrier, equations_of, flat, is_backward, stack_of
from sporax.lowering.ingest.ingest import written_out

X = jnp.linspace(0.0, 1.0, 4)
TABLE = jnp.arange(4.0)


@jax.jit
def inner(x):
    with jax.named_scope("deep"):
        return jnp.sin(x) + TABLE


def names(program):
    return [eqn.primitive.name for eqn in program.jaxpr.eqns]


def test_calls_are_written_out_with_the_stack_of_their_callers():
    def outer(x):
        with jax.named_scope("net"):
            return inner(inner(x))

    program = flat(jax.make_jaxpr(outer)(X))
    assert names(program) == ["sin", "add", "sin", "add"]
    assert [stack_of(eqn) for eqn in program.jaxpr.eqns] == ["net/jit(inner)/deep"] * 4 or all(
        "net" in stack_of(eqn) and "deep" in stack_of(eqn) for eqn in program.jaxpr.eqns
    )
    np.testing.assert_array_equal(jaxpr_as_fun(program)(X)[0], outer(X))


def test_a_call_with_shardings_of_its_own_stays():
    mesh = jax.make_mesh((1,), ("a",), axis_types=(jax.sharding.AxisType.Auto,))
    placed = jax.jit(jnp.sin, out_shardings=jax.NamedSharding(mesh, PartitionSpec()))
    assert names(flat(jax.make_jaxpr(lambda x: placed(x))(X))) == ["jit"]


def test_results_may_be_arguments_and_constants():
    program = flat(jax.make_jaxpr(lambda x: (x, 2.0, TABLE))(X))
    results = jaxpr_as_fun(program)(X)
    np.testing.assert_array_equal(results[0], X)
    assert float(results[1]) == 2
    np.testing.assert_array_equal(results[2], TABLE)


def test_what_is_computed_again_goes_through_a_barrier_unless_nobody_minds():
    def checkpointed(prevent):
        function = jax.checkpoint(jnp.sin, prevent_cse=prevent)
        return flat(jax.make_jaxpr(lambda x: function(x))(X), written_out)

    assert names(checkpointed(True)) == ["optimization_barrier", "sin"]
    assert names(checkpointed(False)) == ["sin"]


def test_a_barrier_gives_new_names_in_the_place_of_its_reader():
    (reader,) = (closed := jax.make_jaxpr(jnp.sin)(X)).jaxpr.eqns
    (result,), through = barrier(closed.jaxpr.invars, reader)
    assert through.invars == closed.jaxpr.invars
    assert result is not closed.jaxpr.invars[0]
    assert stack_of(through) == stack_of(reader)


def test_the_backward_pass_is_known_by_its_stack():
    def function(x):
        with jax.named_scope("net"):
            return jnp.sin(x).sum()

    program = flat(jax.make_jaxpr(jax.grad(function))(X))
    backward = {eqn.primitive.name: is_backward(stack_of(eqn)) for eqn in program.jaxpr.eqns}
    assert backward["cos"] is False
    assert backward["mul"] is True


def test_equations_of_a_function_bring_their_constants():
    closed = jax.make_jaxpr(jnp.sin)(X)
    eqns, (result,), constants = equations_of(lambda x: x * TABLE, closed.jaxpr.outvars[0])
    assert [eqn.primitive.name for eqn in eqns] == ["mul"]
    assert eqns[0].invars[0] is closed.jaxpr.outvars[0]
    assert eqns[0].outvars == [result]
    (value,) = constants.values()
    np.testing.assert_array_equal(value, TABLE)
