"""Picking elements: by index, by mask, by position; looking rows up in tables; and dividing a dimension into pieces.

A plan may hold a table in uneven parts (`manual_split`). Inside a planned step the marks of such an operator change what is
computed: each field of the indices is looked up in its own part of the table. Everywhere else these are ordinary operators.
Here are also the dimensions of lookups, and MindSpore's limits of their sharding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax import lowering
from sporax.base.errors import For, SporaxRuntimeError, SporaxValueError
from sporax.ir import uneven
from sporax.ir.operator_dims import Call, Dims, NumSlices, OperatorDims, Shapes, lookup_axis, numbered
from sporax.mindspore.common.tensor import Tensor, wrap, wrap_numpy
from sporax.mindspore.ops._core import Array, Operator, check, known, operator, other_form
from sporax.mindspore.ops._core.dims import elements_along
from sporax.mindspore.ops.array.manipulation import _split_along
from sporax.mindspore.ops.linalg.norms import length as norm_of


class TableLookup(Operator[Any]):
    """Functional form of `Gather`, `SparseGatherV2` and `EmbeddingLookup`."""

    def run_between_marks(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], constants: tuple[Any, ...], marks: Mapping[str, Any]
    ) -> Any:
        """Look up part by part where the marks name parts that fit; the plan refuses those that do not."""
        # No mark of uneven parts: the usual case, decided before anything is bound.
        if marks.keys().isdisjoint(uneven.ATTRIBUTES):
            return self.run_unmarked(args, kwargs, constants)
        split = uneven.split_of(marks)
        operands = self.__signature__.bind(*args, **kwargs).arguments
        table, indices = operands["input_params"], operands["input_indices"]
        # The plan refuses what does not fit, with a message about the user's marks.
        if split is None or not split.fits(table.shape, indices.shape, operands.get("axis", 0)):
            return self.run_unmarked(args, kwargs, constants)
        found = lowering.part_lookup(table.array, indices.array, split.rows.rows, split.offsets)
        return wrap(found)


def _table_first(call: Call, shapes: Shapes) -> Dims | None:
    """A table ``p…`` and indices ``x…``; the first ``batch_dims`` of both are the same."""
    if len(shapes) < 2:
        return None
    if _is_split(call):
        return _split_table(shapes)
    batch_dims = call.get("batch_dims", 0)
    shared = batch_dims % (len(shapes[1]) + 1) if isinstance(batch_dims, int) else 0
    table, indices = numbered(len(shapes[0]), letter="p"), numbered(len(shapes[1]), letter="x")
    # Batch dimensions are shared, so the one that is pointed into must be looked up as a whole.
    if shared:
        axis = lookup_axis(call, len(shapes[0]))
        table = tuple(f"{name}!" if dim == axis else name for dim, name in enumerate(table))
        table = (*indices[:shared], *table[shared:])
    rest = tuple(numbered(len(shape)) for shape in shapes[2:])
    return Dims((table, indices, *rest), order=(*indices, *table), leader=1)


def _is_split(call: Call) -> bool:
    return any(call.get(name) is not None for name in uneven.ATTRIBUTES)


def _split_table(shapes: Shapes) -> Dims:
    """The parts of a table, and the fields that point into them, go together."""
    table = ("parts", *numbered(len(shapes[0]), letter="p")[1:])
    before = len(shapes[1]) - 1
    # Fields are split as the table is; the other dimensions of the indices are never sharded.
    indices = (*numbered(before, range(before), "x"), "parts")
    return Dims((table, indices), order=table, leader=1)


def _indices_first(call: Call, shapes: Shapes) -> Dims:
    return Dims((numbered(len(shapes[0]), letter="x"), numbered(len(shapes[1]), letter="p")), leader=0)


def _table_first_limits(call: Call, shapes: Shapes, slices: NumSlices, num_devices: int) -> None:
    if not _is_split(call):
        _check_lookup(call, shapes[:2], slices[:2], num_devices)


def _indices_first_limits(call: Call, shapes: Shapes, slices: NumSlices, num_devices: int) -> None:
    _check_lookup(call, (shapes[1], shapes[0]), (slices[1], slices[0]), num_devices)


def _check_lookup(call: Call, shapes: Shapes, slices: NumSlices, num_devices: int) -> None:
    """Check the slices of a table and of indices into it."""
    table, indices = slices
    # Positions in the table of this call: `axis` may be negative.
    axis = lookup_axis(call, len(table))
    if not table or table[axis] == 1:
        return
    if len(table) > 2 or not indices:
        raise SporaxRuntimeError(
            f"For '{call.where}', a table that is sharded where indices point must have 1 or 2 dimensions and indices at least "
            f"1, but got shapes {shapes[0]} and {shapes[1]}."
        )
    # Along another dimension than the first, MindSpore wants all devices to have something of their own.
    if axis:
        used = math.prod((*table, *indices))
        if used != num_devices:
            raise SporaxRuntimeError(
                f"For '{call.where}', where dimension {axis} of the table, into which indices point, is sharded, both must "
                f"use all {num_devices} devices, but they use {used}: {table}, {indices}."
            )
        return
    # MindSpore allows one case with both sharded: two dimensions each, rows, batch and what is behind it use every device.
    both = (
        len(indices) == len(table) == 2 and table[1] == 1 < indices[0] and table[0] * math.prod(indices) == num_devices
    )
    if any(parts > 1 for parts in indices) and not both:
        raise SporaxRuntimeError(
            f"For '{call.where}', indices must stay whole where dimension {axis} of the table, which they point into, is sharded "
            f"into {table[axis]}, but they are sharded into {indices}. (With 2 dimensions each, indices may be sharded along "
            f"the first one, or both, if all numbers multiply to {num_devices}.)"
        )


TABLE_FIRST = OperatorDims(_table_first, _table_first_limits, table=0, takes_out_strategy=True)
"""Of operators that take a table, then indices into it."""

INDICES_FIRST = OperatorDims(_indices_first, _indices_first_limits, table=1, takes_out_strategy=True)


def _picked_dims(call: Call, shapes: Shapes) -> Dims:
    """As `elements_along`, but the tensor may be sharded along the dimension that is pointed into."""
    _, indices = elements_along(call, shapes).inputs
    return Dims((numbered(len(shapes[0])), indices), leader=1)


@operator("GatherD()", function="gather_d", mint="gather(input=x)", dims=_picked_dims)
def gather_d(x: check.One, dim: int, index: check.Int) -> Array:
    """Elements of `x` along `dim` at `index`, one for each element of `index`; an index out of range gives zero.

    Args:
        x: tensor.
        dim: the dimension.
        index: integers; as many dims as `x`, not larger than it in the others.
    """
    where = check.axis("GatherD", dim, x.ndim, "dim")
    For("GatherD").refuse(
        x.ndim != index.ndim, "'x' and 'index' must have as many dims as each other", f"{x.shape} and {index.shape}"
    )
    for position in range(x.ndim):
        if position != where and index.shape[position] > x.shape[position]:
            raise For("GatherD").error(f"'index' must not be larger than 'x' in dim {position}", index.shape, x.shape)
    # `take_along_axis` broadcasts; MindSpore takes the head of each other dim.
    own = x[tuple(slice(None) if axis == where else slice(size) for axis, size in enumerate(index.shape))]
    return jnp.take_along_axis(own, index, where, mode="fill", fill_value=0)


gather_elements = other_form(
    gather_d, None, "input=x dim index", function="gather_elements", method="gather_elements", dims=_picked_dims
)


def _nd_dims(call: Call, shapes: Shapes) -> Dims:
    table, indices = shapes
    last = len(indices) - 1
    return Dims((numbered(len(table), range(len(table)), "p"), numbered(len(indices), {last}, "x")), leader=1)


@operator("GatherNd", function="gather_nd", method="gather_nd", dims=_nd_dims)
def gather_nd(input_x: check.One, indices: check.Int) -> Array:
    """Elements or slices of `input_x` at positions; a position out of range gives zeros.

    Args:
        input_x: tensor.
        indices: integers (…, k): each last row is a position in the first k dims.
    """
    if not indices.ndim or indices.shape[-1] > input_x.ndim:
        raise SporaxValueError(
            f"For 'GatherNd', the last dim of 'indices' must be at most the number of dims of 'input_x', "
            f"but got shapes {indices.shape} and {input_x.shape}."
        )
    return input_x.at[tuple(jnp.moveaxis(indices, -1, 0))].get(mode="fill", fill_value=0)


@operator(function="index_select", method="index_select", mint="index_select(dim=axis)")
def index_select(input: Array, axis: int, index: check.Int) -> Array:
    """Slices of `input` along `axis` at the positions in the vector `index`."""
    check.rank("index_select", (0, 1), index=index)
    where = check.axis("index_select", axis, input.ndim)
    # "fill": JAX's default clips, MindSpore gives zeros.
    return jnp.take(input, jnp.atleast_1d(index), where, mode="fill", fill_value=0)


@operator(function="take", method="take", mint="take")
def take(input: Array, index: check.Int) -> Array:
    """Elements of the flattened `input` at `index`, in the shape of `index`."""
    return jnp.take(input.reshape(-1), index, mode="fill", fill_value=0)


@operator(function="", mint="select", composed=True)
def _mint_select(input: Any, dim: int, index: int) -> Any:
    """The slice at `index` along `dim`, without that dimension."""
    where = check.axis("select", dim, input.ndim, "dim")
    return input[(slice(None),) * where + (index,)]


def _table_rows(name: str, table: Array, indices: Array, offset: int) -> Array:
    check.tensor(name, input_params=table)
    check.integral(name, input_indices=indices)
    # A slice of a table that another rank continues.
    rows = indices - offset if offset else indices
    known_rows = jnp.where(rows < 0, table.shape[0], rows)  # negative ones are out of range here, not from the end
    return jnp.take(table, known_rows, 0, mode="fill", fill_value=0)


@operator("EmbeddingLookup()", function="", form=TableLookup, dims=TABLE_FIRST)
def _embedding_lookup(input_params: Array, input_indices: Array, offset: int) -> Array:
    """Rows of a table that holds the rows from `offset` on; zeros for rows that it does not hold."""
    check.rank("EmbeddingLookup", (1, 2), input_params=input_params)
    return _table_rows("EmbeddingLookup", input_params, input_indices, offset)


@operator("SparseGatherV2()", function="", form=TableLookup, dims=TABLE_FIRST)
def _sparse_gather(input_params: Array, input_indices: check.Int, axis: int) -> Array:
    """Slices of `input_params` along `axis` at `input_indices`; an index out of range gives zeros."""
    where = check.axis("SparseGatherV2", axis, input_params.ndim)
    return jnp.take(input_params, input_indices, where, mode="fill", fill_value=0)


@operator(function="embedding", mint="nn.functional.embedding", dims=INDICES_FIRST)
def embedding(
    input: check.Int,
    weight: check.Rank2,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
) -> Array:
    """Rows of `weight` at `input`.

    Args:
        input: integers of any shape.
        weight: (rows, size), the table.
        padding_idx: this row gets no gradient.
        max_norm: rows that are looked up are scaled down to this norm; `weight` itself stays as it is (MindSpore
            writes the scaled rows back).
        norm_type: which p-norm.
        scale_grad_by_freq: divide the gradient of a row by how often it is looked up.
    """
    if padding_idx is not None:
        padding = check.axis("embedding", padding_idx, weight.shape[0], "padding_idx")
        is_padding = (jnp.arange(weight.shape[0]) == padding)[:, None]
        weight = jnp.where(is_padding, jax.lax.stop_gradient(weight), weight)
    rows = _table_rows("embedding", weight, input, 0)
    if scale_grad_by_freq:
        counts = jnp.zeros((weight.shape[0],), rows.dtype).at[input].add(1)[input][..., None]
        # The value stays `rows`; only the gradient is divided.
        rows = rows / counts + jax.lax.stop_gradient(rows - rows / counts)
    if max_norm is None:
        return rows
    # A constant of the derivative: MindSpore scales the rows of the table before it looks them up.
    size = jax.lax.stop_gradient(norm_of(rows, norm_type, -1, True))
    # 1e-7 keeps the scaled norm below the limit in spite of rounding.
    return rows * jnp.where(size > max_norm, max_norm / (size + 1e-7), jnp.ones((), rows.dtype))


@operator("NonZero()", function="", composed=True)
def _nonzero_primitive(input: Any) -> Tensor:
    """Positions (int64) of the elements that are not zero, one a row; outside compiled steps only."""
    return wrap_numpy(np.argwhere(known("NonZero", "input", input)).astype(np.int64))


@operator(function="nonzero", method="nonzero", mint="nonzero", composed=True)
def nonzero(input: Any, *, as_tuple: bool = False) -> Any:
    """Positions (int64) of the elements that are not zero: one a row, or with `as_tuple` one vector for each dim.

    The result's shape depends on the values: a compiled step with it runs operator by operator.
    """
    positions = _nonzero_primitive(input)
    if not as_tuple:
        return positions
    return tuple(wrap_numpy(column) for column in np.asarray(positions.array).T.copy())


@operator(function="argwhere", method="argwhere", composed=True)
def argwhere(input: Any) -> Tensor:
    """Positions (int64) of the elements that are not zero, one a row; outside compiled steps only."""
    return _nonzero_primitive(input)


@operator("MaskedSelect()", function="masked_select", method="masked_select", mint="masked_select", composed=True)
def masked_select(input: Any, mask: Any) -> Any:
    """The elements where `mask` is true, as a vector; both are broadcast first.

    The result's shape depends on the values of `mask`: a compiled step with it runs operator by operator.

    Raises:
        SporaxTypeError: `mask` is not a bool tensor.
    """
    chosen = known("MaskedSelect", "mask", mask)
    For("MaskedSelect").refuse_type(chosen.dtype != np.bool_, "'mask' must be Tensor[Bool]", mask.dtype)
    shape = check.broadcast("MaskedSelect", input, chosen)
    picked = np.flatnonzero(np.broadcast_to(chosen, shape))
    # The values are gathered by an operator, so that they have a gradient.
    return _picked(input, wrap_numpy(picked), shape)


@operator(function="")
def _picked(input: Array, index: Array, shape: tuple[int, ...]) -> Array:
    """Elements of the broadcast tensor at flat positions."""
    return jnp.broadcast_to(input, shape).reshape(-1)[index]


_split_along("vsplit", 0)
_split_along("dsplit", 2)


def _strided_limits(call: Call, shapes: Shapes, slices: NumSlices, num_devices: int) -> None:
    """A sharded dimension is taken whole."""
    if call.get("ellipsis_mask", 0):
        raise For(call.where).state_error("'ellipsis_mask' must be 0 where the input is sharded", slices[0])

    def masked(name: str, place: int) -> bool:
        return bool(int(str(call.get(f"{name}_mask", 0))) >> place & 1)

    count = len(_ints(call, "begin"))
    # New axes stand among what `begin` names; the dimensions behind it are taken whole, unless they are dropped.
    positions = [place for place in range(count + len(shapes[0])) if place >= count or not masked("new_axis", place)]
    for dim, (size, parts, place) in enumerate(zip(shapes[0], slices[0], positions, strict=False)):
        # Compared as they are set: a negative number is refused like any other part of the dimension.
        ranges = zip(*(_ints(call, name) for name in ("begin", "end", "strides")), strict=True)
        begin, end, stride = dict(enumerate(ranges)).get(place, (0, size, 1))
        begins, ends = begin == 0 or masked("begin", place), end >= size or masked("end", place)
        if parts > 1 and not (begins and ends and stride == 1 and not masked("shrink_axis", place)):
            _refuse_part(call, dim, parts, f"{begin}:{end}:{stride}", size)


def _slice_limits(call: Call, shapes: Shapes, slices: NumSlices, num_devices: int) -> None:
    """A sharded dimension is taken whole."""
    begin, sizes = _ints(call, "begin"), _ints(call, "size")
    for dim, (size, parts) in enumerate(zip(shapes[0], slices[0], strict=True)):
        if parts > 1 and (begin[dim : dim + 1] != (0,) or sizes[dim : dim + 1] not in ((size,), (-1,))):
            _refuse_part(call, dim, parts, f"{sizes[dim : dim + 1]} from {begin[dim : dim + 1]}", size)


def _refuse_part(call: Call, dim: int, parts: int, taken: str, size: int) -> None:
    raise For(call.where).state_error(
        f"dimension {dim} has {parts} slices, so all of its {size} elements must be taken with a stride of 1", taken
    )


def _ints(call: Call, name: str) -> tuple[int, ...]:
    value = call.get(name, ())
    return value if isinstance(value, tuple) else ()


@operator(
    "StridedSlice(begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask)",
    function="strided_slice",
    dims=OperatorDims(limits=_strided_limits),
)
def strided_slice(
    input_x: Array,
    begin: tuple[int, ...],
    end: tuple[int, ...],
    strides: tuple[int, ...],
    begin_mask: int = 0,
    end_mask: int = 0,
    ellipsis_mask: int = 0,
    new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
) -> Array:
    """``input_x[begin:end:strides]`` per dimension.

    Bit i of a mask is about position i: begin, end: ignore that bound; ellipsis: the position stands for all dims left
    over; new axis: a dimension of size 1; shrink axis: take the one element at `begin` and drop the dim.
    """
    For("StridedSlice").refuse(0 in strides, "the numbers in 'strides' must not be 0", strides)
    if not len(begin) == len(end) == len(strides):
        raise SporaxValueError(
            f"For 'StridedSlice', 'begin', 'end' and 'strides' must have one length, but got {begin}, {end}, {strides}."
        )

    def part(index: int) -> Any:
        # Bits of the masks, in the order of precedence of TensorFlow, whose operator this is.
        bit = 1 << index
        if ellipsis_mask & bit:
            return Ellipsis
        if new_axis_mask & bit:
            return None
        if shrink_axis_mask & bit:
            return begin[index]
        return slice(None if begin_mask & bit else begin[index], None if end_mask & bit else end[index], strides[index])

    return input_x[tuple(part(index) for index in range(len(begin)))]


@operator("Slice()", function="slice", dims=OperatorDims(limits=_slice_limits))
def slice_(input_x: Array, begin: tuple[int, ...], size: tuple[int, ...]) -> Array:
    """The block that starts at `begin` and has sizes `size`; a size of -1 reaches to the end.

    Raises:
        SporaxValueError: the block leaves the tensor, or the numbers of dimensions differ.
    """
    # As many numbers as dims: MindSpore does not fill up.
    if not len(begin) == len(size) == input_x.ndim:
        raise SporaxValueError(
            f"For 'Slice', 'begin' and 'size' must have one number per dim of shape {input_x.shape}, but got {begin}, {size}."
        )
    sizes = tuple(
        extent - start if length == -1 else length
        for extent, start, length in zip(input_x.shape, begin, size, strict=True)
    )
    for dim, (extent, start, length) in enumerate(zip(input_x.shape, begin, sizes, strict=True)):
        # JAX would clamp the start silently.
        if start < 0 or length < 0 or start + length > extent:
            raise SporaxValueError(
                f"For 'Slice', begin {start} and size {length} leave the range of dim {dim}, which has size {extent}."
            )
    return jax.lax.slice(input_x, begin, [start + length for start, length in zip(begin, sizes, strict=True)])


@operator("Gather(batch_dims)", function="gather", method="gather", form=TableLookup, dims=TABLE_FIRST)
def gather(input_params: Array, input_indices: check.Int, axis: int, batch_dims: int = 0) -> Array:
    """Slices of `input_params` along `axis` at `input_indices`; an index out of range gives zeros.

    Args:
        input_params: tensor that is looked up.
        input_indices: integer tensor of any shape; it takes the place of dim `axis`.
        axis: the dimension.
        batch_dims: how many leading dimensions the two have in common.
    """
    where = check.axis("Gather", axis, input_params.ndim)

    def lookup(params: Array, indices: Array, dim: int) -> Array:
        return jnp.take(params, indices, dim, mode="fill", fill_value=0)

    function = lookup
    # Each batch dim is mapped over; `axis` counts from behind them.
    for _ in range(batch_dims):
        function = jax.vmap(function, in_axes=(0, 0, None))
    return function(input_params, input_indices, where - batch_dims)
