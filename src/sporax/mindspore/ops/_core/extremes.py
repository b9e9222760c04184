"""Largest and smallest elements whose gradient does not depend on how XLA rounds.

Problem: JAX's derivative of a maximum compares the operand with the maximum and divides by the number of equal elements.
XLA may compute the operand a second time for that comparison, fused with other operators and so rounded in another way. Then
no element equals the maximum and the gradient is 0/0.

The derivative of the larger of two elements has the same weakness: it may find that neither is the larger one, and be lost.

Method: elements that are equal to the maximum share its gradient, as in MindSpore. Where no element is equal, they share it
with softmax weights of a low temperature (`SHARPNESS`), so nearly all of it goes to the element nearest to the maximum. The
temperature is relative to the mean distance from the maximum, so the weights depend neither on the scale of the operand nor
on its last bits, and their sum never vanishes. Two elements are compared with each
other and not with the result.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

Array = jax.Array
Axes = int | tuple[int, ...] | None

SHARPNESS = 4096.0
"""Inverse temperature: an element that is further away than the nearest one by 1/100 of the mean distance weighs exp(-41)."""
LEAST_WEIGHT = 1e-30
"""Keeps the sum of the weights positive where all distances are rounding errors, each read in another way."""


def largest(x: Array, axis: Axes = None, keepdims: bool = False, initial: Any = None, where: Any = None) -> Array:
    """Largest element over `axis`; not less than `initial`; only of the elements in the mask `where`."""
    # Integers have no gradient, and JAX raises its own error for nothing to choose from.
    if not _is_smooth(x):
        return jnp.max(x, axis, keepdims=keepdims, initial=initial, where=where)
    # Masked elements become neutral; so they can be an extreme only where all are masked.
    values = x if where is None else jnp.where(where, x, jnp.asarray(-jnp.inf if initial is None else initial, x.dtype))
    result = _largest(values, axis, keepdims)
    # `initial` is an element like others and shares the gradient where it is equal.
    return result if initial is None else larger(result, initial)


def smallest(x: Array, axis: Axes = None, keepdims: bool = False, initial: Any = None, where: Any = None) -> Array:
    """Smallest element over `axis`; not more than `initial`; only of the elements in the mask `where`."""
    if not _is_smooth(x):
        return jnp.min(x, axis, keepdims=keepdims, initial=initial, where=where)
    values = x if where is None else jnp.where(where, x, jnp.asarray(jnp.inf if initial is None else initial, x.dtype))
    result = _smallest(values, axis, keepdims)
    return result if initial is None else smaller(result, initial)


def spread(x: Array, axis: Axes = None, keepdims: bool = False) -> Array:
    """Largest minus smallest element over `axis`."""
    return largest(x, axis, keepdims) - smallest(x, axis, keepdims)


def largest_number(x: Array, axis: Axes = None, keepdims: bool = False) -> Array:
    """Largest element over `axis` that is a number; NaN where there is none."""
    return _of_numbers(largest, -jnp.inf, x, axis, keepdims)


def smallest_number(x: Array, axis: Axes = None, keepdims: bool = False) -> Array:
    """Smallest element over `axis` that is a number; NaN where there is none."""
    return _of_numbers(smallest, jnp.inf, x, axis, keepdims)


def larger(x: Array, y: Any) -> Array:
    """The larger of two elements; equal ones share the gradient."""
    return _larger(*_of_one_type(x, y))


def smaller(x: Array, y: Any) -> Array:
    """The smaller of two elements; equal ones share the gradient."""
    return _smaller(*_of_one_type(x, y))


def limited(x: Array, low: Any, high: Any) -> Array:
    """`x`, not less than `low` and not more than `high`."""
    return smaller(larger(x, low), high)


def magnitude(x: Array) -> Array:
    """The absolute value, with gradient 0 at 0."""
    # JAX's gradient of |x| at 0 depends on the dtype; x · sign(x) gives 0, as MindSpore.
    return jnp.abs(x) if jnp.iscomplexobj(x) or x.dtype == jnp.bool_ else x * jnp.sign(x)


def _of_one_type(x: Array, y: Any) -> tuple[Array, Array]:
    # Promoted before comparing: a derivative needs both tangents in one dtype.
    dtype = jnp.result_type(x, y)
    one, other = jnp.broadcast_arrays(jnp.asarray(x, dtype), jnp.asarray(y, dtype))
    return one, other


def _of_numbers(extreme: Any, lowest: float, x: Array, axis: Axes, keepdims: bool) -> Array:
    if not _is_smooth(x):
        return extreme(x, axis, keepdims)
    # Replaced and not compared: a NaN would win any comparison in XLA's maximum.
    result = extreme(jnp.where(jnp.isnan(x), jnp.asarray(lowest, x.dtype), x), axis, keepdims)
    return jnp.where(jnp.all(jnp.isnan(x), axis, keepdims=keepdims), jnp.asarray(jnp.nan, x.dtype), result)


def _is_smooth(x: Array) -> bool:
    """Whether a gradient reaches `x` and there are elements to choose from."""
    return bool(jnp.issubdtype(x.dtype, jnp.floating)) and x.size > 0


@partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def _largest(x: Array, axis: Axes, keepdims: bool) -> Array:
    return jnp.max(x, axis, keepdims=keepdims)


@partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def _smallest(x: Array, axis: Axes, keepdims: bool) -> Array:
    return jnp.min(x, axis, keepdims=keepdims)


def _chosen(x: Array, extreme: Array, axis: Axes, upwards: bool) -> Array:
    """How the elements of `x` share the gradient of `extreme`: weights with sum 1 over `axis`."""
    # Half precision cannot count more than 2048 equal elements.
    wide = jnp.promote_types(x.dtype, jnp.float32)
    distance = (extreme - x if upwards else x - extreme).astype(wide)
    equal = (x >= extreme if upwards else x <= extreme).astype(wide)
    count = jnp.sum(equal, axis, keepdims=True)

    finite = distance < jnp.inf  # masks are made of infinities; a NaN stays one
    mean = jnp.sum(jnp.where(finite, distance, 0), axis, keepdims=True) / jnp.sum(
        finite, axis, keepdims=True, dtype=wide
    )
    # Relative to the nearest element, so that the largest exponent is 0 and nothing underflows as a whole.
    further = jnp.maximum(distance - jnp.min(distance, axis, keepdims=True), 0)
    near = jnp.where(finite, jnp.exp(-SHARPNESS * further / mean) + LEAST_WEIGHT, 0)
    weights = jnp.where(count > 0, equal, near) / jnp.where(count > 0, count, jnp.sum(near, axis, keepdims=True))
    # Weights are constants of the derivative: the second derivative of an extreme is zero, as in MindSpore.
    return jax.lax.stop_gradient(weights).astype(x.dtype)


@_largest.defjvp
def _largest_jvp(axis: Axes, keepdims: bool, primals: Any, tangents: Any) -> tuple[Array, Array]:
    return _with_tangent(_largest, True, axis, keepdims, primals[0], tangents[0])


@_smallest.defjvp
def _smallest_jvp(axis: Axes, keepdims: bool, primals: Any, tangents: Any) -> tuple[Array, Array]:
    return _with_tangent(_smallest, False, axis, keepdims, primals[0], tangents[0])


def _with_tangent(
    function: Any, upwards: bool, axis: Axes, keepdims: bool, x: Array, tangent: Array
) -> tuple[Array, Array]:
    # With the reduced dims, so that it broadcasts against the operand.
    extreme = function(x, axis, True)
    total = jnp.sum(_chosen(x, extreme, axis, upwards) * tangent, axis, keepdims=True)
    if keepdims:
        return extreme, total
    # Squeezed here: the weights need the dims, the result does not.
    squeezed = tuple(range(x.ndim)) if axis is None else axis
    return jnp.squeeze(extreme, squeezed), jnp.squeeze(total, squeezed)


@jax.custom_jvp
def _larger(x: Array, y: Array) -> Array:
    return jnp.maximum(x, y)


@jax.custom_jvp
def _smaller(x: Array, y: Array) -> Array:
    return jnp.minimum(x, y)


@_larger.defjvp
# Compared with each other: the result may have been rounded in another fusion.
def _larger_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    x, y = primals
    return _larger(x, y), _of_winner(x > y, x == y, *tangents)


@_smaller.defjvp
def _smaller_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    x, y = primals
    return _smaller(x, y), _of_winner(x < y, x == y, *tangents)


def _of_winner(first: Array, both: Array, one: Array, other: Array) -> Array:
    if one.dtype == jax.dtypes.float0:
        return one
    half = jnp.asarray(0.5, one.dtype)
    # Half for each of two equal elements, as in MindSpore.
    return jnp.where(first, one, jnp.where(both, half * one + half * other, other))
