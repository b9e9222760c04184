"""Lookups in a table whose rows are split into uneven parts: primitives that know fields and parts, and their local form.

    part_lookup[rows, offsets] table indices -> rows         indices (…, fields), rows (…, fields, columns)
    part_update[rows, offsets, num_rows] values indices -> table       its transpose: rows are summed up

Fields are assigned to parts in order, equally many to each. An index counts from the offset of its part; an index
outside of the part reads zeros. The table comes with its rows, as the user sees it, or in blocks (`sporax.ir.uneven`),
as plans hold it. In a plan, a device has whole blocks and the fields that belong to them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, mlir

from sporax.ir.operation import Operation
from sporax.ir.uneven import UnevenRows
from sporax.lowering.execute.local_task import LocalTask, Position

Rows = tuple[int, ...]

part_lookup_p = Primitive("part_lookup")
part_update_p = Primitive("part_update")
fill_spare_rows_p = Primitive("fill_spare_rows")
blocks_of_rows_p = Primitive("blocks_of_rows")
rows_of_blocks_p = Primitive("rows_of_blocks")


def part_lookup(table: Array, indices: Array, rows: Rows, offsets: Rows) -> Array:
    """Rows of a table in parts.

    Args:
        table: (rows, …), parts one after another.
        indices: integers (…, fields).
        rows: of each part; their number divides that of the fields.
        offsets: what indices into each part start from.
    """
    return part_lookup_p.bind(table, indices, rows=rows, offsets=offsets)


def _positions(
    indices: Array, rows: Rows, offsets: Rows, starts: Sequence[int], first: int | Array, count: int
) -> Array:
    """Where each index points in a table whose parts begin at `starts`; -1 for one that is not in its part.

    Args:
        indices: of the fields of `count` parts.
        rows, offsets: of all parts.
        starts: of the `count` parts in the table at hand.
        first: number of the first of these parts.
        count: how many there are.
    """
    per_part = indices.shape[-1] // count
    dtype = np.int64 if indices.dtype.itemsize == 8 else np.int32
    # `first` is traced on a device, hence a dynamic slice of static tables.
    own = [jax.lax.dynamic_slice_in_dim(jnp.asarray(offset, dtype), first, count) for offset in (rows, offsets)]
    num_rows, offset = (jnp.repeat(entry, per_part) for entry in own)
    inside = indices.astype(dtype) - offset
    start = jnp.asarray(np.repeat(np.asarray(starts), per_part), dtype)
    # MindSpore reads zeros outside of a part, and does not clip as JAX does.
    return jnp.where((inside >= 0) & (inside < num_rows), inside + start, -1)


def _starts(num_rows: int, parts: UnevenRows) -> Sequence[int]:
    """Where parts begin: one behind the other, or in blocks."""
    # The number of rows distinguishes the two forms.
    return parts.starts if num_rows == parts.num_rows else range(0, parts.num_stored, parts.block)


def _find(table: Array, positions: Array) -> Array:
    # -1 would count from the end; one past the end is filled with zeros.
    rows_found = jnp.where(positions < 0, table.shape[0], positions)
    return jnp.take(table, rows_found, 0, mode="fill", fill_value=0)


def _sum_up(values: Array, positions: Array, num_rows: int) -> Array:
    rows_found = jnp.where(positions < 0, num_rows, positions).reshape(-1)
    # Rows that no index names get a gradient of zero.
    columns = values.shape[positions.ndim :]
    zeros = jnp.zeros((num_rows, *columns), values.dtype)
    return zeros.at[rows_found].add(values.reshape(-1, *columns), mode="drop")


def _lookup(table: Array, indices: Array, *, rows: Rows, offsets: Rows) -> Array:
    starts = _starts(table.shape[0], UnevenRows(rows))
    return _find(table, _positions(indices, rows, offsets, starts, 0, len(rows)))


def _update(values: Array, indices: Array, *, rows: Rows, offsets: Rows, num_rows: int) -> Array:
    starts = _starts(num_rows, UnevenRows(rows))
    return _sum_up(values, _positions(indices, rows, offsets, starts, 0, len(rows)), num_rows)


def blocks_of_rows(table: Array, *, rows: Rows, dim: int) -> Array:
    """Every part filled up with zeros to a block."""
    parts, table = UnevenRows(rows), jnp.moveaxis(table, dim, 0)
    # Static slices, which XLA copies without computing positions.
    pieces = [table[start : start + size] for start, size in zip(parts.starts, rows, strict=True)]
    filled = [jnp.pad(piece, [(0, parts.block - piece.shape[0])] + [(0, 0)] * (piece.ndim - 1)) for piece in pieces]
    return jnp.moveaxis(jnp.concatenate(filled), 0, dim)


def _rows(blocks: Array, *, rows: Rows, dim: int) -> Array:
    """The rows of all blocks that mean something."""
    parts, blocks = UnevenRows(rows), jnp.moveaxis(blocks, dim, 0)
    pieces = [blocks[number * parts.block :][:size] for number, size in enumerate(rows)]
    return jnp.moveaxis(jnp.concatenate(pieces), 0, dim)


def _fill(x: Array, *, rows: Rows, dim: int, value: float, start: int | Array = 0) -> Array:
    """Rows of blocks that mean nothing replaced by `value`; `start`: the first row of `x` among all of them."""
    parts = UnevenRows(rows)
    dtype = np.int32 if parts.num_stored < 2**31 else np.int64
    number = jax.lax.iota(dtype, x.shape[dim]) + jnp.asarray(start, dtype)
    # Every block begins with its real rows.
    real = number % parts.block < jnp.asarray(rows, dtype)[number // parts.block]
    broadcast = [1] * x.ndim
    broadcast[dim] = -1
    return jnp.where(real.reshape(broadcast), x, jnp.full_like(x, value))


def _resized(x: ShapedArray, dim: int, size: int) -> ShapedArray:
    return x.update(shape=(*x.shape[:dim], size, *x.shape[dim + 1 :]))


def _lookup_type(table: ShapedArray, indices: ShapedArray, *, rows: Rows, offsets: Rows) -> ShapedArray:
    return table.update(shape=(*indices.shape, *table.shape[1:]))


def _update_type(values: ShapedArray, indices: ShapedArray, *, rows: Rows, offsets: Rows, num_rows: int) -> ShapedArray:
    return values.update(shape=(num_rows, *values.shape[len(indices.shape) :]))


def _linear(primitive: Primitive) -> Callable[..., tuple[Array, Array | ad.Zero]]:
    """The derivative of a primitive that is linear in the first of its two operands."""

    def jvp(
        primals: Sequence[Array], tangents: Sequence[Array | ad.Zero], **params: object
    ) -> tuple[Array, Array | ad.Zero]:
        result = primitive.bind(*primals, **params)
        # JAX's symbolic zero must stay one, so that nothing is computed for it.
        if isinstance(tangents[0], ad.Zero):
            return result, ad.Zero(tangents[0].aval.update(shape=result.shape))
        return result, primitive.bind(tangents[0], primals[1], **params)

    return jvp


def _lookup_transpose(
    cotangent: Array | ad.Zero, table: ad.UndefinedPrimal, indices: Array, *, rows: Rows, offsets: Rows
) -> list[Array | ad.Zero | None]:
    if isinstance(cotangent, ad.Zero):
        return [ad.Zero(table.aval), None]
    num_rows = table.aval.shape[0]
    # The transpose needs the table's shape, which the cotangent does not have.
    return [part_update_p.bind(cotangent, indices, rows=rows, offsets=offsets, num_rows=num_rows), None]


def _update_transpose(
    cotangent: Array | ad.Zero, values: ad.UndefinedPrimal, indices: Array, *, rows: Rows, offsets: Rows, num_rows: int
) -> list[Array | ad.Zero | None]:
    if isinstance(cotangent, ad.Zero):
        return [ad.Zero(values.aval), None]
    return [part_lookup_p.bind(cotangent, indices, rows=rows, offsets=offsets), None]


def _define(primitive: Primitive, run: Callable[..., Array], typed: Callable[..., ShapedArray]) -> None:
    primitive.def_impl(run)
    primitive.def_abstract_eval(typed)
    mlir.register_lowering(primitive, mlir.lower_fun(run, multiple_results=False))


_define(part_lookup_p, _lookup, _lookup_type)
_define(part_update_p, _update, _update_type)
_define(fill_spare_rows_p, _fill, lambda x, **_: x)
_define(blocks_of_rows_p, blocks_of_rows, lambda x, *, rows, dim: _resized(x, dim, UnevenRows(rows).num_stored))
_define(rows_of_blocks_p, _rows, lambda x, *, rows, dim: _resized(x, dim, UnevenRows(rows).num_rows))
ad.primitive_jvps[part_lookup_p] = _linear(part_lookup_p)
ad.primitive_jvps[part_update_p] = _linear(part_update_p)
ad.primitive_transposes[part_lookup_p] = _lookup_transpose
ad.primitive_transposes[part_update_p] = _update_transpose


def _local_positions(
    task: LocalTask, position: Position, indices: Array, num_rows: int, axes: tuple[int, ...]
) -> Array:
    """As `_positions`, in the blocks that this rank has."""
    params = task.operation.params
    block = UnevenRows(params["rows"]).block
    count = num_rows // block
    first = position.index(axes) * count
    starts = range(0, num_rows, block)
    return _positions(indices, params["rows"], params["offsets"], starts, first, count)


def local_lookup(task: LocalTask, local: Operation, position: Position, slices: list[Array]) -> list[Array]:
    """Recipe of ``part_lookup``."""
    table, indices = slices
    axes = task.operand_placement(0).dims[0]
    # Without axes the whole table is here, and the plain form needs no offsets.
    if not axes:
        return task.bind(slices, local.params)
    return [_find(table, _local_positions(task, position, indices, table.shape[0], axes))]


def local_update(task: LocalTask, local: Operation, position: Position, slices: list[Array]) -> list[Array]:
    """Recipe of ``part_update``."""
    values, indices = slices
    num_rows, axes = local.results[0].shape[0], task.result_placement(0).dims[0]
    if not axes:
        return task.bind(slices, local.params)
    return [_sum_up(values, _local_positions(task, position, indices, num_rows, axes), num_rows)]


def local_fill(task: LocalTask, local: Operation, position: Position, slices: list[Array]) -> list[Array]:
    """Recipe of ``fill_spare_rows``."""
    dim = task.operation.params["dim"]
    axes = task.operand_placement(0).dims[dim]
    start = position.index(axes) * slices[0].shape[dim] if axes else 0
    return [_fill(slices[0], **task.operation.params, start=start)]


def fill_value(reduction: str, dtype: str) -> float:
    """What does not change a sum, product, maximum or minimum over numbers of a dtype."""
    kind = np.dtype(bool) if dtype == "bool" else jnp.dtype(dtype)
    if reduction in ("sum", "or", "xor"):
        return 0
    if reduction in ("prod", "and"):
        # All bits set change nothing in an integer "and".
        return 1 if reduction == "prod" or kind == np.dtype(bool) else -1
    lowest, highest = (-math.inf, math.inf) if jnp.issubdtype(kind, jnp.inexact) else _limits(kind)
    return lowest if reduction == "max" else highest


def _limits(kind: np.dtype) -> tuple[int, int]:
    if kind == np.dtype(bool):
        return False, True
    limits = np.iinfo(kind)
    return int(limits.min), int(limits.max)
