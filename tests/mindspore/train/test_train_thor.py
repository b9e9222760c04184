"""`ModelThor`: which steps renew the second-order matrices, and how a model becomes one."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn
from sporax.mindspore.train import ConvertModelUtils, Model
from sporax.mindspore.train.train_thor import ModelThor

FREQUENCY = 3


def make(**options):
    ms.set_seed(4)
    net = nn.SequentialCell(nn.Dense(2, 4, activation="tanh"), nn.Dense(4, 3))
    rates = Tensor(np.full(20, 0.1, np.float32))
    optimizer = nn.thor(net, rates, rates, 0.9, batch_size=2, frequency=FREQUENCY)
    model = Model(net, nn.MSELoss(), optimizer)
    return net, ConvertModelUtils.convert_to_thor_model(model, net, nn.MSELoss(), optimizer, **options), optimizer


class Matrices(ms.Callback):
    """Remembers an inverse after every step that callbacks get."""

    def __init__(self, optimizer):
        self.optimizer, self.seen = optimizer, []

    def on_train_step_end(self, run_context):
        self.seen.append(self.optimizer.matrix_g[0].asnumpy())

    def changes(self):
        return [bool((before != after).any()) for before, after in zip(self.seen, self.seen[1:], strict=False)]


def test_a_sink_renews_the_matrices_once_in_so_many_steps(make_data):
    ms.set_context(mode=ms.GRAPH_MODE)
    _, model, optimizer = make()
    matrices = Matrices(optimizer)
    # Sinks of one step, so that the callback sees every step.
    model.train(7, make_data(), callbacks=[matrices], dataset_sink_mode=True, sink_size=1)
    assert matrices.changes() == [False, False, True, False, False, True]
    assert int(optimizer.cov_step.asnumpy()[0]) == 7


def test_both_kinds_of_steps_are_compiled_once(make_data):
    ms.set_context(mode=ms.GRAPH_MODE)
    _, model, _ = make()
    model.train(4, make_data(), dataset_sink_mode=True)
    model.train(2, make_data(), dataset_sink_mode=True)
    assert len(model.train_network.program.compilations) == 2


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
def test_without_a_sink_every_step_renews_them(make_data, mode):
    ms.set_context(mode=mode)
    _, model, optimizer = make()
    matrices = Matrices(optimizer)
    model.train(2, make_data(), callbacks=[matrices])
    assert matrices.changes() == [True] * 5


def test_a_run_after_a_sink_begins_with_new_matrices(make_data):
    ms.set_context(mode=ms.GRAPH_MODE)
    net, model, optimizer = make()
    model.train(1, make_data(), dataset_sink_mode=True, sink_size=2)
    assert optimizer.thor and net[0].thor


def test_training_lowers_the_loss(make_data):
    ms.set_context(mode=ms.GRAPH_MODE)
    _, model, _ = make(metrics={"loss"})
    before = model.eval(make_data())["loss"]
    model.train(5, make_data(), dataset_sink_mode=True)
    assert model.eval(make_data())["loss"] < before / 2


def test_conversion_takes_a_training_cell():
    net, _, optimizer = make()
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer)
    model = ConvertModelUtils.convert_to_thor_model(None, step, optimizer=optimizer)
    assert isinstance(model, ModelThor)
    assert model.train_network is step


def test_conversion_leaves_models_of_other_optimizers(make_model):
    model = make_model()
    assert (
        ConvertModelUtils.convert_to_thor_model(
            model, None, optimizer=nn.Momentum(model.predict_network.trainable_params(), 0.1, 0.9)
        )
        is model
    )


def test_another_optimizer_is_refused():
    net = nn.Dense(2, 3)
    with pytest.raises(TypeError, match="For 'ModelThor', the optimizer must be one that nn.thor made, but got SGD"):
        ModelThor(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1))
