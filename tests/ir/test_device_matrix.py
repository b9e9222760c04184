import math

import pytest
from hypothesis import given, strategies as st
from layouts import device_matrices

from sporax.base.errors import SporaxValueError
from sporax.ir.device_matrix import DeviceMatrix, common_shape, ravel, unravel


def test_ranks_fill_the_grid_row_by_row():
    matrix = DeviceMatrix((2, 4), ("dp", "mp"))
    assert [matrix.coordinates(rank) for rank in (0, 3, 4, 7)] == [(0, 0), (0, 3), (1, 0), (1, 3)]
    assert matrix.groups((0,)) == ((0, 4), (1, 5), (2, 6), (3, 7))
    assert matrix.groups((1,)) == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert matrix.axis("mp") == 1
    assert str(matrix) == "[dp=2, mp=4]"


def test_ranks_of_a_later_stage_and_in_another_order():
    assert DeviceMatrix((2, 2), (), range(4, 8)).groups((0,)) == ((4, 6), (5, 7))
    assert DeviceMatrix((2, 2), (), (3, 1, 2, 0)).coordinates(2) == (1, 0)
    assert str(DeviceMatrix((2,), (), (5, 3))) == "[2] on ranks [5, 3]"


def test_equal_ranks_are_equal_values_however_they_were_written():
    assert DeviceMatrix((2, 2), (), (0, 1, 2, 3)) == DeviceMatrix((2, 2))
    assert len({DeviceMatrix((2, 2), (), (4, 5, 6, 7)), DeviceMatrix((2, 2), (), range(4, 8))}) == 1


def test_the_virtual_axis_counts_no_devices():
    matrix = DeviceMatrix((4, 2), ("dp", "interleaved_parallel"))
    assert (matrix.num_devices, matrix.device_shape, matrix.interleaved) == (4, (4,), True)
    assert matrix.coordinates(3) == (3,)


@pytest.mark.parametrize(
    "arguments",
    [
        ((0, 2),),
        ((2,), ("a", "b")),
        ((2, 2), ("a", "a")),
        ((2,), ("",)),
        ((2, 2), ("interleaved_parallel", "a")),
        ((2, 3), ("a", "interleaved_parallel")),
        ((2,), (), (0, 1, 2)),
        ((2,), (), (1, 1)),
        ((2,), (), (-1, 0)),
    ],
)
def test_shapes_and_names_that_do_not_fit_are_refused(arguments):
    with pytest.raises(SporaxValueError, match="For 'DeviceMatrix'"):
        DeviceMatrix(*arguments)


def test_unknown_rank_axis_and_factors_are_refused():
    matrix = DeviceMatrix((2, 2), ("a", "b"))
    with pytest.raises(SporaxValueError, match="but got 4"):
        matrix.coordinates(4)
    with pytest.raises(SporaxValueError, match="but got 'c'"):
        matrix.axis("c")
    with pytest.raises(SporaxValueError, match=r"but got \(3,\)"):
        matrix.refined(0, (3,))


@given(device_matrices())
def test_coordinates_and_ranks_are_inverse(matrix):
    positions = [ravel(matrix.coordinates(rank), matrix.device_shape) for rank in matrix.ranks]
    assert [matrix.ranks[position] for position in positions] == list(matrix.ranks)


@given(device_matrices(), st.data())
def test_groups_are_a_partition_along_the_axes(matrix, data):
    axes = data.draw(st.lists(st.sampled_from(matrix.device_axes), unique=True))
    groups = matrix.groups(axes)
    assert sorted(rank for group in groups for rank in group) == sorted(matrix.ranks)
    for group in groups:
        assert len(group) == math.prod(matrix.shape[axis] for axis in axes)
        fixed = {tuple(c for axis, c in enumerate(matrix.coordinates(rank)) if axis not in axes) for rank in group}
        assert len(fixed) == 1


@given(device_matrices(), st.data())
def test_refining_an_axis_moves_no_rank(matrix, data):
    axis = data.draw(st.sampled_from(matrix.device_axes))
    factors = {4: (2, 2)}.get(matrix.shape[axis], (1, matrix.shape[axis]))
    refined = matrix.refined(axis, factors)
    assert refined.ranks == matrix.ranks
    for rank in matrix.ranks:
        before, after = matrix.coordinates(rank), refined.coordinates(rank)
        assert (*before[:axis], *before[axis + 1 :]) == (*after[:axis], *after[axis + len(factors) :])
        assert before[axis] == ravel(after[axis : axis + len(factors)], factors)


@given(st.lists(st.integers(1, 4), max_size=4), st.data())
def test_ravel_and_unravel_are_inverse(shape, data):
    position = data.draw(st.integers(0, math.prod(shape) - 1))
    assert ravel(unravel(position, shape), shape) == position


@pytest.mark.parametrize(
    ("first", "second", "common"),
    [
        ((4, 4), (8, 2), (4, 2, 2)),
        ((6,), (2, 3), (2, 3)),
        ((2, 3), (3, 2), None),
        ((2, 1, 2), (4,), (2, 2)),
        ((1,), (1, 1), ()),
        ((2,), (4,), None),
    ],
)
def test_common_shape(first, second, common):
    assert common_shape(first, second) == common == common_shape(second, first)
