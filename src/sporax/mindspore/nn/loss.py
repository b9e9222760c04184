"""Loss layers; those at the end compare distances, margins and rankings."""

from __future__ import annotations

import math
from typing import Any

from sporax.base.errors import For, SporaxTypeError, SporaxValueError, check_type
from sporax.mindspore import ops
from sporax.mindspore._declared import setting
from sporax.mindspore._names.missing import answer_missing_names, homes
from sporax.mindspore.common import Parameter, Tensor, dtypes
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn._arguments import Reduction
from sporax.mindspore.nn.cell import Layer
from sporax.mindspore.ops._core.operator import MINT

__path__: list[str] = []  # a package in MindSpore, see `sporax.mindspore._names.module_paths`

_REDUCTIONS = ("mean", "sum", "none")

# MindSpore has all losses in `nn.loss`.
answer_missing_names(
    __name__,
    homes(
        "sporax.mindspore.nn",
        """
        BCELoss CTCLoss CosineEmbeddingLoss DiceLoss FocalLoss GaussianNLLLoss HingeEmbeddingLoss HuberLoss KLDivLoss
        MarginRankingLoss MultiClassDiceLoss MultiLabelSoftMarginLoss MultiMarginLoss MultilabelMarginLoss NLLLoss
        PoissonNLLLoss RMSELoss SampledSoftmaxLoss SmoothL1Loss SoftMarginLoss TripletMarginLoss
        TripletMarginWithDistanceLoss
        """,
    ),
    listed=True,
)


class LossBase(Layer):
    """Base of losses: knows how to reduce.

    Args:
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Attributes:
        reduce, average: what `get_loss` goes by, as in MindSpore, whatever a script makes of `reduction` later.

    Raises:
        SporaxValueError: another word.
    """

    def __init__(self, reduction: Reduction = "mean") -> None:
        super().__init__()
        For(type(self).__name__).one_of("the 'reduction'", reduction, _REDUCTIONS)
        self.reduction = reduction
        self.average, self.reduce = reduction != "sum", reduction != "none"
        # Made once: a strategy can be set on them.
        self.mul, self.reduce_mean, self.reduce_sum = ops.Mul(), ops.ReduceMean(), ops.ReduceSum()

    def _begin(self, values: dict[str, Any]) -> None:
        LossBase.__init__(self, values.pop("reduction", "mean"))

    def get_axis(self, x: Tensor) -> tuple[int, ...]:
        """All dimensions of `x`."""
        return tuple(range(x.ndim))

    def get_loss(self, x: Tensor, weights: Any = 1.0) -> Tensor:
        """`x` times `weights`, reduced."""
        weighted: Tensor = self.mul(x, weights) if argument.configured(self.mul) else x * weights
        if not self.reduce:
            return weighted
        reduce = self.reduce_mean if self.average else self.reduce_sum
        return reduce(weighted, self.get_axis(weighted))

    def _in_dtype_of(self, x: Tensor) -> Tensor:
        """`x` reduced as `get_loss` does it, in its own dtype: integers are rounded towards 0, as in MindSpore."""
        loss = self.get_loss(x)
        return loss if loss.dtype == x.dtype else loss.astype(x.dtype)


def same_shape(name: str, logits: Tensor, labels: Tensor) -> None:
    """Raise SporaxValueError unless both are Tensors of one shape."""
    argument_is_tensor(name, logits=logits, labels=labels)
    if logits.shape != labels.shape:
        raise For(name).error(f"'logits' and 'labels' must have one shape, but got {logits.shape} and {labels.shape}")


def argument_is_tensor(name: str, **values: Any) -> None:
    """Raise SporaxTypeError unless every value is a Tensor."""
    for label, value in values.items():
        For(name).typed(f"the '{label}'", value, "a Tensor", Tensor)


