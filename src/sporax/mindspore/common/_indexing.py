"""Reading and writing parts of an array with MindSpore's index forms.

MindSpore's forms are numpy's, plus lists that stand for integer arrays, plus Tensors; JAX clamps indices that are out of
range where a user expects an error. So an index is normalised first: Tensors and lists become arrays, integers known in
advance are checked, and boolean masks known in advance become integer arrays (their number of hits is a shape). A mask that is
computed in a compiled step can be assigned through, as the shape of the result is known (`_put_masked`), but not be read through.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For, SporaxIndexError, SporaxTypeError, SporaxValueError
from sporax.runtime.state import frames, trace_constants


def get(array: jax.Array, index: Any) -> jax.Array:
    """``array[index]``.

    Raises:
        SporaxIndexError: an integer is out of range, there are too many indices, or something cannot index.
        SporaxValueError: a mask has another shape than what it masks, or a step is 0.
        SporaxTypeError: the array has no dimensions to index; a slice has bounds that are no integers.
    """
    # The usual case, without the work of the general one.
    if type(index) is int and array.ndim and -array.shape[0] <= index < array.shape[0]:
        return array[index]
    where = normalise(index, array.shape)
    # Shapes are fixed in a compiled step, and the number of hits is one.
    if any(map(_is_unknown_mask, where)):
        raise _unknown_shape()
    return array[where]


def _unknown_shape() -> SporaxTypeError:
    return frames.value_unknown()(
        "For 'Tensor.__getitem__', a mask computed inside a compiled step would give a result of unknown shape; "
        "use ops.where or ops.masked_fill instead."
    )


def put(array: jax.Array, index: Any, value: Any) -> jax.Array:
    """A copy of `array` with ``array[index] = value`` done; `value` is broadcast and cast to the array's dtype.

    Args:
        array: what is written to.
        index: as for `get`.
        value: number, Tensor, or (nested) list or tuple of numbers.

    Raises:
        SporaxTypeError: `value` is none of these.
        SporaxValueError: it cannot be broadcast to the part that is written; where a mask is computed in a compiled step, this
            is raised when the step has run.
        SporaxIndexError: as `get`.
    """
    where = normalise(index, array.shape)
    update = _value(value).astype(array.dtype)
    # Leading dimensions of size 1 may be left over, as in numpy.
    while update.ndim and update.shape[0] == 1 and not isinstance(value, list | tuple):
        update = update[0]
    if any(map(_is_unknown_mask, where)):
        return _put_masked(array, where, update)
    target = _part_shape(array, where)
    if not _broadcasts(update.shape, target):
        raise _does_not_fit(update, target)
    return array.at[where].set(update)


def _put_masked(array: jax.Array, where: tuple[Any, ...], update: jax.Array) -> jax.Array:
    """`put` through masks whose hits are not known: a choice between old and new values, or else a scatter."""
    arrays = [part for part in where if hasattr(part, "dtype")]
    masks = [part for part in arrays if _is_mask(part)]
    if len(arrays) == 1:
        one_hit = _part_shape(array, _positions(where, 1))
        if _broadcasts(update.shape, one_hit):
            return _chosen(array, where, jnp.broadcast_to(update, one_hit))
        # A value of the array's own shape: MindSpore chooses element by element.
        if len(where) == 1 and update.shape == array.shape:
            return jnp.where(masks[0].reshape(masks[0].shape + (1,) * (array.ndim - masks[0].ndim)), update, array)
    return _scattered(array, where, masks, update)


def _scattered(array: jax.Array, where: tuple[Any, ...], masks: list[Any], update: jax.Array) -> jax.Array:
    """`array` with rows of `update` at the hits of masks, whose number is checked when the step has run."""
    if any(mask.ndim == 0 for mask in masks):
        raise _unknown_shape()
    hits = _hits(array, where, update)
    found = _positions(where, hits or max(mask.size for mask in masks))
    if not _broadcasts(update.shape, target := _part_shape(array, found)):
        raise _does_not_fit(update, target)
    counts = jnp.stack([jnp.count_nonzero(mask) for mask in masks])
    trace_constants.fail_when(
        jnp.any(counts != (hits or counts[0])),
        SporaxValueError(
            f"For 'Tensor.__setitem__', the mask must have {hits or 'as many'} hits as the value and other indices have."
        ),
    )
    return array.at[found].set(update, mode="drop")


def _chosen(array: jax.Array, where: tuple[Any, ...], update: jax.Array) -> jax.Array:
    """`array` with `update` where the only mask says so, in the region of the other parts: integers and slices."""
    at = next(place for place, part in enumerate(where) if _is_mask(part))
    mask, head, tail = where[at], where[:at], where[at + 1 :]
    region = (*head, *[slice(None)] * mask.ndim, *tail)
    old = array[region]
    # An integer leaves no dim of the region.
    after = sum(not isinstance(part, int) for part in tail)
    before = sum(not isinstance(part, int) for part in head)
    if Ellipsis in head:
        before = old.ndim - mask.ndim - after
    update = update.reshape(*old.shape[:before], *[1] * mask.ndim, *old.shape[before + mask.ndim :])
    return array.at[region].set(
        jnp.where(mask.reshape(mask.shape + (1,) * (old.ndim - before - mask.ndim)), update, old)
    )


def _hits(array: jax.Array, where: tuple[Any, ...], update: jax.Array) -> int:
    """How many hits the masks must have, by arrays of integers or by the value; 0 where neither says."""
    together = np.broadcast_shapes(
        (1,), *(np.shape(part) for part in where if hasattr(part, "dtype") and not _is_mask(part))
    )
    if together[-1] > 1:
        return int(together[-1])
    one, two = (_part_shape(array, _positions(where, hits)) for hits in (1, 2))
    # All masks and arrays have one dim of the part in common.
    dim = next(dim for dim, sizes in enumerate(zip(one, two, strict=True)) if sizes[0] != sizes[1])
    dim += update.ndim - len(one)
    return update.shape[dim] if dim >= 0 and update.shape[dim] > 1 else 0


def _positions(where: tuple[Any, ...], hits: int) -> tuple[Any, ...]:
    """`where` with positions in place of masks, as many as `hits`; those that are missing are out of range."""
    parts: list[Any] = []
    for part in where:
        if _is_mask(part):
            parts += jnp.nonzero(part, size=hits, fill_value=part.shape) if part.ndim else (None,)
        else:
            parts.append(part)
    return tuple(parts)


def _part_shape(array: jax.Array, where: tuple[Any, ...]) -> tuple[int, ...]:
    return jax.eval_shape(lambda a: a[where], array).shape


def _does_not_fit(update: jax.Array, target: tuple[int, ...]) -> SporaxValueError:
    return SporaxValueError(
        f"For 'Tensor.__setitem__', the value of shape {update.shape} cannot be broadcast to the part of shape {target}."
    )


def _value(value: Any) -> jax.Array:
    if hasattr(value, "array"):
        value = value.array
    if not isinstance(value, jax.Array | bool | int | float | complex | np.generic | list | tuple):
        raise For("Tensor.__setitem__").type_error(
            "the value must be a number, Tensor, list or tuple", type(value).__name__
        )
    # A list with Tensors in it cannot go through numpy.
    if isinstance(value, list | tuple) and any(hasattr(item, "array") for item in value):
        return jnp.stack([jnp.asarray(getattr(item, "array", item)) for item in value])
    return jnp.asarray(value)


def _broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, target) == target
    except ValueError:
        return False


def normalise(index: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """`index` as a tuple that JAX understands, checked against `shape`."""
    # A list of lists or slices is a tuple of indices, as in MindSpore and the numpy of old.
    if isinstance(index, list) and not all(isinstance(item, bool | int) for item in index):
        index = tuple(index)  # as in MindSpore and the numpy of old
    items = index if isinstance(index, tuple) else (index,)
    parts = [_item(item) for item in items]
    # Counted before any part is looked at: an ellipsis needs the number of dimensions.
    _check_count(parts, shape)
    dim = 0
    for position, part in enumerate(parts):
        if part is None:
            continue
        # The ellipsis stands for all dimensions that no later part speaks for.
        if part is Ellipsis:
            dim = len(shape) - sum(_width(later) for later in parts[position + 1 :])
            continue
        parts[position] = _checked(part, dim, shape)
        dim += _width(part)
    # Integer arrays are broadcast against each other; masks have become positions by then.
    _check_together([part for part in parts if hasattr(part, "dtype") and not _is_mask(part)])
    return tuple(parts)


def _item(item: Any) -> Any:
    # Tensors, without an import that would be circular.
    if hasattr(item, "array"):
        return _index_array(item.array)
    # Before the check for int: a bool is an int in Python.
    if isinstance(item, bool):
        return _true(item)
    if item is None or item is Ellipsis or isinstance(item, int):
        return item
    if isinstance(item, np.integer | np.ndarray | jax.Array):
        return _index_array(item)
    if isinstance(item, slice):
        return _slice(item)
    if isinstance(item, list | tuple):
        return _sequence(item)
    raise _no_index(item)


def _no_index(item: Any) -> SporaxIndexError:
    return SporaxIndexError(
        "For 'Tensor.__getitem__', an index must be an integer, slice, ellipsis, None, bool, list, tuple, or a Tensor of "
        f"Int32, Int64 or Bool, but got {type(item).__name__}: {item!r}."
    )


_INDEX_DTYPES = frozenset(map(np.dtype, (np.bool_, np.int32, np.int64)))


def _index_array(array: Any) -> Any:
    if array.dtype not in _INDEX_DTYPES:
        raise _no_index(array)
    # A numpy array where values are known: masks need their number of hits, integers are checked.
    return np.asarray(trace_constants.known(array)) if trace_constants.is_constant(array) else array


def _true(item: bool) -> Any:
    if not item:
        raise For("Tensor.__getitem__").fault(
            SporaxIndexError, "a bool as index must be True (it adds a dimension)", "False"
        )
    # True adds a dimension, as None does.
    return None


def _slice(item: slice) -> slice:
    bounds = [None if bound is None else _bound(bound) for bound in (item.start, item.stop, item.step)]
    For("Tensor.__getitem__").refuse(bounds[2] == 0, "the step of a slice must not be 0")
    return slice(*bounds)


def _bound(bound: Any) -> int:
    if hasattr(bound, "array") and not trace_constants.is_constant(bound.array):
        raise frames.value_unknown()(
            "For 'Tensor.__getitem__', the bounds of a slice must be known while the step is being compiled, since the shape "
            "of the result depends on them, but got a Tensor; use ops.where, or a Tensor of indices."
        )
    try:
        # `__index__` refuses floats, which int() would truncate.
        return int(bound.__index__())
    except (AttributeError, TypeError):
        raise SporaxTypeError(
            f"For 'Tensor.__getitem__', the bounds of a slice must be integers, but got {type(bound).__name__}."
        ) from None


def _sequence(items: Any) -> Any:
    values = [item.array if hasattr(item, "array") else item for item in items]
    # Mixed with traced values: the list becomes an array of the step.
    if not all(map(trace_constants.is_constant, values)):
        return jnp.stack([jnp.asarray(value) for value in values])
    values = [trace_constants.known(value) if isinstance(value, jax.core.Tracer) else value for value in values]
    array = np.asarray(values)
    if array.size == 0:
        raise SporaxIndexError("For 'Tensor.__getitem__', a list as index must not be empty.")
    if array.dtype.kind not in "ib":
        raise _no_index(items)
    return array


def _is_mask(part: Any) -> bool:
    return hasattr(part, "dtype") and part.dtype == np.bool_


def _is_unknown_mask(part: Any) -> bool:
    return isinstance(part, jax.core.Tracer) and _is_mask(part)


def _width(part: Any) -> int:
    """How many dimensions of the array `part` speaks for."""
    if part is None or part is Ellipsis:
        return 0
    # A mask of n dimensions masks n dimensions.
    return int(part.ndim) if _is_mask(part) else 1


def _check_count(parts: list[Any], shape: tuple[int, ...]) -> None:
    if sum(part is Ellipsis for part in parts) > 1:
        raise SporaxIndexError("For 'Tensor.__getitem__', an index can have only one ellipsis.")
    expected = sum(_width(part) for part in parts)
    if not shape and expected:
        raise For("Tensor.__getitem__").type_error("cannot iterate over a scalar tensor: it has no dimension to index")
    if expected > len(shape):
        raise SporaxIndexError(
            f"For 'Tensor.__getitem__', too many indices: {expected} for a tensor with {len(shape)} dimensions {shape}."
        )


def _check_together(arrays: list[Any]) -> None:
    shapes = [np.shape(array) for array in arrays]
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        raise SporaxValueError(
            f"For 'Tensor.__getitem__', the index tensors must broadcast, but got shapes {shapes}."
        ) from None


def _checked(part: Any, dim: int, shape: tuple[int, ...]) -> Any:
    if _is_mask(part):
        expected = shape[dim : dim + part.ndim]
        if tuple(part.shape) != tuple(expected):
            raise SporaxValueError(
                f"For 'Tensor.__getitem__', the mask of shape {tuple(part.shape)} does not match {tuple(expected)} at dim {dim}."
            )
        return part
    # Slices stop at the end, as in Python; traced indices are not known now.
    if isinstance(part, slice) or isinstance(part, jax.core.Tracer):
        return part
    # JAX would clamp an index that is out of range.
    low, high = (int(np.min(part)), int(np.max(part))) if np.size(part) else (0, -1)
    size = shape[dim]
    if high >= size or low < -size:
        wrong = high if high >= size else low
        raise SporaxIndexError(
            f"For 'Tensor.__getitem__', index {wrong} is out of range [{-size}, {size - 1}] at dim {dim}."
        )
    return part
