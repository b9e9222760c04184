"""Data types: names, comparisons, conversions between worlds."""

import copy
import pickle

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore.common import dtype as dtypes


def test_dtypes_are_printed_with_names_of_mindspore():
    assert (str(ms.float32), repr(ms.float32), str(ms.bool_)) == ("Float32", "mindspore.float32", "Bool")
    assert (ms.half, ms.double, ms.long) == (ms.float16, ms.float64, ms.int64)


def test_a_dtype_equals_no_numpy_type():
    assert ms.float32 != np.float32
    assert ms.float32 != "float32"
    assert len({ms.float32, ms.single, ms.int32}) == 2
    for duplicate in (copy.copy, copy.deepcopy, lambda d: pickle.loads(pickle.dumps(d))):
        assert duplicate(ms.bfloat16) is ms.bfloat16


@pytest.mark.parametrize("dtype", dtypes.all_types, ids=str)
def test_round_trip(dtype):
    assert dtypes.from_numpy(dtype.np_dtype) is dtype
    assert dtypes.to_dtype(dtype.np_dtype.name) is dtype
    assert ms.dtype_to_nptype(dtype) is dtype.np_dtype.type
    assert dtype.itemsize == np.zeros(1, dtype.np_dtype).itemsize


def test_dtypes_know_their_kind():
    assert [ms.bfloat16.is_floating_point, ms.int8.is_floating_point, ms.complex64.is_complex] == [True, False, True]
    assert [ms.int8.is_signed, ms.uint8.is_signed, ms.bool_.is_signed] == [True, False, False]


def test_python_types():
    assert [ms.pytype_to_dtype(kind) for kind in (bool, int, float)] == [ms.bool_, ms.int64, ms.float64]
    assert [ms.dtype_to_pytype(kind) for kind in (ms.bool_, ms.uint8, ms.bfloat16, ms.complex64)] == [
        bool,
        int,
        float,
        complex,
    ]
    assert dtypes.to_dtype(float) == ms.float32


def test_unknown_types():
    with pytest.raises(TypeError, match="but got 'float33'"):
        dtypes.to_dtype("float33")
    with pytest.raises(TypeError, match="has no counterpart"):
        ms.Tensor(np.array(["a"]))
