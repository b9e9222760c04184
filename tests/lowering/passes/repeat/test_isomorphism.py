"""Which equations can stand for each other."""

import jax
import jax.numpy as jnp

from sporax.lowering.passes.repeat.recomputed_values import comparable, numbered


def numbers_of(function, *arguments):
    return numbered(jax.make_jaxpr(function)(*arguments).jaxpr.eqns).tolist()


def test_the_same_operation_on_the_same_types_gets_the_same_number():
    first, second, third = numbers_of(lambda x: jnp.tanh(jnp.tanh(x)) + x, jnp.ones(3))
    assert first == second != third


def test_other_shapes_get_another_number():
    numbers = numbers_of(lambda x, y: (jax.lax.tanh(x), jax.lax.tanh(y)), jnp.ones(3), jnp.ones(4))
    assert len(set(numbers)) == 2


def test_other_settings_get_another_number():
    numbers = numbers_of(lambda x: (jax.lax.cumsum(x, 0), jax.lax.cumsum(x, 1)), jnp.ones((2, 2)))
    assert len(set(numbers)) == 2


def test_numbers_of_layers_do_not_distinguish_their_equations():
    def layers(x):
        for index in range(2):
            with jax.named_scope(f"blocks.{index}"):
                x = jax.lax.tanh(x)
        with jax.named_scope("head"):
            return jax.lax.tanh(x)

    first, second, head = numbers_of(layers, jnp.ones(3))
    assert first == second != head


def test_equations_with_effects_are_like_no_other():
    def talking(x):
        jax.debug.callback(print, x)
        jax.debug.callback(print, x)
        return x

    first, second = numbers_of(talking, jnp.ones(3))
    assert first != second


def test_bodies_are_compared_by_their_text():
    first, second = (jax.make_jaxpr(lambda x: x * 2)(jnp.ones(3)).jaxpr for _ in range(2))
    assert comparable(first) == comparable(second)
    assert comparable(first) != comparable(jax.make_jaxpr(lambda x: x + 2)(jnp.ones(3)).jaxpr)
