"""Programs are written equation by equation; calls are written out in their caller's place, with their whole name stack."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun
from jax.sharding import PartitionSpec

from sporax.lowering.ingest.ingest import written_out
from sporax.lowering.rewriter import (
    JaxprRewriter,
    bodies_of,
    flat,
    in_backward,
    is_backward,
    needed,
    num_bytes,
    runs_backward,
    stack_of,
    with_bodies,
)

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


class Doubled(JaxprRewriter):
    """Every sine goes through a barrier and is added to itself; copies are left out."""

    def visit(self, eqn):
        if eqn.primitive.name == "sin":
            operands = self.barrier([self.read(atom) for atom in eqn.invars], eqn)
            (result,) = self.write(eqn, operands)
            self.rename(eqn.outvars, self.emit(lambda x: x + x * TABLE, result))
        elif eqn.primitive.name == "copy":
            self.rename(eqn.outvars, map(self.read, eqn.invars))
        else:
            self.keep(eqn)


def test_a_pass_says_what_becomes_of_each_equation(lines):
    program = flat(jax.make_jaxpr(lambda x: jnp.cos(jnp.copy(jnp.sin(x))))(X))
    assert lines(program) == ["in a", "b = sin a", "c = copy b", "d = cos c", "out d"]
    doubled = Doubled(program).run()
    assert lines(doubled) == [
        "in a",
        "c = optimization_barrier a",
        "d = sin c",
        "e = mul d b",
        "f = add d e",
        "g = cos f",
        "out g",
    ]
    sine = jnp.sin(X)
    np.testing.assert_array_equal(jaxpr_as_fun(doubled)(X)[0], jnp.cos(sine + sine * TABLE))
    # The program that was read is as before.
    assert names(program) == ["sin", "copy", "cos"]


def test_the_same_equations_can_be_written_several_times():
    writer = JaxprRewriter(flat(jax.make_jaxpr(jnp.cos)(X)))
    (argument,) = writer.program.jaxpr.invars

    def scaled(x):
        return x * TABLE

    (once,) = writer.emit(scaled, argument)
    (twice,) = writer.emit(scaled, once)
    program = writer.finish([twice])
    assert names(program) == ["mul", "mul"]
    assert len(program.jaxpr.constvars) == 2
    np.testing.assert_array_equal(jaxpr_as_fun(program)(X)[0], X * TABLE * TABLE)


def test_an_identity_gives_new_names_in_the_place_of_an_equation():
    program = jax.make_jaxpr(jnp.sin)(X)
    writer, (like,) = JaxprRewriter(program), program.jaxpr.eqns
    (result,) = writer.barrier(program.jaxpr.invars, like)
    (through,) = writer.eqns
    assert through.invars == program.jaxpr.invars
    assert through.outvars == [result] != through.invars
    assert stack_of(through) == stack_of(like)


def test_equations_go_whose_results_no_one_reads():
    program = flat(jax.make_jaxpr(lambda x: (jnp.cos(jnp.sin(x)), jnp.tan(x)))(X))
    _, tangent = program.jaxpr.outvars
    assert [eqn.primitive.name for eqn in needed(program.jaxpr.eqns, [tangent])] == ["tan"]
    stay = needed(program.jaxpr.eqns, [tangent], lambda eqn: eqn.primitive.name == "cos")
    assert [eqn.primitive.name for eqn in stay] == ["sin", "tan"]


def test_bodies_are_found_and_changed_wherever_they_are_among_the_parameters():
    def function(x):
        return jax.lax.cond(x[0] > 0, jnp.sin, jnp.cos, inner(x))

    *_, call, _, cond = jax.make_jaxpr(function)(X).jaxpr.eqns
    assert [[eqn.primitive.name for eqn in body.eqns][-1] for body in bodies_of(cond)] == ["cos", "sin"]
    changed = with_bodies(cond, lambda body: body.replace(jaxpr=body.jaxpr.replace(eqns=[])))
    assert [body.eqns for body in bodies_of(changed)] == [[], []]
    assert changed.invars == cond.invars
    assert len(list(bodies_of(call))) <= 1


def test_bytes_of_a_value():
    (argument,) = jax.make_jaxpr(jnp.sin)(X).jaxpr.invars
    assert num_bytes(argument) == X.nbytes


def test_the_backward_pass_is_known_by_its_stack():
    def function(x):
        with jax.named_scope("net"):
            return jnp.sin(x).sum()

    program = flat(jax.make_jaxpr(jax.grad(function))(X))
    backward = {eqn.primitive.name: is_backward(stack_of(eqn)) for eqn in program.jaxpr.eqns}
    assert backward["cos"] is False
    assert backward["mul"] is True


def test_a_copy_in_the_backward_pass_says_so():
    (eqn,) = jax.make_jaxpr(jnp.sin)(X).jaxpr.eqns
    assert not runs_backward(eqn)
    assert runs_backward(eqn.replace(source_info=in_backward(eqn)))
