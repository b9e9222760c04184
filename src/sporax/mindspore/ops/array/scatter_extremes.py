"""Maximum and minimum of a position and its updates, whose gradient does not depend on how XLA rounds.

Problem and method are those of `sporax.mindspore.ops._core.extremes`, with the position and its updates in the place of the
elements along an axis: those that equal the result share its gradient; where rounding leaves none, the nearest ones do, with
softmax weights. What starts at the dtype's last number, as a segment without rows does, is no number to measure distances from.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from sporax.mindspore.ops._core.extremes import LEAST_WEIGHT, SHARPNESS

Array = jax.Array
Index = tuple[Any, ...]


@partial(jax.custom_jvp, nondiff_argnums=(3,))
def extreme_at(target: Array, index: Index, updates: Array, upwards: bool) -> Array:
    """`target` with the largest (smallest where not `upwards`) of the position and its updates; for floats."""
    place = target.at[index]
    return place.max(updates, mode="drop") if upwards else place.min(updates, mode="drop")


@extreme_at.defjvp
def _extreme_at_jvp(
    upwards: bool, primals: tuple[Array, Index, Array], tangents: tuple[Array, Any, Array]
) -> tuple[Array, Array]:
    target, index, updates = primals
    result = extreme_at(target, index, updates, upwards)
    own, theirs = _shares(target, index, updates, result, upwards)
    # Tangents of the positions are in the same shape as the target, those of updates are added to theirs.
    return result, (own * tangents[0]).at[index].add(theirs * tangents[2], mode="drop")


def _shares(target: Array, index: Index, updates: Array, result: Array, upwards: bool) -> tuple[Array, Array]:
    """How a position and its updates share the gradient of the result: weights with sum 1."""
    # Half precision cannot count many equal elements.
    wide = jnp.promote_types(target.dtype, jnp.float32)

    def total(own: Array, theirs: Array) -> Array:
        return own.at[index].add(theirs, mode="drop")

    def seen(positions: Array) -> Array:
        # 1 for positions out of range, so that divisions there are harmless.
        return positions.at[index].get(mode="fill", fill_value=1)

    at_updates = seen(result)
    equal = [(target == result).astype(wide), (updates == at_updates).astype(wide)]
    count = total(*equal)

    sign = 1 if upwards else -1
    distance = [sign * (result - target).astype(wide), sign * (at_updates - updates).astype(wide)]
    last = jnp.finfo(target.dtype).min if upwards else jnp.finfo(target.dtype).max
    # The start value of an empty segment is no distance, see above.
    measured = [(distance[0] < jnp.inf) & (target != last), (distance[1] < jnp.inf) & (updates != last)]
    mean = total(*(jnp.where(use, far, 0) for use, far in zip(measured, distance, strict=True)))
    mean = mean / total(*(use.astype(wide) for use in measured))
    far = [jnp.where(use, value, jnp.inf) for use, value in zip(measured, distance, strict=True)]
    nearest = far[0].at[index].min(far[1], mode="drop")

    def near(use: Array, value: Array, least: Array, scale: Array) -> Array:
        further = jnp.maximum(value - least, 0)
        return jnp.where(use, jnp.exp(-SHARPNESS * further / scale) + LEAST_WEIGHT, 0)

    close = [near(measured[0], distance[0], nearest, mean), near(measured[1], distance[1], seen(nearest), seen(mean))]
    # Equal elements share alone; near ones only where rounding left none equal.
    divisor = jnp.where(count > 0, count, total(*close))
    own = jnp.where(count > 0, equal[0], close[0]) / divisor
    theirs = jnp.where(seen(count) > 0, equal[1], close[1]) / seen(divisor)
    # Weights are constants of the derivative.
    return jax.lax.stop_gradient(own).astype(target.dtype), jax.lax.stop_gradient(theirs).astype(target.dtype)
