"""What a user says about the cuts of one operator, in tuple form: ``((2, 4), (4, 2))``, one tuple per tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sporax.ir.errors import SporaxRuntimeError


@dataclass(frozen=True, slots=True)
class Strategy:
    """Numbers of slices per dimension, for every tensor input (or output) of an operator. Hashable.

    Attributes:
        cuts: one tuple per tensor, with one number per dimension.

    Example:
        >>> Strategy(((2, 4), (4, 2))).check("MatMul", ((64, 32), (32, 16)), num_devices=16)
        >>> Strategy(((3, 1),)).check("ReLU", ((8, 8),), num_devices=8)
        Traceback (most recent call last):
        sporax.ir.errors.SporaxRuntimeError: For 'ReLU', a cut must be a power of 2 on 8 devices, but got 3 in ((3, 1),).
    """

    cuts: tuple[tuple[int, ...], ...]

    def __str__(self) -> str:
        return str(self.cuts)

    def check(self, operator: str, shapes: Sequence[tuple[int, ...]], num_devices: int) -> None:
        """Check what holds for every operator; the operator's own rule comes on top.

        Args:
            operator: what messages call it.
            shapes: of the tensors, in order.
            num_devices: devices of one pipeline stage.

        Raises:
            SporaxRuntimeError: another number of tensors or dimensions, a cut below 1, one that is no power of 2 on
                2^n devices, one that does not divide its dimension, or a tensor cut into more slices than devices divide.
        """
        if len(self.cuts) != len(shapes):
            raise SporaxRuntimeError(
                f"For '{operator}', the strategy must have one tuple for each of the {len(shapes)} tensors, but got {self}."
            )
        for number, (cuts, shape) in enumerate(zip(self.cuts, shapes, strict=True)):
            if len(cuts) != len(shape):
                raise SporaxRuntimeError(
                    f"For '{operator}', the strategy of tensor {number} must have {len(shape)} numbers for its shape "
                    f"{shape}, but got {cuts}."
                )
            for dim, (slices, size) in enumerate(zip(cuts, shape, strict=True)):
                self._check_cut(operator, slices, num_devices)
                if size % slices:
                    raise SporaxRuntimeError(
                        f"For '{operator}', dimension {dim} of tensor {number} has size {size}, which must be divisible by "
                        f"its cut, but got {slices} in {self}."
                    )
            if num_devices % math.prod(cuts):
                raise SporaxRuntimeError(
                    f"For '{operator}', the slices of tensor {number} must divide the {num_devices} devices, but {cuts} "
                    f"makes {math.prod(cuts)}."
                )

    def _check_cut(self, operator: str, slices: int, num_devices: int) -> None:
        if slices < 1:
            raise SporaxRuntimeError(f"For '{operator}', a cut must be >= 1, but got {slices} in {self}.")
        if num_devices.bit_count() == 1 and slices.bit_count() != 1:
            raise SporaxRuntimeError(
                f"For '{operator}', a cut must be a power of 2 on {num_devices} devices, but got {slices} in {self}."
            )
