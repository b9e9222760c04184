"""What Model.train reports without a callback that does."""

import io
import re

import numpy as np
import pytest
from rich.console import Console

from sporax.mindspore import dataset, nn
from sporax.mindspore.train import Callback, LossMonitor, Model, TimeMonitor
from sporax.mindspore.train.callback import _progress
from sporax.mindspore.train.callback._progress import Progress, ProgressLines, default_progress
from sporax.runtime.session import SESSION


@pytest.fixture
def train():
    net = nn.Dense(8, 2)
    model = Model(net, nn.CrossEntropyLoss(), nn.SGD(net.trainable_params(), 0.1))
    data = dataset.NumpySlicesDataset((np.ones((32, 8), np.float32), np.zeros(32, np.int32)), shuffle=False).batch(8)
    return lambda **options: model.train(2, data, **options)


@pytest.mark.parametrize("sink", [False, True])
def test_lines_in_a_log_have_epoch_step_loss_and_rate(train, capsys, monkeypatch, sink):
    monkeypatch.setattr(_progress, "LINE_SECONDS", 0.0)
    train(dataset_sink_mode=sink)
    out, err = capsys.readouterr()
    assert out == ""
    last = err.splitlines()[-1]
    assert last.startswith("sporax: epoch 2/2, step 4/4: loss ")
    assert " ms/step, " in last
    assert " samples/s, " in last


def test_short_runs_and_runs_with_a_monitor_print_nothing_of_it(train, capsys, monkeypatch):
    train()
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(_progress, "LINE_SECONDS", 0.0)
    train(callbacks=[LossMonitor()])
    out, err = capsys.readouterr()
    assert "loss is" in out
    assert err == ""


def test_the_last_line_and_the_number_of_epochs_are_right_whenever_lines_come(train, capsys, monkeypatch):
    monkeypatch.setattr(_progress.progress, "DELAY_SECONDS", 0.0)
    seen = []

    class Late(Callback):
        def on_train_step_begin(self, run_context):
            # The first line comes in the second epoch.
            step = run_context.original_args().cur_step_num
            monkeypatch.setattr(_progress, "LINE_SECONDS", 0.0 if step == 6 else 1e9)
            seen.append(step)

    train(callbacks=[Late()], dataset_sink_mode=False)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[1] for line in lines] == [" epoch 2/2, step 2/4", " epoch 2/2, step 4/4"]
    assert len(seen) == 8


def test_steps_and_time_left_stay_on_a_terminal_of_80_columns(train):
    output = io.StringIO()
    progress = Progress(Console(file=output, force_terminal=True, width=80))
    train(callbacks=[progress], dataset_sink_mode=False)
    last = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output.getvalue()).splitlines()[-1]
    assert re.search(r"epoch 2/2 \S+ 4/4 +\d:\d\d:\d\d loss [\d.]+, .*…", last), last
    assert len(last.rstrip()) <= 80


def test_rank_0_alone_speaks(train, capsys, monkeypatch):
    monkeypatch.setattr(_progress, "LINE_SECONDS", 0.0)
    monkeypatch.setattr(_progress, "rank", lambda: 1)
    train()
    assert capsys.readouterr() == ("", "")


def test_where_plans_are_only_made_there_is_none(monkeypatch):
    assert [type(each) for each in default_progress([])] == [ProgressLines]
    monkeypatch.setattr(SESSION, "plan_only", True)
    monkeypatch.setattr(SESSION, "plans_all", True)
    assert default_progress([]) == []


def test_figures_that_monitors_leave_out_are_on_a_line_of_their_own(train, capsys, monkeypatch):
    monkeypatch.setattr(_progress, "FIGURE_SECONDS", 0.0)
    # Where the process has compiled the like before, this step takes milliseconds.
    monkeypatch.setattr(_progress, "_WORTH_SECONDS", 1e-9)
    train(callbacks=[LossMonitor(0), TimeMonitor()])
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2  # TimeMonitor's, as ever
    first, last = err.splitlines()
    assert first.startswith("sporax: epoch 1: ")
    for part in (" ms/step, ", " samples/s, ", "compiled in ", " MiB"):
        assert part in first
    assert "compiled in" not in last  # it counts where it happened


def test_tokens_per_second_where_a_batch_has_ids(capsys):
    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(16, 4)

        def construct(self, ids):
            return self.table(ids).sum()

    net = Net()
    data = dataset.NumpySlicesDataset((np.ones((8, 6), np.int32),), shuffle=False).batch(4)
    Model(net, optimizer=nn.SGD(net.trainable_params(), 0.1)).train(1, data, callbacks=TimeMonitor())
    line = capsys.readouterr().out.strip()
    samples, tokens = (float(part.split()[0]) for part in line.split(", ")[-2:])
    # Rounded to 0.1 and to 1.
    assert abs(6 * samples - tokens) < 1
