"""Inner operators of mixtures of experts and of their feed-forward layers: `FFN`, `MoeInitRouting` and others.

Problem: in a mixture of experts (Fedus et al., "Switch Transformers", JMLR 2022) each token goes to the k experts with the
largest gates, so rows are sorted by expert, go through the layers of their expert, and come back to their places. Programs for
inference call MindSpore's kernel of each step by its inner name. Method: `jax.lax.ragged_dot` multiplies groups of rows with
the matrices of their expert; places are those of a stable sort. Row numbers run through the tokens first: the k-th choice of
token i has the number ``i + k * tokens``. Quantized weights and inputs are dequantized in front of a product or behind it.
"""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For, SporaxValueError
from sporax.ir.operator_dims import Call, Dims, Names, Shapes
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.ops._core import Array, Primitive, check, operator
from sporax.mindspore.ops._core.dims import never_sharded
from sporax.mindspore.ops._generated import GENERATED
from sporax.mindspore.ops.nn import activation


class OptionalInputs(Primitive):
    """A primitive whose last inputs may be None: its kernel gets those that are there, and their names.

    Attributes:
        inputs: names of all inputs, in the order of the call.
        required: how many of the first must be there.
    """

    inputs: tuple[str, ...] = ()
    required = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The result.

        Raises:
            SporaxTypeError: too many inputs, one by a name that is not there, twice, or one of the first missing.
        """
        named = dict(zip(self.inputs, args, strict=False))
        wrong = [name for name in kwargs if name in named or name not in self.inputs]
        if wrong or len(args) > len(self.inputs):
            raise For(self.name).type_error(f"the inputs must be {self.inputs}, each once", wrong or len(args))
        named |= kwargs
        values = [named.get(name) for name in self.inputs]
        lacking = [name for name, value in zip(self.inputs[: self.required], values, strict=False) if value is None]
        For(self.name).refuse_type(bool(lacking), f"the inputs must hold {lacking}", "None")
        present = {name: value for name, value in list(named.items())[self.required :] if value is not None}
        present = {name: present[name] for name in self.inputs if name in present}
        return super().__call__(*values[: self.required], tuple(present.values()), tuple(present))


_ACTIVATIONS = {
    "fastgelu": activation._fast_gelu,
    "gelu": activation._gelu_tanh.kernel,
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
}
# Inputs with a number for each column of the first layer; those of the second have "2" at the end and are whole.
_OF_FIRST = ("bias1", "deq_scale1", "antiquant_scale1", "antiquant_offset1", "scale")


def _ffn_dims(call: Call, shapes: Shapes) -> Dims:
    """Only the columns of the first layer, which are the rows of the second, are sharded."""
    x, first, second, *others = shapes
    present = call.get("present", ())
    names: list[Names] = [tuple(f"x{dim}!" for dim in range(len(x)))]
    names += [("e!", "h!", "f")[3 - len(first) :], ("e!", "f", "h!")[3 - len(second) :]]
    for name, shape in zip(present if isinstance(present, tuple) else (), others, strict=True):
        columns = name in _OF_FIRST and (name != "scale" or len(shape) > 1)
        unsharded = tuple(f"{name}{dim}!" for dim in range(len(shape)))
        names.append((*unsharded[:-1], "f") if columns else unsharded)
    return Dims(tuple(names), order=("f",))


@operator("FFN", function="", classes=GENERATED, dims=_ffn_dims)
def _ffn(
    x: Array,
    weight1: Array,
    weight2: Array,
    others: tuple[Array, ...],
    present: tuple[str, ...],
    name: str,
    activation: str,
) -> Array:
    """Two layers with an activation between them, those of the row's expert where there are `expert_tokens`."""
    inputs = dict(zip(present, others, strict=True))
    tokens = inputs.get("expert_tokens")
    check.rank(name, 2 if tokens is None else 3, weight1=weight1, weight2=weight2)
    hidden, columns = weight1.shape[-2:]
    if x.shape[-1] != hidden or weight2.shape != (*weight1.shape[:-2], columns, hidden):
        raise For(name).error(
            f"'weight1' must have {x.shape[-1]} rows and 'weight2' its transposed shape", weight1.shape, weight2.shape
        )
    rows = x.reshape(-1, hidden)
    if tokens is not None and tokens.shape != weight1.shape[:1]:
        raise For(name).error(f"'expert_tokens' must have shape {weight1.shape[:1]}", tokens.shape)
    quantized = x.dtype == jnp.int8
    result_dtype = jnp.float16 if quantized else x.dtype
    if tokens is not None:
        expert = jnp.searchsorted(jnp.cumsum(tokens), jnp.arange(rows.shape[0]), side="right")
        # Rows behind those of the last expert are computed with it; their values have no meaning.
        expert = jnp.minimum(expert, weight1.shape[0] - 1)

    def of_rows(values: Array) -> Array:
        return values if tokens is None else values[expert] if values.ndim > 1 else values[expert, None]

    def layer(rows: Array, weight: Array, number: int) -> Array:
        if (scale := inputs.get(f"antiquant_scale{number}")) is not None:
            offset = inputs.get(f"antiquant_offset{number}", jnp.zeros_like(scale))
            weight = (weight.astype(scale.dtype) + offset[..., None, :]) * scale[..., None, :]
        weight = weight.astype(jnp.int32 if quantized else rows.dtype)
        rows = rows.astype(weight.dtype)
        result = rows @ weight if tokens is None else jax.lax.ragged_dot(rows, weight, tokens.astype(jnp.int32))
        if (bias := inputs.get(f"bias{number}")) is not None:
            result = result + of_rows(bias).astype(result.dtype)
        if (scale := inputs.get(f"deq_scale{number}")) is not None:
            result = result.astype(jnp.float32) * of_rows(unpacked_scale(scale))
        return result

    inner = layer(rows, weight1, 1)
    inner = _ACTIVATIONS[activation](inner.astype(jnp.float32) if quantized else inner)
    if quantized:
        scale, offset = inputs.get("scale"), inputs.get("offset")
        inner = inner if scale is None else inner * of_rows(scale)
        inner = to_int8(jnp.round(inner if offset is None else inner + of_rows(offset)))
    return layer(inner, weight2, 2).astype(result_dtype).reshape(x.shape)


