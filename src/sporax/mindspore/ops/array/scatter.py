"""Writing updates to positions of a tensor, or of a Parameter in place.

The families differ only in how positions are given: rows of the first dim (Scatter*), whole positions (ScatterNd*,
TensorScatter*), or one per element along a dim (TensorScatterElements, scatter). What is done with an update is one of
seven words: set, add, sub, mul, div, max, min. Updates of one position all take part, except that one of them wins a
`set`. Positions out of range are left out, as they are on MindSpore's accelerators.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For, SporaxValueError
from sporax.ir.operator_dims import Call, Dims, Shapes, numbered
from sporax.mindspore.common._integer_gradients import with_slope_of
from sporax.mindspore.common.parameter import Parameter
from sporax.mindspore.common.tensor import Tensor, wrap, wrap_numpy
from sporax.mindspore.ops._core import FUNCTIONS, Array, Operand, check, known, operator, other_form, promote
from sporax.mindspore.ops._core.dims import Stated, elements_along
from sporax.mindspore.ops.array.scatter_extremes import extreme_at

Index = tuple[Any, ...]


def scattered(target: Array, index: Index, updates: Array, how: str) -> Array:
    """`target` with `updates` worked into ``target[index]``; `how` is one of the seven words."""
    place = target.at[index]
    if how == "set":
        return (overwritten if jnp.issubdtype(target.dtype, jnp.inexact) else _integers_overwritten)(
            target, updates.astype(target.dtype), *index
        )
    if how == "add":
        # "drop", as JAX's default for updates may clamp; MindSpore leaves such updates out.
        return place.add(updates, mode="drop")
    if how == "sub":
        # There is no subtraction in JAX's scatter.
        return place.add(-updates, mode="drop")
    word = "mul" if how == "div" else how
    combine = partial(_combined, word) if jnp.issubdtype(target.dtype, jnp.inexact) else _of_integers[word]
    # Of products: all updates of a position first, so that there is one multiplication, or one division, per element.
    combined = combine(target, updates.astype(target.dtype), *index)
    if how != "div":
        return target * combined if how == "mul" else combined
    # Integers divide towards zero, as MindSpore's do; `//` would round down.
    return _quotient(target, combined) if jnp.issubdtype(target.dtype, jnp.integer) else target / combined


@jax.custom_jvp
def overwritten(target: Array, updates: Array, *index: Array) -> Array:
    """`target` with `updates` at ``target[index]``: of several for one place, which all have its gradient, one wins."""
    return target.at[index].set(updates, mode="drop")


@overwritten.defjvp
def _overwritten_jvp(primals: tuple[Array, ...], tangents: tuple[Any, ...]) -> tuple[Array, Array]:
    # As in MindSpore. JAX gives the gradient to the winner alone.
    target, _, *index = primals
    stays = jnp.ones(target.shape, bool).at[tuple(index)].set(False, mode="drop")
    return overwritten(*primals), jnp.where(stays, tangents[0], 0).at[tuple(index)].add(tangents[1], mode="drop")


_integers_overwritten = with_slope_of("integer_set_at", overwritten, overwritten)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def product(shape: tuple[int, ...], index: Index, updates: Array) -> Array:
    """Product of the updates of each position of an array of this shape; 1 where there are none.

    With a derivative of its own, since JAX has one only for positions that are all different.
    """
    return jnp.ones(shape, updates.dtype).at[index].multiply(updates, mode="drop")


@product.defjvp
def _product_jvp(
    shape: tuple[int, ...], primals: tuple[Index, Array], tangents: tuple[Any, Array]
) -> tuple[Array, Array]:
    # The slope of a product is the product of the others. Division by the own factor fails for 0, so zeros are counted
    # and left out of the product.
    index, updates = primals
    is_zero = updates == 0
    others = product(shape, index, jnp.where(is_zero, jnp.ones((), updates.dtype), updates))
    zeros = jnp.zeros(shape, jnp.int32).at[index].add(is_zero.astype(jnp.int32), mode="drop")
    own, count = others.at[index].get(mode="fill", fill_value=0), zeros.at[index].get(mode="fill", fill_value=0)
    rest = jnp.where(is_zero, own, own / jnp.where(is_zero, 1, updates))
    # With one zero only that factor has a slope; with two none has.
    slope = jnp.where(count == is_zero, rest, jnp.zeros((), updates.dtype))
    change = jnp.zeros(shape, updates.dtype).at[index].add(slope * tangents[1], mode="drop")
    return product(shape, index, updates), change


def _combined(how: str, target: Array, updates: Array, *index: Array) -> Array:
    if how == "mul":
        return product(target.shape, index, updates)
    if jnp.issubdtype(target.dtype, jnp.floating):
        # Where a gradient may flow, ties must share it, see `scatter_extremes`.
        return extreme_at(target, index, updates, how == "max")
    return getattr(target.at[index], how)(updates, mode="drop")


# What these do to integers is differentiated as if they were floats.
_of_integers = {
    how: with_slope_of(f"integer_{how}_at", partial(_combined, how), partial(_combined, how))
    for how in ("max", "min", "mul")
}
_quotient = with_slope_of("integer_quotient_at", jax.lax.div, jnp.divide)


def _agree(name: str, target: Array, index: Array, updates: Array, expected: tuple[int, ...]) -> None:
    check.tensor(name, input_x=target, indices=index, updates=updates)
    check.integral(name, indices=index)
    check.same_dtype(name, input_x=target, updates=updates)
    if updates.shape != expected:
        raise SporaxValueError(
            f"For '{name}', 'updates' must have shape {expected} for 'input_x' of shape {target.shape} and 'indices' of "
            f"shape {index.shape}, but got {updates.shape}."
        )


def _rows(name: str, target: Array, indices: Array, updates: Array, how: str) -> Array:
    _agree(name, target, indices, updates, indices.shape + target.shape[1:])
    return scattered(target, (indices,), updates, how)


def _positions(name: str, target: Array, indices: Array, updates: Array, how: str) -> Array:
    For(name).refuse(indices.ndim < 2, "the dimension of 'indices' must be greater than or equal to 2", indices.ndim)
    if indices.shape[-1] > target.ndim:
        raise SporaxValueError(
            f"For '{name}', the last dim of 'indices' must be at most the number of dims of 'input_x', "
            f"but got shapes {indices.shape} and {target.shape}."
        )
    _agree(name, target, indices, updates, indices.shape[:-1] + target.shape[indices.shape[-1] :])
    return scattered(target, tuple(jnp.moveaxis(indices, -1, 0)), updates, how)


def _row_dims(call: Call, shapes: Shapes, unsharded: Collection[int] = ()) -> Dims:
    """Updates end as the input does; the indices, and what they number among the updates, are never sharded."""
    target, indices, updates = shapes
    names = numbered(len(target), unsharded)
    points = numbered(len(indices), range(len(indices)), "x")
    return Dims((names, points, (*points, *names[1:])[: len(updates)]), leader=0)


def _one_winner_dims(call: Call, shapes: Shapes) -> Dims:
    """An overwritten element has one winner, which devices could not agree on if rows were sharded."""
    return _row_dims(call, shapes, {0})


def _position_dims(call: Call, shapes: Shapes, one_winner: bool = False) -> Dims:
    """As `_row_dims`, with indices of as many dimensions as their last one is long."""
    target, indices, updates = shapes
    names = numbered(len(target), range(indices[-1]) if one_winner else ())
    points = numbered(len(indices), range(len(indices)), "x")
    return Dims((names, points, (*points[:-1], *names[indices[-1] :])[: len(updates)]), leader=0)


def _one_winner_position_dims(call: Call, shapes: Shapes) -> Dims:
    """As `_one_winner_dims`."""
    return _position_dims(call, shapes, one_winner=True)


def _in_place_dims(call: Call, shapes: Shapes) -> Dims:
    """Rows are written at numbers that are attributes: they are never sharded in either input."""
    names = numbered(len(shapes[0]))
    return Dims(tuple((f"r{number}!", *names[1:]) for number in range(len(shapes))))


_ONE_WINNER = ("set", "max", "min")
_DONE = {
    "set": "Replaces", "add": "Adds to", "sub": "Subtracts from", "mul": "Multiplies", "div": "Divides",
    "max": "Takes the maximum with", "min": "Takes the minimum with",
}  # fmt: skip


def written(name: str, variable: Any, new: Tensor) -> Tensor:
    """Give a Parameter the new value, and return that.

    Raises:
        SporaxTypeError: `variable` is not a Parameter.
    """
    For(name).typed("input_x", variable, "a Parameter", Parameter)
    # In place for the user: the Parameter's variable gets the new array.
    variable._assign(new.array)
    return new


def _in_place(name: str, own: str, how: str, update: Any, dims: Stated, extra: bool) -> None:
    """A class form `name` and a function `own` that write a Parameter by `update`."""

    @operator(function="", dims=dims)
    def compute(input_x: Array, indices: Array, updates: Array) -> Array:
        target = "input_x" if name == "ScatterNdUpdate" else "x"  # as MindSpore calls it
        return update(name, input_x, indices, promote.written(name, target, input_x, updates), how)

    # MindSpore's name in messages, though the operator has none of its own.
    compute.name = name

    def kernel(input_x: Any, indices: Any, updates: Any, use_locking: bool = how == "set") -> Any:
        # Composed: the write to a Parameter is not part of the compiled kernel.
        return written(name, input_x, compute(input_x, indices, updates))

    def short(input_x: Any, indices: Any, updates: Any) -> Any:
        return kernel(input_x, indices, updates)

    # "rows" or positions, in the generated documentation.
    where = "rows" if update is _rows else "elements or slices"
    for form in (kernel, short):
        form.__name__, form.__doc__ = own, f"{_DONE[how]} {where} of a Parameter in place; returns the new value."
    operator(f"{name}(use_locking)", function=own if extra else "", composed=True, dims=dims)(kernel)
    if not extra:
        operator(function=own, composed=True)(short)


for _word, _how in (
    ("Update", "set"), ("Add", "add"), ("Sub", "sub"), ("Mul", "mul"), ("Div", "div"), ("Max", "max"), ("Min", "min"),
):  # fmt: skip
    _lower = _word.lower()
    _dims = _one_winner_dims if _how in _ONE_WINNER else _row_dims
    _in_place(f"Scatter{_word}", f"scatter_{_lower}", _how, _rows, _dims, False)
    _dims = _one_winner_position_dims if _how in _ONE_WINNER else _position_dims
    _in_place(f"ScatterNd{_word}", f"scatter_nd_{_lower}", _how, _positions, _dims, True)


def _tensor_scatter(name: str, own: str, how: str, method: str) -> Any:
    def kernel(input_x: Array, indices: Array, updates: Array) -> Array:
        return _positions(name, input_x, indices, updates, how)

    kernel.__name__, kernel.__doc__ = own, f"{_DONE[how]} elements or slices at positions; gives a new tensor."
    dims = _one_winner_position_dims if how in _ONE_WINNER else _position_dims
    return operator(name, function=own, method=method, dims=dims)(kernel)


for _word, _how in (("Update", "set"), ("Sub", "sub"), ("Mul", "mul"), ("Div", "div"), ("Max", "max"), ("Min", "min")):
    _lower = _word.lower()
    # Only the update has no method in MindSpore.
    _method = "" if _how == "set" else f"scatter_{_lower}"
    _tensor_scatter(f"TensorScatter{_word}", f"tensor_scatter_{_lower}", _how, _method)


tensor_scatter_add = _tensor_scatter("TensorScatterAdd", "tensor_scatter_add", "add", "")


@operator("ScatterNd()", function="scatter_nd")
def scatter_nd(indices: Array, updates: Array, shape: tuple[int, ...]) -> Array:
    """Zeros of `shape`, with `updates` added at positions.

    Args:
        indices: integers (…, k): each last row is a position in the first k dims.
        updates: what to add; its shape is that of `indices` without the last dim, then that of a slice.
        shape: of the result.
    """
    target = jnp.zeros(check.shape("ScatterNd", shape), updates.dtype)
    return _positions("ScatterNd", target, indices, updates, "add")


def _along(name: str, input: Array, dim: int, index: Array, src: Any, how: str) -> Array:
    check.tensor(name, input=input, index=index)
    check.integral(name, index=index)
    where = check.axis(name, dim, input.ndim, "axis")
    values = jnp.broadcast_to(src, index.shape) if isinstance(src, int | float) else src
    if isinstance(src, jax.Array) and not src.ndim:
        values = jnp.broadcast_to(src, index.shape)
    if index.ndim != input.ndim or values.ndim != input.ndim:
        raise SporaxValueError(
            f"For '{name}', 'input', 'index' and 'src' must have as many dims as each other, "
            f"but got shapes {input.shape}, {index.shape} and {values.shape}."
        )
    if any(size > length for size, length in zip(index.shape, values.shape, strict=True)):
        raise For(name).error("'index' must not be larger than 'src'", f"{index.shape} and {values.shape}")
    # `src` may be larger than `index`; only its head counts.
    values = values[tuple(map(slice, index.shape))].astype(input.dtype)
    grid = [jax.lax.broadcasted_iota(index.dtype, index.shape, axis) for axis in range(index.ndim)]
    grid[where] = index
    return scattered(input, tuple(grid), values, how)


_REDUCTIONS = {"none": "set", "add": "add", "sub": "sub", "mul": "mul", "div": "div", "max": "max", "min": "min"}


@operator("TensorScatterElements(axis, reduction)", function="tensor_scatter_elements", dims=elements_along)
def tensor_scatter_elements(
    input_x: Array, indices: Array, updates: Array, axis: int = 0, reduction: str = "none"
) -> Array:
    """Every update is worked in at its own position, whose place along `axis` is in `indices`; gives a new tensor.

    Args:
        input_x: tensor.
        indices: integers, as many dims as `input_x`; negative ones count from the end.
        updates: tensor of the same shape.
        axis: the dimension.
        reduction: ``"none"`` (replace), ``"add"``, ``"sub"``, ``"mul"``, ``"div"``, ``"max"`` or ``"min"``.
    """
    check.one_of("TensorScatterElements", reduction, tuple(_REDUCTIONS), "reduction")
    check.same_dtype("TensorScatterElements", input_x=input_x, updates=updates)
    return _along("TensorScatterElements", input_x, axis, indices, updates, _REDUCTIONS[reduction])


@operator(function="scatter", method="scatter(dim=axis)", mint="scatter(dim=axis)")
def scatter(input: Array, axis: int, index: Array, src: Operand) -> Array:
    """`input` with the elements of `src` (or one number) put to the places `index` along `axis`."""
    return _along("scatter", input, axis, index, src, "set")


@operator(function="", mint="scatter_add")
def _scatter_add_elements(input: Array, dim: int, index: Array, src: Array) -> Array:
    """`input` with the elements of `src` added at the places `index` along `dim`."""
    return _along("scatter_add", input, dim, index, src, "add")


@operator(function="", method="scatter_add", composed=True)
def _scatter_add_method(input: Any, dim: Any, index: Any, src: Any = None) -> Any:
    """Elements of `src` added at the places `index` along `dim`; with two tensors ``tensor_scatter_add(indices, updates)``."""
    if src is None and isinstance(dim, Tensor):
        return tensor_scatter_add(input, dim, index)
    return _scatter_add_elements(input, dim, index, src)


def _slices(name: str, x: Array, axis: int, index: Array, source: Array, how: str) -> Array:
    check.integral(name, indices=index)
    check.same_dtype(name, x=x, y=source)
    where = check.axis(name, axis, x.ndim)
    expected = (*x.shape[:where], index.size, *x.shape[where + 1 :])
    if index.ndim > 1 or source.shape != expected:
        raise SporaxValueError(
            f"For '{name}', the source must have shape {expected} for 'x' of shape {x.shape} and 'indices' of shape "
            f"{index.shape}, but got {source.shape}."
        )
    return scattered(x, (slice(None),) * where + (jnp.atleast_1d(index),), source, how)


@operator(function="", method="index_add", mint="index_add")
def _index_add_new(input: Array, dim: int, index: Array, source: Array, *, alpha: Operand = 1) -> Array:
    """`input` with `alpha` times the slices of `source` added at `index` along `dim`."""
    return _slices("index_add", input, dim, index, jnp.asarray(alpha, source.dtype) * source, "add")


@operator("IndexAdd(axis, use_lock, check_index_bound)", function="index_add", composed=True)
def index_add(x: Any, indices: Any, y: Any, axis: int, use_lock: bool = True, check_index_bound: bool = True) -> Any:
    """Adds the slices of `y` to those of a Parameter at `indices` along `axis`, in place; returns the new value.

    `use_lock` and `check_index_bound` have no meaning here: writes never race, and positions out of range are left out.
    """
    return written("IndexAdd", x, _index_add_new(x, axis, indices, y))


@operator("IndexFill()", function="index_fill", method="index_fill", mint="")
def index_fill(x: Array, axis: int, index: Array | int, value: Operand) -> Array:
    """`x` with the slices at `index` along `axis` filled with one value."""
    positions = jnp.asarray(index)
    check.integral("IndexFill", index=positions)
    where = check.axis("IndexFill", axis, x.ndim)
    return x.at[(slice(None),) * where + (jnp.atleast_1d(positions),)].set(jnp.asarray(value, x.dtype), mode="drop")


@operator(function="", method="index_put", composed=True)
def _index_put(input: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    # A list of tensors is a tuple to the operator.
    """A new tensor with `values` put to (or added at, with `accumulate`) ``input[indices]``."""
    return _put_at(input, tuple(indices), values, bool(accumulate))


@operator(function="")
def _put_at(input: Array, indices: tuple[Array, ...], values: Array, accumulate: bool) -> Array:
    """`input` with `values` put to or added at positions, one index tensor for each dim."""
    check.same_dtype("index_put", input=input, values=values)
    return scattered(input, indices, values, "add" if accumulate else "set")


def _inplace(word: str, how: str) -> None:
    name, own = f"Inplace{word}", f"inplace_{word.lower()}"

    def compute(x: Array, v: Array, indices: int | tuple[int, ...]) -> Array:
        # numpy: the rows are attributes, and checked while compiling.
        rows = np.asarray(check.shape(name, indices, "indices"), np.int64)
        if rows.size and not (rows.min() >= 0 and rows.max() < x.shape[0]):
            raise For(name).error(f"'indices' must be in [0, {x.shape[0]}), the size of dim 0", indices)
        return _slices(name, x, 0, jnp.asarray(rows), v, how)

    doc = f"A new tensor; {_DONE[how].lower()} the rows of `x` at `indices` (an int or a tuple of ints) with those of `v`."
    compute.__name__, compute.__doc__ = own, doc
    operator(f"{name}(indices)", function=own, method="inplace_update" if how == "set" else "", dims=_in_place_dims)(
        compute
    )


_inplace("Update", "set")
_inplace("Add", "add")
_inplace("Sub", "sub")


@operator("MaskedScatter", function="", method="masked_scatter")
def _masked_scatter(input: Array, mask: Array, source: Array) -> Array:
    """`input` with the elements of `source`, in order, at the places where `mask` is true."""
    check.same_dtype("MaskedScatter", input=input, source=source)
    For("MaskedScatter").refuse_type(mask.dtype != np.bool_, "'mask' must be Tensor[Bool]", check.describe(mask))
    shape = check.broadcast("MaskedScatter", input, mask)
    chosen = jnp.broadcast_to(mask, shape)
    # How many chosen places come before: the number of the element in `source`.
    rank = jnp.cumsum(chosen.reshape(-1)).reshape(shape) - 1
    return jnp.where(chosen, source.reshape(-1)[rank], jnp.broadcast_to(input, shape))


@operator(function="select_scatter", method="select_scatter")
def select_scatter(input: Array, src: Array, axis: int, index: int) -> Array:
    """`input` with `src` as the slice at `index` along `axis`."""
    where = check.axis("select_scatter", axis, input.ndim)
    return input.at[(slice(None),) * where + (index,)].set(src)


@operator(function="slice_scatter", method="slice_scatter")
def slice_scatter(
    input: Array, src: Array, axis: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Array:
    """`input` with `src` as the slices from `start` to `end` along `axis`, every `step`-th."""
    where = check.axis("slice_scatter", axis, input.ndim)
    return input.at[(slice(None),) * where + (slice(start, end, step),)].set(src)


@operator(function="diagonal_scatter", method="diagonal_scatter")
def diagonal_scatter(input: Array, src: Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
    """`input` with `src` as a diagonal in the plane of two dims; the diagonal's dim is the last one of `src`."""
    input, src = promote.pair("diagonal_scatter", input, src)
    first, second = check.axis("diagonal_scatter", dim1, input.ndim), check.axis("diagonal_scatter", dim2, input.ndim)
    planes = jnp.moveaxis(input, (first, second), (-2, -1))
    count = max(min(planes.shape[-2] - max(-offset, 0), planes.shape[-1] - max(offset, 0)), 0)
    steps = np.arange(count)
    changed = planes.at[..., steps + max(-offset, 0), steps + max(offset, 0)].set(src)
    return jnp.moveaxis(changed, (-2, -1), (first, second))


