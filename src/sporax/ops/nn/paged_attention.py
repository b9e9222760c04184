"""Attention over a cache of keys and values in blocks: `ReshapeAndCache` fills it, `PagedAttention` reads it.

Problem: sequences of one batch grow to different lengths, and a cache of the greatest length for each wastes memory. Method:
the cache is a pool of blocks of positions; a table says which blocks belong to a sequence (Kwon et al. 2023, "Efficient memory
management for large language model serving with PagedAttention"). Each sequence's blocks are gathered, and a softmax in float32
looks at its first positions. Quantized caches are refused.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from sporax.common.tensor import Tensor
from sporax.ir.errors import SporaxNotImplementedError, SporaxTypeError, SporaxValueError
from sporax.ops._core import check
from sporax.ops._core.operator import Array, operator


@operator(function="")
def _cached(cache: Array, new: Array, slot_mapping: Array) -> Array:
    """The cache with the tokens of `new` at their slots; tokens with a slot below 0 are left out."""
    name = "ReshapeAndCache"
    check.integral(name, slot_mapping=slot_mapping)
    check.rank(name, 4, cache=cache)
    slots = slot_mapping.reshape(-1)
    if new.size != slots.size * cache.shape[2] * cache.shape[3]:
        raise SporaxValueError(
            f"For '{name}', the new tokens must be {slots.size} (the slots) of {cache.shape[2]} heads of size "
            f"{cache.shape[3]}, but got shape {new.shape}."
        )
    flat = cache.reshape(-1, *cache.shape[2:])
    # Beyond the end of the cache, where nothing is written.
    places = jnp.where(slots < 0, flat.shape[0], slots)
    return flat.at[places].set(new.reshape(-1, *cache.shape[2:]).astype(cache.dtype), mode="drop").reshape(cache.shape)


@operator("ReshapeAndCache()", function="", composed=True)
def _reshape_and_cache(
    key: Any, value: Any = None, key_cache: Any = None, value_cache: Any = None, slot_mapping: Any = None
) -> Any:
    """Write new keys and values, (tokens…, heads · size), to the caches; gives `key` back.

    `key_cache` and `value_cache`: Parameters or Tensors (blocks, block size, heads, size), which are changed; the second one may
    be left out together with `value`. `slot_mapping`: for each token block · block size + position, or a negative number.

    Raises:
        SporaxTypeError: something that is needed is no Tensor.
        SporaxValueError: shapes that do not fit together.
    """
    pairs = [("key", key, key_cache)] + ([("value", value, value_cache)] if value is not None else [])
    if not isinstance(slot_mapping, Tensor):
        raise SporaxTypeError(
            f"For 'ReshapeAndCache', 'slot_mapping' must be a Tensor, but got {type(slot_mapping).__name__}."
        )
    for label, new, cache in pairs:
        for what, tensor in ((label, new), (f"{label}_cache", cache)):
            if not isinstance(tensor, Tensor):
                raise SporaxTypeError(
                    f"For 'ReshapeAndCache', '{what}' must be a Tensor, but got {type(tensor).__name__}."
                )
        cache._replace(_cached(cache, new, slot_mapping).array)
    return key


@operator(function="")
def _paged(
    query: Array,
    key_cache: Array,
    value_cache: Array,
    block_tables: Array,
    context_lens: Array,
    bias: tuple[Array, ...],
    name: str,
    head_num: int,
    scale_value: float,
    kv_head_num: int,
) -> Array:
    """The result in the shape of the query; `bias` is added to the scaled products."""
    check.integral(name, block_tables=block_tables, context_lens=context_lens)
    check.rank(name, 4, key_cache=key_cache, value_cache=value_cache)
    check.rank(name, 2, block_tables=block_tables)
    batch, size = block_tables.shape[0], key_cache.shape[3]
    if key_cache.shape[2] != kv_head_num or kv_head_num < 1 or head_num % kv_head_num:
        raise SporaxValueError(
            f"For '{name}', the caches must have 'kv_head_num' {kv_head_num} heads, which divides 'head_num' {head_num}, but got "
            f"shape {key_cache.shape}."
        )
    if query.size != batch * head_num * size:
        raise SporaxValueError(
            f"For '{name}', the query must be one token of {head_num} heads of size {size} for each of {batch} sequences, but "
            f"got shape {query.shape}."
        )
    heads = query.reshape(batch, kv_head_num, head_num // kv_head_num, size).astype(jnp.float32)

    def gathered(cache: Array) -> Array:
        # Unused places of the table may hold anything.
        blocks = jnp.take(cache, block_tables, axis=0, mode="clip")
        return blocks.reshape(batch, -1, *cache.shape[2:]).astype(jnp.float32)

    keys, values = gathered(key_cache), gathered(value_cache)
    scores = jnp.einsum("bhgd,bthd->bhgt", heads, keys) * scale_value
    for shift in bias:
        shift = jnp.broadcast_to(shift.astype(jnp.float32), (batch, head_num, 1, shift.shape[-1]))
        scores = scores + shift.reshape(*scores.shape[:3], -1)[..., : scores.shape[-1]]
    seen = jnp.arange(scores.shape[-1]) < context_lens.reshape(batch, 1, 1, 1)
    weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1, where=seen)
    result = jnp.einsum("bhgt,bthd->bhgd", weights, values)
    return result.reshape(query.shape).astype(query.dtype)


def _refuse(name: str, **given: Any) -> None:
    """Raise for what is not offered."""
    for label, value in given.items():
        if value is not None:
            raise SporaxNotImplementedError(f"For '{name}', '{label}' is not offered: it must be None.")


@operator(
    "PagedAttention(head_num, scale_value, kv_head_num, kv_cache_quant_mode, mask_mode, mla_v_dim)",
    function="",
    composed=True,
)
def _paged_attention(
    query: Any,
    key_cache: Any,
    value_cache: Any = None,
    block_tables: Any = None,
    context_lens: Any = None,
    antiquant_scale: Any = None,
    antiquant_offset: Any = None,
    attn_mask: Any = None,
    q_seq_lens: Any = None,
    alibi_mask: Any = None,
    *,
    head_num: int,
    scale_value: float,
    kv_head_num: int,
    kv_cache_quant_mode: str = "DEFAULT",
    mask_mode: str = "MASK_DEFAULT",
    mla_v_dim: int = 0,
) -> Any:
    """Attention of one new token per sequence over its blocks of the cache.

    `query`: (sequences…, heads · size), one token each; `key_cache`, `value_cache`: (blocks, block size, key heads, size), the
    second one the first where it is left out; `block_tables`: (sequences, blocks of each) integers; `context_lens`: (sequences,)
    how many positions each has. Several tokens per sequence, masks of them and quantized caches are not offered.

    Raises:
        SporaxNotImplementedError: what is not offered.
        SporaxTypeError, SporaxValueError: what does not fit together.
    """
    name = "PagedAttention"
    _refuse(
        name,
        antiquant_scale=antiquant_scale,
        antiquant_offset=antiquant_offset,
        attn_mask=attn_mask,
        q_seq_lens=q_seq_lens,
    )
    check.only(name, mask_mode=(mask_mode, "MASK_DEFAULT"), mla_v_dim=(mla_v_dim, 0))
    check.only(name, kv_cache_quant_mode=(kv_cache_quant_mode, "DEFAULT"))
    values = key_cache if value_cache is None else value_cache
    bias = () if alibi_mask is None else (alibi_mask,)
    return _paged(
        query, key_cache, values, block_tables, context_lens, bias, name, head_num, float(scale_value), kv_head_num
    )


@operator("PagedAttentionMask(head_num, scale_value, kv_head_num, kv_cache_quant_mode)", function="", composed=True)
def _paged_attention_mask(
    query: Any,
    key_cache: Any,
    value_cache: Any,
    block_tables: Any,
    context_lens: Any,
    antiquant_scale: Any = None,
    antiquant_offset: Any = None,
    alibi_mask: Any = None,
    *,
    head_num: int,
    scale_value: float,
    kv_head_num: int,
    kv_cache_quant_mode: str = "DEFAULT",
) -> Any:
    """As `PagedAttention`, with `alibi_mask`, (sequences, heads, 1, positions), added to the scaled products.

    Raises:
        SporaxNotImplementedError: a quantized cache.
        SporaxTypeError, SporaxValueError: what does not fit together.
    """
    name = "PagedAttentionMask"
    _refuse(name, antiquant_scale=antiquant_scale, antiquant_offset=antiquant_offset)
    check.only(name, kv_cache_quant_mode=(kv_cache_quant_mode, "DEFAULT"))
    bias = () if alibi_mask is None else (alibi_mask,)
    return _paged(
        query, key_cache, value_cache, block_tables, context_lens, bias, name, head_num, float(scale_value), kv_head_num
    )
