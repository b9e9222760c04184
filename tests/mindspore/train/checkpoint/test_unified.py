"""`unified_safetensors`: as the wheel writes it, by parts, with new names, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sharded_recipes import STRATEGIES, WHOLE

from sporax.mindspore.train import load_checkpoint, unified_safetensors

A, B = (str(STRATEGIES / f"{name}.ckpt") for name in "ab")


def contents(path: Path) -> dict[str, Any]:
    return {name: value.asnumpy() for name, value in load_checkpoint(str(path), format="safetensors").items()}


@pytest.mark.parametrize("strategy", [A, B])
def test_files_and_map_are_those_of_mindspore(tmp_path: Path, save_ranks: Any, strategy: str) -> None:
    unified_safetensors(str(save_ranks("src", strategy, "safetensors")), strategy, str(tmp_path / "dst"))
    names = sorted(path.name for path in (tmp_path / "dst").iterdir())
    assert names == ["hyper_param.safetensors", "param_name_map.json", "part0.safetensors"]
    values = contents(tmp_path / "dst" / "part0.safetensors")
    assert set(values) == set(WHOLE)
    for name, value in WHOLE.items():
        np.testing.assert_array_equal(values[name], value)
    assert set(contents(tmp_path / "dst" / "hyper_param.safetensors")) == {"global_step"}
    assert json.loads((tmp_path / "dst" / "param_name_map.json").read_text()) == {
        "metadata": {"total_size": 5120},
        "weight_map": dict.fromkeys(sorted(WHOLE), "part0.safetensors"),
    }


def test_machines_share_the_work(tmp_path: Path, save_ranks: Any) -> None:
    folder = str(save_ranks("src", A, "safetensors"))
    for number in (2, 1):
        unified_safetensors(folder, A, str(tmp_path / "dst"), split_dst_file=(number, 2))
    places = json.loads((tmp_path / "dst" / "param_name_map.json").read_text())["weight_map"]
    assert set(places.values()) == {"part0.safetensors", "part1.safetensors"}
    for name, file in places.items():
        np.testing.assert_array_equal(contents(tmp_path / "dst" / file)[name], WHOLE[name])


def test_names_are_chosen_and_changed(tmp_path: Path, save_ranks: Any) -> None:
    def choose(name: str) -> bool | str:
        return "new" if name == "w2" else name == "w1"

    unified_safetensors(str(save_ranks("src", A, "safetensors")), A, str(tmp_path / "dst"), choice_func=choose)
    assert set(contents(tmp_path / "dst" / "part0.safetensors")) == {"w1", "new"}


def test_folders_and_arguments_that_make_no_sense_are_refused(tmp_path: Path, save_ranks: Any) -> None:
    folder = save_ranks("src", A, "safetensors")
    source, target = str(folder), str(tmp_path / "dst")
    with pytest.raises(ValueError, match="'src_dir' must hold rank_0"):
        unified_safetensors(str(tmp_path / "no"), A, target)
    with pytest.raises(ValueError, match=r"must be \(n, m\) with n <= m"):
        unified_safetensors(source, A, target, split_dst_file=(3, 2))
    with pytest.raises(TypeError, match="must return a bool or a string, but returned 3"):
        unified_safetensors(source, A, target, choice_func=lambda name: 3)
    (folder / "rank_7" / "net.safetensors").unlink()
    with pytest.raises(ValueError, match=r"those of ranks \[7\] are not"):
        unified_safetensors(source, A, target, merge_with_redundancy=False)
    assert not Path(target).exists()
    unified_safetensors(source, A, target)  # rank 3 has the same
