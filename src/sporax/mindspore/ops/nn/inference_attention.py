"""Fused attention for inference: `PromptFlashAttention` for whole prompts, `IncreFlashAttention` for one token at a time.

Layouts and masks as in `sporax.mindspore.ops.nn.attention`; `jax.nn.dot_product_attention` computes the result. Position shifts
are added to the scaled products. Tokens beyond a given length are not looked at, and as queries give zeros. Quantized tensors
and paged caches are refused.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.ops._core import check
from sporax.mindspore.ops._core.operator import FUNCTIONS, PRIMITIVES, Array, Primitive, operator
from sporax.mindspore.ops.nn.attention import (
    EVERYTHING,
    AttentionDims,
    Layout,
    allowed,
    apart,
    as_function,
    as_tensor,
    attended,
    check_qkv,
    num_key_heads,
    together,
)


@operator(function="", dims=AttentionDims(("b", "s", "k!")))
def _infer_attention(
    query: Array,
    key: Array,
    value: Array,
    others: tuple[Array, ...],
    present: tuple[str, ...],
    name: str,
    num_heads: int,
    scale_value: float,
    input_layout: Layout,
    num_key_value_heads: int,
    sparse_mode: int,
    pre_tokens: int,
    next_tokens: int,
) -> Array:
    """The result in the layout of the query; `others` are the tensors of the names `present`."""
    inputs = dict(zip(present, others, strict=True))
    key_heads = num_key_value_heads or num_heads
    check.only(name, num_key_value_heads=(key_heads, num_key_heads(name, query, key, input_layout, num_heads)))
    query = apart(name, query, input_layout, num_heads)
    key, value = (apart(name, x, input_layout, key_heads) for x in (key, value))
    check_qkv(name, query, key, value, num_heads)
    lengths = query.shape[1], key.shape[1]
    mask = inputs.get("attn_mask")
    if mask is not None and mask.ndim == 3:  # (batch, queries, keys): the same for all heads
        mask = mask[:, None]
    visible = allowed(name, sparse_mode, (pre_tokens, next_tokens), mask, lengths, (None, None))
    visible = _within(visible, inputs.get("key_lengths"), lengths[1], -1)
    visible = _within(visible, inputs.get("query_lengths"), lengths[0], -2)
    shift = inputs.get("pse_shift")
    # MindSpore's shifts may be longer than the sequences.
    shift = None if shift is None else shift[..., : lengths[0], : lengths[1]].astype(query.dtype)
    return together(_attend(query, key, value, shift, visible, scale_value), input_layout)


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
        # JAX asks for a product of halves that XLA's CPU backend refuses.
        return attended(query, key, value, shift, visible, scale)
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
        SporaxValueError.raise_if(inner_precise not in (0, 1), name, "inner_precise", "be 0 or 1", inner_precise)
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

    def __call__(
        self,
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        actual_seq_lengths: Any = None,
        actual_seq_lengths_kv: Any = None,
        pse_shift: Any = None,
        deq_scale1: None = None,
        quant_scale1: None = None,
        deq_scale2: None = None,
        quant_scale2: None = None,
        quant_offset2: None = None,
    ) -> Any:
        """The result in the layout of the query."""
        check.only("PromptFlashAttention", deq_scale1=(deq_scale1, None), quant_scale1=(quant_scale1, None))
        check.only("PromptFlashAttention", deq_scale2=(deq_scale2, None), quant_scale2=(quant_scale2, None))
        check.only("PromptFlashAttention", quant_offset2=(quant_offset2, None))
        lengths = as_tensor("actual_seq_lengths", actual_seq_lengths)
        key_lengths = as_tensor("actual_seq_lengths_kv", actual_seq_lengths_kv)
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
        windows = 0, EVERYTHING, EVERYTHING
        super().__init__(inner_precise, num_heads, input_layout, scale_value, num_key_value_heads, *windows)

    def __call__(
        self,
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        actual_seq_lengths: Any = None,
        pse_shift: Any = None,
        dequant_scale1: None = None,
        quant_scale1: None = None,
        dequant_scale2: None = None,
        quant_scale2: None = None,
        quant_offset2: None = None,
        antiquant_scale: None = None,
        antiquant_offset: None = None,
        block_table: None = None,
        kv_padding_size: None = None,
    ) -> Any:
        """The result in the layout of the query."""
        check.only("IncreFlashAttention", dequant_scale1=(dequant_scale1, None), quant_scale1=(quant_scale1, None))
        check.only("IncreFlashAttention", dequant_scale2=(dequant_scale2, None), quant_scale2=(quant_scale2, None))
        check.only("IncreFlashAttention", quant_offset2=(quant_offset2, None), antiquant_scale=(antiquant_scale, None))
        check.only("IncreFlashAttention", antiquant_offset=(antiquant_offset, None), block_table=(block_table, None))
        check.only("IncreFlashAttention", kv_padding_size=(kv_padding_size, None))
        if isinstance(attn_mask, Tensor) and attn_mask.ndim == 2:
            # (batch, keys): the same for all queries.
            attn_mask = attn_mask.expand_dims(1)
        lengths = as_tensor("actual_seq_lengths", actual_seq_lengths)
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
as_function(
    "prompt_flash_attention",
    PromptFlashAttention,
    """query key value attn_mask actual_seq_lengths actual_seq_lengths_kv pse_shift deq_scale1 quant_scale1 deq_scale2
    quant_scale2 quant_offset2 num_heads scale_value pre_tokens next_tokens input_layout num_key_value_heads sparse_mode
    inner_precise""",
    "`PromptFlashAttention` as a function.",
)
as_function(
    "incre_flash_attention",
    IncreFlashAttention,
    """query key value attn_mask actual_seq_lengths pse_shift dequant_scale1 quant_scale1 dequant_scale2 quant_scale2
    quant_offset2 antiquant_scale antiquant_offset block_table num_heads input_layout scale_value num_key_value_heads
    block_size inner_precise kv_padding_size""",
    "`IncreFlashAttention` as a function.",
)
