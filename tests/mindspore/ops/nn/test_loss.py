"""Losses against their formulas."""

import numpy as np
import pytest
import scipy.special
from against_numpy import check, numbers

import sporax.mindspore as ms
from sporax.mindspore import mint, ops

LABELS = np.array([2, 0, 1])


def reduced(values, reduction, weights=None):
    if reduction == "none":
        return values
    total = values.sum()
    return total if reduction == "sum" else total / (values.size if weights is None else weights.sum())


def cross_entropy(logits, labels, weight=None, ignored=-100, reduction="mean", smoothing=0.0):
    logp = scipy.special.log_softmax(logits, 1)
    weight = np.ones(logits.shape[1]) if weight is None else weight
    kept = labels != ignored
    rows, safe = np.arange(len(labels)), np.where(kept, labels, 0)
    losses = -(1 - smoothing) * logp[rows, safe] * weight[safe] - smoothing / logits.shape[1] * (logp * weight).sum(1)
    return reduced(np.where(kept, losses, 0), reduction, np.where(kept, weight[safe], 0))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy(reduction):
    weight = np.array([0.5, 2.0, 1.0, 3.0])
    check(
        lambda x, y, w: ops.cross_entropy(x, y, w, 0, reduction, 0.1),
        lambda x, y, w: cross_entropy(x, y, weight, 0, reduction, 0.1),
        numbers(3, 4), LABELS, weight.astype(np.float32),
    )  # fmt: skip
    check(lambda x, y: ops.cross_entropy(x, y, reduction=reduction),
          lambda x, y: cross_entropy(x, y, reduction=reduction), numbers(3, 4), LABELS)  # fmt: skip


def test_cross_entropy_of_probabilities():
    target = scipy.special.softmax(numbers(3, 4, seed=1), 1)
    reference = lambda x, y: -(scipy.special.log_softmax(x, 1) * y).sum(1).mean()
    check(ops.cross_entropy, reference, numbers(3, 4), target)
    smooth = lambda x, y: reference(x, 0.8 * y + 0.05)
    check(lambda x, y: ops.cross_entropy(x, y, label_smoothing=0.2), smooth, numbers(3, 4), target)


def test_cross_entropy_of_other_ranks():
    one = ops.cross_entropy(ms.Tensor(numbers(4)), ms.Tensor(2))
    assert float(one) == pytest.approx(-scipy.special.log_softmax(numbers(4))[2])
    images, classes = numbers(2, 3, 2), np.array([[0, 2], [1, 1]])
    flat = cross_entropy(images.transpose(0, 2, 1).reshape(4, 3), classes.reshape(4))
    assert float(ops.cross_entropy(ms.Tensor(images), ms.Tensor(classes))) == pytest.approx(flat)


def test_nll_loss():
    check(ops.nll_loss, lambda x, y: -x[np.arange(3), y].mean(), numbers(3, 4), LABELS)


def test_softmax_cross_entropy():
    labels = scipy.special.softmax(numbers(3, 4, seed=1), 1)
    call = ops.SoftmaxCrossEntropyWithLogits()
    reference = lambda x: -(scipy.special.log_softmax(x, 1) * labels).sum(1)
    check(lambda x: call(x, ms.Tensor(labels))[0], reference, numbers(3, 4))
    twice = call(ms.Tensor(numbers(3, 4)), ms.Tensor(2 * labels))  # the second result is the gradient by definition
    grad = ms.grad(lambda x: call(x, ms.Tensor(2 * labels))[0])(ms.Tensor(numbers(3, 4)))
    np.testing.assert_allclose(grad.asnumpy(), twice[1].asnumpy(), rtol=1e-12)
    np.testing.assert_allclose(twice[0].asnumpy(), 2 * reference(numbers(3, 4)), rtol=1e-12)


def test_sparse_softmax_cross_entropy():
    call = ops.SparseSoftmaxCrossEntropyWithLogits()
    check(call, cross_entropy, numbers(3, 4), LABELS)
    direct = ops.SparseSoftmaxCrossEntropyWithLogits(is_grad=True)(ms.Tensor(numbers(3, 4)), ms.Tensor(LABELS))
    np.testing.assert_allclose(direct.asnumpy(), ms.grad(call)(ms.Tensor(numbers(3, 4)), ms.Tensor(LABELS)).asnumpy())


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_squared_and_absolute_losses_reduce_distances(reduction):
    for call, distance in ((ops.mse_loss, np.square), (ops.l1_loss, np.abs)):
        check(lambda x, y, c=call: c(x, y, reduction), lambda x, y, d=distance: reduced(d(x - y), reduction),
              numbers(2, 3), numbers(3, seed=1) + 0.01)  # fmt: skip


def test_binary_cross_entropy():
    target = scipy.special.expit(numbers(2, 3, seed=1))
    weight, positive = numbers(3, seed=2, low=0.5), numbers(3, seed=3, low=0.5)

    def reference(x, y, w, p):
        probability = scipy.special.expit(x)
        return (-(p * y * np.log(probability) + (1 - y) * np.log(1 - probability)) * w).mean()

    check(ops.binary_cross_entropy_with_logits, reference, numbers(2, 3), target, weight, positive)
    tensors = [ms.Tensor(value) for value in (numbers(2, 3), target, weight)]
    ours = mint.nn.functional.binary_cross_entropy_with_logits(*tensors, "mean", ms.Tensor(positive))
    assert float(ours) == pytest.approx(reference(numbers(2, 3), target, weight, positive))


X, Y = ms.Tensor(np.ones((2, 3), np.float32)), ms.Tensor([0, 1])
ERRORS = [
    (lambda: ops.cross_entropy(X, ms.Tensor([0, 1, 2])), ValueError, r"\(2,\) \(class indices\).*but got \(3,\)"),
    (lambda: ops.cross_entropy(X, ms.Tensor([0.5, 1.0])), TypeError, r"must be integers, but got Float32\[2\]"),
    (lambda: ops.cross_entropy(X, Y, reduction="max"), ValueError, "'reduction' must be one of .* but got 'max'"),
    (lambda: ops.cross_entropy(X, Y, label_smoothing=2.0), ValueError, r"in \[0, 1\], but got 2.0"),
    (lambda: ops.cross_entropy(X, Y, weight=X[0, :2]), ValueError, r"each of the 3 classes, but got \(2,\)"),
    (lambda: ops.nll_loss(X, ms.Tensor([0])), ValueError, r"\(2,\), but got \(1,\)"),
    (lambda: ops.SoftmaxCrossEntropyWithLogits()(X, X[:1]), ValueError, r"\(2, 3\) and \(1, 3\)"),
    (lambda: ops.SoftmaxCrossEntropyWithLogits()(X, Y), TypeError, "'logits': Float32, 'labels': Int64"),
    (lambda: ops.SparseSoftmaxCrossEntropyWithLogits()(X, Y[:1]), ValueError, r"\(2,\), one for each sample, but got \(1,\)"),
    (lambda: ops.mse_loss(X, X[:, :2]), ValueError, "need to broadcast"),
    (lambda: ops.mse_loss(Y > 0, Y > 0), TypeError, "a number type, but got Bool"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "message"), ERRORS)
def test_arguments_that_do_not_fit_are_refused(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
