"""Caches of keys and values in blocks: `ReshapeAndCache` writes them, `PagedAttention` looks into them one token at a time.

Problem: sequences that are generated together grow to lengths that are not known in advance, so their keys and values are kept in
blocks of one size, and a table says which blocks belong to which sequence (Kwon et al., "Efficient Memory Management for
Large Language Model Serving with PagedAttention", SOSP 2023). Method: a slot is a row of the cache with its blocks put one
after another; keys are gathered through the table and masked behind the length of each sequence, then
`jax.nn.dot_product_attention` computes the result. Quantized caches are refused.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp

from sporax.base.errors import SporaxValueError, check_type
from sporax.ir.operator_dims import Call, Dims, Shapes, StrategyEntry, numbered
from sporax.mindspore.common.parameter import Parameter
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.ops._core import check
from sporax.mindspore.ops._core.operator import PRIMITIVES, Array, Primitive, operator
from sporax.mindspore.ops.nn.inference_attention import _attend


def _cache_dims(call: Call, shapes: Shapes) -> Dims:
    """Heads are sharded equally; a strategy has entries for all that `ReshapeAndCache` takes."""
    cache, rows, slots = shapes
    heads = -2 if len(rows) > 2 and rows[-1] != math.prod(cache[2:]) else -1
    of_rows = tuple("heads" if dim == len(rows) + heads else f"r{dim}!" for dim in range(len(rows)))
    of_cache = tuple("heads" if dim == 2 else f"c{dim}!" for dim in range(len(cache)))
    of_slots = numbered(len(slots), range(len(slots)), "s")
    pair = [StrategyEntry(of_rows, rows)] * 2, [StrategyEntry(of_cache, cache)] * 2
    return Dims((of_cache, of_rows, of_slots), (*pair[0], *pair[1], StrategyEntry(of_slots, slots)))


@operator(function="", dims=_cache_dims)
def _cached_rows(cache: Array, rows: Array, slots: Array) -> Array:
    """`cache` (blocks, block_size, …) with `rows` at the slots; rows with a negative slot, which are padding, stay out."""
    check.integral("ReshapeAndCache", slot_mapping=slots)
    if cache.ndim < 3:
        raise SporaxValueError(
            f"For 'ReshapeAndCache', a cache must be (blocks, block_size, …), but its shape is {cache.shape}."
        )
    flat = cache.reshape(cache.shape[0] * cache.shape[1], -1)
    if rows.size != slots.size * flat.shape[1]:
        raise SporaxValueError(
            f"For 'ReshapeAndCache', keys and values must have {flat.shape[1]} elements for each of the {slots.size} slots, "
            f"but got shape {rows.shape}."
        )
    # A place behind the end is dropped; a negative one would count from the end.
    positions = jnp.where(slots < 0, flat.shape[0], slots).reshape(-1)
    updated = flat.at[positions].set(rows.reshape(slots.size, -1).astype(cache.dtype), mode="drop")
    return updated.reshape(cache.shape)


class ReshapeAndCache(Primitive):
    """Keys and values of new tokens written to caches in blocks.

    Inputs: key (tokens, heads, size) or any shape with as many elements; value likewise, or None; key_cache and value_cache,
    Parameters (blocks, block_size, heads, size); slot_mapping (tokens,): row of the cache, its blocks put one after another;
    negative for padding, which is not written.

    Returns `key`.
    """

    operator = _cached_rows

    def __call__(
        self, key: Any, value: Any = None, key_cache: Any = None, value_cache: Any = None, slot_mapping: Any = None
    ) -> Any:
        """Write the caches; returns `key`."""
        check_type(self.name, "slot_mapping", slot_mapping, "a Tensor", Tensor)
        for name, cache, rows in (("key_cache", key_cache, key), ("value_cache", value_cache, value)):
            if rows is None:
                continue
            check_type(self.name, name, cache, "a Parameter", Parameter)
            cache._replace(super().__call__(cache, rows, slot_mapping).array)
        return key


def _paged_dims(call: Call, shapes: Shapes) -> Dims:
    """Heads are sharded equally, and so are sequences; blocks are whole."""
    query, cache = shapes[:2]
    heads = len(query) - (2 if len(query) > 2 and query[-2] == call.get("head_num") else 1)
    of_query = tuple({0: "b", heads: "heads"}.get(dim, f"q{dim}!") for dim in range(len(query)))
    of_cache = tuple("heads" if dim == 2 else f"c{dim}!" for dim in range(len(cache)))
    shifts = [numbered(len(shape), range(len(shape)), "s") for shape in shapes[5:]]
    return Dims((of_query, of_cache, of_cache, ("b", "t!"), ("b",), *shifts))


@operator(function="", dims=_paged_dims)
def _paged_attention(
    query: Array,
    key_cache: Array,
    value_cache: Array,
    block_tables: Array,
    context_lens: Array,
    shift: Array | None,
    name: str,
    head_num: int,
    scale_value: float,
    kv_head_num: int,
) -> Array:
    """Attention of one query per sequence, in the shape of `query`."""
    check.integral(name, block_tables=block_tables, context_lens=context_lens)
    check.rank(name, 2, block_tables=block_tables)
    num_sequences, max_blocks = block_tables.shape
    size = query.size // max(num_sequences * head_num, 1)
    row = kv_head_num * size
    for what, cache in (("key_cache", key_cache), ("value_cache", value_cache)):
        if cache.ndim < 3 or math.prod(cache.shape[2:]) != row:
            raise SporaxValueError(
                f"For '{name}', '{what}' must be (blocks, block_size, {kv_head_num}, {size}) for {num_sequences} queries of "
                f"{head_num} heads, but its shape is {cache.shape}."
            )
    length = max_blocks * key_cache.shape[1]
    # Places of the table behind the length of a sequence may hold anything.
    blocks = jnp.clip(block_tables, 0, key_cache.shape[0] - 1)
    keys, values = (
        cache[blocks].reshape(num_sequences, length, kv_head_num, size) for cache in (key_cache, value_cache)
    )
    seen = (jnp.arange(length) < context_lens.reshape(-1, 1))[:, None, None, :]
    bias = None if shift is None else _padded(shift.astype(query.dtype), length)
    heads = query.reshape(num_sequences, 1, head_num, size)
    return _attend(heads, keys.astype(query.dtype), values.astype(query.dtype), bias, seen, scale_value).reshape(
        query.shape
    )


def _padded(shift: Array, length: int) -> Array:
    missing = max(length - shift.shape[-1], 0)
    return jnp.pad(shift, [(0, 0)] * (shift.ndim - 1) + [(0, missing)])[..., :length]


class _Paged(Primitive):
    """What both operators share."""

    operator = _paged_attention
    attribute_names = ("name", "head_num", "scale_value", "kv_head_num")

    def __init__(
        self, head_num: int, scale_value: float, kv_head_num: int, kv_cache_quant_mode: str = "DEFAULT"
    ) -> None:
        name = type(self).__name__
        SporaxValueError.raise_unless_in(name, "kv_cache_quant_mode", kv_cache_quant_mode, ("DEFAULT", "PERTOKEN"))
        super().__init__(name=name, head_num=head_num, scale_value=float(scale_value), kv_head_num=kv_head_num)


class PagedAttention(_Paged):
    """Attention of one token per sequence to keys and values in blocks: ``Softmax(scale · query · keyᵀ) · value``.

    Args:
        head_num: heads of the query.
        scale_value: factor of the products.
        kv_head_num: heads of keys and values.
        kv_cache_quant_mode: of quantized caches, which are refused.
        mask_mode: must be ``"MASK_DEFAULT"``.
        mla_v_dim: must be 0.

    Inputs: query (sequences, heads, size), (sequences, hidden) or (sequences, 1, hidden); key_cache and value_cache
    (blocks, block_size, kv_heads, size); block_tables (sequences, max_blocks); context_lens (sequences,), keys that count;
    the rest must be None.

    Returns the result in the shape of the query; zeros where a length is 0.
    """

    def __init__(
        self,
        head_num: int,
        scale_value: float,
        kv_head_num: int,
        kv_cache_quant_mode: str = "DEFAULT",
        mask_mode: str = "MASK_DEFAULT",
        mla_v_dim: int = 0,
    ) -> None:
        check.only("PagedAttention", mask_mode=(mask_mode, "MASK_DEFAULT"), mla_v_dim=(mla_v_dim, 0))
        super().__init__(head_num, scale_value, kv_head_num, kv_cache_quant_mode)

    def __call__(
        self,
        query: Any,
        key_cache: Any,
        value_cache: Any = None,
        block_tables: Any = None,
        context_lens: Any = None,
        antiquant_scale: None = None,
        antiquant_offset: None = None,
        attn_mask: None = None,
        q_seq_lens: None = None,
        alibi_mask: None = None,
    ) -> Any:
        """The result in the shape of the query."""
        check.only(self.name, antiquant_scale=(antiquant_scale, None), antiquant_offset=(antiquant_offset, None))
        check.only(self.name, attn_mask=(attn_mask, None), q_seq_lens=(q_seq_lens, None), alibi_mask=(alibi_mask, None))
        return super().__call__(query, key_cache, value_cache, block_tables, context_lens, None)


class PagedAttentionMask(_Paged):
    """As `PagedAttention`, with `alibi_mask` (sequences, heads, 1, keys) added to the scaled products."""

    def __call__(
        self,
        query: Any,
        key_cache: Any,
        value_cache: Any,
        block_tables: Any,
        context_lens: Any,
        antiquant_scale: None = None,
        antiquant_offset: None = None,
        alibi_mask: Any = None,
    ) -> Any:
        """The result in the shape of the query."""
        check.only(self.name, antiquant_scale=(antiquant_scale, None), antiquant_offset=(antiquant_offset, None))
        return super().__call__(query, key_cache, value_cache, block_tables, context_lens, alibi_mask)


PRIMITIVES.update(ReshapeAndCache=ReshapeAndCache, PagedAttention=PagedAttention, PagedAttentionMask=PagedAttentionMask)