@operator("InplaceUpdateV2()", function="", composed=True)
def _inplace_update_v2(x: Any, indices: Any, v: Any) -> Any:
    """`x` with the rows `indices` (an int, a tuple or a Tensor) replaced by those of `v`."""
    rows = tuple(known("InplaceUpdateV2", "indices", indices).tolist()) if isinstance(indices, Tensor) else indices
    return FUNCTIONS["inplace_update"](x, v, rows)


@operator(function="inplace_index_add", composed=True)
def inplace_index_add(var: Any, indices: Any, updates: Any, axis: int) -> Any:
    """Adds the slices of `updates` to those of a Parameter at `indices` (int32) along `axis`; returns the new value."""
    return written("InplaceIndexAdd", var, _with_added(var, indices, updates, axis))


other_form(inplace_index_add, "InplaceIndexAdd(axis)")


@operator(function="")
def _with_added(var: Array, indices: Array, updates: Array, axis: int) -> Array:
    """`var` with the slices of `updates` added at `indices` along `axis`."""
    name = "InplaceIndexAdd"
    check.integral(name, indices=indices)
    check.same_dtype(name, var=var, updates=updates)
    where = check.axis(name, axis, var.ndim)
    expected = (*var.shape[:where], indices.size, *var.shape[where + 1 :])
    For(name).refuse(updates.shape != expected, f"'updates' must have shape {expected}", updates.shape)
    return var.at[(slice(None),) * where + (indices,)].add(updates, mode="drop")


