"""Lists of operators against those of MindSpore 2.10's wheel, and against the slices that they must make."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.layout import Layout
from sporax.mindspore.parallel import _tensor
from sporax.mindspore.parallel._redistribution import shortened, transform_operators

WHEEL = [
    # Layouts before and after, devices, rank, MindSpore's list.
    (
        ((4,), (0,), (8,)),
        ((2, 2, 1, 1), (3,), (8,)),
        4,
        0,
        [("Reshape", [1, 2]), ("AllConcat", [0, 1, 1]), ("Reshape", [4])],
    ),
    (
        ((6,), (-1, 0, -1, -1), (16, 96, 8, 16)),
        ((2, 3, 1, 1), (0, -1, 1, 3), (16, 96, 8, 16)),
        6,
        3,
        [
            ("Reshape", [16, 1, 16, 8, 16]),
            ("AllConcat", [0, 3, 1]),
            ("StridedSlice", [0, 0, 0, 0, 8, 16, 2, 16, 8, 16, 1, 1, 1, 1, 1]),
            ("AllConcat", [3, 4, 5, 2]),
            ("Reshape", [16, 96, 8, 8]),
        ],
    ),
    (
        ((1, 6, 2), (0, 2, -1, -1), (8, 24, 16, 1)),
        ((2, 6, 1), (-1, -1, 2, -1), (8, 24, 16, 1)),
        12,
        10,
        [
            ("Reshape", [4, 24, 16]),
            ("StridedSlice", [0, 0, 8, 4, 24, 16, 1, 1, 1]),
            ("AllConcat", [10, 11, 0]),
            ("Reshape", [8, 24, 8, 1]),
        ],
    ),
    (
        ((1, 2, 2), (2, 0, 1), (48, 48, 48)),
        ((1, 2, 2), (2, -1, 0), (48, 48, 48)),
        4,
        0,
        [("AllConcat", [0, 2, 2]), ("AllConcat", [0, 1, 1]), ("StridedSlice", [0, 0, 0, 48, 48, 24, 1, 1, 1])],
    ),
    (
        ((8,), (-1, 0, -1), (48, 48, 24)),
        ((2, 2, 2), (1, 2, -1), (48, 48, 24)),
        8,
        6,
        [
            ("Reshape", [48, 1, 1, 6, 24]),
            ("AllConcat", [4, 6, 2]),
            ("StridedSlice", [24, 0, 0, 0, 0, 48, 1, 2, 6, 24, 1, 1, 1, 1, 1]),
            ("AllConcat", [6, 7, 3]),
            ("Reshape", [24, 24, 24]),
        ],
    ),
    (
        ((3, 4), (0, 1, -1), (8, 48, 48)),
        ((6, 2), (0, -1, -1), (8, 48, 48)),
        12,
        10,
        [
            ("Reshape", [1, 2, 16, 48]),
            ("AllConcat", [8, 10, 0]),
            ("AllConcat", [2, 6, 10, 2]),
            ("AllConcat", [10, 11, 1]),
            ("StridedSlice", [0, 0, 0, 0, 1, 4, 48, 48, 1, 1, 1, 1]),
            ("Reshape", [4, 48, 48]),
        ],
    ),
    (
        ((4, 1, 1, 2), (-1, 0), (1, 96)),
        ((1, 2, 4), (2, -1), (1, 96)),
        8,
        6,
        [("Reshape", [48]), ("AllConcat", [6, 7, 0]), ("Reshape", [1, 96])],
    ),
    (
        ((2, 3), (-1, 1), (24, 16)),
        ((6,), (0, -1), (24, 16)),
        6,
        3,
        [
            ("Reshape", [2, 12, 8]),
            ("StridedSlice", [0, 0, 0, 2, 4, 8, 1, 1, 1]),
            ("AllConcat", [0, 3, 2]),
            ("StridedSlice", [1, 0, 0, 2, 4, 16, 1, 1, 1]),
            ("Reshape", [4, 16]),
        ],
    ),
    (
        ((1, 6, 1), (2, 0, 1), (1, 96, 24)),
        ((6,), (-1, 0, -1), (1, 96, 24)),
        6,
        2,
        [
            ("Reshape", [96, 4]),
            ("AllConcat", [0, 1, 2, 3, 4, 5, 1]),
            ("StridedSlice", [32, 0, 48, 24, 1, 1]),
            ("Reshape", [1, 16, 24]),
        ],
    ),
    (
        ((1, 1, 8), (-1, 1, 2, -1), (1, 1, 24, 4)),
        ((1, 2, 4, 1), (-1, -1, 3, 2), (1, 1, 24, 4)),
        8,
        6,
        [("Reshape", [24, 4]), ("StridedSlice", [0, 2, 24, 4, 1, 1]), ("Reshape", [1, 1, 24, 2])],
    ),
    (
        ((4,), (0, -1, -1, -1), (48, 4, 1, 48)),
        ((1, 1, 4), (-1, 1, 2, 0), (48, 4, 1, 48)),
        4,
        1,
        [
            ("Reshape", [12, 4, 48]),
            ("AllConcat", [0, 1, 2, 3, 0]),
            ("StridedSlice", [0, 0, 12, 48, 4, 24, 1, 1, 1]),
            ("Reshape", [48, 4, 1, 12]),
        ],
    ),
    (
        ((6, 1, 1), (-1, -1, 1, -1), (48, 96, 1, 1)),
        ((3, 2), (1, 0, -1, -1), (48, 96, 1, 1)),
        6,
        2,
        [
            ("Reshape", [48, 96]),
            ("StridedSlice", [16, 0, 32, 96, 1, 1]),
            ("StridedSlice", [0, 0, 16, 48, 1, 1]),
            ("Reshape", [16, 48, 1, 1]),
        ],
    ),
    (
        ((2, 1, 2, 1), (1, -1, 0), (4, 16, 16)),
        ((4,), (-1, 0, -1), (4, 16, 16)),
        4,
        2,
        [
            ("Reshape", [2, 2, 8, 16]),
            ("StridedSlice", [0, 1, 0, 0, 2, 2, 8, 16, 1, 1, 1, 1]),
            ("AllConcat", [2, 3, 0]),
            ("StridedSlice", [0, 0, 0, 0, 4, 1, 4, 16, 1, 1, 1, 1]),
            ("Reshape", [4, 4, 16]),
        ],
    ),
    (
        ((2, 2), (0, -1, -1, 1), (4, 24, 96, 48)),
        ((4,), (-1, 0, -1, -1), (4, 24, 96, 48)),
        4,
        2,
        [
            ("Reshape", [2, 2, 12, 96, 24]),
            ("AllConcat", [0, 2, 4]),
            ("StridedSlice", [0, 1, 0, 0, 0, 2, 2, 12, 96, 48, 1, 1, 1, 1, 1]),
            ("AllConcat", [2, 3, 0]),
            ("StridedSlice", [0, 0, 0, 0, 0, 4, 1, 6, 96, 48, 1, 1, 1, 1, 1]),
            ("Reshape", [4, 6, 96, 48]),
        ],
    ),
]


@pytest.mark.parametrize(("source", "target", "devices", "rank", "operators"), WHEEL)
def test_as_the_wheel(source, target, devices, rank, operators):
    assert transform_operators(source, target, range(devices), rank) == operators


def test_dimensions_go_in_the_order_of_mindspores_table():
    matrix = (2,) * 7
    operators = transform_operators((matrix, tuple(range(7)), (4,) * 7), (matrix, (-1,) * 7, (4,) * 7), range(128), 0)
    assert [numbers[-1] for _, numbers in operators] == [0, 4, 3, 1, 5, 6, 2]


@st.composite
def _layouts(draw):
    devices = draw(st.sampled_from([4, 6, 8, 12]))
    shape = tuple(draw(st.lists(st.sampled_from([1, 8, 24, 48]), min_size=1, max_size=3)))

    def layout():
        matrix, left = [], devices
        while left > 1:
            size = draw(st.sampled_from([part for part in (2, 3, 4, 6, 8, 12) if left % part == 0]))
            matrix.append(size)
            left //= size
        axes = draw(st.permutations(range(len(matrix))))
        entries = []
        for size in shape:
            fits = bool(axes) and size % matrix[-axes[0] - 1] == 0 and draw(st.booleans())
            entries.append(axes[0] if fits else -1)
            axes = axes[1:] if fits else axes
        return tuple(matrix), tuple(entries), shape

    return layout(), layout(), devices


# Layouts before and after, devices, rank, MindSpore's list with `enable_redist_opt`.
SHORTENED = [
    (
        ((1, 1, 2, 2), (0, 2, 1, 3), (4, 24, 48, 1)),
        ((4,), (-1, 0, -1, -1), (4, 24, 48, 1)),
        4,
        2,
        [
            ("Reshape", [2, 2, 12, 24]),
            ("AllConcat", [0, 2, 3]),
            ("AllConcat", [2, 3, 0]),
            ("StridedSlice", [0, 1, 0, 0, 4, 2, 12, 48, 1, 1, 1, 1]),
            ("StridedSlice", [0, 0, 0, 0, 4, 1, 6, 48, 1, 1, 1, 1]),
            ("Reshape", [4, 6, 48, 1]),
        ],
    ),
    (
        ((1, 1, 2, 3), (3, -1, 1, -1), (1, 1, 48, 8)),
        ((1, 1, 3, 2), (-1, -1, 2, -1), (1, 1, 48, 8)),
        6,
        2,
        [("Reshape", [24, 8]), ("AllConcat", [2, 5, 0]), ("Reshape", [1, 1, 48, 8])],
    ),
    (
        ((1, 2, 2), (-1, 2, -1), (8, 96, 24)),
        ((4, 1), (0, 1, -1), (8, 96, 24)),
        4,
        1,
        [
            ("Reshape", [8, 2, 48, 24]),
            ("StridedSlice", [0, 0, 0, 0, 8, 1, 48, 24, 1, 1, 1, 1]),
            ("StridedSlice", [0, 0, 24, 0, 8, 1, 48, 24, 1, 1, 1, 1]),
            ("Reshape", [8, 24, 24]),
        ],
    ),
    (
        ((8,), (0, -1, -1, -1), (8, 1, 8, 1)),
        ((8, 1), (-1, 0, 1, -1), (8, 1, 8, 1)),
        8,
        1,
        [
            ("Reshape", [1, 8]),
            ("AllConcat", [0, 1, 2, 3, 4, 5, 6, 7, 0]),
            ("StridedSlice", [0, 1, 8, 2, 1, 1]),
            ("Reshape", [8, 1, 1, 1]),
        ],
    ),
    (
        ((12,), (0, -1, -1, -1), (24, 4, 16, 16)),
        ((2, 3, 1, 2), (1, -1, -1, 3), (24, 4, 16, 16)),
        12,
        2,
        [
            ("AllConcat", [0, 1, 2, 3, 4, 5, 0]),
            ("Reshape", [1, 3, 4, 4, 16, 16]),
            ("AllConcat", [2, 8, 0]),
            ("StridedSlice", [0, 0, 0, 0, 0, 0, 2, 3, 4, 4, 16, 8, 1, 1, 1, 1, 1, 1]),
            ("Reshape", [24, 4, 16, 8]),
        ],
    ),
    (
        ((8,), (-1, -1, 0, -1), (16, 16, 8, 16)),
        ((2, 2, 1, 2), (-1, 0, -1, 1), (16, 16, 8, 16)),
        8,
        1,
        [
            ("Reshape", [16, 16, 1, 1, 1, 16]),
            ("AllConcat", [0, 1, 4]),
            ("AllConcat", [1, 3, 3]),
            ("AllConcat", [1, 5, 2]),
            ("StridedSlice", [0, 8, 0, 0, 0, 0, 16, 16, 2, 2, 2, 16, 1, 1, 1, 1, 1, 1]),
            ("Reshape", [16, 8, 8, 16]),
        ],
    ),
    (
        ((1, 6), (1, -1, 0, -1), (1, 8, 24, 8)),
        ((1, 6, 1), (-1, 2, -1, -1), (1, 8, 24, 8)),
        6,
        1,
        [("Reshape", [8, 4, 8]), ("AllConcat", [0, 1, 2, 3, 4, 5, 1]), ("Reshape", [1, 8, 24, 8])],
    ),
    (
        ((8,), (-1, 0, -1), (96, 48, 4)),
        ((4, 1, 1, 2), (3, 2, 0), (96, 48, 4)),
        8,
        2,
        [
            ("Reshape", [96, 1, 6, 4]),
            ("AllConcat", [2, 3, 2]),
            ("AllConcat", [0, 2, 4, 6, 1]),
            ("StridedSlice", [24, 0, 0, 0, 48, 4, 12, 4, 1, 1, 1, 1]),
            ("StridedSlice", [0, 0, 0, 0, 24, 4, 12, 2, 1, 1, 1, 1]),
            ("Reshape", [24, 48, 2]),
        ],
    ),
    (
        ((1, 1, 2, 4), (-1, 1, -1, 3), (24, 48, 24, 8)),
        ((1, 2, 2, 2), (2, 0, 1, 3), (24, 48, 24, 8)),
        8,
        2,
        [
            ("AllConcat", [2, 6, 1]),
            ("StridedSlice", [0, 0, 0, 0, 12, 48, 24, 8, 1, 1, 1, 1]),
            ("StridedSlice", [0, 0, 0, 0, 12, 24, 24, 8, 1, 1, 1, 1]),
            ("StridedSlice", [0, 0, 12, 0, 12, 24, 24, 8, 1, 1, 1, 1]),
        ],
    ),
    (
        ((6, 1, 1, 1), (0, 3), (48, 48)),
        ((3, 2), (1, 0), (48, 48)),
        6,
        5,
        [
            ("AllConcat", [0, 1, 2, 3, 4, 5, 1]),
            ("StridedSlice", [32, 0, 48, 48, 1, 1]),
            ("StridedSlice", [0, 24, 16, 48, 1, 1]),
        ],
    ),
    (
        ((1, 12), (-1, 0, -1), (1, 96, 16)),
        ((2, 3, 2), (-1, -1, -1), (1, 96, 16)),
        12,
        3,
        [
            ("Reshape", [8, 16]),
            ("AllConcat", [0, 1, 2, 3, 4, 5, 0]),
            ("Reshape", [1, 3, 16, 16]),
            ("AllConcat", [3, 9, 0]),
            ("Reshape", [1, 96, 16]),
        ],
    ),
    (
        ((4, 1, 1, 1), (2, 3, -1), (4, 96, 4)),
        ((2, 2, 1, 1), (-1, -1, 2), (4, 96, 4)),
        4,
        1,
        [
            ("Reshape", [4, 1, 24, 4]),
            ("AllConcat", [0, 1, 2]),
            ("AllConcat", [1, 3, 1]),
            ("StridedSlice", [0, 0, 0, 2, 4, 2, 48, 4, 1, 1, 1, 1]),
            ("Reshape", [4, 96, 2]),
        ],
    ),
]


@pytest.mark.parametrize(("source", "target", "devices", "rank", "operators"), SHORTENED)
def test_merged_as_the_wheel(source, target, devices, rank, operators):
    assert _tensor._transform_tensor_by_layout(source, target, range(devices), rank, True) == operators


def test_single_operators_stay():
    assert shortened([("AllConcat", [0, 1, 0])], [4]) == [("AllConcat", [0, 1, 0])]


@pytest.mark.parametrize("merges", [False, True])
@given(_layouts())
def test_operators_make_the_slices_of_every_rank(merges, case):
    source, target, devices = case
    whole = np.arange(np.prod(source[2])).reshape(source[2])
    before, after = (
        Layout.from_tensor_map(DeviceMatrix(matrix, (), range(devices)), entries)
        for matrix, entries, _ in (source, target)
    )
    for rank in range(devices):
        slices = {other: whole[before.slice_of(other, whole.shape)] for other in range(devices)}
        needed = _tensor._get_needed_rank_transform_operator_map_by_layouts(
            source, target, range(devices), rank, merges
        )
        slices = {other: slices[other] for other in needed}
        stack = _tensor._generate_transform_operator_stack(needed, rank)
        _tensor._apply_tensor_transform_operators(stack, slices, devices)
        np.testing.assert_array_equal(slices[rank], whole[after.slice_of(rank, whole.shape)])


@pytest.mark.parametrize(
    ("source", "target", "devices", "rank", "text"),
    [
        (((2,), (0,), (3,)), ((2,), (-1,), (3,)), 2, 0, "shard each dimension evenly"),
        (((2,), (1,), (4,)), ((2,), (-1,), (4,)), 2, 0, "by an axis of its own"),
        (((2,), (0,), (4,)), ((2,), (0,), (8,)), 2, 0, "as many elements"),
        (((2,), (0,), (4,)), ((4,), (0,), (4,)), 2, 0, "the 2 devices of the list"),
        (((2,), (0,), (4,)), ((2,), (-1,), (4,)), 2, 2, "be one of"),
    ],
)
def test_layouts_that_do_not_fit(source, target, devices, rank, text):
    with pytest.raises(ValueError, match=text):
        transform_operators(source, target, range(devices), rank)
