"""Reductions across devices that give what one device gives: sums in an order of their own, maxima and minima that keep NaN.

Problem: what an all-reduce of floats gives depends on the order that it adds in, and those of some compilers (XLA's for CPUs)
drop NaN, so that a check for overflow would see nothing.

Method: the order of a sum is in the program, whatever else is compiled with it. Floats whose extremes are sought are sent as
integers in the order of IEEE 754 (its totalOrder predicate), with NaN beyond the infinity that wins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

_FLOAT32_BYTES = 4
_INTEGERS = {4: (np.int32, 2**31 - 1), 8: (np.int64, 2**63 - 1)}
"""What all compilers combine and its largest value, by bytes; smaller floats are sent as float32."""


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


def _extreme(
    x: Array, names: str | tuple[str, ...], *, axis_index_groups: Sequence[Sequence[int]] | None = None, largest: bool
) -> Array:
    """The largest (or least) element at each place of the arrays along `names`, or NaN where one of them has it."""
    combine: Callable[..., Array] = jax.lax.pmax if largest else jax.lax.pmin
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return combine(x, names, axis_index_groups=axis_index_groups)
    wide = x if x.dtype.itemsize in _INTEGERS else x.astype(jnp.float32)
    dtype, highest = _INTEGERS[wide.dtype.itemsize]
    ordered = _turned(jax.lax.bitcast_convert_type(wide, dtype), highest)
    ordered = jnp.where(jnp.isnan(wide), highest if largest else -highest - 1, ordered)
    extreme = _turned(combine(ordered, names, axis_index_groups=axis_index_groups), highest)
    return jax.lax.bitcast_convert_type(extreme, wide.dtype).astype(x.dtype)


def _turned(bits: Array, highest: int) -> Array:
    """The bits of negative floats, which count downwards, in the order of integers; and back."""
    return jnp.where(bits < 0, bits ^ highest, bits)


ALL_REDUCES: dict[str, Callable[..., Array]] = {
    "sum": jax.lax.psum,
    "max": partial(_extreme, largest=True),
    "min": partial(_extreme, largest=False),
}
"""By reduction: of an array, names of mesh axes and, if not all are one group, `axis_index_groups`."""
FOLDS: dict[str, Callable[[Array], Array]] = {
    "sum": sum_in_order,
    "max": lambda parts: jnp.max(parts, axis=0),
    "min": lambda parts: jnp.min(parts, axis=0),
    "prod": lambda parts: jnp.prod(parts, axis=0, dtype=parts.dtype),  # which JAX would widen
    "and": one_by_one(jax.lax.bitwise_and),
    "or": one_by_one(jax.lax.bitwise_or),
    "xor": one_by_one(jax.lax.bitwise_xor),
}
"""By reduction: combine parts that are stacked along dimension 0."""
