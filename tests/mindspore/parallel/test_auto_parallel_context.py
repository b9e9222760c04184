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


def test_fusion_settings_of_wrong_types_are_refused():
    settings = auto_parallel_context()
    with pytest.raises(SporaxTypeError):
        settings.set_all_reduce_fusion_split_sizes(3)
    with pytest.raises(SporaxTypeError):
        settings.set_all_reduce_fusion_split_indices([1], group=3)
    with pytest.raises(SporaxValueError, match="but got 'mine'"):
        settings.set_all_reduce_fusion_split_indices([1], group="mine")
