import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.mindspore import nn
from sporax.mindspore.parallel.nn import PipelineGradReducer


@pytest.fixture
def weights():
    return nn.Dense(2, 2).trainable_params()


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
@pytest.mark.parametrize("opt_shard", [None, False, True])
def test_gradients_are_divided_and_keep_their_dtype(weights, mode, opt_shard):
    ms.set_context(mode=mode)
    grads = ms.Tensor(np.full((2, 2), 8, np.float16)), ms.Tensor(np.full(2, 4, np.float32))
    first, second = PipelineGradReducer(ms.ParameterTuple(weights), 4.0, opt_shard)(grads)
    np.testing.assert_array_equal(first.asnumpy(), np.full((2, 2), 2, np.float16))
    np.testing.assert_array_equal(second.asnumpy(), np.ones(2, np.float32))
    assert (first.dtype, second.dtype) == (ms.float16, ms.float32)


def test_by_default_nothing_is_divided(weights):
    grads = ms.Tensor(np.ones((2, 2), np.float32)), ms.Tensor(np.ones(2, np.float32))
    assert all((grad.asnumpy() == 1).all() for grad in PipelineGradReducer(weights)(grads))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"parameters": 3}, SporaxTypeError),
        ({"parameters": [3]}, SporaxTypeError),
        ({"scale_sense": "a"}, SporaxTypeError),
        ({"scale_sense": 0.0}, SporaxValueError),
        ({"opt_shard": 3}, SporaxTypeError),
    ],
)
def test_arguments_that_are_no_parameters_are_refused(weights, arguments, error):
    with pytest.raises(error):
        PipelineGradReducer(**{"parameters": weights} | arguments)


def test_one_gradient_per_parameter(weights):
    with pytest.raises(SporaxValueError, match="each of the 2 Parameters, but got 1"):
        PipelineGradReducer(weights)((ms.Tensor([1.0]),))
