"""Inputs of one rank, compiled for all; own data set classes are tried in `tests/mindspore/train/test_feed.py`."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, ops
from sporax.mindspore.common._rank_parts import of_all_ranks
from sporax.mindspore.common.api import _cell_graph_executor
from sporax.mindspore.communication import init
from sporax.mindspore.parallel import Layout


@pytest.fixture(autouse=True)
def _settings():
    ms.reset_auto_parallel_context()
    yield
    ms.reset_auto_parallel_context()


class Net(nn.Cell):
    def __init__(self, rows):
        super().__init__()
        self.rows = rows
        self.relu = ops.ReLU().shard(((8, 1),))

    def construct(self, x):
        assert x.shape[0] == self.rows
        return self.relu(x)


def test_the_executor_compiles_for_the_rows_of_all_ranks():
    ms.set_context(mode=ms.GRAPH_MODE)
    init()
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", dataset_strategy="data_parallel")
    assert _cell_graph_executor.compile(Net(16), Tensor(np.ones((2, 4), np.float32)))
    ms.set_auto_parallel_context(dataset_strategy="full_batch")
    assert _cell_graph_executor.compile(Net(8), Tensor(np.ones((8, 4), np.float32)))


def test_one_device_and_steps_without_a_plan_have_the_rows_as_they_are():
    columns = (np.ones((2, 4)), 3)
    assert of_all_ranks(columns) is columns
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=1)
    assert of_all_ranks(columns) is columns
    ms.set_auto_parallel_context(device_num=4)
    assert [np.shape(column) for column in of_all_ranks(columns)] == [(8, 4), ()]
    dp = Layout((2, 2), ("dp", "mp"))
    for strategy, shape in ((((1, 4), ()), (2, 16)), ((dp("mp", "None"), dp()), (4, 4)), (((1, 1), ()), (2, 4))):
        ms.set_auto_parallel_context(dataset_strategy=strategy)
        assert [np.shape(column) for column in of_all_ranks(columns)] == [shape, ()]
    ms.set_auto_parallel_context(parallel_mode="data_parallel")
    assert of_all_ranks(columns) is columns
