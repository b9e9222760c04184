"""One primitive applied to tensors, as far as plans need to know it; primitives that only some versions of JAX have.

Problem: Sporax knows primitives by their names, in a dozen tables (rules, the model of memory, passes of the lowering). A new
version of JAX makes the same functions of other primitives: the gradient of tanh, for one, was ``mul`` and ``sub`` and is
``one_minus_square`` today. Method: each of them behaves as an older one, and this table says as which; the tables by name
take it in through `with_newer`. What has no older relative gets a line in `sporax.planner.rules.rule_table` instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any

from sporax.base.lazy_members import dataclass

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


LIKE: Mapping[str, str] = MappingProxyType(
    {
        "compute_on": "closed_call",  # JAX 0.11.1, and a trial before; its equations say where they are computed
        "log2": "log",  # JAX 0.11.2; it was log and a division
        "one_minus_square": "square",  # JAX 0.11.2; derivatives of tanh, asin, acos, atanh and what is made of them
        "polynomial": "pow",  # JAX 0.12; it was products and sums, and is not linear in partial sums
        "program_order": "eval_jaxpr",  # JAX 0.11.2; a call that keeps the order of its equations
        "relayout": "layout_constraint",  # JAX 0.11.1; the order of elements in memory, and no other element
        "unreduced_pmax": "unreduced_psum",  # JAX 0.11.1
        "unreduced_pmin": "unreduced_psum",  # JAX 0.11.1
    }
)
"""Primitive -> the one that it behaves as: rule, cost, and how compilers treat it."""


def with_newer(names: Iterable[str]) -> frozenset[str]:
    """The names, and those of newer primitives that behave as one of them."""
    known = frozenset(names)
    return known | {newer for newer, older in LIKE.items() if older in known}
