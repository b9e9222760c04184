"""Conversion between strategies: MindSpore's results, every layout to every other, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from sharded_recipes import STEP, STRATEGIES, WHOLE, slices

from sporax.mindspore import Parameter, Tensor, nn
from sporax.mindspore.train import (
    get_ckpt_path_with_strategy,
    load_checkpoint,
    rank_list_for_transform,
    save_checkpoint,
    transform_checkpoint_by_rank,
    transform_checkpoints,
)
from sporax.mindspore.train.checkpoint import transform
from sporax.mindspore.train.checkpoint.strategy import read_strategy

A, B, C = (str(STRATEGIES / f"{name}.ckpt") for name in "abc")


def loaded(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    return {name: value.asnumpy() for name, value in load_checkpoint(str(path), format=path.suffix[1:]).items()}


def assert_ranks_hold_their_slices(
    folder: Path, strategy: str | None, prefix: str = "new", format: str = "ckpt"
) -> None:
    target = read_strategy("test", "strategy", strategy)
    for rank in range(target.num_ranks):
        values = loaded(folder / f"rank_{rank}" / f"{prefix}{rank}.{format}")
        expected = slices(target, rank)
        assert set(values) == set(expected)
        for name, value in expected.items():
            np.testing.assert_array_equal(values[name], value)


def test_mindspores_own_conversion_gives_the_same(tmp_path: Path, save_ranks: Any) -> None:
    """First values of w1 per rank, from the wheel's `transform_checkpoints` on the same files."""
    transform_checkpoints(str(save_ranks("src", A)), str(tmp_path / "dst"), "new", A, B)
    first = [0, 16, 256, 272, 128, 144, 384, 400]
    for rank, value in enumerate(first):
        values = loaded(tmp_path / "dst" / f"rank_{rank}" / f"new{rank}.ckpt")
        assert values["w1"].shape == values["moments.w1"].shape == (4, 16)
        assert (values["w1"][0, 0], values["moments.w1"][0, 0], values["w2"][0, 0]) == (value, -value, 32 * rank)
        assert (values["global_step"] == STEP).all()


@pytest.mark.parametrize(("source", "target"), [(A, B), (B, A), (B, C), (C, None), (None, B), (None, None)])
@pytest.mark.parametrize("format", ["ckpt", "safetensors"])
def test_every_rank_gets_its_slices(tmp_path: Path, save_ranks: Any, source: Any, target: Any, format: str) -> None:
    folder = save_ranks("src", source, format)
    transform_checkpoints(str(folder), str(tmp_path / "dst"), "new", source, target, 2, format)
    assert_ranks_hold_their_slices(tmp_path / "dst", target, format=format)


def test_pipeline_stages_are_gathered_and_dealt(tmp_path: Path, save_ranks: Any, strategy_file: Any) -> None:
    staged = strategy_file(
        "stages", **{"0__w1": ([2, 2], [1, 0], 0), "1__w2": ([4], [0, -1], 0), "1__w1": ([2, 2], [-1, 0], -1)}
    )
    folder = save_ranks("src", staged)
    assert "w2" not in loaded(folder / "rank_0" / "net.ckpt")
    transform_checkpoints(str(folder), str(tmp_path / "whole"), "new", staged, None)
    assert_ranks_hold_their_slices(tmp_path / "whole", None)
    transform_checkpoints(str(tmp_path / "whole"), str(tmp_path / "again"), "new", None, staged)
    assert_ranks_hold_their_slices(tmp_path / "again", staged)
    # The files say where their slices belong, so neither a conversion nor a network needs the strategy.
    transform_checkpoints(str(tmp_path / "again"), str(tmp_path / "back"), "new", None, None)
    assert_ranks_hold_their_slices(tmp_path / "back", None)
    net = nn.Cell()
    net.w1 = Parameter(Tensor(np.zeros_like(WHOLE["w1"])), name="w1")
    load_checkpoint(str(tmp_path / "again" / "rank_1" / "new1.ckpt"), net)
    np.testing.assert_array_equal(net.w1.asnumpy(), WHOLE["w1"])


@st.composite
def layouts(draw: Any) -> tuple[list[int], list[int], int]:
    matrix = draw(st.sampled_from([[8], [2, 4], [4, 2], [2, 2, 2]]))
    axes = draw(st.permutations([*range(len(matrix)), -1, -1]))[:2]
    return matrix, list(axes), draw(st.sampled_from([0, -1]))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=layouts(), second=layouts())
def test_any_layout_to_any_other(tmp_path: Path, strategy_file: Any, save_ranks: Any, first: Any, second: Any) -> None:
    number = len(list(tmp_path.iterdir()))
    values = {"w1": np.arange(64 * 8.0).reshape(64, 8)}
    source, target = strategy_file(f"{number}a", w1=first), strategy_file(f"{number}b", w1=second)
    folder = save_ranks(str(number), source, values=values)
    to = read_strategy("test", "strategy", target)
    for rank in (0, 3, 7):
        needed = rank_list_for_transform(rank, source, target)
        files = {needed_rank: str(folder / f"rank_{needed_rank}" / "net.ckpt") for needed_rank in needed}
        transform_checkpoint_by_rank(rank, files, str(folder / "one.ckpt"), source, target)
        np.testing.assert_array_equal(loaded(folder / "one.ckpt")["w1"], slices(to, rank, values)["w1"])


def test_ranks_that_are_needed() -> None:
    assert rank_list_for_transform(0) == [0]
    assert rank_list_for_transform(-1, None, A) == [0]
    assert rank_list_for_transform(0, A, None) == [0, 1, 2, 3]
    assert rank_list_for_transform(0, B, None) == list(range(8))
    assert rank_list_for_transform(5, A, A) == [1]


