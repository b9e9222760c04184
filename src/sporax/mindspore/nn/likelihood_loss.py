"""Losses that are likelihoods, divergences or overlaps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp

from sporax.base.errors import For, SporaxValueError, check_type
from sporax.mindspore import ops
from sporax.mindspore._declared import setting
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn._arguments import Reduction
from sporax.mindspore.nn.activation import get_activation
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.nn.loss import LossBase, argument_is_tensor, same_shape
from sporax.mindspore.ops._core.operator import Array, operator


class NLLLoss(LossBase):
    """Negative of the log-probabilities at the given classes.

    Args:
        weight: weight of each class, (C,).
        ignore_index: class that counts for nothing.
        reduction: ``"mean"`` (over the weights of the classes), ``"sum"`` or ``"none"``.
    """

    def __init__(self, weight: Tensor | None = None, ignore_index: int = -100, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.weight = For("NLLLoss").typed("weight", weight, "a Tensor", Tensor | None)
        self.ignore_index = For("NLLLoss").typed("ignore_index", ignore_index, "an int", int, takes_bool=False)

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        """`logits`: log-probabilities (N, C, …); `labels`: classes (N, …)."""
        argument_is_tensor("NLLLoss", logits=logits, labels=labels)
        return ops.nll_loss(logits, labels, self.weight, self.ignore_index, self.reduction)


class BCELoss(LossBase):
    """Cross entropy of probabilities with labels in [0, 1]."""

    weight: Tensor | None = setting(None, "rescales each element.", default=None)
    reduction: Reduction = setting(None, '``"mean"``, ``"sum"`` or ``"none"``.', default="mean")

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        """`logits` (probabilities) and `labels` of one shape."""
        same_shape("BCELoss", logits, labels)
        return ops.binary_cross_entropy(logits, labels, self.weight, self.reduction)


class KLDivLoss(LossBase):
    """label · (log label - logit), where the logits are log-probabilities.

    Args:
        reduction: ``"mean"``, ``"batchmean"`` (sum over the batch size), ``"sum"`` or ``"none"``.
    """

    reduction: Any  # "batchmean" as well

    def __init__(self, reduction: Reduction | Literal["batchmean"] = "mean") -> None:
        # The base class does not know this word.
        super().__init__("mean" if reduction == "batchmean" else reduction)
        self.reduction = reduction

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        """`logits` (log-probabilities) and `labels` (probabilities) of one shape."""
        same_shape("KLDivLoss", logits, labels)
        return ops.kl_div(logits, labels, self.reduction)


@operator(function="")
def _poisson(x: Array, target: Array, is_log: bool, full: bool, epsilon: float) -> Array:
    target = target.astype(x.dtype)
    loss = jnp.exp(x) - target * x if is_log else x - target * jnp.log(x + epsilon)
    if full:
        limited = jnp.maximum(target, epsilon)
        # Stirling's formula; for counts up to 1 log n! is 0.
        stirling = (limited + 0.5) * jnp.log(limited) - limited + 0.5 * math.log(2 * math.pi)
        loss = loss + jnp.where(target > 1, stirling, 0.0)
    return loss


class PoissonNLLLoss(LossBase):
    """Negative log-likelihood of counts under a Poisson distribution."""

    log_input: bool = setting(argument.boolean, "the input is the logarithm of the rate.", default=True)
    full: bool = setting(argument.boolean, "add Stirling's approximation of log target!.", default=False)
    eps: float = setting(argument.number, "keeps logarithms finite.", default=1e-8)
    reduction: Reduction = setting(None, '``"mean"``, ``"sum"`` or ``"none"``.', default="mean")

    def construct(self, input: Tensor, target: Tensor) -> Tensor:
        """`input` and `target` of shapes that broadcast."""
        argument_is_tensor("PoissonNLLLoss", input=input, target=target)
        return self.get_loss(_poisson(input, target, self.log_input, self.full, self.eps))


class GaussianNLLLoss(LossBase):
    """Negative log-likelihood under normal distributions with given variances.

    Args:
        full: add the constant term.
        eps: smallest variance.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.full = argument.boolean("GaussianNLLLoss", "full", full)
        self.eps = argument.within("GaussianNLLLoss", "eps", eps, 0.0, math.inf, "()")

    def construct(self, logits: Tensor, labels: Tensor, var: Tensor) -> Tensor:
        """`logits`: means; `labels`; `var`: variances; shapes that broadcast."""
        argument_is_tensor("GaussianNLLLoss", logits=logits, labels=labels, var=var)
        return ops.gaussian_nll_loss(logits, labels, var, self.full, self.eps, self.reduction)


class MultiLabelSoftMarginLoss(LossBase):
    """Mean over classes of the cross entropy of sigmoid with labels 0 or 1."""

    weight: Tensor | None = setting(None, "rescales each class.", default=None)
    reduction: Reduction = setting(None, '``"mean"``, ``"sum"`` or ``"none"``.', default="mean")

    def construct(self, x: Tensor, target: Tensor) -> Tensor:
        """`x` and `target` of one shape (N, C)."""
        same_shape("MultiLabelSoftMarginLoss", x, target)
        return ops.multilabel_soft_margin_loss(x, target, self.weight, self.reduction)


