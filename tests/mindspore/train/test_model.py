"""`Model`: the numbers of training, what callbacks are notified of, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn
from sporax.mindspore.dataset import NumpySlicesDataset
from sporax.mindspore.parallel.auto_parallel import AutoParallel
from sporax.mindspore.train import Callback, History, LossMonitor, Model
from sporax.mindspore.train._loop import GroupedSteps
from sporax.runtime.program.variant import Variant

MODES = [ms.GRAPH_MODE, ms.PYNATIVE_MODE]


class Recorder(Callback):
    """Notes every event with the numbers known at it."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("on_"):
            return object.__getattribute__(self, name)

        def note(run_context: Any) -> None:
            facts = run_context.original_args()
            self.events.append((name[3:], facts.get("cur_epoch_num"), facts.cur_step_num, facts.batch_num, facts.mode))

        return note


def reference_losses(num_epochs: int, num_samples: int = 6, batch_size: int = 2) -> list[float]:
    """The same training, written with numpy."""
    x = np.arange(num_samples * 2, dtype=np.float64).reshape(num_samples, 2) / 10
    weight, bias = np.ones((3, 2)), np.zeros(3)
    moments = [np.zeros((3, 2)), np.zeros(3)]
    losses = []
    for step in range(num_epochs * (num_samples // batch_size)):
        rows = x[(step * batch_size) % num_samples :][:batch_size]
        error = rows @ weight.T + bias - 1
        losses.append(float((error**2).mean()))
        scale = 2 / error.size
        for moment, gradient in zip(moments, (scale * error.T @ rows, scale * error.sum(axis=0)), strict=True):
            moment *= 0.9
            moment += gradient
        weight -= 0.1 * moments[0]
        bias -= 0.1 * moments[1]
    return losses


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sink", [False, True])
def test_losses_equal_a_hand_written_training(make_data: Any, make_model: Any, mode: int, sink: bool) -> None:
    ms.set_context(mode=mode)
    history = History()
    make_model().train(4, make_data(), callbacks=history, dataset_sink_mode=sink)
    ends = reference_losses(4)[2::3]
    np.testing.assert_allclose(history.history["net_output"], ends, rtol=1e-5)
    assert history.epoch == {"epoch": [1, 2, 3, 4]}


def test_events_of_fit_come_in_the_order_of_mindspore(make_data: Any, make_model: Any) -> None:
    recorder = Recorder()
    make_model(metrics={"mae"}).fit(2, make_data(4), make_data(2), valid_frequency=[2], callbacks=recorder)
    assert recorder.events == [
        ("train_begin", None, 0, 2, "train"),
        ("train_epoch_begin", 1, 0, 2, "train"),
        ("train_step_begin", 1, 1, 2, "train"),
        ("train_step_end", 1, 1, 2, "train"),
        ("train_step_begin", 1, 2, 2, "train"),
        ("train_step_end", 1, 2, 2, "train"),
        ("train_epoch_end", 1, 2, 2, "train"),
        ("train_epoch_begin", 2, 2, 2, "train"),
        ("train_step_begin", 2, 3, 2, "train"),
        ("train_step_end", 2, 3, 2, "train"),
        ("train_step_begin", 2, 4, 2, "train"),
        ("train_step_end", 2, 4, 2, "train"),
        ("eval_begin", 2, 0, 1, "eval"),
        ("eval_epoch_begin", 2, 0, 1, "eval"),
        ("eval_step_begin", 2, 1, 1, "eval"),
        ("eval_step_end", 2, 1, 1, "eval"),
        ("eval_epoch_end", 2, 1, 1, "eval"),
        ("eval_end", 2, 1, 1, "eval"),
        ("train_epoch_end", 2, 4, 2, "train"),
        ("train_end", 2, 4, 2, "train"),
    ]


class Modes(Callback):
    """Notes whether the network trains when a step begins."""

    def __init__(self) -> None:
        self.train: list[bool] = []
        self.eval: list[bool] = []

    def on_train_step_begin(self, run_context: Any) -> None:
        self.train.append(run_context.original_args().train_network.training)

    def on_eval_step_begin(self, run_context: Any) -> None:
        self.eval.append(run_context.original_args().eval_network.training)


@pytest.mark.parametrize("mode", MODES)
def test_training_that_follows_an_evaluation_trains_from_its_first_step(
    make_data: Any, make_model: Any, mode: int
) -> None:
    ms.set_context(mode=mode)
    modes, model = Modes(), make_model(metrics={"mae"})
    model.fit(1, make_data(4), make_data(2), callbacks=modes)
    model.train(1, make_data(4), callbacks=modes)
    model.eval(make_data(2), callbacks=modes)
    model.fit(1, make_data(4), make_data(2), callbacks=modes)
    assert set(modes.train) == {True}
    assert set(modes.eval) == {False}


def test_sink_mode_notifies_callbacks_once_per_epoch(make_data: Any, make_model: Any) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    recorder = Recorder()
    make_model().train(2, make_data(), callbacks=recorder, dataset_sink_mode=True, sink_size=2)
    steps = [event for event in recorder.events if event[0].startswith("train_step")]
    assert steps == [
        ("train_step_begin", 1, 2, 2, "train"),
        ("train_step_end", 1, 2, 2, "train"),
        ("train_step_begin", 2, 4, 2, "train"),
        ("train_step_end", 2, 4, 2, "train"),
    ]


@pytest.mark.parametrize("mode", MODES)
def test_sink_size_reads_on_where_the_last_epoch_stopped(make_data: Any, make_model: Any, mode: int) -> None:
    ms.set_context(mode=mode)
    history = History()
    make_model().train(3, make_data(), callbacks=history, dataset_sink_mode=True, sink_size=2)
    np.testing.assert_allclose(history.history["net_output"], reference_losses(2)[1::2], rtol=1e-5)


def test_a_group_of_steps_is_one_dispatch(make_data: Any, make_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    call = GroupedSteps.__call__
    monkeypatch.setattr(
        GroupedSteps, "__call__", lambda self, group: (sizes.append(group.num_steps), call(self, group))[1]
    )
    ms.set_context(mode=ms.GRAPH_MODE)
    model = make_model()
    model.train(2, make_data(5), dataset_sink_mode=True)
    model.train(1, make_data(4), dataset_sink_mode=True)
    assert sizes == [2, 1, 2, 1, 2]  # the last batch of an epoch is shorter and runs alone
    assert len(model._steps.program.compilations) == 1


@pytest.mark.parametrize(("sink", "dispatches"), [(False, 12), (True, 2)])
def test_compiled_programs_are_started_once_per_group(
    make_data: Any, make_model: Any, monkeypatch: pytest.MonkeyPatch, sink: bool, dispatches: int
) -> None:
    """Counted where a compiled program is handed to XLA, compiling apart: two epochs of six steps."""
    ms.set_context(mode=ms.GRAPH_MODE)
    started = []
    run = Variant.run
    monkeypatch.setattr(Variant, "run", lambda self, *args: (started.append(self), run(self, *args))[1])
    history = History()
    make_model().train(2, make_data(12), callbacks=history, dataset_sink_mode=sink)
    assert len(started) == dispatches
    assert len(history.history["net_output"]) == 2


def test_convolutions_are_not_grouped_on_the_host() -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    image, vector = (Tensor(np.ones(shape, np.float32)) for shape in ((1, 1, 4, 4), (1, 4)))
    assert not GroupedSteps(nn.Conv2d(1, 1, 3)).groupable((image,))
    assert GroupedSteps(nn.Dense(4, 1)).groupable((vector,))


def test_a_step_is_compiled_once(make_data: Any, make_model: Any) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    model = make_model(metrics={"mae"})
    model.fit(3, make_data(), make_data(2))
    assert len(ms.recompilations(model.train_network)) == 1
    assert len(ms.recompilations(model.eval_network)) == 1


def test_dropout_is_on_in_training_and_off_elsewhere(make_data: Any) -> None:
    seen = []

    class Watching(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.dense = nn.Dense(2, 3)

        def construct(self, x: Any) -> Any:
            seen.append(self.training)
            return self.dense(x)

    net = Watching()
    model = Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1), {"mse"})

    class EvaluateInBetween(Callback):
        def on_train_step_end(self, run_context: Any) -> None:
            model.eval(make_data(2))

    model.train(1, make_data(4), callbacks=EvaluateInBetween())
    model.predict(Tensor(np.ones((1, 2), np.float32)))
    assert seen == [True, False, True, False, False]


def test_a_callback_ends_training_after_its_step(make_data: Any, make_model: Any) -> None:
    class StopAtTwo(Callback):
        def on_train_step_end(self, run_context: Any) -> None:
            if run_context.original_args().cur_step_num == 2:
                run_context.request_stop()

    recorder = Recorder()
    make_model().train(3, make_data(), callbacks=[StopAtTwo(), recorder])
    assert recorder.events[-3:] == [
        ("train_step_end", 1, 2, 3, "train"),
        ("train_epoch_end", 1, 2, 3, "train"),
        ("train_end", 1, 2, 3, "train"),
    ]


def test_initial_epoch_counts_epochs_already_done(make_data: Any, make_model: Any) -> None:
    history = History()
    make_model().train(3, make_data(), callbacks=history, initial_epoch=1)
    assert history.epoch == {"epoch": [2, 3]}


def test_eval_gives_all_metrics(make_data: Any, make_model: Any) -> None:
    x = np.arange(12).reshape(6, 2) / 10
    error = x.sum(axis=1, keepdims=True) - np.ones((6, 3))
    result = make_model(metrics={"mae", "mse", "loss"}).eval(make_data())
    assert result == pytest.approx(
        {"loss": (error**2).mean(), "mae": np.abs(error).sum() / 6, "mse": (error**2).sum() / 6}, rel=1e-5
    )


def test_fit_offers_the_evaluation_to_callbacks(make_data: Any, make_model: Any, capsys: Any) -> None:
    results = []

    class Look(Callback):
        def on_train_epoch_end(self, run_context: Any) -> None:
            results.append(run_context.original_args().get("eval_results"))

    make_model(metrics={"mae"}).fit(2, make_data(), make_data(), valid_frequency=2, callbacks=[Look(), LossMonitor(0)])
    assert results[0] is None
    assert set(results[1]) == {"mae", "eval_loss"}
    assert capsys.readouterr().out.startswith("Eval result: epoch 2, metrics: {'mae': ")


def test_own_evaluation_network_and_indexes(make_data: Any, make_model: Any) -> None:
    class Evaluation(nn.Cell):
        def construct(self, x: Any, y: Any) -> Any:
            return y * 0 + 3, x.sum() * 0 + 2, y

    model = make_model(metrics={"mae", "loss"}, eval_network=Evaluation(), eval_indexes=[1, 0, 2])
    assert model.eval(make_data()) == {"loss": 2.0, "mae": 6.0}


def test_networks_without_loss_or_optimizer(make_data: Any) -> None:
    class WithLoss(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.dense = nn.Dense(2, 3, weight_init="zeros")

        def construct(self, x: Any, y: Any) -> Any:
            return ((self.dense(x) - y) ** 2).mean()

    net = WithLoss()
    history = History()
    Model(net, optimizer=nn.SGD(net.trainable_params(), 0.1)).train(2, make_data(), callbacks=history)
    assert history.history["net_output"][1] < history.history["net_output"][0]
    Model(nn.Dense(2, 3), nn.MSELoss()).train(1, make_data())  # computes losses, updates nothing


def test_three_columns_go_to_a_network_that_takes_them() -> None:
    class Sum(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.scale = ms.Parameter(Tensor(1.0), name="scale")

        def construct(self, a: Any, b: Any, c: Any) -> Any:
            return (self.scale * (a + b + c)).sum()

    columns = NumpySlicesDataset(tuple(np.ones((4, 2), np.float32) for _ in "abc"), list("abc")).batch(2)
    net = Sum()
    history = History()
    Model(net, optimizer=nn.SGD(net.trainable_params(), 0.01)).train(1, columns, callbacks=history)
    assert history.history["net_output"][0] == pytest.approx(12 * (1 - 0.01 * 12), rel=1e-6)


def test_predict_runs_the_network(make_model: Any) -> None:
    result = make_model().predict(Tensor(np.ones((1, 2), np.float32)))
    np.testing.assert_array_equal(result.asnumpy(), [[2, 2, 2]])


def test_build_compiles_without_training(make_data: Any, make_model: Any) -> None:
    model = make_model(metrics={"mae"})
    with pytest.raises(RuntimeError, match="GRAPH_MODE"):
        model.build(make_data())
    ms.set_context(mode=ms.GRAPH_MODE)
    model.build(make_data(), make_data())
    np.testing.assert_array_equal(model.predict_network.weight.asnumpy(), np.ones((3, 2)))
    model.fit(1, make_data(), make_data())
    assert len(ms.recompilations(model.train_network)) == 1


def test_a_network_brings_its_parallel_settings(make_data: Any) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    modes = []

    class Look(Callback):
        def on_train_step_end(self, run_context: Any) -> None:
            modes.append(ms.get_auto_parallel_context("auto_parallel_new_interface"))

    net = nn.Dense(2, 3)
    optimizer = nn.SGD(net.trainable_params(), 0.1)
    Model(AutoParallel(net), nn.MSELoss(), optimizer).train(1, make_data(2), callbacks=Look())
    assert modes == [True]
    assert ms.get_auto_parallel_context("auto_parallel_new_interface") is False


# ------------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"epoch": 0}, ValueError, "'epoch' must be >= 1, but got 0"),
        ({"epoch": 1.5}, TypeError, "'epoch' must be a whole number, but got float"),
        ({"epoch": True}, TypeError, "'epoch' must be a whole number, but got bool"),
        ({"epoch": 2, "initial_epoch": 2}, ValueError, "greater than 'initial_epoch', but got 2 and 2"),
        ({"initial_epoch": -1}, ValueError, "'initial_epoch' must be >= 0"),
        ({"sink_size": 0}, ValueError, "'sink_size' must be -1 or positive, but got 0"),
        ({"sink_size": 1.5}, TypeError, "'sink_size' must be a whole number"),
        ({"dataset_sink_mode": 1}, TypeError, "'dataset_sink_mode' must be a bool, but got int"),
        ({"callbacks": 3}, TypeError, "must be a Callback or a list of Callbacks, but got int"),
        ({"callbacks": [3]}, TypeError, "must be a Callback or a list of Callbacks, but got int"),
        ({"train_dataset": None}, TypeError, "must be a Dataset, but got NoneType"),
    ],
)
def test_train_refuses(
    make_data: Any, make_model: Any, arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        make_model().train(**{"epoch": 1, "train_dataset": make_data(), **arguments})


def test_wrong_data_are_refused(make_data: Any, make_model: Any) -> None:
    columns = NumpySlicesDataset(tuple(np.ones((4, 2), np.float32) for _ in "abc"), list("abc")).batch(2)
    with pytest.raises(ValueError, match=r"two columns .* but got 3"):
        make_model().train(1, columns)
    with pytest.raises(ValueError, match="must not be empty"):
        make_model().train(1, make_data(1).batch(4, drop_remainder=True))


def test_fit_and_eval_need_metrics(make_data: Any, make_model: Any) -> None:
    with pytest.raises(ValueError, match=r"'Model.fit', the model must have 'metrics'"):
        make_model().fit(1, make_data(), make_data())
    with pytest.raises(ValueError, match=r"'Model.eval', the model must have 'metrics'"):
        make_model().eval(make_data())
    with pytest.raises(TypeError, match="'valid_frequency'"):
        make_model(metrics={"mae"}).fit(1, make_data(), make_data(), valid_frequency="a")


def test_fit_refuses_the_older_events(make_data: Any, make_model: Any) -> None:
    class Old(Callback):
        def epoch_end(self, run_context: Any) -> None:
            pass

    with pytest.raises(ValueError, match=r"callback 'Old' must use the events .* overrides \['epoch_end'\]"):
        make_model(metrics={"mae"}).fit(1, make_data(), make_data(), callbacks=Old())
    make_model().train(1, make_data(), callbacks=Old())


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"network": 3}, TypeError, "'network' must be a Cell, but got int"),
        ({"loss_fn": 3}, TypeError, "'loss_fn' must be a Cell or a function"),
        ({"optimizer": 3}, TypeError, "'optimizer' must be an Optimizer"),
        ({"metrics": ["mae"]}, TypeError, "'metrics' must be None, a dict or a set"),
        ({"metrics": {"nonsense"}}, KeyError, "must be one of .* but got 'nonsense'"),
        ({"metrics": {"mae": 3}}, TypeError, "must map strings to Metrics"),
        ({"metrics": {"mae"}, "loss_fn": None}, ValueError, "'metrics' must come with 'loss_fn' or 'eval_network'"),
        ({"metrics": {"mae"}, "eval_network": nn.Identity(), "eval_indexes": [0, 1]}, ValueError, "three positions"),
        ({"amp_level": "O7"}, ValueError, "'amp_level' must be one of .* but got 'O7'"),
        ({"amp_level": "O2", "optimizer": None}, ValueError, "need an 'optimizer'"),
        ({"loss_scale_manager": 3, "optimizer": None}, ValueError, "need an 'optimizer'"),
        ({"boost_level": "O9"}, ValueError, "'boost_level' must be one of"),
        ({"boost_level": "O1"}, NotImplementedError, "'boost_level' must be 'O0'"),
        ({"nonsense": 3}, ValueError, "but got 'nonsense'"),
    ],
)
def test_construction_refuses(arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    net = nn.Dense(2, 3)
    given = {"network": net, "loss_fn": nn.MSELoss(), "optimizer": nn.SGD(net.trainable_params(), 0.1), **arguments}
    with pytest.raises(error, match=text):
        Model(**given)


def test_predict_refuses(make_model: Any) -> None:
    with pytest.raises(TypeError, match="but got ndarray"):
        make_model().predict(np.ones((1, 2), np.float32))
    with pytest.raises(ValueError, match="must not be empty"):
        make_model().predict(Tensor(np.ones((0, 2), np.float32)))
    with pytest.raises(ValueError, match="'backend' and 'config' must be None"):
        make_model().predict(Tensor([[1.0, 2.0]]), backend="lite")


def test_layouts_need_a_mode_that_shards(make_data: Any, make_model: Any) -> None:
    with pytest.raises(RuntimeError, match="'semi_auto_parallel' or 'auto_parallel', but got 'stand_alone'"):
        make_model().infer_train_layout(make_data())
    with pytest.raises(RuntimeError, match="but got 'stand_alone'"):
        make_model().infer_predict_layout(Tensor([[1.0, 2.0]]))


# ------------------------------------------------------------------------------------------------------ mixed precision


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("level", ["O1", "O2", "O3"])
def test_mixed_precision_trains(make_data: Any, make_model: Any, mode: int, level: str) -> None:
    ms.set_context(mode=mode)
    history = History()
    # O2 would begin with a scale that overflows, and leave out the first steps.
    model = make_model(amp_level=level, loss_scale_manager=None, metrics={"mae"})
    model.fit(3, make_data(), make_data(), callbacks=history)
    np.testing.assert_allclose(history.history["net_output"], reference_losses(3)[2::3], rtol=0.05)


def test_the_loss_scale_manager_follows_the_steps(make_data: Any, make_model: Any) -> None:
    manager = ms.train.DynamicLossScaleManager(init_loss_scale=2.0**40, scale_window=2)
    model = make_model(amp_level="O2", loss_scale_manager=manager)
    overflows = []

    class Look(Callback):
        def on_train_step_end(self, run_context: Any) -> None:
            outputs = run_context.original_args().net_outputs
            overflows.append(bool(outputs[1].asnumpy()))

    model.train(8, make_data(), callbacks=Look())
    assert overflows[0]
    assert not all(overflows)
    assert manager.get_loss_scale() < 2.0**40


def test_a_fixed_scale_changes_no_number(make_data: Any) -> None:
    net = nn.Dense(2, 3, weight_init="ones", bias_init="zeros")
    manager = ms.train.FixedLossScaleManager(1024.0, drop_overflow_update=False)
    optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9, loss_scale=1024.0)
    history = History()
    model = Model(net, nn.MSELoss(), optimizer, loss_scale_manager=manager)
    model.train(4, make_data(), callbacks=history)
    np.testing.assert_allclose(history.history["net_output"], reference_losses(4)[2::3], rtol=1e-5)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"full_batch": True}, RuntimeError),
        ({"parallel_mode": "data_parallel", "full_batch": True}, RuntimeError),
        ({"parallel_mode": "hybrid_parallel", "dataset_strategy": "full_batch"}, RuntimeError),
        ({"device_num": 2}, ValueError),
        ({"parameter_broadcast": True}, ValueError),
        ({"parallel_mode": "semi_auto_parallel", "parameter_broadcast": True}, ValueError),
        ({"parallel_mode": "auto_parallel", "parameter_broadcast": True}, ValueError),
    ],
)
def test_parallel_settings_that_contradict_each_other(
    make_data: Any, make_model: Any, settings: dict[str, Any], error: type[Exception]
) -> None:
    model = make_model(metrics={"mse"})
    ms.set_auto_parallel_context(**settings)
    for refused in (make_model, lambda: model.train(1, make_data()), lambda: model.eval(make_data())):
        with pytest.raises(error, match="For 'Model"):
            refused()


@pytest.mark.parametrize(
    "settings",
    [
        {"parallel_mode": "semi_auto_parallel", "full_batch": True},
        {"parallel_mode": "data_parallel", "parameter_broadcast": True},
    ],
)
def test_parallel_settings_that_fit(make_data: Any, make_model: Any, settings: dict[str, Any]) -> None:
    ms.set_auto_parallel_context(**settings)
    model = make_model()
    before = [parameter.asnumpy() for parameter in model.train_network.get_parameters()]
    model.train(1, make_data())
    after = [parameter.asnumpy() for parameter in model.train_network.get_parameters()]
    assert any((new != old).any() for new, old in zip(after, before, strict=True))


def test_a_network_with_settings_of_its_own_does_not_read_the_context(make_data: Any) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    net = AutoParallel(nn.Dense(2, 3))
    net.dataset_strategy("full_batch")
    before = [parameter.asnumpy() for parameter in net.trainable_params()]
    Model(net, nn.MSELoss(), nn.Momentum(net.trainable_params(), 0.1, 0.9)).train(1, make_data())
    assert all((new.asnumpy() != old).any() for new, old in zip(net.trainable_params(), before, strict=True))
