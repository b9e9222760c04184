"""Summaries: what is written, how TensorBoard reads it, and what is refused."""

from __future__ import annotations

import io
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, ops
from sporax.mindspore.dataset._sources.tfrecord import content_of, find_records
from sporax.mindspore.train import History, SummaryCollector, SummaryRecord, summary
from sporax.mindspore.train.callback import _InternalCallbackParam


class FakeWriter:
    """Stands for tensorboardX's writer."""

    def __init__(self, directory: str, filename_suffix: str, write_to_disk: bool) -> None:
        self.written: list[tuple[str, str, int]] = []
        self.closed = not write_to_disk
        FakeWriter.last = self

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("add_"):
            raise AttributeError(name)
        return lambda tag, *values: self.written.append((name[4:], tag, values[-1]))

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def tensorboard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX", types.SimpleNamespace(SummaryWriter=FakeWriter))


@pytest.mark.usefixtures("tensorboard")
def test_summary_collector_writes_curves(make_data: Any, make_model: Any) -> None:
    collector = SummaryCollector("somewhere", collect_freq=2, collect_specified_data={"histogram_regular": "^b"})
    make_model(metrics={"mae"}).fit(1, make_data(8), make_data(), callbacks=collector)
    written = FakeWriter.last.written
    steps = {step for kind, tag, step in written if tag == "loss/auto"}
    assert steps == {1, 2, 4}
    assert {tag for kind, tag, _ in written if kind == "histogram_raw"} == {"bias/auto"}
    assert {tag for kind, tag, _ in written if kind == "scalar"} == {
        "loss/auto",
        "learning_rate",
        "metrics/mae",
        "metrics/eval_loss",
    }
    assert FakeWriter.last.closed


@pytest.mark.usefixtures("tensorboard")
def test_summary_record_writes_what_was_added() -> None:
    with SummaryRecord("somewhere") as record:
        record.add_value("scalar", "loss", Tensor(0.5))
        record.add_value("image", "picture", Tensor(np.zeros((1, 3, 2, 2), np.float32)))
        assert record.record(3, plugin_filter=lambda plugin: plugin == "scalar")
        assert record.record(4)
        with pytest.raises(TypeError, match="'value' must be a Tensor"):
            record.add_value("scalar", "loss", 0.5)
        with pytest.raises(ValueError, match="'plugin' must be one of"):
            record.add_value("nonsense", "loss", Tensor(0.5))
        with pytest.raises(NotImplementedError, match="MindInsight"):
            record.add_value("graph", "loss", Tensor(0.5))
    assert FakeWriter.last.written == [("scalar", "loss", 3)]
    assert not record.record(5)


@pytest.mark.usefixtures("tensorboard")
def test_summary_record_writes_what_operators_put_aside_in_training() -> None:
    ops.ScalarSummary()("before", Tensor(1.0))
    with SummaryRecord("somewhere") as record:
        ops.ScalarSummary()("inside", Tensor(2.0))
        record.record(1)
        record.set_mode("eval")
        ops.ScalarSummary()("evaluation", Tensor(3.0))
        record.record(2)
    assert FakeWriter.last.written == [("scalar", "inside", 1)]


def events(directory: Path) -> list[Any]:
    """The events of the only file in a directory, as TensorBoard reads them: TFRecord, with its checksums."""
    from tensorboardX.proto.event_pb2 import Event

    (path,) = directory.iterdir()
    return [Event.FromString(bytes(content_of(record))) for record in find_records("events", path, "")]


def test_event_files_are_whole(tmp_path: Path, make_data: Any, make_model: Any) -> None:
    """Written by tensorboardX itself, and read back: what TensorBoard shows."""
    pytest.importorskip("tensorboardX")
    collector = SummaryCollector(str(tmp_path / "run"), collect_freq=2)
    history = History()
    make_model(metrics={"mae"}).fit(2, make_data(8), make_data(), callbacks=[history, collector])
    actual = events(tmp_path / "run")
    assert actual[0].file_version == "brain.Event:2"
    values = [(event.step, value) for event in actual for value in event.summary.value]
    losses = {step: value.simple_value for step, value in values if value.tag == "loss/auto"}
    assert list(losses) == [1, 2, 4, 6, 8]
    assert losses[8] == pytest.approx(float(history.history["net_output"][1]), rel=1e-6)
    maes = [value.simple_value for _, value in values if value.tag == "metrics/mae"]
    assert maes == pytest.approx(history.history["mae"], rel=1e-6)
    histograms = {value.tag: value.histo for _, value in values if value.HasField("histo")}
    assert {tag: histo.num for tag, histo in histograms.items()} == {"weight/auto": 6, "bias/auto": 3}


