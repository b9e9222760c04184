import pytest

from sporax.base.errors import SporaxKeyError, SporaxTypeError, SporaxValueError
from sporax.ir.config.parallel_config import ParallelConfig
from sporax.ir.layout import Layout as LayoutValue
from sporax.mindspore import context
from sporax.mindspore.context import (
    get_auto_parallel_context as get,
    reset_auto_parallel_context as reset,
    set_auto_parallel_context as put,
)
from sporax.mindspore.parallel import Layout

DEFAULTS = {
    "device_num": 1,
    "global_rank": 0,
    "parallel_mode": "stand_alone",
    "gradients_mean": False,
    "gradient_fp32_sync": True,
    "loss_repeated_mean": True,
    "parameter_broadcast": False,
    "full_batch": False,
    "full_batch_is_set": False,
    "dataset_strategy": "data_parallel",
    "enable_parallel_optimizer": False,
    "optimizer_weight_shard_size": -1,
    "optimizer_weight_shard_aggregated_save": False,
    "pipeline_stages": 1,
    "pipeline_interleave": False,
    "pipeline_scheduler": "1f1b",
    "pipeline_result_broadcast": False,
    "auto_pipeline": False,
    "recompute": "",
    "search_mode": "recursive_programming",
    "auto_parallel_search_mode": "recursive_programming",
    "sharding_propagation": False,
    "strategy_ckpt_load_file": "",
    "strategy_ckpt_save_file": "",
    "strategy_ckpt_config": {"load_file": "", "save_file": "", "only_trainable_params": True},
    "all_reduce_fusion_config": [],
    "comm_fusion": {
        "openstate": True,
        "allreduce": {"mode": "auto", "config": None},
        "allgather": {"mode": "auto", "config": None},
        "reducescatter": {"mode": "auto", "config": None},
    },
    "enable_alltoall": False,
    "communi_parallel_mode": "all_group_parallel",
    "grad_accumulation_step": 1,
    "force_fp32_communication": False,
    "dump_local_norm": False,
    "dump_local_norm_path": "",
    "dump_device_local_norm": False,
    "init_param_in_compile": True,
    "auto_parallel_new_interface": False,
}


@pytest.mark.parametrize("key", DEFAULTS)
def test_settings_have_the_defaults_of_mindspore(key):
    assert get(key) == DEFAULTS[key]


@pytest.mark.parametrize(
    "key", ["foo", 3, None, "pipeline_config", "parallel_optimizer_config", "pipeline_segments", "group_ckpt_save_file"]
)
def test_cannot_be_read(key):
    with pytest.raises(SporaxValueError, match="For 'get_auto_parallel_context'"):
        get(key)