def test_the_file_of_a_rank_that_holds_the_same(
    tmp_path: Path, save_ranks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_ranks("src", A)
    path = {rank: str(folder / f"rank_{rank}" / "net.ckpt") for rank in range(8)}
    monkeypatch.setattr(transform, "get_rank", lambda: 5)
    assert get_ckpt_path_with_strategy(path[5], A) == path[5]
    Path(path[5]).unlink()
    assert get_ckpt_path_with_strategy(path[5], A) == path[1]
    Path(path[1]).unlink()
    assert get_ckpt_path_with_strategy(path[5], A) is None


def test_a_missing_twin_is_not_missed_and_a_missing_slice_is_named(tmp_path: Path, save_ranks: Any) -> None:
    folder = save_ranks("src", A)
    (folder / "rank_1" / "net.ckpt").unlink()
    transform_checkpoints(str(folder), str(tmp_path / "dst"), "new", A, None)
    assert_ranks_hold_their_slices(tmp_path / "dst", None)
    (folder / "rank_5" / "net.ckpt").unlink()
    with pytest.raises(ValueError, match=r"parameter 'w1' is not complete: 384 of 512 .* those of ranks \[1, 5\]"):
        transform_checkpoints(str(folder), str(tmp_path / "other"), "new", A, None)
    assert not list((tmp_path / "other").rglob("*.*"))


def test_a_broken_file_is_named_and_nothing_is_written(tmp_path: Path, save_ranks: Any) -> None:
    folder = save_ranks("src", A)
    path = folder / "rank_6" / "net.ckpt"
    content = bytearray(path.read_bytes())
    content[300] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"rank_6/net.ckpt' cannot be read: .*CRC-32"):
        transform_checkpoints(str(folder), str(tmp_path / "dst"), "new", A, None)
    assert not (tmp_path / "dst").exists()


def test_a_file_of_another_strategy_is_named(tmp_path: Path, save_ranks: Any) -> None:
    folder = save_ranks("src", B)
    with pytest.raises(ValueError, match=r"parameter 'w.' .*rank"):
        transform_checkpoints(str(folder), str(tmp_path / "dst"), "new", str(STRATEGIES / "a.json"), None)


def test_numbers_of_ranks_must_divide(tmp_path: Path, save_ranks: Any, strategy_file: Any) -> None:
    three = strategy_file("three", w1=([3], [-1, -1], 0))
    with pytest.raises(ValueError, match="multiple of the other's, but they are 8 and 3"):
        transform_checkpoints(str(save_ranks("src", A)), str(tmp_path / "dst"), "new", A, three)


def test_folders_and_prefixes_that_make_no_sense_are_refused(tmp_path: Path, save_ranks: Any) -> None:
    folder = save_ranks("src", None)
    one = str(folder / "rank_0" / "net.ckpt")
    for function, arguments, error, match in (
        (transform_checkpoints, (str(tmp_path / "no"), "x", "p"), ValueError, "does not exist"),
        (transform_checkpoints, (str(tmp_path / "src" / "rank_0"), "x", "p"), ValueError, "holds none"),
        (transform_checkpoints, (str(folder), "x", 3), TypeError, "'ckpt_prefix' must be a string"),
        (
            transform_checkpoints,
            (str(folder), "x", "p", "no.ckpt"),
            ValueError,
            "the file 'no.ckpt' of 'src_strategy_file'",
        ),
        (transform_checkpoints, (str(folder), "x", "p", None, None, 0), ValueError, "'process_num' must be >= 1"),
        (transform_checkpoints, (str(folder), "x", "p", None, None, 1, "npz"), ValueError, "'output_format'"),
        (transform_checkpoint_by_rank, (0, [one], "x.ckpt"), TypeError, "must be a dict"),
        (transform_checkpoint_by_rank, ("0", {0: one}, "x.ckpt"), TypeError, "'rank_id' must be a whole number"),
        (transform_checkpoint_by_rank, (0, {0: one}, "x.npz"), ValueError, "must end in '.ckpt'"),
        (transform_checkpoint_by_rank, (0, {0: "no.ckpt"}, "x.ckpt"), ValueError, "'no.ckpt' of rank 0 does not exist"),
        (rank_list_for_transform, ("0",), TypeError, "'rank_id' must be a whole number"),
        (rank_list_for_transform, (0, "no.ckpt"), ValueError, "does not exist"),
        (rank_list_for_transform, (0, 3), TypeError, "must be a string"),
    ):
        with pytest.raises(error, match=match):
            function(*arguments)


def test_strings_and_progress(tmp_path: Path) -> None:
    (tmp_path / "src" / "rank_0").mkdir(parents=True)
    save_checkpoint({"w": WHOLE["w1"], "note": "hello"}, str(tmp_path / "src" / "rank_0" / "a.ckpt"))
    report: list[Any] = []
    transform_checkpoints(
        str(tmp_path / "src"), str(tmp_path / "dst"), "new", progress=lambda *arguments: report.append(arguments)
    )
    assert load_checkpoint(str(tmp_path / "dst" / "rank_0" / "new0.ckpt"))["note"] == "hello"
    assert report == [(0, "w", 2048), (0, "note", 5)]
    with pytest.raises(TypeError, match="no strings, but 'note' is one"):
        transform_checkpoints(str(tmp_path / "src"), str(tmp_path / "x"), "new", output_format="safetensors")
