"""More loss functions: of probabilities, of distances and margins, and of sequences without alignment (CTC)."""

from __future__ import annotations

import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.scipy.special import xlogy

from sporax.ir.errors import SporaxValueError
from sporax.ops._core import check
from sporax.ops._core.operator import Array, Operand, operator
from sporax.ops.linalg.norms import cosine_similarity, length

Reduction = Literal["mean", "sum", "none"]


def _reduced(loss: Array, reduction: str, count: Any = None) -> Array:
    if reduction == "none":
        return loss
    total = jnp.sum(loss)
    return total if reduction == "sum" else total / (loss.size if count is None else count)


def _pair(name: str, input: Array, target: Array) -> None:
    check.floating(name, input=input)
    check.tensor(name, target=target)
    if input.shape != target.shape:
        raise SporaxValueError(
            f"For '{name}', 'input' and 'target' must have one shape, but got {input.shape} and {target.shape}."
        )


# ------------------------------------------------------------------------------------------------------ probabilities


def _binary_cross_entropy(input: Array, target: Array, weight: Array | None, reduction: str) -> Array:
    _pair("BinaryCrossEntropy", input, target)
    tiny = 1e-12  # logarithms stay finite at 0 and 1, as MindSpore's do
    loss = -(target * jnp.log(jnp.maximum(input, tiny)) + (1 - target) * jnp.log(jnp.maximum(1 - input, tiny)))
    return _reduced(loss if weight is None else loss * weight, reduction)


@operator("BinaryCrossEntropy(reduction)", function="", mint="nn.functional.binary_cross_entropy")
def _binary_cross_entropy_primitive(
    input: Array, target: Array, weight: Array | None = None, reduction: Reduction = "mean"
) -> Array:
    """Cross entropy of the probabilities `input` with the probabilities `target`, each element times `weight`."""
    return _binary_cross_entropy(input, target, weight, reduction)


@operator(function="binary_cross_entropy")
def binary_cross_entropy(
    logits: Array, labels: Array, weight: Array | None = None, reduction: Reduction = "mean"
) -> Array:
    """Cross entropy of the probabilities `logits` (despite the name) with `labels`, each element times `weight`."""
    return _binary_cross_entropy(logits, labels, weight, reduction)


@operator("BCEWithLogitsLoss(reduction)", function="")
def _bce_with_logits(
    input: Array,
    target: Array,
    weight: Array | None = None,
    posWeight: Array | None = None,  # noqa: N803 - MindSpore's name
    reduction: Reduction = "mean",
) -> Array:
    """Cross entropy of sigmoid(`input`) with `target`; `posWeight` counts for the positive part, `weight` for all."""
    check.floating("BCEWithLogitsLoss", input=input, target=target)
    check.broadcast("BCEWithLogitsLoss", input, target)
    positive = jax.nn.log_sigmoid(input) * (1 if posWeight is None else posWeight)
    loss = -(target * positive + (1 - target) * jax.nn.log_sigmoid(-input))
    return _reduced(loss if weight is None else loss * weight, reduction)


@operator("SigmoidCrossEntropyWithLogits", function="")
def _sigmoid_cross_entropy(logits: Array, label: Array) -> Array:
    """Cross entropy of sigmoid(`logits`) with the probabilities `label`, element by element, without overflow."""
    _pair("SigmoidCrossEntropyWithLogits", logits, label)
    return jax.nn.softplus(logits) - logits * label


def _kl_div(logits: Array, labels: Array, reduction: str) -> Array:
    check.floating("KLDivLoss", logits=logits, labels=labels)
    _pair("KLDivLoss", logits, labels)
    loss = jnp.where(labels > 0, xlogy(labels, jnp.where(labels > 0, labels, 1)) - labels * logits, 0)
    if reduction == "batchmean":
        return jnp.sum(loss) / logits.shape[0]
    return _reduced(loss, reduction)


@operator("KLDivLoss(reduction)", function="kl_div")
def kl_div(logits: Array, labels: Array, reduction: Literal["none", "mean", "batchmean", "sum"] = "mean") -> Array:
    """Divergence (Kullback & Leibler 1951) of the distribution `labels` from the one whose logarithm is `logits`."""
    return _kl_div(logits, labels, reduction)


