"""Seed-era Transformer layers: what they compute, and that a cut model trains as on one device."""

from functools import cache

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, ops
from sporax.mindspore.communication import init
from sporax.mindspore.parallel import _transformer as tf

RNG = np.random.default_rng(0)
BATCH, LENGTH, HIDDEN, HEADS, VOCABULARY = 8, 4, 16, 4, 32


def floats(*shape):
    return Tensor(RNG.normal(size=shape).astype(np.float32))


class Language(nn.Cell):
    """A small language model with tied embedding, as GPT programs build it."""

    def __init__(self, config, experts, layers):
        super().__init__()
        self.experts = experts > 1
        self.embedding = tf.VocabEmbedding(VOCABULARY, HIDDEN, config.embedding_dp_mp_config, param_init="normal")
        self.mask = tf.AttentionMask(LENGTH, config.dp_mp_config)
        self.encoder = tf.TransformerEncoder(
            *(BATCH, layers, HIDDEN, 4 * HIDDEN, LENGTH, HEADS, 0.0, 0.0),
            moe_config=tf.MoEConfig(experts, capacity_factor=1.5, num_experts_chosen=min(experts, 2)),
            parallel_config=config,
            compute_dtype=ms.float32,
        )
        data, model = config.data_parallel, config.model_parallel
        self.head = ops.MatMul(transpose_b=True).shard(((data, 1), (1 if config.vocab_emb_dp else model, 1)))
        self.loss = tf.CrossEntropyLoss(config.dp_mp_config)

    def construct(self, ids, labels, mask):
        x, table = self.embedding(ids)
        x, _, *auxiliary = self.encoder(x, self.mask(mask))
        logits = self.head(x.reshape(-1, HIDDEN), table)
        loss = self.loss(logits, labels.reshape(-1), mask.reshape(-1))
        return loss + auxiliary[0] if auxiliary else loss


def trained(config, experts, layers, **settings):
    """Losses of three steps, and the Parameters after them."""
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(3)
    ms.set_auto_parallel_context(**settings)
    net = Language(config, experts, layers)
    step = nn.TrainOneStepCell(net, nn.Adam(net.trainable_params(), 1e-2))
    step.set_train()
    rng = np.random.default_rng(1)
    losses = []
    for _ in range(3):
        ids = Tensor(rng.integers(0, VOCABULARY, (BATCH, LENGTH)).astype(np.int32))
        mask = Tensor(np.ones((BATCH, LENGTH), np.float32))
        losses.append(float(step(ids, ids, mask)))
    return losses, {p.name: p.asnumpy() for p in net.trainable_params()}


@cache
def trained_on_one_device(experts, layers):
    return trained(tf.TransformerOpParallelConfig(4, 2), experts, layers)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("data", "model", "parts", "experts", "whole_table", "layers"),
    [(2, 4, 1, 1, True, 2), (4, 2, 1, 1, False, 1), (4, 2, 4, 4, True, 2), (4, 2, 2, 4, False, 1)],
)
def test_a_sharded_model_trains_as_on_one_device(data, model, parts, experts, whole_table, layers):
    config = tf.TransformerOpParallelConfig(data, model, parts, vocab_emb_dp=whole_table)
    alone = trained_on_one_device(experts, layers)
    init()
    cut = trained(config, experts, layers, parallel_mode="semi_auto_parallel", device_num=8)
    assert cut[0] == pytest.approx(alone[0], rel=2e-5)
    for name, value in alone[1].items():
        np.testing.assert_allclose(cut[1][name], value, rtol=1e-3, atol=2e-4, err_msg=name)


