"""Which dtype a result has when the operands' differ: MindSpore's implicit conversion.

Between tensors: bool < integers < floats < complex; an integer and a float give that float; float16 and bfloat16 give
float32; uint8 and int8 give int16. Unsigned types wider than 8 bits mix with hardly anything. Python numbers bend to the
tensor: a float turns bool and integer tensors into float32, an int turns bool tensors into int64; complex numbers are
refused. Every case was observed on MindSpore 2.10 (tests/mindspore/golden/promotion.json).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import SporaxTypeError
from sporax.mindspore.common.dtype import from_numpy

# As observed, these mix with bool and with themselves only.
_WIDE_UNSIGNED = frozenset(map(np.dtype, (np.uint16, np.uint32, np.uint64)))


def pair(operator: str, left: Any, right: Any) -> tuple[jax.Array, jax.Array]:
    """Both operands as arrays of their common dtype.

    Raises:
        SporaxTypeError: MindSpore defines no conversion between the two dtypes.
    """
    dtype = common_dtype(operator, left, right)
    return jnp.asarray(left, dtype), jnp.asarray(right, dtype)


def common_dtype(operator: str, left: Any, right: Any) -> np.dtype[Any]:
    """The dtype two operands are converted to; see `pair`."""
    if _is_number(left) and _is_number(right):
        # Two numbers promote as numpy scalars.
        return np.dtype(np.result_type(_number_dtype(left), _number_dtype(right)))
    if _is_number(left):
        return _with_number(operator, right.dtype, left)
    if _is_number(right):
        return _with_number(operator, left.dtype, right)
    return _between(operator, left.dtype, right.dtype)


def written(operator: str, name: str, target: jax.Array, value: Any) -> jax.Array:
    """`value` in the dtype of `target`, the argument `name`, which it is written to.

    Raises:
        SporaxTypeError: both have another dtype in common.
    """
    if (common := common_dtype(operator, target, value)) != target.dtype:
        raise SporaxTypeError(
            f"For '{operator}', Data type conversion is not supported for a 'Parameter', nor for the input tensor of an in-place "
            f"operator, the argument[{name}]'s data type of primitive[{operator}] is {from_numpy(target.dtype)}, which cannot be "
            f"converted to data type {from_numpy(common)} automatically. Convert the value."
        )
    return jnp.asarray(value, target.dtype)


def together(operator: str, arrays: Sequence[jax.Array]) -> list[jax.Array]:
    """All `arrays` in the one dtype they are converted to, pair by pair; see `pair`."""
    dtype = arrays[0].dtype
    # Pair by pair, since the rule is not associative with unsigned types and MindSpore goes from the left.
    for array in arrays[1:]:
        dtype = _between(operator, dtype, array.dtype)
    return [array.astype(dtype) for array in arrays]


def inexact(array: Any) -> jax.Array:
    """`array` in a floating dtype: integers and bools become float32."""
    array = jnp.asarray(array)
    return array if jnp.issubdtype(array.dtype, jnp.inexact) else array.astype(jnp.float32)


def _is_number(value: object) -> bool:
    """Python numbers reach a kernel as such, or as weakly typed tracers."""
    return isinstance(value, bool | int | float | complex) or bool(getattr(value, "weak_type", False))


def _number_dtype(value: Any) -> np.dtype[Any]:
    kind = np.asarray(value).dtype.kind if not hasattr(value, "dtype") else value.dtype.kind
    return np.dtype({"b": np.bool_, "i": np.int64, "f": np.float32, "c": np.complex64}[kind])


def _with_number(operator: str, dtype: np.dtype[Any], number: Any) -> np.dtype[Any]:
    kind = _number_dtype(number)
    # Complex numbers do not mix with tensors implicitly.
    if kind.kind == "c" or (dtype in _WIDE_UNSIGNED and kind.kind in "if" and not _meets(operator, kind)):
        _refuse(operator, dtype, kind)
    # float32 and not the number's float64: MindSpore's default float.
    if kind.kind == "f" and not jnp.issubdtype(dtype, jnp.inexact):
        return np.dtype(np.float32)
    if kind.kind == "i" and dtype == np.bool_:
        return np.dtype(np.int64)
    return dtype


def _meets(operator: str, number: np.dtype[Any]) -> bool:
    """Whether `operator` takes a number of this kind with a wide unsigned type."""
    # Observed exceptions, see the golden file.
    return operator in ("Div", "RealDiv") or (operator in ("Mul", "Equal") and number.kind == "i")


def _between(operator: str, left: np.dtype[Any], right: np.dtype[Any]) -> np.dtype[Any]:
    if left == right:
        return left
    if (left in _WIDE_UNSIGNED or right in _WIDE_UNSIGNED) and np.dtype(np.bool_) not in (left, right):
        _refuse(operator, left, right)
    return np.dtype(jnp.promote_types(left, right))


def _refuse(operator: str, left: np.dtype[Any], right: np.dtype[Any]) -> None:
    raise SporaxTypeError(
        f"For '{operator}', type implicit conversion between Tensor[{from_numpy(left)}] and Tensor[{from_numpy(right)}] "
        "is not supported; convert one of them with astype."
    )
