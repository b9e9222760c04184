"""Transformer layers with strategies of their own: `mindspore.nn.transformer` of MindSpore 1.5 to 2.2.

MindSpore had them as `mindspore.nn.transformer` and later as `mindspore.parallel._transformer`; GPT and PanGu programs are built
from them. A configuration says how many ways the batch (data), the hidden and vocabulary dimensions (model) and the experts
are sharded; every layer gives its operators the strategies that follow. In other parallel modes strategies have no effect, so the
same model runs on one device.

``_configs``: configurations, and decorators of constructors · ``_layers``: linear layer, layer normalization, ends of a language
model · ``_moe``, ``_blocks``, ``_stacks``: parts of a block with attention, blocks, encoders, decoders.

Not offered: ``use_past`` (incremental inference) and `FixedSparseAttention`.
"""

from sporax.mindspore._names.doors import door
from sporax.mindspore._names.missing import homes_in

_HOMES = homes_in(
    __name__,
    """
    _blocks: AttentionMask MultiHeadAttention TransformerDecoderLayer TransformerEncoderLayer
    _configs: EmbeddingOpParallelConfig MoEConfig MoEParallelConfig OpParallelConfig TransformerOpParallelConfig
        TransformerRecomputeConfig default_dpmp_config default_embedding_parallel_config default_moe_config
        default_moeparallel_config default_transformer_config default_transformer_recompute_config
        _args_type_validator_check _valid_type_checks _valid_value_checks
    _layers: _LayerNorm _Linear VocabEmbedding CrossEntropyLoss
    _moe: MoE Router FeedForward
    _stacks: Transformer TransformerDecoder TransformerEncoder _get_lambda_func
    """,
)

__all__ = [*_HOMES]
__getattr__, __dir__ = door(__name__, _HOMES)
