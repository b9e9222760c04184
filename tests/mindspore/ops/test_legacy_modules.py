"""The modules older scripts take operators from: `from mindspore.ops import operations as P, functional as F`."""

import numpy as np
import pytest

from sporax.mindspore import Tensor, ops
from sporax.mindspore.ops import composite as C, functional as F, operations as P


def test_they_hand_out_the_operators_themselves():
    assert P.MatMul is ops.MatMul
    assert F.tanh is ops.tanh
    assert F.grad is ops.grad
    assert C.HyperMap is ops.HyperMap
    assert C.GradOperation is ops.GradOperation


def test_a_gradient_written_with_them():
    def loss(x):
        return F.reduce_sum(P.Square()(x))

    gradient = C.GradOperation(get_all=True)(loss)(Tensor(np.array([1.0, 2.0], np.float32)))
    np.testing.assert_allclose(gradient[0].asnumpy(), [2.0, 4.0])


@pytest.mark.parametrize("module", ["composite", "functional", "operations"])
def test_names_they_do_not_have_are_said(module):
    exec(f"from sporax.mindspore.ops.{module} import Nothing", namespace := {})
    with pytest.raises(NotImplementedError, match=f"For 'sporax.mindspore.ops.{module}', .* docs/api.md"):
        namespace["Nothing"]()


@pytest.mark.parametrize("module", [C, F, P])
def test_every_name_promised_is_there(module):
    assert all(hasattr(module, name) for name in module.__all__)
