"""Tools of `mindspore.parallel._tensor`; expected values are those of MindSpore 2.10's wheel."""

import numpy as np
import pytest

from sporax.mindspore.parallel import _tensor


@pytest.mark.parametrize(
    ("layout", "step", "size", "shape", "expected"),
    [
        (([2, 2, 2], [2, 1, -1]), 1, -1, [16, 16, 16], ([2, 2, 2], [2, 0, 1, -1], [2, 8, 16, 16])),
        (([4, 2], [0, -1]), 2, 4, [16, 8], ([4, 2, 1], [1, 2, -1], [2, 8, 8])),
        (([8, 4, 2], [1, -1, -1]), 3, 4, [16, 64, 8], ([4, 2, 4, 2], [1, 2, 0, -1, -1], [4, 2, 2, 64, 8])),
        (([8, 2, 4], [-1, [0, 1]]), 8, 8, [16, 16], ([8, 2, 4], [-1, 2, 0, 1], [1, 16, 4, 4])),
        (([2, 4], [0, -1]), 0, 2, [16, 8], ([2, 4], [0, -1], [16, 8])),
    ],
)
def test_layouts_of_optimizer_parallelism(layout, step, size, shape, expected):
    matrix, entries, new_shape = _tensor._construct_tensor_layout_for_opt_shard(*layout, step, size, shape)
    assert (list(matrix), list(entries), list(new_shape)) == expected


def test_dimensions_of_several_axes_stay_one_by_layout():
    made = _tensor._construct_tensor_layout_for_opt_shard_by_layout([4, 2, 4, 2], [[2, 3], -1], 8, 4, [32, 8])
    assert made == ([4, 2, 2, 2, 2], [[3, 4], 1, 0, -1], [8, 2, 2, 8])


@pytest.mark.parametrize(
    ("matrix", "entries", "step", "size"),
    [([2, 4], [1, 0], 1, 2), ([4, 2], [0, -1], 1, 4), ([6, 2], [0, -1, -1], 2, 4)],
)
def test_optimizers_that_cannot_shard(matrix, entries, step, size):
    shape = [48] * len(entries)
    if size == 4 and matrix[0] == 6:
        with pytest.raises(ValueError, match="opt_shard_size"):
            _tensor._construct_tensor_layout_for_opt_shard_by_layout(matrix, entries, step, size, shape)
    else:
        with pytest.raises(ValueError, match="cannot sharding opt_shard|opt_shard_step"):
            _tensor._construct_tensor_layout_for_opt_shard(matrix, entries, step, size, shape)


def test_layouts_over_equal_numbers_of_devices():
    old, new = _tensor._construct_from_to_tensor_layout((32, 8), (2, 2), (1, 0), (32, 8), (8,), (0, -1))
    assert old == ([2, 2, 2], [1, 0], [32, 8])
    assert new == ([8], [0, -1], [32, 8])
    with pytest.raises(ValueError, match="Cannot transform device_num from 4 to 6"):
        _tensor._construct_from_to_tensor_layout((32,), (4,), (0,), (32,), (6,), (-1,))
    with pytest.raises(ValueError, match="'w', the tensor map dimensions must match"):
        _tensor._construct_from_to_tensor_layout((32,), (4,), (0, -1), (32,), (4,), (-1,), "w")


def test_stacks_name_ranks_in_the_order_of_their_need():
    source, target = ((2, 2, 2), (2, 1, 0), (32, 64, 128)), ((8, 1, 1), (2, 1, 0), (32, 64, 128))
    assert _tensor._get_needed_rank_list_by_layouts(source, target, list(range(8)), 1) == [0, 1, 2, 3]
    needed = _tensor._get_needed_rank_transform_operator_map_by_layouts(source, target, list(range(8)), 1)
    stack = _tensor._generate_transform_operator_stack(needed, 1)
    assert [(rank, position, operator[0]) for rank, position, operator in stack[:6]] == [
        (1, 5, "Reshape"),
        (1, 4, "StridedSlice"),
        (1, 3, "AllConcat"),
        (0, 2, "StridedSlice"),
        (1, 2, "StridedSlice"),
        (0, 1, "AllConcat"),
    ]


def test_a_slice_that_is_missing_is_named():
    stack = [(0, 0, ("AllConcat", [0, 1, 0]))]
    with pytest.raises(ValueError, match="rank 1 is missing"):
        _tensor._apply_tensor_transform_operators(stack, {0: np.zeros(2)}, 2)


def test_part_of_a_rank():
    assert _tensor._load_tensor_shape([2, 4], [1, 0], (8, 16), 5) == (slice(4, 8), slice(4, 8))
    assert _tensor._extract_layout_item([[2, 4], [0, -1], [], 0, 4, -1]) == ([2, 4], [0, -1], 4, 2)


def test_layouts_of_several_axes_are_resharded_by_merged_operators():
    ranks = list(range(8))
    source, target = ([2, 2, 2], [[0, 2], 1], [8, 8], ranks), ([4, 2], [0, -1], [8, 8], ranks)
    needed = _tensor._get_resharding_operator_map(source, target, 0)
    assert sorted(needed) == [0, 2, 4, 6]
    assert needed[6] == [
        ("Reshape", [1, 2, 4]),
        ("AllConcat", [4, 6, 2]),
        ("AllConcat", [2, 6, 0]),
        ("Reshape", [4, 8]),
    ]
    assert _tensor._get_resharding_operator_map(
        ([2, 4], [0, -1], [8, 8], ranks), ([2, 2, 2], [1, -1], [8, 8], ranks), 0
    ) == {
        0: [("AllConcat", [0, 1, 0])],
        1: [("AllConcat", [0, 1, 0])],
    }


def test_slices_are_sent_where_stages_are_merged():
    before, after = ([2, 2], [1, 0], [8, 8], [0, 1]), ([4, 1], [1, 0], [8, 8], [0, 1, 2, 3])
    assert _tensor._get_pipeline_operator_map(before, after, 3) == {
        1: [("Broadcast", 1, [1, 3])],
        3: [("Broadcast", 1, [1, 3])],
    }
    assert _tensor._get_pipeline_operator_map(before, before, 0) == {}
