"""Losses of `sporax.mindspore.mint.nn`."""

from __future__ import annotations

from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.mint.nn import functional as F
from sporax.mindspore.mint.nn._layer import FunctionLayer, PairLayer, layer

L1Loss = layer("L1Loss", F.l1_loss, "Mean (or sum) of absolute differences.", PairLayer, reduction="mean")
MSELoss = layer("MSELoss", F.mse_loss, "Mean (or sum) of squared differences.", PairLayer, reduction="mean")
SmoothL1Loss = layer(
    "SmoothL1Loss",
    F.smooth_l1_loss,
    "Squared differences below `beta`, absolute ones above (Girshick 2015).",
    PairLayer,
    reduction="mean",
    beta=1.0,
)
CrossEntropyLoss = layer(
    "CrossEntropyLoss",
    F.cross_entropy,
    "Negative log-likelihood of classes under softmax of the logits; settings as `nn.functional.cross_entropy`.",
    PairLayer,
    weight=None,
    ignore_index=-100,
    reduction="mean",
    label_smoothing=0.0,
)
NLLLoss = layer(
    "NLLLoss",
    F.nll_loss,
    "Negative log-likelihood of classes, given log-probabilities; settings as `nn.functional.nll_loss`.",
    PairLayer,
    weight=None,
    ignore_index=-100,
    reduction="mean",
)
BCELoss = layer(
    "BCELoss",
    F.binary_cross_entropy,
    "Cross entropy of probabilities with probabilities, each element times `weight`.",
    PairLayer,
    weight=None,
    reduction="mean",
)
BCEWithLogitsLoss = layer(
    "BCEWithLogitsLoss",
    F.binary_cross_entropy_with_logits,
    "Cross entropy of sigmoid of the logits with probabilities; `pos_weight` counts for the positive part.",
    PairLayer,
    weight=None,
    reduction="mean",
    pos_weight=None,
)
KLDivLoss = layer(
    "KLDivLoss",
    F.kl_div,
    "Divergence of the target from the distribution whose logarithm is the input (Kullback & Leibler 1951).",
    PairLayer,
    reduction="mean",
    log_target=False,
)
SoftMarginLoss = layer(
    "SoftMarginLoss",
    F.soft_margin_loss,
    "log(1 + exp(-target · input)) for targets 1 and -1.",
    PairLayer,
    reduction="mean",
)


class _Embeddings(FunctionLayer):
    def construct(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        """`input1`, `input2`: (n, size) or (size,). `target`: 1 or -1 for each pair."""
        return self.compute(input1, input2, target)


CosineEmbeddingLoss = layer(
    "CosineEmbeddingLoss",
    F.cosine_embedding_loss,
    "1 - cosine of pairs with target 1; what the cosine of the others exceeds `margin` by.",
    _Embeddings,
    margin=0.0,
    reduction="mean",
)
