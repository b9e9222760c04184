"""Loops make their constants: the values of the program as it was, and masks that attention is recognized by."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun

from sporax.lowering.ingest.ingest import ingest
from sporax.lowering.passes.loop_constants import with_own_constants

X = np.random.default_rng(0).normal(size=(3, 1, 8, 2, 4)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(4, 4)).astype(np.float32)


@jax.checkpoint
def attention(q, k):
    """Causal, of (batch, length, heads, size); its gradient computes scores again."""
    place = jnp.arange(q.shape[1])
    scores = jnp.where(place[:, None] >= place[None], jnp.einsum("bqhd,bkhd->bhqk", q, k), -1e30)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), k)


def loss(w, rows):
    """Of several micro batches in a loop, out of which the gradient takes the mask."""
    return jax.lax.scan(lambda total, x: (total + (attention(x @ w, x) ** 2).sum(), None), 0.0, rows)[0]


def scans(program):
    return [eqn for eqn in program.jaxpr.eqns if eqn.primitive.name == "scan"]


def shares(program):
    graph = ingest(program).graph
    bodies = [body for operator in graph.operators for body in operator.bodies]
    dots = [entry for body in bodies for entry in body.operators if entry.name == "dot_general"]
    return [entry.operation.fused.share for entry in dots if entry.operation.fused]


def test_masks_are_made_inside_and_results_stay():
    program = jax.make_jaxpr(jax.grad(loss))(W, X)
    own = with_own_constants(program)
    read = [sum(len(eqn.invars) for eqn in scans(entry)) for entry in (program, own)]
    assert read[1] < read[0]
    for one, other in zip(*(jaxpr_as_fun(entry)(W, X) for entry in (program, own)), strict=True):
        np.testing.assert_array_equal(one, other)
    assert max(shares(program)) == 1.0  # nothing says that the mask is one of positions
    assert set(shares(own)) == {0.5}
