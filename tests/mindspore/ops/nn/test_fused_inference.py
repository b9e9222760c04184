"""`FusedInferAttentionScore` against plain numpy, and on eight devices against one."""

import numpy as np
import pytest

from sporax.mindspore import Tensor, nn, ops
from sporax.mindspore.ops.auto_generate import FusedInferAttentionScore

RANDOM = np.random.RandomState(0)
B, N, S, D = 4, 4, 8, 4
QUERY, KEY, VALUE = RANDOM.randn(3, B, N, S, D).astype(np.float32)
MASK = (RANDOM.rand(B, S, S) > 0.6).astype(np.int8)
SHIFT = RANDOM.randn(B, N, S, S).astype(np.float32)
SCALE = 0.5


def plain(query, key, value, mask=0, shift=0.0):
    """The result and the logarithms of sums; rows that see nothing give zeros."""
    key, value = (np.repeat(x, query.shape[1] // x.shape[1], 1) for x in (key, value))
    scores = np.where(np.asarray(mask) == 0, query @ key.swapaxes(-1, -2) * SCALE + shift, -np.inf)
    sums = np.exp(scores).sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        return np.exp(scores) / np.where(sums > 0, sums, 1) @ value, np.log(sums)


def in_layout(x, layout):
    return {"BNSD": x, "BSND": x.swapaxes(1, 2), "BSH": x.swapaxes(1, 2).reshape(len(x), x.shape[2], -1)}[layout].copy()


@pytest.mark.parametrize("layout", ["BSH", "BNSD", "BSND"])
def test_prompts_in_all_layouts(layout):
    operator = FusedInferAttentionScore(N, SCALE, input_layout=layout, softmax_lse_flag=True)
    query, key, value = (Tensor(in_layout(x, layout)) for x in (QUERY, KEY, VALUE))
    result, logarithms = operator(query, [key], (value,), Tensor(SHIFT), Tensor(MASK))
    expected, sums = plain(QUERY, KEY, VALUE, MASK[:, None], SHIFT)
    np.testing.assert_allclose(result.asnumpy(), in_layout(expected, layout), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(logarithms.asnumpy(), sums, rtol=1e-4, atol=1e-5)


def test_a_result_in_another_layout_and_nothing_requested():
    result, logarithms = FusedInferAttentionScore(N, SCALE, input_layout="BNSD_BSND")(*map(Tensor, (QUERY, KEY, VALUE)))
    expected = plain(QUERY, KEY, VALUE)[0]
    np.testing.assert_allclose(result.asnumpy(), expected.swapaxes(1, 2), rtol=1e-4, atol=1e-5)
    assert logarithms.asnumpy().tolist() == [0]


def test_causal_prompts_with_lengths_as_a_function():
    compressed = Tensor(np.triu(np.ones((1, 2048, 2048), np.int8), 1))
    result, _ = ops.fused_infer_attention_score(
        *map(Tensor, (QUERY, KEY[:, :2], VALUE[:, :2])),
        atten_mask=compressed,
        actual_seq_lengths_kv=[3, 8, 8, 8],
        num_heads=N,
        num_key_value_heads=2,
        scale=SCALE,
        input_layout="BNSD",
        sparse_mode=2,
    )
    mask = np.broadcast_to(np.triu(np.ones((S, S)), 1), (B, 1, S, S)).copy()
    mask[0, ..., 3:] = 1
    np.testing.assert_allclose(result.asnumpy(), plain(QUERY, KEY[:, :2], VALUE[:, :2], mask)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rank", [2, 3, 4])
def test_one_token_does_not_read_windows(rank):
    mask = MASK[:, 0].reshape(B, *[1] * (rank - 2), S)
    operator = FusedInferAttentionScore(N, SCALE, 1, 0, "BNSD", sparse_mode=3)
    result, _ = operator(*map(Tensor, (QUERY[:, :, :1].copy(), KEY, VALUE)), None, Tensor(mask))
    expected = plain(QUERY[:, :, :1], KEY, VALUE, MASK[:, :1, None].swapaxes(1, 2))[0]
    np.testing.assert_allclose(result.asnumpy(), expected, rtol=1e-4, atol=1e-5)


class Net(nn.Cell):
    def __init__(self, layout, strategy, **settings):
        super().__init__()
        self.operator = FusedInferAttentionScore(N, SCALE, input_layout=layout, softmax_lse_flag=True, **settings)
        self.operator.shard(strategy)

    def construct(self, query, key, value, shift, mask):
        return self.operator(query, [key], [value], shift, mask)


OF_SCORES = (2, 1, 1, 1), (2, 2, 2)
CASES = {
    "batch, heads and queries": ("BNSD", S, ((2, 2, 2, 1), ((2, 2, 1, 1),), ((2, 2, 1, 1),), *OF_SCORES)),
    "hidden size": ("BSH", S, ((2, 1, 4), ((2, 1, 4),), ((2, 1, 4),), *OF_SCORES)),
    "keys of one query": ("BNSD", 1, ((2, 2, 1, 1), ((2, 2, 2, 1),), ((2, 2, 2, 1),), *OF_SCORES)),
    "only keys of one query": ("BSND", 1, ((1, 1, 1, 1), ((1, 8, 1, 1),), ((1, 8, 1, 1),), *OF_SCORES)),
}


@pytest.mark.parametrize("name", CASES)
def test_eight_devices_as_one(name, eight_devices):
    layout, queries, strategy = CASES[name]
    inputs = (QUERY[:, :, :queries], KEY, VALUE)
    shift, mask = SHIFT[:, :, :queries].copy(), MASK[:, :queries].copy()
    eight_devices()
    results = Net(layout, strategy)(*(Tensor(in_layout(x, layout)) for x in inputs), Tensor(shift), Tensor(mask))
    expected, sums = plain(*inputs, mask[:, None], shift)
    np.testing.assert_allclose(results[0].asnumpy(), in_layout(expected, layout), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(results[1].asnumpy(), sums, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "strategy",
    [
        ((1, 2, 1), ((1, 1, 1),), ((1, 1, 1),)),
        ((1, 1, 1, 2), ((1, 1, 1, 2),), ((1, 1, 1, 2),)),
        ((1, 1, 1, 1), ((1, 1, 2, 1),), ((1, 1, 2, 1),)),
        ((1, 2, 1, 1), ((1, 2, 1, 1),), ((1, 4, 1, 1),)),
    ],
)
def test_strategies_that_are_refused(strategy, eight_devices):
    eight_devices()
    with pytest.raises(RuntimeError, match="FusedInferAttentionScore"):
        Net("BNSD", strategy)(*map(Tensor, (QUERY, KEY, VALUE, SHIFT, MASK)))


def test_inputs_that_are_refused():
    operator = FusedInferAttentionScore(N, SCALE, input_layout="BNSD")
    tensors = [*map(Tensor, (QUERY, KEY, VALUE))]
    with pytest.raises(NotImplementedError, match="must be None"):
        operator(*tensors, block_table=Tensor([[0]]))
    with pytest.raises(TypeError, match="a list of one"):
        operator(tensors[0], tensors[1:], tensors[1:])
