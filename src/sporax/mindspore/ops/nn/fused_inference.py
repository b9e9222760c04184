"""`FusedInferAttentionScore`: attention for inference, of whole prompts and of one token at a time, in one operator.

Layouts, masks and lengths as in `inference_attention`, which computes the result. Where the query has one token, windows do not
count, and keys may be sharded along their length: each rank sees a part of them, and maxima and sums of the softmax are
reduced. A strategy has entries of query, keys and values; those of the other inputs follow from them, as in MindSpore.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self, TypeAlias

import jax.numpy as jnp

from sporax.base.errors import For, SporaxNotImplementedError, named
from sporax.ir.operator_dims import Call, Dims, Names, Shapes, StrategyEntry
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.ops._core import Array, Primitive, check, operator, refusing
from sporax.mindspore.ops._generated import GENERATED
from sporax.mindspore.ops.nn import attention
from sporax.mindspore.ops.nn.inference_attention import operands_of

_NAME = "FusedInferAttentionScore"
_LAYOUTS: dict[str, Names] = {"BSH": ("b", "s", "n"), "BNSD": ("b", "n", "s", "d!"), "BSND": ("b", "s", "n", "d!")}
OneTensor: TypeAlias = Tensor | Sequence[Tensor]
_COMPRESSED = (2, 3, 4)
"""Modes in which the values of a mask are not read."""


def _is_one_token(query: Names, shape: tuple[int, ...]) -> bool:
    return shape[query.index("s")] == 1


def _of_scores(name: str, num_dims: int, length: str, one: bool) -> Names:
    """The dimensions of an input that goes with the scores, by their number; of one query, masks of two are for a batch."""
    if name.endswith("lengths"):
        return ("b",)
    scores = ("b", "n", "q!" if one else "s", length)
    return {4: scores, 3: (scores[0], *scores[2:]), 2: (scores[0], length) if one else scores[2:]}.get(num_dims, ())


def _heads_of_keys(call: Call, query: Names) -> list[int]:
    """In how many parts a strategy has the heads of key and value."""
    numbers = [entry for entry in (call.in_strategy or ())[:3] if isinstance(entry, tuple) and len(entry) == len(query)]
    return [entry[query.index("n")] for entry in numbers][1:]


def _dims(call: Call, shapes: Shapes) -> Dims | None:
    """Batch and heads; the queries' length, or that of the keys where there is one query."""
    query = _LAYOUTS[str(call.get("input_layout")).partition("_")[0]]
    present = call.get("present", ())
    if len(shapes[0]) != len(query) or not isinstance(present, tuple):
        return None
    one = _is_one_token(query, shapes[0])
    length = "k" if one else "k!"
    of_keys = {"s": length, "n": "m!" if _heads_of_keys(call, query) == [1, 1] else "n"}
    key = tuple(of_keys.get(name, name) for name in query)
    is_compressed = not one and call.get("sparse_mode") in _COMPRESSED
    named = (
        tuple(f"{name}{dim}!" for dim in range(len(shape)))
        if name == "attn_mask" and is_compressed
        else _of_scores(name, len(shape), length, one)
        for name, shape in zip(present, shapes[3:], strict=True)
    )
    inputs = (query, key, key, *named)
    entries = [StrategyEntry(names, shape) for names, shape in zip(inputs[:3], shapes[:3], strict=True)]
    return Dims(inputs, tuple(entries), leader=0)


@operator(_NAME, function="", classes=GENERATED, dims=_dims)
def _fused_infer_attention(
    query: check.Float,
    key: check.Float,
    value: check.Float,
    others: tuple[Array, ...],
    present: tuple[str, ...],
    num_heads: int,
    scale_value: float,
    pre_tokens: int,
    next_tokens: int,
    input_layout: Literal["BSH", "BNSD", "BSND", "BNSD_BSND"],
    num_key_value_heads: int,
    sparse_mode: int,
    softmax_lse_flag: bool,
) -> tuple[Array, Array]:
    """The result, and the logarithms of the sums of exponentials (batch, heads, queries, 1), or one zero where not requested."""
    inputs = dict(zip(present, others, strict=True))
    layout, _, of_result = input_layout.partition("_")
    reach = sparse_mode, pre_tokens, next_tokens
    if _is_one_token(_LAYOUTS[layout], query.shape):
        reach = 0, attention.EVERYTHING, attention.EVERYTHING
        inputs.pop("query_lengths", None)
        if (mask := inputs.get("attn_mask")) is not None and mask.ndim == 2:
            inputs["attn_mask"] = mask[:, None]
    elif sparse_mode in _COMPRESSED and "attn_mask" in inputs:
        inputs["attn_mask"] = inputs["attn_mask"].reshape(inputs["attn_mask"].shape[-2:])
    query, key, value, shift, visible = operands_of(
        _NAME, (query, key, value), inputs, num_heads, num_key_value_heads, layout, reach
    )
    result = attention.together(attention.attended(query, key, value, shift, visible, scale_value), of_result or layout)
    if not softmax_lse_flag:
        return result, jnp.zeros(1, jnp.float32)
    largest, total = attention._statistics(attention._scores(query, key, shift, visible, scale_value))
    return result, largest + jnp.log(total)


def _refuse(name: str, **inputs: tuple[object, None]) -> None:
    if any(value is not None for value, _ in inputs.values()):
        raise SporaxNotImplementedError(
            f"For '{_NAME}', inputs behind 'actual_seq_lengths_kv' must be None: quantized tensors, caches in blocks and "
            "shared prefixes are not offered."
        )