def test_images_are_shown(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    pillow = pytest.importorskip("PIL.Image")
    picture = np.zeros((1, 3, 2, 4), np.float32)
    picture[0, 0] = 1.0
    with SummaryRecord(str(tmp_path / "run"), file_suffix="_end") as record:
        record.add_value("image", "picture", Tensor(picture))
        record.add_value("tensor", "numbers", Tensor([1.0, 2.0, 3.0]))
        assert record.record(7)
        record.flush()
    assert Path(record.log_dir).parent == tmp_path / "run" and record.log_dir.endswith("_end")
    values = {value.tag: (event.step, value) for event in events(tmp_path / "run") for value in event.summary.value}
    step, shown = values["picture"]
    image = pillow.open(io.BytesIO(shown.image.encoded_image_string))
    assert (step, shown.image.height, shown.image.width, image.getpixel((0, 0))) == (7, 2, 4, (255, 0, 0))
    assert (values["numbers"][1].histo.min, values["numbers"][1].histo.max) == (1.0, 3.0)


def test_what_is_not_finite_is_counted_in_a_curve_of_its_own(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    nothing = [float("nan"), float("inf")]
    with SummaryRecord(str(tmp_path / "run")) as record:
        record.add_value("histogram", "some", Tensor([1.0, 2.0, 5.0, *nothing]))
        record.add_value("histogram", "none", Tensor(nothing))
        record.record(1)
    values = {value.tag: value for event in events(tmp_path / "run") for value in event.summary.value}
    some, none = values["some"].histo, values["none"].histo
    assert (some.min, some.max, some.num, some.sum, some.sum_squares) == (1, 5, 5, 8, 30)
    assert (list(some.bucket_limit), list(some.bucket)) == ([3, 5], [2, 1])
    assert (none.num, sum(none.bucket)) == (2, 0)
    assert [values[f"{name}/not_finite"].simple_value for name in ("some", "none")] == [2, 2]


@pytest.mark.parametrize(("count", "bins"), [(0, 1), (5, 2), (10, 3), (11, 2), (880, 89), (881, 90), (10000, 90)])
def test_numbers_of_buckets_are_those_of_mindspore(count: int, bins: int) -> None:
    from sporax.mindspore.train.summary._summary_adapter import _calc_histogram_bins

    assert _calc_histogram_bins(count) == bins


@pytest.mark.parametrize(
    ("pixels", "first_and_last"),
    [
        (np.uint8([7, 0, 255]), (7, 255)),
        ([0.0, 0.5, 1.0], (0, 255)),
        ([-1.0, 0.0, 9.0], (0, 231)),
        ([3, 3, 3], (0, 0)),
        ([float("nan"), 0.5, float("inf")], (0, 255)),
    ],
)
def test_pixels_follow_the_rule_of_mindspore(tmp_path: Path, pixels: Any, first_and_last: tuple[int, int]) -> None:
    pytest.importorskip("tensorboardX")
    pillow = pytest.importorskip("PIL.Image")
    with SummaryRecord(str(tmp_path / "run")) as record:
        record.add_value("image", "row", Tensor(np.tile(np.asarray(pixels), (1, 3, 1, 1))))
        record.record(1)
    (shown,) = (value.image for event in events(tmp_path / "run") for value in event.summary.value)
    image = pillow.open(io.BytesIO(shown.encoded_image_string))
    assert (image.getpixel((0, 0))[0], image.getpixel((2, 0))[0]) == first_and_last


@pytest.mark.parametrize("shape", [(1, 2, 4, 4), (0, 3, 4, 4), (4,)])
def test_what_is_no_image_is_reported_and_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: Any) -> None:
    pytest.importorskip("tensorboardX")
    said: list[str] = []
    monkeypatch.setattr(summary.log, "error", said.append)
    with SummaryRecord(str(tmp_path / "run")) as record:
        record.add_value("image", "x", Tensor(np.zeros(shape)))
        with pytest.raises(ValueError, match=r"'value' must have one element, but got shape \(2,\)"):
            record.add_value("scalar", "x", Tensor([1.0, 2.0]))
        record.record(1)
    assert said == [f"For 'SummaryRecord', 'x' is no image [N, C, H, W] of 1 or 3 channels: {shape}."]
    assert not [value for event in events(tmp_path / "run") for value in event.summary.value]


def test_tensors_are_exported(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    with SummaryRecord(str(tmp_path), export_options={"tensor_format": "npy"}) as record:
        record.add_value("tensor", "layer/w", Tensor([[1, 2]]))
        record.add_value("tensor", "half", Tensor([0.5], ms.bfloat16))
        record.add_value("histogram", "other", Tensor([1]))
        record.record(3)
    files = {file.name: np.load(file).tolist() for file in tmp_path.glob("export_*/tensor/*")}
    assert files == {"layer%2Fw_3.npy": [[1, 2]], "half_3.npy": [0.5]}


def test_a_plan_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboardX")
    monkeypatch.setattr(summary.context, "plans_only", lambda: True)
    directory = str(tmp_path / "run")
    with SummaryRecord(directory, export_options={"tensor_format": "npy"}) as record:
        record.add_value("tensor", "w", Tensor([1.0]))
        record.record(1)
        assert record.log_dir == directory
    assert not list(tmp_path.rglob("*.*"))


@pytest.mark.usefixtures("tensorboard")
def test_values_are_put_aside_by_name_and_kind() -> None:
    from sporax.mindspore.train.summary.summary_record import _cache_summary_tensor_data, _get_summary_tensor_data

    with SummaryRecord("somewhere") as record:
        _cache_summary_tensor_data([{"name": "x[:Scalar]", "data": Tensor(1.0)}])
        record.record(2)
    assert FakeWriter.last.written == [("scalar", "x", 2)]
    ops.HistogramSummary()("y", Tensor([1.0, 2.0]))
    assert {name: value.asnumpy().tolist() for name, value in _get_summary_tensor_data().items()} == {
        "y[:Histogram]": [1.0, 2.0]
    }
    with pytest.raises(ValueError, match=r"'name' must be 'TAG\[:TYPE\]'"):
        _cache_summary_tensor_data([{"name": "x", "data": Tensor(1.0)}])


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"summary_dir": 3}, TypeError, "The summary_dir is invalid, the type should be string."),
        ({"summary_dir": " "}, ValueError, "The summary_dir is invalid, it should be non-blank."),
        (
            {"summary_dir": __file__},
            NotADirectoryError,
            f"The path({__file__}) is a file path, it should be a directory path.",
        ),
        (
            {"collect_freq": True},
            TypeError,
            "For `collect_freq` the type should be a valid type of ['int'], but got bool.",
        ),
        (
            {"max_file_size": -1},
            ValueError,
            'For "SummaryCollector", the value of `max_file_size` should be greater than 0, but got `-1`.',
        ),
        (
            {"collect_specified_data": {"histogram_regular": 1}},
            TypeError,
            "For `histogram_regular` the type should be a valid type of ['str', 'NoneType'], but got int.",
        ),
        (
            {"collect_specified_data": {"histogram_regular": "*"}},
            ValueError,
            "For `collect_specified_data`, the value of `histogram_regular` is not a valid regular expression. "
            "Detail: nothing to repeat at position 0.",
        ),
        (
            {"collect_specified_data": {"collect_landscape": {"create_landscape": {"train": 1}}}},
            TypeError,
            "For `train` the type should be a valid type of ['bool'], but got int.",
        ),
        (
            {"collect_specified_data": {"collect_landscape": {"size": 1}}},
            ValueError,
            "For \"SummaryCollector\", the keys {'size'} of `collect_landscape` are unsupported, expect the follow keys: "
            "['landscape_size', 'num_samples', 'unit', 'create_landscape', 'intervals']",
        ),
        (
            {"custom_lineage_data": {"a": []}},
            TypeError,
            "For `the value of custom_lineage_data -> a` the type should be a valid type of ['int', 'str', 'float'], "
            "but got list.",
        ),
        (
            {"export_options": {"tensor_format": "npz"}},
            ValueError,
            'For "SummaryRecord", the export_format {\'npz\'} of "export_options" are unsupported for tensor_format, '
            "expect the follow values: ",
        ),
        (
            {"export_options": {"other": "npy"}},
            ValueError,
            'For "SummaryRecord", the keys {\'other\'} of "export_options" are unsupported, '
            "expect the follow keys: ['tensor_format']",
        ),
    ],
)
def test_summary_collector_refuses_in_the_words_of_mindspore(
    arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error) as caught:
        SummaryCollector(**{"summary_dir": "x", **arguments})
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize(
    ("name", "value"), [("log_dir", None), ("raise_exception", 32), ("max_file_size", "1"), ("file_prefix", 1)]
)
def test_summary_record_refuses_other_types(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=name):
        SummaryRecord(**{"log_dir": "x", name: value})


