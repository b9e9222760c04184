"""Figures of a run in TensorBoard, MLflow and Weights & Biases; rank 0 alone writes.

MLflow and Weights & Biases are tried against small fakes of what their documentation says; where the packages are installed, the last
test runs them.
"""

import importlib
import sys
import types
from typing import Any

import numpy as np
import pytest

from sporax.mindspore import Tensor, dataset, nn, train
from sporax.mindspore.train import MLflowTracker, Model, TensorBoardTracker, Track, WandbTracker
from sporax.mindspore.train.callback import _summary_collector, _track
from sporax.mindspore.train.callback._monitors import FigureCount, tokens_of_sample


class Notes:
    """A tracker of one's own."""

    def __init__(self):
        self.calls: list[tuple[Any, ...]] = []

    def open(self):
        self.calls.append(("open",))

    def log_parameters(self, parameters):
        self.calls.append(("parameters", dict(parameters)))

    def log_metrics(self, metrics, step):
        self.calls.append(("metrics", dict(metrics), step))

    def log_figure(self, name, figure, step):
        self.calls.append(("figure", name, figure, step))

    def close(self):
        self.calls.append(("close",))


@pytest.fixture
def run():
    """``run(*callbacks)``: two epochs of four steps, with an evaluation after the last."""

    def fit(*callbacks):
        net = nn.Dense(8, 2)
        optimizer = nn.SGD(net.trainable_params(), 0.1)
        model = Model(net, nn.CrossEntropyLoss(), optimizer, metrics={"accuracy"})
        columns = (np.ones((32, 8), np.float32), np.zeros(32, np.int32))
        data = dataset.NumpySlicesDataset(columns, shuffle=False).batch(8)
        model.fit(2, data, data, valid_frequency=2, callbacks=list(callbacks))

    return fit


def test_a_tracker_of_ones_own_gets_parameters_metrics_and_figures(run):
    notes = Notes()
    run(Track(notes, every=2, parameters={"width": 8}, figures=lambda context: {"weights": "a picture"}))
    kinds = [call[0] for call in notes.calls]
    assert (kinds[0], kinds[1], kinds[-1]) == ("open", "parameters", "close")
    entry = notes.calls[1][1]
    assert entry | {"epochs": 2, "steps_per_epoch": 4, "optimizer": "SGD", "width": 8} == entry
    steps = [(step, metrics) for kind, metrics, step in (c for c in notes.calls if c[0] == "metrics")]
    assert [step for step, _ in steps] == [1, 2, 4, 6, 8, 8]
    assert steps[-1][1].keys() == {"metrics/accuracy", "metrics/eval_loss"}
    for _, metrics in steps[:-1]:
        assert {"loss", "memory_bytes", "samples_per_second", "step_seconds"} <= metrics.keys()
    assert [call for call in notes.calls if call[0] == "figure"] == [
        ("figure", "weights", "a picture", 4),
        ("figure", "weights", "a picture", 8),
    ]


def test_rank_0_alone_writes(run, monkeypatch, tmp_path):
    monkeypatch.setattr(_track, "rank", lambda: 1)
    monkeypatch.setattr(_summary_collector, "rank", lambda: 1)
    notes = Notes()
    run(Track(notes), train.SummaryCollector(str(tmp_path / "runs")))
    assert notes.calls == []
    assert not list(tmp_path.iterdir())


def test_trackers_are_closed_after_an_error(run):
    class Failing(train.Callback):
        def on_train_step_end(self, run_context):
            raise OSError("no more")

    notes = Notes()
    with pytest.raises(OSError, match="no more"):
        run(Track(notes), Failing())
    assert notes.calls[-1] == ("close",)


def test_tensorboard_gets_files(run, tmp_path):
    pyplot = pytest.importorskip("matplotlib.figure")
    run(Track(TensorBoardTracker(str(tmp_path)), figures=lambda context: {"empty": pyplot.Figure()}))
    content = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    for part in (b"loss", b"samples_per_second", b"metrics/accuracy", b"parallel_mode", b"empty"):
        assert part in content


class FakeMlflow(types.ModuleType):
    """The fluent interface of MLflow, as documented: a run must be active."""

    def __init__(self):
        super().__init__("mlflow")
        self.calls = []
        self.active = False

    def set_tracking_uri(self, uri):
        self.calls.append(("uri", uri))

    def set_experiment(self, experiment_name):
        self.calls.append(("experiment", experiment_name))

    def start_run(self, run_id=None, experiment_id=None, run_name=None):
        self.active = True
        self.calls.append(("start", run_name))

    def log_params(self, params):
        assert self.active
        self.calls.append(("params", params))

    def log_metrics(self, metrics, step=None):
        assert self.active
        self.calls.append(("metrics", sorted(metrics), step))

    def log_figure(self, figure, artifact_file):
        assert self.active
        self.calls.append(("figure", artifact_file))

    def end_run(self, status="FINISHED"):
        self.active = False