class MSELoss(LossBase):
    """Mean (or sum) of squared differences."""

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        """`logits` and `labels` of shapes that broadcast."""
        argument_is_tensor("MSELoss", logits=logits, labels=labels)
        return self._in_dtype_of(ops.square(logits - labels))


class L1Loss(LossBase):
    """Mean (or sum) of absolute differences."""

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        """`logits` and `labels` of shapes that broadcast."""
        argument_is_tensor("L1Loss", logits=logits, labels=labels)
        return ops.l1_loss(logits, labels, self.reduction)


class L1LossExt(LossBase):
    """`L1Loss` as `mint.nn` has it: level ``"auto"`` of mixed precision computes it in float32."""

    def construct(self, input: Tensor, target: Tensor) -> Tensor:
        """`input` and `target` of shapes that broadcast."""
        return MINT["nn.functional.l1_loss"](input, target, self.reduction)


class MAELoss(LossBase):
    """Mean absolute error: the mean (or sum) of absolute differences."""

    def construct(self, logits: Tensor, label: Tensor) -> Tensor:
        """`logits` and `label` of shapes that broadcast."""
        argument_is_tensor("MAELoss", logits=logits, label=label)
        return self._in_dtype_of(ops.abs(logits - label))


class CrossEntropyLoss(LossBase):
    """Negative log-likelihood of classes under softmax of the logits.

    Raises:
        SporaxValueError: `reduction` or `label_smoothing` is out of range.
        SporaxTypeError: `weight` is not a Tensor.
    """

    weight: Tensor | None = setting(None, "weight of each class, (C,).", default=None)
    ignore_index: int = setting(
        check_type, "label that counts for nothing.", default=-100, expected="an int", types=int, takes_bool=False
    )
    reduction: Reduction = setting(None, '``"mean"``, ``"sum"`` or ``"none"``.', default="mean")
    label_smoothing: float = setting(None, "share of the target spread over all classes, in [0, 1].", default=0.0)

    def _prepare(self) -> None:
        if self.weight is not None:
            argument_is_tensor("CrossEntropyLoss", weight=self.weight)
        if not 0.0 <= argument.number("CrossEntropyLoss", "label_smoothing", self.label_smoothing) <= 1.0:
            raise For("CrossEntropyLoss").error("'label_smoothing' must be in [0, 1]", self.label_smoothing)

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        """`logits`: (N, C) or (N, C, d1, …). `labels`: class indices (N,) or (N, d1, …), or probabilities like `logits`."""
        argument_is_tensor("CrossEntropyLoss", logits=logits, labels=labels)
        return ops.cross_entropy(logits, labels, self.weight, self.ignore_index, self.reduction, self.label_smoothing)


