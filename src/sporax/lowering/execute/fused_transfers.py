"""Planned redistributions inside `shard_map`, of one tensor or fused: of several with the same moves, every collective moves one
flat buffer.

A buffer has one row for every rank that keeps, or provides, a part of the tensors; the tensors are in it one after
another. Moves without communication are applied to each tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import Array

from sporax.lowering.execute.redistribute import apply_move, reduce_scatter
from sporax.planner.communication.moves import Move, MoveKind, Redistribution
from sporax.planner.communication.transfers import FUSIBLE_MOVES


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
        move: what happened.
        members: ranks that took part.
    """
    if move.kind is MoveKind.ALL_REDUCE:
        return rows.reshape(shape)
    if move.kind is MoveKind.ALL_GATHER:
        # Pieces arrive one member after another and belong behind each other in the gathered dimension.
        gathered = (*shape[: move.source], members * shape[move.source], *shape[move.source + 1 :])
        return jnp.moveaxis(rows.reshape(members, *shape), 0, move.source).reshape(gathered)
    layout = (shape[move.target] // members, *shape[: move.target], *shape[move.target + 1 :])
    return jnp.moveaxis(rows.reshape(layout), 0, move.target)