ONLY_READ = ("full_batch_is_set", "pipeline_interleave")
TAKE_NUMBERS = ("dump_local_norm", "dump_device_local_norm", "init_param_in_compile", "auto_parallel_new_interface")
TAKE_NONE = (*TAKE_NUMBERS, "gradients_mean", "gradient_fp32_sync", "parameter_broadcast", "full_batch")
VALUE, TYPE, KEY = SporaxValueError, SporaxTypeError, SporaxKeyError
_INTERLEAVED = Layout((2, 2), ("a", "interleaved_parallel"))


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("foo", 1, VALUE),
        ("mirror_mean", True, VALUE),
        ("device_num", 0, VALUE),
        ("device_num", "8", TYPE),
        ("device_num", True, TYPE),
        ("global_rank", 4096, VALUE),
        ("global_rank", -1, VALUE),
        ("parallel_mode", "foo", VALUE),
        ("parallel_mode", 3, TYPE),
        ("search_mode", "foo", VALUE),
        ("auto_parallel_search_mode", "foo", VALUE),
        ("communi_parallel_mode", "foo", VALUE),
        ("communi_parallel_mode", 3, TYPE),
        *(
            (key, 1, TYPE)
            for key, value in DEFAULTS.items()
            if isinstance(value, bool) and key not in ONLY_READ + TAKE_NUMBERS
        ),
        ("pipeline_stages", 0, VALUE),
        ("pipeline_stages", True, TYPE),
        ("pipeline_stages", "a", TYPE),
        ("pipeline_segments", 0, VALUE),
        ("pipeline_segments", True, TYPE),
        ("pipeline_config", 3, TYPE),
        ("pipeline_config", {}, KEY),
        ("pipeline_config", {"pipeline_interleave": True}, KEY),
        ("pipeline_config", {"foo": 1}, VALUE),
        ("pipeline_config", {"pipeline_interleave": 1, "pipeline_scheduler": "1f1b"}, TYPE),
        ("pipeline_config", {"pipeline_interleave": True, "pipeline_scheduler": 3}, VALUE),
        ("pipeline_config", {"pipeline_interleave": True, "pipeline_scheduler": "foo"}, VALUE),
        ("pipeline_config", {"pipeline_interleave": False, "pipeline_scheduler": "gpipe"}, TYPE),
        ("grad_accumulation_step", 2, VALUE),
        ("grad_accumulation_step", 0, VALUE),
        ("grad_accumulation_step", True, TYPE),
        ("all_reduce_fusion_config", 3, TYPE),
        ("all_reduce_fusion_config", (1, 2), TYPE),
        ("all_reduce_fusion_config", ["a"], TYPE),
        ("all_reduce_fusion_config", [True], TYPE),
        ("all_reduce_fusion_config", [], VALUE),
        ("all_reduce_fusion_config", [1, 1], VALUE),
        ("all_reduce_fusion_config", [3, 1], VALUE),
        ("all_reduce_fusion_config", [-1, 2], VALUE),
        ("strategy_ckpt_config", 3, TYPE),
        ("strategy_ckpt_config", {"foo": 1}, VALUE),
        ("strategy_ckpt_config", {"load_file": 1}, TYPE),
        ("strategy_ckpt_config", {"only_trainable_params": 1}, TYPE),
        ("strategy_ckpt_load_file", 3, TYPE),
        ("group_ckpt_save_file", 3, TYPE),
        ("dump_local_norm_path", 1, TYPE),
        ("dataset_strategy", "foo", VALUE),
        ("dataset_strategy", 3, TYPE),
        ("dataset_strategy", [(1,)], TYPE),
        ("dataset_strategy", (1, 2), TYPE),
        ("dataset_strategy", ((1.5,),), TYPE),
        ("dataset_strategy", ((0,),), VALUE),
        ("dataset_strategy", (Layout((2,), ("a",))("a"), (1,)), TYPE),
        ("dataset_strategy", ((1,), Layout((2,), ("a",))("a")), TYPE),
        ("dataset_strategy", (Layout((2,), ("a",)),), VALUE),
        ("dataset_strategy", (_INTERLEAVED("a"),), VALUE),
        ("optimizer_weight_shard_size", "a", TYPE),
        ("optimizer_weight_shard_size", True, TYPE),
        ("parallel_optimizer_config", 3, TYPE),
        ("parallel_optimizer_config", {"foo": 1}, VALUE),
        ("parallel_optimizer_config", {"optimizer_level": "level4"}, VALUE),
        ("parallel_optimizer_config", {"optimizer_level": 3}, VALUE),
        ("parallel_optimizer_config", {"gradient_accumulation_shard": 1}, TYPE),
        ("parallel_optimizer_config", {"gradient_accumulation_shard": True, "optimizer_level": "level1"}, VALUE),
        ("parallel_optimizer_config", {"parallel_optimizer_threshold": "a"}, TYPE),
        ("parallel_optimizer_config", {"parallel_optimizer_threshold": True}, TYPE),
        ("parallel_optimizer_config", {"parallel_optimizer_threshold": -1}, VALUE),
        ("parallel_optimizer_config", {"optimizer_weight_shard_size": 0}, VALUE),
        ("parallel_optimizer_config", {"optimizer_weight_shard_size": "a"}, TYPE),
        ("comm_fusion", 3, TYPE),
        ("comm_fusion", {"foo": {}}, KEY),
        ("comm_fusion", {"openstate": 1}, TYPE),
        ("comm_fusion", {"allreduce": 3}, TYPE),
        ("comm_fusion", {"allreduce": {"mode": "auto"}}, KEY),
        ("comm_fusion", {"allreduce": {"config": 1}}, KEY),
        ("comm_fusion", {"allreduce": {"mode": "foo", "config": 0}}, KEY),
        ("comm_fusion", {"allreduce": {"mode": "size", "config": -1}}, VALUE),
        ("comm_fusion", {"allreduce": {"mode": "size", "config": 1.5}}, TYPE),
        ("comm_fusion", {"allreduce": {"mode": "index", "config": 3}}, TYPE),
        ("comm_fusion", {"allreduce": {"mode": "index", "config": []}}, VALUE),
        ("comm_fusion", {"allreduce": {"mode": "index", "config": [5, 1]}}, VALUE),
        ("comm_fusion", {"allgather": {"mode": "index", "config": [1]}}, KEY),
    ],
)
def test_refused_and_nothing_changed(key, value, error):
    before = context.snapshot()
    with pytest.raises(error, match=r"For '(set_auto_parallel_context|Layout)'"):
        put(**{"pipeline_stages": 2, "gradients_mean": True} | {key: value})
    assert context.snapshot() == before


