"""Loss functions."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from sporax.ir.errors import SporaxTypeError, SporaxValueError
from sporax.ops import _check as check
from sporax.ops._operator import Array, operator

_REDUCTIONS = ("mean", "sum", "none")


def _reduced(loss: Array, reduction: str, count: Array | int | None = None) -> Array:
    if reduction == "none":
        return loss
    total = jnp.sum(loss)
    return total if reduction == "sum" else total / (loss.size if count is None else count)


@operator(function="cross_entropy", mint="nn.functional.cross_entropy")
def cross_entropy(
    input: Array,
    target: Array,
    weight: Array | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
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
    check.one_of(name, reduction, _REDUCTIONS, "reduction")
    if not 0.0 <= label_smoothing <= 1.0:
        raise SporaxValueError(f"For '{name}', 'label_smoothing' must be in [0, 1], but got {label_smoothing}.")
    channel = 0 if input.ndim == 1 else 1
    log_probs = jax.nn.log_softmax(input, channel)
    if target.shape == input.shape and jnp.issubdtype(target.dtype, jnp.floating):
        return _soft_cross_entropy(log_probs, target, weight, channel, reduction, label_smoothing)
    expected = input.shape[:channel] + input.shape[channel + 1 :]
    if target.shape != expected:
        raise SporaxValueError(
            f"For '{name}', 'target' must have shape {expected} (class indices) or {input.shape} (probabilities), "
            f"but got {target.shape}."
        )
    if not jnp.issubdtype(target.dtype, jnp.integer):
        raise SporaxTypeError(
            f"For '{name}', class indices in 'target' must be integers, but got {check.describe(target)}."
        )
    return _hard_cross_entropy(log_probs, target, weight, channel, ignore_index, reduction, label_smoothing)


def _hard_cross_entropy(
    log_probs: Array, target: Array, weight: Array | None, channel: int, ignore: int, reduction: str, smoothing: float
) -> Array:
    num_classes = log_probs.shape[channel]
    kept = target != ignore
    index = jnp.where(kept, target, 0)
    picked = jnp.squeeze(jnp.take_along_axis(log_probs, jnp.expand_dims(index, channel), channel), channel)
    class_weight = jnp.ones((num_classes,), log_probs.dtype) if weight is None else weight
    sample_weight = jnp.where(kept, class_weight[index], 0)
    loss = -picked * sample_weight
    if smoothing:
        spread = [-1 if dim == channel else 1 for dim in range(log_probs.ndim)]
        smooth = jnp.where(kept, -jnp.sum(log_probs * class_weight.reshape(spread), channel), 0)
        loss = (1 - smoothing) * loss + smoothing / num_classes * smooth
    return _reduced(loss, reduction, jnp.sum(sample_weight))


def _soft_cross_entropy(
    log_probs: Array, target: Array, weight: Array | None, channel: int, reduction: str, smoothing: float
) -> Array:
    if smoothing:
        target = target * (1 - smoothing) + smoothing / log_probs.shape[channel]
    weighted = log_probs * target
    if weight is not None:
        weighted = weighted * weight.reshape([-1 if dim == channel else 1 for dim in range(log_probs.ndim)])
    loss = -jnp.sum(weighted, channel)
    return _reduced(loss, reduction)


@operator("SoftmaxCrossEntropyWithLogits", function="")
def _softmax_cross_entropy_with_logits(logits: Array, labels: Array) -> tuple[Array, Array]:
    """Loss per sample and its gradient with respect to the logits; both (N, C), `labels` as probabilities."""
    name = "SoftmaxCrossEntropyWithLogits"
    check.floating(name, logits=logits, labels=labels)
    if logits.shape != labels.shape:
        raise SporaxValueError(
            f"For '{name}', 'logits' and 'labels' must have one shape, but got {logits.shape} and {labels.shape}."
        )
    log_probs = jax.nn.log_softmax(logits, -1)
    return -jnp.sum(log_probs * labels, -1), jnp.exp(log_probs) - labels


@operator("SparseSoftmaxCrossEntropyWithLogits", function="")
def _sparse_softmax_cross_entropy_with_logits(logits: Array, labels: Array, is_grad: bool = False) -> Array:
    """Mean loss over the samples for class indices `labels` (N,); with `is_grad` its gradient."""
    check.floating("SparseSoftmaxCrossEntropyWithLogits", logits=logits)
    check.integral("SparseSoftmaxCrossEntropyWithLogits", labels=labels)
    log_probs = jax.nn.log_softmax(logits, -1)
    if is_grad:
        return (jnp.exp(log_probs) - jax.nn.one_hot(labels, logits.shape[-1], dtype=logits.dtype)) / logits.shape[0]
    return -jnp.mean(jnp.take_along_axis(log_probs, labels[:, None], -1))


def _same_shape(name: str, left: Array, right: Array) -> None:
    check.floating(name, logits=left, labels=right)
    check.broadcast(name, left, right)


@operator(function="mse_loss", mint="nn.functional.mse_loss")
def mse_loss(input: Array, target: Array, reduction: str = "mean") -> Array:
    """Squared difference."""
    _same_shape("mse_loss", input, target)
    check.one_of("mse_loss", reduction, _REDUCTIONS, "reduction")
    return _reduced(jnp.square(input - target), reduction)


@operator(function="l1_loss", mint="nn.functional.l1_loss")
def l1_loss(input: Array, target: Array, reduction: str = "mean") -> Array:
    """Absolute difference."""
    _same_shape("l1_loss", input, target)
    check.one_of("l1_loss", reduction, _REDUCTIONS, "reduction")
    return _reduced(jnp.abs(input - target), reduction)


@operator(function="nll_loss")
def nll_loss(
    inputs: Array, target: Array, weight: Array | None = None, ignore_index: int = -100, reduction: str = "mean"
) -> Array:
    """Negative of the log-probabilities in `inputs` (N, C) at the classes in `target`."""
    check.one_of("nll_loss", reduction, _REDUCTIONS, "reduction")
    return _hard_cross_entropy(inputs, target, weight, 0 if inputs.ndim == 1 else 1, ignore_index, reduction, 0.0)


@operator(function="binary_cross_entropy_with_logits", mint="nn.functional.binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(
    logits: Array,
    label: Array,
    weight: Array | None = None,
    pos_weight: Array | None = None,
    reduction: str = "mean",
) -> Array:
    """Cross entropy of sigmoid(`logits`) with the probabilities `label`, computed without overflow."""
    _same_shape("binary_cross_entropy_with_logits", logits, label)
    check.one_of("binary_cross_entropy_with_logits", reduction, _REDUCTIONS, "reduction")
    positive = jax.nn.log_sigmoid(logits) * (1 if pos_weight is None else pos_weight)
    loss = -(label * positive + (1 - label) * jax.nn.log_sigmoid(-logits))
    return _reduced(loss if weight is None else loss * weight, reduction)
