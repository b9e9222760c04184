"""Caches in blocks; MindSpore has kernels for them on Ascend only, so results are compared with attention to whole keys."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, nn, ops
from sporax.mindspore.communication import init

BLOCKS, BLOCK_SIZE, HEADS, SIZE = 6, 2, 2, 4
LENGTHS = (3, 4)
TABLES = ((4, 1), (2, 5))


@pytest.fixture
def random():
    return np.random.RandomState(0)


def caches():
    shape = (BLOCKS, BLOCK_SIZE, HEADS, SIZE)
    return [Parameter(Tensor(np.zeros(shape, np.float32)), name=name) for name in ("keys", "values")]


def slots():
    """Slots of all tokens: sequence by sequence."""
    return [
        table[token // BLOCK_SIZE] * BLOCK_SIZE + token % BLOCK_SIZE
        for table, length in zip(TABLES, LENGTHS, strict=True)
        for token in range(length)
    ]


def by_hand(query, keys, values, scale, shift=None):
    """Attention of one sequence: query (heads, size), keys and values (length, kv heads, size)."""
    groups = query.shape[0] // keys.shape[1]
    keys, values = (np.repeat(x, groups, 1) for x in (keys, values))
    scores = np.einsum("hd,khd->hk", query, keys) * scale + (0 if shift is None else shift)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hk,khd->hd", weights / weights.sum(-1, keepdims=True), values)


def test_rows_go_to_their_slots_and_padding_nowhere(mode, random):
    key_cache, value_cache = caches()
    key, value = (Tensor(random.randn(3, HEADS, SIZE).astype(np.float32)) for _ in range(2))

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.key_cache, self.value_cache = key_cache, value_cache
            self.write = ops.ReshapeAndCache()

        def construct(self, key, value, slot):
            return self.write(key, value, self.key_cache, self.value_cache, slot)

    result = Net()(key, value, Tensor([5, -1, 0], ms.int32))
    np.testing.assert_array_equal(result.asnumpy(), key.asnumpy())
    for cache, rows in ((key_cache, key), (value_cache, value)):
        flat = cache.asnumpy().reshape(-1, HEADS, SIZE)
        np.testing.assert_array_equal(flat[[5, 0]], rows.asnumpy()[[0, 2]])
        assert np.count_nonzero(flat) == 2 * HEADS * SIZE


@pytest.mark.parametrize(
    ("rows", "entry"), [((4, 2, SIZE), (1, 2, 1)), ((4, 2 * SIZE), (1, 2)), ((2, 2, 2 * SIZE), (1, 1, 2))]
)
def test_caches_are_sharded_by_heads(random, rows, entry):
    """As MindSpore's strategy says: an entry for each of the five inputs."""
    key, value = (random.randn(*rows).astype(np.float32) for _ in range(2))

    def written(*strategy):
        write, held = ops.ReshapeAndCache(), caches()
        write.shard(strategy) if strategy else None

        class Net(nn.Cell):
            def __init__(self):
                super().__init__()
                self.keys, self.values = held

            def construct(self, key, value, slot):
                return write(key, value, self.keys, self.values, slot)

        Net()(Tensor(key), Tensor(value), Tensor([5, -1, 0, 3], ms.int32))
        return [cache.asnumpy() for cache in held]

    alone, cache = written(), (1, 1, 2, 1)
    init()
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", dataset_strategy="full_batch")
    np.testing.assert_array_equal(written(entry, entry, cache, cache, (1,)), alone)
    with pytest.raises(RuntimeError, match="must stay whole"):
        written(entry, entry, cache, cache, (2,))