def test_a_line_says_what_mindinsight_alone_shows() -> None:
    choice = {"collect_graph": True, "collect_eval_lineage": False, "collect_metric": True}
    with pytest.warns(UserWarning, match=r"\['collect_graph', 'custom_lineage_data'\] are not written") as said:
        collector = SummaryCollector(
            "x", collect_specified_data=choice, keep_default_action=False, custom_lineage_data={"width": 3}
        )
    assert (len(said), said[0].filename) == (1, __file__)
    assert collector._collect_specified_data == {"collect_metric": True}


def test_summary_collector_goes_on_without_a_loss() -> None:
    facts = _InternalCallbackParam(net_outputs={"loss": 1.0}, mode="eval", eval_network=nn.Dense(1, 1))
    collector = SummaryCollector("x")
    with pytest.warns(UserWarning, match="the first output is no loss: dict"):
        collector._collect_metric(facts)
    collector._collect_metric(facts)  # and says it once


def test_summary_collector_finds_the_optimizer_of_a_network() -> None:
    net = nn.Dense(2, 3)
    optimizer = nn.SGD(net.trainable_params(), 0.1)
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer)
    collector = SummaryCollector("x")
    assert collector._get_optimizer(_InternalCallbackParam(mode="train", train_network=step)) is optimizer


def test_one_summary_collector_is_enough(make_data: Any, make_model: Any, tmp_path: Path) -> None:
    two = [SummaryCollector(str(tmp_path / name)) for name in "xy"]
    with pytest.raises(ValueError, match="more than one SummaryCollector instance"):
        make_model().train(1, make_data(), callbacks=two)


def test_without_tensorboardx_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ImportError, match="tensorboardX must be installed"):
        SummaryRecord("somewhere")
