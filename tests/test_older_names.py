"""Names that older or inner code of MindSpore's users imports from unusual places."""

import numpy as np
import pytest

import sporax as ms
from sporax import Tensor, nn, ops
from sporax._extends import cell_attr_register
from sporax.common import JitConfig
from sporax.common import dtype as mstype
from sporax.ops import composite as C
from sporax.ops import functional as F
from sporax.ops._primitive_cache import _get_cache_prim
from sporax.train.model import ParallelMode


def test_metrics_in_nn():
    assert nn.Metric is ms.train.Metric
    assert nn.Top1CategoricalAccuracy is ms.train.Top1CategoricalAccuracy


def test_ones_and_zeros_like_of_structures():
    ones, (zeros,) = C.ones_like((Tensor([1, 2]), (Tensor([3.0]),)))
    assert (ones.asnumpy().tolist(), ones.dtype, zeros.asnumpy().tolist()) == ([1, 1], ms.int64, [1.0])
    assert C.zeros_like({"a": Tensor([2.0])})["a"].asnumpy().tolist() == [0.0]


def test_functions_of_python_values():
    assert (F.make_range(3), F.make_range(1, 7, 2)) == ((0, 1, 2), (1, 3, 5))
    assert (F.tuple_len((1, 2)), F.list_len([1]), F.tuple_getitem((4, 5), 1), F.make_tuple(1, 2)) == (2, 1, 5, (1, 2))
    assert (F.tuple_reversed((1, 2)), F.shape_mul((2, 3)), F.is_(None, None), F.bool_not(1)) == ((2, 1), 6, True, False)


def test_the_random_stream_continues_where_it_was():
    ms.manual_seed(3)
    state = ms.get_rng_state()
    first = ops.standard_normal((2,)).asnumpy()
    ms.set_rng_state(state)
    np.testing.assert_array_equal(ops.standard_normal((2,)).asnumpy(), first)
    with pytest.raises(ValueError, match="must be UInt32 of shape"):
        ms.set_rng_state(Tensor([1.0]))


def test_deterministic():
    ms.set_deterministic(False)
    assert ms.get_context("deterministic") == "OFF"
    with pytest.raises(TypeError, match="'deterministic' must be bool, but got int"):
        ms.set_deterministic(1)


def test_kinds_of_dtypes():
    assert isinstance(ms.float32, mstype.Float)
    assert not isinstance(ms.bfloat16, mstype.Float)
    assert not isinstance(ms.int8, mstype.Float)
    assert isinstance(ms.uint8, mstype.Number)
    assert not isinstance(ms.uint8, mstype.Int)


def test_matmul_as_a_layer():
    a, b = np.arange(6, dtype=np.float32).reshape(3, 2), np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_allclose(nn.MatMul(transpose_x1=True)(Tensor(a), Tensor(b)).asnumpy(), a.T @ b)
    np.testing.assert_allclose(nn.MatMul(True)(Tensor(a[:, 0]), Tensor(b)).asnumpy(), a[:, 0] @ b)


def test_round_of_numpy():
    np.testing.assert_allclose(ms.numpy.round(Tensor([1.26, -2.5]), 1).asnumpy(), [1.3, -2.5], rtol=1e-6)
    assert ms.numpy.around(Tensor([1.5, 2.5])).asnumpy().tolist() == [2, 2]


def test_jit_config_checks_its_values():
    assert JitConfig(jit_level="O1").jit_config_dict["jit_level"] == "O1"
    with pytest.raises(ValueError, match="'jit_level' must be one of"):
        JitConfig(jit_level="O9")


def test_decorators_and_helpers_that_give_their_argument():
    @cell_attr_register
    def constructor(self):
        return 1

    assert constructor(None) == 1
    assert cell_attr_register(attrs=["a"])(constructor) is constructor
    assert _get_cache_prim(ops.ReLU)()(Tensor([-1.0])).asnumpy().tolist() == [0]
    assert ParallelMode.AUTO_PARALLEL == "auto_parallel"
