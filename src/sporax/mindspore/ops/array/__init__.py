"""Operators that make, reshape, index, sort and search tensors."""

from sporax.mindspore.ops.array import (
    conversion,
    creation,
    gather,
    manipulation,
    rearrangement,
    repetition,
    scatter,
    sorting,
)
