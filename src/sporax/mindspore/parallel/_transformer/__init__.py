"""Transformer layers with strategies of their own: `mindspore.nn.transformer` of MindSpore 1.5 to 2.2.

MindSpore had them as `mindspore.nn.transformer` and later as `mindspore.parallel._transformer`; GPT and PanGu programs are built
from them. A configuration says how many ways the batch (data), the hidden and vocabulary dimensions (model) and the experts
are sharded; every layer gives its operators the strategies that follow. In other parallel modes strategies have no effect, so the
same model runs on one device.

``_configs``: configurations · ``_layers``: linear layer and layer normalization · ``_attention``, ``_feed_forward``, ``_moe``:
the parts of a block · ``_blocks``, ``_stacks``: blocks, encoders, decoders · ``_embedding``, ``_loss``: ends of a language model.

Not offered: ``use_past`` (incremental inference) and `FixedSparseAttention`.
"""

from typing import TYPE_CHECKING

from sporax.mindspore._names.missing import missing_names
from sporax.mindspore.parallel._transformer._attention import AttentionMask, MultiHeadAttention
from sporax.mindspore.parallel._transformer._blocks import TransformerDecoderLayer, TransformerEncoderLayer
from sporax.mindspore.parallel._transformer._configs import (
    EmbeddingOpParallelConfig,
    MoEConfig,
    MoEParallelConfig,
    OpParallelConfig,
    TransformerOpParallelConfig,
    TransformerRecomputeConfig,
    default_dpmp_config,
    default_embedding_parallel_config,
    default_moe_config,
    default_moeparallel_config,
    default_transformer_config,
    default_transformer_recompute_config,
)
from sporax.mindspore.parallel._transformer._embedding import VocabEmbedding
from sporax.mindspore.parallel._transformer._feed_forward import FeedForward
from sporax.mindspore.parallel._transformer._layers import _LayerNorm, _Linear
from sporax.mindspore.parallel._transformer._loss import CrossEntropyLoss
from sporax.mindspore.parallel._transformer._moe import MoE, Router
from sporax.mindspore.parallel._transformer._stacks import (
    Transformer,
    TransformerDecoder,
    TransformerEncoder,
    _get_lambda_func,
)

__all__ = [
    "AttentionMask",
    "CrossEntropyLoss",
    "EmbeddingOpParallelConfig",
    "FeedForward",
    "MoE",
    "MoEConfig",
    "MoEParallelConfig",
    "MultiHeadAttention",
    "OpParallelConfig",
    "Router",
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
    "TransformerOpParallelConfig",
    "TransformerRecomputeConfig",
    "VocabEmbedding",
    "_LayerNorm",
    "_Linear",
    "_get_lambda_func",
    "default_dpmp_config",
    "default_embedding_parallel_config",
    "default_moe_config",
    "default_moeparallel_config",
    "default_transformer_config",
    "default_transformer_recompute_config",
]

if not TYPE_CHECKING:  # checkers shall see a missing name themselves
    __getattr__ = missing_names(__name__)
