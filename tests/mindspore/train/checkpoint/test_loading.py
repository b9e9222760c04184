"""Slices into a network of another job, each device reading its own block."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sharded_recipes import STRATEGIES, W1, W2, WHOLE

import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, context, nn, ops
from sporax.mindspore.train import (
    load_distributed_checkpoint,
    load_segmented_checkpoints,
    save_checkpoint,
    unified_safetensors,
)
from sporax.mindspore.train._stored import open_checkpoint, unsliced
from sporax.mindspore.train.checkpoint import loading
from sporax.mindspore.train.checkpoint.loading import load_source_into_net

A, B = (str(STRATEGIES / f"{name}.ckpt") for name in "ab")


class Net(nn.Cell):
    def __init__(self, first: Any = None, second: Any = None) -> None:
        super().__init__()
        self.up, self.down = ops.MatMul(), ops.MatMul()
        if first is not None:
            self.up.shard(first)
            self.down.shard(second)
        self.w1 = Parameter(Tensor(np.zeros_like(W1)), name="w1")
        self.w2 = Parameter(Tensor(np.zeros_like(W2)), name="w2")

    def construct(self, x: Any) -> Any:
        return self.down(self.up(x, self.w1), self.w2)


def files_of(folder: Path, format: str = "ckpt") -> list[str]:
    return [str(folder / f"rank_{rank}" / f"net.{format}") for rank in range(8)]


def assert_loaded(net: nn.Cell) -> None:
    for name, value in (("w1", W1), ("w2", W2)):
        np.testing.assert_array_equal(net.parameters_dict()[name].asnumpy(), value)


def compiled_net() -> Net:
    context.set_context(mode=context.GRAPH_MODE)
    context.reset_auto_parallel_context()
    context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8)
    net = Net(((1, 4), (4, 2)), ((8, 1), (1, 1)))
    net(Tensor(np.ones((8, 16), np.float32)))
    assert len(net.w1.raw.sharding.device_set) == 8
    return net


@pytest.mark.parametrize("format", ["ckpt", "safetensors"])
@pytest.mark.parametrize("strategy", [A, B])
def test_into_a_net_that_is_not_compiled(save_ranks: Any, strategy: str, format: str) -> None:
    net = Net()
    files = files_of(save_ranks("src", strategy, format), format)
    assert load_distributed_checkpoint(net, files, None, strategy, format=format) is None
    assert_loaded(net)


def test_into_a_compiled_net_which_keeps_its_slices(save_ranks: Any) -> None:
    net = compiled_net()
    sharding = net.w1.raw.sharding
    load_distributed_checkpoint(net, files_of(save_ranks("src", B)), train_strategy_filename=B)
    assert_loaded(net)
    assert net.w1.raw.sharding.is_equivalent_to(sharding, 2)
    x = np.ones((8, 16), np.float32)
    np.testing.assert_allclose(net(Tensor(x)).asnumpy(), x @ W1 @ W2, rtol=1e-5)


def test_the_file_of_the_context_is_the_default(save_ranks: Any) -> None:
    context.set_auto_parallel_context(strategy_ckpt_load_file=A)
    net = Net()
    load_distributed_checkpoint(net, files_of(save_ranks("src", A)))
    assert_loaded(net)


def test_unified_files_into_a_net_with_names_changed(tmp_path: Path, save_ranks: Any) -> None:
    unified_safetensors(str(save_ranks("src", A, "safetensors")), A, str(tmp_path / "dst"),
                        choice_func=lambda name: "other" if name == "w1" else True)  # fmt: skip
    net = Net()
    load_distributed_checkpoint(
        net, format="safetensors", unified_safetensors_dir=str(tmp_path / "dst"), name_map={"other": "w1"}
    )
    assert_loaded(net)


def test_slices_of_another_rank_are_written_and_returned(tmp_path: Path, save_ranks: Any) -> None:
    files = files_of(save_ranks("src", A))
    slices = load_distributed_checkpoint(
        None, files, B, A, dst_safetensors_dir=str(tmp_path / "dst"), rank_id=5, return_param_dict=True
    )
    assert slices is not None
    np.testing.assert_array_equal(slices["w1"].asnumpy(), W1[4:8, 16:])
    written = open_checkpoint("test", tmp_path / "dst" / "rank_5" / "net5.safetensors")
    assert written.specs["w2"].shape == (4, 8)
    layout = ([2, 4], [-1, 0], [16, 8], 0, True, "", [16, 32], [16, 8])
    slices = load_distributed_checkpoint(None, files, {"w1": layout}, A, rank_id=5, return_param_dict=True)
    assert slices is not None
    np.testing.assert_array_equal(slices["w1"].asnumpy(), W1[:, 8:16])


def test_only_the_blocks_of_a_devices_are_read(tmp_path: Path) -> None:
    """All blocks of a compiled net are on this process's devices, so each is read once: the size of the file."""
    save_checkpoint({name: Tensor(value) for name, value in WHOLE.items()}, str(tmp_path / "a.safetensors"))
    file = open_checkpoint("test", tmp_path / "a.safetensors")
    net = compiled_net()
    missing, unused = load_source_into_net("test", unsliced("test", "files", [file]), net)
    assert (missing, unused) == ([], ["moments.w1"])
    assert file.bytes_read == W1.nbytes + W2.nbytes
    assert_loaded(net)


