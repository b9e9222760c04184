"""Limits that depend on attributes and sizes, tested on the check alone."""

import pytest

from operator_marks import operator_mark
from sporax.base.errors import SporaxRuntimeError
from sporax.planner.pins.strategies import check_limits


def check(name, shapes, cuts, devices=8, **attributes):
    """The message of the refusal; "" where the sharding is accepted."""
    mark = operator_mark(name, path="Net.op", **attributes)
    try:
        check_limits(mark, shapes, cuts, devices)
    except SporaxRuntimeError as error:
        return str(error)
    return ""


IMAGE, KERNEL = (8, 4, 16, 16), (4, 4, 3, 3)
WHOLE = (1, 1, 1, 1)


def test_operators_without_limits_and_unsharded_inputs_are_accepted():
    assert check("ReLU", [(16, 8)], [(8, 1)]) == ""
    assert check("Conv2D", [IMAGE, KERNEL], [WHOLE, WHOLE], pad_mode="valid", stride=1) == ""


@pytest.mark.parametrize(("height", "pad_mode", "stride", "words"), [
    (2, "same", 1, ""),
    (8, "same", 1, ""),  # slices of 2, a window reaches 2 further
    (16, "same", 1, "reaches 2 elements further than its stride, and slices are 1 long"),
    (2, "valid", 3, "the slices of spatial dimension 0 must be a multiple of the stride 3"),
    (2, "valid", 1, "the window of 3 must be at most the stride, but that is 1"),
    (4, "same", 8, "must be a multiple of the stride 8, but 16 elements in 4 slices are 4 each"),
])  # fmt: skip
def test_windows_stay_inside_slices_or_reach_the_next_one(height, pad_mode, stride, words):
    text = check("Conv2D", [IMAGE, KERNEL], [(1, 1, height, 1), WHOLE], pad_mode=pad_mode, stride=stride)
    assert words in text
    assert bool(text) == bool(words)
    assert not text or text.startswith("For 'Net.op (Conv2D)', ")


def test_channels_last_has_its_spatial_dimensions_in_the_middle():
    shapes, cuts = [(8, 16, 16, 4), (4, 3, 3, 4)], [(1, 16, 1, 1), WHOLE]
    assert "spatial dimension 0" in check("Conv2D", shapes, cuts, pad_mode="same", data_format="NHWC")
    assert check("Conv2D", shapes, [(1, 1, 1, 4), WHOLE], pad_mode="same", data_format="NHWC") == ""


@pytest.mark.parametrize(("parts", "accepted"), [(2, True), (8, True), (16, False)])
def test_pooling_windows_divide_slices(parts, accepted):
    text = check("MaxPool", [IMAGE], [(1, 1, parts, 1)], devices=16, kernel_size=2, strides=2)
    assert (text == "") == accepted


@pytest.mark.parametrize(("kernel", "stride", "pad", "parts", "accepted"), [  # as recorded with MindSpore 2.10
    (3, 1, "same", 8, True), (7, 1, "same", 8, False), (7, 5, "same", 4, True), (3, 4, "same", 2, True), (7, 8, "same", 4, False),
    (5, 1, 0, 2, True), (5, 1, 0, 8, False), (5, 2, 2, 8, True), (7, 2, 3, 4, True), (7, 2, 3, 8, False), (5, 3, 0, 2, False),
    (2, 4, 0, 2, False), (5, 5, 2, 2, False), (7, 5, 3, 2, True), (3, 1, "valid", 4, False), (2, 4, "valid", 4, True),
])  # fmt: skip
def test_windows_of_volumes_may_reach_the_next_slice_where_there_is_padding(kernel, stride, pad, parts, accepted):
    mode, cells = (pad, 0) if isinstance(pad, str) else ("pad", pad)
    for depth, name, cells_name in ((2, "MaxPool3D", "pad_list"), (3, "AvgPool3D", "pad")):
        cuts = tuple(parts if dim == depth else 1 for dim in range(5))
        attributes = {"kernel_size": kernel, "strides": stride, "pad_mode": mode, cells_name: (cells,) * 6}
        text = check(name, [(8, 4, 16, 16, 16)], [cuts], **attributes)
        assert (text == "") == accepted, text


@pytest.mark.parametrize(("cuts", "devices", "words"), [
    ([(8, 1), (1, 1)], 8, ""),
    ([(2, 1), (4, 1)], 8, ""),  # both numbers multiply to the devices
    ([(2, 1), (2, 1)], 8, "all numbers multiply to 8"),
    ([(2, 1), (1, 4)], 8, "indices must stay whole where dimension 0 of the table, which they point into, is sharded into 2"),
    ([(1, 8), (8, 1)], 8, ""),
])  # fmt: skip
def test_indices_into_a_sharded_dimension_stay_whole(cuts, devices, words):
    text = check("Gather", [(16, 8), (8, 4)], cuts, devices, axis=0)
    assert words in text
    assert bool(text) == bool(words)


def test_a_table_sharded_along_another_axis_uses_all_devices():
    assert check("Gather", [(16, 8), (8, 4)], [(1, 8), (1, 1)], axis=1) == ""
    assert "must use all 8 devices, but they use 4" in check("Gather", [(16, 8), (8, 4)], [(1, 4), (1, 1)], axis=1)


def test_an_embedding_takes_its_indices_first():
    text = check("embedding", [(8, 4), (16, 8)], [(1, 4), (2, 1)])
    assert "indices must stay whole where dimension 0 of the table" in text


@pytest.mark.parametrize(("attributes", "words"), [
    ({"begin": (0, 0), "end": (16, 4), "strides": (1, 1)}, ""),  # the sharded dimension is taken whole
    ({"begin": (0,), "end": (16,), "strides": (1,)}, ""),
    ({"begin": (2, 0), "end": (16, 8), "strides": (1, 1)}, "dimension 0 has 2 slices, so all of its 16 elements must be taken"),
    ({"begin": (0, 0), "end": (16, 8), "strides": (2, 1)}, "with a stride of 1, but got 0:16:2"),
    ({"begin": (0,), "end": (16,), "strides": (1,), "end_mask": 1}, ""),
    ({"begin": (2, 0), "end": (9, 8), "strides": (1, 1), "begin_mask": 1, "end_mask": 1}, ""),  # masks leave bounds out
    ({"begin": (2, 0), "end": (16, 8), "strides": (1, 1), "begin_mask": 2}, "but got 2:16:1"),
    ({"begin": (0, 0, 0), "end": (1, 16, 8), "strides": (1, 1, 1), "new_axis_mask": 1}, ""),
    ({"begin": (0, 0), "end": (16, 8), "strides": (1, 1), "shrink_axis_mask": 1}, "dimension 0 has 2 slices"),
    ({"begin": (0,), "end": (16,), "strides": (1,), "ellipsis_mask": 1}, "'ellipsis_mask' must be 0 where the input is sharded"),
])  # fmt: skip
def test_a_sharded_dimension_is_taken_whole(attributes, words):
    text = check("StridedSlice", [(16, 8)], [(2, 1)], **attributes)
    assert words in text
    assert bool(text) == bool(words)
