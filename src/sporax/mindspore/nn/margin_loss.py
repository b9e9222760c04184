"""Losses that compare distances, margins and rankings."""

from __future__ import annotations

import math
from typing import Any

from sporax.base.errors import SporaxValueError
from sporax.mindspore import ops
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn._arguments import Reduction
from sporax.mindspore.nn.loss import LossBase, argument_is_tensor, same_shape


class SmoothL1Loss(LossBase):
    """Squared difference over 2 · beta where it is below beta, absolute difference minus beta / 2 beyond (Girshick 2015)."""

    def __init__(self, beta: float = 1.0, reduction: Reduction = "none") -> None:
        super().__init__(reduction)
        self.beta = argument.within("SmoothL1Loss", "beta", beta, 0.0, math.inf, "()")

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        """`logits` and `labels` of one shape."""
        same_shape("SmoothL1Loss", logits, labels)
        return ops.smooth_l1_loss(logits, labels, self.beta, self.reduction)


class HuberLoss(LossBase):
    """Half the squared difference where it is below delta, delta · (absolute difference - delta / 2) beyond (Huber 1964)."""

    def __init__(self, reduction: Reduction = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction)
        self.delta = argument.within("HuberLoss", "delta", delta, 0.0, math.inf, "()")

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        """`logits` and `labels` of shapes that broadcast."""
        argument_is_tensor("HuberLoss", logits=logits, labels=labels)
        return ops.huber_loss(logits, labels, self.reduction, self.delta)


class RMSELoss(LossBase):
    """Root of the mean squared difference."""

    def __init__(self) -> None:
        super().__init__()

    def construct(self, logits: Tensor, label: Tensor) -> Tensor:
        """`logits` and `label` of shapes that broadcast."""
        argument_is_tensor("RMSELoss", logits=logits, label=label)
        return ops.sqrt(ops.reduce_mean(ops.square(logits - label)))


class SoftMarginLoss(LossBase):
    """log(1 + exp(-label · logit))."""

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        """`logits` and `labels` (-1 or 1) of one shape."""
        same_shape("SoftMarginLoss", logits, labels)
        return ops.soft_margin_loss(logits, labels, self.reduction)


