"""All placements of small tensors, for tests that try each one."""

import itertools
from collections.abc import Iterator

from sporax.ir.placement import Placement


def every_placement(num_dims: int, num_axes: int) -> Iterator[Placement]:
    """All placements of complete tensors: every axis unused or in some dimension, in every order."""
    # Each axis is in one dimension or in none, and within a dimension the order counts.
    for owners in itertools.product(range(-1, num_dims), repeat=num_axes):
        members = [[axis for axis, owner in enumerate(owners) if owner == dim] for dim in range(num_dims)]
        for dims in itertools.product(*(itertools.permutations(axes) for axes in members)):
            yield Placement(dims)
