import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from layouts import layouts, tensor_shape

from sporax.base.errors import SporaxValueError
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.layout import HasLayout, Layout

MESH = DeviceMatrix((2, 2, 2), ("dp", "sp", "mp"))
EXAMPLE = Layout(MESH, ((2,), (1, 0)))  # rows by mp, columns by sp and then dp


def groups(layout):
    """Groups of ranks that hold the same slice."""
    return layout.device_matrix.groups(repeated_axes(layout))


def repeated_axes(layout):
    """Axes that shard nothing: ranks along them hold the same slice."""
    used = {axis for axes in layout.shardings for axis in axes}
    return tuple(axis for axis in layout.device_matrix.device_axes if axis not in used)


def rows_and_columns(layout, rank):
    rows, columns = layout.slice_of(rank, (8, 8))
    return (rows.start, rows.stop), (columns.start, columns.stop)


def test_the_first_axis_of_a_dimension_is_the_outer_one():
    """The slices MindSpore gives; its documentation lists them the other way round."""
    assert rows_and_columns(EXAMPLE, 0) == ((0, 4), (0, 2))
    assert rows_and_columns(EXAMPLE, 1) == ((4, 8), (0, 2))
    assert rows_and_columns(EXAMPLE, 2) == ((0, 4), (4, 6))
    assert rows_and_columns(EXAMPLE, 4) == ((0, 4), (2, 4))


def test_tensor_maps_count_axes_from_the_right():
    assert EXAMPLE.tensor_map == (0, (1, 2))
    assert Layout.from_tensor_map(MESH, (0, (1, 2))) == EXAMPLE
    assert Layout.from_tensor_map(MESH, (-1, (2, -1))) == Layout(MESH, ((), (0,)))


@pytest.mark.parametrize(
    ("split", "devices", "matrix", "tensor_map"),
    [((2, 4), 16, (2, 4, 2), (2, 1)), ((8, 2), 16, (8, 2), (1, 0)), ((4, 1), 8, (4, 1, 2), (2, -1))],
)
def test_devices_that_are_left_repeat_at_the_right(split, devices, matrix, tensor_map):
    layout = Layout.from_split(split, devices)
    assert (layout.device_matrix.shape, layout.tensor_map, layout.split) == (matrix, tensor_map, split)


def test_ranks_hold_slices_together():
    layout = Layout.from_split((2, 1), 8)
    assert groups(layout) == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert layout.holders() == {(0, 0): (0, 1, 2, 3), (1, 0): (4, 5, 6, 7)}
    assert not layout.is_replicated
    assert Layout(MESH, ((), ())).is_replicated


def test_scalars_are_whole_everywhere():
    layout = Layout(MESH, ())
    assert (layout.slice_shape(()), layout.slice_of(3, ())) == ((), ())


def test_the_virtual_axis_divides_inside_a_device():
    mesh = DeviceMatrix((2, 2, 2), ("dp", "mp", "interleaved_parallel"))
    layout = Layout(mesh, ((0, 2), (1,)))
    assert (layout.split, layout.slice_shape((8, 8))) == ((2, 2), (4, 4))
    assert repeated_axes(layout) == ()
    with pytest.raises(SporaxValueError, match="divisible by its 4 slices"):
        layout.slice_shape((6, 8))
    # The parts inside of a device have no order, so it may be named at any place.
    assert Layout(mesh, ((2, 0), (1,))) == layout


@pytest.mark.parametrize("cuts", [((3,),), ((-1,),), ((0,), (0,)), ((0, 0),)])
def test_axes_that_do_not_exist_or_repeat_are_refused(cuts):
    with pytest.raises(SporaxValueError, match="For 'Layout'"):
        Layout(MESH, cuts)


def test_tensors_that_do_not_fit_are_refused():
    with pytest.raises(SporaxValueError, match="must have 2 dimensions"):
        EXAMPLE.slice_shape((8,))
    with pytest.raises(SporaxValueError, match=r"dimension 1 .* divisible by its 4 slices .* 6 is not"):
        EXAMPLE.slice_shape((8, 6))
    with pytest.raises(SporaxValueError, match="divide the 8 devices"):
        Layout.from_split((3,), 8)


def test_printed_and_hashed():
    assert str(EXAMPLE) == "(mp, sp·dp) on [dp=2, sp=2, mp=2]"
    assert str(Layout(DeviceMatrix((2, 2)), ((1,),))) == "(axis 1,) on [2, 2]"
    assert {EXAMPLE: 1}[Layout.from_tensor_map(MESH, (0, (1, 2)))] == 1
    assert eval(repr(EXAMPLE)) == EXAMPLE


@given(layouts())
def test_slices_tile_the_tensor_as_often_as_it_is_repeated(layout):
    shape = tensor_shape(layout)
    count = np.zeros(shape, int)
    for rank in layout.device_matrix.ranks:
        part = count[layout.slice_of(rank, shape)]
        assert part.shape == layout.slice_shape(shape)
        part += 1
    assert (count == math.prod(layout.device_matrix.shape[axis] for axis in repeated_axes(layout))).all()


@given(layouts())
def test_redundancy_groups_are_the_ranks_with_equal_slices(layout):
    by_slice = {}
    for rank in layout.device_matrix.ranks:
        by_slice.setdefault(layout.slice_index(rank), set()).add(rank)
    assert {frozenset(group) for group in groups(layout)} == {frozenset(g) for g in by_slice.values()}
    assert {index: set(ranks) for index, ranks in layout.holders().items()} == by_slice


@given(layouts())
def test_tensor_map_round_trip(layout):
    assert Layout.from_tensor_map(layout.device_matrix, layout.tensor_map) == layout


@given(layouts(), st.data())
def test_refining_keeps_the_slices(layout, data):
    axis = data.draw(st.sampled_from(layout.device_matrix.device_axes))
    size = layout.device_matrix.shape[axis]
    refined = layout.refined(axis, {4: (2, 2), 1: ()}.get(size, (size,)))
    assert refined.split == layout.split
    assert {index: set(ranks) for index, ranks in refined.holders().items()} == {
        index: set(ranks) for index, ranks in layout.holders().items()
    }


def test_what_has_a_layout_is_recognised():
    class Coat:
        def __layout__(self):
            return EXAMPLE

    assert isinstance(Coat(), HasLayout)
    assert not isinstance((1, 2), HasLayout)
