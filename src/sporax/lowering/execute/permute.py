"""Collective-permute over several axes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import jax


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
    renumbered = []
    for place in itertools.product(*map(range, sizes)):
        number = 0
        for position in order:
            number = number * sizes[position] + place[position]
        renumbered.append(number)
    names = tuple(axis_names[axes[position]] for position in order)
    return jax.lax.ppermute(x, names, [(renumbered[sender], renumbered[receiver]) for sender, receiver in pairs])