def test_mlflow(run, monkeypatch):
    fake = FakeMlflow()
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    tracker = MLflowTracker("digits", "first", "sqlite:///runs.db")
    run(Track(tracker, every=8, figures=lambda context: {"weights": object()}))
    assert fake.calls[:3] == [("uri", "sqlite:///runs.db"), ("experiment", "digits"), ("start", "first")]
    assert fake.calls[3][1]["optimizer"] == "SGD"
    assert [call[2] for call in fake.calls if call[0] == "metrics"] == [1, 8, 8]
    assert [call[1] for call in fake.calls if call[0] == "figure"] == ["weights_4.png", "weights_8.png"]
    assert not fake.active


class FakeWandb(types.ModuleType):
    """The interface of Weights & Biases, as documented: steps of a run must not go back."""

    def __init__(self):
        super().__init__("wandb")
        self.config = {}
        self.logged = []
        self.settings = {}
        self.finished = False

    def init(self, project=None, name=None, dir=None, mode=None):
        self.settings = {"project": project, "name": name, "dir": dir, "mode": mode}
        return self

    def log(self, data, step=None):
        assert not self.logged or step >= self.logged[-1][1]
        self.logged.append((data, step))

    def Image(self, data):
        return ("image", data)

    def finish(self):
        self.finished = True


def test_wandb_is_offline(run, monkeypatch):
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    run(Track(WandbTracker("digits"), every=8, figures=lambda context: {"weights": "picture"}))
    assert fake.settings == {"project": "digits", "name": None, "dir": None, "mode": "offline"}
    assert fake.config["epochs"] == 2
    assert ({"weights": ("image", "picture")}, 8) in fake.logged
    assert any("loss" in data for data, _ in fake.logged)
    assert fake.finished


@pytest.mark.parametrize(
    ("tracker", "name"), [(MLflowTracker("a"), "mlflow"), (WandbTracker("a"), "wandb")], ids=["mlflow", "wandb"]
)
def test_a_package_that_is_not_there_is_named(run, monkeypatch, tracker, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=rf"the package {name} must be installed.*pip install 'sporax\[{name}\]'"):
        run(Track(tracker))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Track(3), TypeError, "must be a Tracker .* but got 3"),
        (lambda: Track(TensorBoardTracker), TypeError, "must be a Tracker"),
        (lambda: Track(Notes(), every=0), ValueError, "'every'"),
        (lambda: Track(Notes(), parameters=[1]), TypeError, "'parameters' must be a dict"),
        (lambda: Track(Notes(), figures=3), TypeError, "'figures' must be a function"),
        (lambda: WandbTracker("a", mode="sometimes"), ValueError, "'mode' must be one of"),
        (lambda: MLflowTracker(3), TypeError, "'experiment' must be a string"),
    ],
)
def test_wrong_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize("name", ["mlflow", "wandb"])
def test_the_packages_themselves(run, tmp_path, name, monkeypatch):
    pytest.importorskip(name, reason=f"the extra {name} is not installed: its fake is tried above")
    monkeypatch.chdir(tmp_path)
    tracker = (
        MLflowTracker("digits", tracking_uri=f"sqlite:///{tmp_path}/runs.db")
        if name == "mlflow"
        else WandbTracker("digits")
    )
    run(Track(tracker, parameters={"width": 8}))
    if name == "mlflow":
        (found,) = importlib.import_module("mlflow").search_runs(experiment_names=["digits"], output_format="list")
        assert found.data.metrics["loss"] > 0
        assert found.data.params["width"] == "8"
    else:
        assert list(tmp_path.rglob("run-*.wandb"))


def test_tokens_are_known_of_matrices_of_ids():
    ids = Tensor(np.ones((4, 128), np.int32))
    assert tokens_of_sample((ids, ids)) == 128
    for batch in ((Tensor(np.ones((4, 128), np.float32)),), (Tensor(np.ones(4, np.int32)),), (), None):
        assert tokens_of_sample(batch) == 0


def test_utilization_comes_from_the_plan_and_is_worked_out_once():
    class Planned:
        queries = 0

        def utilization(self):
            self.queries += 1
            return 0.5, "h100"

    planned = Planned()
    network = types.SimpleNamespace(program=types.SimpleNamespace(planned=planned))
    facts = {"train_network": network, "cur_step_num": 10, "num_samples": 4, "train_dataset_element": None}
    count = FigureCount()
    count.begin(facts)
    facts["cur_step_num"] = 12
    for _ in range(2):
        count.add(facts)
    figures = count.figures(facts)
    # Half of the rates would be used by a step of one second.
    assert figures.utilization == pytest.approx(0.5 * 2 / figures.running_seconds)
    assert figures.rates() == [f"MFU {100 * figures.utilization:.3g} % (h100)"]
    assert (figures.steps, figures.samples) == (2, 8)
    count.figures(facts)
    assert planned.queries == 1
