"""A training program with mindnlp 0.2's own Trainer, for `tools/run_public_scripts.py`: mindnlp's examples download data.

    python tools/_mindnlp_trainer.py bert|bert_jit|llama|llama_lora [--distributed]

Models are mindnlp's, small; sentences are made up. Ranks shard them, and the optimizer reduces gradients, as in MindSpore's
guide to data parallelism.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from mindnlp.engine import Trainer
from mindnlp.peft import LoraConfig, get_peft_model
from mindnlp.transformers import BertConfig, BertForSequenceClassification, LlamaConfig, LlamaForCausalLM
from mindnlp.transformers.models.bert.modeling_graph_bert import MSBertForSequenceClassification

import mindspore as ms
from mindspore import nn
from mindspore.communication import get_group_size, get_rank, init
from mindspore.dataset import NumpySlicesDataset

SIZES = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
BATCH, STEPS, LENGTH = 16, 3, 16


class ReducedAdam(nn.AdamWeightDecay):
    """The optimizer, of gradients that ranks have averaged."""

    def __init__(self, parameters: Any, rate: float, ranks: int) -> None:
        super().__init__(parameters, rate)
        self.reduced = nn.DistributedGradReducer(self.parameters, True, ranks) if ranks > 1 else None

    def construct(self, gradients: Any) -> Any:
        """Reduce, then move."""
        return super().construct(gradients if self.reduced is None else self.reduced(gradients))


def network(kind: str) -> nn.Cell:
    """A small model of mindnlp's."""
    if kind.startswith("bert"):
        maker = MSBertForSequenceClassification if kind == "bert_jit" else BertForSequenceClassification
        return maker(BertConfig(**SIZES, **NO_DROPOUT, max_position_embeddings=LENGTH, num_labels=4))
    model = LlamaForCausalLM(LlamaConfig(**SIZES, max_position_embeddings=LENGTH))
    return get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0)) if "lora" in kind else model


def main() -> None:
    """Three steps."""
    kind, *more = sys.argv[1:]
    rank, ranks = 0, 1
    if more:
        init()
        rank, ranks = get_rank(), get_group_size()
        ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
    draw = np.random.RandomState(0)
    ids = draw.randint(1, 64, (BATCH * STEPS, LENGTH)).astype(np.int32)
    chosen = draw.randint(0, 4, (BATCH * STEPS, 1)).astype(np.int32)
    labels = {"bert": chosen, "bert_jit": np.eye(4, dtype=np.float32)[chosen[:, 0]]}.get(kind, ids)
    data = NumpySlicesDataset(
        (ids, labels), ["input_ids", "labels"], shuffle=False, num_shards=ranks, shard_id=rank
    ).batch(BATCH // ranks)
    model = network(kind)
    with_loss = nn.CrossEntropyLoss() if kind == "bert_jit" else None
    # Biases of keys have no gradient but rounding, which Adam scales up.
    optimizer = ReducedAdam([p for p in model.trainable_params() if "key.bias" not in p.name], 1e-2, ranks)
    Trainer(
        network=model, train_dataset=data, epochs=1, loss_fn=with_loss, optimizer=optimizer, jit=kind == "bert_jit"
    ).run(tgt_columns="labels")


if __name__ == "__main__":
    main()
