"""Recurrent operators against the layers of `nn`, whose weights have another order."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.base.errors import SporaxNotImplementedError, SporaxTypeError, SporaxValueError
from sporax.mindspore import Tensor, nn, ops

INPUT, HIDDEN, STEPS, BATCH = 3, 2, 4, 2
IFGO_TO_IJFO = [0, 2, 1, 3]


def some(*shape, shift=0.0):
    return np.sin(1.3 * np.arange(int(np.prod(shape))) + shift).astype(np.float32).reshape(shape)


def layer(kind, **settings):
    net = kind(INPUT, HIDDEN, **settings)
    for number, parameter in enumerate(net.get_parameters()):
        parameter.set_data(Tensor(some(*parameter.shape, shift=number)))
    return net


def weights(net):
    return [parameter.asnumpy() for parameter in net.get_parameters()]


def in_order(array, order):
    """Rows of an array of gates in another order."""
    return np.concatenate([np.split(array, len(order))[place] for place in order])


pytestmark = pytest.mark.usefixtures("mode")


@pytest.mark.parametrize("bidirectional", [False, True])
def test_lstm_is_the_layer_with_its_weights_in_one_tensor(bidirectional):
    net = layer(nn.LSTM, bidirectional=bidirectional)
    x, h, c = some(STEPS, BATCH, INPUT), some(1 + bidirectional, BATCH, HIDDEN), some(1 + bidirectional, BATCH, HIDDEN)
    of_input, of_state, *biases = (
        [item.asnumpy() for item in group] for group in (net.w_ih_list, net.w_hh_list, net.b_ih_list, net.b_hh_list)
    )
    biases = [one + other for one, other in zip(*biases, strict=True)]
    flat = np.concatenate([item.ravel() for item in (*of_input, *of_state, *biases)])
    output, last_h, last_c, *_ = ops.LSTM(INPUT, HIDDEN, 1, True, bidirectional, 0.0)(*map(Tensor, (x, h, c, flat)))
    expected, (expected_h, expected_c) = net(Tensor(x), (Tensor(h), Tensor(c)))
    np.testing.assert_allclose(output.asnumpy(), expected.asnumpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(last_h.asnumpy(), expected_h.asnumpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(last_c.asnumpy(), expected_c.asnumpy(), rtol=1e-5, atol=1e-6)


def test_lstm_takes_both_biases_of_a_cell():
    x, h, w = some(STEPS, BATCH, INPUT), some(1, BATCH, HIDDEN), some(40)
    one, other = some(8), some(8, shift=1.0)
    lstm = ops.LSTM(INPUT, HIDDEN, 1, True, False, 0.0)
    together = lstm(*map(Tensor, (x, h, h, np.concatenate([w, one + other]))))[0]
    apart = lstm(*map(Tensor, (x, h, h, np.concatenate([w, one, other]))))[0]
    np.testing.assert_allclose(apart.asnumpy(), together.asnumpy(), rtol=1e-5)


def test_lstm_drops_between_layers_only():
    ms.set_seed(0)
    x, h, w = map(Tensor, (some(50, 4, 2), some(2, 4, 2), some(64)))
    plain = ops.LSTM(2, 2, 2, False, False, 0.0)(x, h, h, w)
    dropped = ops.LSTM(2, 2, 2, False, False, 0.5)(x, h, h, w)
    np.testing.assert_array_equal(dropped[1].asnumpy()[0], plain[1].asnumpy()[0])
    assert np.abs(dropped[0].asnumpy() - plain[0].asnumpy()).max() > 0.01


def test_lstm_names_what_does_not_fit():
    h = Tensor(some(1, BATCH, HIDDEN))
    with pytest.raises(SporaxValueError, match=r"For 'LSTM', 'w' must have 40 elements, but got 39"):
        ops.LSTM(INPUT, HIDDEN, 1, False, False, 0.0)(Tensor(some(STEPS, BATCH, INPUT)), h, h, Tensor(some(39)))
    with pytest.raises(SporaxTypeError, match="For 'LSTM', 'dropout' must be a float, but got int"):
        ops.LSTM(INPUT, HIDDEN, 1, False, False, 1)


def test_dynamic_rnn_is_an_lstm():
    net = layer(nn.LSTM)
    of_input, of_state, *biases = (in_order(weight, IFGO_TO_IJFO) for weight in weights(net))
    x, h, c = some(STEPS, BATCH, INPUT), some(1, BATCH, HIDDEN), some(1, BATCH, HIDDEN, shift=2.0)
    w, b = Tensor(np.concatenate([of_input.T, of_state.T])), Tensor(sum(biases))

    def total(x, w, b):
        return ops.DynamicRNN()(x, w, b, None, Tensor(h), Tensor(c))[0].sum()

    y, shown, memory, i, j, f, o, tanh_c = ops.DynamicRNN()(Tensor(x), w, b, None, Tensor(h), Tensor(c))
    expected, (last_h, last_c) = net(Tensor(x), (Tensor(h), Tensor(c)))
    np.testing.assert_allclose(y.asnumpy(), expected.asnumpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(shown[-1:].asnumpy(), last_h.asnumpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(memory[-1:].asnumpy(), last_c.asnumpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose((f[1] * memory[0] + i[1] * j[1]).asnumpy(), memory[1].asnumpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose((o * tanh_c).asnumpy(), y.asnumpy(), rtol=1e-5, atol=1e-6)
    gradient = ms.grad(total)(Tensor(x), w, b)
    reference = ms.grad(lambda x: net(x, (Tensor(h), Tensor(c)))[0].sum())(Tensor(x))
    np.testing.assert_allclose(gradient.asnumpy(), reference.asnumpy(), rtol=1e-4, atol=1e-6)


def test_dynamic_rnn_clips_memories_and_opens_the_forget_gate():
    x, h = Tensor(some(STEPS, BATCH, INPUT)), Tensor(some(1, BATCH, HIDDEN))
    w, b = Tensor(some(INPUT + HIDDEN, 8)), Tensor(some(8))
    clipped = ops.DynamicRNN(cell_clip=0.1)(x, w, b, None, h, h)
    assert np.abs(clipped[2].asnumpy()).max() <= 0.1 + 1e-6
    biased = ops.DynamicRNN(forget_bias=1.0)(x, w, b, None, h, h)
    moved = ops.DynamicRNN()(x, w, b + Tensor(np.repeat([0, 0, 1, 0], HIDDEN).astype(np.float32)), None, h, h)
    np.testing.assert_allclose(biased[0].asnumpy(), moved[0].asnumpy(), rtol=1e-5)


@pytest.mark.parametrize("order", ["rzh", "zrh"])
def test_dynamic_gru_is_a_gru(order):
    net = layer(nn.GRU)
    places = {"rzh": [0, 1, 2], "zrh": [1, 0, 2]}[order]
    of_input, of_state, bias_input, bias_hidden = (in_order(item, places) for item in weights(net))
    x, h = some(STEPS, BATCH, INPUT), some(BATCH, HIDDEN)
    given = (x, of_input.T, of_state.T, bias_input, bias_hidden)
    results = ops.DynamicGRUV2(gate_order=order)(*map(Tensor, given), None, Tensor(h))
    expected, _ = net(Tensor(x), Tensor(h[None]))
    y, shown, update, reset, new, hidden_new = (item.asnumpy() for item in results)
    np.testing.assert_allclose(y, expected.asnumpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose((1 - update[1]) * new[1] + update[1] * y[0], shown[1], rtol=1e-5, atol=1e-6)
    candidate = np.tanh(x @ weights(net)[0][-HIDDEN:].T + weights(net)[2][-HIDDEN:] + reset * hidden_new)
    np.testing.assert_allclose(candidate, new, rtol=1e-5, atol=1e-6)


def test_dynamic_gru_may_reset_the_state_itself():
    x, h, w, u = some(1, BATCH, INPUT), some(BATCH, HIDDEN), some(INPUT, 6), some(HIDDEN, 6)
    results = ops.DynamicGRUV2(reset_after=False)(*map(Tensor, (x, w, u)), None, None, None, Tensor(h))
    _, _, _, reset, new, _ = (result.asnumpy() for result in results)
    np.testing.assert_allclose(new[0], np.tanh(x[0] @ w[:, 4:] + (reset[0] * h) @ u[:, 4:]), rtol=1e-5, atol=1e-6)


def test_settings_of_the_hardware_are_refused():
    x, h = Tensor(some(STEPS, BATCH, INPUT)), Tensor(some(1, BATCH, HIDDEN))
    with pytest.raises(SporaxNotImplementedError, match="For 'DynamicRNN', 'num_proj' must be 0, but got 3"):
        ops.DynamicRNN(num_proj=3)(x, Tensor(some(5, 8)), Tensor(some(8)), None, h, h)
    with pytest.raises(
        SporaxValueError, match=r"For 'DynamicRNN', the shape of 'w' must be \(5, 8\), but got \(4, 8\)"
    ):
        ops.DynamicRNN()(x, Tensor(some(4, 8)), Tensor(some(8)), None, h, h)
