"""The same script in both modes, and when a step is compiled again."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, ops
from sporax.runtime.program import program


def network():
    return nn.SequentialCell(
        nn.Dense(6, 8, has_bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(p=0.2), nn.Dense(8, 3)
    )


def batch(size, seed=0):
    draw = np.random.default_rng(seed)
    rows = Tensor(draw.normal(size=(size, 6)).astype(np.float32))
    return rows, Tensor(draw.integers(0, 3, size), ms.int32)


def training_step(make_optimizer=lambda weights: nn.Adam(weights, 0.01)):
    ms.set_seed(3)
    net = network()
    return nn.TrainOneStepCell(
        nn.WithLossCell(net, nn.CrossEntropyLoss()), make_optimizer(net.trainable_params())
    ).set_train()


def losses(sizes=(8,) * 6, **settings):
    step = training_step(**settings)
    return [step(*batch(size, seed)).asnumpy().item() for seed, size in enumerate(sizes)]


def in_mode(mode, function):
    ms.set_context(mode=mode)
    return function()


def test_both_modes_give_the_same_losses_and_a_second_run_repeats_them():
    graph = in_mode(ms.GRAPH_MODE, losses)
    assert in_mode(ms.GRAPH_MODE, losses) == graph
    assert in_mode(ms.PYNATIVE_MODE, losses) == pytest.approx(graph, rel=1e-5)


def test_batch_size_may_change(mode):
    assert all(np.isfinite(losses((8, 3, 8))))


def test_a_step_is_compiled_once_per_shape_dtype_and_configuration():
    ms.set_context(mode=ms.GRAPH_MODE)
    step = training_step()
    for size in (8, 8, 3, 8, 3):
        step(*batch(size))
    reasons = ms.recompilations(step)
    assert len(reasons) == 2
    assert reasons[0].startswith("first call")
    assert "argument 0 changed from float32[8, 6] to float32[3, 6]" in reasons[1]
    step.set_train(False)
    step(*batch(8))
    assert "training changed from True to False" in ms.recompilations(step)[2]
    step.set_train()
    step(*batch(8))
    assert len(ms.recompilations(step)) == 3
    rows, labels = batch(8)
    step(rows, labels.astype(ms.int64))
    assert len(ms.recompilations(step)) == 4


def test_static_arguments_are_part_of_what_is_compiled():
    class Scale(nn.Cell):
        def construct(self, x, factor):
            return x * factor

    ms.set_context(mode=ms.GRAPH_MODE)
    net, x = Scale(), Tensor([1.0])
    assert [net(x, factor).asnumpy().item() for factor in (2, 2, 3, 2)] == [2, 2, 3, 2]
    assert len(ms.recompilations(net)) == 2
    assert "argument 1 changed from 2 to 3" in ms.recompilations(net)[1]


def test_a_learning_rate_set_by_the_user_needs_no_compilation():
    ms.set_context(mode=ms.GRAPH_MODE)
    step = training_step(lambda weights: nn.SGD(weights, 0.1))
    step(*batch(8))
    weights = [weight.asnumpy() for weight in step.weights]
    step.optimizer.learning_rate.set_data(Tensor(0.0))
    step(*batch(8, 1))
    for before, after in zip(weights, step.weights, strict=True):
        np.testing.assert_array_equal(before, after.asnumpy())
    assert len(ms.recompilations(step)) == 1


def test_step_with_gradients_returned(mode):
    net = nn.Dense(2, 1, weight_init="ones", bias_init="zeros")
    step = nn.TrainOneStepCell(
        nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.0), sens=2.0, return_grad=True
    )
    loss, grads = step(Tensor([[1.0, 1.0]]), Tensor([[0.0]]))
    assert loss.asnumpy() == 4
    assert grads["weight"].asnumpy().tolist() == [[8.0, 8.0]]


def test_moving_statistics_are_those_of_the_formula(mode, tensor):
    norm = nn.BatchNorm2d(2, momentum=0.7).set_train()
    x = tensor(3, 2, 4, 4)
    y = norm(x).asnumpy()
    values = x.asnumpy()
    mean, variance = values.mean((0, 2, 3)), values.var((0, 2, 3))
    expected = (values - mean[:, None, None]) / np.sqrt(variance[:, None, None] + 1e-5)
    np.testing.assert_allclose(y, expected, atol=1e-5)
    np.testing.assert_allclose(norm.moving_mean.asnumpy(), 0.3 * mean, rtol=1e-5)
    unbiased = variance * 48 / 47
    np.testing.assert_allclose(norm.moving_variance.asnumpy(), 0.7 + 0.3 * unbiased, rtol=1e-5)
    norm.set_train(False)
    before = norm.moving_mean.asnumpy()
    norm(x)
    np.testing.assert_array_equal(before, norm.moving_mean.asnumpy())


def test_instance_norm_normalises_each_image(mode, tensor):
    norm = nn.InstanceNorm2d(2, affine=False).set_train()
    x = tensor(3, 2, 4, 4)
    values = x.asnumpy()
    mean, variance = values.mean((2, 3), keepdims=True), values.var((2, 3), keepdims=True)
    np.testing.assert_allclose(norm(x).asnumpy(), (values - mean) / np.sqrt(variance + 1e-5), atol=1e-5)
    np.testing.assert_allclose(norm.moving_mean.asnumpy(), 0.1 * mean.mean((0, 2, 3)), atol=1e-6)
    assert norm.trainable_params() == []


def test_rms_norm_divides_by_the_root_mean_square(mode, tensor):
    x = tensor(2, 3, 4)
    values = x.asnumpy()
    expected = values / np.sqrt((values**2).mean(-1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(nn.RMSNorm(4)(x).asnumpy(), expected, rtol=1e-5)
    with pytest.raises(ValueError, match=r"must end with \(3,\)"):
        nn.RMSNorm((3,))(x)


def test_sync_batch_norm_of_one_process_is_batch_norm(tensor):
    x = tensor(3, 2, 4, 4)
    np.testing.assert_array_equal(
        nn.SyncBatchNorm(2).set_train()(x).asnumpy(), nn.BatchNorm2d(2).set_train()(x).asnumpy()
    )


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_agree_between_modes_and_train(kind, tensor):
    ms.set_seed(0)
    net = kind(3, 4, bidirectional=True)
    x = tensor(5, 2, 3)
    lengths = Tensor([5, 2], ms.int32)

    def run():
        return ms.value_and_grad(
            lambda x: ops.reduce_sum(ops.square(net(x, None, lengths)[0])), 0, net.trainable_params()
        )(x)

    eager, eager_grads = in_mode(ms.PYNATIVE_MODE, run)
    graph, graph_grads = in_mode(ms.GRAPH_MODE, run)
    np.testing.assert_allclose(eager.asnumpy(), graph.asnumpy(), rtol=1e-5)
    for one, other in zip(eager_grads[1], graph_grads[1], strict=True):
        np.testing.assert_allclose(one.asnumpy(), other.asnumpy(), rtol=1e-4, atol=1e-6)
    outputs = net(x, None, lengths)[0].asnumpy()
    assert (outputs[2:, 1] == 0).all()
    assert (eager_grads[0].asnumpy()[2:, 1] == 0).all()


def test_padding_does_not_reach_a_shorter_sequence(tensor):
    net, x = nn.LSTM(3, 4, bidirectional=True), tensor(5, 2, 3)
    _, (whole, _) = net(x, seq_length=Tensor([5, 2], ms.int32))
    _, (alone, _) = net(x[:2, 1:2])
    np.testing.assert_allclose(whole.asnumpy()[:, 1], alone.asnumpy()[:, 0], rtol=1e-5)


def test_dropout_between_recurrent_layers_acts_while_training(tensor):
    net, x = nn.GRU(3, 8, 2, dropout=0.5), tensor(4, 2, 3)
    assert (net(x)[0].asnumpy() == net(x)[0].asnumpy()).all()
    net.set_train()
    assert (net(x)[0].asnumpy() != net(x)[0].asnumpy()).any()
    with pytest.warns(UserWarning, match="no effect"):
        nn.GRU(3, 8, 1, dropout=0.5)


@pytest.mark.parametrize(
    ("layer", "shape"), [(nn.Dropout1d, (4, 50, 3)), (nn.Dropout2d, (4, 50, 3, 2)), (nn.Dropout3d, (4, 50, 1, 3, 2))]
)
def test_dropout_of_channels_zeroes_them_whole_and_keeps_the_mean(layer, shape):
    ms.set_seed(1)
    net = layer(0.4).set_train()
    y = net(ops.ones(shape, ms.float32)).asnumpy().reshape(4, 50, -1)
    assert (y == y[..., :1]).all()
    assert set(np.unique(y).round(4)) == {0.0, np.float32(1 / 0.6).round(4)}
    assert 0.2 < (y[..., 0] == 0).mean() < 0.6


class Counter(nn.Cell):
    """Counts its calls, takes turns, and notes shapes."""

    def __init__(self):
        super().__init__()
        self.calls, self.on, self.notes, self.seen = 0, False, [1], {}

    def construct(self, x):
        self.calls += 1
        self.on = not self.on
        self.notes.append(x.shape)
        self.seen["count"] = self.seen.get("count", 0) + 1
        return x * self.calls * (1 if self.on else -1) * len(self.notes) * self.seen["count"]


@pytest.mark.parametrize("wrap", [lambda net: net, lambda net: ms.grad(net), lambda net: nn.SequentialCell(net)])
@pytest.mark.parametrize("devices", [1, 8])
def test_what_a_compiled_network_assigns_is_assigned_once_per_call(wrap, devices, request):
    """However often it is traced; what it puts into lists and dicts stays inside."""
    ms.set_context(mode=ms.GRAPH_MODE)
    request.addfinalizer(ms.reset_auto_parallel_context)
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=devices)
    net = Counter()
    run, x = wrap(net), Tensor(np.ones(8, np.float32))
    program._warn_of_assignment.cache_clear()
    with pytest.warns(
        UserWarning, match="'Counter', 'construct' assigns the attribute 'calls'.* A Parameter"
    ) as warned:
        assert [float(run(x).asnumpy()[0]) for _ in range(4)] == [2, -4, 6, -8]
    assert len(warned) == 1
    assert (net.calls, net.on, net.notes, net.seen) == (4, False, [1], {})


def test_a_compilation_that_fails_assigns_nothing():
    class Wrong(Counter):
        def construct(self, x):
            return super().construct(x) + ops.ones(3)

    ms.set_context(mode=ms.GRAPH_MODE)
    net = Wrong()
    with pytest.raises(ValueError, match="8"):
        net(Tensor(np.ones(8, np.float32)))
    assert (net.calls, net.on, net.notes) == (0, False, [1])