def test_nothing_is_loaded_where_something_does_not_fit(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    save_checkpoint({"w1": Tensor(W1), "w2": Tensor(W1)}, str(tmp_path / "a.ckpt"))
    file = open_checkpoint("test", tmp_path / "a.ckpt")
    net = Net()
    with pytest.raises(
        RuntimeError, match=r"'w2' has shape \(32, 8\), but the checkpoint \(16, 32\). Nothing was loaded"
    ):
        load_source_into_net("test", unsliced("test", "files", [file]), net)
    assert not net.w1.asnumpy().any()


def test_files_and_arguments_that_do_not_fit_are_refused(save_ranks: Any) -> None:
    files = files_of(save_ranks("src", A))
    for arguments, error, match in (
        ((3, files), ValueError, "'network' must be a Cell"),
        ((Net(), "file"), ValueError, "must be a list of files"),
        ((Net(), ["no.ckpt"]), ValueError, "must list existing .ckpt files, but got 'no.ckpt'"),
        ((Net(), files[:4], None, A), ValueError, "the strategy's 8 ranks, but has 4"),
        ((Net(), files, 3, A), TypeError, "'predict_strategy' must be a dict"),
        ((None, files), ValueError, "without 'network'"),
        ((Net(), files, None, A, False, b"key"), NotImplementedError, "encryption is not offered"),
    ):
        with pytest.raises(error, match=match):
            load_distributed_checkpoint(*arguments)
    with pytest.raises(ValueError, match="must say where parameters are"):
        load_distributed_checkpoint(Net(), format="safetensors", unified_safetensors_dir=str(Path(files[0]).parent))


def test_segments_of_a_directory(tmp_path: Path) -> None:
    save_checkpoint({"w1": Tensor(W1)}, str(tmp_path / "a.ckpt"))
    save_checkpoint({"w2": Tensor(W2)}, str(tmp_path / "b.ckpt"))
    net = Net()
    assert set(load_segmented_checkpoints(str(tmp_path), net)) == {"w1", "w2"}
    assert_loaded(net)
    assert set(load_segmented_checkpoints(str(tmp_path), specify_prefix="w1")) == {"w1"}
    save_checkpoint({"w2": Tensor(W2)}, str(tmp_path / "c.ckpt"))
    with pytest.raises(ValueError, match="parameter 'w2' of .*c.ckpt' is in another file"):
        load_segmented_checkpoints(str(tmp_path))
    with pytest.raises(TypeError, match="must be a string"):
        load_segmented_checkpoints(3)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ValueError, match="must be a directory with .ckpt files"):
        load_segmented_checkpoints(str(tmp_path / "no"))


def test_missing_names_are_reported(tmp_path: Path) -> None:
    save_checkpoint({"w1": Tensor(W1)}, str(tmp_path / "a.ckpt"))
    file = open_checkpoint("test", tmp_path / "a.ckpt")
    with pytest.warns(UserWarning, match="1 parameters of the network are not in the checkpoint .*w2"):
        assert loading.load_source_into_net("test", unsliced("test", "files", [file]), Net()) == (["w2"], [])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ms.load_segmented_checkpoints(str(tmp_path))["w1"].shape == (16, 32)
