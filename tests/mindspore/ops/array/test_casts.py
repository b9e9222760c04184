"""Casts of what is nested."""

import numpy as np

import sporax.mindspore as ms
from sporax.mindspore import Tensor, ops


def test_mixed_precision_cast_changes_floats_in_tuples_and_lists():
    floats, integers = Tensor(np.ones(2), ms.float32), Tensor([1])
    result = ops.functional.mixed_precision_cast(ms.float16, (floats, integers, [floats], 2.5, {"x": floats}))
    assert isinstance(result, tuple) and isinstance(result[2], tuple)
    assert [result[0].dtype, result[1].dtype, result[2][0].dtype] == [ms.float16, ms.int64, ms.float16]
    assert result[3] == 2.5 and result[4]["x"].dtype == ms.float32
    assert ms.jit(lambda x: ops.mixed_precision_cast(ms.float16, x))(floats).dtype == ms.float16
