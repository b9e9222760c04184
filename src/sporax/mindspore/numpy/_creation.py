"""Tensors from numbers, ranges and random draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For, SporaxTypeError, SporaxValueError
from sporax.mindspore import ops
from sporax.mindspore.common.dtype import float32, int32, to_dtype
from sporax.mindspore.common.tensor import Tensor, wrap
from sporax.mindspore.numpy._functions import narrowed

Shape = int | tuple[int, ...]


def array(obj: Any, dtype: Any = None, copy: bool = True, ndmin: int = 0) -> Tensor:
    """A Tensor of numbers, Tensors, or nested lists of them; integers become int32 and floats float32.

    Args:
        obj: the numbers.
        dtype: element type instead.
        copy: a Tensor comes back as a new one.
        ndmin: at least so many dimensions; further ones of size 1 come first.

    Raises:
        SporaxTypeError: `obj` is something else.
        SporaxValueError: its lists have different lengths.
    """
    if isinstance(obj, Tensor) and not copy and dtype in (None, obj.dtype):
        result = obj
    elif isinstance(obj, Tensor):
        # A copy of the array: eager results must not share a buffer with a Parameter that a step may donate.
        values = obj.array if dtype is None else obj.array.astype(to_dtype(dtype).np_dtype)
        result = wrap(jnp.array(values) if copy else values)
    else:
        # numpy accepts objects and text; a Tensor holds numbers only.
        result = _from_numbers("array", obj, dtype)
    missing = ndmin - result.ndim
    return result.reshape((1,) * missing + result.shape) if missing > 0 else result


def copy(a: Any) -> Tensor:
    """As `array`: a Tensor comes back as a new one.

    Args:
        a: a Tensor, a number, or nested lists of them.

    Raises:
        SporaxTypeError: something else.
    """
    return array(a)


def asarray(a: Any, dtype: Any = None) -> Tensor:
    """As `array`; a Tensor of that dtype comes back as it is."""
    return array(a, dtype, copy=False)


def asfarray(a: Any, dtype: Any = float32) -> Tensor:
    """As `asarray`, with a floating-point dtype; float32 in place of another."""
    kind = to_dtype(dtype)
    return asarray(a, kind if kind.is_floating_point else float32)


def _from_numbers(where: str, obj: Any, dtype: Any) -> Tensor:
    if not isinstance(obj, bool | int | float | list | tuple | np.ndarray | np.generic):
        raise SporaxTypeError(
            f"For 'numpy.{where}', the input must be a Tensor, a number or lists of them, but got {type(obj).__name__}."
        )
    # `np.asarray` would read the values of a Tensor of a compiled step.
    if _holds_tensor(obj):
        parts = [array(part) for part in cast("list[Any]", obj)]
        return array(ops.stack(parts), dtype)
    try:
        # numpy decides the kind (bool, int, float); only the width is changed afterwards.
        values = np.asarray(obj)
    except ValueError as error:
        # `from None`: the message holds numpy's words, and its traceback leads into this module only.
        raise SporaxValueError(f"For 'numpy.{where}', the lists must have equal lengths, but: {error}") from None
    For(f"numpy.{where}").refuse_type(values.dtype.kind not in "biuf", "the input must hold numbers", obj, show=repr)
    # A numpy array keeps its dtype, as in MindSpore; Python's numbers become 32 bits.
    plain = values if isinstance(obj, np.ndarray | np.generic) else narrowed(values)
    return Tensor(plain if dtype is None else values.astype(to_dtype(dtype).np_dtype))


def _holds_tensor(obj: Any) -> bool:
    return isinstance(obj, list | tuple) and any(isinstance(item, Tensor) or _holds_tensor(item) for item in obj)


def arange(start: Any, stop: Any = None, step: Any = None, dtype: Any = None) -> Tensor:
    """Numbers from `start` (0 when it is the only argument) up to and without `stop`."""
    numbers = [bound for bound in (start, stop, step) if bound is not None]
    # The size of the result is needed while tracing, so Tensors are not accepted.
    if any(isinstance(number, bool) or not isinstance(number, int | float) for number in numbers):
        raise SporaxTypeError(f"For 'numpy.arange', start, stop and step must be numbers, but got {tuple(numbers)}.")
    begin, end = (0, start) if stop is None else (start, stop)
    values = np.arange(begin, end, 1 if step is None else step)
    # Through a list, so that the numbers count as Python's and get 32 bits; an empty list would lose its dtype.
    return _from_numbers("arange", values.tolist(), dtype) if values.size else Tensor(_empty(values, dtype))


def _empty(values: Any, dtype: Any) -> Any:
    return narrowed(values) if dtype is None else values.astype(to_dtype(dtype).np_dtype)


def full(shape: Shape, fill_value: Any, dtype: Any = None) -> Tensor:
    """A Tensor with `fill_value`, a number or what broadcasts to `shape`, everywhere.

    Raises:
        SporaxTypeError, SporaxValueError: no shape, or a value that does not broadcast.
    """
    # Broadcast of a lazy constant: `fill_value` may be a Tensor of a compiled step.
    return wrap(jnp.broadcast_to(array(fill_value, dtype).array, _shape("full", shape)))


def zeros(shape: Shape, dtype: Any = float32) -> Tensor:
    """Zeros. Errors as `full`."""
    return wrap(jnp.zeros(_shape("zeros", shape), to_dtype(dtype).np_dtype))


def ones(shape: Shape, dtype: Any = float32) -> Tensor:
    """Ones. Errors as `full`."""
    return wrap(jnp.ones(_shape("ones", shape), to_dtype(dtype).np_dtype))


def empty(shape: Shape, dtype: Any = float32) -> Tensor:
    """A Tensor whose values do not matter: zeros. Errors as `full`."""
    return zeros(shape, dtype)


def _shape(where: str, shape: Any) -> tuple[int, ...]:
    # A single size is a shape of one dimension, as in numpy.
    sizes = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    if any(isinstance(size, bool) or not isinstance(size, int | np.integer) for size in sizes):
        raise SporaxTypeError(f"For 'numpy.{where}', 'shape' must be int or tuple of ints, but got {shape!r}.")
    For(f"numpy.{where}").refuse(any(size < 0 for size in sizes), "every size in 'shape' must be >= 0", shape)
    return tuple(map(int, sizes))


def full_like(a: Any, fill_value: Any, dtype: Any = None, shape: Shape | None = None) -> Tensor:
    """As `full`, with shape and dtype of `a` unless given."""
    like = array(a)
    return full(like.shape if shape is None else shape, fill_value, like.dtype if dtype is None else dtype)


def zeros_like(a: Any, dtype: Any = None, shape: Shape | None = None) -> Tensor:
    """Zeros, with shape and dtype of `a` unless given."""
    return full_like(a, 0, dtype, shape)


def ones_like(a: Any, dtype: Any = None, shape: Shape | None = None) -> Tensor:
    """Ones, with shape and dtype of `a` unless given."""
    return full_like(a, 1, dtype, shape)


def empty_like(prototype: Any, dtype: Any = None, shape: Shape | None = None) -> Tensor:
    """Zeros, with shape and dtype of `prototype` unless given."""
    return full_like(prototype, 0, dtype, shape)


def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = float32) -> Tensor:  # noqa: N803 (numpy's name)
    """Ones on the `k`-th diagonal of an N x M matrix, zeros elsewhere."""
    return wrap(jnp.eye(N, M, k, to_dtype(dtype).np_dtype))


def identity(n: int, dtype: Any = float32) -> Tensor:
    """Ones on the diagonal of a square matrix."""
    return eye(n, dtype=dtype)


def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = float32) -> Tensor:  # noqa: N803 (numpy's name)
    """Ones at and below the `k`-th diagonal of an N x M matrix, zeros above."""
    return wrap(jnp.tri(N, M, k, to_dtype(dtype).np_dtype))


def linspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None, axis: int = 0
) -> Any:
    """`num` numbers with equal distances; with `retstep` the distance as well."""
    # Always with the distance: JAX computes it anyway, and the result stays one kind of value.
    values = jnp.linspace(_plain(start), _plain(stop), num, endpoint, True, axis=axis)
    # The distance is no number of the series: it stays a float whatever the dtype.
    numbers, step = wrap(values[0].astype(_float(dtype))), wrap(values[1].astype(_float(None)))
    return (numbers, step) if retstep else numbers


def logspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: float = 10.0, dtype: Any = None, axis: int = 0
) -> Tensor:
    """`num` powers of `base` with equal ratios."""
    return wrap(jnp.logspace(_plain(start), _plain(stop), num, endpoint, base, axis=axis).astype(_float(dtype)))


def geomspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0) -> Tensor:
    """`num` numbers from `start` to `stop` with equal ratios."""
    return wrap(jnp.geomspace(_plain(start), _plain(stop), num, endpoint, axis=axis).astype(_float(dtype)))


def _plain(value: Any) -> Any:
    return value.array if isinstance(value, Tensor) else np.asarray(value)


def _float(dtype: Any) -> Any:
    return (float32 if dtype is None else to_dtype(dtype)).np_dtype


def indices(dimensions: tuple[int, ...], dtype: Any = int32, sparse: bool = False) -> list[Tensor]:
    """The position of every element of a grid, one dimension after another."""
    # Positions depend on sizes alone, so numpy computes them once and they are constants of the step.
    return list(map(Tensor, np.indices(dimensions, dtype=to_dtype(dtype).np_dtype, sparse=cast("Any", sparse))))


def diag_indices(n: int, ndim: int = 2) -> tuple[Tensor, ...]:
    """Where the diagonal of an n x n … matrix is."""
    return _positions(np.diag_indices(n, ndim))


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Tensor, ...]:
    """Where an n x m matrix has elements at and below its `k`-th diagonal."""
    return _positions(np.tril_indices(n, k, m))


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Tensor, ...]:
    """Where an n x m matrix has elements at and above its `k`-th diagonal."""
    return _positions(np.triu_indices(n, k, m))


def tril_indices_from(arr: Tensor, k: int = 0) -> tuple[Tensor, ...]:
    """`tril_indices` of a matrix like `arr`."""
    return tril_indices(arr.shape[-2], k, arr.shape[-1])


def triu_indices_from(arr: Tensor, k: int = 0) -> tuple[Tensor, ...]:
    """`triu_indices` of a matrix like `arr`."""
    return triu_indices(arr.shape[-2], k, arr.shape[-1])


def _positions(grids: tuple[Any, ...]) -> tuple[Tensor, ...]:
    # MindSpore's index dtype; numpy gives int64.
    return tuple(Tensor(array.astype(np.int32)) for array in grids)


def _window(function: Callable[[int], Any]) -> Callable[[int], Tensor]:
    def window(M: int) -> Tensor:  # noqa: N803 (numpy's name)
        # numpy computes windows in float64 and they are rounded once; XLA would round every step.
        return Tensor(np.asarray(function(M), np.float32))

    window.__name__ = function.__name__
    window.__doc__ = f"numpy's {function.__name__} window of M float32 points."
    return window


def rand(*shape: int, dtype: Any = float32) -> Tensor:
    """Uniform draws from [0, 1)."""
    return ops.rand(*shape, dtype=to_dtype(dtype))


def randn(*shape: int, dtype: Any = float32) -> Tensor:
    """Draws from the standard normal distribution."""
    return ops.randn(*shape, dtype=to_dtype(dtype))


def randint(minval: int, maxval: int | None = None, shape: Shape | None = None, dtype: Any = int32) -> Tensor:
    """Uniform draws of integers from [minval, maxval), or from [0, minval) without `maxval`."""
    low, high = (0, minval) if maxval is None else (minval, maxval)
    return ops.randint(low, high, (1,) if shape is None else _shape("randint", shape), dtype=to_dtype(dtype))


class _Grid:
    """``mgrid[0:2, 0:3:2]``: the coordinates of a grid."""

    def __init__(self, grid: Any) -> None:
        self._grid = grid

    def __getitem__(self, ranges: Any) -> Any:
        grid = self._grid[ranges]
        # An open grid is a list of arrays; a dense one is one array.
        return [Tensor(narrowed(array)) for array in grid] if isinstance(grid, list | tuple) else Tensor(narrowed(grid))


# numpy has these as objects with brackets, not as functions.
mgrid, ogrid = _Grid(np.mgrid), _Grid(np.ogrid)

FUNCTIONS: dict[str, Any] = {
    maker.__name__: maker
    for maker in (
        *(array, copy, asarray, asfarray, arange, full, zeros, ones, empty),
        *(full_like, zeros_like, ones_like, empty_like),
        *(eye, identity, tri, linspace, logspace, geomspace, indices, diag_indices, tril_indices, triu_indices),
        *(tril_indices_from, triu_indices_from, rand, randn, randint),
        *map(_window, (np.bartlett, np.blackman, np.hamming, np.hanning)),
    )
} | {"mgrid": mgrid, "ogrid": ogrid}