def test_attention_is_softmax_of_scaled_products():
    attention = tf.MultiHeadAttention(2, 3, 3, 8, 2, 0.0, 0.0, compute_dtype=ms.float32)
    x = floats(2, 3, 8)
    mask = np.tril(np.ones((2, 3, 3), np.float32))
    output, (key, value) = attention(x, x, x, Tensor(mask))
    assert key.shape == (2, 2, 4, 3) and value.shape == (2, 2, 3, 4) and output.shape == (2, 3, 8)
    q, k, v = (
        (x.asnumpy() @ layer.weight.asnumpy().T + layer.bias.asnumpy()).reshape(2, 3, 2, 4).transpose(0, 2, 1, 3)
        for layer in (attention.dense1, attention.dense2, attention.dense3)
    )
    scores = q @ k.transpose(0, 1, 3, 2) / 2 + (1 - mask[:, None]) * -10000
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = (weights / weights.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3).reshape(2, 3, 8)
    expected = mixed @ attention.projection.weight.asnumpy() + attention.projection.bias.asnumpy()
    np.testing.assert_allclose(output.asnumpy(), expected, rtol=1e-4, atol=1e-6)


def test_encoder_and_decoder_shapes_and_names():
    net = tf.Transformer(8, 2, 16, 5, 3, encoder_layers=1, decoder_layers=2)
    output, encoder, decoder = net(
        *(floats(2, 5, 8), Tensor(np.ones((2, 5, 5), np.float32))),
        *(floats(2, 3, 8), Tensor(np.ones((2, 3, 3), np.float32)), Tensor(np.ones((2, 3, 5), np.float32))),
    )
    assert output.shape == (2, 3, 8) and len(encoder) == 1 and len(decoder) == 2 and len(decoder[0]) == 4
    names = {p.name for p in net.trainable_params()}
    assert {
        "encoder.blocks.0.layernorm1.gamma",
        "encoder.blocks.0.attention.dense1.weight",
        "encoder.blocks.0.output.mapping.weight",
        "decoder.blocks.1.cross_attention.projection.bias",
        "decoder.blocks.1.cross_attention_layernorm.beta",
    } <= names


def test_experts_without_limits_do_what_the_chosen_expert_does():
    config = tf.MoEConfig(4, capacity_factor=4.0)
    moe = tf.MoE(8, 0.0, 16, hidden_act="relu", moe_config=config, compute_dtype=ms.float32)
    x = floats(6, 8)
    output, auxiliary = moe(x)
    logits = x.asnumpy() @ moe.router.dense.weight.asnumpy().T
    gates = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    chosen = gates.argmax(-1)
    first, second = moe.ffn.mapping, moe.ffn.projection
    for i, expert in enumerate(chosen):
        hidden = np.maximum(x.asnumpy()[i] @ first.weight.asnumpy()[expert] + first.bias.asnumpy()[0, expert, 0], 0)
        result = hidden @ second.weight.asnumpy()[expert] + second.bias.asnumpy()[0, expert, 0]
        np.testing.assert_allclose(output.asnumpy()[i], gates[i, expert] * result, rtol=1e-4, atol=1e-6)
    used = np.eye(4)[chosen].mean(0)
    assert float(auxiliary) == pytest.approx((used * gates.mean(0)).mean() * 16 * 0.05, rel=1e-5)


def test_tokens_beyond_the_room_of_their_expert_pass_it_by():
    router = tf.Router(2, tf.MoEConfig(2, capacity_factor=0.5))
    router.dense.weight.set_data(Tensor(np.array([[1, 0], [0, 1]], np.float32)))
    dispatch, combine, _ = router(Tensor(np.array([[[9, 0], [8, 0], [7, 0], [0, 9]]], np.float32)))
    assert dispatch.shape == (1, 4, 2, 1)
    assert dispatch.asnumpy()[0, :, :, 0].tolist() == [[1, 0], [0, 0], [0, 0], [0, 1]]
    assert combine.asnumpy().max() <= 1


def test_the_loss_is_the_mean_over_the_mask():
    logits, labels, mask = floats(6, 8), np.arange(6), np.array([1, 1, 0, 1, 0, 0], np.float32)
    loss = tf.CrossEntropyLoss()(logits, Tensor(labels.astype(np.int32)), Tensor(mask))
    values = logits.asnumpy()
    losses = np.log(np.exp(values).sum(-1)) - values[np.arange(6), labels]
    assert float(loss) == pytest.approx((losses * mask).sum() / (mask.sum() + 1e-5), rel=1e-5)


