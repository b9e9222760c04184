"""The moves of planned redistributions inside `shard_map`: one lax collective per move.

So the compiled program has the collectives of the plan. Everything between them is local reshaping and slicing.

Collective-permute over several axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import Array

from sporax.ir.device_matrix import transposed
from sporax.lowering.execute.reductions import ALL_REDUCES, FOLDS
from sporax.planner.communication.moves import NATIVE_REDUCTIONS, Move, MoveKind
from sporax.planner.rules.language import IDEMPOTENT


def permute(
    x: jax.Array, axes: Sequence[int], axis_names: Sequence[str], pairs: Sequence[tuple[int, int]]
) -> jax.Array:
    """Send `x` from the first place of every pair to the second; zeros where nothing arrives.

    `jax.lax.ppermute` counts places in the order of the mesh, whatever the order in which axes are listed (the other
    collectives count as listed), so the places are counted again.

    Args:
        x: one rank's slice.
        axes: positions of the mesh axes, the first one counting the largest steps.
        axis_names: the name of every mesh axis.
        pairs: (sender, receiver) places along `axes`.
    """
    sizes = [jax.lax.axis_size(axis_names[axis]) for axis in axes]
    # The order of the mesh, in which `ppermute` counts.
    order = sorted(range(len(axes)), key=lambda position: axes[position])
    in_order = [sizes[position] for position in order]
    renumbered = transposed(in_order, [order.index(position) for position in range(len(axes))])
    names = tuple(axis_names[axes[position]] for position in order)
    return jax.lax.ppermute(x, names, [(renumbered[sender], renumbered[receiver]) for sender, receiver in pairs])


def apply_move(x: Array, move: Move, axis_names: tuple[str, ...]) -> Array:
    """One move of a stretched slice."""
    if move.kind is MoveKind.PERMUTE:
        return permute(x, move.axes, axis_names, move.pairs)
    return _MOVES[move.kind](x, move, tuple(axis_names[axis] for axis in move.axes))


def _slice(x: Array, move: Move, names: tuple[str, ...]) -> Array:
    size = x.shape[move.target] // jax.lax.axis_size(names)
    start = jax.lax.axis_index(names) * size
    return jax.lax.dynamic_slice_in_dim(x, start, size, axis=move.target)


def _all_gather(x: Array, move: Move, names: tuple[str, ...]) -> Array:
    return jax.lax.all_gather(x, names, axis=move.source, tiled=True)


def _all_to_all(x: Array, move: Move, names: tuple[str, ...]) -> Array:
    return jax.lax.all_to_all(x, names, split_axis=move.target, concat_axis=move.source, tiled=True)


def _reduce_scatter(x: Array, move: Move, names: tuple[str, ...]) -> Array:
    return reduce_scatter(x, move, names, move.target)


def reduce_scatter(x: Array, move: Move, names: tuple[str, ...], dim: int) -> Array:
    """Combine what the ranks along `names` have, and leave each its piece of dimension `dim`.

    XLA scatters sums only, and those not on all devices (`sporax.runtime.world.has_reduce_scatter`); otherwise the parts
    are traded and combined here, for the same bytes.
    """
    if not move.trades_parts:
        return jax.lax.psum_scatter(x, names, scatter_dimension=dim, tiled=True)
    members = jax.lax.axis_size(names)
    # An all-to-all hands every member all parts of its piece: as many bytes as a reduce-scatter.
    parts = jnp.stack(jnp.split(x, members, axis=dim))
    return FOLDS[move.reduction](jax.lax.all_to_all(parts, names, split_axis=0, concat_axis=0, tiled=True))


def _all_reduce(x: Array, move: Move, names: tuple[str, ...]) -> Array:
    if move.reduction not in NATIVE_REDUCTIONS:
        return FOLDS[move.reduction](jax.lax.all_gather(x, names))
    return ALL_REDUCES[move.reduction](x, names)


def _mask(x: Array, move: Move, names: tuple[str, ...]) -> Array:
    """Copies become parts: the first rank keeps its copy, the others hold what adds nothing (or the same extreme)."""
    # Idempotent: the same value counted on every rank changes nothing.
    if move.reduction in IDEMPOTENT:
        return x
    neutral = jnp.full_like(x, 1 if move.reduction == "prod" else 0)
    return jnp.where(jax.lax.axis_index(names) == 0, x, neutral)


_MOVES: dict[MoveKind, Callable[[Array, Move, tuple[str, ...]], Array]] = {
    MoveKind.SLICE: _slice,
    MoveKind.ALL_GATHER: _all_gather,
    MoveKind.ALL_TO_ALL: _all_to_all,
    MoveKind.REDUCE_SCATTER: _reduce_scatter,
    MoveKind.ALL_REDUCE: _all_reduce,
    MoveKind.MASK: _mask,
}
