"""Checkpoints as directories: slices written once, complete or not there, read under any other sharding; resumed runs."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from sharded_recipes import W1

import sporax.mindspore as ms
from sporax.mindspore import nn
from sporax.mindspore.dataset import NumpySlicesDataset
from sporax.mindspore.train import (
    Callback,
    CheckpointConfig,
    Model,
    ModelCheckpoint,
    OnRequestExit,
    ResumableCheckpoint,
)
from sporax.mindspore.train.checkpoint.stores import (
    complete,
    complete_checkpoints,
    latest_checkpoint,
    remove_incomplete,
)
from sporax.runtime.storage.slice_directory import MARKER, open_directory, write_slices
from sporax.runtime.storage.slices import held_slices, this_rank

SPECS = [PartitionSpec("a", "b"), PartitionSpec(None, ("b", "a")), PartitionSpec("b"), PartitionSpec()]


def placed(values: np.ndarray[Any, Any], spec: PartitionSpec) -> jax.Array:
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("a", "b"))
    return jax.device_put(values, NamedSharding(mesh, spec))


def saved(folder: Path, **arrays: Any) -> Path:
    write_slices(
        folder / "rank_0.safetensors",
        list(held_slices(arrays, this_rank(), once=True)),
        {"step": 3, "random": [0, 0, 0]},
    )
    complete(folder, 1, 1)
    return folder


@pytest.mark.parametrize("spec", SPECS)
def test_each_slice_is_written_once_and_read_in_any_block(tmp_path: Path, spec: PartitionSpec) -> None:
    source = open_directory(
        "ResumableCheckpoint", saved(tmp_path / "step_3", w=placed(W1, spec), s=placed(np.float32(2), PartitionSpec()))
    )
    values = sum(np.prod(part.shape) for file in source.files.values() for part in file.specs.values())
    assert values == W1.size + 1
    np.testing.assert_array_equal(source.read("w"), W1)
    assert source.read("s") == 2
    before = source.bytes_read
    block = (slice(3, 9), slice(5, 20))
    np.testing.assert_array_equal(source.read("w", block), W1[block])
    assert source.bytes_read - before == 6 * 15 * 4


def test_a_checkpoint_without_all_files_does_not_exist(tmp_path: Path) -> None:
    saved(tmp_path / "step_3", w=placed(W1, SPECS[0]))
    write_slices(tmp_path / "step_5" / "rank_0.safetensors", [], {})
    with pytest.raises(RuntimeError, match=r"ranks \[1\] wrote nothing to .*step_5' within 0.05 s"):
        complete(tmp_path / "step_5", 2, 0.05)
    assert latest_checkpoint(tmp_path) == tmp_path / "step_3"
    with pytest.raises(ValueError, match="must be a complete checkpoint"):
        open_directory("ResumableCheckpoint", tmp_path / "step_5")
    remove_incomplete(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "step_3"]


def test_a_shortened_or_changed_file_is_never_loaded(tmp_path: Path) -> None:
    folder = saved(tmp_path / "step_3", w=placed(W1, SPECS[0]))
    path = folder / "rank_0.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:-4])
    assert latest_checkpoint(tmp_path) is None
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ValueError, match=r"rank_0.safetensors' cannot be read: .*CRC-32"):
        open_directory("ResumableCheckpoint", folder)


def test_old_checkpoints_go_only_when_a_new_one_is_complete(tmp_path: Path) -> None:
    for step in (1, 2, 10):
        saved(tmp_path / f"step_{step}", w=placed(W1, SPECS[0]))
    write_slices(tmp_path / "step_11" / "rank_0.safetensors", [], {})
    assert [path.name for path in complete_checkpoints(tmp_path)] == ["step_1", "step_2", "step_10"]
    complete(tmp_path / "step_11", 1, 1, keep=2)
    assert [path.name for path in complete_checkpoints(tmp_path)] == ["step_10", "step_11"]
    assert (tmp_path / "latest").read_text() == "step_11"
    assert json.loads((tmp_path / "step_11" / MARKER).read_text())["step"] == 11


# -------------------------------------------------------------------------------------------------------------- resuming


class StopAfter(Callback):
    """Ends a run as a kill would: nothing is saved after it."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_step_end(self, run_context: Any) -> None:
        if run_context.original_args().cur_step_num == self.step:
            raise KeyboardInterrupt


