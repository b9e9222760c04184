"""The moves of planned redistributions inside `shard_map`: one lax collective per move.

So the compiled program has the collectives of the plan. Everything between them is local reshaping and slicing.

Several tensors with the same moves are fused (`apply_redistributions`): every collective moves one flat buffer. It has one row
for every rank that keeps, or provides, a part of the tensors; the tensors are in it one after another. Moves
without communication are applied to each tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import Array

from sporax.ir.device_matrix import transposed
from sporax.lowering.execute.reductions import ALL_REDUCES, FOLDS
from sporax.planner.communication.moves import NATIVE_REDUCTIONS, Move, MoveKind, Redistribution
from sporax.planner.communication.transfers import FUSIBLE_MOVES
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


def apply_redistributions(
    arrays: Sequence[Array], redistributions: Sequence[Redistribution], axis_names: tuple[str, ...]
) -> list[Array]:
    """Bring slices of tensors of one dtype from their sources to their targets.

    Args:
        arrays: one rank's slices, as the sources shard the tensors.
        redistributions: of each; all have the same kinds of moves along the same axes.
        axis_names: the name that the surrounding `shard_map` gives to each mesh axis.

    Returns:
        Slices of the shapes `local_target`; parts of them where the target is partial.
    """
    if not redistributions[0].moves:
        # Arrays without elements have other slices without any move.
        return [
            array if array.shape == redistribution.local_target else jnp.zeros(redistribution.local_target, array.dtype)
            for array, redistribution in zip(arrays, redistributions, strict=True)
        ]
    # In the factored shape, every move works on whole dimensions.
    arrays = [
        array.reshape(redistribution.factored) for array, redistribution in zip(arrays, redistributions, strict=True)
    ]
    # The moves go side by side: all tensors take the same step before the next one begins.
    for moves in zip(*(redistribution.moves for redistribution in redistributions), strict=True):
        if len(arrays) > 1 and moves[0].kind in FUSIBLE_MOVES:
            arrays = _in_one_buffer(arrays, moves, tuple(axis_names[axis] for axis in moves[0].axes))
        else:
            arrays = [apply_move(array, move, axis_names) for array, move in zip(arrays, moves, strict=True)]
    return [
        array.reshape(redistribution.local_target)
        for array, redistribution in zip(arrays, redistributions, strict=True)
    ]


def _in_one_buffer(arrays: Sequence[Array], moves: Sequence[Move], names: tuple[str, ...]) -> list[Array]:
    members = jax.lax.axis_size(names)
    # Scattered, every rank keeps one row, so each tensor must first be dealt out over all rows.
    # An all-reduce or all-gather takes any order of elements, so one row is enough.
    scatters = moves[0].kind is MoveKind.REDUCE_SCATTER
    rows = [
        _as_rows(array, move.target, members) if scatters else array.reshape(1, -1)
        for array, move in zip(arrays, moves, strict=True)
    ]
    packed = jnp.concatenate(rows, axis=1)
    buffer: Array = (
        reduce_scatter(packed, moves[0], names, 0) if scatters else _COLLECTIVES[moves[0].kind](packed, names)
    )
    pieces, start = [], 0
    for array, move, row in zip(arrays, moves, rows, strict=True):
        piece = jax.lax.slice_in_dim(buffer, start, start + row.shape[1], axis=1)
        pieces.append(_from_rows(piece, array.shape, move, members))
        start += row.shape[1]
    return pieces


_COLLECTIVES: dict[MoveKind, Callable[..., Array]] = {
    MoveKind.ALL_REDUCE: jax.lax.psum,
    MoveKind.ALL_GATHER: lambda buffer, names: jax.lax.all_gather(buffer, names, axis=0, tiled=True),
}


def _as_rows(array: Array, dim: int, rows: int) -> Array:
    """A tensor as a matrix with one row per rank that keeps a part of dimension `dim`."""
    # The scattered dimension first: rows are then contiguous pieces of it.
    return jnp.moveaxis(array, dim, 0).reshape(rows, -1)


def _from_rows(rows: Array, shape: tuple[int, ...], move: Move, members: int) -> Array:
    """The slice that a rank has after a move, of the rows that it has then.

    Args:
        rows: one row, or after an all-gather one from every member.
        shape: of the slice before the move.
    """
    if move.kind is MoveKind.ALL_REDUCE:
        return rows.reshape(shape)
    if move.kind is MoveKind.ALL_GATHER:
        # Pieces arrive one member after another and belong behind each other in the gathered dimension.
        gathered = (*shape[: move.source], members * shape[move.source], *shape[move.source + 1 :])
        return jnp.moveaxis(rows.reshape(members, *shape), 0, move.source).reshape(gathered)
    layout = (shape[move.target] // members, *shape[: move.target], *shape[move.target + 1 :])
    return jnp.moveaxis(rows.reshape(layout), 0, move.target)
