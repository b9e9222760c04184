"""Losses of probabilities: cross-entropies, likelihoods and divergences.

Losses of scores work on logarithms throughout (log-softmax, log-sigmoid), since a probability may underflow to 0, whose
logarithm is infinite.
"""

from __future__ import annotations

import math
from typing import Literal

import jax
import jax.numpy as jnp
import jax.scipy

from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.mindspore.ops._core import check
from sporax.mindspore.ops._core.dims import LAST, labels
from sporax.mindspore.ops._core.operator import Array, operator, other_form
from sporax.mindspore.ops.nn.distance_loss import Reduction, check_broadcast_pair, check_equal_shapes, reduced


@operator(function="cross_entropy", mint="nn.functional.cross_entropy", dims=labels)
def cross_entropy(
    input: Array,
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
    check.floating(name, input=input)
    if not input.ndim:
        raise SporaxValueError(f"For '{name}', 'input' must have a dimension of classes, but its shape is ().")
    if not 0.0 <= label_smoothing <= 1.0:
        raise SporaxValueError(f"For '{name}', 'label_smoothing' must be in [0, 1], but got {label_smoothing}.")
    # (C,) is one sample without a batch.
    channel = 0 if input.ndim == 1 else 1
    _check_weight(name, weight, input.shape[channel])
    # The logarithm of the softmax in one step does not overflow.
    log_probs = jax.nn.log_softmax(input, channel)
    # Floating targets of the input's shape are probabilities.
    if target.shape == input.shape and jnp.issubdtype(target.dtype, jnp.floating):
        return _soft_cross_entropy(log_probs, target, weight, channel, reduction, label_smoothing)
    expected = input.shape[:channel] + input.shape[channel + 1 :]
    if target.shape != expected:
        raise SporaxValueError.must(
            name, "target", f"have shape {expected} (class indices) or {input.shape} (probabilities)", target.shape
        )
    if not jnp.issubdtype(target.dtype, jnp.integer):
        raise SporaxTypeError.must(name, "class indices in 'target'", "be integers", check.describe(target))
    return _hard_cross_entropy(log_probs, target, weight, channel, ignore_index, reduction, label_smoothing)


def _check_weight(name: str, weight: Array | None, num_classes: int) -> None:
    if weight is not None and weight.shape != (num_classes,):
        raise SporaxValueError(
            f"For '{name}', 'weight' must have one element for each of the {num_classes} classes, but got {weight.shape}."
        )


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
        # Smoothing is a mean over all classes, each with its weight.
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
        raise SporaxValueError(
            f"For '{name}', 'logits' and 'labels' must have one shape, but got {logits.shape} and {labels.shape}."
        )
    # MindSpore's operator has no gradient for labels.
    labels = jax.lax.stop_gradient(labels)
    log_probs = jax.nn.log_softmax(logits, -1)
    loss = -jnp.sum(log_probs * labels, -1)
    # This has the gradient that is requested; it differs from the loss only where labels do not add up to 1.
    slope = jax.nn.logsumexp(logits, -1) - jnp.sum(logits * labels, -1)
    return slope + jax.lax.stop_gradient(loss - slope), jnp.exp(log_probs) - labels


@operator("SparseSoftmaxCrossEntropyWithLogits", function="", dims=labels)
def _sparse_softmax_cross_entropy_with_logits(logits: Array, labels: Array, is_grad: bool = False) -> Array:
    """Mean loss over the samples for class indices `labels` (N,); with `is_grad` its gradient, (N, C) as `logits`.

    Raises:
        SporaxTypeError: `logits` are not floats, or `labels` not integers.
        SporaxValueError: not one label per sample.
    """
    name = "SparseSoftmaxCrossEntropyWithLogits"
    check.floating(name, logits=logits)
    check.integral(name, labels=labels)
    check.rank(name, 2, logits=logits)
    if labels.shape != logits.shape[:1]:
        raise SporaxValueError.must(name, "labels", f"have shape {logits.shape[:1]}, one for each sample", labels.shape)
    log_probs = jax.nn.log_softmax(logits, -1)
    if is_grad:
        # Divided by the batch, as the loss is a mean.
        return (jnp.exp(log_probs) - jax.nn.one_hot(labels, logits.shape[-1], dtype=logits.dtype)) / logits.shape[0]
    return -jnp.mean(jnp.take_along_axis(log_probs, labels[:, None], -1))


@operator(function="nll_loss", mint="nn.functional.nll_loss(input=inputs)", dims=labels)
def nll_loss(
    inputs: Array,
    target: Array,
    weight: Array | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Array:
    """Negative of the log-probabilities `inputs` at the classes `target`. Shapes and arguments as `cross_entropy`."""
    check.floating("nll_loss", inputs=inputs)
    check.integral("nll_loss", target=target)
    check.rank("nll_loss", range(1, 9), inputs=inputs)
    channel = 0 if inputs.ndim == 1 else 1
    expected = inputs.shape[:channel] + inputs.shape[channel + 1 :]
    SporaxValueError.raise_if(target.shape != expected, "nll_loss", "target", f"have shape {expected}", target.shape)
    _check_weight("nll_loss", weight, inputs.shape[channel])
    return _hard_cross_entropy(inputs, target, weight, channel, ignore_index, reduction, label_smoothing)


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


@operator("BinaryCrossEntropy(reduction)", function="", mint="nn.functional.binary_cross_entropy")
def _binary_cross_entropy_primitive(
    input: Array, target: Array, weight: Array | None = None, reduction: Reduction = "mean"
) -> Array:
    """Cross entropy of the probabilities `input` with the probabilities `target`, each element times `weight`."""
    check_equal_shapes("BinaryCrossEntropy", input, target)
    tiny = 1e-12  # logarithms stay finite at 0 and 1, as MindSpore's do
    loss = -(target * jnp.log(jnp.maximum(input, tiny)) + (1 - target) * jnp.log(jnp.maximum(1 - input, tiny)))
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
    input: Array,
    target: Array,
    weight: Array | None = None,
    posWeight: Array | None = None,  # noqa: N803 - MindSpore's name
    reduction: Reduction = "mean",
) -> Array:
    """Cross entropy of sigmoid(`input`) with `target`; `posWeight` counts for the positive part, `weight` for all."""
    check.floating("BCEWithLogitsLoss", input=input, target=target)
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


@operator("NLLLoss(reduction, ignore_index)", function="", dims=labels)
def _nll_loss(
    logits: Array, labels: Array, weight: Array, reduction: Reduction = "mean", ignore_index: int = -100
) -> tuple[Array, Array]:
    """Negative of the log-probabilities `logits` (n, classes) at `labels` (n,), and the sum of the weights that count."""
    check.floating("NLLLoss", logits=logits, weight=weight)
    check.integral("NLLLoss", labels=labels)
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
    x: Array, target: Array, var: Array, full: bool = False, eps: float = 1e-06, reduction: Reduction = "mean"
) -> Array:
    """Negative logarithm of the normal density at `target` with mean `x` and variance `var` (at least `eps`).

    `full` adds the constant part. The gradient does not see that the variance is limited.
    """
    check.floating("gaussian_nll_loss", x=x, target=target, var=var)
    # Added without gradient, as MindSpore limits the variance outside of the derivative.
    limited = var + jax.lax.stop_gradient(jnp.maximum(eps - var, 0))
    loss = (jnp.log(limited) + jnp.square(target - x) / limited) / 2
    return reduced(loss + math.log(2 * math.pi) / 2 if full else loss, reduction)
