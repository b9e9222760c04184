"""Losses of probabilities: cross-entropies, likelihoods, divergences, connectionist temporal classification (Graves et al. 2006).

Losses of scores work on logarithms throughout (log-softmax, log-sigmoid), since a probability may underflow to 0, whose
logarithm is infinite.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
import jax.scipy
import numpy as np

from sporax.base.errors import For, SporaxNotImplementedError, SporaxValueError
from sporax.mindspore.common.tensor import Tensor, wrap_numpy
from sporax.mindspore.ops._core import LAST, Array, check, known, labels, operator, other_form, promote
from sporax.mindspore.ops.nn.distance_loss import Reduction, check_broadcast_pair, check_equal_shapes, reduced


@operator(function="cross_entropy", mint="nn.functional.cross_entropy", dims=labels)
def cross_entropy(
    input: check.Float,
    target: Array,
    weight: Array | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Array:
    """Negative log-likelihood of the classes in `target` under softmax(`input`).

    Args:
        input: logits (N, C), (C,) or (N, C, d1, …).
        target: class indices, the shape of `input` without C; or probabilities, the shape of `input`.
        weight: (C,), weight of each class; the mean divides by the weights of the targets.
        ignore_index: targets with this index count for nothing.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        label_smoothing: share of the target spread over all classes, in [0, 1].
    """
    name = "cross_entropy"
    For(name).refuse(not input.ndim, "'input' must have a dimension of classes, but its shape is ()")
    For(name).refuse(not 0.0 <= label_smoothing <= 1.0, "'label_smoothing' must be in [0, 1]", label_smoothing)
    channel = 0 if input.ndim == 1 else 1
    _check_weight(name, weight, input.shape[channel])
    # The logarithm of the softmax in one step does not overflow.
    log_probs = jax.nn.log_softmax(input, channel)
    # Floating targets of the input's shape are probabilities.
    if target.shape == input.shape and jnp.issubdtype(target.dtype, jnp.floating):
        return _soft_cross_entropy(log_probs, target, weight, channel, reduction, label_smoothing)
    expected = input.shape[:channel] + input.shape[channel + 1 :]
    if target.shape != expected:
        raise For(name).error(
            f"'target' must have shape {expected} (class indices) or {input.shape} (probabilities)", target.shape
        )
    if not jnp.issubdtype(target.dtype, jnp.integer):
        raise For(name).type_error("class indices in 'target' must be integers", check.describe(target))
    return _hard_cross_entropy(log_probs, target, weight, channel, ignore_index, reduction, label_smoothing)


def _check_weight(name: str, weight: Array | None, num_classes: int) -> None:
    if weight is not None and weight.shape != (num_classes,):
        raise For(name).error(f"'weight' must have one element for each of the {num_classes} classes", weight.shape)


def _hard_cross_entropy(
    log_probs: Array, target: Array, weight: Array | None, channel: int, ignore: int, reduction: str, smoothing: float
) -> Array:
    num_classes = log_probs.shape[channel]
    counted = target != ignore
    # 0 as any valid class; its share is masked.
    index = jnp.where(counted, target, 0)
    picked = jnp.squeeze(jnp.take_along_axis(log_probs, jnp.expand_dims(index, channel), channel), channel)
    class_weight = jnp.ones((num_classes,), log_probs.dtype) if weight is None else weight
    # Ignored targets weigh nothing, so the mean does not count them either.
    sample_weight = jnp.where(counted, class_weight[index], 0)
    loss = -picked * sample_weight
    if smoothing:
        spread = [-1 if dim == channel else 1 for dim in range(log_probs.ndim)]
        smooth = jnp.where(counted, -jnp.sum(log_probs * class_weight.reshape(spread), channel), 0)
        loss = (1 - smoothing) * loss + smoothing / num_classes * smooth
    return reduced(loss, reduction, jnp.sum(sample_weight))


def _soft_cross_entropy(
    log_probs: Array, target: Array, weight: Array | None, channel: int, reduction: str, smoothing: float
) -> Array:
    if smoothing:
        target = target * (1 - smoothing) + smoothing / log_probs.shape[channel]
    # The weights count per class and not per sample here, so the mean divides by the number.
    weighted = log_probs * target
    if weight is not None:
        weighted = weighted * weight.reshape([-1 if dim == channel else 1 for dim in range(log_probs.ndim)])
    loss = -jnp.sum(weighted, channel)
    return reduced(loss, reduction)


@operator("SoftmaxCrossEntropyWithLogits", function="", dims=LAST)
def _softmax_cross_entropy_with_logits(logits: Array, labels: Array) -> tuple[Array, Array]:
    """Loss per sample (N,), and ``softmax(logits) - labels`` (N, C). `labels` are probabilities, (N, C) as `logits`.

    The second result is, by definition, the gradient of the first, also where labels do not add up to 1; labels get
    no gradient.

    Raises:
        SporaxTypeError: the dtypes differ.
        SporaxValueError: the shapes differ, or are not two-dimensional.
    """
    name = "SoftmaxCrossEntropyWithLogits"
    check.same_dtype(name, logits=logits, labels=labels)
    check.floating(name, logits=logits, labels=labels)
    check.rank(name, 2, logits=logits, labels=labels)
    if logits.shape != labels.shape:
        raise For(name).error(f"'logits' and 'labels' must have one shape, but got {logits.shape} and {labels.shape}")
    # MindSpore's operator has no gradient for labels.
    labels = jax.lax.stop_gradient(labels)
    log_probs = jax.nn.log_softmax(logits, -1)
    loss = -jnp.sum(log_probs * labels, -1)
    # This has the gradient that is requested; it differs from the loss only where labels do not add up to 1.
    slope = jax.nn.logsumexp(logits, -1) - jnp.sum(logits * labels, -1)
    return slope + jax.lax.stop_gradient(loss - slope), jnp.exp(log_probs) - labels


@operator("SparseSoftmaxCrossEntropyWithLogits", function="", dims=labels)
def _sparse_softmax_cross_entropy_with_logits(logits: check.Float2, labels: check.Int, is_grad: bool = False) -> Array:
    """Mean loss over the samples for class indices `labels` (N,); with `is_grad` its gradient, (N, C) as `logits`.

    Raises:
        SporaxTypeError: `logits` are not floats, or `labels` not integers.
        SporaxValueError: not one label per sample.
    """
    name = "SparseSoftmaxCrossEntropyWithLogits"
    if labels.shape != logits.shape[:1]:
        raise For(name).error(f"'labels' must have shape {logits.shape[:1]}, one for each sample", labels.shape)
    log_probs = jax.nn.log_softmax(logits, -1)
    if is_grad:
        # Divided by the batch, as the loss is a mean.
        return (jnp.exp(log_probs) - jax.nn.one_hot(labels, logits.shape[-1], dtype=logits.dtype)) / logits.shape[0]
    return -jnp.mean(jnp.take_along_axis(log_probs, labels[:, None], -1))


@operator(function="nll_loss", mint="nn.functional.nll_loss(input=inputs)", dims=labels)
def nll_loss(
    inputs: check.Number,
    target: check.Int,
    weight: Array | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Array:
    """Negative of the log-probabilities `inputs` at the classes `target`. Shapes and arguments as `cross_entropy`."""
    check.rank("nll_loss", range(1, 9), inputs=inputs)
    channel = 0 if inputs.ndim == 1 else 1
    expected = inputs.shape[:channel] + inputs.shape[channel + 1 :]
    For("nll_loss").refuse(target.shape != expected, f"'target' must have shape {expected}", target.shape)
    _check_weight("nll_loss", weight, inputs.shape[channel])
    scores = promote.inexact(inputs)
    return _hard_cross_entropy(scores, target, weight, channel, ignore_index, reduction, label_smoothing)


@operator(function="binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(
    input: Array,
    target: Array,
    weight: Array | None = None,
    pos_weight: Array | None = None,
    reduction: Reduction = "mean",
) -> Array:
    """Cross entropy of sigmoid(`input`) with the probabilities `target`, computed without overflow.

    Args:
        input: logits.
        target: probabilities; everything is broadcast.
        weight: of each element.
        pos_weight: of the positive part of each element.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
    """
    check_broadcast_pair("binary_cross_entropy_with_logits", input, target)
    positive = jax.nn.log_sigmoid(input) * (1 if pos_weight is None else pos_weight)
    # log(1 - sigmoid(x)) is log-sigmoid(-x), which does not lose small numbers.
    loss = -(target * positive + (1 - target) * jax.nn.log_sigmoid(-input))
    return reduced(loss if weight is None else loss * weight, reduction)


other_form(
    binary_cross_entropy_with_logits,
    mint="nn.functional.binary_cross_entropy_with_logits",
    parameters="input target weight reduction pos_weight",
)


_TINY = 1e-12
"""What MindSpore puts in place of smaller probabilities, so that logarithms and slopes stay finite at 0 and 1."""


@jax.custom_jvp
def _bernoulli_loss(p: Array, target: Array) -> Array:
    """Cross entropy of the probabilities `p` with the probabilities `target`, element by element."""
    return -(target * jnp.log(jnp.maximum(p, _TINY)) + (1 - target) * jnp.log(jnp.maximum(1 - p, _TINY)))


_bernoulli_loss.defjvps(
    lambda change, loss, p, target: (
        change * (p - target) / jnp.maximum(p * (1 - p), max(_TINY, float(jnp.finfo(p.dtype).tiny)))
    ),
    lambda change, loss, p, target: change * jnp.log(jnp.maximum(1 - p, _TINY) / jnp.maximum(p, _TINY)),
)


@operator("BinaryCrossEntropy(reduction)", function="", mint="nn.functional.binary_cross_entropy")
def _binary_cross_entropy_primitive(
    input: Array, target: Array, weight: Array | None = None, reduction: Reduction = "mean"
) -> Array:
    """Cross entropy of the probabilities `input` with the probabilities `target`, each element times `weight`."""
    check_equal_shapes("BinaryCrossEntropy", input, target)
    loss = _bernoulli_loss(input, target)
    return reduced(loss if weight is None else loss * weight, reduction)


# Probabilities, despite the name of the first parameter.
binary_cross_entropy = other_form(
    _binary_cross_entropy_primitive,
    None,
    "logits=input labels=target weight reduction",
    function="binary_cross_entropy",
)


@operator("BCEWithLogitsLoss(reduction)", function="")
def _bce_with_logits(
    input: check.Float,
    target: check.Float,
    weight: Array | None = None,
    posWeight: Array | None = None,  # noqa: N803 - MindSpore's name
    reduction: Reduction = "mean",
) -> Array:
    """Cross entropy of sigmoid(`input`) with `target`; `posWeight` counts for the positive part, `weight` for all."""
    check.broadcast("BCEWithLogitsLoss", input, target)
    # As above; the class form has the weights in another order.
    positive = jax.nn.log_sigmoid(input) * (1 if posWeight is None else posWeight)
    loss = -(target * positive + (1 - target) * jax.nn.log_sigmoid(-input))
    return reduced(loss if weight is None else loss * weight, reduction)


@operator("SigmoidCrossEntropyWithLogits", function="")
def _sigmoid_cross_entropy(logits: Array, label: Array) -> Array:
    """Cross entropy of sigmoid(`logits`) with the probabilities `label`, element by element, without overflow."""
    check_equal_shapes("SigmoidCrossEntropyWithLogits", logits, label)
    # log(1 + e^x) - x · label, the same without overflow.
    return jax.nn.softplus(logits) - logits * label


def _kl_div(logits: Array, labels: Array, reduction: str) -> Array:
    check.floating("KLDivLoss", logits=logits, labels=labels)
    check_equal_shapes("KLDivLoss", logits, labels)
    # 0 · log 0 is 0, and the inner `where` keeps the gradient finite.
    loss = jnp.where(labels > 0, jax.scipy.special.xlogy(labels, jnp.where(labels > 0, labels, 1)) - labels * logits, 0)
    if reduction == "batchmean":
        # By the samples and not by the elements: this is the divergence's definition.
        return jnp.sum(loss) / logits.shape[0]
    return reduced(loss, reduction)


@operator("KLDivLoss(reduction)", function="kl_div")
def kl_div(logits: Array, labels: Array, reduction: Literal["none", "mean", "batchmean", "sum"] = "mean") -> Array:
    """Divergence (Kullback & Leibler 1951) of the distribution `labels` from the one whose logarithm is `logits`.

    As in MindSpore, `labels` has no gradient.
    """
    return _kl_div(logits, jax.lax.stop_gradient(labels), reduction)


@operator(function="", mint="nn.functional.kl_div")
def _mint_kl_div(
    input: Array,
    target: Array,
    reduction: Literal["none", "mean", "batchmean", "sum"] = "mean",
    log_target: bool = False,
) -> Array:
    """As `ops.kl_div`; with `log_target` the target is given as logarithms too."""
    return _kl_div(input, jnp.exp(target) if log_target else target, reduction)


@operator("NLLLoss(reduction, ignore_index)", function="", dims=labels)
def _nll_loss(
    logits: check.Float, labels: check.Int, weight: check.Float, reduction: Reduction = "mean", ignore_index: int = -100
) -> tuple[Array, Array]:
    """Negative of the log-probabilities `logits` (n, classes) at `labels` (n,), and the sum of the weights that count."""
    check.rank("NLLLoss", (1, 2), logits=logits)
    counted = labels != ignore_index
    # 0 as any valid class; its share is masked.
    index = jnp.where(counted, labels, 0)
    share = jnp.where(counted, weight[index], 0)
    loss = -jnp.take_along_axis(logits, index[..., None], -1)[..., 0] * share
    total = jnp.sum(share)
    return reduced(loss, reduction, total), total


@operator(function="gaussian_nll_loss")
def gaussian_nll_loss(
    x: check.Number,
    target: check.Number,
    var: check.Number,
    full: bool = False,
    eps: float = 1e-06,
    reduction: Reduction = "mean",
) -> Array:
    """Negative logarithm of the normal density at `target` with mean `x` and variance `var` (at least `eps`).

    `full` adds the constant part. The gradient does not see that the variance is limited.
    """
    x, target, var = (promote.inexact(array) for array in (x, target, var))
    # Added without gradient, as MindSpore limits the variance outside of the derivative.
    limited = var + jax.lax.stop_gradient(jnp.maximum(eps - var, 0))
    loss = (jnp.log(limited) + jnp.square(target - x) / limited) / 2
    return reduced(loss + math.log(2 * math.pi) / 2 if full else loss, reduction)


@operator("CTCLoss(preprocess_collapse_repeated, ctc_merge_repeated, ignore_longer_outputs_than_inputs)", function="")
def _ctc_loss(
    x: check.Float3,
    labels_indices: check.Int,
    labels_values: check.Int,
    sequence_length: check.Int,
    preprocess_collapse_repeated: bool = False,
    ctc_merge_repeated: bool = True,
    ignore_longer_outputs_than_inputs: bool = False,
) -> tuple[Array, Array]:
    """Connectionist temporal classification of logits, with labels as a sparse matrix; the last class is the blank.

    Args:
        x: (time, n, classes), logits: their softmax is taken here.
        labels_indices: (labels, 2), row (sample) and column of each label.
        labels_values: (labels,), int32; those from the blank on do not count.
        sequence_length: (n,), how many of the time steps count, int32.
        preprocess_collapse_repeated: True is not offered.
        ctc_merge_repeated: False is not offered.
        ignore_longer_outputs_than_inputs: samples with more labels than time steps cost 0; otherwise they cost infinity.

    Returns:
        The loss of each sample (n,) and its gradient with respect to `x`.
    """
    name = "CTCLoss"
    if preprocess_collapse_repeated or not ctc_merge_repeated:
        raise SporaxNotImplementedError(
            "For 'CTCLoss', only 'preprocess_collapse_repeated' False and 'ctc_merge_repeated' True are offered, but got "
            f"{preprocess_collapse_repeated} and {ctc_merge_repeated}."
        )
    if labels_indices.shape != (*labels_values.shape, 2) or sequence_length.shape != x.shape[1:2]:
        raise SporaxValueError(
            f"For '{name}', 'labels_indices' must be (labels, 2), 'labels_values' (labels,) and 'sequence_length' (n,), but "
            f"got {labels_indices.shape}, {labels_values.shape} and {sequence_length.shape} for 'x' of shape {x.shape}."
        )
    rows, columns, blank = labels_indices[:, 0], labels_indices[:, 1], x.shape[2] - 1
    # The sparse labels as rows, which end where there is no label, or the blank, with which programs pad.
    targets = jnp.full((x.shape[1], labels_values.shape[0]), blank, labels_values.dtype)
    targets = targets.at[rows, columns].set(labels_values)
    counts = jnp.cumprod(targets < blank, 1, jnp.int32).sum(1)

    def losses(logits: Array) -> Array:
        log_probs = jax.nn.log_softmax(logits, -1)
        # The last class is the blank here, not the first.
        settings = (blank, "none", ignore_longer_outputs_than_inputs)
        return ctc_loss.kernel(log_probs, targets, sequence_length, counts, *settings)[0]

    # MindSpore's operator gives the gradient as a result.
    loss, pullback = jax.vjp(losses, x)
    # It is a value of its own and no path for a second derivative.
    return loss, jax.lax.stop_gradient(pullback(jnp.ones_like(loss))[0])


def _decoded(inputs: Any, sequence_length: Any, merge_repeated: bool) -> tuple[Tensor, ...]:
    # Labels are as many as the values say, so this runs on the host.
    logits = known("CTCGreedyDecoder", "inputs", inputs)
    lengths = known("CTCGreedyDecoder", "sequence_length", sequence_length)
    if logits.ndim != 3 or lengths.shape != logits.shape[1:2] or not np.issubdtype(lengths.dtype, np.integer):
        raise SporaxValueError(
            "For 'CTCGreedyDecoder', 'inputs' must be (time, n, classes) and 'sequence_length' n integers, but got shapes "
            f"{logits.shape} and {lengths.shape}."
        )
    time, n, classes = logits.shape
    best = logits.argmax(2)
    # -1 in front: the first step has no step before it.
    before = np.vstack([np.full((1, n), -1), best[:-1]])
    remaining = (best != classes - 1) & (np.arange(time)[:, None] < lengths)
    if merge_repeated:
        remaining &= best != before
    rows, times = np.nonzero(remaining.T)
    columns = np.arange(len(rows)) - np.searchsorted(rows, rows)
    longest = int(remaining.sum(0).max(initial=0))
    counted = np.where(np.arange(time)[:, None] < lengths, logits.max(2), 0)
    return (
        wrap_numpy(np.stack([rows, columns], 1).astype(np.int64)),
        wrap_numpy(best.T[rows, times].astype(np.int64)),
        wrap_numpy(np.array([n, longest], np.int64)),
        wrap_numpy(-counted.sum(0, keepdims=True).T.astype(logits.dtype)),
    )


@operator("CTCGreedyDecoder(merge_repeated)", composed=True)
def ctc_greedy_decoder(inputs: Array, sequence_length: Array, merge_repeated: bool = True) -> tuple[Array, ...]:
    """The most probable class at every time step, without blanks (the last class).

    Args:
        inputs: (time, n, classes), logits.
        sequence_length: (n,), how many of the time steps count, int32.
        merge_repeated: of equal classes in a row only the first stays.

    Returns:
        Sample and position of each label (labels, 2), the labels (labels,), the shape (n, longest) and the negative sum of
        the greatest logits (n, 1).
    """
    result: Any = _decoded(inputs, sequence_length, merge_repeated)
    return result


def _ctc_alphas(log_probs: Array, targets: Array, lengths: Array, blank: int) -> Array:
    """Logarithms of the forward variables (n, time, 2·labels + 1), after Graves et al. 2006."""
    n, num_labels = targets.shape
    extended = jnp.full((n, 2 * num_labels + 1), blank, targets.dtype).at[:, 1::2].set(targets)
    before = jnp.pad(extended, ((0, 0), (2, 0)), constant_values=blank)[:, :-2]
    # Equal labels in a row need the blank between them.
    may_skip = (extended != blank) & (extended != before)
    none = jnp.asarray(-jnp.inf, log_probs.dtype)

    def shifted(alpha: Array, by: int) -> Array:
        return jnp.pad(alpha, ((0, 0), (by, 0)), constant_values=-jnp.inf)[:, : alpha.shape[1]]

    def step(alpha: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        time, emitted = row
        ways = jnp.stack([alpha, shifted(alpha, 1), jnp.where(may_skip, shifted(alpha, 2), none)])
        best = jax.lax.stop_gradient(jnp.max(ways, 0))  # the sum does not depend on it
        # -inf minus -inf would be NaN.
        safe = jnp.where(jnp.isfinite(best), best, 0)
        total = jnp.sum(jnp.exp(ways - safe), 0)
        # The inner `where` keeps the logarithm finite, also in its gradient.
        joined = jnp.where(total > 0, jnp.log(jnp.where(total > 0, total, 1)) + safe, none)
        following = jnp.where((time < lengths)[:, None], joined + emitted, alpha)
        return following, following

    emissions = jnp.take_along_axis(log_probs, jnp.broadcast_to(extended, (log_probs.shape[0], *extended.shape)), 2)
    # A path starts at the first blank or the first label.
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
    # PyTorch's mean: over labels first, then over samples.
    if reduction == "mean":
        loss = loss / jnp.maximum(target_lengths, 1)
    return reduced(loss, reduction), alphas


other_form(ctc_loss, "CTCLossV2(blank, reduction, zero_infinity)", reduction="none")
