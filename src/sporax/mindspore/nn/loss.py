"""Loss layers."""

from __future__ import annotations

from typing import Any

from sporax.base.errors import SporaxTypeError, SporaxValueError, check_type
from sporax.mindspore import ops
from sporax.mindspore._names.missing import answer_missing_names, homes
from sporax.mindspore.common import dtype as dtypes
from sporax.mindspore.common.parameter import Parameter
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn._arguments import Reduction
from sporax.mindspore.nn.cell import Cell
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


class LossBase(Cell):
    """Base of losses: knows how to reduce.

    Args:
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        SporaxValueError: another word.
    """

    def __init__(self, reduction: Reduction = "mean") -> None:
        super().__init__()
        SporaxValueError.raise_unless_in(type(self).__name__, "the 'reduction'", reduction, _REDUCTIONS)
        self.reduction = reduction
        self.average, self.reduce = reduction != "sum", reduction != "none"
        # Made once: a strategy can be set on them.
        self.mul, self.reduce_mean, self.reduce_sum = ops.Mul(), ops.ReduceMean(), ops.ReduceSum()

    def get_axis(self, x: Tensor) -> tuple[int, ...]:
        """All dimensions of `x`."""
        return tuple(range(x.ndim))

    def get_loss(self, x: Tensor, weights: Any = 1.0) -> Tensor:
        """`x` times `weights`, reduced."""
        weighted: Tensor = self.mul(x, weights) if argument.configured(self.mul) else x * weights
        if self.reduction == "none":
            return weighted
        reduce = self.reduce_mean if self.reduction == "mean" else self.reduce_sum
        return reduce(weighted, self.get_axis(weighted))


def same_shape(name: str, logits: Tensor, labels: Tensor) -> None:
    """Raise SporaxValueError unless both are Tensors of one shape."""
    argument_is_tensor(name, logits=logits, labels=labels)
    if logits.shape != labels.shape:
        raise SporaxValueError(
            f"For '{name}', 'logits' and 'labels' must have one shape, but got {logits.shape} and {labels.shape}."
        )


def argument_is_tensor(name: str, **values: Any) -> None:
    """Raise SporaxTypeError unless every value is a Tensor."""
    for label, value in values.items():
        check_type(name, f"the '{label}'", value, "a Tensor", Tensor)


class MSELoss(LossBase):
    """Mean (or sum) of squared differences."""

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        """`logits` and `labels` of shapes that broadcast."""
        argument_is_tensor("MSELoss", logits=logits, labels=labels)
        return self.get_loss(ops.square(logits - labels))


class L1Loss(LossBase):
    """Mean (or sum) of absolute differences."""

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        """`logits` and `labels` of shapes that broadcast."""
        argument_is_tensor(type(self).__name__, logits=logits, labels=labels)
        return self.get_loss(ops.abs(logits - labels))


class L1LossExt(LossBase):
    """`L1Loss` as `mint.nn` has it: level ``"auto"`` of mixed precision computes it in float32."""

    def construct(self, input: Tensor, target: Tensor) -> Tensor:
        """`input` and `target` of shapes that broadcast."""
        return MINT["nn.functional.l1_loss"](input, target, self.reduction)


class MAELoss(L1Loss):
    """Mean absolute error: the mean (or sum) of absolute differences."""


class CrossEntropyLoss(LossBase):
    """Negative log-likelihood of classes under softmax of the logits.

    Args:
        weight: weight of each class, (C,).
        ignore_index: label that counts for nothing.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        label_smoothing: share of the target spread over all classes, in [0, 1].

    Raises:
        SporaxValueError: `reduction` or `label_smoothing` is out of range.
        SporaxTypeError: `weight` is not a Tensor.
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(reduction)
        if weight is not None:
            argument_is_tensor("CrossEntropyLoss", weight=weight)
        if not 0.0 <= argument.number("CrossEntropyLoss", "label_smoothing", label_smoothing) <= 1.0:
            raise SporaxValueError.must("CrossEntropyLoss", "label_smoothing", "be in [0, 1]", label_smoothing)
        self.weight = weight
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        """`logits`: (N, C) or (N, C, d1, …). `labels`: class indices (N,) or (N, d1, …), or probabilities like `logits`."""
        argument_is_tensor("CrossEntropyLoss", logits=logits, labels=labels)
        return ops.cross_entropy(logits, labels, self.weight, self.ignore_index, self.reduction, self.label_smoothing)


class SoftmaxCrossEntropyWithLogits(LossBase):
    """Cross entropy between softmax of the logits and labels.

    Args:
        sparse: labels are class indices, not probabilities.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Attributes:
        softmax_cross_entropy, one_hot, sparse_softmax_cross_entropy: primitives that can have a strategy. Sparse labels go
            through the last one (with the reduction ``"mean"``) if that was told something, or through the first two.
    """

    def __init__(self, sparse: bool = False, reduction: Reduction = "none") -> None:
        super().__init__(reduction)
        self.sparse = argument.boolean("SoftmaxCrossEntropyWithLogits", "sparse", sparse)
        self.one_hot = ops.OneHot()
        self.softmax_cross_entropy = ops.SoftmaxCrossEntropyWithLogits()
        self.sparse_softmax_cross_entropy = ops.SparseSoftmaxCrossEntropyWithLogits()

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        """`logits`: (N, C). `labels`: (N,) integers when sparse, else (N, C) probabilities of the same dtype."""
        argument_is_tensor("SoftmaxCrossEntropyWithLogits", logits=logits, labels=labels)
        if self.sparse:
            # Class numbers.
            if labels.dtype not in (*dtypes.int_type, *dtypes.uint_type):
                raise SporaxTypeError(
                    f"For 'SoftmaxCrossEntropyWithLogits', sparse labels must be integers, but got {labels.dtype}."
                )
            return self._sparse(logits, labels)
        if labels.dtype != logits.dtype:
            raise SporaxTypeError(
                "For 'SoftmaxCrossEntropyWithLogits', 'logits' and 'labels' must have one dtype, "
                f"but got {logits.dtype} and {labels.dtype}."
            )
        same_shape("SoftmaxCrossEntropyWithLogits", logits, labels)
        return self.get_loss(self.softmax_cross_entropy(logits, labels)[0])

    def _sparse(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Through the primitives that plans were told of; through one operator when they were told of none."""
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
    """Cross entropy of sigmoid of the logits with probabilities.

    Args:
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        weight: rescales each element.
        pos_weight: weight of the positive part.
    """

    def __init__(
        self, reduction: Reduction = "mean", weight: Tensor | None = None, pos_weight: Tensor | None = None
    ) -> None:
        super().__init__(reduction)
        for name, value in (("weight", weight), ("pos_weight", pos_weight)):
            if isinstance(value, Parameter):
                raise SporaxTypeError(f"For 'BCEWithLogitsLoss', '{name}' must be a Tensor, but got a Parameter.")
        self.weight = weight
        self.pos_weight = pos_weight

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        """`logits` and `labels` of one shape."""
        same_shape("BCEWithLogitsLoss", logits, labels)
        return ops.binary_cross_entropy_with_logits(logits, labels, self.weight, self.pos_weight, self.reduction)
