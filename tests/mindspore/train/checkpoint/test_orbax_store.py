"""`ResumableCheckpoint` with Orbax: runs that are resumed, also under another sharding, and what is refused."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import nn
from sporax.mindspore.dataset import NumpySlicesDataset
from sporax.mindspore.train import Callback, Model, ResumableCheckpoint

needs_orbax = pytest.mark.skipif(importlib.util.find_spec("orbax") is None, reason="needs sporax[orbax]")


class Losses(Callback):
    """Keeps losses, and ends a run as a kill would."""

    def __init__(self, last: int) -> None:
        self.values: dict[int, float] = {}
        self.last = last

    def on_train_step_end(self, run_context: Any) -> None:
        facts = run_context.original_args()
        self.values[facts.cur_step_num] = float(facts.net_outputs)
        if facts.cur_step_num == self.last:
            raise KeyboardInterrupt


def train(saver: list[Callback], last: int = 0, strategy: Any = ((2, 1), (4, 1)), width: int = 16) -> dict[int, float]:
    """Dropout, shuffling and momentum in 10 steps; losses by step."""
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.reset_auto_parallel_context()
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8)
    ms.set_seed(3)
    rng = np.random.default_rng(0)
    data = (rng.normal(size=(40, 8)).astype(np.float32), rng.normal(size=(40, 4)).astype(np.float32))
    dataset = NumpySlicesDataset(data, ["x", "y"], shuffle=True).batch(8)
    net = nn.SequentialCell(nn.Dense(8, width), nn.Dropout(p=0.3), nn.Dense(width, 4))
    net[0].matmul.shard(strategy)
    losses = Losses(last)
    model = Model(net, nn.MSELoss(), nn.Momentum(net.trainable_params(), 0.1, 0.9))
    with contextlib.suppress(KeyboardInterrupt):
        model.train(2, dataset, callbacks=[*saver, losses], dataset_sink_mode=False)
    return losses.values


@pytest.fixture(scope="module")
def expected() -> dict[int, float]:
    """Losses of a run that nobody ends."""
    losses = train([])
    ms.set_context(mode=ms.PYNATIVE_MODE)
    ms.reset_auto_parallel_context()
    return losses


@needs_orbax
@pytest.mark.parametrize("async_save", [False, True])
def test_a_run_is_resumed(tmp_path: Path, expected: dict[int, float], async_save: bool) -> None:
    train([ResumableCheckpoint(str(tmp_path), 3, async_save=False, backend="orbax")], last=7)
    saver = ResumableCheckpoint(str(tmp_path), 2, keep=2, async_save=async_save, backend="orbax")
    assert train([saver]) == {step: expected[step] for step in range(7, 11)}
    assert saver.latest == str(tmp_path / "step_10")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step_10", "step_8"]


@needs_orbax
def test_a_run_is_resumed_under_another_strategy(tmp_path: Path, expected: dict[int, float]) -> None:
    train([ResumableCheckpoint(str(tmp_path), 3, async_save=False, backend="orbax")], last=7)
    again = train([ResumableCheckpoint(str(tmp_path), 3, backend="orbax")], strategy=((4, 2), (1, 2)))
    assert again == {step: pytest.approx(expected[step], rel=1e-5) for step in range(7, 11)}


@needs_orbax
def test_a_parameter_of_another_shape_is_refused_and_nothing_loaded(tmp_path: Path) -> None:
    train([ResumableCheckpoint(str(tmp_path), 3, async_save=False, backend="orbax")], last=4)
    with pytest.raises(RuntimeError, match=r"'0.weight' has shape \(12, 8\), but the checkpoint \(16, 8\)"):
        train([ResumableCheckpoint(str(tmp_path), 3, backend="orbax")], width=12)


@needs_orbax
def test_jax_programs_read_what_was_saved(tmp_path: Path) -> None:
    import orbax.checkpoint

    train([ResumableCheckpoint(str(tmp_path), 5, async_save=False, backend="orbax")])
    checkpointer = orbax.checkpoint.PyTreeCheckpointer()
    with pytest.warns(UserWarning, match="Sharding info"):  # it takes the shardings of this run
        read = checkpointer.restore(tmp_path / "step_10" / "state")
    checkpointer.close()
    assert {name: value.shape for name, value in read.items() if "0.weight" in name} == {
        "0.weight": (16, 8),
        "moments.0.weight": (16, 8),
    }


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "orbax.checkpoint", None)
    with pytest.raises(ImportError, match=r"backend='orbax' must come with .*pip install 'sporax\[orbax\]'"):
        ResumableCheckpoint("gs://bucket/run", backend="orbax")


def test_cloud_paths_need_orbax() -> None:
    with pytest.raises(ValueError, match="'directory' must be a path of the file system with backend='files'"):
        ResumableCheckpoint("gs://bucket/run")
    with pytest.raises(ValueError, match="'backend' must be one of"):
        ResumableCheckpoint("run", backend="hope")
