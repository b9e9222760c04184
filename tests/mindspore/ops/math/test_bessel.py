"""Bessel functions against scipy, on both sides of where their forms meet."""

import numpy as np
import pytest
from operator_cases import check_gradient
from scipy import special as sc

import sporax.mindspore as ms
from sporax.mindspore import ops

NAMES = ("j0", "j1", "y0", "y1", "k0", "k1", "k0e", "k1e")
X = np.array([1e-6, 0.03, 0.7, 1.99, 2.01, 5.3, 7.99, 8.01, 12.7, 40.2, 300.3])


@pytest.mark.parametrize("name", NAMES)
def test_values_and_gradients(name):
    ours, reference = getattr(ops, f"bessel_{name}"), getattr(sc, name)
    np.testing.assert_allclose(ours(ms.Tensor(X)).asnumpy(), reference(X), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(ours(ms.Tensor(X, ms.float32)).asnumpy(), reference(X), rtol=4e-5, atol=1e-6)
    if name in ("j1", "y0", "k1", "k0e"):  # each form once
        check_gradient(ours, (X[1:],))


def test_around_zero():
    x = ms.Tensor([0.0, -1.5])
    np.testing.assert_allclose(ops.bessel_j0(x).asnumpy(), sc.j0([0, -1.5]), rtol=1e-6)
    np.testing.assert_allclose(ops.bessel_j1(x).asnumpy(), sc.j1([0, -1.5]), rtol=1e-6)
    np.testing.assert_allclose(ms.grad(ops.bessel_j1)(x).asnumpy(), sc.jvp(1, [0, -1.5]), rtol=1e-6)
    np.testing.assert_array_equal(ops.BesselY1()(x).asnumpy(), [-np.inf, np.nan])
    np.testing.assert_array_equal(ops.BesselK0e()(x).asnumpy(), [np.inf, np.nan])
    assert ops.BesselJ0()(ms.Tensor([0.5], ms.float16)).dtype == ms.float16