class SoftmaxCrossEntropyWithLogits(LossBase):
    """Cross entropy between softmax of the logits and labels.

    Attributes:
        softmax_cross_entropy, one_hot, sparse_softmax_cross_entropy: primitives that can have a strategy. Sparse labels go
            through the last one (with the reduction ``"mean"``) if that has a strategy, or through the first two.
    """

    sparse: bool = setting(argument.boolean, "labels are class indices, not probabilities.", default=False)
    reduction: Reduction = setting(None, '``"mean"``, ``"sum"`` or ``"none"``.', default="none")

    def _prepare(self) -> None:
        self.one_hot = ops.OneHot()
        self.softmax_cross_entropy = ops.SoftmaxCrossEntropyWithLogits()
        self.sparse_softmax_cross_entropy = ops.SparseSoftmaxCrossEntropyWithLogits()

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        """`logits`: (N, C). `labels`: (N,) integers when sparse, else (N, C) probabilities of the same dtype."""
        argument_is_tensor("SoftmaxCrossEntropyWithLogits", logits=logits, labels=labels)
        if self.sparse:
            if labels.dtype not in (*dtypes.int_type, *dtypes.uint_type):
                raise For("SoftmaxCrossEntropyWithLogits").type_error("sparse labels must be integers", labels.dtype)
            return self._sparse(logits, labels)
        For("SoftmaxCrossEntropyWithLogits").refuse_type(
            labels.dtype != logits.dtype, "'logits' and 'labels' must have one dtype", logits.dtype, labels.dtype
        )
        same_shape("SoftmaxCrossEntropyWithLogits", logits, labels)
        return self.get_loss(self.softmax_cross_entropy(logits, labels)[0])

    def _sparse(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Through the primitives that have strategies; through one operator when none has."""
        dense = argument.configured(self.one_hot, self.softmax_cross_entropy)
        # One operator, which computes log-softmax without the probabilities.
        if self.reduction == "mean" and (argument.configured(self.sparse_softmax_cross_entropy) or not dense):
            return self.sparse_softmax_cross_entropy(logits, labels)
        if not dense:
            return self.get_loss(ops.cross_entropy(logits, labels, reduction="none"))
        on, off = (Tensor(value, logits.dtype) for value in (1.0, 0.0))
        hot = self.one_hot(labels, logits.shape[-1], on, off)
        return self.get_loss(self.softmax_cross_entropy(logits, hot)[0])


class BCEWithLogitsLoss(LossBase):
    """Cross entropy of sigmoid of the logits with probabilities."""

    reduction: Reduction = setting(None, '``"mean"``, ``"sum"`` or ``"none"``.', default="mean")
    weight: Tensor | None = setting(None, "rescales each element.", default=None)
    pos_weight: Tensor | None = setting(None, "weight of the positive part.", default=None)

    def _prepare(self) -> None:
        for name, value in (("weight", self.weight), ("pos_weight", self.pos_weight)):
            if isinstance(value, Parameter):
                raise SporaxTypeError(f"For 'BCEWithLogitsLoss', '{name}' must be a Tensor, but got a Parameter.")

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        """`logits` and `labels` of one shape."""
        same_shape("BCEWithLogitsLoss", logits, labels)
        return ops.binary_cross_entropy_with_logits(logits, labels, self.weight, self.pos_weight, self.reduction)


class SmoothL1Loss(LossBase):
    """Squared difference over 2 · beta where it is below beta, absolute difference minus beta / 2 beyond (Girshick 2015)."""

    def __init__(self, beta: float = 1.0, reduction: Reduction = "none") -> None:
        super().__init__(reduction)
        self.beta = argument.within("SmoothL1Loss", "beta", beta, 0.0, math.inf, "()")
        self.smooth_l1_loss = ops.SmoothL1Loss(self.beta, reduction)

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        """`logits` and `labels` of one shape."""
        same_shape("SmoothL1Loss", logits, labels)
        result: Tensor = self.smooth_l1_loss(logits, labels)
        return result


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
    """Mean over the other classes of max(0, margin - x[class] + x[other]) ** p."""

    p: int = setting(check_type, "1 or 2.", default=1, attribute=False, expected="an int", types=int, takes_bool=False)
    margin: float = setting(argument.number, "see above.", default=1.0)
    reduction: Reduction = setting(None, '``"mean"``, ``"sum"`` or ``"none"``.', default="mean")
    weight: Tensor | None = setting(None, "weight of each class, (C,).", default=None)

    def _prepare(self, p: int) -> None:
        self.p = argument.one_of("MultiMarginLoss", "p", p, (1, 2))

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
    """max(0, ‖x - positive‖ - ‖x - negative‖ + margin)."""

    p: int = setting(argument.positive_int, "power of the norm.", default=2)
    swap: bool = setting(
        argument.boolean, "use ‖positive - negative‖ where that is smaller than ‖x - negative‖.", default=False
    )
    eps: float = setting(argument.number, "added to the differences.", default=1e-6)
    reduction: Reduction = setting(None, '``"mean"``, ``"sum"`` or ``"none"``.', default="mean")
    margin: float = setting(argument.number, "see above.", default=1.0)

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
