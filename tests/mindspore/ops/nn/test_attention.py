"""Fused attention against a softmax written out in numpy, in all layouts, and sharded over devices."""

import jax
import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.base.errors import SporaxNotImplementedError, SporaxRuntimeError, SporaxValueError
from sporax.mindspore import Tensor, nn, ops
from sporax.mindspore.common.tensor import wrap

BATCH, HEADS, KEY_HEADS, ROWS, COLUMNS, SIZE = 2, 4, 2, 3, 8, 2
SCALE = 0.5


def some(*shape, step=1.3):
    return np.sin(step * np.arange(int(np.prod(shape)))).astype(np.float32).reshape(shape)


QUERY = some(BATCH, HEADS, ROWS, SIZE)
KEY, VALUE = some(BATCH, KEY_HEADS, COLUMNS, SIZE, step=1.1), some(BATCH, KEY_HEADS, COLUMNS, SIZE, step=0.7)
LAYOUTS = {
    "BNSD": lambda x: x,
    "BSND": lambda x: x.transpose(0, 2, 1, 3),
    "BSH": lambda x: x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1),
    "SBH": lambda x: x.transpose(2, 0, 1, 3).reshape(x.shape[2], x.shape[0], -1),
}


def reference(query=QUERY, key=KEY, value=VALUE, shift=0.0, seen=None, kept=1.0):
    key, value = (np.repeat(x, query.shape[1] // x.shape[1], 1) for x in (key, value))
    scores = SCALE * (np.einsum("bnqd,bnkd->bnqk", query, key) + shift)
    scores = scores if seen is None else np.where(seen, scores, -np.inf)
    largest = scores.max(-1, keepdims=True)
    weights = np.exp(scores - largest)
    total = weights.sum(-1, keepdims=True)
    return np.einsum("bnqk,bnkd->bnqd", weights / total * kept, value), largest, total


def attend(layout="BNSD", keep_prob=1.0, sparse_mode=0, reach=(2147483647, 2147483647), **inputs):
    attention = ops.FlashAttentionScore(HEADS, keep_prob, SCALE, *reach, 0, layout, sparse_mode)
    return attention(*(Tensor(LAYOUTS[layout](x)) for x in (QUERY, KEY, VALUE)), **inputs)


def assert_close(actual, expected, rtol=1e-5):
    np.testing.assert_allclose(actual.asnumpy(), expected, rtol=rtol, atol=1e-6)


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_layouts_give_one_result_and_its_statistics(layout):
    expected, largest, total = reference()
    maxima, sums, _, result = attend(layout)
    assert_close(result, LAYOUTS[layout](expected))
    assert_close(maxima, np.repeat(largest, 8, -1))
    assert_close(sums, np.repeat(total, 8, -1))
    inputs = [Tensor(LAYOUTS[layout](x)) for x in (QUERY, KEY, VALUE)]
    assert_close(
        ops.flash_attention_score(*inputs, HEADS, scalar_value=SCALE, input_layout=layout), LAYOUTS[layout](expected)
    )


def test_gradients_are_those_of_operators():
    def fused(q, k, v):
        return (ops.flash_attention_score(q, k, v, HEADS, scalar_value=SCALE, input_layout="BNSD") ** 2).sum()

    def written_out(q, k, v):
        k, v = (ops.repeat_interleave(x, HEADS // KEY_HEADS, 1) for x in (k, v))
        return (ops.softmax(ops.matmul(q, k.swapaxes(2, 3)) * SCALE).matmul(v) ** 2).sum()

    inputs = tuple(map(Tensor, (QUERY, KEY, VALUE)))
    for ours, theirs in zip(ms.grad(fused, (0, 1, 2))(*inputs), ms.grad(written_out, (0, 1, 2))(*inputs), strict=True):
        assert_close(ours, theirs.asnumpy(), rtol=1e-4)


def test_scores_are_not_saved_for_the_backward_pass():
    def attention(*arrays):
        return ops.flash_attention_score(*map(wrap, arrays), HEADS, input_layout="BNSD", sparse_mode=2).raw

    _, pullback = jax.vjp(attention, *[np.ones((1, HEADS, 64, 8), np.float32)] * 3)
    assert max(saved.size for saved in jax.tree.leaves(pullback)) < 64 * 64


@pytest.mark.parametrize("layout", LAYOUTS)
def test_values_may_have_another_size_than_keys(layout):
    narrow = VALUE[..., :1]
    inputs = [Tensor(LAYOUTS[layout](x)) for x in (QUERY, KEY, narrow)]
    result = ops.flash_attention_score(*inputs, HEADS, scalar_value=SCALE, input_layout=layout)
    assert_close(result, LAYOUTS[layout](reference(value=narrow)[0]))


AHEAD = np.arange(COLUMNS)[None] - np.arange(ROWS)[:, None]
PAST = COLUMNS - ROWS


@pytest.mark.parametrize(
    ("mode_number", "reach", "seen"),
    [(2, (0, 0), AHEAD <= 0), (3, (0, 0), AHEAD <= PAST), (4, (2, 1), (AHEAD - PAST >= -2) & (AHEAD - PAST <= 1))],
)
def test_modes_that_stand_for_masks(mode_number, reach, seen):
    mask = Tensor(np.triu(np.ones((2048, 2048), np.uint8), 1))
    assert_close(attend(sparse_mode=mode_number, reach=reach, attn_mask=mask)[3], reference(seen=seen)[0])
    with pytest.raises(SporaxValueError, match=r"the shape of 'attn_mask' must be \(2048, 2048\)"):
        attend(sparse_mode=mode_number, attn_mask=Tensor(np.zeros((ROWS, COLUMNS), np.uint8)))


def test_masks_windows_and_shifts():
    hidden = (some(BATCH, 1, ROWS, COLUMNS, step=3.0) > 0.5).astype(np.uint8)
    assert_close(attend(attn_mask=Tensor(hidden))[3], reference(seen=hidden == 0)[0])
    assert_close(attend(sparse_mode=1, reach=(0, 0), attn_mask=Tensor(hidden))[3], reference(seen=hidden == 0)[0])
    window = (AHEAD >= -1) & (AHEAD <= 2)
    nothing = Tensor(np.zeros((ROWS, COLUMNS), bool))
    assert_close(attend(reach=(1, 2), attn_mask=nothing)[3], reference(seen=window)[0])
    assert_close(attend(reach=(1, 2))[3], reference()[0])  # a window counts with a mask only
    shift = some(1, HEADS, ROWS, COLUMNS, step=0.4)
    assert_close(attend(real_shift=Tensor(shift))[3], reference(shift=shift)[0])


def test_a_query_that_sees_nothing_gives_zeros():
    hidden = np.zeros((ROWS, COLUMNS), np.uint8)
    hidden[1] = 1
    result = attend(attn_mask=Tensor(hidden))[3].asnumpy()
    assert np.abs(result[:, :, 1]).max() == 0
    assert np.isfinite(result).all()


def test_weights_are_dropped_by_the_bits_of_a_mask():
    kept = some(BATCH, HEADS, ROWS, COLUMNS, step=2.1) > 0
    bits = np.packbits(kept, axis=-1, bitorder="little")
    result = attend(keep_prob=0.5, drop_mask=Tensor(bits))[3]
    assert_close(result, reference(kept=kept / 0.5)[0])
    with pytest.raises(SporaxValueError, match="'drop_mask' must be UInt8 of shape"):
        attend(keep_prob=0.5, drop_mask=Tensor(kept))


def test_weights_are_dropped_at_random_and_right_on_average():
    ms.set_seed(1)
    draws = [attend(keep_prob=0.5)[3].asnumpy() for _ in range(400)]
    assert np.abs(draws[0] - draws[1]).max() > 0.01
    np.testing.assert_allclose(np.mean(draws, 0), reference()[0], atol=0.15)


@pytest.mark.parametrize("mode_number", [0, 2, 3])
def test_sequences_in_one_row_do_not_see_each_other(mode_number):
    """`TND`: sequences of 3 and 5 queries, and of 5 and 6 keys."""
    query, key, value = some(8, HEADS, SIZE), some(11, HEADS, SIZE, step=1.1), some(11, HEADS, SIZE, step=0.7)
    attention = ops.FlashAttentionScore(HEADS, scale_value=SCALE, input_layout="TND", sparse_mode=mode_number)
    maxima, _, _, result = attention(
        *map(Tensor, (query, key, value)), actual_seq_qlen=(3, 8), actual_seq_kvlen=(5, 11)
    )
    parts = []
    for rows, columns in ((slice(0, 3), slice(0, 5)), (slice(3, 8), slice(5, 11))):
        one = [x.swapaxes(0, 1)[None] for x in (query[rows], key[columns], value[columns])]
        ahead = np.arange(one[1].shape[2])[None] - np.arange(one[0].shape[2])[:, None]
        seen = {0: None, 2: ahead <= 0, 3: ahead <= one[1].shape[2] - one[0].shape[2]}[mode_number]
        parts.append(reference(*one, seen=seen)[0][0].swapaxes(0, 1))
    assert_close(result, np.concatenate(parts))
    assert maxima.shape == (8, HEADS, 8)


def test_what_does_not_fit_is_named():
    with pytest.raises(SporaxNotImplementedError, match=r"'sparse_mode' must be in \[0, 4\], but got 6"):
        attend(sparse_mode=6)
    with pytest.raises(SporaxNotImplementedError, match="'prefix' must be None"):
        attend(prefix=(1, 2))
    with pytest.raises(
        SporaxValueError, match="'actual_seq_qlen' and 'actual_seq_kvlen' must be given with the layout"
    ):
        attend(actual_seq_qlen=(1, 2))
    with pytest.raises(SporaxValueError, match=r"'keep_prob' must be in \(0, 1\], but got 0"):
        attend(keep_prob=0.0)
    with pytest.raises(SporaxValueError, match="'attn_mask' must be given with sparse_mode 1"):
        attend(sparse_mode=1)
    with pytest.raises(SporaxValueError, match="'input_layout' must be one of"):
        ops.FlashAttentionScore(HEADS, input_layout="NSBD")
    with pytest.raises(SporaxValueError, match="must be a multiple of the 3 heads, but got 8"):
        ops.FlashAttentionScore(3)(*(Tensor(LAYOUTS["BSH"](x)) for x in (QUERY, QUERY, QUERY)))


def test_prompts_have_lengths_shifts_and_masks():
    mask = (some(BATCH, ROWS, COLUMNS, step=3.0) > 0.5).astype(np.uint8)
    shift = some(1, HEADS, ROWS + 1, COLUMNS + 2, step=0.4)
    inputs = [Tensor(LAYOUTS["BSH"](x)) for x in (QUERY, KEY, VALUE)]
    result = ops.prompt_flash_attention(
        *inputs, Tensor(mask), (3, 2), (8, 5), Tensor(shift), num_heads=HEADS, scale_value=SCALE, next_tokens=9,
        num_key_value_heads=KEY_HEADS,
    )  # fmt: skip
    seen = (mask == 0)[:, None] & (np.arange(COLUMNS) < np.array([8, 5])[:, None, None, None])
    expected, _, _ = reference(shift=shift[..., :ROWS, :COLUMNS] / SCALE, seen=seen)
    expected[1, :, 2] = 0
    assert_close(result, LAYOUTS["BSH"](expected))
    with pytest.raises(SporaxNotImplementedError, match="'quant_scale1' must be None"):
        ops.prompt_flash_attention(*inputs, num_heads=HEADS, quant_scale1=Tensor([1.0]))


def test_one_token_at_a_time():
    query = QUERY[:, :, :1]
    hidden = (some(BATCH, COLUMNS, step=3.0) > 0.5).astype(np.uint8)
    settings = {"num_heads": HEADS, "scale_value": SCALE, "num_key_value_heads": KEY_HEADS, "input_layout": "BNSD"}
    keys, values = ([Tensor(x[:1]), Tensor(x[1:])] for x in (KEY, VALUE))
    result = ops.incre_flash_attention(Tensor(query), keys, values, Tensor(hidden), Tensor([4, 7]), **settings)
    seen = (hidden == 0)[:, None, None] & (np.arange(COLUMNS) < np.array([4, 7])[:, None, None, None])
    assert_close(result, reference(query, seen=seen)[0])
    with pytest.raises(SporaxNotImplementedError, match="'block_table' must be None"):
        ops.incre_flash_attention(Tensor(query), keys, values, block_table=Tensor([1]), **settings)


class Attention(nn.Cell):
    def __init__(self, layout, strategy=None, sparse_mode=0):
        super().__init__()
        self.attention = ops.FlashAttentionScore(HEADS, scale_value=SCALE, input_layout=layout, sparse_mode=sparse_mode)
        if strategy:
            self.attention.shard(strategy)

    def construct(self, query, key, value, mask):
        return (self.attention(query, key, value, attn_mask=mask)[3] ** 2).sum()


@pytest.fixture
def semi_auto():
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8, full_batch=True)
    yield
    ms.reset_auto_parallel_context()


@pytest.mark.usefixtures("semi_auto")
@pytest.mark.parametrize(
    ("layout", "strategy", "sparse_mode"),
    [
        ("BSH", ((2, 2, 2), (2, 1, 2), (2, 1, 2), (2, 1)), 0),
        ("SBH", ((2, 2, 2), (1, 2, 2), (1, 2, 2), (2, 1)), 0),
        ("BNSD", ((2, 2, 2, 1), (2, 2, 1, 1), (2, 2, 1, 1), (2, 1)), 0),
        ("BSND", ((2, 2, 2, 1), (2, 1, 2, 1), (2, 1, 2, 1), (2, 1)), 0),
        # One mask for all lengths, which is whole.
        ("BSH", ((2, 2, 2), (2, 1, 2), (2, 1, 2), (1, 1)), 2),
        ("BNSD", ((2, 2, 2, 1), (2, 2, 1, 1), (2, 2, 1, 1), (1, 1)), 3),
        # Keys and values with all their heads on each device.
        ("BSH", ((2, 1, 4), (2, 1, 1), (2, 1, 1), (1, 1)), 0),
        ("SBH", ((1, 2, 4), (1, 2, 1), (1, 2, 1), (1, 1)), 0),
        ("BNSD", ((1, 4, 2, 1), (1, 1, 1, 1), (1, 1, 1, 1), (1, 1)), 4),
        ("BSND", ((2, 1, 4, 1), (2, 1, 1, 1), (2, 1, 1, 1), (1, 1)), 0),
        # Keys and values in less slices of heads, each on the devices of several slices of queries.
        ("BSH", ((1, 2, 4), (1, 1, 2), (1, 1, 2), (2, 1)), 0),
        ("SBH", ((2, 1, 4), (1, 1, 2), (1, 1, 2), (1, 1)), 2),
        ("BNSD", ((2, 4, 1, 1), (2, 2, 1, 1), (2, 2, 1, 1), (1, 1)), 3),
        ("BSND", ((1, 2, 4, 1), (1, 1, 2, 1), (1, 1, 2, 1), (1, 1)), 4),
    ],
)
@pytest.mark.sampled(5)
def test_batch_heads_and_queries_may_be_sharded(layout, strategy, sparse_mode):
    query, key, value = some(4, HEADS, 8, 4), some(4, KEY_HEADS, 8, 4, step=1.1), some(4, KEY_HEADS, 8, 2, step=0.7)
    mask = np.triu(np.ones((2048, 2048) if sparse_mode else (8, 8), np.uint8), 1)
    inputs = [*(Tensor(LAYOUTS[layout](x)) for x in (query, key, value)), Tensor(mask)]
    net = Attention(layout, strategy, sparse_mode)
    sharded = ms.jit(lambda *x: ms.value_and_grad(net, (0, 1, 2))(*x))(*inputs)
    net(*inputs)
    row = next(line for line in str(net.program.planned.summary()).splitlines() if "FlashAttentionScore" in line)
    assert "all_gather" not in row
    ms.reset_auto_parallel_context()
    whole = ms.value_and_grad(Attention(layout, None, sparse_mode), (0, 1, 2))(*inputs)
    assert_close(sharded[0], whole[0].asnumpy())
    for ours, theirs in zip(sharded[1], whole[1], strict=True):
        assert_close(ours, theirs.asnumpy(), rtol=1e-4)


@pytest.mark.usefixtures("semi_auto")
def test_keys_may_not_be_sharded_along_their_length():
    inputs = [Tensor(some(4, 8, 16)) for _ in range(3)]
    with pytest.raises(RuntimeError, match="FlashAttentionScore"):
        Attention("BSH", ((2, 1, 2), (2, 2, 2), (2, 2, 2), (1, 1)))(*inputs, Tensor(np.zeros((8, 8), np.uint8)))
    one_mask = Attention("BSH", ((2, 2, 2), (2, 1, 2), (2, 1, 2), (2, 1)), 2)
    with pytest.raises(RuntimeError, match="dimension 0 of tensor 3 must stay whole"):
        one_mask(*inputs, Tensor(np.zeros((2048, 2048), np.uint8)))


def test_prompts_in_half_precision():
    """XLA's CPU backend has no product of halves that sums in float32 by that name."""
    rng = np.random.default_rng(3)
    query, key, value = (rng.normal(size=(2, 6, 16)).astype(np.float16) for _ in range(3))
    expected = ops.PromptFlashAttention(num_heads=2, scale_value=0.35)(
        *(Tensor(entry.astype(np.float32)) for entry in (query, key, value)), *[None] * 9
    )
    result = ops.PromptFlashAttention(num_heads=2, scale_value=0.35)(
        *(Tensor(entry) for entry in (query, key, value)), *[None] * 9
    )
    assert result.dtype == ms.float16
    np.testing.assert_allclose(result.asnumpy(), expected.asnumpy(), rtol=2e-3, atol=2e-3)
    token = ops.IncreFlashAttention(num_heads=2, scale_value=0.35)(Tensor(query[:, :1]), [Tensor(key)], [Tensor(value)])
    np.testing.assert_allclose(token.asnumpy(), expected.asnumpy()[:, :1], rtol=2e-3, atol=2e-3)


class _Sharded(nn.Cell):
    def __init__(self, strategy=None, **settings):
        super().__init__()
        self.attention = ops.FlashAttentionScore(8, scale_value=SCALE, **settings)
        if strategy is not None:
            self.attention.shard(strategy)

    def construct(self, query, key, value, mask, *ends):
        return self.attention(query, key, value, None, None, None, mask, None, *ends)[3]


def _in_rows(by_layout):
    """Strategies of sequences in one row, for 8 devices."""
    if not by_layout:
        return ((4, 2, 1), (4, 2, 1), (4, 2, 1), (1, 1), (4,), (4,))
    layout = ms.Layout((2, 2, 2), ("dp", "sp", "mp"))
    keys = layout("dp", "mp", "None")
    return (layout(("dp", "sp"), "mp", "None"), keys, keys, layout("None", "None"), layout("dp"), layout("dp"))


@pytest.mark.parametrize("by_layout", [False, True])
def test_sequences_in_one_row_are_sharded_with_their_keys(by_layout, eight_devices):
    """Each device gathers the keys that it needs, also where a sequence crosses the border of a slice."""
    inputs = [Tensor(some(16, 8, SIZE, step=step)) for step in (0.9, 1.1, 0.7)]
    mask = Tensor(np.triu(np.ones((2048, 2048), np.uint8), 1))
    ends = [Tensor(np.array([3, 8, 11, 16])), Tensor(np.array([3, 8, 11, 16]))]
    expected = _Sharded(input_layout="TND", sparse_mode=3)(*inputs, mask, *ends)
    eight_devices()
    result = _Sharded(_in_rows(by_layout), input_layout="TND", sparse_mode=3)(*inputs, mask, *ends)
    np.testing.assert_allclose(result.asnumpy(), expected.asnumpy(), rtol=2e-5, atol=1e-6)


def test_unequal_numbers_of_slices_of_one_row_are_refused(eight_devices):
    eight_devices()
    strategy = ((8, 1, 1), (2, 1, 1), (2, 1, 1), (1, 1), (2,), (2,))
    net = _Sharded(strategy, input_layout="TND", sparse_mode=3)
    inputs = [Tensor(some(16, 8, SIZE)) for _ in range(3)]
    with pytest.raises(SporaxRuntimeError, match="tensors must have equal shardings along a dimension they share"):
        net(*inputs, Tensor(np.ones((2048, 2048), np.uint8)), *[Tensor(np.array([8, 16]))] * 2)


def test_heads_of_keys_may_be_sharded_along_other_axes_than_those_of_queries(eight_devices):
    query, key, value = (Tensor(some(2, 4, heads * SIZE, step=0.9)) for heads in (8, 2, 2))
    mask = Tensor(np.triu(np.ones((2048, 2048), np.uint8), 1))
    expected = _Sharded(input_layout="BSH", sparse_mode=2)(query, key, value, mask)
    eight_devices()
    layout = ms.Layout((2, 2, 2), ("dp", "sp", "mp"))
    keys = layout("dp", "None", "mp")
    strategy = (layout("dp", "None", ("sp", "mp")), keys, keys, layout("None", "None"))
    result = _Sharded(strategy, input_layout="BSH", sparse_mode=2)(query, key, value, mask)
    np.testing.assert_allclose(result.asnumpy(), expected.asnumpy(), rtol=2e-5, atol=1e-6)
