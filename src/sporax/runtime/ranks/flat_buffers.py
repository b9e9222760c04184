"""Many small arrays in few collectives: arrays of one bucket are sent as one flat buffer.

A *fusion id* is given to each array: 0 is sent alone, equal positive ids (and dtypes) are sent together. `buckets` turns ids
into groups of positions, last position first, which is the order in which a backward pass computes gradients, so that
the first bucket can be sent while the rest is computed. `reduce_buckets` carries them out: inside a compiled step as part
of it, otherwise as a program that packs, one for each collective, and one that unpacks, so that only buffers and not
single arrays change from local to joint form.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from sporax.base.lazy_members import dataclass
from sporax.runtime.ranks import collectives
from sporax.runtime.ranks.groups import Group

Bucket = tuple[int, ...]


def buckets(ids: Sequence[int], dtypes: Sequence[Any]) -> tuple[Bucket, ...]:
    """Positions that are sent together; the bucket that a backward pass completes first comes first."""
    members: dict[Any, list[int]] = {}
    for position, (number, dtype) in enumerate(zip(ids, dtypes, strict=True)):
        # A buffer has one dtype; 0 requests a collective of its own, so the position makes the key unique.
        key = (number, jnp.dtype(dtype)) if number else position
        members.setdefault(key, []).append(position)
    return tuple(sorted(map(tuple, members.values()), key=lambda bucket: -bucket[0]))


@dataclass(frozen=True, slots=True)
class Reduction:
    """How gradients are combined.

    Attributes:
        group: between whom.
        buckets: positions that are sent together.
        scale: factor for the sums, None for none.
    """

    group: Group
    buckets: tuple[Bucket, ...]
    scale: float | None = None


def travelling_dtype(dtype: Any) -> Any:
    """The dtype in which a gradient is summed: at least 32-bit floats."""
    return jnp.promote_types(dtype, jnp.float32)


def reduce_buckets(reduction: Reduction, arrays: Sequence[jax.Array]) -> list[jax.Array]:
    """Sum arrays over the group, bucket by bucket, in at least float32; they come back in their own dtypes."""
    shapes = tuple((array.shape, array.dtype) for array in arrays)
    results = list(arrays)
    sums = [
        # Packing first: a conversion to joint form costs microseconds, and there are fewer buffers than arrays.
        collectives.run(collectives.AllReduce(reduction.group), buffer)
        for buffer in _pack(reduction.buckets, list(arrays))
    ]
    for position, result in _unpack(reduction, shapes, sums).items():
        results[position] = result
    return results


def without(reduction: Reduction, positions: Collection[int]) -> Reduction:
    """The reduction of all arrays but those at these positions."""
    remaining = (tuple(position for position in bucket if position not in positions) for bucket in reduction.buckets)
    return replace(reduction, buckets=tuple(filter(None, remaining)))


def gather_rows(reduction: Reduction, indices: jax.Array, values: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Indices (rows,) and values (rows, …) of all members one after another, the values scaled as the sums would be."""
    gather = collectives.AllGather(reduction.group)
    everywhere, rows = collectives.run(gather, indices), collectives.run(gather, values)
    if reduction.scale is not None:
        # In the same wide dtype as `reduce_buckets`, so both ways round equally.
        wide = rows.astype(travelling_dtype(values.dtype))
        rows = (wide * jnp.asarray(reduction.scale, wide.dtype)).astype(values.dtype)
    return everywhere, rows


def broadcast_buckets(group: Group, root: int, arrays: Sequence[jax.Array]) -> list[jax.Array]:
    """The arrays of world rank `root`, bit by bit, one buffer for each dtype."""
    # One id for all arrays, so that only dtypes divide them.
    together = buckets([1] * len(arrays), [array.dtype for array in arrays])
    flat = [jnp.concatenate([arrays[position].ravel() for position in bucket]) for bucket in together]
    received = collectives.run(collectives.Broadcast(group, root), *flat)
    results = list(arrays)
    for bucket, buffer in zip(together, received, strict=True):
        for position, piece in zip(bucket, _divided(buffer, [arrays[p].shape for p in bucket]), strict=True):
            results[position] = piece
    return results


@partial(jax.jit, static_argnums=0)
def _pack(plan: tuple[Bucket, ...], arrays: list[jax.Array]) -> list[jax.Array]:
    def pack(bucket: Bucket) -> jax.Array:
        pieces = [arrays[position].astype(travelling_dtype(arrays[position].dtype)) for position in bucket]
        # A single array keeps its shape: flattening it would only add a copy.
        return pieces[0] if len(pieces) == 1 else jnp.concatenate([piece.ravel() for piece in pieces])

    return [pack(bucket) for bucket in plan]


@partial(jax.jit, static_argnums=(0, 1))
def _unpack(reduction: Reduction, shapes: tuple[Any, ...], sums: list[jax.Array]) -> dict[int, jax.Array]:
    results = {}
    for bucket, buffer in zip(reduction.buckets, sums, strict=True):
        if reduction.scale is not None:
            buffer = buffer * jnp.asarray(reduction.scale, buffer.dtype)
        pieces = [buffer] if len(bucket) == 1 else _divided(buffer, [shapes[position][0] for position in bucket])
        for position, piece in zip(bucket, pieces, strict=True):
            results[position] = piece.astype(shapes[position][1])
    return results


def _divided(buffer: jax.Array, shapes: Sequence[tuple[int, ...]]) -> list[jax.Array]:
    pieces, start = [], 0
    for shape in shapes:
        size = math.prod(shape)
        pieces.append(buffer[start : start + size].reshape(shape))
        start += size
    return pieces
