"""What is read from programs is the same in all supported versions of JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Var, jaxpr_as_fun

import sporax
from sporax.lowering.ingest.ingest import ingest
from sporax.lowering.jax_versions import computed_on, known_params, scan_numbers, scan_params
from sporax.lowering.marks.host_transfer import runs_on_host
from sporax.lowering.rewriter import closed_jaxpr, flat

W, ROWS = jnp.arange(3.0) + 1, jnp.ones((4, 3))


def loop(first, rows):
    def body(carry, row):
        return {"a": carry["a"] * W + row, "b": carry["b"] + 1}, (carry["a"].sum(), row)

    return jax.lax.scan(body, {"a": first, "b": 0}, rows)


def scan_of(function, *args):
    program = flat(jax.make_jaxpr(function)(*args))
    (eqn,) = [eqn for eqn in program.jaxpr.eqns if eqn.primitive.name == "scan"]
    return program, eqn


def new_variable(value):
    return Var(jax.typeof(value))


def test_the_parts_of_a_loop_are_numbers():
    _, eqn = scan_of(loop, W, ROWS)
    assert scan_numbers(eqn.params) == (1, 2)
    params = known_params(eqn)
    assert (params["num_consts"], params["num_carry"], params["length"]) == (1, 2, 4)
    graph = ingest(jax.make_jaxpr(loop)(W, ROWS)).graph
    (operator,) = [operator for operator in graph.operators if operator.name == "scan"]
    assert operator.operation.params["num_carry"] == 2


def test_other_equations_keep_their_parameters():
    eqn = jax.make_jaxpr(jnp.sin)(1.0).jaxpr.eqns[0]
    assert known_params(eqn) is eqn.params


@pytest.mark.parametrize("more", [0, 2])
def test_a_loop_with_another_body_runs(more):
    """A body with further constants and results that it stacks, as passes write them."""
    program, eqn = scan_of(loop, W, ROWS)
    body = flat(eqn.params["jaxpr"])
    extra = list(map(new_variable, [jnp.float32(0)] * more))
    inner = closed_jaxpr(
        body.jaxpr.constvars,
        body.consts,
        [*extra, *body.jaxpr.invars],
        [*body.jaxpr.outvars, *extra],
        list(body.jaxpr.eqns),
    )
    stacks = list(map(new_variable, [jnp.zeros(4, jnp.float32)] * more))
    scalars = list(map(new_variable, [jnp.float32(0)] * more))
    changed = eqn.replace(
        invars=[*scalars, *eqn.invars], outvars=[*eqn.outvars, *stacks], params=scan_params(eqn, inner, 1 + more, 2)
    )
    assert scan_numbers(changed.params) == (1 + more, 2)
    jaxpr = program.jaxpr
    rewritten = closed_jaxpr(
        jaxpr.constvars,
        program.consts,
        [*scalars, *jaxpr.invars],
        [*jaxpr.outvars, *stacks],
        [changed if each is eqn else each for each in jaxpr.eqns],
    )
    values = [jnp.float32(number) for number in range(more)]
    results = jax.jit(jaxpr_as_fun(rewritten))(*values, W, ROWS)
    expected = jax.tree.leaves(loop(W, ROWS))
    for result, wanted in zip(results, expected, strict=False):
        np.testing.assert_allclose(result, wanted)
    for value, stack in zip(values, results[len(expected) :], strict=True):
        np.testing.assert_allclose(stack, np.full(4, value))


def test_work_and_its_derivative_are_computed_at_a_place():
    def function(x):
        y = jnp.cos(x)
        with computed_on("device_host"):
            y = jnp.sin(y)
        return y * 2

    program = flat(jax.make_jaxpr(jax.value_and_grad(function))(1.0))
    there = [str(eqn.primitive.name) for eqn in program.jaxpr.eqns if runs_on_host(eqn)]
    assert there[:2] == ["sin", "cos"]
    assert "mul" in there
    assert str(program.jaxpr.eqns[0].primitive.name) == "cos"


@pytest.mark.skipif(not hasattr(jax.lax, "polynomial"), reason="JAX 0.12 has polynomials as an operator")
def test_polynomials_are_sharded_along_their_elements_and_not_along_terms_of_a_sum():
    """Products summed over devices are summed before: a polynomial is not linear, and its constant would count once per device."""

    def step(w, x):
        return jax.lax.polynomial(x @ w, (1.0, 0.5, 2.0))

    w, x = np.linspace(-1, 1, 256, dtype="f").reshape(16, 16), np.linspace(-1, 1, 512, dtype="f").reshape(32, 16)
    for rows in ((8, 1), (1, 8)):
        planned = sporax.plan(step, w, x, devices=8, hardware="cpu", fixed={1: rows})
        np.testing.assert_allclose(planned.function()(w, x), step(w, x), rtol=1e-5, atol=1e-5)
