import itertools

import numpy as np
import pytest
from operator_cases import case, check, numbers
from scipy.special import expit, log_softmax, xlogy

import sporax.mindspore as ms
from sporax.mindspore import Tensor, mint, nn, ops

A, B = numbers(3, 4), numbers(3, 4, seed=1)
P, Q = numbers(3, 4, low=0.1, high=0.9), numbers(3, 4, seed=1, low=0.1, high=0.9)
SIGNS = np.array([[1.0, -1, 1, -1]] * 3)
CLASSES = np.array([0, 3, 1])


def bce(p, q):
    return -(q * np.log(p) + (1 - q) * np.log(1 - p))


def smooth(x, y, beta):
    gap = abs(x - y)
    return np.where(gap < beta, gap**2 / (2 * beta), gap - beta / 2)


def triplet(a, p, n, margin=1.0):
    return np.maximum(np.linalg.norm(a - p + 1e-6, axis=-1) - np.linalg.norm(a - n + 1e-6, axis=-1) + margin, 0)


def multi_margin(x):
    own = np.take_along_axis(x, CLASSES[:, None], 1)
    gaps = np.maximum(1 - own + x, 0)
    np.put_along_axis(gaps, CLASSES[:, None], 0, 1)
    return gaps.sum(1) / 4


def cosines(x, y):
    return (x * y).sum(1) / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1)


