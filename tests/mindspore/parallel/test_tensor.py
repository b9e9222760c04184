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
    for wrong, error in (([1], TypeError), ((1,), ValueError), ((*layout[:4], False, *layout[5:]), RuntimeError)):
        with pytest.raises(error, match="_load_tensor_by_layout"):
            _tensor._load_tensor_by_layout(Tensor(X), wrong, 0)
    for strategy in ([3, 1], [1]):
        with pytest.raises(ValueError, match=r"strategy.* must divide the shape \(16, 8\)"):
            _tensor._chunk_tensor_by_strategy(X, strategy)


def test_answers_are_those_of_the_wheel():
    golden = json.loads((Path(__file__).parent / "golden_tensor_tools.json").read_text())
    assert tensor_tool_cases.record(_tensor) == golden


def _sliced(values, layout, rank):
    matrix, entries, shape = layout
    own = np.array(values.shape) // _tensor._get_tensor_strategy(matrix, entries) if len(shape) == values.ndim else None
    part = _tensor._load_tensor(Tensor(values), *_tensor._expand_layout(matrix, entries, shape), rank)
    return part if own is None else part.reshape(own)


@pytest.mark.parametrize("case", tensor_tool_cases.cases(), ids=itertools.count())
def test_operators_make_the_slice_of_the_other_layout(case):
    """Also from the layout of an optimizer, whose shape has more dimensions."""
    matrix, entries, shape = case["from"]
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    target, rank, ranks = tuple(case["to"]), case["rank"], list(range(int(np.prod(matrix))))
    expected = _sliced(values, target, rank)
    optimizers = _tensor._construct_tensor_layout_for_opt_shard(matrix, entries, *case["opt"], shape)
    for source in ((matrix, entries, shape), optimizers):
        held = {other: _sliced(values, source, other) for other in ranks}
        needed = _tensor._get_resharding_operator_map((*source, ranks), (*target, ranks), rank)
        _tensor._apply_tensor_transform_operators(
            _tensor._generate_transform_operator_stack(needed, rank), held, len(ranks)
        )
        np.testing.assert_array_equal(held[rank], expected)


@pytest.mark.parametrize(
    ("source", "target", "rank", "operators"),
    [
        (((1, 8), (1, 0), (32, 256)), ((1, 4, 2), (2, 1), (32, 256)), 0,
         [("Reshape", [32, 1, 32]), ("AllConcat", [0, 1, 2]), ("Reshape", [32, 64])]),
        (((4, 2), (1, 0), (32, 256)), ((1, 8), (-1, -1), (32, 256)), 0,
         [("AllConcat", [0, 2, 4, 6, 0]), ("AllConcat", [0, 1, 1])]),
        (((8, 1), (1, -1), (32, 64)), ((1, 8), (-1, 0), (32, 64)), 0,
         [("AllConcat", [0, 1, 2, 3, 4, 5, 6, 7, 0]), ("StridedSlice", [0, 0, 32, 8, 1, 1])]),
        (((2, 2, 2), (2, 1, 0), (32, 64, 128)), ((8, 1, 1), (2, 1, 0), (32, 64, 128)), 1,
         [("Reshape", [1, 2, 8, 32, 64]), ("AllConcat", [1, 3, 3]),
          ("StridedSlice", [0, 0, 0, 0, 0, 1, 1, 8, 64, 64, 1, 1, 1, 1, 1]), ("AllConcat", [0, 1, 4]),
          ("StridedSlice", [0, 0, 4, 0, 0, 1, 1, 8, 64, 128, 1, 1, 1, 1, 1]), ("Reshape", [4, 64, 128])]),
        (((2, 3), (1, -1), (6, 6)), ((3, 2), (1, -1), (6, 6)), 4,
         [("AllConcat", [1, 4, 0]), ("StridedSlice", [4, 0, 6, 6, 1, 1])]),
    ],
)  # fmt: skip
def test_lists_of_operators(source, target, rank, operators):
    num_ranks = int(np.prod(source[0]))
    assert _tensor._transform_tensor_by_layout(source, target, range(num_ranks), rank) == operators


def test_a_table_that_is_sharded_inside_of_its_fields():
    slices = np.arange(24, dtype=np.float32).reshape(12, 2)
    whole = _tensor._reshape_param_data_with_weight(Tensor(slices), [2], 3)
    np.testing.assert_array_equal(whole.asnumpy()[:, 0], [0, 2, 12, 14, 4, 6, 16, 18, 8, 10, 20, 22])


def test_layouts_that_do_not_fit_are_refused():
    layout = ((4,), (0,), (8,))
    for wrong in (((4,), (0,), (16,)), ((8,), (0,), (8,)), ((4,), (0,), (6,)), ((4,), (0, -1), (8,))):
        with pytest.raises(RuntimeError, match="_transform_tensor_by_layout"):
            _tensor._transform_tensor_by_layout(layout, wrong, range(4), 0)
    with pytest.raises(ValueError, match="rank must be one of"):
        _tensor._transform_tensor_by_layout(layout, ((4,), (-1,), (8,)), range(4), 9)
    with pytest.raises(ValueError, match="rank 1 is missing"):
        _tensor._apply_tensor_transform_operators([(0, 0, ("AllConcat", [0, 1, 0]))], {0: np.zeros(2)}, 2)
    with pytest.raises(ValueError, match="an axis must repeat slices"):
        _tensor._construct_tensor_layout_for_opt_shard([2, 4], [1, 0], 1, 2, [8, 8])
    with pytest.raises(ValueError, match="one device number must divide the other, but got 4 and 6"):
        _tensor._construct_from_to_tensor_layout((12,), (4,), (0,), (12,), (6,), (-1,))
