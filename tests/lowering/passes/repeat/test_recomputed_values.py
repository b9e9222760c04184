"""What a loop's backward pass computes again from what it keeps anyway."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun

from sporax.lowering.jax_versions import scan_numbers
from sporax.lowering.passes.repeat.block_loops import looped
from sporax.lowering.rewriter import flat, is_backward, stack_of

WIDTH, ROWS, LAYERS = 16, 8, 5


def layer(x, weights):
    w, b = weights
    h = x @ w + b
    return x + 0.5 * h * (1.0 + jnp.tanh(0.8 * (h + 0.04 * h**3)))


def network(all_weights, x):
    for weight in all_weights:
        x = layer(x, weight)
    return (x * x).sum()


def programs():
    draw = np.random.default_rng(0)
    weights = [
        (
            jnp.asarray(draw.normal(size=(WIDTH, WIDTH)) / 4, jnp.float32),
            jnp.asarray(draw.normal(size=WIDTH), jnp.float32),
        )
        for _ in range(LAYERS)
    ]
    x = jnp.linspace(-1.0, 1.0, ROWS * WIDTH, dtype=jnp.float32).reshape(ROWS, WIDTH)
    plain = flat(jax.make_jaxpr(jax.grad(network))(weights, x))
    return plain, looped(plain).program, [*jax.tree.leaves(weights), x]


def stacked_bytes(program):
    """Bytes that the loop of the forward pass leaves in stacks."""
    forward = next(eqn for eqn in program.jaxpr.eqns if eqn.primitive.name == "scan" and not is_backward(stack_of(eqn)))
    return sum(var.aval.size * var.aval.dtype.itemsize for var in forward.outvars[scan_numbers(forward.params)[1] :])


def test_cheap_values_are_not_stacked():
    """Of a layer three arrays stay: what enters, the product, and the tangent; weights are not stacked again."""
    _, written, _ = programs()
    assert stacked_bytes(written) <= 3 * LAYERS * ROWS * WIDTH * 4


def test_values_are_those_of_the_program_without_loops():
    plain, written, arguments = programs()
    for after, before in zip(jaxpr_as_fun(written)(*arguments), jaxpr_as_fun(plain)(*arguments), strict=True):
        np.testing.assert_allclose(after, before, rtol=0, atol=1e-5 * np.abs(before).max())


def test_products_run_once():
    """Products and transcendental functions are never computed again."""
    plain, written, _ = programs()

    def count(program, name):
        total = 0
        for eqn in program.jaxpr.eqns:
            if eqn.primitive.name == "scan":
                total += (
                    sum(inner.primitive.name == name for inner in eqn.params["jaxpr"].jaxpr.eqns) * eqn.params["length"]
                )
            total += eqn.primitive.name == name
        return total

    assert [count(written, name) for name in ("dot_general", "tanh")] == [
        count(plain, name) for name in ("dot_general", "tanh")
    ]