@operator(function="", mint="nn.functional.kl_div")
def _mint_kl_div(
    input: Array,
    target: Array,
    reduction: Literal["none", "mean", "batchmean", "sum"] = "mean",
    log_target: bool = False,
) -> Array:
    """As `ops.kl_div`; with `log_target` the target is given as logarithms too."""
    return _kl_div(input, jnp.exp(target) if log_target else target, reduction)


@operator("NLLLoss(reduction, ignore_index)", function="")
def _nll_loss(
    logits: Array, labels: Array, weight: Array, reduction: Reduction = "mean", ignore_index: int = -100
) -> tuple[Array, Array]:
    """Negative of the log-probabilities `logits` (n, classes) at `labels` (n,), and the sum of the weights that count."""
    check.floating("NLLLoss", logits=logits, weight=weight)
    check.integral("NLLLoss", labels=labels)
    check.rank("NLLLoss", (1, 2), logits=logits)
    kept = labels != ignore_index
    index = jnp.where(kept, labels, 0)
    share = jnp.where(kept, weight[index], 0)
    loss = -jnp.take_along_axis(logits, index[..., None], -1)[..., 0] * share
    total = jnp.sum(share)
    return _reduced(loss, reduction, total), total


@operator(function="gaussian_nll_loss")
def gaussian_nll_loss(
    x: Array, target: Array, var: Array, full: bool = False, eps: float = 1e-06, reduction: Reduction = "mean"
) -> Array:
    """Negative logarithm of the normal density at `target` with mean `x` and variance `var` (at least `eps`).

    `full` adds the constant part. The gradient does not see that the variance is limited.
    """
    check.floating("gaussian_nll_loss", x=x, target=target, var=var)
    limited = var + jax.lax.stop_gradient(jnp.maximum(eps - var, 0))
    loss = (jnp.log(limited) + jnp.square(target - x) / limited) / 2
    return _reduced(loss + math.log(2 * math.pi) / 2 if full else loss, reduction)


# ----------------------------------------------------------------------------------------------------------- distances


def _smooth_l1(name: str, input: Array, target: Array, beta: float, reduction: str) -> Array:
    _pair(name, input, target)
    if beta <= 0:
        raise SporaxValueError(f"For '{name}', 'beta' must be positive, but got {beta}.")
    gap = jnp.abs(input - target)
    return _reduced(jnp.where(gap < beta, jnp.square(gap) / (2 * beta), gap - beta / 2), reduction)


@operator("SmoothL1Loss(beta, reduction)", function="")
def _smooth_l1_primitive(prediction: Array, target: Array, beta: float = 1.0, reduction: Reduction = "none") -> Array:
    """Squared difference over 2·`beta` where it is below `beta`, absolute difference less `beta` / 2 elsewhere."""
    return _smooth_l1("SmoothL1Loss", prediction, target, beta, reduction)


@operator(function="smooth_l1_loss", mint="")
def smooth_l1_loss(input: Array, target: Array, beta: float = 1.0, reduction: Reduction = "none") -> Array:
    """Squared difference over 2·`beta` where it is below `beta`, absolute difference less `beta` / 2 elsewhere."""
    return _smooth_l1("smooth_l1_loss", input, target, beta, reduction)


@operator(function="", mint="nn.functional.smooth_l1_loss")
def _mint_smooth_l1_loss(input: Array, target: Array, reduction: Reduction = "mean", beta: float = 1.0) -> Array:
    """As `ops.smooth_l1_loss`, with the mean as default."""
    return _smooth_l1("smooth_l1_loss", input, target, beta, reduction)


@operator(function="huber_loss")
def huber_loss(input: Array, target: Array, reduction: Reduction = "mean", delta: float = 1.0) -> Array:
    """Half the squared difference where it is below `delta`, ``delta * (|difference| - delta / 2)`` elsewhere."""
    check.floating("huber_loss", input=input, target=target)
    check.broadcast("huber_loss", input, target)
    if delta <= 0:
        raise SporaxValueError(f"For 'huber_loss', 'delta' must be positive, but got {delta}.")
    gap = jnp.abs(input - target)
    return _reduced(jnp.where(gap < delta, jnp.square(gap) / 2, delta * (gap - delta / 2)), reduction)


