"""Losses of distances and margins.

What losses share: how they reduce, and checks of a prediction next to its target.
"""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp

from sporax.base.errors import For
from sporax.mindspore.ops._core import Array, Operand, check, extremes, labels, operator, other_form, promote
from sporax.mindspore.ops.linalg.norms import cosine_similarity, length

Reduction = Literal["mean", "sum", "none"]


def reduced(loss: Array, reduction: str, count: Array | int | None = None) -> Array:
    """`loss` as it is, its sum, or its sum over `count` (the number of its elements by default)."""
    if reduction == "none":
        return loss
    total = jnp.sum(loss)
    # A given count may be 0: the result is then NaN, as in MindSpore.
    return total if reduction == "sum" else total / (loss.size if count is None else count)


def check_broadcast_pair(name: str, prediction: Array, target: Array) -> None:
    """Both are floating, and their shapes broadcast."""
    check.floating(name, input=prediction, target=target)
    check.broadcast(name, prediction, target)


def check_equal_shapes(name: str, prediction: Array, target: Array) -> None:
    """The prediction is floating, and the target has its shape."""
    check.floating(name, input=prediction)
    check.tensor(name, target=target)
    For(name).refuse(
        prediction.shape != target.shape, "'input' and 'target' must have one shape", prediction.shape, target.shape
    )


@operator(function="smooth_l1_loss", mint="")
def smooth_l1_loss(input: Array, target: Array, beta: float = 1.0, reduction: Reduction = "none") -> Array:
    """Squared difference over 2·`beta` where it is below `beta`, absolute difference less `beta` / 2 elsewhere."""
    check_equal_shapes("smooth_l1_loss", input, target)
    For("smooth_l1_loss").refuse(beta <= 0, "'beta' must be positive", beta)
    gap = jnp.abs(input - target)
    return reduced(jnp.where(gap < beta, jnp.square(gap) / (2 * beta), gap - beta / 2), reduction)


@operator(function="huber_loss")
def huber_loss(input: check.Number, target: check.Number, reduction: Reduction = "mean", delta: float = 1.0) -> Array:
    """Half the squared difference where it is below `delta`, ``delta * (|difference| - delta / 2)`` elsewhere."""
    check.broadcast("huber_loss", input, target)
    For("huber_loss").refuse(delta <= 0, "'delta' must be positive", delta)
    gap = jnp.abs(promote.inexact(input) - promote.inexact(target))
    return reduced(jnp.where(gap < delta, jnp.square(gap) / 2, delta * (gap - delta / 2)), reduction)


@operator(function="margin_ranking_loss")
def margin_ranking_loss(
    input1: check.Number, input2: check.Number, target: Array, margin: float = 0.0, reduction: Reduction = "mean"
) -> Array:
    """``max(0, -target * (input1 - input2) + margin)``; a target of 1 wants the first larger, -1 the second."""
    check.broadcast("margin_ranking_loss", input1, input2)
    gaps = promote.inexact(-target * (input1 - input2)) + margin
    return reduced(jnp.where(gaps < 0, jnp.zeros((), gaps.dtype), gaps), reduction)


@operator(function="cosine_embedding_loss", mint="nn.functional.cosine_embedding_loss")
def cosine_embedding_loss(
    input1: check.Float, input2: check.Float, target: Array, margin: float = 0.0, reduction: Reduction = "mean"
) -> Array:
    """1 - cos where the target is 1, ``max(0, cos - margin)`` where it is -1; cos of vectors in the last dim."""
    For("cosine_embedding_loss").refuse(not -1 <= margin <= 1, "'margin' must be in [-1, 1]", margin)
    # The vectors are in the last dim here, unlike the function's default.
    cosine = cosine_similarity.kernel(input1, input2, max(input1.ndim, input2.ndim) - 1)
    zero = jnp.zeros((), cosine.dtype)
    loss = jnp.where(target == 1, 1 - cosine, jnp.where(target == -1, jnp.maximum(cosine - margin, 0), zero))
    return reduced(loss, reduction)


@operator(function="hinge_embedding_loss")
def hinge_embedding_loss(
    inputs: check.Float, targets: Array, margin: float = 1.0, reduction: Reduction = "mean"
) -> Array:
    """The input where the target is 1, ``max(0, margin - input)`` where it is -1."""
    zero = jnp.zeros((), inputs.dtype)
    loss = jnp.where(targets == 1, inputs, jnp.where(targets == -1, jnp.maximum(margin - inputs, 0), zero))
    return reduced(loss, reduction)


