"""Fused attention for inference: `PromptFlashAttention` for whole prompts, `IncreFlashAttention` for one token at a time.

Layouts and masks as in `sporax.mindspore.ops.nn.attention`; `jax.nn.dot_product_attention` computes the result. Position shifts
are added to the scaled products. Tokens beyond a given length are not looked at, and as queries give zeros. Quantized tensors
and paged caches are refused.

Caches of keys and values in blocks: `ReshapeAndCache` writes them, `PagedAttention` looks into them one token at a time.

Problem: sequences that are generated together grow to lengths that are not known in advance, so their keys and values are kept in
blocks of one size, and a table says which blocks belong to which sequence (Kwon et al., "Efficient Memory Management for
Large Language Model Serving with PagedAttention", SOSP 2023). Method: a slot is a row of the cache with its blocks put one
after another; keys are gathered through the table and masked behind the length of each sequence, then
`jax.nn.dot_product_attention` computes the result. Quantized caches are refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from sporax.base.errors import For, SporaxTypeError, SporaxValueError
from sporax.ir.operator_dims import Call, Dims, Shapes, StrategyEntry, numbered
from sporax.mindspore.common import Parameter, Tensor
from sporax.mindspore.ops._core import FUNCTIONS, PRIMITIVES, Array, Primitive, check, operator, refusing
from sporax.mindspore.ops.nn import attention


@operator(function="", dims=attention.AttentionDims(("b", "s", "k!")))
def _infer_attention(
    query: Array,
    key: Array,
    value: Array,
    others: tuple[Array, ...],
    present: tuple[str, ...],
    name: str,
    num_heads: int,
    scale_value: float,
    input_layout: attention.Layout,
    num_key_value_heads: int,
    sparse_mode: int,
    pre_tokens: int,
    next_tokens: int,
) -> Array:
    """The result in the layout of the query; `others` are the tensors of the names `present`."""
    reach = sparse_mode, pre_tokens, next_tokens
    operands = operands_of(
        name,
        (query, key, value),
        dict(zip(present, others, strict=True)),
        num_heads,
        num_key_value_heads,
        input_layout,
        reach,
    )
    return attention.together(_attend(*operands, scale_value), input_layout)


def operands_of(
    name: str,
    tensors: tuple[Array, Array, Array],
    inputs: Mapping[str, Array],
    num_heads: int,
    num_key_value_heads: int,
    layout: str,
    reach: tuple[int, int, int],
) -> tuple[Array, Array, Array, Array | None, Array | None]:
    """Query, key and value (batch, length, heads, size), the shift of the scores, and where queries may look.

    Args:
        tensors: query, key and value in `layout`.
        inputs: masks, shifts and lengths by name.
        reach: the mode of the mask, and how far a query looks back and forward.
    """
    query, key, value = tensors
    key_heads = num_key_value_heads or num_heads
    check.only(name, num_key_value_heads=(key_heads, attention.num_key_heads(name, query, key, layout, num_heads)))
    query = attention.apart(name, query, layout, num_heads)
    key, value = (attention.apart(name, x, layout, key_heads) for x in (key, value))
    attention.check_qkv(name, query, key, value, num_heads)
    lengths = query.shape[1], key.shape[1]
    mask = inputs.get("attn_mask")
    if mask is not None and mask.ndim == 3:  # (batch, queries, keys): the same for all heads
        mask = mask[:, None]
    visible = attention.allowed(name, reach[0], reach[1:], mask, lengths, (None, None))
    visible = _within(visible, inputs.get("key_lengths"), lengths[1], -1)
    visible = _within(visible, inputs.get("query_lengths"), lengths[0], -2)
    shift = inputs.get("pse_shift")
    # MindSpore's shifts may be longer than the sequences.
    shift = None if shift is None else shift[..., : lengths[0], : lengths[1]].astype(query.dtype)
    return query, key, value, shift, visible


def _within(visible: Array | None, lengths: Array | None, size: int, axis: int) -> Array | None:
    """`visible`, and only tokens below the lengths (batch,) along the queries (axis -2) or the keys (-1)."""
    if lengths is None:
        return visible
    # Broadcast against (batch, heads, queries, keys).
    numbers = jnp.expand_dims(jnp.arange(size), -3 - axis)  # (size, 1) for queries, (1, size) for keys
    inside = numbers < lengths.reshape(-1, 1, 1, 1)
    return inside if visible is None else visible & inside


def _attend(query: Array, key: Array, value: Array, shift: Array | None, visible: Array | None, scale: float) -> Array:
    """Attention of (batch, length, heads, size); `shift` is added to the scaled products."""
    if query.dtype == jnp.float16:
        # JAX uses a product of halves that XLA's CPU backend refuses.
        return attention.attended(query, key, value, shift, visible, scale)
    result = jax.nn.dot_product_attention(
        query, key, value, bias=shift, mask=None if visible is None else _full_mask(visible, query, key), scale=scale
    )
    # JAX gives such rows the mean of all values; MindSpore gives zeros.
    return result if visible is None else jnp.where(_sees_any(visible), result, jnp.zeros((), result.dtype))


def _full_mask(visible: Array, query: Array, key: Array) -> Array:
    # JAX wants the mask's last dims whole.
    lead = jnp.broadcast_shapes(visible.shape[:-2], (1, 1))
    return jnp.broadcast_to(visible, (*lead, query.shape[1], key.shape[1]))


def _sees_any(visible: Array) -> Array:
    """Which queries may look at some key: (batch or 1, queries, heads or 1, 1)."""
    lead = jnp.broadcast_shapes(visible.shape[:-2], (1, 1))
    return jnp.broadcast_to(visible.any(-1), (*lead, visible.shape[-2])).swapaxes(1, 2)[..., None]


class _InferenceAttention(Primitive):
    """What both operators share: their inputs by name."""

    operator = _infer_attention
    attribute_names: tuple[str, ...] = ()

    def __init__(self, inner_precise: int, *settings: object) -> None:
        name = type(self).__name__
        For(name).refuse(inner_precise not in (0, 1), "'inner_precise' must be 0 or 1", inner_precise)
        super().__init__(**dict(zip(self.attribute_names, (name, *settings), strict=True)))

    def _attend(self, query: Any, key: Any, value: Any, inputs: dict[str, Any]) -> Any:
        present = {name: value for name, value in inputs.items() if value is not None}
        return super().__call__(query, key, value, tuple(present.values()), tuple(present))


class PromptFlashAttention(_InferenceAttention):
    """Attention over whole prompts: ``Softmax(Mask(scale · query · keyᵀ + shift)) · value``.

    Args:
        num_heads: heads of the query.
        scale_value: factor of the products.
        pre_tokens, next_tokens: how far back and forward a query looks, where there is a mask; see `FlashAttentionScore`.
        input_layout: ``"BSH"`` or ``"BNSD"`` (and those of `FlashAttentionScore` with a batch).
        num_key_value_heads: heads of keys and values; 0: as many as the query has.
        sparse_mode: see `FlashAttentionScore`.
        inner_precise: 0 or 1; changes nothing.

    Inputs: query, key, value; attn_mask (1: do not look); actual_seq_lengths and actual_seq_lengths_kv (batch,), tokens
    that count; pse_shift; the rest, for quantized tensors, must be None.

    Differs from MindSpore: every floating dtype, on every device.
    """

    attribute_names = (
        *("name", "num_heads", "scale_value", "pre_tokens", "next_tokens", "input_layout", "num_key_value_heads"),
        "sparse_mode",
    )

    def __init__(
        self,
        num_heads: int = 1,
        scale_value: float = 1.0,
        pre_tokens: int = 2147483647,
        next_tokens: int = 0,
        input_layout: str = "BSH",
        num_key_value_heads: int = 0,
        sparse_mode: int = 0,
        inner_precise: int = 1,
    ) -> None:
        heads = input_layout, num_key_value_heads, sparse_mode
        super().__init__(inner_precise, num_heads, scale_value, pre_tokens, next_tokens, *heads)

    @refusing("deq_scale1 quant_scale1 deq_scale2 quant_scale2 quant_offset2", check.only)
    def __call__(
        self,
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        actual_seq_lengths: Any = None,
        actual_seq_lengths_kv: Any = None,
        pse_shift: Any = None,
    ) -> Any:
        """The result in the layout of the query."""
        lengths = attention.as_tensor("actual_seq_lengths", actual_seq_lengths)
        key_lengths = attention.as_tensor("actual_seq_lengths_kv", actual_seq_lengths_kv)
        inputs = {"attn_mask": attn_mask, "pse_shift": pse_shift, "query_lengths": lengths, "key_lengths": key_lengths}
        return self._attend(query, key, value, inputs)


class IncreFlashAttention(_InferenceAttention):
    """Attention of one token per sequence: ``Softmax(Mask(scale · query · keyᵀ + shift)) · value``.

    Args:
        num_heads: heads of the query.
        input_layout: ``"BSH"`` or ``"BNSD"``.
        scale_value: factor of the products.
        num_key_value_heads: heads of keys and values; 0: as many as the query has.
        block_size: must be 0: caches are not paged.
        inner_precise: 0 or 1; changes nothing.

    Inputs: query; key and value, each a Tensor or a tuple or list of them to be put together along the batch; attn_mask
    (batch, keys), (batch, 1, keys) or (batch, 1, 1, keys), 1: do not look; actual_seq_lengths (batch,), keys that count;
    pse_shift; the rest, for quantized tensors and paged caches, must be None.

    Differs from MindSpore: every floating dtype, on every device.
    """

    attribute_names = (
        *("name", "num_heads", "input_layout", "scale_value", "num_key_value_heads"),
        *("sparse_mode", "pre_tokens", "next_tokens"),
    )

    def __init__(
        self,
        num_heads: int = 1,
        input_layout: str = "BSH",
        scale_value: float = 1.0,
        num_key_value_heads: int = 0,
        block_size: int = 0,
        inner_precise: int = 1,
    ) -> None:
        check.only("IncreFlashAttention", block_size=(block_size, 0))
        windows = 0, attention.EVERYTHING, attention.EVERYTHING
        super().__init__(inner_precise, num_heads, input_layout, scale_value, num_key_value_heads, *windows)

    @refusing(
        """dequant_scale1 quant_scale1 dequant_scale2 quant_scale2 quant_offset2 antiquant_scale antiquant_offset block_table
        kv_padding_size""",
        check.only,
    )
    def __call__(
        self,
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        actual_seq_lengths: Any = None,
        pse_shift: Any = None,
    ) -> Any:
        """The result in the layout of the query."""
        if isinstance(attn_mask, Tensor) and attn_mask.ndim == 2:
            # (batch, keys): the same for all queries.
            attn_mask = attn_mask.expand_dims(1)
        lengths = attention.as_tensor("actual_seq_lengths", actual_seq_lengths)
        inputs = {"attn_mask": attn_mask, "pse_shift": pse_shift, "key_lengths": lengths}
        return self._attend(query, _one_tensor("key", key), _one_tensor("value", value), inputs)


def _one_tensor(name: str, value: Any) -> Tensor:
    if isinstance(value, tuple | list) and value and all(isinstance(part, Tensor) for part in value):
        # MindSpore takes keys as a list of parts of the batch.
        return value[0] if len(value) == 1 else FUNCTIONS["concat"](tuple(value), 0)
    if isinstance(value, Tensor):
        return value
    raise SporaxTypeError(
        f"For 'IncreFlashAttention', '{name}' must be a Tensor or a tuple or list of them, but got {type(value).__name__}."
    )


PRIMITIVES.update(PromptFlashAttention=PromptFlashAttention, IncreFlashAttention=IncreFlashAttention)
attention.as_function(
    "prompt_flash_attention",
    PromptFlashAttention,
    """query key value attn_mask actual_seq_lengths actual_seq_lengths_kv pse_shift deq_scale1 quant_scale1 deq_scale2
    quant_scale2 quant_offset2 num_heads scale_value pre_tokens next_tokens input_layout num_key_value_heads sparse_mode
    inner_precise""",
    "`PromptFlashAttention` as a function.",
)
attention.as_function(
    "incre_flash_attention",
    IncreFlashAttention,
    """query key value attn_mask actual_seq_lengths pse_shift dequant_scale1 quant_scale1 dequant_scale2 quant_scale2
    quant_offset2 antiquant_scale antiquant_offset block_table num_heads input_layout scale_value num_key_value_heads
    block_size inner_precise kv_padding_size""",
    "`IncreFlashAttention` as a function.",
)


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
        raise For("ReshapeAndCache").error(f"a cache must be (blocks, block_size, …), but its shape is {cache.shape}")
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
        For(self.name).typed("slot_mapping", slot_mapping, "a Tensor", Tensor)
        for name, cache, rows in (("key_cache", key_cache, key), ("value_cache", value_cache, value)):
            if rows is None:
                continue
            For(self.name).typed(name, cache, "a Parameter", Parameter)
            cache._replace(super().__call__(cache, rows, slot_mapping).array)
        return key


def _paged_dims(call: Call, shapes: Shapes) -> Dims:
    """Heads are sharded equally, and so are sequences; blocks are whole."""
    query, cache = shapes[:2]
    heads = len(query) - (2 if len(query) > 2 and query[-2] == call.get("head_num") else 1)
    of_query = tuple({0: "b", heads: "heads"}.get(dim, f"q{dim}!") for dim in range(len(query)))
    of_cache = tuple("heads" if dim == 2 else f"c{dim}!" for dim in range(len(cache)))
    shifts = [numbered(len(shape), range(len(shape)), "s") for shape in shapes[5:]]
    of_lengths = "b" if shapes[4] == shapes[3][:1] else "l!"
    return Dims((of_query, of_cache, of_cache, ("b", "t!"), (of_lengths,), *shifts))


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
    # A buffer of lengths may be longer than there are sequences.
    lengths = context_lens.reshape(-1, 1)[:num_sequences]
    seen = (jnp.arange(length) < lengths)[:, None, None, :]
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
        For(name).one_of("kv_cache_quant_mode", kv_cache_quant_mode, ("DEFAULT", "PERTOKEN"))
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
    (blocks, block_size, kv_heads, size); block_tables (sequences, max_blocks); context_lens, keys that count: the first numbers
    are those of the sequences; the rest must be None.

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

    @refusing("antiquant_scale antiquant_offset attn_mask q_seq_lens alibi_mask", check.only)
    def __call__(
        self, query: Any, key_cache: Any, value_cache: Any = None, block_tables: Any = None, context_lens: Any = None
    ) -> Any:
        """The result in the shape of the query."""
        return super().__call__(query, key_cache, value_cache, block_tables, context_lens, None)


class PagedAttentionMask(_Paged):
    """As `PagedAttention`, with `alibi_mask` (sequences, heads, 1, keys) added to the scaled products."""

    @refusing("antiquant_scale antiquant_offset", check.only, before="alibi_mask")
    def __call__(
        self, query: Any, key_cache: Any, value_cache: Any, block_tables: Any, context_lens: Any, alibi_mask: Any = None
    ) -> Any:
        """The result in the shape of the query."""
        return super().__call__(query, key_cache, value_cache, block_tables, context_lens, alibi_mask)


PRIMITIVES.update(ReshapeAndCache=ReshapeAndCache, PagedAttention=PagedAttention, PagedAttentionMask=PagedAttentionMask)
