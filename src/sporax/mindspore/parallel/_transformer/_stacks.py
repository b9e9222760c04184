"""Stacks of Transformer blocks, and encoder with decoder.

With experts (``moe_config.expert_num > 1``) every output has the sum of the auxiliary losses as one more part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sporax.base.errors import For, SporaxValueError
from sporax.mindspore.common import DType, Tensor, dtypes
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.nn.container import CellList
from sporax.mindspore.parallel._transformer._blocks import (
    Block,
    TransformerDecoderLayer,
    TransformerEncoderLayer,
    refuse_past,
    shared,
)
from sporax.mindspore.parallel._transformer._configs import (
    MoEConfig,
    OpParallelConfig,
    TransformerOpParallelConfig,
    TransformerRecomputeConfig,
    default_moe_config,
    default_transformer_config,
)

Placing = Callable[..., None]


def place_layer(network: Cell, layer_id: int, offset: int, parallel_config: Any, layers: int) -> None:
    """What a stack does with each of its layers unless `lambda_func` says otherwise.

    The layer goes to a pipeline stage, its gradients to one of `gradient_aggregation_group` fusion groups, and it is
    computed again in the backward pass where the configuration says so.
    """
    number = layer_id + offset
    # As in MindSpore, which counts one layer more.
    per_stage = max((layers + 1) // parallel_config.pipeline_stage, 1)
    if parallel_config.pipeline_stage > 1:
        network.pipeline_stage = min(number // per_stage, parallel_config.pipeline_stage - 1)
    per_group = max((layers + 1) // parallel_config.gradient_aggregation_group, 1)
    # Fusion ids count from 1; 0 would mean no fusion.
    network.set_comm_fusion(number // per_group + 1)
    recompute = parallel_config.recompute
    if isinstance(recompute, TransformerRecomputeConfig):
        if recompute.recompute:
            network.recompute(
                parallel_optimizer_comm_recompute=recompute.parallel_optimizer_comm_recompute,
                mp_comm_recompute=recompute.mp_comm_recompute,
                recompute_slice_activation=recompute.recompute_slice_activation,
            )
    elif recompute:
        network.recompute()


def _get_lambda_func(total_layer: int | None = None) -> Placing:
    """`place_layer`, with the number of layers of encoder and decoder together."""

    def place(network: Cell, layer_id: int, offset: int, parallel_config: Any, layers: int) -> None:
        place_layer(network, layer_id, offset, parallel_config, layers if total_layer is None else total_layer)

    return place


class _Stack(Cell):
    """Blocks one after the other."""

    def __init__(
        self,
        blocks: list[Block],
        lambda_func: Placing | None,
        offset: int,
        parallel_config: TransformerOpParallelConfig,
    ) -> None:
        super().__init__()
        self.num_layers = len(blocks)
        for i, block in enumerate(blocks):
            place = place_layer if lambda_func is None else lambda_func
            place(block, layer_id=i, layers=len(blocks), offset=offset, parallel_config=parallel_config)
        self.blocks = CellList(blocks)

    def _through(self, x: Tensor, *arguments: Any) -> tuple[Any, ...]:
        presents: tuple[Any, ...] = ()
        total: Tensor | None = None
        for block in self.blocks:
            x, present, *auxiliary = block(x, *arguments)
            presents += (present,)
            if auxiliary:
                total = auxiliary[0] if total is None else total + auxiliary[0]
        return (x, presents) if total is None else (x, presents, total)


def _block_config(parallel_config: Any, moe_config: MoEConfig) -> OpParallelConfig:
    """What the layers of a stack get of its configuration."""
    if not isinstance(parallel_config, TransformerOpParallelConfig):
        return parallel_config
    # Experts need a configuration that says how they are sharded.
    return parallel_config.moe_parallel_config if moe_config.expert_num > 1 else parallel_config.dp_mp_config


class TransformerEncoder(_Stack):
    """A stack of `TransformerEncoderLayer`.

    Args:
        num_layers: number of layers.
        lambda_func: (layer, layer_id, offset, parallel_config, layers) sets stage, fusion and recomputation of a layer.
        offset: number of layers before this stack, for `lambda_func`.
        parallel_config: a `TransformerOpParallelConfig`.
        batch_size … moe_config, compute_dtype: see `TransformerEncoderLayer`.
    """

    def __init__(
        self, batch_size: int | None, num_layers: int, hidden_size: int, ffn_hidden_size: int, seq_length: int,
        num_heads: int, attention_dropout_rate: float = 0.1, hidden_dropout_rate: float = 0.1,
        hidden_act: Any = "gelu", post_layernorm_residual: bool = False,
        layernorm_compute_type: DType = dtypes.float32, softmax_compute_type: DType = dtypes.float32,
        param_init_type: DType = dtypes.float32, lambda_func: Placing | None = None, offset: int = 0,
        use_past: bool = False, moe_config: MoEConfig = default_moe_config,
        parallel_config: TransformerOpParallelConfig = default_transformer_config, *,
        compute_dtype: DType = dtypes.float16,
    ) -> None:  # fmt: skip
        common = shared(locals()) | {"parallel_config": _block_config(parallel_config, moe_config)}
        blocks: list[Block] = [TransformerEncoderLayer(seq_length=seq_length, **common) for _ in range(num_layers)]
        super().__init__(blocks, lambda_func, offset, parallel_config)

    def construct(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None,
        init_reset: bool = True,
        batch_valid_length: None = None,
    ) -> tuple[Any, ...]:
        """The output, a pair of keys and values per layer, and with experts the auxiliary loss."""
        return self._through(hidden_states, attention_mask, init_reset, batch_valid_length)


class TransformerDecoder(_Stack):
    """A stack of `TransformerDecoderLayer`; arguments as in `TransformerEncoder` and there."""

    def __init__(
        self,
        num_layers: int,
        batch_size: int | None,
        hidden_size: int,
        ffn_hidden_size: int,
        src_seq_length: int,
        tgt_seq_length: int,
        num_heads: int,
        attention_dropout_rate: float = 0.1,
        hidden_dropout_rate: float = 0.1,
        post_layernorm_residual: bool = False,
        layernorm_compute_type: DType = dtypes.float32,
        softmax_compute_type: DType = dtypes.float32,
        param_init_type: DType = dtypes.float32,
        hidden_act: Any = "gelu",
        # Both stacks count into one numbering of layers for stages and fusion.
        lambda_func: Placing | None = None,
        use_past: bool = False,
        offset: int = 0,
        moe_config: MoEConfig = default_moe_config,
        parallel_config: TransformerOpParallelConfig = default_transformer_config,
        *,
        compute_dtype: DType = dtypes.float16,
    ) -> None:
        common = shared(locals()) | {"parallel_config": _block_config(parallel_config, moe_config)}
        blocks: list[Block] = [
            TransformerDecoderLayer(src_seq_length=src_seq_length, tgt_seq_length=tgt_seq_length, **common)
            for _ in range(num_layers)
        ]
        super().__init__(blocks, lambda_func, offset, parallel_config)

    def construct(
        self, hidden_states: Tensor, attention_mask: Tensor | None, encoder_output: Tensor | None = None,
        memory_mask: Tensor | None = None, init_reset: bool = True, batch_valid_length: None = None,
    ) -> tuple[Any, ...]:  # fmt: skip
        """The output, keys and values per layer, and with experts the auxiliary loss."""
        return self._through(hidden_states, attention_mask, encoder_output, memory_mask, init_reset, batch_valid_length)


class Transformer(Cell):
    """Encoder and decoder.

    Args:
        encoder_layers, decoder_layers: numbers of layers; without an encoder there is no attention to one.
        hidden_size … parallel_config, compute_dtype: see `TransformerEncoder` and `TransformerDecoder`.

    Raises:
        SporaxValueError: there are no layers.
    """

    def __init__(
        self, hidden_size: int, batch_size: int | None, ffn_hidden_size: int, src_seq_length: int,
        tgt_seq_length: int, encoder_layers: int = 3, decoder_layers: int = 3, num_heads: int = 2,
        attention_dropout_rate: float = 0.1, hidden_dropout_rate: float = 0.1, hidden_act: Any = "gelu",
        post_layernorm_residual: bool = False, layernorm_compute_type: DType = dtypes.float32,
        softmax_compute_type: DType = dtypes.float32, param_init_type: DType = dtypes.float32,
        lambda_func: Placing | None = None, use_past: bool = False, moe_config: MoEConfig = default_moe_config,
        parallel_config: TransformerOpParallelConfig = default_transformer_config, *,
        compute_dtype: DType = dtypes.float16,
    ) -> None:  # fmt: skip
        super().__init__()
        refuse_past("Transformer", use_past)
        if encoder_layers + decoder_layers < 1 or encoder_layers < 0 or decoder_layers < 0:
            raise For("Transformer").error(
                f"there must be layers, but got {encoder_layers} of the encoder and {decoder_layers} of the decoder"
            )
        self.encoder_layers, self.decoder_layers = encoder_layers, decoder_layers
        self.use_moe = moe_config.expert_num > 1
        common = shared(locals()) | {"lambda_func": lambda_func or _get_lambda_func(encoder_layers + decoder_layers)}
        self.encoder = (
            TransformerEncoder(num_layers=encoder_layers, seq_length=src_seq_length, **common)
            if encoder_layers
            else None
        )
        self.decoder = (
            TransformerDecoder(
                num_layers=decoder_layers,
                src_seq_length=src_seq_length,
                tgt_seq_length=tgt_seq_length,
                # The decoder's layers are numbered behind the encoder's.
                offset=encoder_layers,
                **common,
            )
            if decoder_layers
            else None
        )

    def construct(
        self, encoder_inputs: Tensor | None, encoder_masks: Tensor | None, decoder_inputs: Tensor | None = None,
        decoder_masks: Tensor | None = None, memory_mask: Tensor | None = None, init_reset: bool = True,
        batch_valid_length: None = None,
    ) -> tuple[Any, ...]:  # fmt: skip
        """The output; keys and values of the encoder's and of the decoder's layers; with experts the auxiliary loss.

        Raises:
            SporaxValueError: there is a decoder, but no input of it.
        """
        output: Any = None
        encoder_presents: Any = None
        decoder_presents: Any = None
        losses: list[Tensor] = []
        if self.encoder is not None:
            output, encoder_presents, *auxiliary = self.encoder(
                encoder_inputs, encoder_masks, init_reset, batch_valid_length
            )
            losses += auxiliary
        if self.decoder is not None:
            if decoder_inputs is None:
                raise SporaxValueError("For 'Transformer', 'decoder_inputs' must be given, since there is a decoder.")
            output, decoder_presents, *auxiliary = self.decoder(
                decoder_inputs, decoder_masks, output, memory_mask, init_reset, batch_valid_length
            )
            losses += auxiliary
        result = (output, encoder_presents, decoder_presents)
        return (*result, sum(losses[1:], losses[0])) if self.use_moe else result
