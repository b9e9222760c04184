"""Slices by device matrix and tensor map, with the numbers that MindSpore 2.10 gives."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import tensor_tool_cases

from sporax.mindspore import Tensor
from sporax.mindspore.parallel import _tensor

X = np.arange(128, dtype=np.float32).reshape(16, 8)


@pytest.mark.parametrize(
    ("dev_mat", "tensor_map", "strategy", "slices"),
    [
        ([2, 4], [1, -1], [2, 1], [0, 0, 0, 0, 1, 1, 1, 1]),
        ([2, 4], [0, 1], [4, 2], [0, 2, 4, 6, 1, 3, 5, 7]),
        ([2, 2, 2], [-1, 1], [1, 2], [0, 0, 1, 1, 0, 0, 1, 1]),
        ([2, 2, 2], [(2, 0), -1], [4, 1], [0, 1, 0, 1, 2, 3, 2, 3]),
    ],
)
def test_slices_are_numbered_row_by_row(dev_mat, tensor_map, strategy, slices):
    assert _tensor._get_tensor_strategy(dev_mat, tensor_map) == strategy
    indices = [_tensor._get_tensor_slice_index(dev_mat, strategy, tensor_map, rank) for rank in range(8)]
    assert indices == slices
    parts = _tensor._chunk_tensor_by_strategy(X, strategy)
    for rank, index in enumerate(slices):
        np.testing.assert_array_equal(_tensor._load_tensor(Tensor(X), dev_mat, tensor_map, rank_id=rank), parts[index])


@pytest.mark.parametrize("tensor_map", [pair for pair in itertools.product([-1, 0, 1], repeat=2) if len(set(pair)) > 1])
def test_slices_of_all_ranks_make_the_whole(tensor_map):
    slices = [_tensor._load_tensor(Tensor(X), [2, 4], tensor_map, rank_id=rank) for rank in range(8)]
    whole = _tensor._reshape_param_data(Tensor(np.concatenate(slices)), [2, 4], tensor_map)
    np.testing.assert_array_equal(whole.asnumpy(), X)


def test_a_layout_says_shape_and_slice():
    layout = ([2, 4], [1, -1], [4, 16], 0, True, "", [16, 8])
    np.testing.assert_array_equal(_tensor._load_tensor_by_layout(Tensor(X), layout, 5).asnumpy(), X[8:].reshape(4, 16))
    assert _tensor._load_tensor_shape_by_layout(Tensor(X), layout, 5) == [4, 16]
    assert _tensor._load_tensor_shape_by_layout(Tensor(X), (*layout[:2], [], *layout[3:]), 5) == [8, 8]
    assert _tensor._get_slice_index(*layout[:2], "") == 0
    for wrong, error in (([1], TypeError), ((1,), ValueError), ((*layout[:4], False, *layout[5:]), RuntimeError)):
        with pytest.raises(error, match="_load_tensor_by_layout"):
            _tensor._load_tensor_by_layout(Tensor(X), wrong, 0)
    for strategy in ([3, 1], [1]):
        with pytest.raises(ValueError, match=r"strategy.* must divide the shape \(16, 8\)"):
            _tensor._chunk_tensor_by_strategy(X, strategy)


def test_answers_are_those_of_the_wheel():
    golden = json.loads((Path(__file__).parent / "golden_tensor_tools.json").read_text())
    assert tensor_tool_cases.record(_tensor) == golden


def test_a_table_that_is_sharded_inside_of_its_fields():
    slices = np.arange(24, dtype=np.float32).reshape(12, 2)
    whole = _tensor._reshape_param_data_with_weight(Tensor(slices), [2], 3)
    np.testing.assert_array_equal(whole.asnumpy()[:, 0], [0, 2, 12, 14, 4, 6, 16, 18, 8, 10, 20, 22])
