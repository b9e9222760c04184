"""Operators that make, reshape, index, sort and search tensors."""

from sporax.ops.array import (
    conversion,
    creation,
    gather,
    manipulation,
    padding,
    scatter,
    search,
    segment,
    shaping,
    sorting,
)
