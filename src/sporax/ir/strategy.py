"""A user's sharding of one operator in tuple form: ``((2, 4), (4, 2))``, one tuple per tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sporax.base.errors import SporaxRuntimeError
from sporax.base.lazy_members import dataclass


@dataclass(frozen=True, slots=True)
class Strategy:
    """Numbers of slices per dimension, for every tensor input (or output) of an operator. Hashable.

    Attributes:
        counts: one tuple per tensor, with one number per dimension.

    Example:
        >>> Strategy(((2, 4), (4, 2))).check("MatMul", ((64, 32), (32, 16)), num_devices=16)
        >>> Strategy(((3, 1),)).check("ReLU", ((8, 8),), num_devices=8)
        Traceback (most recent call last):
        sporax.base.errors.SporaxRuntimeError: For 'ReLU', the number of slices of dimension 0 of tensor 0 must …
    """

    counts: tuple[tuple[int, ...], ...]

    def __str__(self) -> str:
        return str(self.counts)

    def check(self, operator: str, shapes: Sequence[tuple[int, ...]], num_devices: int) -> None:
        """Check what holds for every operator; the operator's own rule comes on top.

        Args:
            operator: what messages call it.
            shapes: of the tensors, in order.
            num_devices: devices of one pipeline stage.

        Raises:
            SporaxRuntimeError: another number of tensors or dimensions, a sharding below 1, one that is no power of 2 on
                2^n devices, one that does not divide its dimension, or a tensor sharded into more slices than devices divide.
        """
        if len(self.counts) != len(shapes):
            raise SporaxRuntimeError(
                f"For '{operator}', the strategy must have one tuple for each of the {len(shapes)} tensors, but got {self}."
            )
        for number, (counts, shape) in enumerate(zip(self.counts, shapes, strict=True)):
            check_slice_counts(operator, number, counts, shape, num_devices)


def check_slice_counts(
    operator: str, tensor: int, counts: Sequence[int], shape: tuple[int, ...], num_devices: int
) -> None:
    """Check the numbers of slices of one tensor.

    Args:
        operator: what messages call it.
        tensor: its number.
        counts: one number per dimension.
        shape: its shape.
        num_devices: devices of one pipeline stage.

    Raises:
        SporaxRuntimeError: as `Strategy.check`.
    """
    if len(counts) != len(shape):
        raise SporaxRuntimeError.must(
            operator, f"the strategy of tensor {tensor}", f"have {len(shape)} numbers for its shape {shape}", counts
        )
    for dim, (slices, size) in enumerate(zip(counts, shape, strict=True)):
        where = f"For '{operator}', the number of slices of dimension {dim} of tensor {tensor}"
        if slices < 1:
            raise SporaxRuntimeError(f"{where} must be >= 1, but got {slices} in {counts}.")
        # MindSpore's condition: on 2^n devices each axis has a power of two.
        if num_devices.bit_count() == 1 and slices.bit_count() != 1:
            raise SporaxRuntimeError(
                f"{where} must be a power of 2 on {num_devices} devices, but got {slices} in {counts}."
            )
        if size % slices:
            raise SporaxRuntimeError(
                f"For '{operator}', dimension {dim} of tensor {tensor} has size {size}, which must be divisible by its slices, "
                f"but got {slices} in {counts}."
            )
    # Devices that are left repeat the computation, so their number must be whole.
    if num_devices % math.prod(counts):
        raise SporaxRuntimeError(
            f"For '{operator}', the slices of tensor {tensor} must divide the {num_devices} devices, but {counts} makes "
            f"{math.prod(counts)}."
        )


def strategy_text(counts: Sequence[object]) -> str:
    """Tuples of numbers and Layouts as messages show them."""
    return f"({', '.join(map(str, counts))}{',' if len(counts) == 1 else ''})"
