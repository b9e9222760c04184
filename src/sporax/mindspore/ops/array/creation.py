"""Operators that make tensors: filled, counted, triangular, one-hot."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For
from sporax.ir.operator_dims import Call, Dims, Names, Shapes, StrategyEntry, numbered
from sporax.mindspore.common import DType, Tensor, dtypes, wrap
from sporax.mindspore.ops._core import Array, Operand, check, export, known, operator, other_form, promote
from sporax.runtime.state import derive, note


def zeros(size: Any, dtype: DType | None = None) -> Tensor:
    """Zeros in a shape (int, tuple or list); float32 by default."""
    return _filled("zeros", size, 0, dtype or dtypes.float32)


def ones(shape: Any, dtype: DType | None = None) -> Tensor:
    """Ones in a shape (int, tuple or list); float32 by default."""
    return _filled("ones", shape, 1, dtype or dtypes.float32)


def full(size: Any, fill_value: Any, *, dtype: DType | None = None) -> Tensor:
    """A tensor of one value, which also gives the dtype when there is none.

    Raises:
        SporaxTypeError: `size` is no shape, or `fill_value` is not a number (or a Tensor with one element).
    """
    return _filled("full", size, fill_value, dtype)


def _filled(name: str, size: Any, value: Any, dtype: DType | None) -> Tensor:
    sizes = check.shape(name, size, "size")
    # Before JAX, whose message does not name the operator.
    For(name).refuse(min(sizes, default=0) < 0, "the sizes in 'size' must be >= 0", sizes)
    return _of_value(sizes, Tensor(value, dtype))


def _of_value(sizes: tuple[int, ...], value: Tensor, dtype: Any = None) -> Tensor:
    array = jnp.full(sizes, value.array, dtype)
    # What the value is follows from the fill value, if that is known while compiling.
    derive(array, (value.array,), lambda element: np.full(sizes, element, dtype))
    return wrap(array)


def _constant(make: Callable[[], Array]) -> Tensor:
    """What `make` gives, of numbers only: in a step that is being compiled its value is known."""
    array = make()
    # Noted, so that a later operator that needs the values (a shape, say) can compute them.
    note(array, make)
    return wrap(array)


def full_like(input: Tensor, fill_value: Any, *, dtype: DType | None = None) -> Tensor:
    """A tensor of one value in the shape (and dtype) of `input`."""
    return full(input.shape, fill_value, dtype=dtype or input.dtype)


def arange(start: Any = 0, end: Any = None, step: Any = 1, *, dtype: DType | None = None) -> Tensor:
    """Numbers from `start` up to `end` (without it); int64, or float32 when a float is among the arguments.

    Raises:
        SporaxValueError: `step` is 0.
    """
    first, last = (0, start) if end is None else (start, end)
    # Bounds are Python numbers by now: they decide the shape.
    first, last, step = (value.item() if isinstance(value, Tensor) else value for value in (first, last, step))
    For("arange").refuse(step == 0, "'step' must not be 0")
    integral = all(isinstance(value, int | np.integer) for value in (first, last, step))
    kind = dtype or (dtypes.int64 if integral else dtypes.float32)
    # numpy counts in double precision, whatever the dtype of the result.
    return _constant(lambda: jnp.asarray(np.arange(first, last, step), kind.np_dtype))


def eye(n: int, m: int | None = None, dtype: DType | None = None) -> Tensor:
    """Ones on the diagonal of an n × m matrix (n × n without `m`); float32 by default."""
    return _constant(lambda: jnp.eye(n, m, dtype=(dtype or dtypes.float32).np_dtype))


def linspace(start: float, end: float, steps: int) -> Tensor:
    """`steps` float32 numbers at equal distances, both ends included."""
    return _constant(lambda: jnp.linspace(start, end, steps, dtype=jnp.float32))


export(zeros, ones, full, full_like, arange, eye, linspace)


def _spaced(call: Call, shapes: Shapes) -> Dims | None:
    """One entry, for the only dimension of the result."""
    num = call.get("num", 0)
    if not isinstance(num, int) or any(shapes):
        return None
    return Dims(tuple(() for _ in shapes), (StrategyEntry(("n",), (num,)),), ("n",))


@operator("LinSpace()", function="", dims=_spaced)
def _lin_space(start: check.Float, stop: check.Float, num: int) -> Array:
    """`num` numbers at equal distances from `start` to `stop`, both included; both of one dtype."""
    check.same_dtype("LinSpace", start=start, stop=stop)
    For("LinSpace").refuse(num < 1, "'num' must be >= 1", num)
    return jnp.linspace(start, stop, num, dtype=start.dtype)


@operator(function="logspace")
def logspace(start: Operand, end: Operand, steps: int, base: int = 10, *, dtype: DType = dtypes.float32) -> Array:
    """`steps` numbers from base^start to base^end, whose logarithms are at equal distances."""
    # In float64, since exponents are rounded before the power.
    exponents = jnp.linspace(jnp.asarray(start, jnp.float64), jnp.asarray(end, jnp.float64), steps)
    return jnp.power(float(base), exponents).astype(dtype.np_dtype)


@operator(function="fill", composed=True)
def fill(type: DType, shape: Any, value: Any) -> Tensor:
    """A tensor of `shape` and dtype `type` that holds one value."""
    sizes = check.shape("Fill", tuple(shape) if isinstance(shape, list) else shape)
    return _of_value(sizes, Tensor(value), type.np_dtype)


@operator("FillV2()", function="", composed=True)
def _fill_v2(shape: Any, value: Any) -> Tensor:
    """A tensor of `shape` that holds one value, in the dtype of that value."""
    # MindSpore passes shapes as tensors here.
    sizes = tuple(shape.tolist()) if isinstance(shape, Tensor) else shape
    return _of_value(check.shape("FillV2", sizes), Tensor(value))


@operator("Fills()", function="fills", method="fills")
def fills(x: Array, value: Operand) -> Array:
    """A tensor in the shape and dtype of `x` that holds one value."""
    return jnp.full(x.shape, value, x.dtype)


@operator("Eye()", function="", composed=True)
def _eye(n: int, m: int, dtype: DType) -> Tensor:
    """Ones on the diagonal of an n × m matrix."""
    return _constant(lambda: jnp.eye(n, m, dtype=dtype.np_dtype))


@operator("Zeros()", function="", composed=True)
def _zeros(size: Any, dtype: DType | None = None) -> Tensor:
    """Zeros; float32 by default."""
    return _constant(lambda: jnp.zeros(check.shape("Zeros", size), (dtype or dtypes.float32).np_dtype))


@operator("Ones()", function="", composed=True)
def _ones(shape: Any, dtype: DType | None = None) -> Tensor:
    """Ones; float32 by default."""
    return _constant(lambda: jnp.ones(check.shape("Ones", shape), (dtype or dtypes.float32).np_dtype))


@operator("Range(maxlen)", function="range", composed=True)
def range_(start: Any, end: Any, step: Any, maxlen: int = 1000000) -> Tensor:
    """Numbers from `start` up to `end` (without it) at distance `step`; at most `maxlen` of them."""
    first, last, stride = (
        known("Range", name, bound).item() if isinstance(bound, Tensor) else bound
        for name, bound in (("start", start), ("end", end), ("step", step))
    )
    For("Range").refuse(not stride, "'step' must not be 0")
    # Counted before anything is made, so that a mistake does not allocate.
    length = max(math.ceil((last - first) / stride), 0)
    For("Range").refuse(length > maxlen, f"there must be at most 'maxlen' {maxlen} numbers", length)
    integral = all(isinstance(bound, int) for bound in (first, last, stride))
    return _constant(lambda: jnp.arange(first, last, stride).astype(jnp.int64 if integral else jnp.float32))


def _triangle(name: str, own: str, indices: Callable[..., Any]) -> None:
    def kernel(row: int, col: int, offset: int = 0, *, dtype: DType = dtypes.int64) -> Tensor:
        # numpy makes the positions, which depend on sizes alone.
        return _constant(lambda: jnp.asarray(np.stack(indices(row, offset, col)), dtype.np_dtype))

    kernel.__name__ = own
    kernel.__doc__ = "Rows and columns of the triangle of a `row` × `col` matrix, as a (2, n) tensor."
    target = operator(function=own, composed=True)(kernel)
    other_form(target, f"{name}(row, col, offset, dtype)", "row col offset dtype", dtype=dtypes.int32)


_triangle("TrilIndices", "tril_indices", np.tril_indices)
_triangle("TriuIndices", "triu_indices", np.triu_indices)


@operator(function="meshgrid", mint="")
def meshgrid(*inputs: Array, indexing: str = "xy") -> tuple[Array, ...]:
    """The grids whose coordinates are the given vectors; ``"xy"`` exchanges the first two dims, ``"ij"`` does not."""
    check.one_of("Meshgrid", indexing, ("xy", "ij"), "indexing")
    return tuple(jnp.meshgrid(*inputs, indexing=indexing))


@operator("Meshgrid(indexing)", function="")
def _meshgrid_primitive(inputs: Array, indexing: str = "xy") -> tuple[Array, ...]:
    """The grids whose coordinates are the vectors in a tuple."""
    return meshgrid.kernel(*inputs, indexing=indexing)


@operator(function="", mint="meshgrid")
def _mint_meshgrid(*tensors: Array, indexing: str | None = None) -> tuple[Array, ...]:
    """As `ops.meshgrid`, with ``"ij"`` as default."""
    # A single tuple is MindSpore's form of several tensors.
    grids = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], tuple) else tensors
    return meshgrid.kernel(*grids, indexing=indexing or "ij")


@operator(function="sequence_mask", composed=True)
def sequence_mask(lengths: Any, maxlen: int | None = None) -> Any:
    """For each length a row of `maxlen` bools, the first `length` of which are true; the longest length by default."""
    # Without `maxlen` the shape depends on the values.
    size = int(known("sequence_mask", "lengths", lengths).max()) if maxlen is None else int(maxlen)
    return _mask_rows(lengths, size)


@operator(function="")
def _mask_rows(lengths: Array, size: int) -> Array:
    """Rows of bools, the first ones of which are true."""
    return jnp.arange(size) < lengths[..., None]


@operator("LogSpace(steps, base, dtype)", function="")
def _log_space(start: Array, end: Array, steps: int = 10, base: int = 10, dtype: DType = dtypes.float32) -> Array:
    """`steps` numbers from base^start to base^end, whose logarithms are at equal distances."""
    return logspace.kernel(start, end, steps, base, dtype=dtype)


def _by_result(call: Call, shapes: Shapes) -> Dims | None:
    """Entries: the result, and empty ones for the values on and off."""
    depth, axis = call.get("depth", 0), call.get("axis", -1)
    if not isinstance(depth, int) or not isinstance(axis, int):
        return None
    indices = numbered(len(shapes[0]), letter="x")
    position = len(indices) if axis == -1 else axis
    names = (*indices[:position], "depth", *indices[position:])
    sizes = (*shapes[0][:position], depth, *shapes[0][position:])
    # Values on and off are scalars; their entries are empty and may be left out.
    others: list[Names] = [() for _ in shapes[1:]]
    scalars = [StrategyEntry((), ())] * 2
    return Dims((indices, *others), (StrategyEntry(names, sizes), *scalars), names, leader=0)


@operator("OneHot(axis)", function="", dims=_by_result)
def _one_hot(indices: check.Int, depth: int, on_value: Operand, off_value: Operand, axis: int = -1) -> Array:
    """`on_value` at the positions in `indices`, `off_value` elsewhere, along a new dimension of size `depth` at `axis`.

    A position outside [0, depth) gives `off_value` everywhere.
    """
    where = check.axis("OneHot", axis, indices.ndim + 1)
    For("OneHot").refuse(depth < 0, "'depth' must be >= 0", depth)
    # Ones and zeros of different dtypes meet as operands of any operator.
    # They have no gradient, as in MindSpore.
    on, off = map(jax.lax.stop_gradient, promote.pair("OneHot", on_value, off_value))
    classes = jnp.arange(depth, dtype=indices.dtype)
    # One dim of size `depth`, all others 1, for the comparison by broadcasting.
    spread = [-1 if dim == where else 1 for dim in range(indices.ndim + 1)]
    return jnp.where(jnp.expand_dims(indices, where) == classes.reshape(spread), on, off)


other_form(fill, "Fill()", "dtype=type dims=shape x=value")
one_hot = other_form(_one_hot, function="one_hot", on_value=1, off_value=0)
