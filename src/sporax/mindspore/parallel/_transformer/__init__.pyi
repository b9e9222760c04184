"""Made by tools/make_type_stubs.py; do not edit."""
# Operators and Tensors say more precisely than their bases what they take.
# mypy: disable-error-code="override"

import builtins
from collections.abc import Callable, Sequence
from typing import Any, Literal

from sporax.mindspore.common.dtype import DType as _DType
from sporax.mindspore.common.tensor import Tensor as Tensor
from sporax.mindspore.parallel._transformer._attention import AttentionMask as AttentionMask
from sporax.mindspore.parallel._transformer._attention import MultiHeadAttention as MultiHeadAttention
from sporax.mindspore.parallel._transformer._blocks import TransformerDecoderLayer as TransformerDecoderLayer
from sporax.mindspore.parallel._transformer._blocks import TransformerEncoderLayer as TransformerEncoderLayer
from sporax.mindspore.parallel._transformer._checks import _args_type_validator_check as _args_type_validator_check
from sporax.mindspore.parallel._transformer._checks import _valid_type_checks as _valid_type_checks
from sporax.mindspore.parallel._transformer._checks import _valid_value_checks as _valid_value_checks
from sporax.mindspore.parallel._transformer._configs import EmbeddingOpParallelConfig as EmbeddingOpParallelConfig
from sporax.mindspore.parallel._transformer._configs import MoEConfig as MoEConfig
from sporax.mindspore.parallel._transformer._configs import MoEParallelConfig as MoEParallelConfig
from sporax.mindspore.parallel._transformer._configs import OpParallelConfig as OpParallelConfig
from sporax.mindspore.parallel._transformer._configs import TransformerOpParallelConfig as TransformerOpParallelConfig
from sporax.mindspore.parallel._transformer._configs import TransformerRecomputeConfig as TransformerRecomputeConfig
from sporax.mindspore.parallel._transformer._configs import default_dpmp_config as default_dpmp_config
from sporax.mindspore.parallel._transformer._configs import default_embedding_parallel_config as default_embedding_parallel_config
from sporax.mindspore.parallel._transformer._configs import default_moe_config as default_moe_config
from sporax.mindspore.parallel._transformer._configs import default_moeparallel_config as default_moeparallel_config
from sporax.mindspore.parallel._transformer._configs import default_transformer_config as default_transformer_config
from sporax.mindspore.parallel._transformer._configs import default_transformer_recompute_config as default_transformer_recompute_config
from sporax.mindspore.parallel._transformer._embedding import VocabEmbedding as VocabEmbedding
from sporax.mindspore.parallel._transformer._feed_forward import FeedForward as FeedForward
from sporax.mindspore.parallel._transformer._layers import _LayerNorm as _LayerNorm
from sporax.mindspore.parallel._transformer._layers import _Linear as _Linear
from sporax.mindspore.parallel._transformer._loss import CrossEntropyLoss as CrossEntropyLoss
from sporax.mindspore.parallel._transformer._moe import MoE as MoE
from sporax.mindspore.parallel._transformer._moe import Router as Router
from sporax.mindspore.parallel._transformer._stacks import Transformer as Transformer
from sporax.mindspore.parallel._transformer._stacks import TransformerDecoder as TransformerDecoder
from sporax.mindspore.parallel._transformer._stacks import TransformerEncoder as TransformerEncoder
from sporax.mindspore.parallel._transformer._stacks import _get_lambda_func as _get_lambda_func


