"""Sums whose order is in the program: what they give does not depend on what else is compiled with them."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

Array = jax.Array
"""A jax.Array or a tracer."""
_FLOAT32_BYTES = 4


def one_by_one(function: Callable[[Array, Array], Array]) -> Callable[[Array], Array]:
    """Combines parts that are stacked along dimension 0, one after the other."""

    def fold(parts: Array) -> Array:
        result = parts[0]
        for number in range(1, parts.shape[0]):
            result = function(result, parts[number])
        return result

    return fold


def sum_in_order(parts: Array) -> Array:
    """The sum of parts that are stacked along dimension 0: ((first + second) + third) + …, whatever else the program has.

    Floats of two bytes or one are added in float32 and rounded once.
    """
    small = jnp.issubdtype(parts.dtype, jnp.floating) and parts.dtype.itemsize < _FLOAT32_BYTES
    return one_by_one(jax.lax.add)(parts.astype(jnp.float32) if small else parts).astype(parts.dtype)