class Losses(Callback):
    def __init__(self) -> None:
        self.values: dict[int, float] = {}

    def on_train_step_end(self, run_context: Any) -> None:
        facts = run_context.original_args()
        self.values[facts.cur_step_num] = float(facts.net_outputs)


def train(
    callbacks: list[Callback],
    epochs: int = 3,
    strategy: Any = None,
    *,
    resume: bool = False,
    sink: bool = False,
    batch: int = 8,
) -> tuple[dict[int, float], list[Any]]:
    """Dropout, shuffling and momentum: all that a resumed run must have kept."""
    ms.set_context(mode=ms.GRAPH_MODE)
    if strategy is not None:
        ms.reset_auto_parallel_context()
        ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8)
    ms.set_seed(3)
    rng = np.random.default_rng(0)
    data = (rng.normal(size=(40, 8)).astype(np.float32), rng.normal(size=(40, 4)).astype(np.float32))
    dataset = NumpySlicesDataset(data, ["x", "y"], shuffle=True).batch(batch)
    net = nn.SequentialCell(nn.Dense(8, 16), nn.Dropout(p=0.3), nn.Dense(16, 4))
    if strategy is not None:
        net[0].matmul.shard(strategy)
    losses = Losses()
    model = Model(net, nn.MSELoss(), nn.Momentum(net.trainable_params(), 0.1, 0.9))
    with contextlib.suppress(KeyboardInterrupt):
        model.train(epochs, dataset, callbacks=[losses, *callbacks], dataset_sink_mode=sink, resume=resume)
    return losses.values, [parameter.asnumpy() for parameter in net.get_parameters()]


@functools.cache
def uninterrupted() -> tuple[dict[int, float], list[Any]]:
    return train([])


@pytest.mark.parametrize("killed", [5, 11])
def test_a_run_that_is_resumed_is_one_that_was_never_stopped(tmp_path: Path, killed: int) -> None:
    """5 steps an epoch, saved every 2: the last save falls into an epoch, and on the end of one."""
    expected, weights = uninterrupted()
    train([ResumableCheckpoint(str(tmp_path), 2, async_save=False), StopAfter(killed)])
    saver = ResumableCheckpoint(str(tmp_path), 2)
    again, resumed = train([saver])
    assert min(again) == killed // 2 * 2 + 1
    assert again == {step: expected[step] for step in again}
    for one, other in zip(weights, resumed, strict=True):
        np.testing.assert_array_equal(one, other)
    assert saver.latest.endswith("step_15")
    assert train([ResumableCheckpoint(str(tmp_path), 2)])[0] == {}  # nothing is left to do


