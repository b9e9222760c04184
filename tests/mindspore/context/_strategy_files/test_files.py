"""Strategy files: what is written is read again, and what is no strategy file is refused with its name."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from operator_marks import operator_mark
from sporax.base.errors import SporaxValueError
from sporax.ir.config.parallel_config import ParallelConfig
from sporax.ir.config.plan_settings import PlanSettings
from sporax.ir.graph import Role
from sporax.ir.hardware import load_profile
from sporax.ir.marks import Side
from sporax.lowering.ingest.ingest import ingest
from sporax.lowering.marks.mark_primitive import apply_mark
from sporax.mindspore.context._strategy_files import files as strategy_files, protobuf as strategy_protobuf
from sporax.mindspore.context._strategy_files.files import LAYOUTS, STRATEGIES
from sporax.mindspore.context._strategy_files.layouts import ParameterLayout
from sporax.planner import PlanRequest, make_plan
from sporax.runtime.devices.global_view import Argument, devices_here
from sporax.runtime.planned.step import PlannedStep

X, W = jnp.ones((8, 4)), jnp.ones((4, 4))
STRATEGY = ((4, 1), (1, 2))


def ingested(strategy=None):
    def product(w, x):
        with jax.named_scope("Net"), jax.named_scope("fc"):
            x, w = apply_mark([x, w], operator_mark("MatMul", 1, Side.IN, strategy))
            (y,) = apply_mark([x @ w], operator_mark("MatMul", 1, Side.OUT))
        return [y]

    return ingest(jax.make_jaxpr(product)(W, X), [(Role.PARAMETER, "fc.weight"), (Role.DATA, "input 0")])


def planned(**files):
    config = ParallelConfig(device_num=8, parallel_mode="semi_auto_parallel", dataset_strategy="full_batch", **files)
    step = ingested(STRATEGY)
    plan = make_plan(
        PlanRequest(step.graph, devices_here().mesh(config), PlanSettings(config), load_profile("cpu"))
    ).plan
    arguments = (Argument(Role.PARAMETER, "fc.weight", W, trainable=True), Argument(Role.DATA, "input 0", X))
    return PlannedStep(step, plan, None, arguments, (), PlanSettings(config))


@pytest.fixture(autouse=True)
def nothing_written(monkeypatch):
    monkeypatch.setattr(strategy_files, "_written", {})


@pytest.mark.parametrize("ending", ["json", "ckpt"])
def test_strategies_and_layouts_are_saved_under_the_weights_name_and_loaded(tmp_path, ending):
    path = str(tmp_path / "new" / f"strategy.{ending}")
    strategy_files.save(planned(strategy_ckpt_save_file=path), lambda mark: True)
    content = strategy_files.read_strategy_file(path)
    assert [*content.parallel_strategy_item] == ["MatMul_fc.weight"]
    layout = content.parallel_layout_item["fc.weight"]
    assert (layout["dev_matrix"], layout["tensor_map"]) == ([4, 2], [-1, 0])
    config = ParallelConfig(device_num=8, strategy_ckpt_load_file=path)
    assert strategy_files.loaded(ingested().graph, config) == {1: STRATEGY}


def test_operators_are_saved_by_their_places(tmp_path):
    path = tmp_path / "places.json"
    strategy_files.save(planned(op_strategy_save_file=str(path)), lambda mark: True)
    assert [*json.loads(path.read_text())[STRATEGIES]] == ["Net.fc/MatMul-op0"]


def test_a_file_has_what_all_steps_of_the_process_said(tmp_path):
    path = str(tmp_path / "strategy.json")
    step = planned(strategy_ckpt_save_file=path)
    strategy_files.save(step, lambda mark: True)
    other = replace(step, arguments=(replace(step.arguments[0], name="second"), step.arguments[1]))
    strategy_files.save(other, lambda mark: True)
    assert sorted(strategy_files.read_strategy_file(path).parallel_layout_item) == ["fc.weight", "second"]


def test_frozen_parameters_are_left_out_where_only_trained_ones_are_wanted(tmp_path):
    path = str(tmp_path / "strategy.json")
    step = planned(strategy_ckpt_save_file=path, strategy_ckpt_only_trainable_params=True)
    frozen = replace(step, arguments=(replace(step.arguments[0], trainable=False), step.arguments[1]))
    strategy_files.save(frozen, lambda mark: True)
    assert strategy_files.read_strategy_file(path).parallel_layout_item == {}


@pytest.mark.parametrize("by_environment", [False, True])
def test_groups_name_the_ranks_that_hold_the_same_weights(tmp_path, by_environment, monkeypatch):
    path = tmp_path / "groups.ckpt"
    if by_environment:
        monkeypatch.setenv("GROUP_INFO_FILE", str(path))
    settings = {} if by_environment else {"group_ckpt_save_file": str(path)}
    strategy_files.save(planned(**settings), lambda mark: True)
    groups, alike = strategy_protobuf.decode_groups(path.read_bytes())
    assert (groups, alike) == ({}, [0, 2, 4, 6])  # the columns of the weight are on every second device


def test_optimizer_shards_are_written_with_their_number_and_distance():
    layout = ParameterLayout((2, 4), (1, -1), (8, 4), 0, True, "4-0-2-4-6", (16, 4), (2, 4))
    written = strategy_files.layout_to_json(layout)
    assert (written["opt_weight_shard_size"], written["opt_weight_shard_step"]) == (4, 2)
    assert written["tensor_shape"] == [16, 4]
    assert "param_split_shape" not in written
    alone = strategy_files.layout_to_json(layout._replace(opt_shard_group="", split_rows=(9, 7)))
    assert (alone["opt_weight_shard_size"], alone["opt_weight_shard_step"]) == (0, 0)
    assert alone["param_split_shape"] == [9, 7]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{}", f"has neither '{LAYOUTS}' nor '{STRATEGIES}'"),
        ("[1]", "it must be an object, but got [1]"),
        ("{", "the text is no JSON"),
    ],
)
def test_other_files_are_refused_with_their_name(tmp_path, content, words):
    path = tmp_path / "other.json"
    path.write_text(content)
    config = ParallelConfig(strategy_ckpt_load_file=str(path))
    with pytest.raises(SporaxValueError) as refused:
        strategy_files.loaded(ingested().graph, config)
    said = str(refused.value)
    assert said.startswith(f"For 'strategy_ckpt_load_file', '{path}' must be a strategy file, but got: ")
    assert words in said


def test_a_missing_file_and_one_of_another_program_are_distinguished(tmp_path):
    config = ParallelConfig(op_strategy_load_file=str(tmp_path / "none.json"))
    with pytest.raises(
        SporaxValueError, match=r"^For 'op_strategy_load_file', the file must exist, but got '.*none\.json'"
    ):
        strategy_files.loaded(ingested().graph, config)
    path = tmp_path / "strategy.json"
    path.write_text(json.dumps({STRATEGIES: {"Add-op0": {"parallel_strategy": [[2], [2]]}}}))
    config = ParallelConfig(op_strategy_load_file=str(path))
    with pytest.warns(
        UserWarning, match="no operator of this step has a strategy in .*; it was saved by another program"
    ):
        assert strategy_files.loaded(ingested().graph, config) == {}