CASES = {
    "BinaryCrossEntropy": case(ops.BinaryCrossEntropy(), lambda p, q: bce(p, q).mean(), P, Q),
    "BinaryCrossEntropy weighted": case(ops.BinaryCrossEntropy("sum"), lambda p, q, w: (bce(p, q) * w).sum(), P, Q, B),
    "binary_cross_entropy": case(lambda p, q: ops.binary_cross_entropy(p, q, reduction="none"), bce, P, Q),
    "BCEWithLogitsLoss": case(ops.BCEWithLogitsLoss("none"), lambda x, q, w, pos: w * -(q * pos * np.log(expit(x)) + (1 - q) * np.log(expit(-x))), A, Q, B, P),
    "SigmoidCrossEntropyWithLogits": case(ops.SigmoidCrossEntropyWithLogits(), lambda x, q: bce(expit(x), q), A, Q),
    # The labels have no gradient in MindSpore.
    "KLDivLoss": case(lambda x: ops.KLDivLoss("batchmean")(x, Tensor(Q)), lambda x: (xlogy(Q, Q) - Q * x).sum() / 3, A),
    "kl_div": case(lambda x: ops.kl_div(x, Tensor(Q)), lambda x: (xlogy(Q, Q) - Q * x).mean(), A),
    "mint kl_div": case(lambda x, q: mint.nn.functional.kl_div(x, q, "sum", True), lambda x, q: (np.exp(q) * (q - x)).sum(), A, Q),
    "NLLLoss": case(lambda x, w: ops.NLLLoss()(x, Tensor(CLASSES), w), lambda x, w: (-(x[range(3), CLASSES] * w[CLASSES]).sum() / w[CLASSES].sum(), w[CLASSES].sum()), A, P[0]),
    "gaussian_nll_loss": case(lambda x, y, v: ops.gaussian_nll_loss(x, y, v, full=True), lambda x, y, v: ((np.log(v) + (y - x) ** 2 / v) / 2 + np.log(2 * np.pi) / 2).mean(), A, B, P),
    "SmoothL1Loss": case(ops.SmoothL1Loss(0.7), lambda x, y: smooth(x, y, 0.7), A, B),
    "smooth_l1_loss": case(lambda x, y: ops.smooth_l1_loss(x, y, reduction="mean"), lambda x, y: smooth(x, y, 1).mean(), A, B),
    "mint smooth_l1_loss": case(mint.nn.functional.smooth_l1_loss, lambda x, y: smooth(x, y, 1).mean(), A, B),
    "huber_loss": case(lambda x, y: ops.huber_loss(x, y, delta=0.7), lambda x, y: (0.7 * smooth(x, y, 0.7)).mean(), A, B),
    "margin_ranking_loss": case(lambda x, y: ops.margin_ranking_loss(x, y, Tensor(SIGNS), 0.3), lambda x, y: np.maximum(-SIGNS * (x - y) + 0.3, 0).mean(), A, B),
    "cosine_embedding_loss": case(lambda x, y: ops.cosine_embedding_loss(x, y, Tensor([1, -1, -1]), 0.1, "sum"), lambda x, y: (1 - cosines(x, y)[0]) + np.maximum(cosines(x, y)[1:] - 0.1, 0).sum(), A, B),
    "hinge_embedding_loss": case(lambda x: ops.hinge_embedding_loss(x, Tensor(SIGNS)), lambda x: np.where(SIGNS == 1, x, np.maximum(1 - x, 0)).mean(), A),
    "triplet_margin_loss": case(ops.triplet_margin_loss, lambda a, p, n: triplet(a, p, n).mean(), A, B, P),
    "TripletMarginLoss": case(lambda a, p, n: ops.TripletMarginLoss(reduction="none")(a, p, n, 0.5), lambda a, p, n: triplet(a, p, n, 0.5), A, B, P),
    "multi_margin_loss": case(lambda x: ops.multi_margin_loss(x, Tensor(CLASSES)), lambda x: multi_margin(x).mean(), A),
    "MultiMarginLoss": case(lambda x: ops.MultiMarginLoss(reduction="sum")(x, Tensor(CLASSES)), lambda x: multi_margin(x).sum(), A),
    "multilabel_margin_loss": case(lambda x: ops.multilabel_margin_loss(x, Tensor([[3, 0, -1, 1]])), lambda x: sum(max(0, 1 - (x[0, i] - x[0, j])) for i in (3, 0) for j in (1, 2)) / 4, A[:1]),
    "multilabel_soft_margin_loss": case(ops.multilabel_soft_margin_loss, lambda x, q: bce(expit(x), q).mean(), A, (Q > 0.5) * 1.0),
    "soft_margin_loss": case(lambda x: ops.soft_margin_loss(x, Tensor(SIGNS)), lambda x: np.log1p(np.exp(-SIGNS * x)).mean(), A),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operator_equals_its_reference_formula(name):
    check(CASES[name])


class Between(nn.Cell):
    def __init__(self, operator):
        super().__init__()
        self.operator, self.product = operator, ops.Mul().shard(((2, 4), (2, 4)))

    def construct(self, *inputs):
        return self.operator(*(self.product(x, x) for x in inputs))


LENIENT = {
    "SmoothL1Loss": lambda: ops.SmoothL1Loss(0.7),
    "SmoothL1Loss mean": lambda: ops.SmoothL1Loss(1.0, "mean"),
    "SoftMarginLoss": lambda: ops.SoftMarginLoss("none"),
    "Fmax": ops.Fmax,
}


@pytest.mark.parametrize("name", LENIENT)
@pytest.mark.parametrize("strategy", [((8, 1), (4, 1)), ((2, 4), (4, 2)), ((1, 1), (8, 1))])
def test_unequal_shardings_of_operators_that_mindspore_has_no_rule_for(name, strategy, eight_devices):
    """MindSpore takes any strategy of them and leaves the tensors whole; those of equal shardings are sharded here."""
    rng = np.random.default_rng(3)
    inputs = [Tensor(rng.normal(size=(8, 8)).astype(np.float32)) for _ in range(2)]
    expected = Between(LENIENT[name]())(*inputs)
    gradients = ms.grad(Between(LENIENT[name]()), (0, 1))(*inputs)
    eight_devices()
    net = Between(LENIENT[name]().shard(strategy))
    with pytest.warns(UserWarning, match="tensors should have equal shardings"):
        result = net(*inputs)
    np.testing.assert_allclose(result.asnumpy(), expected.asnumpy(), rtol=1e-6)
    with pytest.warns(UserWarning, match="tensors should have equal shardings"):
        found = ms.jit(lambda *x: ms.grad(net, (0, 1))(*x))(*inputs)
    for mine, theirs in zip(found, gradients, strict=True):
        np.testing.assert_allclose(mine.asnumpy(), theirs.asnumpy(), rtol=1e-5, atol=1e-7)
    with pytest.raises(RuntimeError, match="tensors must have equal shardings"):
        Between(ops.Add().shard(strategy))(*inputs)


def alignments(logits, labels):
    """Negative log-probability of `labels`, by adding up every path (blank is 0)."""
    probabilities = np.exp(log_softmax(logits, -1))
    total = 0.0
    for path in itertools.product(range(logits.shape[1]), repeat=len(logits)):
        merged = [step for step, _ in itertools.groupby(path)]
        if [step for step in merged if step] == labels:
            total += np.prod(probabilities[range(len(path)), path])
    return -np.log(total)


@pytest.mark.parametrize(("steps", "labels"), [(4, [1, 2]), (4, [1, 1]), (3, [2]), (3, [])])
def test_ctc_is_the_sum_over_all_alignments(steps, labels):
    logits = numbers(4, 2, 3)
    padded = np.array([labels + [1] * (2 - len(labels)), [2, 1]])
    call = lambda x: ops.ctc_loss(
        ops.log_softmax(x), Tensor(padded), Tensor([steps, 4]), Tensor([len(labels), 2]), reduction="none"
    )[0]
    expected = np.array([alignments(logits[:steps, 0], labels), alignments(logits[:, 1], [2, 1])])
    check(case(call, lambda x: expected, logits, grad=False))
    check(case(call, None, logits))


def test_ctc_of_what_cannot_be_aligned():
    call = lambda x, zero: ops.ctc_loss(
        ops.log_softmax(x), Tensor([[1, 1]]), Tensor([2]), Tensor([2]), zero_infinity=zero
    )[0]
    x = Tensor(numbers(2, 1, 3))
    assert call(x, False).item() == float("inf") and call(x, True).item() == 0
    assert ms.grad(lambda x: call(x, True))(x).asnumpy().tolist() == np.zeros((2, 1, 3)).tolist()


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ops.kl_div(Tensor(A), Tensor(Q), "average"), ValueError, "'reduction' must be one of"),
        (lambda: ops.BinaryCrossEntropy()(Tensor(P), Tensor(Q[:1])), ValueError, "one shape"),
        (lambda: ops.huber_loss(Tensor(A), Tensor(B), delta=0.0), ValueError, "positive"),
        (lambda: ops.multi_margin_loss(Tensor(A), Tensor(CLASSES), p=3), ValueError, "'p' must be one of"),
        (lambda: ops.cosine_embedding_loss(Tensor(A), Tensor(B), Tensor([1, 1, 1]), 2.0), ValueError, r"\[-1, 1\]"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()
