"""Fused attention for training: `FlashAttentionScore`, and what it shares with the operators of inference.

Problem: MindSpore's operators are kernels of Ascend; their arguments describe layouts, masks and windows of positions.
Method: every layout becomes (batch, length, heads, size), every description of a mask becomes one boolean array, and a
softmax in float32 computes the result together with its maxima and sums; XLA leaves out what a step does not use. A query
that may look at no key gives zeros.

Dimensions: batch, heads and the query's length are sharded; keys are whole along theirs. A strategy may shard heads of keys and
values into less slices than those of queries (grouped and multi-query attention), or leave them whole. Masks that stand for a
form (`sparse_mode` 2 to 4) are whole.

Reference: Dao et al., "FlashAttention", 2022; the masks' modes are those of MindSpore's documentation.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp

from sporax.base.errors import For, SporaxNotImplementedError, SporaxTypeError, SporaxValueError
from sporax.base.lazy_members import dataclass
from sporax.ir import Layout as DeviceLayout, Shape
from sporax.ir.operator_dims import PART, Call, Dims, Names, Shapes, StrategyEntry, numbered
from sporax.mindspore.common import Tensor, dtypes, seed as seeds, wrap
from sporax.mindspore.ops._core import PRIMITIVES, Array, Primitive, check, export, operator, taking, with_signature

_LAYOUTS = {
    "BSH": ("b", "s", "n"),
    "SBH": ("s", "b", "n"),
    "BNSD": ("b", "n", "s", "d!"),
    "BSND": ("b", "s", "n", "d!"),
    "TH": ("s", "n"),
    "TND": ("s", "n", "d!"),
}

_SHAPED_AS_SCORES = ("real_shift", "drop_mask", "attn_mask", "pse_shift")
"""Inputs that are masks or shifts of the scores; all others are whole on every device."""

_LENGTHS = ("query_lengths", "key_lengths")
_SEQUENCE_ENDS = ("actual_seq_qlen", "actual_seq_kvlen")

_SCORES = ("b", "n", "s", "k!")
_COMPRESSED = (2, 3, 4)
"""Modes in which the values of a mask are not read."""


def _of_other(name: str, shape: Shape, entry: object) -> Names:
    """Lengths may be sharded as their sequences are, if their entry says so; all others are whole."""
    if name in _LENGTHS and isinstance(entry, tuple) and max(entry, default=1) > 1:
        return ("b",)
    return numbered(len(shape), range(len(shape)), name)


def _has_own_heads(call: Call, query: Names) -> bool:
    """Whether Layouts shard the heads of keys along other axes than those of queries."""
    layouts = [entry for entry in (call.in_strategy or ())[:2] if isinstance(entry, DeviceLayout)]
    heads = {layout.shardings[query.index("n")] for layout in layouts if len(layout.shardings) == len(query)}
    return len(heads) > 1


def _entry_of_keys(call: Call, query: Names, key: Names) -> Names:
    """What a strategy shards of keys. Sequences in one row may be sharded as the queries are, by Layouts also along a part of
    their axes, and heads along other axes: then the operator gathers them.
    """
    by_layout = any(isinstance(entry, DeviceLayout) for entry in call.in_strategy or ())
    stored = {"m!": "m"} if _has_own_heads(call, query) else {}
    if query == _LAYOUTS["TND"]:
        stored["k!"] = "k" if by_layout else "s"
    return tuple(stored.get(name, name) for name in key)


@dataclass(frozen=True, slots=True)
class AttentionDims:
    """Query, key and value, then masks and shifts.

    A hidden size is sharded as its heads are. The random key has no entry.

    Attributes:
        scores: dimensions of a mask or shift that has as many.
    """

    scores: Names = _SCORES

    def __call__(self, call: Call, shapes: Shapes) -> Dims | None:
        """The names of this call."""
        query = _LAYOUTS.get(str(call.get("input_layout", "BSH")))
        further = call.get("present", ())
        if query is None or not isinstance(further, tuple) or len(further) + 3 != len(shapes):
            return None
        key = self._of_keys(call, query)
        of_scores = _SHAPED_AS_SCORES[:2] if call.get("sparse_mode") in _COMPRESSED else _SHAPED_AS_SCORES
        entries_of = dict(zip(further, (call.in_strategy or ())[3:], strict=False))
        named = [
            self._of_scores(len(shape)) if name in of_scores else _of_other(name, shape, entries_of.get(name))
            for name, shape in zip(further, shapes[3:], strict=True)
        ]
        inputs = (query, key, key, *named)
        entry = _entry_of_keys(call, query, key)
        lengths = [entry[:1] if name in _SEQUENCE_ENDS else names for name, names in zip(further, named, strict=True)]
        entries = [
            StrategyEntry(names, shape) for names, shape in zip((query, entry, entry, *lengths), shapes, strict=True)
        ]
        # Everything from the random key on has no entry.
        drawn = len(further) - further.index("random_key") if "random_key" in further else 0
        batch = "" if query[0] == "b" else query[1]
        return Dims(inputs, tuple(entries[: len(entries) - drawn]), leader=0, batch=batch)

    def _of_keys(self, call: Call, query: Names) -> Names:
        """Keys and values are whole along their length: each query needs all of them. Less slices of heads are repeated."""
        numbers = [entry for entry in (call.in_strategy or ())[:3] if isinstance(entry, tuple)]
        heads = [entry[query.index("n")] for entry in numbers if len(entry) == len(query)]
        are_less = len(heads) == 3 and heads[0] > heads[1] == heads[2] and heads[0] % heads[1] == 0
        of_heads = "n" + PART if are_less else "m!" if _has_own_heads(call, query) else "n"
        return tuple({"s": "k!", "n": of_heads}.get(name, name) for name in query)

    def _of_scores(self, rank: int) -> Names:
        """Batch, heads, queries, keys; the last ones; or three, which mean different things."""
        return self.scores if rank == len(self.scores) else _SCORES[-rank:]


Layout = Literal["BSH", "BNSD", "SBH", "BSND", "TH", "TND"]
EVERYTHING = 2**31 - 1
"""How far a window reaches by default: tokens."""
_STATISTICS_COPIES = 8
"""How often the maximum and the sum of a row stand side by side in the results."""
_COMPRESSED_SHAPE = (2048, 2048)
"""Shape of the mask that stands for a causal one or a band, whatever the lengths."""
# Bits of a byte, each of which is one weight of the drop mask.
_BITS = 8
# MindSpore's numbers of `sparse_mode`.
_FULL, _BAND_OR_FULL, _LEFT_CAUSAL, _RIGHT_CAUSAL, _BAND = 1, 0, 2, 3, 4


def apart(name: str, x: Array, layout: str, heads: int) -> Array:
    """(batch, length, heads, size) of a query, key or value."""
    check.rank(name, len(layout), x=x)
    if layout.endswith("H"):
        For(name).refuse(x.shape[-1] % heads, f"the hidden size must be a multiple of the {heads} heads", x.shape[-1])
        x = x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads)
    # "T" layouts have one row of all sequences: a batch of one.
    if layout.startswith("T"):
        return x[None]
    return {"BNSD": lambda: x.swapaxes(1, 2), "SBH": lambda: x.swapaxes(0, 1)}.get(layout, lambda: x)()


def together(x: Array, layout: str) -> Array:
    """A result (batch, length, heads, size) in the layout of the query."""
    x = x[0] if layout.startswith("T") else x
    x = {"BNSD": lambda: x.swapaxes(1, 2), "SBH": lambda: x.swapaxes(0, 1)}.get(layout, lambda: x)()
    return x.reshape(*x.shape[:-2], -1) if layout.endswith("H") else x


def num_key_heads(name: str, query: Array, key: Array, layout: str, heads: int) -> int:
    """Heads of the keys, which the layouts with a hidden size leave open: heads are equally large."""
    if not layout.endswith("H"):
        return key.shape[1 if layout in ("BNSD", "TND") else 2]
    size = query.shape[-1] // heads
    if not size or key.shape[-1] % size:
        raise For(name).error(f"the hidden size of 'key' must be a multiple of a head's size {size}", key.shape[-1])
    return key.shape[-1] // size


def positions(length: int, ends: Array | None) -> tuple[Array, Array, Array]:
    """Of every token in a row: the sequence it belongs to, its place there, and the length of that sequence."""
    numbers = jnp.arange(length)
    if ends is None:
        return jnp.zeros_like(numbers), numbers, jnp.full_like(numbers, length)
    ends = ends.astype(numbers.dtype)
    sequence = jnp.searchsorted(ends, numbers, side="right")
    # A zero in front: the first sequence begins there.
    starts = jnp.concatenate([jnp.zeros(1, ends.dtype), ends])
    return sequence, numbers - starts[sequence], (starts[1:] - starts[:-1])[sequence]


def _window(mode: int, reach: tuple[int, int], rows: tuple[Array, ...], columns: tuple[Array, ...]) -> Array:
    """Which positions may see which, (queries, keys): those of one sequence, as far as the mode says."""
    sequence, place, length = (row[:, None] for row in rows)
    # How far a key is ahead of its query, within their sequences.
    ahead = columns[1][None] - place
    past_end = columns[2][None] - length  # what lies beyond the square, where the lengths differ
    backward, forward = reach
    inside = {
        _LEFT_CAUSAL: lambda: ahead <= 0,
        _RIGHT_CAUSAL: lambda: ahead <= past_end,
        _BAND: lambda: (ahead - past_end >= -backward) & (ahead - past_end <= forward),
        _BAND_OR_FULL: lambda: (ahead >= -backward) & (ahead <= forward),
    }[mode]()
    return inside & (sequence == columns[0][None])


def allowed(
    name: str, mode: int, reach: tuple[int, int], mask: Array | None, lengths: tuple[int, int], ends: tuple[Any, Any]
) -> Array | None:
    """Where queries may look, to be broadcast to (batch, heads, queries, keys); None for everywhere."""
    if mode not in (_BAND_OR_FULL, _FULL, _LEFT_CAUSAL, _RIGHT_CAUSAL, _BAND):
        raise SporaxNotImplementedError(f"For '{name}', 'sparse_mode' must be in [0, 4], but got {mode}.")
    # In these modes the mask only stands for a form and its values are not read.
    compressed = mode in (_LEFT_CAUSAL, _RIGHT_CAUSAL, _BAND)
    _check_mask(name, mode, compressed, mask, lengths)
    # MindSpore's masks are 1 where nothing may be seen.
    visible = None if mask is None or compressed else mask == 0
    # A window counts in mode 0 only together with a mask, as in MindSpore.
    banded = compressed or (mode == _BAND_OR_FULL and mask is not None and reach != (EVERYTHING, EVERYTHING))
    if banded or ends[0] is not None:
        window_mode, window = (mode, reach) if banded else (_BAND_OR_FULL, (EVERYTHING, EVERYTHING))
        rows, columns = positions(lengths[0], ends[0]), positions(lengths[1], ends[1])
        inside = _window(window_mode, window, rows, columns)
        visible = inside if visible is None else visible & inside
    return visible


def _check_mask(name: str, mode: int, compressed: bool, mask: Array | None, lengths: tuple[int, int]) -> None:
    if compressed and mask is not None and mask.shape[-2:] != _COMPRESSED_SHAPE:
        raise SporaxValueError(
            f"For '{name}', the shape of 'attn_mask' must be {_COMPRESSED_SHAPE} with sparse_mode {mode}, but got {mask.shape}."
        )
    For(name).refuse(mode == _FULL and mask is None, "'attn_mask' must be given with sparse_mode 1", "None")
    if mask is not None and not compressed and mask.shape[-2:] != lengths:
        raise For(name).error(f"the last dims of 'attn_mask' must be the lengths {lengths}", mask.shape)


def _scores(query: Array, key: Array, shift: Array | None, visible: Array | None, scale: float) -> Array:
    """Scaled products in float32, (batch, heads, queries, keys); -inf where a query may not look."""
    # Grouped queries: several heads share a key.
    key = jnp.repeat(key, query.shape[2] // key.shape[2], axis=2)
    # Products in half precision are summed in float32.
    scores = jnp.einsum("bqnd,bknd->bnqk", query, key, preferred_element_type=jnp.float32) * scale
    scores = scores if shift is None else scores + shift.astype(scores.dtype)
    return scores if visible is None else jnp.where(visible, scores, -jnp.inf)


def _statistics(scores: Array) -> tuple[Array, Array]:
    """Maximum of each row, and the sum of the exponentials of what is left; zeros for rows without a key."""
    largest = jax.lax.stop_gradient(scores.max(-1, keepdims=True))  # the result does not depend on it
    # -inf minus -inf would be NaN in rows without a key.
    largest = jnp.where(jnp.isfinite(largest), largest, 0.0)
    return largest, jnp.exp(scores - largest).sum(-1, keepdims=True)


def _weighted(scores: Array, value: Array, remaining: Array | None, keep_prob: float) -> Array:
    """The result (batch, length, heads, size); weights that are not `remaining` count nothing."""
    largest, total = _statistics(scores)
    weights = jnp.exp(scores - largest)
    weights = weights / jnp.where(total > 0, total, 1.0)
    # Scaled up by the share that is kept, as dropout does.
    weights = weights if remaining is None else jnp.where(remaining, weights / keep_prob, 0.0)
    value = jnp.repeat(value, scores.shape[1] // value.shape[2], axis=2)
    return jnp.einsum("bnqk,bknd->bqnd", weights.astype(value.dtype), value)


def attended(query: Array, key: Array, value: Array, shift: Array | None, visible: Array | None, scale: float) -> Array:
    """Attention of (batch, length, heads, size); queries that may look at nothing give zeros."""
    return _weighted(_scores(query, key, shift, visible, scale), value, None, 1.0)


def _not_dropped(drop_mask: Array | None, key: Any, keep_prob: float, shape: tuple[int, ...]) -> Array:
    """Which weights are kept: by the bits of a mask, the lowest bit of a byte first, or drawn."""
    if drop_mask is None:
        return jax.random.bernoulli(key, keep_prob, shape)
    packed = (*shape[:-1], shape[-1] // _BITS)
    if drop_mask.dtype != jnp.uint8 or drop_mask.shape != packed or shape[-1] % _BITS:
        raise For("FlashAttentionScore").error(
            f"'drop_mask' must be UInt8 of shape {packed}, one bit per weight, but got {check.describe(drop_mask)}"
        )
    return jnp.unpackbits(drop_mask, axis=-1, bitorder="little").astype(bool)


def check_qkv(name: str, query: Array, key: Array, value: Array, heads: int) -> None:
    """Raise unless query, key and value, all (batch, length, heads, size), fit together.

    Raises:
        SporaxTypeError: dtypes differ or are not floating.
        SporaxValueError: shapes do not fit.
    """
    check.floating(name, query=query, key=key, value=value)
    check.same_dtype(name, query=query, key=key, value=value)
    if key.shape[:-1] != value.shape[:-1]:
        raise For(name).error("'key' and 'value' must have the same batch, length and heads", key.shape, value.shape)
    if query.shape[2] != heads or heads % key.shape[2] or query.shape[::3] != key.shape[::3]:
        raise SporaxValueError(
            f"For '{name}', 'query' and 'key' must have the same batch and head size, and {heads} heads, a multiple of "
            f"the key's, but got (batch, length, heads, size) {query.shape} and {key.shape}."
        )


@operator("FlashAttentionScore", function="", dims=AttentionDims())
def _flash_attention_score(
    query: Array,
    key: Array,
    value: Array,
    others: tuple[Array, ...],
    present: tuple[str, ...],
    head_num: int,
    keep_prob: float = 1.0,
    scale_value: float = 1.0,
    pre_tokens: int = EVERYTHING,
    next_tokens: int = EVERYTHING,
    inner_precise: int = 0,
    input_layout: Layout = "BSH",
    sparse_mode: int = 0,
) -> tuple[Array, Array, Array, Array]:
    """Maxima and sums of the rows (batch, heads, queries, 8), a zero, and the result in the layout of the query.

    `others` are the tensors of the names `present`: ``real_shift``, ``drop_mask``, ``attn_mask``, ``actual_seq_qlen``,
    ``actual_seq_kvlen``, and ``random_key``.
    """
    name, inputs = "FlashAttentionScore", dict(zip(present, others, strict=True))
    For(name).refuse(not 0 < keep_prob <= 1, "'keep_prob' must be in (0, 1]", keep_prob)
    ends = inputs.get("actual_seq_qlen"), inputs.get("actual_seq_kvlen")
    # Only this layout has several sequences in a row.
    if [end is not None for end in ends] != [input_layout == "TND"] * 2:
        raise SporaxValueError(
            f"For '{name}', 'actual_seq_qlen' and 'actual_seq_kvlen' must be given with the layout 'TND' and with no "
            f"other, but got the layout '{input_layout}'."
        )
    key_heads = num_key_heads(name, query, key, input_layout, head_num)
    query = apart(name, query, input_layout, head_num)
    key, value = (apart(name, x, input_layout, key_heads) for x in (key, value))
    check_qkv(name, query, key, value, head_num)
    result, statistics = jax.checkpoint(
        partial(_attention, sparse_mode, (pre_tokens, next_tokens), scale_value, keep_prob)
    )(query, key, value, inputs)
    # MindSpore's kernel stores each number eight times, for its own alignment.
    copies = (jnp.repeat(statistic, _STATISTICS_COPIES, axis=-1) for statistic in statistics)
    if input_layout.startswith("T"):
        copies = (statistic[0].swapaxes(0, 1) for statistic in copies)
    largest, total = copies
    return largest, total, jnp.zeros((), query.dtype), together(result, input_layout).astype(query.dtype)


def _attention(
    mode: int, reach: tuple[int, int], scale: float, keep_prob: float, query: Array, key: Array, value: Array,
    inputs: Mapping[str, Array],
) -> tuple[Array, tuple[Array, ...]]:  # fmt: skip
    """The result and the statistics of (batch, length, heads, size); as kernels do, the backward pass computes scores again."""
    name = "FlashAttentionScore"
    lengths, ends = (query.shape[1], key.shape[1]), (inputs.get("actual_seq_qlen"), inputs.get("actual_seq_kvlen"))
    visible = allowed(name, mode, reach, inputs.get("attn_mask"), lengths, ends)
    shift = inputs.get("real_shift")
    if shift is not None and shift.shape[-2:] != lengths:
        raise SporaxNotImplementedError(
            f"For '{name}', the last dims of 'real_shift' must be the lengths {lengths}, but got {shift.shape}."
        )
    # The formula scales the sum of both.
    scores = _scores(query, key, None if shift is None else shift.astype(jnp.float32) * scale, visible, scale)
    drawn = inputs.get("drop_mask"), inputs.get("random_key"), keep_prob, scores.shape
    remaining = _not_dropped(*drawn) if keep_prob < 1 else None
    # Statistics are for the backward kernel of MindSpore; no gradient flows through them here.
    statistics = tuple(map(jax.lax.stop_gradient, _statistics(scores)))
    return _weighted(scores, value, remaining, keep_prob), statistics


class FlashAttentionScore(Primitive):
    """Attention with everything training needs: shifts, masks, windows, dropout, several layouts.

    ``Dropout(Softmax(Mask(scale · (shift + query · keyᵀ))), keep_prob) · value``

    Args:
        head_num: heads of the query.
        keep_prob: probability of a weight to be kept. Without a `drop_mask`, weights are drawn.
        scale_value: factor of the products.
        pre_tokens, next_tokens: how far back and forward a query looks, in `sparse_mode` 0 (with a mask) and 4.
        inner_precise: must be 0.
        input_layout: ``"BSH"``, ``"BNSD"``, ``"SBH"``, ``"BSND"``, ``"TH"`` or ``"TND"``.
        sparse_mode: 0: mask and window; 1: mask; 2: causal from the upper left; 3: causal to the lower right; 4: window
            that ends at the lower right. In the last three the mask has shape (2048, 2048), or is None.

    Inputs: query, key, value; real_shift (batch or 1, heads, queries, keys); drop_mask (UInt8, a bit per weight);
    padding_mask (None); attn_mask (1: do not look); prefix (None); actual_seq_qlen and actual_seq_kvlen (ends of the
    sequences, ``"TND"`` only).

    Outputs: maxima and sums of the rows, each eight times (not differentiated), a zero, and the result.

    Differs from MindSpore: every floating dtype, on every device.
    """

    operator = _flash_attention_score
    attribute_names = _flash_attention_score.parameters.attributes[1:]
    defaults = dict(zip(attribute_names[1:], (1.0, 1.0, EVERYTHING, EVERYTHING, 0, "BSH", 0), strict=True))

    @taking(_flash_attention_score.kernel, "query key value others present")
    def __init__(self, **settings: Any) -> None:
        check.only("FlashAttentionScore", inner_precise=(settings["inner_precise"], 0))
        super().__init__(**settings)
        self._drops = settings["keep_prob"] < 1

    def __call__(
        self,
        query: Any,
        key: Any,
        value: Any,
        real_shift: Any = None,
        drop_mask: Any = None,
        padding_mask: Any = None,
        attn_mask: Any = None,
        prefix: Any = None,
        actual_seq_qlen: Any = None,
        actual_seq_kvlen: Any = None,
    ) -> Any:
        """Four results; see the class."""
        check.only("FlashAttentionScore", padding_mask=(padding_mask, None), prefix=(prefix, None))
        named = {
            "real_shift": real_shift,
            "drop_mask": drop_mask,
            "attn_mask": attn_mask,
            "actual_seq_qlen": as_tensor("actual_seq_qlen", actual_seq_qlen),
            "actual_seq_kvlen": as_tensor("actual_seq_kvlen", actual_seq_kvlen),
            # Drawn only where it is needed: a draw advances the stream.
            "random_key": wrap(seeds.operators.next_key()) if self._drops and drop_mask is None else None,
        }
        # Missing tensors cannot be operands, so the names of those present are an attribute.
        present = {name: value for name, value in named.items() if value is not None}
        return super().__call__(query, key, value, tuple(present.values()), tuple(present))


PRIMITIVES["FlashAttentionScore"] = FlashAttentionScore


def as_function(name: str, kind: type[Primitive], parameters: str, doc: str, result: int | None = None) -> None:
    """Register the function that makes a primitive and calls it at once.

    Args:
        name: in `sporax.mindspore.ops`.
        kind: the primitive.
        parameters: names of inputs and settings in the function's order, ``new=old`` where they differ; behind ``*`` those that
            are only taken by name.
        doc: what it does.
        result: which of several results it gives.
    """
    settings, inputs = (dict(list(inspect.signature(f).parameters.items())[1:]) for f in (kind.__init__, kind.__call__))
    first, _, by_name = (part.split() for part in parameters.partition("*"))
    old_names = {new: old or new for new, _, old in (part.partition("=") for part in (*first, *by_name))}
    taken = {**settings, **inputs}
    kinds = [inspect.Parameter.POSITIONAL_OR_KEYWORD] * len(first) + [inspect.Parameter.KEYWORD_ONLY] * len(by_name)
    signature = inspect.Signature(
        [taken[old].replace(name=new, kind=kind) for (new, old), kind in zip(old_names.items(), kinds, strict=True)],
        return_annotation="Tensor",
    )

    def function(*args: Any, **kwargs: Any) -> Any:
        arguments = {old_names[new]: value for new, value in signature.bind(*args, **kwargs).arguments.items()}
        primitive = kind(**{old: value for old, value in arguments.items() if old in settings})
        results = primitive(**{old: value for old, value in arguments.items() if old in inputs})
        return results if result is None else results[result]

    function.__name__, function.__doc__, function.__module__ = name, doc, kind.__module__
    export(with_signature(function, signature))


def as_tensor(name: str, value: Any) -> Tensor | None:
    """Lengths as a Tensor: given as one, as integers, or not at all.

    Raises:
        SporaxTypeError: something else.
    """
    if value is None or isinstance(value, Tensor):
        return value
    if isinstance(value, Sequence) and all(isinstance(item, int) for item in value):
        return Tensor(list(value), dtypes.int64)
    raise SporaxTypeError(f"For 'attention', '{name}' must be a Tensor or integers, but got {type(value).__name__}.")


as_function(
    "flash_attention_score",
    FlashAttentionScore,
    """query key value head_num real_shift drop_mask padding_mask attn_mask prefix actual_seq_qlen actual_seq_kvlen keep_prob
    scalar_value=scale_value pre_tokens next_tokens inner_precise input_layout sparse_mode""",
    "The result of `FlashAttentionScore` alone; `scalar_value` is its `scale_value`.",
    result=3,
)
