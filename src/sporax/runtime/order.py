"""Collectives of one program happen in the order in which the program was written.

Ranks that exchange data twice must do so in the same order, or one would take the other's message for its own. XLA only
knows that a program is run by all ranks alike, and it

* may carry out independent collectives in any order: the same one everywhere, as long as programs are the same;
* takes a constant for the same constant everywhere, and replaces the sum of a constant over ranks by a product.

Here every rank compiles its own program, with its own rank written into it. So each operand of a collective is tied to the
result of the one before (`follow`, `happened`): one element of it is chosen by a condition that is always true, between
itself and that result. The compiler cannot know the condition, since it depends on the place along the mesh axis.

Regions that JAX traces by themselves (loop bodies, branches, `jax.checkpoint`) are ordered inside; against what is around
them they are ordered by the data they take and give.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import get_opaque_trace_state

AXIS = "rank"
"""Name of the mesh axis along which ranks lie."""

_BEYOND_ALL_RANKS = 1 << 30


class _Chains(threading.local):
    """For each trace in progress, one element of the result of its last collective."""

    latest: list[tuple[Any, jax.Array]] = []


_chains = _Chains()


@contextmanager
def in_order() -> Iterator[None]:
    """Context in which one program is traced."""
    outer, _chains.latest = _chains.latest, []
    try:
        yield
    finally:
        _chains.latest = outer


def follow(array: jax.Array) -> jax.Array:
    """The array, available only after the collective before, and not a constant for the compiler. Costs one element."""
    if not array.size:
        return array
    first = (0,) * array.ndim
    always = lax.axis_index(AXIS) < jnp.int32(_BEYOND_ALL_RANKS)
    previous = _latest()
    other = jnp.ones((), array.dtype) if previous is None else _converted(previous, array.dtype)
    return array.at[first].set(jnp.where(always, array[first], other))


def happened(result: jax.Array) -> jax.Array:
    """Note the result of a collective; returns it."""
    if result.size:
        here = get_opaque_trace_state(convention="nnx")
        others = [entry for entry in _chains.latest if entry[0] != here]
        _chains.latest = [*others, (here, result[(0,) * result.ndim])]
    return result


def _latest() -> jax.Array | None:
    here = get_opaque_trace_state(convention="nnx")
    return next((element for state, element in _chains.latest if state == here), None)


def _converted(element: jax.Array, dtype: Any) -> jax.Array:
    real = element.real if jnp.issubdtype(element.dtype, jnp.complexfloating) else element
    return real.astype(dtype)