@pytest.mark.parametrize("format", ["ckpt", "safetensors"])
@pytest.mark.parametrize("killed", [5, 11])
def test_model_checkpoint_resumes_as_well(tmp_path: Path, killed: int, format: str) -> None:
    expected, weights = uninterrupted()

    def saver() -> ModelCheckpoint:
        return ModelCheckpoint("net", str(tmp_path), CheckpointConfig(2, keep_checkpoint_max=3, format=format))

    first, _ = train([saver(), StopAfter(killed)], resume=True)
    assert first == {step: expected[step] for step in range(1, killed + 1)}
    last = saver()
    again, resumed = train([last], resume=True)
    assert again == {step: expected[step] for step in range(killed // 2 * 2 + 1, 16)}
    for one, other in zip(weights, resumed, strict=True):
        np.testing.assert_array_equal(one, other)
    assert last.latest_ckpt_file_name.endswith(f"net-3_5.{format}")


@pytest.mark.parametrize("variable", ["MS_ENABLE_RECOVERY", "SPORAX_RESUME"])
def test_the_environment_requests_recovery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "1")
    expected, _ = uninterrupted()
    config = CheckpointConfig(5, keep_checkpoint_max=2)
    train([ModelCheckpoint("net", str(tmp_path), config), StopAfter(10)], sink=True)
    again, _ = train([ModelCheckpoint("net", str(tmp_path), config)], sink=True)
    assert again == {15: pytest.approx(expected[15], rel=1e-6)}


def in_job(monkeypatch: pytest.MonkeyPatch, job: str) -> None:
    """What the operator sets in the pods of a job whose workers are started again."""
    monkeypatch.setenv("MS_ENABLE_RECOVERY", "1")
    monkeypatch.setenv("SPORAX_JOB_ID", job)


def test_a_job_resumes_from_its_own_files_and_a_new_one_trains_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, _ = uninterrupted()

    def run(job: str, *others: Callback, resume: bool = False) -> dict[int, float]:
        in_job(monkeypatch, job)
        return train([ModelCheckpoint("net", str(tmp_path), CheckpointConfig(2)), *others], resume=resume)[0]

    assert run("old") == expected
    old = {path.name: path.read_bytes() for path in tmp_path.glob("net-*.ckpt")}
    assert run("new", StopAfter(5)) == {step: expected[step] for step in range(1, 6)}
    assert run("new") == {step: expected[step] for step in range(5, 16)}  # saved at steps 2 and 4
    assert {name: (tmp_path / name).read_bytes() for name in old} == old
    assert run("old") == {}  # its own are still there
    assert run("newest", resume=True) == {}  # the user's own word: whatever is there


def test_a_new_job_does_not_go_on_from_what_another_left_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SendSignal(Callback):
        def on_train_step_end(self, run_context: Any) -> None:
            if run_context.original_args().cur_step_num == 7:
                os.kill(os.getpid(), signal.SIGTERM)

    expected, _ = uninterrupted()

    def run(job: str, *first: Callback) -> dict[int, float]:
        in_job(monkeypatch, job)
        return train([*first, OnRequestExit(save_mindir=False, directory=str(tmp_path))])[0]

    assert max(run("old", SendSignal())) == 7
    assert run("new") == expected
    assert run("old") == {step: expected[step] for step in range(8, 16)}


def test_a_job_that_requests_a_fresh_folder_resumes_from_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, _ = uninterrupted()

    def run(job: str, *others: Callback) -> dict[int, float]:
        in_job(monkeypatch, job)
        return train([ResumableCheckpoint(str(tmp_path), 2, resume=False, async_save=False), *others])[0]

    run("old", StopAfter(5))
    assert run("new", StopAfter(7)) == {step: expected[step] for step in range(1, 8)}
    assert run("new") == {step: expected[step] for step in range(7, 16)}


def test_a_job_whose_files_cannot_be_resumed_from_trains_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_job(monkeypatch, "any")
    expected, _ = uninterrupted()
    with pytest.warns(UserWarning, match="trains from the start: 'prefix' and 'directory' must be strings"):
        assert train([ModelCheckpoint(lambda facts: "net", str(tmp_path))])[0] == expected


def test_resume_needs_callbacks_that_save_under_names_of_their_own(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'resume' must come with a ResumableCheckpoint or ModelCheckpoint"):
        train([], resume=True)
    with pytest.raises(ValueError, match="'prefix' and 'directory' must be strings"):
        train([ModelCheckpoint(lambda facts: "net", str(tmp_path))], resume=True)


def test_a_run_goes_on_from_plain_files_with_what_they_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train([ModelCheckpoint("net", str(tmp_path), CheckpointConfig(5)), StopAfter(6)])
    weights = ms.load_checkpoint(str(tmp_path / "net-1_5.ckpt"))
    seen: dict[str, Any] = {}

    class First(Callback):
        def on_train_begin(self, run_context: Any) -> None:
            network = run_context.original_args().train_network
            seen.update({item.name: item.asnumpy().copy() for _, item in network.parameters_and_names()})

    again, _ = train([ModelCheckpoint("net", str(tmp_path), CheckpointConfig(5)), First()], resume=True)
    assert min(again) == 6
    for name, value in seen.items():
        np.testing.assert_array_equal(value, weights[name].asnumpy(), err_msg=name)
    said = capsys.readouterr().err
    assert "goes on after step 5" in said
    assert "Not in this file: random numbers" in said and said.endswith("Later ones have them.\n")
    # From now on files have them, so that nothing is missing.
    train([ModelCheckpoint("net", str(tmp_path), CheckpointConfig(5))], resume=True)
    assert "Not in this file" not in capsys.readouterr().err


def test_a_run_goes_on_from_the_weights_alone_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network = nn.Dense(2, 1)

    def run(steps: int, resume: bool) -> int:
        optimizer = nn.Adam(network.trainable_params(), 0.1)
        config = CheckpointConfig(2, saved_network=network)
        data = NumpySlicesDataset({"x": np.ones((8, 2), np.float32), "y": np.ones((8, 1), np.float32)}).batch(2)
        saves = [ModelCheckpoint("net", str(tmp_path), config)]
        Model(network, nn.MSELoss(), optimizer).train(steps, data, saves, dataset_sink_mode=False, resume=resume)
        return int(optimizer.global_step.asnumpy().item())

    assert run(1, False) == 4
    assert run(2, True) == 4  # its optimizer begins anew: the second epoch alone
    said = capsys.readouterr().err
    assert "Parameters such as 'global_step' (state of the optimizer), which begin again" in said
    assert said.endswith("'saved_network' leaves the former out of later ones, too.\n")


def test_a_training_that_saves_nothing_says_that_resume_has_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPORAX_RESUME", "1")
    with pytest.warns(UserWarning, match="`sporax run --resume` has no effect without a ResumableCheckpoint"):
        train([])


def test_a_run_is_resumed_under_another_strategy(tmp_path: Path) -> None:
    expected, _ = uninterrupted()
    train([ResumableCheckpoint(str(tmp_path), 2, async_save=False), StopAfter(6)], strategy=((2, 1), (4, 1)))
    again, _ = train([ResumableCheckpoint(str(tmp_path), 2)], strategy=((4, 2), (1, 2)))
    assert min(again) == 7
    np.testing.assert_allclose([again[step] for step in again], [expected[step] for step in again], rtol=1e-5)


def test_a_run_whose_epochs_have_another_length_is_refused(tmp_path: Path) -> None:
    train([ResumableCheckpoint(str(tmp_path), 2, async_save=False), StopAfter(4)])
    match = r"an epoch must have 5 steps, as when step 4 was saved by 1 rank\(s\), but the data set has 8 for each"
    with pytest.raises(ValueError, match=match):
        train([ResumableCheckpoint(str(tmp_path), 2)], batch=5)


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train([ResumableCheckpoint(str(tmp_path), 2, async_save=False), StopAfter(4)])

    def full(*arguments: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        train([ResumableCheckpoint(str(tmp_path), 2)])
    monkeypatch.undo()
    latest = latest_checkpoint(tmp_path)
    assert latest is not None
    assert latest.name == "step_4"
    assert not list(tmp_path.rglob("*.tmp"))


def test_settings_of_resumable_checkpoints_are_checked() -> None:
    for arguments, error, match in (
        ((3,), TypeError, "'directory' must be a path"),
        (("x", 0), ValueError, "'save_steps' must be >= 1"),
        (("x", 1, 1, 1), TypeError, "'async_save' must be a bool"),
        (("x", 1, 1, True, "hope"), ValueError, "'when_busy' must be one of"),
    ):
        with pytest.raises(error, match=match):
            ResumableCheckpoint(*arguments)


@pytest.mark.parametrize("async_save", [False, True])
def test_a_full_disk_leaves_the_only_file_of_model_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, async_save: bool
) -> None:
    def saver() -> ModelCheckpoint:
        config = CheckpointConfig(2, keep_checkpoint_max=1, async_save=async_save)
        return ModelCheckpoint("net", str(tmp_path), config)

    train([saver()], epochs=1, resume=True)
    assert [path.name for path in tmp_path.glob("*.ckpt")] == ["net-1_5.ckpt"]

    def full(*arguments: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        train([saver()], epochs=2, resume=True)
    assert [path.name for path in tmp_path.iterdir()] == ["net-1_5.ckpt"]
