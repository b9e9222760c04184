"""Functions of MindSpore's `ops.functional` on Python values, which its compiler needs because it has no Python at hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sporax.ops._core.operator import export


def make_range(*limits: int) -> tuple[int, ...]:
    """`range(*limits)` as a tuple."""
    return tuple(range(*limits))


def make_tuple(*elements: Any) -> tuple[Any, ...]:
    """The arguments as a tuple."""
    return elements


def tuple_len(values: Sequence[Any]) -> int:
    """Number of elements of a tuple."""
    return len(values)


def list_len(values: Sequence[Any]) -> int:
    """Number of elements of a list."""
    return len(values)


def tuple_getitem(values: Sequence[Any], index: int) -> Any:
    """One element of a tuple."""
    return values[index]


def tuple_reversed(values: Sequence[Any]) -> tuple[Any, ...]:
    """The elements from the last to the first."""
    return tuple(reversed(values))


def is_(x: Any, y: Any) -> bool:
    """Whether both are the same object."""
    return x is y


def bool_not(x: Any) -> bool:
    """`not x`."""
    return not x


def shape_mul(input_data: Sequence[int]) -> int:
    """Product of the sizes of a shape."""
    product = 1
    for size in input_data:
        product *= size
    return product


export(make_range, make_tuple, tuple_len, list_len, tuple_getitem, tuple_reversed, is_, bool_not, shape_mul)
