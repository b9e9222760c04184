"""The named dimensions of one call of an operator, and whether a sharding keeps its limits.

What an operator states is in its mark (`ir.operator_dims`). Here is what holds for operators that state nothing, and for
calls whose dimensions they cannot name.
"""

from __future__ import annotations

import itertools

from sporax.ir.marks import OperatorMark
from sporax.ir.operator_dims import Dims, NumSlices, Shapes, numbered


def dims_of(mark: OperatorMark, shapes: Shapes) -> Dims:
    """The named dimensions of an operator on inputs of these shapes."""
    # An operator that states nothing is taken for elementwise: custom operators mostly are.
    named = mark.dims.names(mark, shapes) if mark.dims.names is not None else _aligned(shapes)
    return named or _separate(shapes)


def check_limits(mark: OperatorMark, shapes: Shapes, slices: NumSlices, num_devices: int) -> None:
    """Check one call of an operator.

    Args:
        mark: the operator with its attributes.
        shapes, slices: of its inputs.
        num_devices: of one stage.

    Raises:
        SporaxRuntimeError: it cannot be sharded in this way.
    """
    # An input that is not sharded meets every limit.
    if mark.dims.limits is not None and any(parts > 1 for entry in slices for parts in entry):
        mark.dims.limits(mark, shapes, slices, num_devices)


def _aligned(shapes: Shapes) -> Dims | None:
    """Inputs that are stretched to one shape: dimensions are counted from the right."""
    if not _broadcasts(shapes):
        return None
    rank = max(map(len, shapes), default=0)
    names = numbered(rank)
    return Dims(tuple(names[rank - len(shape) :] for shape in shapes), order=names)


def _broadcasts(shapes: Shapes) -> bool:
    for sizes in itertools.zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1):
        # Dimensions of size one stretch, so they fit every other size.
        if len({size for size in sizes if size != 1}) > 1:
            return False
    return True


def _separate(shapes: Shapes) -> Dims:
    """Nothing is known but that inputs which start with the same size have the batch there."""
    # The input with most dimensions has the batch first; others share it if their first size is the same.
    batch = max(shapes, key=len, default=())[:1]
    # The input's number in the name keeps dimensions of different inputs apart.
    named = [numbered(len(shape), letter=f"{number}.") for number, shape in enumerate(shapes)]
    return Dims(
        tuple(
            ("batch", *names[1:]) if shape[:1] == batch and names else names
            for names, shape in zip(named, shapes, strict=True)
        )
    )
