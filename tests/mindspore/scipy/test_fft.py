"""Cosine transforms; values are SciPy's."""

import numpy as np
import pytest
import scipy.fft as sf

import sporax.mindspore as ms
from sporax.mindspore import Tensor
from sporax.mindspore.scipy import fft

X = np.random.default_rng(0).standard_normal((3, 4))


@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE])
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("dct", {}),
        ("dct", {"n": 3, "axis": 0}),
        ("idct", {"n": 6}),
        ("dctn", {}),
        ("dctn", {"s": (2, 3), "axes": (0, 1)}),
        ("idctn", {"axes": (1,)}),
    ],
)
def test_values_are_scipys(name, settings, mode):
    ms.set_context(mode=mode)
    found = ms.jit(lambda x: getattr(fft, name)(x, 2, **settings))(Tensor(X))
    np.testing.assert_allclose(found.asnumpy(), getattr(sf, name)(X, 2, **settings, norm="ortho"), atol=1e-9)
    weights = Tensor(np.arange(found.size, dtype=float).reshape(found.shape))
    gradient = ms.grad(lambda x: (getattr(fft, name)(x, **settings) * weights).sum())(Tensor(X)).asnumpy()
    whole = getattr(sf, name)(X, 2, **settings, norm="ortho")
    assert np.sum(gradient * X) == pytest.approx(np.sum(whole * weights.asnumpy()))  # it is linear


def test_integers_are_computed_in_float32_and_other_types_refused():
    assert fft.dct(Tensor([1, 2, 3])).dtype == ms.float32
    for settings in ({"type": 1}, {"norm": "backward"}):
        with pytest.raises(ValueError, match="For 'DCT'"):
            fft.dct(Tensor([1.0, 2.0]), **settings)
