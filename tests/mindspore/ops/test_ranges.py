"""In MindSpore's compiled code `range(…)` is a tuple: operators take it as shape, axes and values (the wheel's results)."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, ops


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: ops.tuple_to_array(range(x.shape[1])), [0, 1, 2]),
        (lambda x: Tensor(range(3)), [0, 1, 2]),
        (lambda x: ops.transpose(x, range(1, -1, -1)), [[0, 3], [1, 4], [2, 5]]),
        (lambda x: ops.ReduceSum()(x, range(2)), 15),
        (lambda x: ops.reduce_sum(x, axis=range(1)), [3, 5, 7]),
        (lambda x: x.reshape(range(3, 1, -1)), [[0, 1], [2, 3], [4, 5]]),
    ],
)
def test_ranges_are_tuples(function, expected):
    x = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3))

    @ms.jit
    def compiled(x):
        return function(x)

    assert compiled(x).asnumpy().tolist() == expected