@pytest.mark.parametrize("shape", [(2, 4, SIZE), (2, 4 * SIZE), (2, 1, 4 * SIZE)])
def test_attention_through_tables_is_attention_to_whole_sequences(mode, random, shape):
    key_cache, value_cache = caches()
    keys, values = (random.randn(sum(LENGTHS), HEADS, SIZE).astype(np.float32) for _ in range(2))
    ops.ReshapeAndCache()(Tensor(keys), Tensor(values), key_cache, value_cache, Tensor(slots(), ms.int32))
    query = random.randn(2, 4, SIZE).astype(np.float32)
    shift = random.randn(2, 4, 1, 3).astype(np.float32)
    inputs = (key_cache, value_cache, Tensor(TABLES, ms.int32), Tensor(LENGTHS, ms.int32))
    result = ops.PagedAttention(4, 0.5, HEADS)(Tensor(query.reshape(shape)), *inputs)
    shifted = ops.PagedAttentionMask(4, 0.5, HEADS)(Tensor(query.reshape(shape)), *inputs, alibi_mask=Tensor(shift))
    first, second = (slice(0, LENGTHS[0]), slice(LENGTHS[0], None))
    expected = [by_hand(query[i], keys[part], values[part], 0.5) for i, part in enumerate((first, second))]
    assert result.shape == shape
    np.testing.assert_allclose(result.asnumpy().reshape(query.shape), expected, atol=1e-5)
    # A buffer of lengths may be longer than there are sequences.
    buffered = ops.PagedAttention(4, 0.5, HEADS)(
        Tensor(query.reshape(shape)), *inputs[:3], Tensor((*LENGTHS, 1, 1), ms.int32)
    )
    np.testing.assert_array_equal(buffered.asnumpy(), result.asnumpy())
    with_shift = by_hand(query[0], keys[first], values[first], 0.5, shift[0, :, 0])
    np.testing.assert_allclose(shifted.asnumpy().reshape(query.shape)[0], with_shift, atol=1e-5)


def test_attention_is_sharded_by_heads(random):
    held = [Parameter(Tensor(random.randn(BLOCKS, BLOCK_SIZE, HEADS, SIZE).astype(np.float32)), name) for name in "kv"]
    query = Tensor(random.randn(2, 1, 4 * SIZE).astype(np.float32))
    others = Tensor(TABLES, ms.int32), Tensor(LENGTHS, ms.int32)

    def attended(*strategy):
        attention = ops.PagedAttention(4, 0.5, HEADS)
        attention.shard(strategy) if strategy else None
        return ms.jit(lambda query: attention(query, *held, *others))(query)

    alone, cache = attended().asnumpy(), (1, 1, 2, 1)
    init()
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", dataset_strategy="full_batch")
    result = attended((2, 1, 2), cache, cache, (2, 1), (2,))
    np.testing.assert_allclose(result.asnumpy(), alone, atol=1e-6)
    with pytest.raises(RuntimeError, match="must stay whole"):
        attended((2, 1, 2), cache, cache, (2, 2), (2,))


def test_a_sequence_without_keys_gives_zeros(random):
    key_cache, value_cache = caches()
    query = Tensor(random.randn(1, HEADS, SIZE).astype(np.float32))
    tables, lengths = Tensor([[0]], ms.int32), Tensor([0], ms.int32)
    assert not ops.PagedAttention(HEADS, 1.0, HEADS)(query, key_cache, value_cache, tables, lengths).asnumpy().any()


def test_wrong_arguments_are_refused(random):
    key_cache, value_cache = caches()
    rows, slot = Tensor(np.zeros((1, HEADS, SIZE), np.float32)), Tensor([0], ms.int32)
    with pytest.raises(TypeError, match="For 'ReshapeAndCache', 'key_cache' must be a Parameter, but got Tensor"):
        ops.ReshapeAndCache()(rows, rows, rows, value_cache, slot)
    with pytest.raises(ValueError, match="8 elements for each of the 1 slots"):
        ops.ReshapeAndCache()(rows[..., :2], None, key_cache, None, slot)
    with pytest.raises(NotImplementedError, match="For 'PagedAttention', 'mla_v_dim' must be 0"):
        ops.PagedAttention(2, 1.0, 2, mla_v_dim=4)
    with pytest.raises(ValueError, match=r"'key_cache' must be \(blocks, block_size, 1, 4\)"):
        ops.PagedAttention(2, 1.0, 1)(rows, key_cache, value_cache, Tensor([[0]], ms.int32), slot)
    with pytest.raises(ValueError, match="'kv_cache_quant_mode' must be"):
        ops.PagedAttention(2, 1.0, 2, "OTHER")
