"""Rotary position embedding against plain numpy, and on eight devices against one."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, ops
from sporax.mindspore.ops import auto_generate as gen

RANDOM = np.random.RandomState(0)
X = RANDOM.randn(4, 3, 2, 8).astype(np.float32)
COS, SIN = RANDOM.randn(2, 4, 3, 1, 8).astype(np.float32)


def halves(x, cos=COS, sin=SIN):
    return x * cos + np.concatenate([-x[..., 4:], x[..., :4]], -1) * sin


def neighbours(x, cos=COS, sin=SIN):
    partner = np.stack([-x[..., 1::2], x[..., ::2]], -1).reshape(x.shape)
    return x * cos + partner * sin


@pytest.mark.parametrize(("mode", "expected"), [(0, halves), (1, neighbours)])
def test_pairs_are_turned(mode, expected):
    x, cos, sin = map(Tensor, (X, COS, SIN))
    np.testing.assert_allclose(
        ops.rotary_position_embedding(x, cos, sin, mode).asnumpy(), expected(X), rtol=1e-5, atol=1e-6
    )
    # The operator of the gradient, against the gradient of the operator.
    weight = Tensor(RANDOM.randn(*X.shape).astype(np.float32))

    def loss(*inputs):
        return (ops.rotary_position_embedding(*inputs, mode) * weight).sum()

    for actual, wanted in zip(
        gen.RotaryPositionEmbeddingGrad()(weight, cos, sin, x, mode), ms.grad(loss, (0, 1, 2))(x, cos, sin), strict=True
    ):
        np.testing.assert_allclose(actual.asnumpy(), wanted.asnumpy(), rtol=1e-4, atol=1e-5)


def test_shapes_that_do_not_fit():
    for cos in (COS[..., :4], COS[:2]):
        with pytest.raises(ValueError, match="must have the shape of 'x'"):
            ops.rotary_position_embedding(Tensor(X), Tensor(cos), Tensor(cos))


class Net(nn.Cell):
    def __init__(self, operator):
        super().__init__()
        self.operator = operator

    def construct(self, *inputs):
        return self.operator(*inputs)


STRATEGY = ((4, 1, 2, 1), (4, 1, 1, 1), (4, 1, 1, 1))


def test_batch_and_heads_on_eight_devices(eight_devices):
    eight_devices()
    result = Net(gen.RotaryPositionEmbedding().shard(STRATEGY))(*map(Tensor, (X, COS, SIN)))
    np.testing.assert_allclose(result.asnumpy(), halves(X), rtol=1e-5, atol=1e-6)
    with pytest.raises(RuntimeError, match="dimension 3 of tensor 0 must stay whole"):
        Net(gen.RotaryPositionEmbedding().shard(((4, 1, 1, 2),) * 3))(*map(Tensor, (X, COS, SIN)))


TABLE = RANDOM.randn(2, 16, 8).astype(np.float32)
QUERY, KEY = RANDOM.randn(2, 4, 3, 32).astype(np.float32)


@pytest.mark.parametrize("cos_format", [0, 1, 2, 3])
@pytest.mark.parametrize("per_sequence", [False, True])
def test_queries_and_keys_by_position(cos_format, per_sequence):
    query, key = (QUERY[:, :1], KEY[:, :1]) if per_sequence else (QUERY, KEY)
    positions = RANDOM.randint(0, 16, 4 if per_sequence else 3).astype(np.int32)
    cos, sin = TABLE[:, positions][:, :, None] if per_sequence else TABLE[:, positions][:, None]
    given = TABLE
    if cos_format >= 2:
        given = np.stack([np.broadcast_to(a, (*query.shape[:2], 8)).reshape(-1, 8) for a in (cos, sin)])
    results = ops.ApplyRotaryPosEmb(cos_format)(*map(Tensor, (query, key, given[0], given[1], positions)))
    turned = neighbours if cos_format % 2 else halves
    for result, x in zip(results, (query, key), strict=True):
        expected = turned(x.reshape(*x.shape[:2], 4, 8), cos[:, :, None], sin[:, :, None]).reshape(x.shape)
        np.testing.assert_allclose(result.asnumpy(), expected, rtol=1e-5, atol=1e-6)


def test_queries_of_four_dimensions_on_eight_devices(eight_devices):
    eight_devices()
    strategy = ((4, 1, 2, 1), (4, 1, 2, 1), (1, 1, 1, 1), (1, 1, 1, 1), (1,))
    results = Net(ops.ApplyRotaryPosEmb(1).shard(strategy))(*map(Tensor, (X, X, COS, SIN, np.ones(4, np.int32))))
    for result in results:
        np.testing.assert_allclose(result.asnumpy(), halves(X), rtol=1e-5, atol=1e-6)


def test_heads_stay_whole(eight_devices):
    eight_devices()
    inputs = [*map(Tensor, (QUERY, KEY, TABLE[0], TABLE[1], np.arange(3, dtype=np.int32)))]
    whole = ((1, 1), (1, 1), (1,))
    result, _ = Net(ops.ApplyRotaryPosEmb(0).shard(((2, 1, 4), (2, 1, 4), *whole)))(*inputs)
    expected = halves(QUERY.reshape(4, 3, 4, 8), TABLE[0, :3][:, None], TABLE[1, :3][:, None]).reshape(QUERY.shape)
    np.testing.assert_allclose(result.asnumpy(), expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(RuntimeError, match="between heads of size 8"):
        Net(ops.ApplyRotaryPosEmb(0).shard(((1, 1, 8), (1, 1, 8), *whole)))(*inputs)