def test_layers_are_placed_on_stages_and_in_fusion_groups():
    config = tf.TransformerOpParallelConfig(pipeline_stage=2, gradient_aggregation_group=2, recompute=True)
    net = tf.TransformerEncoder(2, 4, 8, 16, 3, 2, parallel_config=config)
    assert [block.pipeline_stage for block in net.blocks] == [0, 0, 1, 1]
    assert [block.layernorm1.gamma.comm_fusion for block in net.blocks] == [1, 1, 2, 2]
    placed = []
    tf.TransformerEncoder(2, 2, 8, 16, 3, 2, lambda_func=lambda network, layer_id, **rest: placed.append(layer_id))
    assert placed == [0, 1]


def test_paths_of_other_releases():
    import sporax.mindspore.nn.transformer as old
    from sporax.mindspore.nn.transformer.moe import MoE
    from sporax.mindspore.parallel._transformer.transformer import VocabEmbedding

    assert VocabEmbedding is tf.VocabEmbedding
    assert old.TransformerEncoder is tf.TransformerEncoder and MoE is tf.MoE
    assert nn.TransformerEncoder is not tf.TransformerEncoder


@pytest.mark.parametrize(
    ("error", "make"),
    [
        (TypeError, lambda: tf.OpParallelConfig(1.0)),
        (ValueError, lambda: tf.OpParallelConfig(0)),
        (ValueError, lambda: tf.MoEConfig(capacity_factor=0)),
        (ValueError, lambda: tf.MoEConfig(2, num_experts_chosen=3)),
        (TypeError, lambda: tf.TransformerRecomputeConfig(1)),
        (ValueError, lambda: tf.MultiHeadAttention(1, 2, 2, 9, 2)),
        (ValueError, lambda: tf.FeedForward(6, 8, 0.1, parallel_config=tf.OpParallelConfig(1, 4))),
        (ValueError, lambda: tf.VocabEmbedding(9, 4, tf.EmbeddingOpParallelConfig(1, 2, vocab_emb_dp=False))),
        (
            ValueError,
            lambda: tf.MoE(4, 0.1, 8, moe_config=tf.MoEConfig(3), parallel_config=tf.MoEParallelConfig(2, 1, 2)),
        ),
        (NotImplementedError, lambda: tf.MultiHeadAttention(1, 2, 2, 8, 2, use_past=True)),
    ],
)
def test_what_is_refused(error, make):
    with pytest.raises(error, match="For '"):
        make()


def test_a_stack_is_called_as_any_cell():
    encoder = tf.TransformerEncoder(2, 1, HIDDEN, 2 * HIDDEN, LENGTH, HEADS, 0.0, 0.0, compute_dtype=ms.float32)
    x, mask, seen = floats(2, LENGTH, HIDDEN), Tensor(np.ones((2, LENGTH, LENGTH), np.float32)), []
    encoder.register_forward_hook(lambda cell, inputs, output: seen.append(output[0].shape))
    by_name = encoder(hidden_states=x, attention_mask=mask)[0]
    assert np.array_equal(by_name.asnumpy(), encoder(x, mask)[0].asnumpy())
    assert seen == [(2, LENGTH, HIDDEN)] * 2


def test_decorators_check_arguments_of_constructors():
    check = tf._args_type_validator_check
    kinds = {
        "act": tf._valid_type_checks([str], "Block"),
        "dtype": tf._valid_value_checks([ms.float32, ms.float16], "Block"),
    }

    class Block:
        @check(size=ms._checkparam.check_positive_int, **kinds)
        def __init__(self, size, act="gelu", dtype=ms.float32, **kwargs):
            self.size = size

    assert Block(3, dtype=ms.float16).size == 3
    with pytest.raises(ValueError, match="size"):
        Block(0)
    with pytest.raises(TypeError, match="For 'Block', the 'act' should be str, but got 'int'"):
        Block(3, act=1)
    with pytest.raises(TypeError, match="For 'Block', the 'dtype' should be one of"):
        Block(3, dtype=ms.int32)
