import pytest

from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.mindspore import context
from sporax.mindspore.parallel._auto_parallel_context import auto_parallel_context


def test_positions_and_sizes_of_fusion():
    settings = auto_parallel_context()
    settings.set_all_reduce_fusion_split_indices([20, 35])
    settings.set_all_reduce_fusion_split_sizes([1024, 2048])
    assert settings.get_all_reduce_fusion_split_indices() == [20, 35]
    assert settings.get_all_reduce_fusion_split_sizes() == [1024, 2048]
    assert context.get_auto_parallel_context("all_reduce_fusion_config") == [20, 35]
    settings.reset()
    assert settings.get_all_reduce_fusion_split_indices() == settings.get_all_reduce_fusion_split_sizes() == []


def test_sizes_of_buffers():
    settings = auto_parallel_context()
    size, auto = {"mode": "size", "config": 8}, {"mode": "auto", "config": None}
    context.set_auto_parallel_context(comm_fusion={"allgather": size, "reducescatter": auto})
    assert (settings.allgather_fusion_threshold_mb(), settings.reducescatter_fusion_threshold_mb()) == (8, 64)
    assert settings.fusion_threshold_mb() == 64
    settings.reset()


def test_fusion_settings_of_wrong_types_are_refused():
    settings = auto_parallel_context()
    with pytest.raises(SporaxTypeError):
        settings.set_all_reduce_fusion_split_sizes(3)
    with pytest.raises(SporaxTypeError):
        settings.set_all_reduce_fusion_split_indices([1], group=3)
    with pytest.raises(SporaxValueError, match="but got 'mine'"):
        settings.set_all_reduce_fusion_split_indices([1], group="mine")


def test_every_setting_has_methods():
    old = auto_parallel_context()
    old.set_gradients_mean(True)
    assert old.get_gradients_mean() is True and context.get_auto_parallel_context("gradients_mean") is True
    old.set_enable_all_reduce_fusion(enable_all_reduce_fusion=True)
    assert old.get_enable_all_reduce_fusion() is True and not hasattr(old, "get_nothing") and not hasattr(old, "copy")
    with pytest.raises(NotImplementedError, match="'enable_all_reduce_fusion' must be True, but got False"):
        old.set_enable_all_reduce_fusion(False)
    old.reset()
    assert old.get_gradients_mean() is False


def test_settings_know_whether_they_were_set():
    old = auto_parallel_context()
    names = ("device_num", "global_rank", "parameter_broadcast")
    assert [getattr(old, f"get_{name}_is_set")() for name in names] == [False] * 3
    context.set_auto_parallel_context(device_num=8, global_rank=0, parameter_broadcast=False)
    assert [getattr(old, f"get_{name}_is_set")() for name in names] == [True] * 3
    context._reset_auto_parallel_context()
    assert old.get_device_num_is_set() is False