class MarginRankingLoss(LossBase):
    """max(0, -target · (input1 - input2) + margin)."""

    def __init__(self, margin: float = 0.0, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.margin = argument.exactly_float("MarginRankingLoss", "margin", margin, -math.inf, math.inf)

    def construct(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        """Three tensors of one shape; `target` is 1 where `input1` should be the larger, -1 where `input2`."""
        same_shape("MarginRankingLoss", input1, input2)
        return ops.margin_ranking_loss(input1, input2, target, self.margin, self.reduction)


class HingeEmbeddingLoss(LossBase):
    """The distance itself where the label is 1, max(0, margin - distance) where it is -1."""

    def __init__(self, margin: float = 1.0, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.margin = argument.number("HingeEmbeddingLoss", "margin", margin)

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        """`logits`: distances; `labels`: 1 or -1, of the same shape."""
        same_shape("HingeEmbeddingLoss", logits, labels)
        return ops.hinge_embedding_loss(logits, labels, self.margin, self.reduction)


class CosineEmbeddingLoss(LossBase):
    """1 - cosine of both vectors where the label is 1, max(0, cosine - margin) where it is -1."""

    def __init__(self, margin: float = 0.0, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.margin = argument.within("CosineEmbeddingLoss", "margin", margin, -1.0, 1.0)

    def construct(self, logits_x1: Tensor, logits_x2: Tensor, labels: Tensor) -> Tensor:
        """Vectors along dim 1 of `logits_x1` and `logits_x2`; `labels` without that dim."""
        same_shape("CosineEmbeddingLoss", logits_x1, logits_x2)
        norms = ops.sqrt(ops.reduce_sum(ops.square(logits_x1), 1)) * ops.sqrt(ops.reduce_sum(ops.square(logits_x2), 1))
        cosine = ops.reduce_sum(logits_x1 * logits_x2, 1) / norms
        # Labels other than 1 and -1 cost nothing.
        far = ops.where(labels == -1, ops.maximum(cosine - self.margin, 0.0), cosine * 0)
        return self.get_loss(ops.where(labels == 1, 1.0 - cosine, far))


class MultiMarginLoss(LossBase):
    """Mean over the other classes of max(0, margin - x[class] + x[other]) ** p.

    Args:
        p: 1 or 2.
        margin: see above.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        weight: weight of each class, (C,).
    """

    def __init__(
        self, p: int = 1, margin: float = 1.0, reduction: Reduction = "mean", weight: Tensor | None = None
    ) -> None:
        super().__init__(reduction)
        self.p = argument.one_of("MultiMarginLoss", "p", p, (1, 2))
        self.margin = argument.number("MultiMarginLoss", "margin", margin)
        self.weight = weight

    def construct(self, x: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """`x`: (N, C); `target`: classes (N,)."""
        argument_is_tensor("MultiMarginLoss", x=x, target=target)
        if x.ndim != 2 or target.shape != x.shape[:1]:
            raise SporaxValueError(
                f"For 'MultiMarginLoss', 'x' must be (N, C) and 'target' (N,), but got shapes {x.shape} and {target.shape}."
            )
        weight = self.weight if self.weight is not None else weight
        return ops.multi_margin_loss(x, target, self.p, self.margin, weight, self.reduction)


class MultilabelMarginLoss(LossBase):
    """Mean over classes of max(0, 1 - x[label] + x[other]), summed over all labels of a sample."""

    def construct(self, x: Tensor, target: Tensor) -> Tensor:
        """`x`: (N, C) or (C,); `target`: labels of each sample in front, then -1, of the same shape."""
        same_shape("MultilabelMarginLoss", x, target)
        return ops.multilabel_margin_loss(x, target, self.reduction)


class TripletMarginLoss(LossBase):
    """max(0, ‖x - positive‖ - ‖x - negative‖ + margin).

    Args:
        p: power of the norm.
        swap: use ‖positive - negative‖ where that is smaller than ‖x - negative‖.
        eps: added to the differences.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        margin: see above.
    """

    def __init__(
        self, p: int = 2, swap: bool = False, eps: float = 1e-6, reduction: Reduction = "mean", margin: float = 1.0
    ) -> None:
        super().__init__(reduction)
        self.p = argument.positive_int("TripletMarginLoss", "p", p)
        self.swap = argument.boolean("TripletMarginLoss", "swap", swap)
        self.eps = argument.number("TripletMarginLoss", "eps", eps)
        self.margin = argument.number("TripletMarginLoss", "margin", margin)

    def construct(self, x: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0) -> Tensor:
        """Vectors along the last dim; `margin` counts where the constructor was given none."""
        argument_is_tensor("TripletMarginLoss", x=x, positive=positive, negative=negative)
        # The default of the layer lets the argument of the call win.
        margin = self.margin if self.margin != 1.0 else margin
        return ops.triplet_margin_loss(x, positive, negative, margin, self.p, self.eps, self.swap, self.reduction)


class TripletMarginWithDistanceLoss(LossBase):
    """As `TripletMarginLoss` with any distance.

    Args:
        distance_function: gives one distance per pair of vectors; None: Euclidean along dim 1.
        swap, reduction, margin: as there.
    """

    def __init__(
        self, distance_function: Any = None, swap: bool = False, reduction: Reduction = "mean", margin: float = 1.0
    ) -> None:
        super().__init__(reduction)
        self.distance_function = distance_function or _euclidean
        self.swap = argument.boolean("TripletMarginWithDistanceLoss", "swap", swap)
        self.margin = argument.number("TripletMarginWithDistanceLoss", "margin", margin)

    def construct(self, x: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """Vectors."""
        argument_is_tensor("TripletMarginWithDistanceLoss", x=x, positive=positive, negative=negative)
        near, far = self.distance_function(x, positive), self.distance_function(x, negative)
        if self.swap:
            far = ops.minimum(far, self.distance_function(positive, negative))
        return self.get_loss(ops.maximum(near - far + self.margin, 0.0))


def _euclidean(left: Tensor, right: Tensor) -> Tensor:
    return ops.sqrt(ops.reduce_sum(ops.square(left - right), 1))
