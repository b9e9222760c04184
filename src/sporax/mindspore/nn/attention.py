"""Attention and Transformer layers (Vaswani et al. 2017)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from sporax.base.errors import For, SporaxValueError
from sporax.mindspore import ops
from sporax.mindspore.common import DType, Parameter, Tensor, dtypes
from sporax.mindspore.common.initializer import XavierNormal, XavierUniform, initializer
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.activation import GELU, ReLU
from sporax.mindspore.nn.basic import Dense, Dropout
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.nn.container import CellList
from sporax.mindspore.nn.normalization import LayerNorm
from sporax.mindspore.ops._core.operator import Array, operator


@operator(function="")
def attention_weights(query: Array, key: Array, mask: Array | None) -> Array:
    """Softmax of scaled products. `query`, `key`: (N, heads, length, size); `mask`: added, or True where not to look."""
    # Divided by the root of the size, so that the softmax does not saturate (Vaswani et al. 2017, 3.2.1).
    scores = jnp.einsum("nhqd,nhkd->nhqk", query, key) / jnp.asarray(math.sqrt(query.shape[-1]), query.dtype)
    if mask is not None:
        scores = jnp.where(mask, -jnp.inf, scores) if mask.dtype == jnp.bool_ else scores + mask.astype(scores.dtype)
    return jax.nn.softmax(scores, -1)


class MultiheadAttention(Cell):
    """Attention of several heads, with projections of queries, keys, values and result.

    Args:
        embed_dim: length of a query vector, a multiple of `num_heads`.
        num_heads: number of heads.
        dropout: probability of an attention weight to be zeroed while training.
        has_bias: whether the projections have biases.
        add_bias_kv: add a learned vector to keys and values, as one more position.
        add_zero_attn: add a zero vector to keys and values, as one more position.
        kdim, vdim: lengths of key and value vectors; `embed_dim` by default.
        batch_first: inputs and output are (N, L, …) instead of (L, N, …).
        dtype: element type of the Parameters.

    Raises:
        SporaxValueError: `num_heads` does not divide `embed_dim`; inputs that do not fit.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        has_bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        dtype: DType = dtypes.float32,
    ) -> None:
        super().__init__()
        name = "MultiheadAttention"
        self.embed_dim = argument.positive_int(name, "embed_dim", embed_dim)
        self.num_heads = argument.positive_int(name, "num_heads", num_heads)
        For(name).refuse(embed_dim % num_heads, f"'num_heads' {num_heads} must divide 'embed_dim' {embed_dim}")
        self.kdim = embed_dim if kdim is None else argument.positive_int(name, "kdim", kdim)
        self.vdim = embed_dim if vdim is None else argument.positive_int(name, "vdim", vdim)
        self.dropout = argument.within(name, "dropout", dropout, 0.0, 1.0)
        self.add_zero_attn = argument.boolean(name, "add_zero_attn", add_zero_attn)
        self.batch_first = argument.boolean(name, "batch_first", batch_first)
        self._make_parameters(argument.boolean(name, "has_bias", has_bias), add_bias_kv, dtype)
        self.out_proj = Dense(embed_dim, embed_dim, has_bias=has_bias, dtype=dtype)

    def _make_parameters(self, has_bias: bool, add_bias_kv: bool, dtype: DType) -> None:
        size = self.embed_dim

        def projection(name: str, shape: tuple[int, ...]) -> Parameter:
            return Parameter(initializer(XavierUniform(), shape, dtype), name=name)

        # One matrix for all three where sizes agree, as in MindSpore's checkpoints.
        joint = self.kdim == size and self.vdim == size
        self.in_proj_weight = projection("in_proj_weight", (3 * size, size)) if joint else None
        self.q_proj_weight = None if joint else projection("q_proj_weight", (size, size))
        self.k_proj_weight = None if joint else projection("k_proj_weight", (size, self.kdim))
        self.v_proj_weight = None if joint else projection("v_proj_weight", (size, self.vdim))
        self.in_proj_bias = Parameter(initializer("zeros", (3 * size,), dtype), "in_proj_bias") if has_bias else None
        self.bias_k = self.bias_v = None
        if add_bias_kv:
            self.bias_k = Parameter(initializer(XavierNormal(), (1, 1, size), dtype), name="bias_k")
            self.bias_v = Parameter(initializer(XavierNormal(), (1, 1, size), dtype), name="bias_v")

    def construct(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
    ) -> tuple[Tensor, ...]:
        """The attended values, and with `need_weights` the attention weights.

        Args:
            query: (L, N, embed_dim), or (L, embed_dim) without batch.
            key, value: (S, N, kdim) and (S, N, vdim), or without N.
            key_padding_mask: (N, S): True for keys to pass over, or numbers to add to the scores.
            need_weights: see above.
            attn_mask: (L, S) or (N · num_heads, L, S): True where not to look, or numbers to add to the scores.
            average_attn_weights: mean of the heads' weights, (N, L, S); else (N, num_heads, L, S).
        """
        batched = query.ndim == 3
        if {query.ndim, key.ndim, value.ndim} not in ({2}, {3}):
            raise SporaxValueError(
                "For 'MultiheadAttention', 'query', 'key' and 'value' must all have 2 or all 3 dimensions, "
                f"but got shapes {query.shape}, {key.shape}, {value.shape}."
            )
        if not batched:
            query, key, value = (ops.expand_dims(tensor, 1) for tensor in (query, key, value))
            key_padding_mask = None if key_padding_mask is None else ops.expand_dims(key_padding_mask, 0)
        elif self.batch_first:
            query, key, value = (ops.transpose(tensor, (1, 0, 2)) for tensor in (query, key, value))
        result, weights = self._attend(query, key, value, self._mask(query, key, key_padding_mask, attn_mask))
        if average_attn_weights:
            weights = ops.reduce_mean(weights, 1)
        if not batched:
            result, weights = ops.squeeze(result, 1), ops.squeeze(weights, 0)
        elif self.batch_first:
            result = ops.transpose(result, (1, 0, 2))
        return (result, weights) if need_weights else (result,)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        length, batch, size = query.shape
        query, key, value = self._projected(query, key, value)
        if self.bias_k is not None and self.bias_v is not None:
            key = ops.concat((key, ops.tile(self.bias_k.astype(key.dtype), (1, batch, 1))))
            value = ops.concat((value, ops.tile(self.bias_v.astype(value.dtype), (1, batch, 1))))
        if self.add_zero_attn:
            key, value = (ops.concat((tensor, ops.zeros((1, batch, size), tensor.dtype))) for tensor in (key, value))

        def by_head(tensor: Tensor) -> Tensor:
            heads = tensor.reshape((tensor.shape[0], batch, self.num_heads, size // self.num_heads))
            # (length, N, heads, size) to (N, heads, length, size).
            return ops.transpose(heads, (1, 2, 0, 3))

        weights = attention_weights(by_head(query), by_head(key), mask)
        attended = ops.matmul(ops.dropout(weights, self.dropout, self.training), by_head(value))
        joined = ops.transpose(attended, (2, 0, 1, 3)).reshape((length, batch, size))
        return self.out_proj(joined), weights

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        separate: Any = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        weights = separate if self.in_proj_weight is None else ops.split(self.in_proj_weight, self.embed_dim)
        biases = (None,) * 3 if self.in_proj_bias is None else ops.split(self.in_proj_bias, self.embed_dim)
        inputs = zip(("query", "key", "value"), (query, key, value), weights, biases, strict=True)
        results = []
        for name, tensor, weight, bias in inputs:
            if tensor.shape[-1] != weight.shape[1]:
                raise For("MultiheadAttention").error(
                    f"the last dim of '{name}' must be {weight.shape[1]}, but its shape is {tensor.shape}"
                )
            weight, bias = argument.cast_like(self, tensor, weight, bias)
            results.append(ops.dense(tensor, weight, bias))
        return tuple(results)

    def _mask(self, query: Tensor, key: Tensor, padding: Tensor | None, mask: Tensor | None) -> Tensor | None:
        """Both masks as one (N or 1, heads or 1, L, S), with unmasked columns for added positions."""
        length, sources, batch = query.shape[0], key.shape[0], query.shape[1]
        # Added positions have no column in the masks of the user.
        extra = (self.bias_k is not None) + self.add_zero_attn
        masks = []
        if mask is not None:
            # A mask for all samples, or one for each sample and head.
            shapes = {(length, sources): (1, 1), (batch * self.num_heads, length, sources): (batch, self.num_heads)}
            For("MultiheadAttention").refuse(
                mask.shape not in shapes, f"'attn_mask' must have one of the shapes {list(shapes)}", mask.shape
            )
            masks.append(_checked_mask("attn_mask", mask).reshape((*shapes[mask.shape], length, sources)))
        if padding is not None:
            if padding.shape != (batch, sources):
                raise SporaxValueError(
                    f"For 'MultiheadAttention', 'key_padding_mask' must have shape {(batch, sources)}, but got {padding.shape}."
                )
            masks.append(_checked_mask("key_padding_mask", padding).reshape((batch, 1, 1, sources)))
        if len(masks) == 2:
            # bool masks are joined by or; numbers are added.
            both = all(one.dtype == dtypes.bool_ for one in masks)
            masks = [ops.logical_or(*masks) if both else _added(masks[0], query.dtype) + _added(masks[1], query.dtype)]
        if not masks or not extra:
            return masks[0] if masks else None
        column = ops.zeros((*masks[0].shape[:-1], extra), masks[0].dtype)
        return ops.concat((masks[0], column), -1)


def _checked_mask(name: str, mask: Tensor) -> Tensor:
    if mask.dtype == dtypes.uint8:
        return mask.astype(dtypes.bool_)
    if mask.dtype != dtypes.bool_ and mask.dtype not in dtypes.float_type:
        raise SporaxValueError(f"For 'MultiheadAttention', '{name}' must be bool or floating, but got {mask.dtype}.")
    return mask


def _added(mask: Tensor, dtype: DType) -> Tensor:
    """A mask as numbers to add."""
    if mask.dtype != dtypes.bool_:
        return mask
    # zero - inf keeps the dtype.
    zero = ops.zeros(mask.shape, dtype)
    return ops.where(mask, zero - math.inf, zero)


class _TransformerLayer(Cell):
    """What encoder and decoder layers share: settings, self attention, and the feed-forward block."""

    attends_to_memory = False
    """Whether there is a block between both, of attention to the encoder's output."""

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Any = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        dtype: DType = dtypes.float32,
    ) -> None:
        super().__init__()
        # Kept to build the other layers of a stack from one.
        self.settings = (
            d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, dtype,
        )  # fmt: skip
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, batch_first=batch_first, dtype=dtype)
        self.norm_first = argument.boolean(type(self).__name__, "norm_first", norm_first)
        self.activation = _activation(type(self).__name__, activation)
        if self.attends_to_memory:
            self.multihead_attn = MultiheadAttention(d_model, nhead, dropout, batch_first=batch_first, dtype=dtype)
        self.dense1 = Dense(d_model, dim_feedforward, dtype=dtype)
        self.dropout = Dropout(p=dropout)
        self.dense2 = Dense(dim_feedforward, d_model, dtype=dtype)
        blocks = range(1, 4 if self.attends_to_memory else 3)
        for number in blocks:
            setattr(self, f"norm{number}", LayerNorm((d_model,), epsilon=layer_norm_eps, dtype=dtype))
        for number in blocks:
            setattr(self, f"dropout{number}", Dropout(p=dropout))

    def _around(self, x: Tensor, norm: Cell, block: Callable[[Tensor], Tensor], dropout: Cell) -> Tensor:
        """A block with its residual, normalised before or after."""
        if self.norm_first:
            return x + dropout(block(norm(x)))
        return norm(x + dropout(block(x)))

    def _feed_forward(self, x: Tensor) -> Tensor:
        return self.dense2(self.dropout(self.activation(self.dense1(x))))


