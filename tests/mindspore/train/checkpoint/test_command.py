"""`sporax checkpoint` on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sharded_recipes import STRATEGIES, W1, WHOLE

from sporax.launch.cli import main
from sporax.mindspore import Tensor
from sporax.mindspore.train import load_checkpoint, save_checkpoint

A, B = (str(STRATEGIES / f"{name}.ckpt") for name in "ab")


def test_convert_and_diff(tmp_path: Path, save_ranks: Any, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = str(save_ranks("src", A)), str(tmp_path / "dst")
    assert main(["checkpoint", "convert", source, target, "--src_strategy", A, "--dst_strategy", B, "--jobs", "2"]) == 0
    assert "100%" in capsys.readouterr().out or (tmp_path / "dst" / "rank_7" / "ckpt_7.ckpt").is_file()
    assert main(["checkpoint", "diff", source, target, "--left_strategy", A, "--right_strategy", B]) == 0
    assert capsys.readouterr().out == "4 parameters, all equal\n"


def test_convert_to_whole_parameters(tmp_path: Path, save_ranks: Any, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = str(save_ranks("src", A, "safetensors")), str(tmp_path / "dst")
    assert main(["checkpoint", "convert", source, target, "--src_strategy", A, "--unified", "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    values = load_checkpoint(str(tmp_path / "dst" / "part0.safetensors"), format="safetensors")
    np.testing.assert_array_equal(values["w1"].asnumpy(), W1)
    assert main(["checkpoint", "convert", source, target, "--dst_strategy", A, "--unified"]) == 2
    assert "'--unified' takes no '--dst_strategy'" in capsys.readouterr().err


def test_inspect_lists_values_of_a_file_and_of_a_folder(save_ranks: Any, capsys: pytest.CaptureFixture[str]) -> None:
    folder = save_ranks("src", A)
    assert main(["checkpoint", "inspect", str(folder / "rank_0" / "net.ckpt"), "--verify"]) == 0
    assert "  w1  (16, 8)  float32  512" in capsys.readouterr().out
    assert main(["checkpoint", "inspect", str(folder), "--strategy", A]) == 0
    out = capsys.readouterr().out
    assert "8 of 8 ranks, 1 pipeline stages" in out
    assert "  w1  (16, 32)  float32  2,048" in out
    assert out.endswith("5,124 bytes of values\n")


def test_diff_says_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = str(tmp_path / "a.ckpt"), str(tmp_path / "b.ckpt")
    save_checkpoint({"w": Tensor(W1), "v": Tensor(W1), "x": Tensor(W1)}, one)
    save_checkpoint({"w": Tensor(W1 + np.eye(16, 32, dtype=np.float32) / 4), "v": Tensor(W1.T), "y": Tensor(W1)}, other)
    assert main(["checkpoint", "diff", one, other]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"only in {one}: x",
        f"only in {other}: y",
        "v: (16, 32) of float32, (32, 16) of float32",
        "w: 16 values differ, by at most 0.25",
    ]
    save_checkpoint({"w": WHOLE["w1"] + np.float32(0.25)}, one)
    save_checkpoint({"w": WHOLE["w1"]}, other)
    assert main(["checkpoint", "diff", one, other, "--tolerance", "0.5"]) == 0


def test_mistakes_are_messages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["inspect", str(tmp_path)], ["diff", "no.ckpt", "no.ckpt"], ["convert", str(tmp_path / "no"), "x"]):
        assert main(["checkpoint", *words]) == 2
        assert capsys.readouterr().err.startswith("sporax checkpoint: For '")