def unpacked_scale(scale: Array) -> Array:
    """Scales as numbers: 64-bit integers hold a float32 in their lower 32 bits, as MindSpore's kernels take it."""
    if jnp.issubdtype(scale.dtype, jnp.integer):
        return jax.lax.bitcast_convert_type(scale.astype(jnp.uint32), jnp.float32)
    return scale.astype(jnp.float32)


def to_int8(values: Array) -> Array:
    """Whole numbers as int8; what is beyond its range becomes the last number in it."""
    return jnp.clip(values, -128, 127).astype(jnp.int8)


class FFN(OptionalInputs):
    """Two layers: ``activation(x · weight1 + bias1) · weight2 + bias2``, for each expert its own where there are `expert_tokens`.

    Args:
        activation: "fastgelu", "gelu", "relu" or "silu".
        inner_precise: 0 or 1, how a device of MindSpore computes; here it changes nothing.

    Inputs: x (…, hidden); weight1 (hidden, columns), weight2 (columns, hidden), each with an expert in front where
    expert_tokens (experts,) are there, numbers of consecutive rows; bias1, bias2. Of int8 weights: antiquant_scale1, …2 and
    antiquant_offset1, …2, ``(weight + offset) * scale``. Of int8 x, whose result is float16: deq_scale1, deq_scale2 behind the
    products, scale and offset in front of the second.
    """

    operator = _ffn
    attribute_names = ("name", "activation")
    required = 3
    inputs = tuple(
        """x weight1 weight2 expert_tokens bias1 bias2 scale offset deq_scale1 deq_scale2 antiquant_scale1 antiquant_scale2
        antiquant_offset1 antiquant_offset2""".split()
    )

    def __init__(self, activation: str, inner_precise: int) -> None:
        name = type(self).__name__
        For(name).one_of("activation", activation, _ACTIVATIONS)
        For(name).one_of("inner_precise", inner_precise, (0, 1))
        super().__init__(name=name, activation=activation)