def _activation(layer: str, activation: Any) -> Any:
    if isinstance(activation, str):
        argument.one_of(layer, "activation", activation, ("relu", "gelu"))
        return ops.relu if activation == "relu" else ops.gelu
    if not isinstance(activation, ReLU | GELU) and activation not in (ops.relu, ops.gelu):
        raise SporaxValueError(
            f"For '{layer}', 'activation' must be 'relu' or 'gelu', as a name, function or Cell, but got {activation!r}."
        )
    return activation


class TransformerEncoderLayer(_TransformerLayer):
    """Self attention and feed-forward network, each with residual, dropout and layer norm.

    Args:
        d_model: length of the vectors.
        nhead: number of heads.
        dim_feedforward: width of the feed-forward network.
        dropout: probability of an element to be zeroed while training.
        activation: ``"relu"`` or ``"gelu"``, or the function or Cell.
        layer_norm_eps: epsilon of the layer norms.
        batch_first: inputs and outputs are (N, L, d_model) instead of (L, N, d_model).
        norm_first: normalise before each block instead of after it.
        dtype: element type of the Parameters.

    Raises:
        SporaxValueError: settings or inputs that do not fit.
    """

    def construct(
        self, src: Tensor, src_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None
    ) -> Tensor:
        """`src`: (L, N, d_model); masks as in `MultiheadAttention`."""

        def attend(x: Tensor) -> Tensor:
            return self.self_attn(x, x, x, src_key_padding_mask, False, src_mask)[0]

        src = self._around(src, self.norm1, attend, self.dropout1)
        return self._around(src, self.norm2, self._feed_forward, self.dropout2)


