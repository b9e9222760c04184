"""Callbacks: what they print, save, change and refuse."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import threading
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, nn
from sporax.mindspore.train import (
    BackupAndRestore,
    Callback,
    CheckpointConfig,
    EarlyStopping,
    History,
    LambdaCallback,
    LearningRateScheduler,
    LossMonitor,
    Model,
    ModelCheckpoint,
    OnRequestExit,
    Progress,
    ReduceLROnPlateau,
    RunContext,
    SummaryCollector,
    TimeMonitor,
    load_checkpoint,
)
from sporax.mindspore.train._entries import writer
from sporax.mindspore.train.callback import _InternalCallbackParam


class Interrupt(Callback):
    """Does something after a step."""

    def __init__(self, step: int, action: Any) -> None:
        self.step, self.action = step, action

    def on_train_step_end(self, run_context: Any) -> None:
        if run_context.original_args().cur_step_num == self.step:
            self.action()


class Epochs(Callback):
    """Pretends that each epoch ended with a loss of the list."""

    def __init__(self, losses: list[float]) -> None:
        self.losses = losses

    def on_train_epoch_end(self, run_context: Any) -> None:
        facts = run_context.original_args()
        facts.net_outputs = Tensor(self.losses[facts.cur_epoch_num - 1])


def fail() -> None:
    raise OSError("the machine is on fire")


# ---------------------------------------------------------------------------------------------------------- monitors


def test_loss_monitor_prints_as_mindspore(make_data: Any, make_model: Any, capsys: Any) -> None:
    make_model().train(2, make_data(), callbacks=LossMonitor(2))
    lines = capsys.readouterr().out.splitlines()
    assert [re.sub(r"is .*", "is x", line) for line in lines] == [
        "epoch: 1 step: 2, loss is x",
        "epoch: 2 step: 1, loss is x",
        "epoch: 2 step: 3, loss is x",
    ]
    assert float(lines[0].split()[-1]) > 0


def test_monitors_are_silent_on_other_ranks(
    make_data: Any, make_model: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sporax.mindspore.train.callback import _monitors

    monkeypatch.setattr(_monitors, "rank", lambda: 1)
    make_model().train(1, make_data(), callbacks=[LossMonitor(1), TimeMonitor()])
    assert capsys.readouterr().out == ""


def test_loss_monitor_starts_again_with_each_run(make_data: Any, make_model: Any, capsys: Any) -> None:
    monitor = LossMonitor(3)
    for _ in range(2):
        make_model().train(1, make_data(), callbacks=monitor)
    assert capsys.readouterr().out.count("epoch: 1 step: 3") == 2


def test_loss_monitor_counts_on_where_a_run_begins_in_the_middle(capsys: Any) -> None:
    def lines(first: int, last: int) -> list[str]:
        monitor = LossMonitor(4)
        for step in range(first, last + 1):
            monitor.step_end(
                RunContext(_InternalCallbackParam(cur_step_num=step, batch_num=100, net_outputs=Tensor(1.0)))
            )
        return capsys.readouterr().out.splitlines()

    assert lines(7, 18) == lines(1, 18)[1:]


def test_loss_monitor_ends_training_that_diverged(make_data: Any, make_model: Any) -> None:
    model = make_model()
    model.predict_network.weight.set_data(Tensor(np.full((3, 2), np.inf, np.float32)))
    with pytest.raises(ValueError, match=r"the loss must be finite, but got (nan|inf) in epoch 1, step 1"):
        model.train(1, make_data(), callbacks=LossMonitor(0))


def test_time_monitor_reports_times_and_throughput(make_data: Any, make_model: Any, capsys: Any) -> None:
    make_model(metrics={"mae"}).fit(1, make_data(), make_data(), callbacks=TimeMonitor(data_time=True))
    number = r" *\d+\.\d+"
    pattern = (
        rf"{{}} epoch time: {number} ms, per step time: {number} ms \(data time: {number} ms\), {number} samples/s"
    )
    evaluation, training = capsys.readouterr().out.splitlines()
    assert re.fullmatch(pattern.format("Eval"), evaluation)
    assert re.fullmatch(pattern.format("Train"), training)


def test_history_keeps_losses_and_metrics(make_data: Any, make_model: Any) -> None:
    history = History()
    make_model(metrics={"mae"}).fit(2, make_data(), make_data(), callbacks=history)
    assert {name: len(values) for name, values in history.history.items()} == {"net_output": 2, "mae": 2}


def test_lambda_callback_calls_functions(make_data: Any, make_model: Any) -> None:
    seen = []
    callback = LambdaCallback(
        on_train_begin=lambda run: seen.append("begin"),
        on_train_step_end=lambda run: seen.append(run.original_args().cur_step_num),
        on_eval_end=lambda run: seen.append(sorted(run.original_args().metrics)),
    )
    make_model(metrics={"mae"}).fit(1, make_data(4), make_data(), callbacks=callback)
    assert seen == ["begin", 1, 2, ["mae"]]
    with pytest.raises(TypeError, match="'on_train_end' must be a function"):
        LambdaCallback(on_train_end=3)


def test_callbacks_are_entered_and_left(make_data: Any, make_model: Any) -> None:
    seen = []

    class Resource(Callback):
        def __enter__(self) -> Any:
            seen.append("open")
            return self

        def __exit__(self, *error: Any) -> None:
            seen.append("closed")

    with pytest.raises(OSError, match="fire"):
        make_model().train(1, make_data(), callbacks=[Resource(), Interrupt(1, fail)])
    assert seen == ["open", "closed"]


def test_the_run_context_says_what_it_knows() -> None:
    facts = _InternalCallbackParam(mode="train")
    facts.mine = 3
    context = RunContext(facts)
    assert context.original_args().mine == 3
    with pytest.raises(AttributeError, match=r"'batch_num' is not among what is known here: \['mine', 'mode'\]"):
        context.original_args().batch_num  # noqa: B018 - the access is what raises
    with pytest.raises(TypeError, match="'original_args' must be a dict"):
        RunContext(3)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: LossMonitor(-1), ValueError),
        (lambda: LossMonitor(1.5), TypeError),
        (lambda: LossMonitor(True), TypeError),
        (lambda: TimeMonitor(0), ValueError),
        (lambda: TimeMonitor(data_time=1), TypeError),
        (lambda: EarlyStopping(mode="x"), ValueError),
        (lambda: EarlyStopping(monitor=3), TypeError),
        (lambda: EarlyStopping(patience=-1), ValueError),
        (lambda: ReduceLROnPlateau(factor=1.0), ValueError),
        (lambda: ReduceLROnPlateau(cooldown=1.5), TypeError),
        (lambda: BackupAndRestore(3), TypeError),
        (lambda: OnRequestExit(sig=signal.SIGKILL), ValueError),
        (lambda: OnRequestExit(save_ckpt=3), TypeError),
        (lambda: SummaryCollector("x", collect_freq=0), ValueError),
        (lambda: SummaryCollector("x", collect_specified_data={"nonsense": True}), ValueError),
    ],
)
def test_wrong_arguments_are_refused(make: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="For ['\"]"):
        make()


# -------------------------------------------------------------------------------------------------------- checkpoints


def names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


def train_with(
    config: CheckpointConfig | None, directory: Path, make_data: Any, make_model: Any, **options: Any
) -> Any:
    checkpoint = ModelCheckpoint("net", str(directory), config)
    make_model().train(2, make_data(8), callbacks=checkpoint, **options)
    return checkpoint


def test_files_are_named_by_epoch_and_step(tmp_path: Path, make_data: Any, make_model: Any) -> None:
    checkpoint = train_with(CheckpointConfig(3), tmp_path / "new", make_data, make_model)
    assert names(tmp_path / "new") == ["net-1_3.ckpt", "net-2_2.ckpt", "net-2_4.ckpt"]
    assert checkpoint.latest_ckpt_file_name == str(tmp_path / "new" / "net-2_4.ckpt")
    actual = load_checkpoint(checkpoint.latest_ckpt_file_name)
    assert {"weight", "bias", "global_step", "moments.weight"} <= set(actual)
    assert actual["global_step"].asnumpy() == [8]


def test_only_the_newest_files_are_kept(tmp_path: Path, make_data: Any, make_model: Any) -> None:
    train_with(CheckpointConfig(1, keep_checkpoint_max=2), tmp_path, make_data, make_model)
    assert names(tmp_path) == ["net-2_3.ckpt", "net-2_4.ckpt"]


def test_a_second_run_does_not_overwrite_the_first(tmp_path: Path, make_data: Any, make_model: Any) -> None:
    for _ in range(3):
        train_with(CheckpointConfig(4), tmp_path, make_data, make_model)
    assert names(tmp_path) == sorted(f"net{run}-{epoch}_4.ckpt" for run in ("", "_1", "_2") for epoch in (1, 2))


def test_format_counters_and_background(tmp_path: Path, make_data: Any, make_model: Any) -> None:
    info = ["epoch_num", "step_num", {"note": 7, "step_num": 100}]
    config = CheckpointConfig(4, append_info=info, format="safetensors", async_save=True, crc_check=True)
    train_with(config, tmp_path, make_data, make_model)
    assert names(tmp_path) == ["net-1_4.safetensors", "net-2_4.safetensors"]
    actual = load_checkpoint(str(tmp_path / "net-2_4.safetensors"), crc_check=True)
    assert [actual[name].asnumpy().item() for name in ("epoch_num", "step_num", "note")] == [2, 108, 7]


class Release(Callback):
    """Ends the writing of something at the beginning of a step."""

    def __init__(self, gate: threading.Event, step: int) -> None:
        self.gate, self.step = gate, step

    def on_train_step_begin(self, run_context: Any) -> None:
        if run_context.original_args().cur_step_num == self.step:
            self.gate.set()
            writer.wait()


def test_saves_are_skipped_while_one_is_written(tmp_path: Path, make_data: Any, make_model: Any) -> None:
    gate = threading.Event()
    writer.start(gate.wait)
    checkpoint = ModelCheckpoint("net", str(tmp_path), CheckpointConfig(1, async_save=True, when_busy="skip"))
    make_model().train(1, make_data(8), callbacks=[Release(gate, 3), checkpoint])
    assert names(tmp_path) == ["net-1_3.ckpt", "net-1_4.ckpt"]


def test_a_save_waits_for_the_one_before(tmp_path: Path, make_data: Any, make_model: Any) -> None:
    gate = threading.Event()
    writer.start(gate.wait)
    timer = threading.Timer(0.3, gate.set)
    timer.start()
    checkpoint = ModelCheckpoint("net", str(tmp_path), CheckpointConfig(1, async_save=True))
    make_model().train(1, make_data(8), callbacks=checkpoint)
    timer.join()
    assert names(tmp_path) == [f"net-1_{step}.ckpt" for step in (1, 2, 3, 4)]


def test_sink_mode_saves_once_per_epoch(tmp_path: Path, make_data: Any, make_model: Any) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    train_with(CheckpointConfig(1), tmp_path, make_data, make_model, dataset_sink_mode=True)
    assert names(tmp_path) == ["net-1_4.ckpt", "net-2_4.ckpt"]


def test_names_made_by_functions(tmp_path: Path, make_data: Any, make_model: Any) -> None:
    checkpoint = ModelCheckpoint(
        lambda facts: f"at{facts.cur_step_num}",
        lambda facts: str(tmp_path / f"epoch{facts.cur_epoch_num}"),
        CheckpointConfig(2),
    )
    make_model().train(2, make_data(4), callbacks=checkpoint)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.ckpt")) == [
        "epoch1/at2.ckpt",
        "epoch2/at4.ckpt",
    ]


def test_another_network_can_be_saved(tmp_path: Path, make_data: Any, make_model: Any) -> None:
    model = make_model()
    config = CheckpointConfig(4, saved_network=model.predict_network)
    model.train(1, make_data(8), callbacks=ModelCheckpoint("net", str(tmp_path), config))
    assert list(load_checkpoint(str(tmp_path / "net-1_4.ckpt"))) == ["weight", "bias"]


def test_an_exception_saves_a_breakpoint(tmp_path: Path, make_data: Any, make_model: Any) -> None:
    config = CheckpointConfig(100, exception_save=True, append_info=["step_num"])
    with pytest.raises(OSError, match="fire"):
        make_model().train(
            2, make_data(8), callbacks=[Interrupt(6, fail), ModelCheckpoint("net", str(tmp_path), config)]
        )
    assert names(tmp_path) == ["net-2_2_breakpoint.ckpt"]
    assert load_checkpoint(str(tmp_path / "net-2_2_breakpoint.ckpt"))["step_num"].asnumpy() == 6


def test_saving_by_time(tmp_path: Path, make_data: Any, make_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from sporax.mindspore.train.callback import _model_checkpoint

    clock = iter(range(0, 10_000, 4))  # four seconds pass whenever somebody looks
    monkeypatch.setattr(_model_checkpoint, "time", types.SimpleNamespace(monotonic=lambda: next(clock), time=lambda: 0))
    config = CheckpointConfig(None, save_checkpoint_seconds=10, keep_checkpoint_max=9)
    train_with(config, tmp_path, make_data, make_model)
    assert 1 < len(names(tmp_path)) < 8


def test_the_configuration_lets_the_stronger_setting_win() -> None:
    config = CheckpointConfig(save_checkpoint_steps=2, save_checkpoint_seconds=9, keep_checkpoint_per_n_minutes=3)
    assert config.get_checkpoint_policy() == {
        "save_checkpoint_steps": 2,
        "save_checkpoint_seconds": None,
        "keep_checkpoint_max": 5,
        "keep_checkpoint_per_n_minutes": None,
        "saved_network": None,
    }
    assert CheckpointConfig(keep_checkpoint_max=0).keep_checkpoint_max == 1
    assert CheckpointConfig(keep_checkpoint_max=0, keep_checkpoint_per_n_minutes=2).keep_checkpoint_max == 0


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"save_checkpoint_steps": -1}, ValueError),
        ({"save_checkpoint_steps": 1.5}, TypeError),
        ({"save_checkpoint_steps": None, "keep_checkpoint_max": 0}, ValueError),
        ({"integrated_save": 1}, TypeError),
        ({"async_save": "x"}, ValueError),
        ({"saved_network": 3}, TypeError),
        ({"append_info": 3}, TypeError),
        ({"append_info": ["x"]}, ValueError),
        ({"append_info": [3]}, TypeError),
        ({"append_info": [{}, {}]}, TypeError),
        ({"append_info": [{"a": [1]}]}, TypeError),
        ({"exception_save": 3}, TypeError),
        ({"format": "x"}, ValueError),
        ({"when_busy": "hope"}, ValueError),
        ({"enc_key": b"0" * 16}, NotImplementedError),
    ],
)
def test_wrong_configurations_are_refused(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=r"For '(CheckpointConfig|save_checkpoint)'"):
        CheckpointConfig(**arguments)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [(("a/b",), ValueError), ((3,), ValueError), (("a", 3), TypeError), (("a", "x", 3), TypeError)],
)
def test_wrong_model_checkpoints_are_refused(arguments: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="For 'ModelCheckpoint'"):
        ModelCheckpoint(*arguments)


def test_backup_and_restore_goes_on_after_a_crash(tmp_path: Path, make_data: Any, make_model: Any) -> None:
    with pytest.raises(OSError, match="fire"):
        make_model().train(3, make_data(), callbacks=[BackupAndRestore(str(tmp_path)), Interrupt(5, fail)])
    backup = load_checkpoint(str(tmp_path / "backup.ckpt"))
    assert backup["global_step"].asnumpy() == [3]
    seen = []
    look = LambdaCallback(
        on_train_step_end=lambda run: seen.append(run.original_args().optimizer.global_step.asnumpy()[0])
    )
    make_model().train(1, make_data(), callbacks=[BackupAndRestore(str(tmp_path)), look])
    assert seen == [4, 5, 6]
    assert names(tmp_path) == []


# ------------------------------------------------------------------------------------------------------------ plateaus


def run_epochs(model: Model, losses: list[float], callback: Callback, make_data: Any) -> int:
    """Train with the given losses; gives the number of epochs that were run."""
    history = History()
    model.train(len(losses), make_data(2), callbacks=[Epochs(losses), callback, history])
    return len(history.epoch["epoch"])


@pytest.mark.parametrize(
    ("losses", "options", "num_epochs", "stopped"),
    [
        ([3.0, 2.0, 1.0, 0.0], {"patience": 1}, 4, 0),
        ([3.0, 2.0, 2.0, 1.0], {"patience": 1}, 3, 3),
        ([3.0, 2.0, 2.0, 1.0], {"patience": 2}, 4, 0),
        ([3.0, 2.0, 2.5, 2.5], {"patience": 2}, 4, 4),
        ([3.0, 2.9, 2.8, 2.7], {"patience": 2, "min_delta": 0.5}, 3, 3),
        ([3.0, 2.0, 1.0, 0.5], {"patience": 2, "baseline": 0.7}, 2, 2),
        ([1.0, 2.0, 3.0, 3.0], {"patience": 1, "mode": "max"}, 4, 4),
        ([3.0, 2.0, 3.0, 1.0], {"patience": 0}, 3, 3),
    ],
)
def test_early_stopping(
    losses: list[float], options: dict[str, Any], num_epochs: int, stopped: int, make_data: Any, make_model: Any
) -> None:
    stopping = EarlyStopping("loss", **options)
    assert run_epochs(make_model(), losses, stopping, make_data) == num_epochs
    assert stopping.stopped_epoch == stopped


def test_early_stopping_restores_the_best_weights(make_data: Any, make_model: Any, capsys: Any) -> None:
    model, weights = make_model(), []
    keep = LambdaCallback(on_train_epoch_end=lambda run: weights.append(model.predict_network.weight.asnumpy()))
    stopping = EarlyStopping("loss", patience=2, restore_best_weights=True, verbose=True)
    model.train(4, make_data(2), callbacks=[keep, Epochs([2.0, 1.0, 3.0, 3.0]), stopping])
    np.testing.assert_array_equal(model.predict_network.weight.asnumpy(), weights[1])
    assert not np.array_equal(weights[1], weights[3])
    assert "Epoch 00004: early stopping" in capsys.readouterr().out


def test_early_stopping_watches_evaluations(make_data: Any, make_model: Any) -> None:
    model = make_model(metrics={"mae"})
    model.predict_network.weight.requires_grad = False
    history = History()
    frozen = Model(
        model.predict_network, nn.MSELoss(), nn.SGD([Parameter(Tensor([1.0]), name="other")], 0.1), metrics={"mae"}
    )
    frozen.fit(5, make_data(), make_data(), callbacks=[EarlyStopping("mae", patience=2), history])
    assert history.epoch["epoch"] == [1, 2, 3]


def test_an_unknown_number_is_said(make_data: Any, make_model: Any) -> None:
    with pytest.warns(UserWarning, match=r"'monitor' is 'eval_loss', but this epoch knows only \['loss'\]"):
        make_model().train(1, make_data(), callbacks=EarlyStopping())


def test_reduce_lr_on_plateau(make_data: Any, make_model: Any) -> None:
    model, rates = make_model(), []
    look = LambdaCallback(
        on_train_epoch_end=lambda run: rates.append(
            round(float(run.original_args().optimizer.learning_rate.asnumpy()), 6)
        )
    )
    plateau = ReduceLROnPlateau("loss", factor=0.5, patience=2, cooldown=1, min_lr=0.03)
    model.train(10, make_data(2), callbacks=[Epochs([1.0] * 10), plateau, look])
    assert rates == [0.1, 0.1, 0.05, 0.05, 0.03, 0.03, 0.03, 0.03, 0.03, 0.03]


def test_learning_rate_scheduler_sets_the_rate_of_the_compiled_step(make_data: Any, make_model: Any) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    seen, model = [], make_model()

    def halve_every_second(rate: float, step: int) -> float:
        seen.append((rate, step))
        return rate / 2 if step % 2 == 0 else rate

    model.train(2, make_data(), callbacks=LearningRateScheduler(halve_every_second))
    assert seen == [(0.1, 1), (0.1, 2), (0.05, 3), (0.05, 4), (0.025, 5), (0.025, 6)]
    assert len(ms.recompilations(model.train_network)) == 1


def test_rates_that_cannot_be_set_are_refused(make_data: Any) -> None:
    net = nn.Dense(2, 3)
    model = Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), [0.1, 0.2]))
    with pytest.raises(ValueError, match="one learning rate that is a number, but SGD"):
        model.train(1, make_data(), callbacks=LearningRateScheduler(lambda rate, step: rate))


# ------------------------------------------------------------------------------------------------------- on request


def test_a_signal_ends_the_run_after_its_step_and_the_next_goes_on(
    tmp_path: Path, make_data: Any, make_model: Any
) -> None:
    def send_signal() -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    before, history = signal.getsignal(signal.SIGTERM), History()
    leave = OnRequestExit(save_mindir=False, directory=str(tmp_path))
    make_model().train(3, make_data(8), callbacks=[Interrupt(6, send_signal), leave, history])
    assert history.epoch["epoch"] == [1, 2]
    assert signal.getsignal(signal.SIGTERM) is before
    saved = load_checkpoint(str(tmp_path / "rank_0" / "Net_train.ckpt"))
    numbers = [saved[name].asnumpy().item() for name in ("epoch_num", "step_num", "batch_num", "global_step")]
    assert numbers == [2, 6, 4, 6]
    model = make_model()
    model.train(1, make_data(2), callbacks=OnRequestExit(save_mindir=False, directory=str(tmp_path)))
    assert model.train_network.optimizer.global_step.asnumpy() == [7]


def test_a_file_ends_the_run(tmp_path: Path, make_data: Any, make_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "exit.json"
    config.write_text("half a fi")
    steps = []
    look = LambdaCallback(on_train_step_end=lambda run: steps.append(run.original_args().cur_step_num))
    monkeypatch.setenv("MS_ENABLE_GRACEFUL_EXIT", "1")
    leave = OnRequestExit(directory=str(tmp_path), config_file=str(config))
    request = Interrupt(2, lambda: config.write_text(json.dumps({"GracefulExit": 1})))
    with pytest.warns(UserWarning, match="is no JSON"), pytest.warns(UserWarning, match="no MindIR file is written"):
        make_model().train(3, make_data(8), callbacks=[request, leave, look])
    assert steps == [1, 2]


def test_a_file_is_not_looked_at_unless_the_environment_says_so(
    tmp_path: Path, make_data: Any, make_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MS_ENABLE_GRACEFUL_EXIT", raising=False)
    (tmp_path / "exit.json").write_text('{"GracefulExit": 1}')
    leave = OnRequestExit(directory=str(tmp_path), config_file=str(tmp_path / "exit.json"))
    history = History()
    make_model().train(2, make_data(), callbacks=[leave, history])
    assert history.epoch["epoch"] == [1, 2]


def test_a_signal_ends_an_evaluation(tmp_path: Path, make_data: Any, make_model: Any) -> None:
    steps = []

    class SendSignal(Callback):
        def on_eval_step_end(self, run_context: Any) -> None:
            steps.append(run_context.original_args().cur_step_num)
            os.kill(os.getpid(), signal.SIGTERM)

    leave = OnRequestExit(save_mindir=False, directory=str(tmp_path))
    make_model(metrics={"mae"}).eval(make_data(), callbacks=[SendSignal(), leave])
    assert steps == [1]
    assert names(tmp_path / "rank_0") == ["Net_eval.ckpt"]


# ------------------------------------------------------------------------------------------------------------- progress


def test_progress_prints_lines_outside_a_terminal(make_data: Any, make_model: Any) -> None:
    output = io.StringIO()
    progress = Progress(Console(file=output, force_terminal=False))
    make_model(metrics={"mae"}).fit(2, make_data(), make_data(), callbacks=progress)
    pattern = r"epoch {}: loss \S+, \S+ ms/step, \d+ samples/s, \d+ MiB, mae \S+, eval_loss \S+"
    for epoch, line in enumerate(output.getvalue().splitlines(), 1):
        assert re.fullmatch(pattern.format(epoch), line)


def test_progress_draws_bars_in_a_terminal(make_data: Any, make_model: Any) -> None:
    output = io.StringIO()
    make_model().train(2, make_data(), callbacks=Progress(Console(file=output, force_terminal=True, width=120)))
    assert "epoch 2/2" in output.getvalue()
    assert "3/3" in output.getvalue()


def test_progress_is_silent_on_other_ranks(make_data: Any, make_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from sporax.mindspore.train.callback import _progress

    monkeypatch.setattr(_progress, "rank", lambda: 1)
    output = io.StringIO()
    make_model().train(1, make_data(), callbacks=Progress(Console(file=output)))
    assert output.getvalue() == ""