@pytest.mark.parametrize("key", TAKE_NONE)
def test_flags_of_which_mindspore_takes_the_truth(key):
    put(**{key: True} if key != "auto_parallel_new_interface" else {})
    put(**{key: None})
    assert get(key) is False
    if key in ("dump_local_norm", "dump_device_local_norm", "init_param_in_compile"):
        put(**{key: 1})
        assert get(key) is True
    else:
        with pytest.raises(SporaxTypeError, match="must be bool"):
            put(**{key: "yes"})


def test_snapshots_are_values():
    put(parallel_mode="semi_auto_parallel", device_num=8, pipeline_stages=2, comm_fusion={"openstate": False})
    taken = context.snapshot()
    reset()
    assert (taken.parallel_mode, taken.num_stage_devices, taken.in_global_view) == ("semi_auto_parallel", 4, True)
    assert context.snapshot() == ParallelConfig()
    assert {taken: "hashable"}[taken]
    assert taken.by_key()["device_num"] == 8


def test_full_batch_is_another_name():
    put(full_batch=True)
    assert (get("dataset_strategy"), get("full_batch_is_set")) == ("full_batch", True)
    put(dataset_strategy="data_parallel")
    assert get("full_batch") is False
    put(dataset_strategy="full_batch")
    assert get("full_batch") is True
    put(full_batch=False)
    assert (get("dataset_strategy"), get("full_batch_is_set")) == ("data_parallel", True)


def test_full_batch_does_not_undo_set_strategies():
    put(full_batch=True, dataset_strategy=((1, 8), (1, 8)))
    assert (get("dataset_strategy"), get("full_batch")) == ([[1, 8], [1, 8]], False)
    with pytest.warns(UserWarning, match="stay in force"):
        put(full_batch=True)
    assert get("dataset_strategy") == [[1, 8], [1, 8]]


def test_dataset_strategy_in_layouts():
    layout = Layout((2, 2), ("a", "b"))
    given = (layout("a", "b"), layout("a"))
    put(dataset_strategy=given)
    assert get("dataset_strategy") is given
    assert context.snapshot().dataset_strategy == (given[0].__layout__(), given[1].__layout__())
    assert isinstance(context.snapshot().dataset_strategy[0], LayoutValue)
    put(dataset_strategy="full_batch")
    assert get("dataset_strategy") == "full_batch"


def test_names_of_the_search_mode():
    put(auto_parallel_search_mode="dynamic_programming")
    assert get("search_mode") == "dynamic_programming"
    put(sharding_propagation=True)
    assert (get("search_mode"), get("auto_parallel_search_mode")) == ("sharding_propagation",) * 2
    put(sharding_propagation=False)
    assert get("search_mode") == "recursive_programming"


def test_comm_fusion_keeps_what_is_not_mentioned_and_opens_again():
    put(comm_fusion={"allreduce": {"mode": "size", "config": 32}})
    put(comm_fusion={"openstate": False})
    fusion = get("comm_fusion")
    assert fusion["openstate"] is False
    assert fusion["allreduce"] == {"mode": "size", "config": 32}
    assert context.snapshot().comm_fusion.fusion_rule_for("allreduce") is None
    put(comm_fusion={"allgather": {"mode": "auto", "config": 7}})
    assert get("comm_fusion")["openstate"] is True
    assert get("comm_fusion")["allgather"] == {"mode": "auto", "config": None}


def test_nothing_is_fused_before_it_is_requested():
    assert context.snapshot().comm_fusion.fusion_rule_for("allreduce") is None
    put(comm_fusion={"allreduce": {"mode": "size", "config": 32}, "allgather": {"mode": "auto", "config": None}})
    fusion = context.snapshot().comm_fusion
    assert fusion.fusion_rule_for("allreduce").threshold_megabytes == 32
    assert fusion.fusion_rule_for("allgather").threshold_megabytes == 64
    assert fusion.fusion_rule_for("reducescatter") is None


