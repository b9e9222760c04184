"""Strategy and group files: MindSpore's own are read, merged ones are distinguished, and what is none is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sharded_recipes import STRATEGIES

from sporax.mindspore.context._strategy_files import protobuf as strategy_protobuf
from sporax.mindspore.train import build_searched_strategy, merge_pipeline_strategys, restore_group_info_list
from sporax.mindspore.train.checkpoint.strategy import ALL, read_strategy


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_protobuf_and_json_of_mindspore_say_the_same(name: str) -> None:
    message, text = (STRATEGIES / f"{name}.{suffix}" for suffix in ("ckpt", "json"))
    first, second = (read_strategy("test", "strategy", str(path)) for path in (message, text))
    assert first.num_ranks == second.num_ranks == 8
    for parameter in ("w1", "w2", "moments.w1", "moments.w2"):
        one, other = first.layouts[parameter][0], second.layouts[parameter][0]
        assert (one.device_matrix, one.tensor_map, one.opt_shard_size, one.opt_shard_step) == (
            other.device_matrix,
            other.tensor_map,
            other.opt_shard_size,
            other.opt_shard_step,
        )
    assert {"a": 0, "b": ALL, "c": 2}[name] == first.layouts["w1"][0].opt_shard_size


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_a_message_of_mindspore_is_written_again_byte_for_byte(name: str) -> None:
    content = (STRATEGIES / f"{name}.ckpt").read_bytes()
    assert strategy_protobuf.encode(strategy_protobuf.decode(content)) == content


def test_searched_strategy_has_mindspores_fields() -> None:
    layouts = build_searched_strategy(str(STRATEGIES / "b.ckpt"))
    assert layouts["w1"].dev_matrix[0].dim == (2, 2, 2)
    assert layouts["w1"].tensor_map[0].dim == (1, 0)
    assert (layouts["w1"].opt_weight_shard_step, layouts["w1"].opt_weight_shard_size) == (4, -1)


def test_stages_are_merged_with_their_numbers(tmp_path: Path) -> None:
    """As the wheel does: the stage is that of the operators, whatever `current_stage` says."""
    layout = {
        "dev_matrix": [2, 2],
        "tensor_map": [1, 0],
        "field": 0,
        "opt_weight_shard_size": 0,
        "opt_weight_shard_step": 0,
    }
    for suffix in ("json", "ckpt"):
        folder = tmp_path / suffix
        folder.mkdir()
        for stage in (0, 1):
            content = {
                "current_stage": 4,
                "parallel_layout_item": {f"w{stage}": layout},
                "parallel_strategy_item": {f"MatMul_w{stage}": {"parallel_strategy": [[2, 2]], "stage": stage}},
            }
            data = json.dumps(content).encode() if suffix == "json" else strategy_protobuf.encode(content)
            (folder / f"stage{stage}.{suffix}").write_bytes(data)
        merged = tmp_path / "new" / f"merged.{suffix}"
        merge_pipeline_strategys(str(folder), str(merged))
        assert set(build_searched_strategy(str(merged))) == {"0-w0", "1-w1"}
        strategy = read_strategy("test", "strategy", str(merged))
        assert (strategy.num_stages, strategy.stage_devices) == (2, 4)
        assert strategy.holds("w1", 5)
        assert not strategy.holds("w1", 3)
        assert strategy.holds("moments.w0", 3)
        assert strategy.holds("global_step", 5)


def test_ranks_that_hold_the_same(tmp_path: Path) -> None:
    path = tmp_path / "groups"
    path.write_bytes(strategy_protobuf.encode_groups({"2-0-4": [0, 4]}, [0, 4]))
    assert restore_group_info_list(str(path)) == [0, 4]


@pytest.mark.parametrize("function", [build_searched_strategy, restore_group_info_list])
def test_files_that_are_refused(tmp_path: Path, function: object) -> None:
    assert callable(function)
    with pytest.raises(TypeError, match=r"For '\w+', '\w+' must be a string"):
        function(3)
    with pytest.raises(ValueError, match="does not exist"):
        function(str(tmp_path / "none"))
    for content in (b"\x0b", b"\x12\x7fabc", b"{"):
        (tmp_path / "broken").write_bytes(content)
        with pytest.raises(ValueError, match="must be a (strategy|group) file"):
            function(str(tmp_path / "broken"))


def test_merging_needs_a_directory_of_strategy_files(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError, match="must be a directory"):
        merge_pipeline_strategys(str(tmp_path / "none"), "x")
    with pytest.raises(ValueError, match="must hold strategy files"):
        merge_pipeline_strategys(str(tmp_path), "x")


@pytest.mark.parametrize(
    "layout",
    [
        {},
        {"dev_matrix": [2], "tensor_map": [5], "opt_weight_shard_size": 0, "opt_weight_shard_step": 0},
        {"dev_matrix": [2], "tensor_map": [0, 0], "opt_weight_shard_size": 0, "opt_weight_shard_step": 0},
        {"dev_matrix": ["a"], "tensor_map": [0], "opt_weight_shard_size": 0, "opt_weight_shard_step": 0},
        3,
    ],
)
def test_layouts_that_are_none(tmp_path: Path, layout: object) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"parallel_layout_item": {"w": layout}}))
    with pytest.raises(ValueError, match="parameter 'w' in .* is broken"):
        read_strategy("test", "strategy", str(path))