# ------------------------------------------------------------------------------------------------------------- margins


@operator(function="margin_ranking_loss")
def margin_ranking_loss(
    input1: Array, input2: Array, target: Array, margin: float = 0.0, reduction: Reduction = "mean"
) -> Array:
    """``max(0, -target * (input1 - input2) + margin)``; a target of 1 wants the first larger, -1 the second."""
    check.floating("margin_ranking_loss", input1=input1, input2=input2)
    check.broadcast("margin_ranking_loss", input1, input2)
    return _reduced(jnp.maximum(-target * (input1 - input2) + margin, 0), reduction)


@operator(function="cosine_embedding_loss", mint="nn.functional.cosine_embedding_loss")
def cosine_embedding_loss(
    input1: Array, input2: Array, target: Array, margin: float = 0.0, reduction: Reduction = "mean"
) -> Array:
    """1 - cos where the target is 1, ``max(0, cos - margin)`` where it is -1; cos of vectors in the last dim."""
    check.floating("cosine_embedding_loss", input1=input1, input2=input2)
    if not -1 <= margin <= 1:
        raise SporaxValueError(f"For 'cosine_embedding_loss', 'margin' must be in [-1, 1], but got {margin}.")
    cosine = cosine_similarity.kernel(input1, input2, max(input1.ndim, input2.ndim) - 1)
    zero = jnp.zeros((), cosine.dtype)
    loss = jnp.where(target == 1, 1 - cosine, jnp.where(target == -1, jnp.maximum(cosine - margin, 0), zero))
    return _reduced(loss, reduction)


@operator(function="hinge_embedding_loss")
def hinge_embedding_loss(inputs: Array, targets: Array, margin: float = 1.0, reduction: Reduction = "mean") -> Array:
    """The input where the target is 1, ``max(0, margin - input)`` where it is -1."""
    check.floating("hinge_embedding_loss", inputs=inputs)
    zero = jnp.zeros((), inputs.dtype)
    loss = jnp.where(targets == 1, inputs, jnp.where(targets == -1, jnp.maximum(margin - inputs, 0), zero))
    return _reduced(loss, reduction)


def _triplet(anchor: Array, positive: Array, negative: Array, margin: Any, p: float, eps: float, swap: bool) -> Array:
    check.floating("TripletMarginLoss", anchor=anchor, positive=positive, negative=negative)
    near = length(anchor - positive + eps, p, -1)
    far = length(anchor - negative + eps, p, -1)
    if swap:
        far = jnp.minimum(far, length(positive - negative + eps, p, -1))
    return jnp.maximum(near - far + margin, 0)


@operator("TripletMarginLoss(p, swap, eps, reduction)", function="")
def _triplet_margin_primitive(
    x: Array,
    positive: Array,
    negative: Array,
    margin: Operand,
    p: int = 2,
    swap: bool = False,
    eps: float = 1e-6,
    reduction: Reduction = "mean",
) -> Array:
    """``max(0, |x - positive| - |x - negative| + margin)`` with the p-norm over the last dim."""
    return _reduced(_triplet(x, positive, negative, margin, p, eps, swap), reduction)


@operator(function="triplet_margin_loss")
def triplet_margin_loss(
    anchor: Array,
    positive: Array,
    negative: Array,
    margin: float = 1.0,
    p: int = 2,
    eps: float = 1e-06,
    swap: bool = False,
    reduction: Reduction = "mean",
) -> Array:
    """``max(0, |anchor - positive| - |anchor - negative| + margin)`` with the p-norm over the last dim.

    With `swap` the distance of positive and negative counts, where it is smaller (Balntas et al. 2016).
    """
    return _reduced(_triplet(anchor, positive, negative, margin, p, eps, swap), reduction)