class FusedInferAttentionScore(Primitive):
    """Attention ``Softmax(Mask(scale · query · keyᵀ + shift)) · value`` for inference.

    Args:
        num_heads: heads of the query.
        scale_value: factor of the products.
        pre_tokens, next_tokens: how far back and forward a query looks, where there is a mask; see `FlashAttentionScore`.
        input_layout: "BSH", "BNSD", "BSND", or "BNSD_BSND", whose result is "BSND".
        num_key_value_heads: heads of keys and values; 0: as many as the query has.
        sparse_mode: see `FlashAttentionScore`; with one query it does not count.
        inner_precise: 0 to 3; rows that see no key give zeros in any case.
        block_size, antiquant_mode, key_antiquant_mode, value_antiquant_mode: of caches in blocks and of quantized keys,
            which are refused.
        softmax_lse_flag: whether the second result is requested.

    Inputs: query; key and value, Tensors or lists of one; pse_shift; attn_mask, 1 where a query may not look;
    actual_seq_lengths and actual_seq_lengths_kv, numbers of tokens that count; the rest must be None.
    """

    operator = _fused_infer_attention
    attribute_names = tuple(
        """num_heads scale_value pre_tokens next_tokens input_layout num_key_value_heads sparse_mode
        softmax_lse_flag""".split()
    )

    def __init__(
        self,
        num_heads: int = 1,
        scale_value: float = 1.0,
        pre_tokens: int = attention.EVERYTHING,
        next_tokens: int = attention.EVERYTHING,
        input_layout: str = "BSH",
        num_key_value_heads: int = 0,
        sparse_mode: int = 0,
        inner_precise: int = 1,
        block_size: int = 0,
        antiquant_mode: int = 0,
        softmax_lse_flag: bool = False,
        key_antiquant_mode: int = 0,
        value_antiquant_mode: int = 0,
    ) -> None:
        For(_NAME).one_of("inner_precise", inner_precise, range(4))
        reach = pre_tokens, next_tokens, input_layout, num_key_value_heads, sparse_mode
        super().__init__(num_heads, float(scale_value), *reach, softmax_lse_flag)

    def shard(self, in_strategy: Any = None, out_strategy: Any = None) -> Self:
        """As of every operator; the entries of key and value may be nested, ``((2, 1, 4),)``, and further ones are not read.

        Raises:
            SporaxTypeError, SporaxValueError: as `Primitive.shard`.
            SporaxRuntimeError: key and value differ.
        """
        if isinstance(in_strategy, tuple) and len(in_strategy) >= 3:
            first, *pair = (entry[0] if _is_nested(entry) else entry for entry in in_strategy[:3])
            For(_NAME).refuse_state(pair[0] != pair[1], "\"'in_strategy'\" must be equal for key and value", pair)
            in_strategy = (first, *pair)
        return super().shard(in_strategy, out_strategy)

    @refusing(
        """dequant_scale1 quant_scale1 dequant_scale2 quant_scale2 quant_offset2 antiquant_scale antiquant_offset block_table
        query_padding_size kv_padding_size key_antiquant_scale key_antiquant_offset value_antiquant_scale
        value_antiquant_offset key_shared_prefix value_shared_prefix actual_shared_prefix_len""",
        _refuse,
    )
    def __call__(
        self,
        query: Tensor,
        key: OneTensor,
        value: OneTensor,
        pse_shift: Tensor | None = None,
        attn_mask: Tensor | None = None,
        actual_seq_lengths: Tensor | Sequence[int] | None = None,
        actual_seq_lengths_kv: Tensor | Sequence[int] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The result, and the logarithms."""
        inputs = {
            "attn_mask": attn_mask,
            "pse_shift": pse_shift,
            "query_lengths": attention.as_tensor("actual_seq_lengths", actual_seq_lengths),
            "key_lengths": attention.as_tensor("actual_seq_lengths_kv", actual_seq_lengths_kv),
        }
        inputs = {name: tensor for name, tensor in inputs.items() if tensor is not None}
        pair = _only_one("key", key), _only_one("value", value)
        result, logarithms = super().__call__(query, *pair, tuple(inputs.values()), tuple(inputs))
        return result, logarithms


def _is_nested(entry: object) -> bool:
    return isinstance(entry, tuple) and len(entry) == 1 and not isinstance(entry[0], int)


def _only_one(name: str, value: OneTensor) -> Tensor:
    tensors = list(value) if isinstance(value, tuple | list) else [value]
    if len(tensors) != 1 or not isinstance(tensors[0], Tensor):
        raise For(_NAME).type_error(f"{named(name)} must be a Tensor or a list of one", value)
    return tensors[0]


GENERATED[_NAME] = FusedInferAttentionScore
attention.as_function(
    "fused_infer_attention_score",
    FusedInferAttentionScore,
    """query key value * pse_shift atten_mask=attn_mask actual_seq_lengths actual_seq_lengths_kv dequant_scale1 quant_scale1
    dequant_scale2 quant_scale2 quant_offset2 antiquant_scale antiquant_offset key_antiquant_scale key_antiquant_offset
    value_antiquant_scale value_antiquant_offset block_table query_padding_size kv_padding_size key_shared_prefix
    value_shared_prefix actual_shared_prefix_len num_heads scale=scale_value pre_tokens next_tokens input_layout
    num_key_value_heads sparse_mode inner_precise block_size antiquant_mode key_antiquant_mode value_antiquant_mode
    softmax_lse_flag""",
    "`FusedInferAttentionScore` as a function.",
)