@operator("Coalesce()", function="coalesce", composed=True)
def coalesce(x_indices: Any, x_values: Any, x_shape: Any) -> Any:
    """The elements of a sparse tensor in order, with those at one position added up.

    The result's shape depends on the values: a compiled step with it runs operator by operator.

    Args:
        x_indices: (dims, elements), int64.
        x_values: (elements,).
        x_shape: (dims,), int64.
    """
    # The result has as many elements as there are different positions.
    positions, values = known("Coalesce", "x_indices", x_indices), known("Coalesce", "x_values", x_values)
    if positions.ndim != 2 or values.shape != positions.shape[1:] or x_shape.shape != positions.shape[:1]:
        raise SporaxValueError(
            "For 'Coalesce', 'x_indices' must be (dims, elements), 'x_values' (elements,) and 'x_shape' (dims,), but got "
            f"{positions.shape}, {values.shape} and {x_shape.shape}."
        )
    unique, inverse = np.unique(positions, axis=1, return_inverse=True)
    sums = np.zeros(unique.shape[1], values.dtype)
    # `np.add.at`: plain indexing would count a position once.
    np.add.at(sums, inverse.reshape(-1), values)
    return wrap_numpy(unique), wrap_numpy(sums), wrap(x_shape.array)


@operator("IndexPut(accumulate)", function="", composed=True)
def _index_put_class(x1: Any, x2: Any, indices: Any, accumulate: int = 0) -> Any:
    """`x1` with `x2` put to, or added at (`accumulate` 1), the positions that `indices` names, one tensor for each dim."""
    check.one_of("IndexPut", accumulate, (0, 1), "accumulate")
    return x1.index_put(tuple(indices), x2, bool(accumulate))
