import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from operator_cases import case, check, numbers

import sporax.mindspore as ms
from sporax.mindspore import Tensor, mint, ops

A = numbers(3, 4)
H = np.where(A > 0.9, np.nan, A)
I = np.array([3, 1, 1, 0, 3, 3])

CASES = {
    "amax": case(lambda x: ops.amax(x, 1), lambda x: x.max(1), A),
    "amin": case(lambda x: ops.amin(x, (0, 1), True), lambda x: x.min((0, 1), keepdims=True), A),
    "amax where": case(lambda x: ops.amax(x, 0, initial=-9.0, where=x < 0.5), lambda x: np.max(x, 0, initial=-9.0, where=x < 0.5), A),
    "mint.amax": case(mint.amax, np.max, A),
    "aminmax": case(lambda x: ops.aminmax(x, axis=1), lambda x: (x.min(1), x.max(1)), A),
    "ptp": case(lambda x: x.ptp(1), lambda x: np.ptp(x, 1), A),
    "Argmin": case(ops.Argmin(), lambda x: x.argmin(-1), A, grad=False),
    "median": case(lambda x: ops.median(x, 0)[0], lambda x: np.median(x, 0), A),
    "lower median": case(lambda x: ops.median(x)[0], lambda x: np.sort(x)[:, 1], A),
    "Median of all": case(lambda x: ops.Median(True)(x)[0], lambda x: np.sort(x.ravel())[5], A),
    "nanmedian": case(lambda x: ops.nanmedian(x, 0, True)[0], lambda x: np.nanquantile(x, 0.5, 0, keepdims=True, method="lower"), H, grad=False),
    "quantile": case(lambda x: ops.quantile(x, 0.3, 1), lambda x: np.quantile(x, 0.3, 1), A),
    "nanquantile": case(lambda x: ops.nanquantile(x, Tensor(np.array([0.1, 0.6])), 0), lambda x: np.nanquantile(x, [0.1, 0.6], 0), H, grad=False),
    "nansum": case(lambda x: ops.nansum(x, 1), lambda x: np.nansum(x, 1), H, grad=False),
    "nanmean": case(lambda x: ops.nanmean(x, 1), lambda x: np.nanmean(x, 1), H, grad=False),
    "std_mean": case(lambda x: ops.std_mean(x, 1), lambda x: (x.std(1), x.mean(1)), A),
    "mint.var_mean": case(lambda x: mint.var_mean(x, 1), lambda x: (x.var(1, ddof=1), x.mean(1)), A),
    "ReduceStd": case(ops.ReduceStd(1), lambda x: (x.std(1, ddof=1), x.mean(1)), A),
    "cov": case(ops.cov, np.cov, A),
    "count_nonzero": case(lambda x: ops.count_nonzero(x, 0), lambda x: np.count_nonzero(x, 0), (A > 0) * 1.0, grad=False),
    "bincount": case(ops.bincount, lambda x: np.bincount(x).astype(np.float32), I, grad=False),
    "bincount with weights": case(lambda x, w: ops.bincount(x, w, 6), lambda x, w: np.bincount(x, w, 6), I, numbers(6)),
    "histc": case(lambda x: ops.histc(x, 5, -1.0, 1.0), lambda x: np.histogram(x, 5, (-1, 1))[0] * 1.0, A, grad=False),
    "Histogram of the range": case(ops.Histogram(4), lambda x: np.histogram(x, 4)[0] * 1.0, A, grad=False),
    "CumProd": case(lambda x: ops.CumProd()(x, 1), lambda x: np.cumprod(x, 1), A),
    "CumProd exclusive": case(lambda x: ops.CumProd(True)(x, 0), lambda x: np.vstack([np.ones(4), np.cumprod(x, 0)[:-1]]), A),
    "CumProd reverse": case(lambda x: ops.CumProd(reverse=True)(x, 1), lambda x: np.cumprod(x[:, ::-1], 1)[:, ::-1], A),
    "cumprod of ints": case(lambda x: ops.cumprod(x, 0), lambda x: np.cumprod(x), I.astype(np.int32), grad=False),
    "Cummax": case(lambda x: ops.cummax(x, 1)[0], lambda x: np.maximum.accumulate(x, 1), A),
    "Cummin": case(lambda x: ops.Cummin(0)(x)[0], lambda x: np.minimum.accumulate(x, 0), A),
    "logcumsumexp": case(lambda x: ops.logcumsumexp(x, 1), lambda x: np.log(np.cumsum(np.exp(x), 1)), A),
    "diff": case(lambda x: ops.diff(x, 2), lambda x: np.diff(x, 2), A),
    "diff with ends": case(lambda x, y: ops.diff(x, axis=0, prepend=y), lambda x, y: np.diff(x, axis=0, prepend=y), A, numbers(2, 4)),
    "trapz": case(lambda x: ops.trapz(x, dx=0.5, dim=0), lambda x: np.trapezoid(x, dx=0.5, axis=0), A),
    "trapz at points": case(ops.trapz, np.trapezoid, A, np.array([0.0, 1, 3, 4])),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operator_equals_its_reference_formula(name):
    check(CASES[name])


@settings(max_examples=8, deadline=None)
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=6))
def test_running_maximum_says_where(values):
    """The position is that of the last element that equals the maximum so far."""
    values = np.array(values)
    tops, places = (item.asnumpy() for item in ops.cummax(Tensor(values), 0))
    assert tops.tolist() == np.maximum.accumulate(values).tolist()
    for at, place in enumerate(places):
        head = values[: at + 1]
        assert place == np.flatnonzero(head == head.max())[-1]


def test_dtypes_of_positions_and_counts():
    x = Tensor(A.astype(np.float32))
    assert ops.Argmin()(x).dtype == ms.int32
    assert ops.median(x)[1].dtype == ms.int64
    assert ops.count_nonzero(x).dtype == ms.int32
    assert mint.count_nonzero(x).dtype == ms.int64
    assert ops.histc(Tensor([1, 2, 2], ms.int32), 2).dtype == ms.int32


def test_nan_is_its_own_median():
    values, at = ops.median(Tensor([1.0, float("nan"), 0.0]))
    assert np.isnan(values.item()) and at.item() == 1


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ops.amax(Tensor(A), where=Tensor(A > 0)), ValueError, "'initial' must be given"),
        (lambda: ops.bincount(Tensor([-1])), ValueError, "not be negative"),
        (lambda: ops.bincount(Tensor([-1.0])), ValueError, "must not be negative"),
        (lambda: ops.cummax(Tensor(A), 2), ValueError, "axis"),
        (lambda: ops.histc(Tensor(A), 0), ValueError, "'bins' must be > 0"),
        (lambda: ops.median(Tensor(np.zeros((0,)))), ValueError, "must not be empty"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()
