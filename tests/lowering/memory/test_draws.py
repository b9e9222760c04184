"""Random words of recomputed calls wait for what enters their call."""

import jax
import jax.numpy as jnp

from sporax.lowering.memory.draws import draws_that_wait
from sporax.lowering.memory.flat import flat


def stretches(function, call):
    seed, x = jnp.zeros(2, jnp.uint32), jnp.ones((2, 4), jnp.float32)
    eqns = flat(jax.make_jaxpr(function)(seed, x)).jaxpr.eqns
    calls = [call if "call" in str(eqn.source_info.name_stack) else None for eqn in eqns]
    return eqns, list(draws_that_wait(eqns, calls, lambda var: False))


def masked(seed, x):
    entering = jnp.sin(x)
    with jax.named_scope("call"):
        return entering * jax.random.bits(jax.random.wrap_key_data(seed), x.shape).astype(jnp.float32)


def test_words_wait_for_what_enters_last():
    eqns, (wait,) = stretches(masked, 1)
    sine = next(eqn for eqn in eqns if eqn.primitive.name == "sin")
    assert wait.late is sine.outvars[0]
    assert [var.aval.shape for var in wait.states] == [(2,)]
    assert all("call" in str(eqn.source_info.name_stack) for eqn in eqns[wait.begin : wait.end])


def test_nothing_waits_where_nothing_runs_again_or_is_drawn():
    assert stretches(masked, None)[1] == []

    def plain(seed, x):
        with jax.named_scope("call"):
            return jnp.sin(x)

    assert stretches(plain, 1)[1] == []
