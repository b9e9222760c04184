"""Connectionist temporal classification (Graves et al. 2006): the loss and greedy decoding."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import SporaxNotImplementedError, SporaxValueError
from sporax.mindspore.common.tensor import Tensor, wrap_numpy
from sporax.mindspore.ops._core import check
from sporax.mindspore.ops._core.check import known
from sporax.mindspore.ops._core.operator import Array, operator, other_form
from sporax.mindspore.ops.nn.distance_loss import Reduction, reduced


@operator("CTCLoss(preprocess_collapse_repeated, ctc_merge_repeated, ignore_longer_outputs_than_inputs)", function="")
def _ctc_loss(
    x: Array,
    labels_indices: Array,
    labels_values: Array,
    sequence_length: Array,
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
    check.floating(name, x=x)
    check.rank(name, 3, x=x)
    check.integral(name, labels_indices=labels_indices, labels_values=labels_values, sequence_length=sequence_length)
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
    # Neither blanks nor steps beyond the sequence.
    remaining = (best != classes - 1) & (np.arange(time)[:, None] < lengths)
    if merge_repeated:
        remaining &= best != before
    rows, times = np.nonzero(remaining.T)
    # Positions within each sample: the place less the first place of the sample.
    columns = np.arange(len(rows)) - np.searchsorted(rows, rows)
    longest = int(remaining.sum(0).max(initial=0))
    # The sum of the greatest logits, of the steps that count.
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
    # Blanks between the labels and around them.
    extended = jnp.full((n, 2 * num_labels + 1), blank, targets.dtype).at[:, 1::2].set(targets)
    # The label two places earlier.
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
