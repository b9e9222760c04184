"""Random words of recomputed calls wait for what enters their call."""

import jax
import jax.numpy as jnp

from sporax.ir.marks import LayoutMark, next_number
from sporax.lowering.marks.mark_primitive import mark_p
from sporax.lowering.passes.recompute.draws import draws_that_wait
from sporax.lowering.rewriter import flat


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


def test_data_that_passes_a_mark_together_with_the_key_does_not_wait():
    """An operator with a strategy marks all of its inputs; each of them passes by itself."""

    def marked(seed, x):
        entering = jnp.sin(x)
        with jax.named_scope("call"):
            data, state = mark_p.bind(entering, seed, mark=LayoutMark("dropout", next_number(), (None, None)))
            return data * jax.random.bits(jax.random.wrap_key_data(state), x.shape).astype(jnp.float32)

    eqns, (wait,) = stretches(marked, 1)
    assert [var.aval.shape for var in wait.states] == [(2,)]
    assert wait.late is next(eqn for eqn in eqns if eqn.primitive.name == "sin").outvars[0]


def test_nothing_waits_where_nothing_runs_again_or_is_drawn():
    assert stretches(masked, None)[1] == []

    def plain(seed, x):
        with jax.named_scope("call"):
            return jnp.sin(x)

    assert stretches(plain, 1)[1] == []
