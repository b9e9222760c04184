"""Operators on int8 against plain numpy, and on eight devices against one."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn
from sporax.mindspore.ops import auto_generate as gen
from sporax.mindspore.ops.operations import AntiQuant, Dequant, Quant

RANDOM = np.random.RandomState(0)
X = (RANDOM.randn(8, 16) * 3).astype(np.float32)
SCALE = RANDOM.rand(16).astype(np.float32) * 20
OFFSET = RANDOM.randn(16).astype(np.float32)
ROUNDED = {"ROUND": np.round, "FLOOR": np.floor, "CEIL": np.ceil, "TRUNC": np.trunc}


def int8(values):
    return np.clip(values, -128, 127).astype(np.int8)


@pytest.mark.parametrize("how", ROUNDED)
def test_numbers_become_int8(how):
    result = gen.QuantV2()(Tensor(X), Tensor(SCALE), Tensor(OFFSET), False, how, ms.int8)
    assert result.dtype == ms.int8
    np.testing.assert_array_equal(result.asnumpy(), int8(ROUNDED[how](X * SCALE + OFFSET)))
    twice = Quant(2.0, 1.0, True, how.capitalize())(Tensor(X))
    np.testing.assert_array_equal(twice.asnumpy(), int8(ROUNDED[how](X * 4 + 1)))


def test_int8_becomes_numbers():
    whole = RANDOM.randint(-50, 50, (4, 8)).astype(np.int32)
    packed = SCALE[:8].view(np.uint32).astype(np.int64)
    result = Dequant(False, True)(Tensor(whole), Tensor(packed))
    assert result.dtype == ms.float16
    np.testing.assert_allclose(result.asnumpy(), np.maximum(whole * SCALE[:8], 0), rtol=1e-3)
    result = AntiQuant(False, ms.float32)(Tensor(whole.astype(np.int8)), Tensor(SCALE[:8]), Tensor(OFFSET[:8]))
    np.testing.assert_allclose(result.asnumpy(), SCALE[:8] * (whole + OFFSET[:8]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("smooth", [None, SCALE])
def test_scales_of_rows(smooth):
    result, scale = gen.DynamicQuantExt()(Tensor(X), None if smooth is None else Tensor(smooth))
    values = X if smooth is None else X * smooth
    np.testing.assert_allclose(scale.asnumpy(), np.abs(values).max(-1) / 127, rtol=1e-6)
    np.testing.assert_allclose(result.asnumpy(), np.round(values / scale.asnumpy()[:, None]), atol=1)
    assert not gen.DynamicQuantExt()(Tensor(np.zeros((2, 3), np.float32)))[0].asnumpy().any()


A, B = RANDOM.randint(-20, 20, (4, 6, 8)).astype(np.int8), RANDOM.randint(-20, 20, (8, 16)).astype(np.int8)
BIAS = RANDOM.randint(-9, 9, 16).astype(np.int32)
PRODUCT = A.astype(np.int32) @ B.astype(np.int32)


@pytest.mark.parametrize("transposed", [False, True])
def test_products_of_int8(transposed):
    inputs = (A.swapaxes(1, 2), B.T) if transposed else (A, B)
    scale, offset, tokens = SCALE / 1000, OFFSET, RANDOM.rand(6).astype(np.float32)
    operator = gen.QuantBatchMatmul(transposed, transposed, ms.float32)
    result = operator(*map(Tensor, (*(a.copy() for a in inputs), scale, offset, BIAS)))
    np.testing.assert_allclose(result.asnumpy(), (PRODUCT + BIAS) * scale + offset, rtol=1e-5, atol=1e-5)
    by_token = operator(*map(Tensor, (*(a.copy() for a in inputs), scale)), None, None, Tensor(tokens))
    np.testing.assert_allclose(by_token.asnumpy(), PRODUCT * scale * tokens[:, None], rtol=1e-5, atol=1e-5)


def test_products_with_a_matrix_of_int8():
    x = X[:4, :8]
    operator = gen.WeightQuantBatchMatmul()
    matrix = (B + OFFSET) * SCALE
    result = operator(*map(Tensor, (x, B, SCALE, OFFSET)), None, None, Tensor(OFFSET))
    np.testing.assert_allclose(result.asnumpy(), x @ matrix + OFFSET, rtol=1e-4, atol=1e-3)
    again = operator(*map(Tensor, (x, B, SCALE)), None, Tensor(np.float32([0.01])), Tensor(np.float32([3])))
    expected = int8(np.round(x @ (B * SCALE) * 0.01 + 3))
    np.testing.assert_allclose(again.asnumpy(), expected, atol=1)
    with pytest.raises(ValueError, match="'bias' must have a number for each of the 16 columns"):
        operator(*map(Tensor, (x, B, SCALE)), bias=Tensor(OFFSET[:3]))


@pytest.mark.parametrize("transposed", [False, True])
def test_scales_of_groups_of_rows(transposed):
    x = X[:4, :8]
    scales = RANDOM.rand(2, 16).astype(np.float32)
    weight, by_group = (B.T.copy(), scales.T.copy()) if transposed else (B, scales)
    result = gen.WeightQuantBatchMatmul(False, transposed)(*map(Tensor, (x, weight, by_group)))
    np.testing.assert_allclose(result.asnumpy(), x @ (B * np.repeat(scales, 4, 0)), rtol=1e-4, atol=1e-3)
    with pytest.raises(ValueError, match="groups of 8 rows"):
        gen.WeightQuantBatchMatmul()(*map(Tensor, (x, B, RANDOM.rand(3, 16).astype(np.float32))))


class Net(nn.Cell):
    def __init__(self, operator):
        super().__init__()
        self.operator = operator

    def construct(self, *inputs):
        return self.operator(*inputs)


SHARDED = {
    "QuantV2": (gen.QuantV2().shard(((4, 2), (2,), (2,))), (X, SCALE, OFFSET)),
    "DynamicQuantExt": (gen.DynamicQuantExt().shard(((4, 2), (2,))), (X, SCALE)),
    "AntiQuant": (AntiQuant().shard(((4, 2), (2,), (1,))), (A[:, 0], SCALE[:8], OFFSET[:1])),
    "Dequant": (Dequant().shard(((2, 4), (4,))), (PRODUCT[:, 0], SCALE.astype(np.float16))),
    "QuantBatchMatmul": (
        gen.QuantBatchMatmul().shard(((2, 1, 2), (2, 2), (2,), (2,), (2,))),
        (A, B, SCALE / 1000, OFFSET, BIAS),
    ),
    "WeightQuantBatchMatmul": (
        gen.WeightQuantBatchMatmul(True).shard(((2, 1), (2, 4), (1, 4), (1, 4))),
        (X[:, :4], B, RANDOM.rand(2, 16).astype(np.float32), RANDOM.rand(2, 16).astype(np.float32)),
    ),
}


@pytest.mark.parametrize("name", SHARDED)
def test_eight_devices_as_one(name, eight_devices):
    operator, inputs = SHARDED[name]
    net = Net(operator)
    expected = net(*map(Tensor, inputs))
    eight_devices()
    actual = Net(operator)(*map(Tensor, inputs))
    for one, other in zip(
        *((values if isinstance(values, tuple) else (values,)) for values in (actual, expected)), strict=True
    ):
        np.testing.assert_allclose(one.asnumpy(), other.asnumpy(), rtol=2e-3, atol=1e-3)


def test_rows_and_columns_of_a_product_are_sharded_as_they_fit(eight_devices):
    eight_devices()
    inputs = [*map(Tensor, (A, B, SCALE))]
    with pytest.raises(RuntimeError, match="QuantBatchMatmul"):
        Net(gen.QuantBatchMatmul().shard(((1, 1, 2), (4, 2), (2,))))(*inputs)
    with pytest.raises(RuntimeError, match="QuantBatchMatmul"):
        Net(gen.QuantBatchMatmul().shard(((1, 1, 2), (2, 2), (4,))))(*inputs)