@operator(function="")
def _focal(logits: Array, labels: Array, weight: Array | None, gamma: float) -> Array:
    batch, classes = logits.shape[:2]
    log_probs = jax.nn.log_softmax(logits.reshape(batch, classes, -1), 1)
    marks = labels.reshape(*labels.shape[:2], -1)
    weights = jnp.ones((1, classes, 1), logits.dtype) if weight is None else weight[None, :, None]
    weights = jnp.broadcast_to(weights, log_probs.shape)
    if labels.shape[1] == 1:
        chosen = marks.astype(jnp.int32)
        # Of fewer samples than logits: the first logits count, as in MindSpore's GatherD.
        log_probs, weights = (table[: len(chosen), :, : chosen.shape[2]] for table in (log_probs, weights))
        log_probs, weights = (jnp.take_along_axis(table, chosen, 1)[:, 0] for table in (log_probs, weights))
        return jnp.mean(-((1 - jnp.exp(log_probs)) ** gamma) * log_probs * weights, 1)
    return jnp.mean(-((1 - jnp.exp(log_probs)) ** gamma) * log_probs * weights * marks, -1)


class FocalLoss(LossBase):
    """Cross entropy with (1 - p) ** gamma as weight, for rare classes (Lin et al. 2017).

    Args:
        weight: weight of each class, (C,).
        gamma: see above.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        SporaxTypeError, SporaxValueError: tensors that do not fit.
    """

    def __init__(self, weight: Tensor | None = None, gamma: float = 2.0, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.weight = For("FocalLoss").typed("weight", weight, "a Tensor", Tensor | None)
        if weight is not None and weight.ndim != 1:
            raise SporaxValueError(f"For 'FocalLoss', 'weight' must have 1 dimension, but its shape is {weight.shape}.")
        self.gamma = argument.number("FocalLoss", "gamma", gamma)

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        """`logits`: (N, C, …); `labels`: classes (N, 1, …), or marks of each class (N, C, …)."""
        argument_is_tensor("FocalLoss", logits=logits, labels=labels)
        fits = logits.ndim == labels.ndim and 2 <= logits.ndim <= 4 and labels.shape[1] in (1, logits.shape[1])
        if not fits or logits.shape[1] == 1:
            raise SporaxValueError(
                "For 'FocalLoss', 'logits' must be (N, C, …) with C > 1 and 2 to 4 dimensions, and 'labels' as well "
                f"with C or 1 in place of C, but got shapes {logits.shape} and {labels.shape}."
            )
        return self.get_loss(_focal(logits, labels, self.weight, self.gamma))


class DiceLoss(LossBase):
    """1 - 2 · overlap / (sum of squares of both + smooth)."""

    smooth: float = setting(argument.within, default=1e-5, low=0.0, high=math.inf, ends="()")

    def construct(self, logits: Tensor, label: Tensor) -> Tensor:
        """`logits` and `label` of one shape."""
        same_shape("DiceLoss", logits, label)
        squares = ops.reduce_sum(ops.square(logits)) + ops.reduce_sum(ops.square(label))
        return 1 - 2 * ops.reduce_sum(logits * label) / (squares + self.smooth)


class MultiClassDiceLoss(LossBase):
    """Mean of the Dice losses of all classes.

    Args:
        weights: weight of each class, 2-D with the classes in dim 0.
        ignore_indiex: class to leave out (MindSpore's spelling).
        activation: name of, or Cell for, the activation that makes probabilities of the logits; None for none.

    Raises:
        SporaxTypeError, SporaxValueError: settings or tensors that do not fit.
    """

    def __init__(
        self, weights: Tensor | None = None, ignore_indiex: int | None = None, activation: Any = "softmax"
    ) -> None:
        super().__init__()
        name = "MultiClassDiceLoss"
        self.weights = For(name).typed("weights", weights, "a Tensor", Tensor | None)
        if weights is not None and weights.ndim != 2:
            raise For(name).error("'weights' must be a 2-D Tensor", f"shape {weights.shape}")
        if isinstance(activation, str):
            argument.one_of(
                name, "activation", activation, ("softmax", "logsoftmax", "relu", "relu6", "tanh", "sigmoid")
            )
            activation = get_activation(activation)
        self.ignore_indiex = For(name).typed("ignore_indiex", ignore_indiex, "an int", int | None, takes_bool=False)
        self.activation = For(name).typed("activation", activation, "a name or a Cell", Cell | None)
        self.binarydiceloss = DiceLoss()

    def construct(self, logits: Tensor, label: Tensor) -> Tensor:
        """`logits` and `label`: (N, C, …)."""
        same_shape("MultiClassDiceLoss", logits, label)
        if label.ndim < 2 or (self.weights is not None and self.weights.shape[0] != label.shape[1]):
            raise SporaxValueError(
                "For 'MultiClassDiceLoss', the tensors must be (N, C, …) with one weight per class, "
                f"but got shape {label.shape} and weights {self.weights!r}."
            )
        probabilities = logits if self.activation is None else self.activation(logits)
        total: Any = 0
        for index in range(label.shape[1]):
            # Divided by all classes below, also those left out, as in MindSpore.
            if index != self.ignore_indiex:
                loss = self.binarydiceloss(probabilities[:, index], label[:, index])
                total = total + (loss if self.weights is None else loss * self.weights[index])
        return total / label.shape[1]


class CTCLoss(LossBase):
    """Connectionist temporal classification (Graves et al. 2006).

    Args:
        blank: class that stands for no label.
        reduction: ``"mean"`` (each loss over its target's length), ``"sum"`` or ``"none"``.
        zero_infinity: targets that are too long for their input cost 0 instead of infinity.
    """

    def __init__(self, blank: int = 0, reduction: Reduction = "mean", zero_infinity: bool = False) -> None:
        super().__init__(reduction)
        self.blank = argument.ints("CTCLoss", "blank", blank, 1, 0)[0]
        self.zero_infinity = argument.boolean("CTCLoss", "zero_infinity", zero_infinity)

    def construct(self, log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor) -> Tensor:
        """`log_probs`: (T, N, C); `targets`: (N, S); lengths: (N,)."""
        argument_is_tensor("CTCLoss", log_probs=log_probs, targets=targets)
        lengths = (input_lengths, target_lengths)
        # The second result is a state that the loss does not need.
        return ops.ctc_loss(log_probs, targets, *lengths, self.blank, self.reduction, self.zero_infinity)[0]


class SampledSoftmaxLoss(LossBase):
    """Softmax cross entropy over the true classes and a sample of the others (Jean et al. 2015), for very many classes.

    Each logit is lowered by the logarithm of how often its class is expected in the sample. As in MindSpore, except that
    `reduction` is heeded.

    Args:
        num_sampled: how many classes are drawn.
        num_classes: how many there are.
        num_true: labels per sample; each gets the probability 1 / num_true.
        sampled_values: sampled classes and expected counts as a candidate sampler of `ops` gives them; None: classes are
            drawn uniformly at every call.
        remove_accidental_hits: draw no class that is a label in the batch.
        seed: of the draws; 0: from the stream of all operators.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        SporaxTypeError, SporaxValueError: numbers that do not fit, or `sampled_values` that are not three Tensors.
    """

    num_sampled: int = setting(attribute=False)
    num_classes: int = setting(attribute=False)
    num_true: int = setting(default=1)
    sampled_values: Sequence[Tensor] | None = setting(
        check_type, default=None, expected="a list or tuple", types=tuple | list | None
    )
    remove_accidental_hits: bool = setting(argument.boolean, default=True, attribute=False)
    seed: int = setting(default=0, attribute=False)
    reduction: Reduction = setting(default="none")

    def _prepare(self, num_sampled: int, num_classes: int, remove_accidental_hits: bool, seed: int) -> None:
        name = "SampledSoftmaxLoss"
        argument.ints(name, "seed", seed, 1, 0)
        for what, value in (("num_sampled", num_sampled), ("num_classes", num_classes), ("num_true", self.num_true)):
            argument.positive_int(name, what, value)
        if max(num_sampled, self.num_true) > num_classes:
            raise SporaxValueError(
                f"For '{name}', 'num_sampled' and 'num_true' must be at most 'num_classes' = {num_classes}, but got "
                f"{num_sampled} and {self.num_true}."
            )
        if self.sampled_values is not None and len(self.sampled_values) != 3:
            raise For(name).error(f"'sampled_values' must have length 3, but got {len(self.sampled_values)}")
        self.sampler = ops.UniformCandidateSampler(
            self.num_true, num_sampled, True, num_classes, seed, remove_accidental_hits
        )

    def construct(self, weights: Tensor, biases: Tensor, labels: Tensor, logits: Tensor) -> Tensor:
        """The loss of each sample (N,), reduced.

        Args:
            weights: (num_classes, D).
            biases: (num_classes,).
            labels: (N, num_true) or (N,) for one, integers.
            logits: (N, D), the input of the last layer.
        """
        argument_is_tensor("SampledSoftmaxLoss", weights=weights, biases=biases, labels=labels, logits=logits)
        labels = labels.reshape((-1, self.num_true))
        sampled, expected_true, expected_sampled = self.sampled_values or self.sampler(labels)
        true = ops.reduce_sum(ops.gather(weights, labels, 0) * logits.expand_dims(1), -1) + ops.gather(
            biases, labels, 0
        )
        others = ops.matmul(logits, ops.gather(weights, sampled, 0).T) + ops.gather(biases, sampled, 0)
        # A class that is drawn often is corrected by how often it is expected.
        corrected = ops.concat((true - ops.log(expected_true), others - ops.log(expected_sampled)), 1)
        return self.get_loss(-ops.mean(ops.log_softmax(corrected, -1)[:, : self.num_true], 1))
