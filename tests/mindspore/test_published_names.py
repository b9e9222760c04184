"""Names outside MindSpore's documentation that published packages use before they do anything else."""

import numpy as np
import pytest

import sporax.mindspore as ms
import sporax.mindspore.dataset as ds
from sporax.mindspore import Tensor, nn, ops
from sporax.mindspore._c_expression import MSContext
from sporax.mindspore._checkparam import args_type_check
from sporax.mindspore.dataset.transforms.py_transforms import PyTensorOperation


def test_arguments_are_checked_by_a_decorator():
    @args_type_check(int, path=(str, bytes))
    def read(number, path=None):
        return number, path

    assert read(1) == (1, None) and read(2, "a") == (2, "a") and read(3, path=None) == (3, None)
    with pytest.raises(TypeError, match="For 'read', the argument 'path' must be str or bytes, but got int"):
        read(1, path=3)
    with pytest.raises(TypeError, match="the argument 'number' must be int, but got str"):
        read("1")


def test_the_arguments_in_a_dict_are_checked_by_their_names():
    @args_type_check(size=int)
    def build(**kwargs):
        return kwargs

    assert build(size=3) == {"size": 3}
    with pytest.raises(TypeError, match="'size' must be int"):
        build(size="3")


def test_there_is_no_chip_of_ascend():
    assert MSContext.get_instance() is MSContext.get_instance()
    assert MSContext.get_instance().get_ascend_soc_version() == ""
    assert not MSContext.get_instance().is_ascend_plugin_loaded()


def test_transforms_of_a_program_derive_from_the_base():
    class Doubled(PyTensorOperation):
        def _execute_py(self, value):
            return value * 2

    data = ds.GeneratorDataset([1, 2], "x", shuffle=False).map(Doubled(), "x")
    assert [int(row[0]) for row in data.create_tuple_iterator(num_epochs=1, output_numpy=True)] == [2, 4]
    with pytest.raises(NotImplementedError, match="PyTensorOperation must define"):
        PyTensorOperation()(1)


def test_steps_with_loss_scales_are_in_the_package_of_wrappers():
    assert nn.wrap.TrainOneStepWithLossScaleCell is nn.TrainOneStepWithLossScaleCell
    with pytest.raises(AttributeError, match="Nonsense"):
        nn.wrap.Nonsense  # noqa: B018 (the access is what is tried)


def test_cells_cast_until_they_have_an_attribute_of_that_name():
    class Casts(nn.Cell):
        def construct(self, x):
            return self.cast(x, ms.float16)

    class Casts32(Casts):
        def __init__(self):
            super().__init__()
            self.cast = lambda x, dtype: ops.cast(x, ms.float32)

    x = Tensor(np.ones(2, np.int32))
    assert Casts()(x).dtype == ms.float16
    assert Casts32()(x).dtype == ms.float32


class TiledConstant(nn.Cell):
    def __init__(self):
        super().__init__()
        self.tile = ops.Tile().shard(((2,),))
        self.add = ops.Add().shard(((2, 1), (2, 1)))
        self.places = Tensor(np.arange(4, dtype=np.float32))

    def construct(self, x):
        return self.add(x, self.tile(self.places, (2, 1)))


def test_strategies_of_operators_on_constants_have_no_effect():
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8, full_batch=True)
    try:
        ms.set_context(mode=ms.GRAPH_MODE)
        result = TiledConstant()(Tensor(np.ones((2, 4), np.float32)))
    finally:
        ms.reset_auto_parallel_context()
    assert result.asnumpy().tolist() == [[1, 2, 3, 4], [1, 2, 3, 4]]
