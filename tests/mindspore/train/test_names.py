"""Names where MindSpore has them, and `data_sink`."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import nn
from sporax.mindspore.train import data_sink


@pytest.mark.parametrize("module", ["callback", "metrics", "model", "serialization", "summary", "data_sink"])
def test_modules_are_where_mindspore_has_them(module: str) -> None:
    assert importlib.import_module(f"sporax.mindspore.train.{module}").__name__ == f"sporax.mindspore.train.{module}"


def test_names_of_mindspore_are_at_the_top_level_too() -> None:
    own = {"Progress", "Track", "Tracker", "TensorBoardTracker", "MLflowTracker", "WandbTracker"}
    names = {*ms.train.metrics.__all__, *ms.train.callback.__all__, *ms.train.serialization.__all__} - own
    for name in names:
        assert getattr(ms, name) is getattr(ms.train, name)


def test_functions_of_distributed_checkpoints_are_in_all_three_places() -> None:
    for name in ms.train.checkpoint.__all__:
        assert getattr(ms, name) is getattr(ms.train, name) is getattr(ms.parallel, name)
    from sporax.mindspore.parallel.checkpoint_transform import transform_checkpoints
    from sporax.mindspore.train.serialization import load_distributed_checkpoint

    assert transform_checkpoints is ms.transform_checkpoints
    assert load_distributed_checkpoint is ms.load_distributed_checkpoint


def test_names_that_are_not_there_say_so() -> None:
    with pytest.raises(AttributeError, match="'TrainFaultTolerance'"):
        ms.train.TrainFaultTolerance  # noqa: B018 - the access is what raises
    with pytest.raises(ImportError, match="'convert_model'"):
        from sporax.mindspore.train.serialization import convert_model  # noqa: F401 - the import is what raises


@pytest.mark.parametrize("config", [None, object()])
def test_data_sink_runs_over_epochs(make_data: Any, config: Any) -> None:
    step = data_sink(lambda x, y: x.sum(), make_data(), sink_size=2, jit_config=config)
    sums = [float(step()) for _ in range(3)]
    batches = np.arange(12).reshape(3, 4).sum(axis=1) / 10
    np.testing.assert_allclose(sums, [batches[1], batches[0], batches[2]], rtol=1e-6)


def test_data_sink_trains(make_data: Any) -> None:
    ms.set_seed(0)  # losses of three batches go up and down, so weights must not depend on the tests before
    net = nn.Dense(2, 3)
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.1))
    run = data_sink(step, make_data(), sink_size=3)
    first, *_, last = [float(run()) for _ in range(10)]
    assert last < first


def test_data_sink_refuses(make_data: Any) -> None:
    with pytest.raises(ValueError, match="'sink_size' must be positive, but got 0"):
        data_sink(print, make_data(), 0)
    with pytest.raises(TypeError, match="'fn' must be a function"):
        data_sink(3, make_data())
    with pytest.raises(TypeError, match="must be a Dataset"):
        data_sink(print, 3)
    with pytest.raises(ValueError, match="'input_signature' is for compiled functions"):
        data_sink(print, make_data(), input_signature=())
