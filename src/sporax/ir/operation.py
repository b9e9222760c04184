"""One primitive applied to tensors, as far as plans need to know it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from sporax.base.made_later import dataclass

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """What a plan knows of a tensor.

    Attributes:
        shape: its whole shape.
        dtype: name as numpy writes it, or JAX's for extended types such as ``key<fry>``.
        itemsize: bytes per element on the device; 0 for what is in host memory.
        constant: the value when it is a scalar literal, else None.
        host_itemsize: bytes per element in host memory; 0 for what is on the device.
    """

    shape: Shape
    dtype: str = "float32"
    itemsize: int = 4
    constant: complex | None = None
    host_itemsize: int = 0

    @property
    def num_dims(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def num_bytes(self) -> int:
        """Bytes of the whole tensor."""
        return math.prod(self.shape) * self.itemsize

    @property
    def is_inexact(self) -> bool:
        """Whether it holds floating-point or complex numbers."""
        return self.dtype.startswith(("float", "bfloat", "complex"))


@dataclass(frozen=True, slots=True)
class Fused:
    """What a kernel of attention does of an operation.

    Attributes:
        share: products computed, of those that the operation says: half of the scores are masked where attention is causal, and
            backward kernels compute scores again.
        elements: of the scores.
    """

    share: float
    elements: int


@dataclass(frozen=True, slots=True)
class Operation:
    """One equation as the planner sees it.

    Attributes:
        name: the primitive's name; calls of foreign code add what they call, as in ``ffi_call:my_kernel``.
        operands, results: the tensors.
        params: the primitive's parameters as they are; objects such as dimension numbers are read by attribute.
        fused: what a kernel of attention does of it, where the hardware has one; None for all others.
    """

    name: str
    operands: tuple[TensorSpec, ...]
    results: tuple[TensorSpec, ...]
    params: Mapping[str, Any] = field(default_factory=dict, hash=False)
    fused: Fused | None = None