def _triplet(anchor: Array, positive: Array, negative: Array, margin: Any, p: float, eps: float, swap: bool) -> Array:
    check.floating("TripletMarginLoss", anchor=anchor, positive=positive, negative=negative)
    # `eps` on the difference, as MindSpore and PyTorch have it: it keeps the root's gradient finite.
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
    return reduced(_triplet(x, positive, negative, margin, p, eps, swap), reduction)


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
    return reduced(_triplet(anchor, positive, negative, margin, p, eps, swap), reduction)


@operator(function="multi_margin_loss")
def multi_margin_loss(
    input: Array,
    target: Array,
    p: int = 1,
    margin: float = 1,
    weight: Array | None = None,
    reduction: Reduction = "mean",
) -> Array:
    """Mean over the other classes of ``max(0, margin - input[target] + input[i]) ** p``, weighted by the true class."""
    check.floating("MultiMarginLoss", input=input)
    check.integral("MultiMarginLoss", target=target)
    check.one_of("MultiMarginLoss", p, (1, 2), "p")
    own = jnp.take_along_axis(input, target[..., None], -1)
    gaps = jnp.maximum(margin - own + input, 0) ** p
    if weight is not None:
        gaps = gaps * weight[target][..., None]
    is_own = jnp.arange(input.shape[-1]) == target[..., None]
    return reduced(jnp.sum(jnp.where(is_own, 0, gaps), -1) / input.shape[-1], reduction)


def _multilabel_margin(x: Array, target: Array) -> tuple[Array, Array]:
    check_equal_shapes("MultilabelMarginLoss", x, target)
    check.integral("MultilabelMarginLoss", target=target)
    classes = x.shape[-1]
    listed = jnp.cumsum(target < 0, -1) == 0  # the true classes end at the first negative number
    # `classes` is no class, so what is not listed matches nothing.
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
    return reduced(loss, reduction), is_target


@operator(function="multilabel_margin_loss")
def multilabel_margin_loss(input: Array, target: Array, reduction: Reduction = "mean") -> Array:
    """Sum over true classes i and others j of ``max(0, 1 - (x[i] - x[j]))``, divided by the number of classes.

    `target` lists the true classes in each row, up to the first negative number.
    """
    return reduced(_multilabel_margin(input, target)[0], reduction)


@operator(function="multilabel_soft_margin_loss")
def multilabel_soft_margin_loss(
    input: Array, target: Array, weight: Array | None = None, reduction: Reduction = "mean"
) -> Array:
    """Mean over the classes (last dim) of the cross entropy of sigmoid(`input`) with `target`, times `weight`."""
    check_equal_shapes("multilabel_soft_margin_loss", input, target)
    # Through log-sigmoids, which do not overflow.
    loss = -(target * jax.nn.log_sigmoid(input) + (1 - target) * jax.nn.log_sigmoid(-input))
    return reduced(jnp.mean(loss if weight is None else loss * weight, -1), reduction)


@operator("SoftMarginLoss(reduction)", function="soft_margin_loss", mint="nn.functional.soft_margin_loss")
def soft_margin_loss(input: Array, target: Array, reduction: Reduction = "mean") -> Array:
    """``log(1 + exp(-target * input))`` for targets 1 and -1."""
    check_equal_shapes("SoftMarginLoss", input, target)
    # logaddexp(…, 0) is log(1 + exp(…)) without overflow.
    return reduced(jnp.logaddexp(-target * input, jnp.zeros((), input.dtype)), reduction)


@operator(function="mse_loss")
def mse_loss(input: check.Number, target: check.Number, reduction: Reduction = "mean") -> Array:
    """Squared difference of two tensors, broadcast: its mean, its sum, or itself for ``"none"``. Integers give float32."""
    check.broadcast("mse_loss", input, target)
    return reduced(jnp.square(promote.inexact(input) - promote.inexact(target)), reduction)


@operator(function="l1_loss")
def l1_loss(input: check.Number, target: check.Number, reduction: Reduction = "mean") -> Array:
    """Absolute difference of two tensors, broadcast: its mean, its sum, or itself for ``"none"``, in their dtype."""
    check.broadcast("l1_loss", input, target)
    gap = extremes.magnitude(input - target)
    return reduced(gap, reduction).astype(gap.dtype)


other_form(smooth_l1_loss, "SmoothL1Loss(beta, reduction)", "prediction=input target beta reduction")
other_form(
    smooth_l1_loss, mint="nn.functional.smooth_l1_loss", parameters="input target reduction beta", reduction="mean"
)
other_form(
    multi_margin_loss,
    "MultiMarginLoss(p, margin, reduction)",
    "x=input target weight p margin reduction",
    dims=labels,
    margin=1.0,
)
# Operators of their own: level "auto" of mixed precision computes them in float32.
other_form(mse_loss, mint="nn.functional.mse_loss")
other_form(l1_loss, mint="nn.functional.l1_loss")
