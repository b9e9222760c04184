"""Operators that make, reshape, index, sort and search tensors."""

from sporax.mindspore.ops.array import (
    conversion,
    creation,
    gather,
    join_split,
    manipulation,
    padding,
    rearrangement,
    repetition,
    scatter,
    segment,
    sorting,
)