def _multi_margin(x: Array, target: Array, weight: Array | None, p: int, margin: float, reduction: str) -> Array:
    check.floating("MultiMarginLoss", input=x)
    check.integral("MultiMarginLoss", target=target)
    check.one_of("MultiMarginLoss", p, (1, 2), "p")
    own = jnp.take_along_axis(x, target[..., None], -1)
    gaps = jnp.maximum(margin - own + x, 0) ** p
    if weight is not None:
        gaps = gaps * weight[target][..., None]
    is_own = jnp.arange(x.shape[-1]) == target[..., None]
    return _reduced(jnp.sum(jnp.where(is_own, 0, gaps), -1) / x.shape[-1], reduction)


@operator("MultiMarginLoss(p, margin, reduction)", function="")
def _multi_margin_primitive(
    x: Array,
    target: Array,
    weight: Array | None = None,
    p: int = 1,
    margin: float = 1.0,
    reduction: Reduction = "mean",
) -> Array:
    """Mean over the other classes of ``max(0, margin - x[target] + x[i]) ** p``, weighted by the true class."""
    return _multi_margin(x, target, weight, p, margin, reduction)


@operator(function="multi_margin_loss")
def multi_margin_loss(
    input: Array,
    target: Array,
    p: int = 1,
    margin: float = 1,
    weight: Array | None = None,
    reduction: Reduction = "mean",
) -> Array:
    """Mean over the other classes of ``max(0, margin - x[target] + x[i]) ** p``, weighted by the true class."""
    return _multi_margin(input, target, weight, p, margin, reduction)


def _multilabel_margin(x: Array, target: Array) -> tuple[Array, Array]:
    _pair("MultilabelMarginLoss", x, target)
    check.integral("MultilabelMarginLoss", target=target)
    classes = x.shape[-1]
    listed = jnp.cumsum(target < 0, -1) == 0  # the true classes end at the first negative number
    index = jnp.where(listed, target, classes)
    is_target = jnp.any(index[..., :, None] == jnp.arange(classes), -2)
    own = jnp.take_along_axis(x, jnp.where(listed, target, 0), -1)
    gaps = jnp.maximum(1 - (own[..., :, None] - x[..., None, :]), 0)
    counts = listed[..., :, None] & ~is_target[..., None, :]
    return jnp.sum(jnp.where(counts, gaps, 0), (-2, -1)) / classes, is_target.astype(target.dtype)


@operator("MultilabelMarginLoss(reduction)", function="")
def _multilabel_margin_primitive(x: Array, target: Array, reduction: Reduction = "mean") -> tuple[Array, Array]:
    """As `ops.multilabel_margin_loss`; also says which classes are true."""
    loss, is_target = _multilabel_margin(x, target)
    return _reduced(loss, reduction), is_target


@operator(function="multilabel_margin_loss")
def multilabel_margin_loss(input: Array, target: Array, reduction: Reduction = "mean") -> Array:
    """Sum over true classes i and others j of ``max(0, 1 - (x[i] - x[j]))``, divided by the number of classes.

    `target` lists the true classes in each row, up to the first negative number.
    """
    return _reduced(_multilabel_margin(input, target)[0], reduction)


@operator(function="multilabel_soft_margin_loss")
def multilabel_soft_margin_loss(
    input: Array, target: Array, weight: Array | None = None, reduction: Reduction = "mean"
) -> Array:
    """Mean over the classes (last dim) of the cross entropy of sigmoid(`input`) with `target`, times `weight`."""
    _pair("multilabel_soft_margin_loss", input, target)
    loss = -(target * jax.nn.log_sigmoid(input) + (1 - target) * jax.nn.log_sigmoid(-input))
    return _reduced(jnp.mean(loss if weight is None else loss * weight, -1), reduction)


@operator("SoftMarginLoss(reduction)", function="soft_margin_loss", mint="nn.functional.soft_margin_loss")
def soft_margin_loss(input: Array, target: Array, reduction: Reduction = "mean") -> Array:
    """``log(1 + exp(-target * input))`` for targets 1 and -1."""
    _pair("SoftMarginLoss", input, target)
    return _reduced(jnp.logaddexp(-target * input, jnp.zeros((), input.dtype)), reduction)