class TransformerDecoderLayer(_TransformerLayer):
    """Self attention, attention to the encoder's output, and feed-forward network; arguments as the encoder layer."""

    attends_to_memory = True

    def construct(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
    ) -> Tensor:
        """`tgt`: (L, N, d_model), `memory`: (S, N, d_model); masks as in `MultiheadAttention`."""

        def attend(x: Tensor) -> Tensor:
            return self.self_attn(x, x, x, tgt_key_padding_mask, False, tgt_mask)[0]

        def consult(x: Tensor) -> Tensor:
            return self.multihead_attn(x, memory, memory, memory_key_padding_mask, False, memory_mask)[0]

        tgt = self._around(tgt, self.norm1, attend, self.dropout1)
        tgt = self._around(tgt, self.norm2, consult, self.dropout2)
        return self._around(tgt, self.norm3, self._feed_forward, self.dropout3)


class _Stack(Cell):
    """Layers with the settings of one, and a norm behind them."""

    layer_type: type[_TransformerLayer]

    def __init__(self, layer: _TransformerLayer, num_layers: int, norm: Cell | None = None) -> None:
        super().__init__()
        name = type(self).__name__
        if not isinstance(layer, self.layer_type):
            raise For(name).type_error(f"the layer must be a {self.layer_type.__name__}", type(layer).__name__)
        self.num_layers = argument.positive_int(name, "num_layers", num_layers)
        build: Any = self.layer_type
        self.layers = CellList([build(*layer.settings) for _ in range(num_layers)])
        # MindSpore's layers are copies of one another: they start from equal weights.
        for other in list(self.layers)[1:]:
            for mine, first in zip(other.get_parameters(), self.layers[0].get_parameters(), strict=True):
                mine.set_data(first)
        self.norm = norm

    def _finish(self, x: Tensor) -> Tensor:
        return x if self.norm is None else self.norm(x)


