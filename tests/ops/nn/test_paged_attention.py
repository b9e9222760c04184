"""Caches in blocks, against the same written with numpy. The wheel has no CPU kernels for them."""

import numpy as np
import pytest

import sporax as ms
from sporax import Parameter, Tensor, ops

DRAW = np.random.default_rng(3)


def _caches(dtype=np.float32):
    return [Parameter(Tensor(np.zeros((4, 2, 2, 3), dtype)), name=name) for name in ("key", "value")]


def test_tokens_are_written_to_their_slots(mode):
    key_cache, value_cache = _caches()
    key, value = (DRAW.normal(size=(1, 3, 6)).astype(np.float32) for _ in range(2))
    write = ops.ReshapeAndCache()
    result = write(Tensor(key), Tensor(value), key_cache, value_cache, Tensor([5, -1, 2], ms.int32))
    np.testing.assert_array_equal(result.asnumpy(), key)
    for cache, new in ((key_cache, key), (value_cache, value)):
        expected = np.zeros((8, 6), np.float32)
        expected[5], expected[2] = new[0, 0], new[0, 2]
        np.testing.assert_array_equal(cache.asnumpy().reshape(8, 6), expected)


def test_a_cache_may_stand_alone():
    key_cache, _ = _caches()
    ops.ReshapeAndCache()(Tensor(np.ones((1, 6), np.float32)), None, key_cache, None, Tensor([0], ms.int32))
    assert key_cache.asnumpy().sum() == 6


def _expected(query, keys, values, tables, lengths, scale, bias=None):
    results = []
    for row, (table, length) in enumerate(zip(tables, lengths, strict=True)):
        k, v = (cache[table].reshape(-1, 2, 3)[:length] for cache in (keys, values))
        for head in range(4):
            scores = k[:, head // 2] @ query[row].reshape(4, 3)[head] * scale
            if bias is not None:
                scores = scores + bias[row, head, 0, :length]
            weights = np.exp(scores - scores.max())
            results.append(weights / weights.sum() @ v[:, head // 2])
    return np.array(results).reshape(query.shape)


@pytest.mark.parametrize("shape", [(2, 1, 12), (2, 4, 3), (2, 12)])
@pytest.mark.parametrize("with_bias", [False, True])
def test_each_token_looks_at_the_blocks_of_its_sequence(shape, with_bias):
    query = DRAW.normal(size=shape).astype(np.float32)
    keys, values = (DRAW.normal(size=(4, 2, 2, 3)).astype(np.float32) for _ in range(2))
    # The last block of the first sequence is not used and may be anything.
    tables, lengths = np.array([[3, -1], [0, 2]], np.int32), np.array([1, 3], np.int32)
    bias = DRAW.normal(size=(2, 4, 1, 4)).astype(np.float32)
    inputs = map(Tensor, (query, keys, values, tables, lengths))
    if with_bias:
        result = ops.PagedAttentionMask(4, 0.5, 2)(*inputs, None, None, Tensor(bias))
    else:
        result = ops.PagedAttention(4, 0.5, 2)(*inputs)
    expected = _expected(query, keys, values, tables, lengths, 0.5, bias if with_bias else None)
    np.testing.assert_allclose(result.asnumpy(), expected, rtol=1e-5, atol=1e-6)


def test_what_is_not_offered_or_does_not_fit_is_refused():
    query, cache = Tensor(np.ones((2, 12), np.float32)), Tensor(np.ones((4, 2, 2, 3), np.float32))
    tables, lengths = Tensor([[0], [1]], ms.int32), Tensor([1, 1], ms.int32)
    with pytest.raises(NotImplementedError, match="For 'PagedAttention', 'attn_mask' is not offered"):
        ops.PagedAttention(4, 0.5, 2)(query, cache, cache, tables, lengths, attn_mask=query)
    with pytest.raises(NotImplementedError, match="'mask_mode' must be MASK_DEFAULT"):
        ops.PagedAttention(4, 0.5, 2, mask_mode="TRAPEZOIDAL")(query, cache, cache, tables, lengths)
    with pytest.raises(ValueError, match="must be one token of 4 heads of size 3 for each of 2 sequences"):
        ops.PagedAttention(4, 0.5, 2)(Tensor(np.ones((3, 12), np.float32)), cache, cache, tables, lengths)
    with pytest.raises(ValueError, match="'kv_head_num' 4 heads"):
        ops.PagedAttention(4, 0.5, 4)(query, cache, cache, tables, lengths)
    with pytest.raises(TypeError, match="'key_cache' must be a Tensor"):
        ops.ReshapeAndCache()(query, query, None, None, lengths)
    with pytest.raises(ValueError, match="the new tokens must be 2"):
        ops.ReshapeAndCache()(Tensor(np.ones((3, 6), np.float32)), None, cache, None, lengths)