# ------------------------------------------------------------------------------------------------------------ sequences


def _ctc_alphas(log_probs: Array, targets: Array, lengths: Array, blank: int) -> Array:
    """Logarithms of the forward variables (n, time, 2·labels + 1), after Graves et al. 2006."""
    n, num_labels = targets.shape
    extended = jnp.full((n, 2 * num_labels + 1), blank, targets.dtype).at[:, 1::2].set(targets)
    before = jnp.pad(extended, ((0, 0), (2, 0)), constant_values=blank)[:, :-2]
    may_skip = (extended != blank) & (extended != before)
    none = jnp.asarray(-jnp.inf, log_probs.dtype)

    def shifted(alpha: Array, by: int) -> Array:
        return jnp.pad(alpha, ((0, 0), (by, 0)), constant_values=-jnp.inf)[:, : alpha.shape[1]]

    def step(alpha: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        time, emitted = row
        ways = jnp.stack([alpha, shifted(alpha, 1), jnp.where(may_skip, shifted(alpha, 2), none)])
        best = jax.lax.stop_gradient(jnp.max(ways, 0))  # the sum does not depend on it
        safe = jnp.where(jnp.isfinite(best), best, 0)
        total = jnp.sum(jnp.exp(ways - safe), 0)
        joined = jnp.where(total > 0, jnp.log(jnp.where(total > 0, total, 1)) + safe, none)
        following = jnp.where((time < lengths)[:, None], joined + emitted, alpha)
        return following, following

    emissions = jnp.take_along_axis(log_probs, jnp.broadcast_to(extended, (log_probs.shape[0], *extended.shape)), 2)
    start = jnp.where(jnp.arange(extended.shape[1]) < 2, emissions[0], none)
    _, later = jax.lax.scan(step, start, (jnp.arange(1, log_probs.shape[0]), emissions[1:]))
    return jnp.concatenate([start[None], later]).swapaxes(0, 1)


@operator(function="ctc_loss")
def ctc_loss(
    log_probs: Array,
    targets: Array,
    input_lengths: Array,
    target_lengths: Array,
    blank: int = 0,
    reduction: Reduction = "mean",
    zero_infinity: bool = False,
) -> tuple[Array, Array]:
    """Negative log-probability of label sequences under all alignments (connectionist temporal classification).

    Args:
        log_probs: (time, n, classes), logarithms of probabilities.
        targets: (n, labels), integers other than `blank`.
        input_lengths: (n,), how many of the time steps count.
        target_lengths: (n,), how many of the labels count.
        blank: number of the blank class.
        reduction: ``"mean"`` divides each loss by its number of labels first.
        zero_infinity: losses of sequences that cannot be aligned count as 0, with their gradients.

    Returns:
        The loss, and the logarithms of the forward variables (n, time, 2·labels + 1).
    """
    check.floating("ctc_loss", log_probs=log_probs)
    check.rank("ctc_loss", 3, log_probs=log_probs)
    check.rank("ctc_loss", 2, targets=targets)
    check.integral("ctc_loss", targets=targets, input_lengths=input_lengths, target_lengths=target_lengths)
    alphas = _ctc_alphas(log_probs, targets, input_lengths, blank)
    last = alphas[:, -1]
    ends = jnp.stack([2 * target_lengths, jnp.maximum(2 * target_lengths - 1, 0)], 1)
    final = jnp.take_along_axis(last, ends, 1)
    final = jnp.where(jnp.arange(2) < jnp.minimum(target_lengths, 1)[:, None] + 1, final, -jnp.inf)
    possible = jnp.any(jnp.isfinite(final), 1)
    total = jax.nn.logsumexp(jnp.where(possible[:, None], final, 0), 1)  # so that no gradient meets an infinity
    loss = jnp.where(possible, -total, 0 if zero_infinity else jnp.inf)
    if reduction == "mean":
        loss = loss / jnp.maximum(target_lengths, 1)
    return _reduced(loss, reduction), alphas