class TransformerEncoder(_Stack):
    """`num_layers` encoder layers with the settings of `encoder_layer`, and `norm` behind them."""

    layer_type = TransformerEncoderLayer

    def __init__(self, encoder_layer: TransformerEncoderLayer, num_layers: int, norm: Cell | None = None) -> None:
        super().__init__(encoder_layer, num_layers, norm)

    def construct(
        self, src: Tensor, src_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None
    ) -> Tensor:
        """As `TransformerEncoderLayer`."""
        for layer in self.layers:
            src = layer(src, src_mask, src_key_padding_mask)
        return self._finish(src)


class TransformerDecoder(_Stack):
    """`num_layers` decoder layers with the settings of `decoder_layer`, and `norm` behind them."""

    layer_type = TransformerDecoderLayer

    def __init__(self, decoder_layer: TransformerDecoderLayer, num_layers: int, norm: Cell | None = None) -> None:
        super().__init__(decoder_layer, num_layers, norm)

    def construct(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
    ) -> Tensor:
        """As `TransformerDecoderLayer`."""
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        for layer in self.layers:
            tgt = layer(tgt, memory, *masks)
        return self._finish(tgt)


class Transformer(Cell):
    """Encoder and decoder. Matrices start from Xavier's uniform distribution.

    Args:
        d_model, nhead: as in the layers.
        num_encoder_layers, num_decoder_layers: how many.
        dim_feedforward, dropout, activation: as in the layers.
        custom_encoder, custom_decoder: Cells to use instead.
        layer_norm_eps, batch_first, norm_first, dtype: as in the layers.

    Raises:
        SporaxValueError: inputs whose batch or vector sizes differ.
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Any = "relu",
        custom_encoder: Cell | None = None,
        custom_decoder: Cell | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        dtype: DType = dtypes.float32,
    ) -> None:
        super().__init__()
        shared = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, dtype)

        def norm() -> Cell:
            return LayerNorm((d_model,), epsilon=layer_norm_eps, dtype=dtype)

        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*shared), num_encoder_layers, norm()
        )
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*shared), num_decoder_layers, norm()
        )
        for parameter in self.get_parameters():
            # Vectors (biases and norms) keep their own initial values.
            if parameter.ndim > 1:
                parameter.set_data(initializer("xavier_uniform", parameter.shape, parameter.dtype))
        self.d_model = d_model
        self.batch_first = batch_first

    def construct(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
    ) -> Tensor:
        """`src`: (S, N, d_model), `tgt`: (L, N, d_model); masks as in `MultiheadAttention`."""
        batch = 0 if self.batch_first else 1
        if src.ndim == 3 and src.shape[batch] != tgt.shape[batch]:
            raise SporaxValueError(
                f"For 'Transformer', 'src' and 'tgt' must have one batch size, but got shapes {src.shape} and {tgt.shape}."
            )
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise SporaxValueError(
                f"For 'Transformer', the last dims must be {self.d_model}, but got shapes {src.shape} and {tgt.shape}."
            )
        memory = self.encoder(src, src_mask, src_key_padding_mask)
        return self.decoder(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
