"""Values of host work are in host memory: what is sent, what is fetched, and what cannot be there."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun

from sporax.lowering.marks.host_transfer import (
    DEVICE,
    HOST,
    run_on_host,
    stored_on_host,
    transfers,
    without_round_trips,
)
from sporax.lowering.passes.host.offload import in_host_memory
from sporax.lowering.rewriter import flat

X = jnp.linspace(0.0, 1.0, 12, dtype=jnp.float32).reshape(3, 4)


def rewritten(function, *args):
    """The program before and after, which give equal results."""
    before = flat(jax.make_jaxpr(function)(*args))
    after = without_round_trips(in_host_memory(before))
    for one, other in zip(jaxpr_as_fun(after)(*args), jaxpr_as_fun(before)(*args), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-6)
    return after


def test_operands_go_and_results_come_once():
    def program(x, w):
        (y,) = run_on_host(lambda a, b: [jnp.tanh(a @ b) + a.sum()], x, w)
        return y * 2, y + 1

    after = rewritten(program, X, jnp.ones((4, 4), jnp.float32))
    assert transfers(after) == [("to host", 48), ("to host", 64), ("to device", 48)]


def test_what_comes_from_the_host_and_goes_back_does_not_travel():
    def program(x):
        (y,) = run_on_host(lambda a: [a * 3 + jnp.zeros_like(a)], jax.device_put(x, DEVICE))
        return jax.device_put(y, HOST)

    after = rewritten(program, stored_on_host(X))
    assert [size for direction, size in transfers(after) if direction == "to host"] == [4]  # the zero
    assert after.jaxpr.outvars[0].aval.memory_space == HOST


def test_derivatives_of_host_work_are_host_work():
    def program(x):
        return jax.grad(lambda a: run_on_host(lambda b: [jnp.sin(b) * b], a)[0].sum())(x)

    after = rewritten(lambda x: [program(x)], X)
    work = [eqn for eqn in after.jaxpr.eqns if eqn.primitive.name in ("sin", "cos", "mul")]
    assert all(eqn.outvars[0].aval.memory_space == HOST for eqn in work)


def test_work_with_constants_of_its_own_keeps_values_on_the_device():
    """JAX cannot mix both memories in one operation: such work is marked for the host, and the compiler moves values."""
    after = rewritten(lambda x: run_on_host(lambda a: [jnp.sort(a, 1), jnp.cumsum(a, 0)], x), X)
    assert transfers(after) == []
    assert any(eqn.ctx.compute_type == "device_host" for eqn in after.jaxpr.eqns)


def test_programs_without_host_work_stay_as_they_are():
    program = flat(jax.make_jaxpr(jnp.sin)(X))
    assert in_host_memory(program) is program