def test_positions_of_fusion_have_two_names():
    put(comm_fusion={"allreduce": {"mode": "index", "config": [1, 5]}})
    assert get("all_reduce_fusion_config") == [1, 5]
    assert get("comm_fusion")["allreduce"] == {"mode": "index", "config": [1, 5]}
    assert context.snapshot().comm_fusion.fusion_rule_for("allreduce").threshold_megabytes is None
    put(all_reduce_fusion_config=[20, 35])
    assert context.snapshot().all_reduce_fusion_config == (20, 35)


def test_further_keys_of_a_fusion_rule_are_reported():
    with pytest.warns(UserWarning, match="no meaning"):
        put(comm_fusion={"allreduce": {"mode": "auto", "config": None, "x": 1}})


def test_strategy_files_have_two_names():
    put(strategy_ckpt_load_file="a")
    put(strategy_ckpt_config={"save_file": "b"})
    assert get("strategy_ckpt_config") == {"load_file": "a", "save_file": "b", "only_trainable_params": True}
    assert (get("strategy_ckpt_load_file"), get("strategy_ckpt_save_file")) == ("a", "b")


def test_levels_of_optimizer_parallel():
    put(parallel_optimizer_config={"optimizer_level": "level2", "parallel_optimizer_threshold": 24})
    config = context.snapshot()
    assert (config.gradient_accumulation_shard, config.parallel_optimizer_threshold) == (True, 24)
    with pytest.raises(SporaxValueError, match="must be 'level2' while"):  # the flag stays
        put(parallel_optimizer_config={"optimizer_level": "level1"})
    put(parallel_optimizer_config={"optimizer_level": "level3", "gradient_accumulation_shard": False})
    assert context.snapshot().optimizer_level == "level3"
    put(parallel_optimizer_config={"optimizer_weight_shard_size": 4})
    assert get("optimizer_weight_shard_size") == 4


@pytest.mark.parametrize("value", [0, -2, 1])
def test_shard_sizes_without_meaning_are_ignored(value):
    put(optimizer_weight_shard_size=3)
    with pytest.warns(UserWarning, match=f"{value} is ignored"):
        put(optimizer_weight_shard_size=value)
    assert get("optimizer_weight_shard_size") == 3
    put(optimizer_weight_shard_size=-1)
    assert get("optimizer_weight_shard_size") == -1


def test_a_shard_size_of_one_is_ignored_in_both_places():
    put(optimizer_weight_shard_size=4)
    with pytest.warns(UserWarning, match="1 is ignored"):
        put(parallel_optimizer_config={"optimizer_weight_shard_size": 1, "optimizer_level": "level3"})
    assert (get("optimizer_weight_shard_size"), context.snapshot().optimizer_level) == (4, "level3")


def test_pipeline_config():
    put(pipeline_config={"pipeline_interleave": True, "pipeline_scheduler": "gpipe"}, pipeline_segments=2)
    assert (get("pipeline_interleave"), get("pipeline_scheduler")) == (True, "gpipe")
    assert context.snapshot().pipeline_segments == 2


def test_settings_about_streams_warn():
    with pytest.warns(UserWarning, match="changes nothing here"):
        put(communi_parallel_mode="no_group_parallel")
    assert get("communi_parallel_mode") == "no_group_parallel"


def test_the_job_says_its_size_unless_the_user_did():
    context.set_world(4, 2)
    assert (get("device_num"), get("global_rank")) == (4, 2)
    assert context.snapshot().device_num == 4
    put(device_num=8, global_rank=3)
    assert (get("device_num"), get("global_rank")) == (8, 3)
    reset()
    assert (get("device_num"), get("global_rank")) == (4, 2)
    with pytest.raises(SporaxValueError, match=r"\[0, 1\], but got 2"):
        context.set_world(2, 2)


def test_using_brings_the_global_settings_back():
    put(gradients_mean=True)
    with context.using(ParallelConfig(device_num=2)):
        assert (get("gradients_mean"), get("device_num")) == (False, 2)
    assert (get("gradients_mean"), get("device_num")) == (True, 1)


def test_changed_leaves_the_global_settings_alone():
    config = context.changed(ParallelConfig(), full_batch=True, pipeline_stages=2)
    assert (config.dataset_strategy, config.pipeline_stages) == ("full_batch", 2)
    assert context.snapshot() == ParallelConfig()
    with pytest.raises(SporaxValueError, match="key must be one of"):
        context.changed(ParallelConfig(), foo=1)
