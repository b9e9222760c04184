"""Operators that convert, copy and make tensors, against numpy."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import ops


def test_conversions_give_the_named_dtype():
    x = ms.Tensor([1.7, -2.2])
    for name, dtype in (("int", ms.int32), ("long", ms.int64), ("half", ms.float16), ("bool", ms.bool_)):
        assert getattr(x, name)().dtype == dtype
    np.testing.assert_array_equal(x.int().asnumpy(), [1, -2])
    assert x.astype("float16").dtype == x.astype(np.float16).dtype == ops.cast(x, ms.float16).dtype == ms.float16
    assert x.astype(ms.float32, copy=False) is x
    with pytest.raises(TypeError, match="the type of 'dtype' must be dtype, but got str: 'float16'"):
        ops.Cast()(x, "float16")


def test_filled_tensors_have_value_shape_and_dtype():
    like = ms.Tensor([[1, 2]], ms.int32)
    rows = [
        (ops.zeros((2, 3)), np.zeros((2, 3), "f")),
        (ops.ones([2]), np.ones(2, "f")),
        (ops.ones(3, ms.int8), np.ones(3, np.int8)),
        (ops.full((2,), 7), np.full(2, 7)),
        (ops.full((), 1.5), np.float32(1.5)),
        (ops.full_like(like, 4), np.array([[4, 4]], np.int32)),
        (ops.zeros_like(like), np.zeros((1, 2), np.int32)),
        (ops.ones_like(like, dtype=ms.float16), np.ones((1, 2), np.float16)),
        (ops.arange(3), np.arange(3)),
        (ops.arange(1, 2, 0.25), np.arange(1, 2, 0.25, "f")),
        (ops.arange(5, 0, -2, dtype=ms.float32), np.array([5, 3, 1], "f")),
        (ops.eye(2, 3), np.eye(2, 3, dtype="f")),
        (ops.linspace(0, 1, 5), np.linspace(0, 1, 5, dtype="f")),
        (like.fill(9), np.array([[9, 9]], np.int32)),
    ]
    for ours, expected in rows:
        assert ours.asnumpy().dtype == expected.dtype
        np.testing.assert_array_equal(ours.asnumpy(), expected)