class FFNExt(FFN):
    """As `FFN`; `expertTokens` may be ints."""

    _names = {"expertTokens": "expert_tokens", "deqScale1": "deq_scale1", "deqScale2": "deq_scale2"}

    def __init__(self, activation: str = "fastgelu", inner_precise: int = 0) -> None:
        super().__init__(activation, inner_precise)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The result."""
        named = {self._names.get(name, name): _as_tensor(value) for name, value in kwargs.items()}
        return super().__call__(*map(_as_tensor, args), **named)


def _as_tensor(value: Any) -> Any:
    return Tensor(np.asarray(value, np.int64)) if isinstance(value, tuple | list) else value


@operator("MoeInitRouting()", function="", classes=GENERATED, dims=never_sharded)
def _moe_init_routing(
    x: check.Rank2, row_idx: check.Int, expert_idx: check.Int, active_num: int
) -> tuple[Array, Array, Array]:
    """Rows of `x` (tokens, hidden) sorted by expert, where each went, and the experts sorted.

    `expert_idx` and `row_idx` are (tokens, k); the result has ``min(tokens, active_num) * k`` rows.

    Raises:
        SporaxValueError: other shapes.
    """
    tokens = x.shape[0]
    if expert_idx.ndim != 2 or expert_idx.shape[0] != tokens or row_idx.shape != expert_idx.shape:
        raise For("MoeInitRouting").error(
            f"'row_idx' and 'expert_idx' must be ({tokens}, k), but got {row_idx.shape} and {expert_idx.shape}"
        )
    order = jnp.argsort(expert_idx.reshape(-1), stable=True)
    numbers = row_idx.reshape(-1)[order]
    positions = jnp.zeros(numbers.shape, jnp.int32).at[numbers].set(jnp.arange(numbers.size, dtype=jnp.int32))
    rows = x[numbers[: min(active_num, tokens) * expert_idx.shape[1]] % tokens]
    return rows, positions, expert_idx.reshape(-1)[order].astype(jnp.int32)


@operator("MoeInitRoutingV2()", function="moe_init_routing_v2", classes=GENERATED, dims=never_sharded)
def moe_init_routing_v2(
    x: check.Rank2,
    expert_idx: check.Int,
    active_num: int,
    expert_capacity: int,
    expert_num: int,
    drop_pad_mode: Literal[0, 1],
    expert_tokens_count_or_cumsum_flag: Literal[0, 1, 2],
    expert_tokens_before_capacity_flag: bool,
) -> tuple[Array, Array, Array, Array]:
    """Rows of `x` (tokens, hidden) sorted by expert, the place of each choice, and two counts of rows by expert.

    With `drop_pad_mode` 0 the rows are ``(min(active_num, tokens * k), hidden)``, or all where `active_num` is 0, and the first
    counts are sums up to each expert (flag 1) or numbers (2). With 1 they are (expert_num, expert_capacity, hidden), filled up
    with zeros; further rows of an expert are dropped, their places are -1, and the second counts are numbers before that. Counts
    that were not requested are zeros. Places are those of the flat `expert_idx` (tokens, k), token by token.

    Raises:
        SporaxValueError: other shapes, or a capacity that is not positive where rows are dropped.
    """
    tokens, hidden = x.shape
    if expert_idx.ndim != 2 or expert_idx.shape[0] != tokens:
        raise For("MoeInitRoutingV2").error(f"'expert_idx' must be ({tokens}, k)", expert_idx.shape)
    choices, per_token = expert_idx.reshape(-1), expert_idx.shape[1]
    counts = jnp.zeros(expert_num, jnp.int32).at[choices].add(1, mode="drop")
    none = jnp.zeros(expert_num, jnp.int32)
    order = jnp.argsort(choices, stable=True)
    if drop_pad_mode == 0:
        positions = jnp.zeros(order.shape, jnp.int32).at[order].set(jnp.arange(order.size, dtype=jnp.int32))
        num_rows = min(active_num, order.size) if active_num else order.size
        counted = {0: none, 1: jnp.cumsum(counts, dtype=jnp.int32), 2: counts}[expert_tokens_count_or_cumsum_flag]
        return x[order[:num_rows] // per_token], positions, counted, none
    if expert_num < 1 or not 0 < expert_capacity <= tokens:
        raise SporaxValueError(
            f"For 'MoeInitRoutingV2', 'expert_num' and 'expert_capacity' must be positive, the capacity at most {tokens}, "
            f"but got {expert_num} and {expert_capacity}."
        )
    experts = choices[order]
    # The number of a row among those of its expert.
    rank = jnp.arange(order.size) - (jnp.cumsum(counts) - counts)[experts]
    sorted_positions = jnp.where(rank < expert_capacity, experts * expert_capacity + rank, -1).astype(jnp.int32)
    positions = jnp.zeros(order.shape, jnp.int32).at[order].set(sorted_positions)
    size = expert_num * expert_capacity
    # A place behind the end is dropped; -1 would be the last one.
    rows = jnp.zeros((size, hidden), x.dtype).at[jnp.where(sorted_positions < 0, size, sorted_positions)]
    filled = rows.set(x[order // per_token], mode="drop").reshape(expert_num, expert_capacity, hidden)
    return filled, positions, none, counts if expert_tokens_before_capacity_flag else none


@operator("MoeComputeExpertTokens()", function="", classes=GENERATED, dims=never_sharded)
def _moe_compute_expert_tokens(sorted_experts: check.Int1, num_expert: int) -> Array:
    """For each expert how many rows of sorted experts end with it.

    Raises:
        SporaxValueError: `num_expert` is not positive.
    """
    For("MoeComputeExpertTokens").refuse(num_expert < 1, "'num_expert' must be positive", num_expert)
    return jnp.searchsorted(sorted_experts, jnp.arange(num_expert), side="right").astype(sorted_experts.dtype)


@operator("MoeGatingTopKSoftmax()", function="", classes=GENERATED, dims=never_sharded)
def _moe_gating_top_k_softmax(x: check.Float, finished: Array | None = None, k: int = 1) -> tuple[Array, Array, Array]:
    """The `k` largest of ``softmax(x)``, their experts (int32), and their row numbers (int32).

    The expert of rows that are `finished` is the number of experts.

    Raises:
        SporaxValueError: `x` has not 2 or 3 dimensions, `finished` another shape, or `k` is too large.
    """
    name = "MoeGatingTopKSoftmax"
    check.rank(name, (2, 3), x=x)
    lead, experts = x.shape[:-1], x.shape[-1]
    For(name).refuse(not 0 <= k <= experts, f"'k' must be from 0 to {experts}", k)
    values, chosen = jax.lax.top_k(jax.nn.softmax(x.astype(jnp.float32)), k)
    if finished is not None:
        For(name).refuse(finished.shape != lead, f"'finished' must have shape {lead}", finished.shape)
        chosen = jnp.where(finished[..., None], experts, chosen)
    rows = int(np.prod(lead))
    numbers = jnp.arange(rows * k, dtype=jnp.int32).reshape(k, rows).T.reshape(*lead, k)
    return values.astype(x.dtype), chosen.astype(jnp.int32), numbers


@operator("MoeFinalizeRouting", function="", classes=GENERATED, dims=never_sharded)
def _moe_finalize_routing(
    expanded_x: check.Rank2, x1: check.Rank2, others: tuple[Array, ...], present: tuple[str, ...], name: str
) -> Array:
    """Rows of experts back at their tokens: ``x1 + x2 + sum over k of scales * (expanded_x[row] + bias[expert])``."""
    inputs = dict(zip(present, others, strict=True))
    rows = inputs.get("expanded_row_idx")
    tokens, hidden = x1.shape
    if rows is None or rows.shape != expanded_x.shape[:1] or rows.size % tokens or expanded_x.shape[1] != hidden:
        raise SporaxValueError(
            f"For '{name}', 'expanded_x' must be (k * {tokens}, {hidden}) and 'expanded_row_idx' have a number for each row, "
            f"but got {expanded_x.shape} and {None if rows is None else rows.shape}."
        )
    # (k, tokens, hidden): the k-th choice of token i is number i + k * tokens.
    chosen = expanded_x[rows].reshape(-1, tokens, hidden)
    experts = inputs.get("expanded_expert_idx")
    if "bias" in inputs and experts is not None:
        chosen = chosen + inputs["bias"][experts.T]
    if "scales" in inputs:
        chosen = chosen * inputs["scales"].T[..., None]
    result = x1 + chosen.sum(0).astype(x1.dtype)
    return result + inputs["x2"] if "x2" in inputs else result


class MoeFinalizeRouting(OptionalInputs):
    """Rows of experts back at their tokens, weighted and summed.

    Inputs: expanded_x (k * tokens, hidden), the result of the experts; x1 and x2 (tokens, hidden), which are added; bias
    (experts, hidden); scales (tokens, k); expanded_row_idx (k * tokens,): the row of choice ``i + k * tokens``;
    expanded_expert_idx (tokens, k).
    """

    operator = _moe_finalize_routing
    attribute_names = ("name",)
    required = 2
    inputs = ("expanded_x", "x1", "x2", "bias", "scales", "expanded_row_idx", "expanded_expert_idx")

    def __init__(self) -> None:
        super().__init__(name=type(self).__name__)


GENERATED.update(FFN=FFN, FFNExt=FFNExt, MoeFinalizeRouting=MoeFinalizeRouting)
