"""Reading and writing parts of an array with MindSpore's index forms.

MindSpore's forms are numpy's, plus lists that stand for integer arrays, plus Tensors; JAX clamps indices that are out of
range where a user expects an error. So an index is normalised first: Tensors and lists become arrays, integers known in
advance are checked, and boolean masks known in advance become integer arrays (their number of hits is a shape).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.ir.errors import SporaxIndexError, SporaxTypeError, SporaxValueError


def get(array: jax.Array, index: Any) -> jax.Array:
    """``array[index]``.

    Raises:
        SporaxIndexError: an integer is out of range, or there are too many indices.
        SporaxTypeError: something in `index` cannot index.
    """
    if type(index) is int and array.ndim and -array.shape[0] <= index < array.shape[0]:
        return array[index]
    return array[normalise(index, array.shape)]


def put(array: jax.Array, index: Any, value: Any) -> jax.Array:
    """A copy of `array` with ``array[index] = value`` done; `value` is broadcast and cast to the array's dtype.

    Raises:
        SporaxValueError: `value` cannot be broadcast to the part that is written.
        SporaxIndexError, SporaxTypeError: as `get`.
    """
    where = normalise(index, array.shape)
    if hasattr(value, "array"):
        value = value.array
    update = jnp.asarray(value).astype(array.dtype)
    target = jax.eval_shape(lambda a: a[where], array).shape
    try:
        np.broadcast_shapes(update.shape, target)
    except ValueError:
        raise SporaxValueError(
            f"For 'Tensor.__setitem__', the value of shape {update.shape} cannot be broadcast to the part of shape {target}."
        ) from None
    extra = update.ndim - len(target)
    if extra > 0:
        update = update.reshape(update.shape[extra:])
    return array.at[where].set(update)


def normalise(index: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """`index` as a tuple that JAX understands, checked against `shape`."""
    items = index if isinstance(index, tuple) else (index,)
    parts = [_item(item) for item in items]
    _check_count(parts, shape)
    dim = 0
    for position, part in enumerate(parts):
        if part is None:
            continue
        if part is Ellipsis:
            dim = len(shape) - sum(_width(later) for later in parts[position + 1 :])
            continue
        parts[position] = _checked(part, dim, shape)
        dim += _width(part)
    return tuple(parts)


def _item(item: Any) -> Any:
    if hasattr(item, "array"):
        item = item.array
        return item if isinstance(item, jax.core.Tracer) else np.asarray(item)
    if item is None or item is Ellipsis or isinstance(item, bool | int | np.ndarray | jax.Array):
        return np.asarray(item) if isinstance(item, bool) else item
    if isinstance(item, np.generic):
        return item.item()
    if isinstance(item, slice):
        return slice(*(None if bound is None else _bound(bound) for bound in (item.start, item.stop, item.step)))
    if isinstance(item, list | tuple | range):
        return _sequence(item)
    raise SporaxTypeError(
        "For 'Tensor.__getitem__', an index must be an integer, slice, ellipsis, None, bool, Tensor, list or tuple, "
        f"but got {type(item).__name__}."
    )


def _bound(bound: Any) -> int:
    try:
        return int(bound.__index__())
    except (AttributeError, TypeError):
        raise SporaxTypeError(
            f"For 'Tensor.__getitem__', the bounds of a slice must be integers, but got {type(bound).__name__}."
        ) from None


def _sequence(items: Any) -> Any:
    values = [item.array if hasattr(item, "array") else item for item in items]
    if any(isinstance(value, jax.core.Tracer) for value in values):
        return jnp.stack([jnp.asarray(value) for value in values])
    array = np.asarray(values)
    if array.size == 0:
        return array.astype(np.int64)
    if array.dtype.kind not in "iub":
        raise SporaxTypeError(f"For 'Tensor.__getitem__', a list index must hold integers or bools, but got {items!r}.")
    return array


def _is_mask(part: Any) -> bool:
    return hasattr(part, "dtype") and part.dtype == np.bool_


def _width(part: Any) -> int:
    """How many dimensions of the array `part` speaks for."""
    if part is None or part is Ellipsis:
        return 0
    return int(part.ndim) if _is_mask(part) else 1


def _check_count(parts: list[Any], shape: tuple[int, ...]) -> None:
    if sum(part is Ellipsis for part in parts) > 1:
        raise SporaxIndexError("For 'Tensor.__getitem__', an index can have only one ellipsis.")
    wanted = sum(_width(part) for part in parts)
    if wanted > len(shape):
        raise SporaxIndexError(
            f"For 'Tensor.__getitem__', too many indices: {wanted} for a tensor with {len(shape)} dimensions {shape}."
        )


def _checked(part: Any, dim: int, shape: tuple[int, ...]) -> Any:
    if _is_mask(part):
        expected = shape[dim : dim + part.ndim]
        if tuple(part.shape) != tuple(expected):
            raise SporaxIndexError(
                f"For 'Tensor.__getitem__', the mask of shape {tuple(part.shape)} does not match {tuple(expected)} at dim {dim}."
            )
        if isinstance(part, jax.core.Tracer):
            raise SporaxTypeError(
                "For 'Tensor.__getitem__', a mask computed inside a compiled step would give a result of unknown shape; "
                "use ops.where or ops.masked_fill instead."
            )
        return part
    if isinstance(part, slice) or isinstance(part, jax.core.Tracer):
        return part
    low, high = (int(np.min(part)), int(np.max(part))) if np.size(part) else (0, -1)
    size = shape[dim]
    if high >= size or low < -size:
        wrong = high if high >= size else low
        raise SporaxIndexError(
            f"For 'Tensor.__getitem__', index {wrong} is out of range [{-size}, {size - 1}] at dim {dim}."
        )
    return part
