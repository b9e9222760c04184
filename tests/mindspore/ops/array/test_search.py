"""Class forms that count, search and choose; values of MindSpore are in `cases/sequences.cases`."""

import numpy as np
import pytest
from operator_cases import case, check, numbers
from scipy import special as sc

import sporax.mindspore as ms
from sporax.mindspore import Tensor, ops

X = numbers(3, 4)
INT = np.array([0, 2, 2, 1])

CASES = {
    "CountNonZero": case(ops.CountNonZero((1,)), lambda x: np.count_nonzero(x, 1), (X > 0) * X, grad=False),
    "HistogramFixedWidth": case(
        ops.HistogramFixedWidth(4), lambda x, r: np.histogram(np.clip(x, -1, 1), 4, (-1, 1))[0], X, np.array([-1.0, 1.0]),
        grad=False,
    ),
    "Quantile": case(lambda x: ops.Quantile(1, True)(x, 0.3), lambda x: np.quantile(x, 0.3, 1, keepdims=True), X),
    "Quantile without NaN": case(
        lambda x: ops.Quantile(0, ignore_nan=True)(x, 0.5), lambda x: np.nanmedian(x, 0),
        np.where(X > 1, np.nan, X), grad=False,
    ),
    "EuclideanNorm": case(
        lambda x: ops.EuclideanNorm(True)(x, Tensor([1])), lambda x: np.linalg.norm(x, axis=1, keepdims=True), X
    ),
    "CumulativeLogsumexp": case(
        lambda x: ops.CumulativeLogsumexp()(x, 1),
        lambda x: np.logaddexp.accumulate(x, 1), X,
    ),
    "Mvlgamma": case(ops.Mvlgamma(2), lambda x: np.vectorize(sc.multigammaln)(x, 2), np.abs(X) + 1),
    "NthElement": case(lambda x: ops.NthElement(True)(x, 1), lambda x: np.sort(x, 1)[:, -2], X),
    "FillDiagonal": case(ops.FillDiagonal(2.0), None, X),
    "bidense": case(
        ops.bidense, lambda a, b, w, c: np.einsum("ni,oij,nj->no", a, w, b) + c,
        X, numbers(3, 2, seed=1), numbers(2, 4, 2, seed=2), numbers(2, seed=3),
    ),
    "SplitV": case(ops.SplitV([1, -1], 1, 2), lambda x: [x[:, :1], x[:, 1:]], X),
    "SpaceToBatch and back": case(
        lambda x: ops.BatchToSpace(2, ((1, 0), (0, 1)))(ops.SpaceToBatch(2, ((1, 0), (0, 1)))(x)), lambda x: x,
        numbers(1, 2, 3, 3),
    ),
    "DataFormatDimMap": case(ops.DataFormatDimMap(), lambda x: np.array([0, 3, 3, 2]), INT, grad=False),
    "DataFormatVecPermute": case(ops.DataFormatVecPermute(), lambda x: x[[0, 3, 1, 2]], INT, grad=False),
    "RGB and back": case(lambda x: ops.HSVToRGB()(ops.RGBToHSV()(x)), lambda x: x, numbers(4, 3, low=0.1, high=0.9)),
    "AdjustHue by a whole turn": case(lambda x: ops.AdjustHue()(x, 1.0), lambda x: x, numbers(2, 3, low=0.1, high=0.9)),
    "CTCLoss": case(
        lambda x: ops.CTCLoss()(x, Tensor([[0, 0], [1, 0]]), Tensor([1, 0], ms.int32), Tensor([4, 3], ms.int32))[0],
        None, numbers(4, 2, 3),
    ),
    "fractional_max_pool3d": case(
        lambda x: ops.fractional_max_pool3d(x, 2, 2, _random_samples=Tensor([[[0.1, 0.6, 0.4]]], ms.float64)), None,
        numbers(1, 1, 4, 5, 4),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operator_equals_its_reference_formula(name):
    check(CASES[name])


def test_confusion_matrix():
    labels, predictions = Tensor([0, 1, 2, 2], ms.int32), Tensor([0, 2, 2, 1], ms.int32)
    expected = [[1, 0, 0], [0, 0, 1], [0, 1, 1]]
    np.testing.assert_array_equal(ops.ConfusionMatrix(3)(labels, predictions).asnumpy(), expected)
    weighed = ops.ConfusionMatrix(3, "float32")(labels, predictions, Tensor([0.5, 1.0, 2.0, 4.0]))
    np.testing.assert_array_equal(weighed.asnumpy(), [[0.5, 0, 0], [0, 0, 1], [0, 4, 2]])


def test_in_place():
    held = ms.Parameter(Tensor([[1.0, 2.0], [3.0, 4.0]]), name="held")
    ops.InplaceIndexAdd(1)(held, Tensor([1, 1], ms.int32), Tensor([[1.0, 2.0], [3.0, 4.0]]))
    np.testing.assert_array_equal(held.asnumpy(), [[1, 5], [3, 11]])


def test_random_operators_have_their_distributions():
    ms.set_seed(1)
    assert ops.Cauchy((3000,), 2.0, 0.5)().shape == (3000,)
    np.testing.assert_allclose(np.median(ops.Cauchy([3000], 2.0, 0.5)().asnumpy()), 2.0, atol=0.1)
    np.testing.assert_allclose(ops.Bernoulli(3)(ops.zeros((2000,)), 0.25).asnumpy().mean(), 0.25, atol=0.05)
    np.testing.assert_allclose(
        np.log(ops.LogNormalReverse(1.0, 0.5)(ops.zeros((2000,))).asnumpy()).std(), 0.5, atol=0.05
    )
    ends = [Tensor(item) for item in ([0.0, 5.0], [1.0, 1.0], [-1.0, 4.0], [1.0, 6.0])]
    draws = ops.ParameterizedTruncatedNormal(seed=2)((2, 500), *ends).asnumpy()
    assert (np.abs(draws - [[0], [5]]) <= 1).all()
    assert ops.NonDeterministicInts(ms.int32)((2, 2)).dtype == ms.int32


def test_constants_of_the_program():
    @ops.constexpr
    def double(value):
        return 2 * value

    net = ms.jit(lambda x: x * double(x.shape[0]))
    np.testing.assert_array_equal(net(Tensor([1.0, 2.0])).asnumpy(), [4, 8])
    assert ops.constexpr(reuse_result=False)(double) is double


def test_arguments_that_do_not_fit_are_refused():
    x = Tensor(X)
    for call, error, words in (
        (lambda: ops.Assert()(Tensor([True, False]), [x]), RuntimeError, "condition must hold"),
        (lambda: ops.CheckNumerics()(x / 0), RuntimeError, "must be finite"),
        (lambda: ops.CTCLoss(ctc_merge_repeated=False)(*[Tensor(X[None])] * 4), TypeError, "integer type"),
        (lambda: ops.SplitV([1, 1], 1, 2)(x), ValueError, "add up to 4"),
        (lambda: ops.RGBToHSV()(x), ValueError, "3 channels in its last dim"),
        (lambda: ops.UpperBound()(x, x[0]), ValueError, "must have 2 dimensions"),
        (lambda: ops.constexpr(3), TypeError, "must be callable"),
        (lambda: ops.view_as_real(x), TypeError, "must be complex"),
        (lambda: ops.Cauchy((2,), 0.0, -1.0)(), ValueError, "'sigma' must be > 0"),
        (lambda: ops.scalar_to_tensor("a"), TypeError, "must be a number"),
    ):
        with pytest.raises(error, match=words):
            call()
