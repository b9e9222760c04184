"""The result dtype of every arithmetic operator for every pair of operand types, as one table.

`table(ms, error)` works it out by running the operators of a framework; the golden table is MindSpore's.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

DTYPES = (
    "bool_",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
)
SCALARS = (True, 2, 2.5, 1j)
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "pow": operator.pow,
    "matmul": operator.matmul,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
Table = dict[str, dict[str, list[str | None]]]


def table(ms: Any, error: Callable[[Exception], str | None]) -> Table:
    """Rows "operator" → "left operand" → result dtype by `DTYPES` of the right one (or `error(exception)`).

    A row "@ 2.5" holds Tensor-op-scalar and "2.5 @" scalar-op-Tensor, by the dtype of the Tensor.
    """
    ones = {name: ms.Tensor([[1, 1], [1, 1]], getattr(ms, name)) for name in DTYPES}
    return {name: rows(function, ones, error) for name, function in OPERATORS.items()}


def rows(
    function: Callable[[Any, Any], Any], ones: dict[str, Any], error: Callable[[Exception], str | None]
) -> dict[str, list[str | None]]:
    """All rows of one operator."""

    def result(a: Any, b: Any) -> str | None:
        try:
            value = function(a, b)
        except Exception as exception:
            return error(exception)
        return str(value.dtype) if hasattr(value, "dtype") else type(value).__name__

    actual = {left: [result(a, b) for b in ones.values()] for left, a in ones.items()}
    if function is not operator.matmul:
        actual |= {f"@ {scalar}": [result(a, scalar) for a in ones.values()] for scalar in SCALARS}
        actual |= {f"{scalar} @": [result(scalar, a) for a in ones.values()] for scalar in SCALARS}
    return actual
