"""Equations as the planner sees them: a `while` whose condition has an answer for each element of a batch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import sporax
from sporax.lowering.ingest.describe import with_one_answer


def doubled(limit, start):
    """How often a number is doubled until it passes the limit, and a key that is used as often."""
    return lax.while_loop(
        lambda state: state[1] < limit,
        lambda state: (jax.random.split(state[0])[0], state[1] * 2, state[2] + 1),
        (jax.random.key(0), start, 0),
    )[1:]


@pytest.mark.parametrize(
    ("function", "limit", "start"),
    [
        (jax.vmap(doubled), jnp.arange(8.0) + 9, jnp.arange(1.0, 9)),
        (jax.vmap(jax.vmap(doubled, (None, 0)), (None, 0)), 9.0, jnp.arange(1.0, 33).reshape(8, 4)),
    ],
    ids=["batch", "batch of batches"],
)
def test_devices_run_as_many_rounds_as_the_others_and_leave_what_is_finished(function, limit, start):
    planned = sporax.plan(function, limit, start, devices=8, fixed={1: (8, *(1,) * (start.ndim - 1))})
    got = planned.function()(*jax.device_put((limit, start), planned.in_shardings))
    jax.tree.map(np.testing.assert_array_equal, got, function(limit, start))


def test_the_condition_has_one_answer():
    limit, start = jnp.full(4, 9.0), jnp.arange(1.0, 5)
    (eqn,) = [
        eqn for eqn in jax.make_jaxpr(jax.vmap(doubled))(limit, start).jaxpr.eqns if str(eqn.primitive) == "while"
    ]
    changed = with_one_answer(eqn)
    assert changed.params["cond_jaxpr"].out_avals[0].shape == ()
    assert [var.aval for var in changed.outvars] == changed.params["body_jaxpr"].out_avals
    assert len(changed.invars) == len(eqn.invars) + eqn.params["cond_nconsts"]
    assert with_one_answer(changed) is changed
