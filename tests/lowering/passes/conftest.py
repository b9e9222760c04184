"""A small network with recomputed layers, traced with its backward pass."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxpr_as_fun

from sporax.ir.marks import SavedMark
from sporax.lowering.marks.mark_primitive import apply_mark
from sporax.lowering.marks.tags import new_tag
from sporax.lowering.rewriter import flat

LAYERS = 2


def network(weights, x, scopes):
    """Layers with a sine each, whose results are kept; ``scopes[n]`` is the name scope of layer n."""
    for number, (weight, scope) in enumerate(zip(weights, scopes, strict=True)):
        with jax.named_scope(f"layer{number}"), jax.named_scope(scope):
            (x,) = apply_mark([jnp.sin(x @ weight)], SavedMark())
    return (x**2).sum()


@pytest.fixture
def traced():
    """``traced(**settings)``: the flat gradient of a network whose layers have tags, and its arguments."""

    def trace(scopes=None, **settings):
        scopes = scopes or [new_tag(**settings).scope for _ in range(LAYERS)]
        weights = [jnp.eye(4, dtype=jnp.float32) * (1 + number) for number in range(LAYERS)]
        x = jnp.linspace(-1, 1, 8, dtype=jnp.float32).reshape(2, 4)
        closed = jax.make_jaxpr(jax.grad(lambda weights, x: network(weights, x, scopes)))(weights, x)
        return flat(closed), (*weights, x)

    return trace


@pytest.fixture
def same():
    """``same(one, other, args)``: two programs give the same values."""

    def check(one, other, args):
        for first, second in zip(jaxpr_as_fun(one)(*args), jaxpr_as_fun(other)(*args), strict=True):
            np.testing.assert_array_equal(first, second)

    return check


@pytest.fixture
def count():
    """``count(program, name)``: how many equations have this primitive."""

    def number(program, name):
        return sum(eqn.primitive.name == name for eqn in program.jaxpr.eqns)

    return number
