"""Functions of `sporax.mindspore.mint` that make tensors."""

from __future__ import annotations

from typing import Any

from sporax.base.errors import SporaxNotImplementedError, SporaxValueError, check_type
from sporax.mindspore import ops
from sporax.mindspore.common.dtype import DType
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.mint._registry import offer, same_device


def zeros(size: Any, *, dtype: DType | None = None) -> Tensor:
    """Zeros in a shape (int, tuple or list); float32 by default."""
    return ops.zeros(size, dtype)


def ones(size: Any, *, dtype: DType | None = None) -> Tensor:
    """Ones in a shape (int, tuple or list); float32 by default."""
    return ops.ones(size, dtype)


def full(size: Any, fill_value: Any, *, dtype: DType | None = None) -> Tensor:
    """A tensor of one number, which also gives the dtype when there is none: int64, float32 or bool.

    Raises:
        SporaxTypeError: `size` is no shape, or `fill_value` no number.
    """
    check_type("full", "fill_value", fill_value, "a number", bool | int | float)
    return ops.full(size, fill_value, dtype=dtype)


def full_like(input: Tensor, fill_value: Any, *, dtype: DType | None = None) -> Tensor:
    """A tensor of one number in the shape (and dtype) of `input`."""
    return ops.full_like(input, fill_value, dtype=dtype)


def empty(*size: Any, dtype: DType | None = None, device: str | None = None, pin_memory: bool = False) -> Tensor:
    """A tensor to be filled later: ``empty(2, 3)`` or ``empty((2, 3))``; float32 by default.

    It holds zeros: arrays are immutable here, so there is no memory to leave as it is.

    Args:
        size: the shape.
        dtype: element type.
        device: must be None: tensors are made on the device of the context.
        pin_memory: must be False.

    Raises:
        SporaxNotImplementedError: `device` or `pin_memory` is requested.
    """
    same_device("empty", device)
    if pin_memory:
        raise SporaxNotImplementedError("For 'empty', 'pin_memory' must be False, but got True.")
    return ops.zeros(one_shape(size), dtype)


def empty_like(input: Tensor, *, dtype: DType | None = None, device: str | None = None) -> Tensor:
    """A tensor to be filled later, in the shape (and dtype) of `input`; it holds zeros, see `empty`."""
    same_device("empty_like", device)
    return ops.zeros_like(input, dtype=dtype)


def arange(start: Any = 0, end: Any = None, step: Any = 1, *, dtype: DType | None = None) -> Tensor:
    """Numbers from `start` up to `end` (without it); int64, or float32 when a float is among the arguments."""
    return ops.arange(start, end, step, dtype=dtype)


def linspace(start: Any, end: Any, steps: int, *, dtype: DType | None = None) -> Tensor:
    """`steps` numbers at equal distances, both ends included; float32 by default.

    Raises:
        SporaxValueError: `steps` is negative.
    """
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
        raise SporaxValueError(f"For 'linspace', 'steps' must be an int >= 0, but got {steps!r}.")
    # The bounds must be numbers, as the result's shape and values are made on the host.
    first, last = (bound.item() if isinstance(bound, Tensor) else bound for bound in (start, end))
    numbers = ops.linspace(first, last, steps)
    return numbers if dtype is None else numbers.astype(dtype)


def eye(n: int, m: int | None = None, dtype: DType | None = None) -> Tensor:
    """Ones on the diagonal of an n × m matrix (n × n without `m`); float32 by default."""
    return ops.eye(n, m, dtype)


def clone(input: Tensor) -> Tensor:
    """A copy, through which gradients flow."""
    return ops.deepcopy(input)


def one_shape(sizes: tuple[Any, ...]) -> Any:
    """The shape in ``f(2, 3)`` and in ``f((2, 3))``."""
    # PyTorch takes both forms.
    return tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], tuple | list) else sizes


offer(zeros, ones, full, full_like, empty, empty_like, arange, linspace, eye, clone)
