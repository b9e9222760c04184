"""Inner operators of mixtures of experts against plain numpy, and on eight devices against one."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, ops
from sporax.mindspore.ops import auto_generate as gen
from sporax.mindspore.ops.operations import FFN

RANDOM = np.random.RandomState(0)
X = RANDOM.randn(4, 6).astype(np.float32)
W1, W2 = RANDOM.randn(2, 6, 8).astype(np.float32), RANDOM.randn(2, 8, 6).astype(np.float32)
B1, B2 = RANDOM.randn(2, 8).astype(np.float32), RANDOM.randn(2, 6).astype(np.float32)
TOKENS = np.array([1, 3])


def fast_gelu(x):
    return x / (1 + np.exp(-1.702 * x))


def two_layers(x, w1, w2, b1, b2):
    return fast_gelu(x @ w1 + b1) @ w2 + b2


def by_expert(x=X, w1=W1, w2=W2):
    return np.concatenate(
        [two_layers(x[:1], w1[0], w2[0], B1[0], B2[0]), two_layers(x[1:], w1[1], w2[1], B1[1], B2[1])]
    )


@pytest.mark.parametrize("tokens", [Tensor(TOKENS), (1, 3)])
def test_each_row_goes_through_its_expert(tokens):
    result = gen.FFNExt("fastgelu", 1)(Tensor(X), Tensor(W1), Tensor(W2), tokens, Tensor(B1), Tensor(B2))
    np.testing.assert_allclose(result.asnumpy(), by_expert(), rtol=1e-4, atol=1e-5)


def test_one_layer_of_all_rows_and_inputs_by_name():
    result = FFN("fastgelu", 0)(*map(Tensor, (X[None], W1[0], W2[0])), bias2=Tensor(B2[0]))
    np.testing.assert_allclose(result.asnumpy()[0], two_layers(X, W1[0], W2[0], 0, B2[0]), rtol=1e-4, atol=1e-5)


def test_weights_of_int8():
    w1, w2 = (RANDOM.randint(-9, 9, w.shape).astype(np.int8) for w in (W1, W2))
    scales = [np.full((2, n), 0.1, np.float32) for n in (8, 6)]
    offsets = [np.full((2, n), 2, np.float32) for n in (8, 6)]
    result = FFN("fastgelu", 1)(
        *map(Tensor, (X, w1, w2, TOKENS, B1, B2)), None, None, None, None, *map(Tensor, (*scales, *offsets))
    )
    expected = by_expert(w1=(w1 + 2.0) * 0.1, w2=(w2 + 2.0) * 0.1)
    np.testing.assert_allclose(result.asnumpy(), expected, rtol=1e-4, atol=1e-4)


def test_everything_of_int8():
    x, w1, w2 = (RANDOM.randint(-9, 9, a.shape).astype(np.int8) for a in (X, W1[0], W2[0]))
    scale = np.full(8, 0.01, np.float32)
    packed = scale.view(np.uint32).astype(np.int64)
    b1 = np.arange(8, dtype=np.int32)
    result = FFN("relu", 1)(
        *map(Tensor, (x, w1, w2)),
        None,
        Tensor(b1),
        None,
        Tensor(np.float32([20])),
        None,
        Tensor(packed),
        Tensor(packed[:6]),
    )
    inner = np.maximum((x.astype(np.int32) @ w1 + b1) * scale, 0) * 20
    expected = np.clip(np.round(inner), -128, 127).astype(np.int32) @ w2 * 0.01
    assert result.dtype == ms.float16
    np.testing.assert_allclose(result.asnumpy(), expected, rtol=2e-3)


class Layers(nn.Cell):
    def __init__(self, strategy):
        super().__init__()
        self.ffn = gen.FFNExt("fastgelu", 1).shard(strategy)

    def construct(self, *inputs):
        return self.ffn(*inputs)


WITH_EXPERTS = ((1, 1), (1, 1, 8), (1, 8, 1), (1,), (1, 8), (1, 1))


def test_columns_of_the_first_layer_on_eight_devices(eight_devices):
    eight_devices()
    result = Layers(WITH_EXPERTS)(*map(Tensor, (X, W1, W2, TOKENS, B1, B2)))
    np.testing.assert_allclose(result.asnumpy(), by_expert(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "strategy",
    [
        ((2, 1), (1, 1, 4), (1, 4, 1), (1,), (1, 4), (1, 1)),
        ((1, 2), (1, 2, 4), (1, 4, 2), (1,), (1, 4), (1, 2)),
        ((1, 1), (2, 1, 4), (2, 4, 1), (1,), (2, 4), (2, 1)),
        ((1, 1), (1, 1, 4), (1, 2, 1), (1,), (1, 4), (1, 1)),
    ],
)
def test_rows_hidden_size_and_experts_are_not_sharded(strategy, eight_devices):
    eight_devices()
    with pytest.raises(RuntimeError, match="ffn \\(FFN\\)"):
        Layers(strategy)(*map(Tensor, (X, W1, W2, TOKENS, B1, B2)))


def test_inputs_that_do_not_fit():
    ffn = FFN("gelu", 1)
    with pytest.raises(ValueError, match="'weight1' must have 6 rows"):
        ffn(Tensor(X), Tensor(W2[0]), Tensor(W1[0]))
    with pytest.raises(ValueError, match="'expert_tokens' must have shape"):
        ffn(Tensor(X), Tensor(W1), Tensor(W2), Tensor([1, 1, 2]))
    with pytest.raises(TypeError, match="each once"):
        ffn(Tensor(X), Tensor(W1[0]), Tensor(W2[0]), x=Tensor(X))
    with pytest.raises(TypeError, match="'weight2'"):
        ffn(Tensor(X), Tensor(W1[0]))
    with pytest.raises(ValueError, match="activation"):
        FFN("tanh", 1)


def test_rows_are_sorted_by_expert():
    tokens, k = 5, 2
    x = RANDOM.randn(tokens, 3).astype(np.float32)
    experts = RANDOM.randint(0, 4, (tokens, k)).astype(np.int32)
    numbers = np.arange(tokens * k).reshape(k, tokens).T.astype(np.int32)
    rows, places, sorted_experts = gen.MoeInitRouting()(Tensor(x), Tensor(numbers), Tensor(experts), 4)
    order = np.argsort(experts.reshape(-1), kind="stable")
    source = numbers.reshape(-1)[order]
    np.testing.assert_array_equal(rows.asnumpy(), x[source[: 4 * k] % tokens])
    np.testing.assert_array_equal(places.asnumpy()[source], np.arange(tokens * k))
    np.testing.assert_array_equal(sorted_experts.asnumpy(), np.sort(experts.reshape(-1)))
    with pytest.raises(ValueError, match="must be \\(5, k\\)"):
        gen.MoeInitRouting()(Tensor(x), Tensor(numbers[:4]), Tensor(experts), 4)


ROWS = np.array([[0.1, 0.2, 0.3], [0.2, 0.7, 0.8], [0.3, 0.3, 0.5]], np.float16)
CHOICES = np.array([[0, 1, 1], [2, 1, 1], [0, 0, 0]], np.int32)


def test_rows_of_experts_with_a_capacity():
    # MindSpore's documented example.
    filled, places, _, counts = ops.moe_init_routing_v2(Tensor(ROWS), Tensor(CHOICES), 3, 2, 3, 1, 0, True)
    expected = [[ROWS[0], ROWS[2]], [ROWS[0], ROWS[0]], [ROWS[1], np.zeros(3)]]
    np.testing.assert_array_equal(filled.asnumpy(), np.array(expected, np.float16))
    assert places.asnumpy().tolist() == [0, 2, 3, 4, -1, -1, 1, -1, -1]
    assert counts.asnumpy().tolist() == [4, 4, 1]
    with pytest.raises(ValueError, match="must be positive"):
        ops.moe_init_routing_v2(Tensor(ROWS), Tensor(CHOICES), 3, 0, 3, 1, 0, True)


@pytest.mark.parametrize(("flag", "expected"), [(0, [0, 0, 0]), (1, [4, 8, 9]), (2, [4, 4, 1])])
def test_rows_of_experts_without_a_capacity(flag, expected):
    rows, places, counts, _ = ops.moe_init_routing_v2(Tensor(ROWS), Tensor(CHOICES), 5, 0, 3, 0, flag, False)
    order = np.argsort(CHOICES.reshape(-1), kind="stable")
    np.testing.assert_array_equal(rows.asnumpy(), ROWS[order[:5] // 3])
    np.testing.assert_array_equal(places.asnumpy()[order], np.arange(9))
    assert counts.asnumpy().tolist() == expected


def test_ends_of_experts():
    ends = gen.MoeComputeExpertTokens()(Tensor([0, 0, 1, 2, 2], ms.int32), 5)
    assert ends.asnumpy().tolist() == [2, 3, 5, 5, 5]


def test_largest_gates():
    x = RANDOM.randn(3, 5).astype(np.float32)
    finished = np.array([False, True, False])
    values, experts, numbers = gen.MoeGatingTopKSoftmax()(Tensor(x), Tensor(finished), 2)
    gates = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    chosen = np.argsort(-gates, axis=-1, kind="stable")[:, :2]
    np.testing.assert_allclose(values.asnumpy(), np.take_along_axis(gates, chosen, -1), rtol=1e-5)
    np.testing.assert_array_equal(experts.asnumpy(), np.where(finished[:, None], 5, chosen))
    assert numbers.asnumpy().tolist() == [[0, 3], [1, 4], [2, 5]]


def test_rows_come_back_to_their_tokens():
    tokens, k, hidden = 3, 2, 4
    expanded = RANDOM.randn(tokens * k, hidden).astype(np.float32)
    x1, x2 = RANDOM.randn(2, tokens, hidden).astype(np.float32)
    bias = RANDOM.randn(5, hidden).astype(np.float32)
    scales = RANDOM.rand(tokens, k).astype(np.float32)
    rows = np.array([2, 3, 1, 0, 5, 4], np.int32)
    experts = np.array([[0, 1], [0, 2], [1, 4]], np.int32)
    inputs = map(Tensor, (expanded, x1, x2, bias, scales, rows, experts))
    result = gen.MoeFinalizeRouting()(*inputs)
    expected = x1 + x2
    for i in range(tokens):
        for j in range(k):
            expected[i] += scales[i, j] * (expanded[rows[i + j * tokens]] + bias[experts[i, j]])
    np.testing.assert_allclose(result.asnumpy(), expected, rtol=1e-5)
