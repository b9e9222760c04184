import numpy as np
import pytest
from operator_cases import case, check, numbers
from scipy import special as sc

import sporax.mindspore as ms
from sporax.mindspore import Tensor, mint, ops

A, B = numbers(2, 3, low=0.3, high=3.0), numbers(2, 3, seed=1, low=0.3, high=3.0)
P = numbers(2, 3, low=0.1, high=0.9)

CASES = {
    "BesselI0": case(ops.BesselI0(), sc.i0, A),
    "BesselI0e": case(ops.BesselI0e(), sc.i0e, A),
    "BesselI1": case(ops.BesselI1(), sc.i1, A),
    "BesselI1e": case(ops.BesselI1e(), sc.i1e, A),
    "i0": case(ops.i0, sc.i0, A),
    "Lgamma": case(ops.Lgamma(), sc.gammaln, A),
    "Digamma": case(ops.Digamma(), sc.digamma, A),
    "polygamma": case(lambda x: ops.polygamma(2, x), lambda x: sc.polygamma(2, x), A),
    "polygamma of a tensor": case(lambda x: ops.polygamma(Tensor(1), x), lambda x: sc.polygamma(1, x), A),
    "mvlgamma": case(lambda x: ops.mvlgamma(x, 2), lambda x: np.vectorize(sc.multigammaln)(x, 2), A + 1),
    "exp2": case(ops.exp2, np.exp2, A),
    "log2": case(ops.log2, np.log2, A),
    "log10": case(ops.log10, np.log10, A),
    "sinc": case(ops.sinc, np.sinc, A),
    "logit": case(ops.logit, sc.logit, P),
    "logit limited": case(lambda x: ops.Logit(0.3)(x), lambda x: sc.logit(np.clip(x, 0.3, 0.7)), P),
    "Igamma": case(ops.Igamma(), sc.gammainc, A, B, grad=False),
    "Igammac": case(ops.Igammac(), sc.gammaincc, A, B, grad=False),
    "Betainc": case(ops.Betainc(), sc.betainc, A, B, P, grad=False),
    "Zeta": case(ops.Zeta(), sc.zeta, A + 1, B, grad=False),
    "Xlogy": case(ops.Xlogy(), sc.xlogy, A, B),
    "xlogy at 0": case(ops.xlogy, sc.xlogy, np.zeros(2), np.zeros(2), grad=False),
    "logaddexp": case(ops.logaddexp, np.logaddexp, A, B),
    "logaddexp2": case(ops.logaddexp2, np.logaddexp2, A, B),
    "logsumexp": case(lambda x: ops.logsumexp(x, 1, True), lambda x: sc.logsumexp(x, 1, keepdims=True), A),
    "float_power": case(ops.float_power, np.float_power, A, B),
    "erfinv": case(ops.erfinv, sc.erfinv, P),
}


@pytest.mark.parametrize("name", CASES)
def test_operator_equals_its_reference_formula(name):
    check(CASES[name])


def test_other_forms():
    x = Tensor(A)
    np.testing.assert_allclose(x.lgamma().asnumpy(), sc.gammaln(A))
    np.testing.assert_allclose(mint.exp2(x).asnumpy(), np.exp2(A))
    np.testing.assert_allclose(x.float_power(2).asnumpy(), A**2)


def test_integers_become_float32():
    assert ops.lgamma(Tensor([3], ms.int32)).dtype == ms.float32
    assert ops.float_power(Tensor([3], ms.int32), 2).dtype == ms.float64


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ops.polygamma(-1, Tensor(A)), ValueError, "'n' must be >= 0"),
        (lambda: ops.mvlgamma(Tensor(A), 0), ValueError, "'p' must be an int >= 1"),
        (lambda: ops.logsumexp(Tensor(A), 2), ValueError, r"\[-2, 2\)"),
        (lambda: ops.Betainc()(Tensor([1]), Tensor([1]), Tensor([1])), TypeError, "floating point"),
        (lambda: ops.igamma(Tensor(A), Tensor([1.0, 2.0])), ValueError, "broadcast"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()
