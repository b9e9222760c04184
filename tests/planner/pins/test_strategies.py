"""Strategies as placements, and what is refused, on eight devices."""

import pytest

from operator_marks import operator_mark
from sporax.base.errors import SporaxRuntimeError
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.layout import Layout
from sporax.ir.operation import TensorSpec
from sporax.ir.placement import prime_mesh
from sporax.planner.pins.strategies import batch_parallel, placements_for, result_placement

MESH = prime_mesh(DeviceMatrix((8,)))
ATTENTION = [(8, 4, 16)] * 3 + [(8,)]
PAGED = [(4, 1, 32), (6, 2, 4, 8), (6, 2, 4, 8), (4, 3), (4,)]
GRID, SMALL, TURNED = DeviceMatrix((2, 4)), DeviceMatrix((2, 2)), DeviceMatrix((4, 2))


def mark(name, strategy=None, **attributes):
    return operator_mark(name, strategy=strategy, path="Net.block.op", **attributes)


def placed(name, shapes, strategy, **attributes):
    """The inputs' axes as text, ``"0 12 | -"``: one word per dimension."""
    actual = placements_for(mark(name, strategy, **attributes), [TensorSpec(shape) for shape in shapes], MESH)
    return " | ".join(" ".join("".join(map(str, axes)) or "-" for axes in item.dims) for item in actual)


def batched(name, shapes, **attributes):
    actual = batch_parallel(mark(name, **attributes), [TensorSpec(shape) for shape in shapes], MESH)
    return [item.parts(MESH) for item in actual]


@pytest.mark.parametrize(
    ("name", "shapes", "strategy", "attributes", "wanted"),
    [
        ("MatMul", [(16, 8), (8, 8)], ((2, 2), (2, 2)), {}, "0 1 | 1 2"),
        ("MatMul", [(16, 8), (8, 8)], ((2, 2), (2, 2)), {"transpose_b": True}, "0 1 | 2 1"),
        ("MatMul", [(8, 16), (8, 8)], ((4, 2), (4, 1)), {"transpose_a": True}, "12 0 | 12 -"),
        ("BatchMatMul", [(4, 8, 8), (2, 4, 8, 8)], ((2, 1, 1), (2, 2, 1, 2)), {}, "1 - - | 0 1 - 2"),
        ("Add", [(8,), (16, 8)], ((4,), (2, 4)), {}, "12 | 0 12"),
        ("Mul", [(16, 1), (16, 8)], ((2, 1), (2, 4)), {}, "0 - | 0 12"),
        ("ReLU", [(16, 8)], ((1, 2),), {}, "- 0"),
        ("BiasAdd", [(16, 8, 4, 4), (8,)], ((4, 2, 1, 1), (2,)), {"data_format": "NCHW"}, "01 2 - - | 2"),
        ("ResizeNearestNeighbor", [(2, 2, 8, 8)], ((1, 1, 2, 4),), {}, "- - 0 12"),
        ("_paged_attention", PAGED, ((2, 1, 4), (1, 1, 4, 1), (1, 1, 4, 1), (2, 1), (2,)), {"head_num": 4},
         "0 - 12 | - - 12 - | - - 12 - | 0 - | 0"),
        ("_infer_attention", ATTENTION, (((2, 1, 4),) * 3 + ((2,),)), {"present": ("key_lengths",)}, "0 - 12 | 0 - 12 | 0 - 12 | 0"),
        ("_infer_attention", ATTENTION, (((2, 1, 4),) * 3 + ((1,),)), {"present": ("key_lengths",)}, "0 - 12 | 0 - 12 | 0 - 12 | -"),
        ("PReLU", [(16, 8), (1,)], ((2, 4), (1,)), {}, "0 12 | -"),
        ("LayerNorm", [(8, 4, 8), (4, 8), (4, 8)], ((2, 4, 1), (4, 1), (4, 1)), {"begin_norm_axis": 2}, "0 12 - | 12 - | 12 -"),
        ("Conv2D", [(8, 4, 8, 8), (4, 4, 3, 3)], ((2, 2, 1, 1), (2, 2, 1, 1)), {"pad_mode": "same"}, "0 1 - - | 2 1 - -"),
        # lookups: ids to the left of the table, repetition to the left where rows are cut
        ("Gather", [(16, 8), (8, 4)], ((1, 4), (2, 1)), {"axis": 0}, "- 12 | 0 -"),
        ("Gather", [(16, 8), (8, 4)], ((2, 1), (1, 1)), {"axis": 0}, "2 - | - -"),
        ("Gather", [(16, 8), (8, 4)], ((1, 2), (1, 1)), {"axis": 0}, "- 0 | - -"),
        ("Gather", [(16, 8), (8, 4)], ((4, 1), (2, 1)), {"axis": 0}, "12 - | 0 -"),
        ("Gather", [(8, 16), (8, 4)], ((1, 8), (1, 1)), {"axis": 1}, "- 012 | - -"),
        ("Gather", [(4, 8, 2), (4, 6)], ((4, 1, 2), (4, 1)), {"axis": 1, "batch_dims": 1}, "01 - 2 | 01 -"),
        ("GatherNd", [(8, 8), (16, 4, 2)], ((1, 1), (4, 2, 1)), {}, "- - | 01 2 -"),
        ("OneHot", [(16,), (), ()], ((8, 1), (), ()), {"depth": 8}, "012 |  | "),
        ("OneHot", [(16,)], ((2, 4), (), ()), {"depth": 8}, "0"),
        ("OneHot", [(16,)], ((4, 2), (), ()), {"depth": 8, "axis": 0}, "2"),
        ("Tile", [(16, 8)], ((2, 4),), {"dims": (1, 4)}, "0 -"),
        ("UnsortedSegmentSum", [(16, 4), (16,)], ((2, 4), (2,)), {}, "0 12 | 0"),
        ("TensorScatterAdd", [(8, 4, 4), (3, 1), (3, 4, 4)], ((2, 4, 1), (1, 1), (1, 4, 1)), {}, "0 12 - | - - | - 12 -"),
        ("Concat", [(16, 8), (16, 4)], ((8, 1), (8, 1)), {"axis": 1}, "012 - | 012 -"),
        ("Dropout", [(16, 8), (2,)], ((2, 4),), {}, "0 12 | -"),
    ],
)  # fmt: skip
def test_numbers_of_slices_take_consecutive_axes(name, shapes, strategy, attributes, wanted):
    assert placed(name, shapes, strategy, **attributes) == wanted


def test_layouts_bring_their_own_axes():
    assert placed("MatMul", [(16, 8), (8, 8)], (Layout(GRID, ((1,), (0,))), Layout(GRID, ((0,), ())))) == "12 0 | 0 -"


@pytest.mark.parametrize(
    ("name", "shape", "strategy", "attributes", "wanted"),
    [
        ("OneHot", (16, 8), ((2, 4), (), ()), {"depth": 8}, ((0,), (1, 2))),
        ("OneHot", (8, 16), ((4, 2), (), ()), {"depth": 8, "axis": 0}, ((0, 1), (2,))),
        ("Tile", (16, 32), ((2, 4),), {"dims": (1, 4)}, ((0,), (1, 2))),
        ("LinSpace", (16,), ((8,),), {"num": 16}, ((0, 1, 2),)),
    ],
)
def test_results_that_a_strategy_shards(name, shape, strategy, attributes, wanted):
    inputs = {"OneHot": [(16,)], "Tile": [(16, 8)], "LinSpace": [(), ()]}[name]
    actual = result_placement(mark(name, strategy, **attributes), inputs, TensorSpec(shape), MESH)
    assert actual is not None and actual.dims == wanted


def test_other_results_lie_as_they_come():
    assert result_placement(mark("ReLU", ((8, 1),)), [(16, 8)], TensorSpec((16, 8)), MESH) is None


@pytest.mark.parametrize(
    ("name", "shapes", "attributes", "wanted"),
    [
        ("ReLU", [(16, 8)], {}, [(8, 1)]),
        ("ReLU", [(12, 8)], {}, [(4, 1)]),  # the largest power of two that divides
        ("ReLU", [(3, 8)], {}, [(1, 1)]),
        ("Add", [(16, 8), (8,)], {}, [(8, 1), (1,)]),
        ("Add", [(1, 8), (16, 8)], {}, [(1, 1), (8, 1)]),
        ("MatMul", [(16, 8), (8, 16)], {}, [(8, 1), (1, 1)]),
        ("MatMul", [(8, 16), (8, 8)], {"transpose_a": True}, [(1, 8), (1, 1)]),
        ("dense", [(16, 4, 8), (8, 8), (8,)], {}, [(8, 1, 1), (1, 1), (1,)]),
        ("Gather", [(16, 8), (8, 4)], {"axis": 0}, [(1, 1), (8, 1)]),
        ("embedding", [(8, 4), (16, 8)], {}, [(8, 1), (1, 1)]),
        ("Conv2D", [(8, 8, 4, 4), (8, 8, 3, 3)], {}, [(8, 1, 1, 1), (1, 1, 1, 1)]),
        ("LayerNorm", [(8, 8), (8,), (8,)], {"begin_norm_axis": 1}, [(8, 1), (1,), (1,)]),
        ("Softmax", [(16, 8)], {"axis": 0}, [(1, 1)]),
        ("cross_entropy", [(8, 8), (8,), (8,)], {}, [(8, 1), (8,), (1,)]),
        ("TensorScatterAdd", [(8, 4), (3, 1), (3, 4)], {}, [(8, 1), (1, 1), (1, 1)]),
    ],
)
def test_operators_without_a_strategy_are_batch_parallel(name, shapes, attributes, wanted):
    assert batched(name, shapes, **attributes) == wanted


IMAGES = [(8, 4, 8, 8), (4, 4, 3, 3)]
BY_HEIGHT = ((1, 1, 2, 1), (1, 1, 1, 1))


@pytest.mark.parametrize(
    ("name", "shapes", "strategy", "attributes", "words"),
    [
        # what holds for every operator
        ("ReLU", [(16, 8)], ((8, 1), (1, 1)), {}, "one entry for each of the 1 tensors, but got 2"),
        ("ReLU", [(16, 8)], ((8,),), {}, r"must have 2 numbers .* got \(8,\)"),
        ("ReLU", [(16, 8)], ((0, 1),), {}, "must be >= 1, but got 0"),
        ("ReLU", [(24, 8)], ((3, 1),), {}, "power of 2 on 8 devices, but got 3"),
        ("ReLU", [(12, 8)], ((8, 1),), {}, "dimension 0 of tensor 0 has size 12, .* got 8"),
        ("ReLU", [(16, 8)], ((8, 2),), {}, r"divide the 8 devices, but \(8, 2\) makes 16"),
        ("MatMul", [(16, 8), (8, 8)], ((4, 2), (2, 4)), {}, "divide the 8 devices, .* 4 x 2 x 4 = 32"),
        # dimensions that belong together
        ("MatMul", [(16, 8), (8, 8)], ((2, 4), (2, 1)), {}, "dimension 0 of tensor 1 is sharded into 2 and another into 4"),
        ("MatMul", [(16, 8), (8, 8)], ((2, 4), (4, 1)), {"transpose_b": True}, "dimension 1 of tensor 1 is sharded into 1"),
        ("Add", [(16, 8), (8,)], ((2, 4), (2,)), {}, "dimension 0 of tensor 1 is sharded into 2 and another into 4"),
        ("BiasAdd", [(16, 8), (8,)], ((4, 2), (1,)), {}, "is sharded into 1 and another into 2"),
        ("PReLU", [(16, 8), (8,)], ((2, 4), (2,)), {}, "is sharded into 2 and another into 4"),
        ("UnsortedSegmentSum", [(16, 4), (16,)], ((2, 4), (1,)), {}, "is sharded into 1 and another into 2"),
        ("IOU", [(8, 4), (8, 4)], ((2, 2), (2, 1)), {}, "dimension 1 of tensor 0 must stay whole .* got 2"),
        # dimensions along which operators work
        ("Softmax", [(16, 8)], ((1, 8),), {"axis": -1}, "dimension 1 of tensor 0 must stay whole .* got 8"),
        ("LogSoftmax", [(16, 8)], ((8, 1),), {"axis": 0}, "dimension 0 of tensor 0 must stay whole .* got 8"),
        ("L2Normalize", [(16, 8)], ((1, 2),), {"axis": (1,)}, "dimension 1 of tensor 0"),
        ("LayerNorm", [(16, 8), (8,), (8,)], ((1, 8), (8,), (8,)), {"begin_norm_axis": 1}, "dimension 1 of tensor 0"),
        ("Concat", [(16, 8), (16, 4)], ((1, 2), (1, 2)), {"axis": 1}, "dimension 1 of tensor 0"),
        ("Split", [(16, 8)], ((2, 1),), {"axis": 0}, "dimension 0 of tensor 0"),
        ("CumSum", [(16, 8)], ((1, 8),), {"axis": 1}, "dimension 1 of tensor 0"),
        ("TopK", [(16, 8)], ((1, 8),), {"k": 2}, "dimension 1 of tensor 0"),
        ("GatherD", [(8, 16), (8, 16)], ((2, 1), (2, 1)), {"dim": 0}, "dimension 0 of tensor 1"),
        ("GatherNd", [(8, 8), (16, 2)], ((2, 1), (1, 1)), {}, "dimension 0 of tensor 0"),
        ("GatherNd", [(8, 8), (16, 2)], ((1, 1), (1, 2)), {}, "dimension 1 of tensor 1"),
        ("ScatterUpdate", [(8, 4), (4,), (4, 4)], ((2, 1), (1,), (1, 1)), {}, "dimension 0 of tensor 0"),
        ("ScatterAdd", [(8, 4), (4,), (4, 4)], ((2, 1), (2,), (1, 1)), {}, "dimension 0 of tensor 1"),
        ("ScatterAdd", [(8, 4), (4,), (4, 4)], ((2, 1), (1,), (2, 1)), {}, "dimension 0 of tensor 2"),
        ("TensorScatterAdd", [(8, 4), (4, 1), (4, 4)], ((1, 4), (1, 1), (1, 2)), {}, "is sharded into 2 and another into 4"),
        ("InplaceAdd", [(8, 4), (2, 4)], ((2, 1), (1, 1)), {"indices": (0, 1)}, "dimension 0 of tensor 0"),
        ("Unique", [(16,)], ((2,),), {}, "dimension 0 of tensor 0"),
        ("RandomChoiceWithMask", [(2,), (16, 8)], ((2, 1),), {}, "dimension 0 of tensor 0"),
        ("ROIAlign", [(2, 2, 8, 8), (4, 5)], ((1, 1, 2, 1), (1, 1)), {}, "dimension 2 of tensor 0"),
        ("ResizeBilinear", [(2, 2, 8, 8)], ((1, 1, 1, 2),), {}, "dimension 3 of tensor 0"),
        ("ResizeNearestNeighbor", [(2, 2, 8, 8)], ((1, 1, 2, 1),), {"align_corners": True}, "dimension 2 of tensor 0"),
        # parts of dimensions
        ("StridedSlice", [(16, 8)], ((1, 2),), {"begin": (0, 2), "end": (16, 8), "strides": (1, 1)},
         "dimension 1 has 2 slices, so all of its 8 elements"),
        ("StridedSlice", [(16, 8)], ((2, 1),), {"begin": (0, 0), "end": (16, 8), "strides": (2, 1)}, "stride of 1"),
        ("StridedSlice", [(16, 8)], ((2, 1),), {"begin": (0,), "end": (16,), "strides": (1,), "ellipsis_mask": 1},
         "'ellipsis_mask' must be 0"),
        ("Slice", [(16, 8)], ((4, 2),), {"begin": (0, 0), "size": (16, 4)}, "dimension 1 has 2 slices"),
        # strategies of results
        ("OneHot", [(16,)], ((8,), (), ()), {"depth": 8}, "must have 2 numbers"),
        ("OneHot", [(16,)], ((1, 8), (), ()), {"depth": 12}, "dimension 1 of tensor 0 has size 12"),
        ("Tile", [(16, 8)], ((1, 8),), {"dims": (1, 4)}, "dimension 1 of tensor 0 has size 4, .* got 8"),
        ("LinSpace", [(), ()], ((8,),), {"num": 12}, "has size 12"),
        # windows
        ("Conv2D", IMAGES, BY_HEIGHT, {"pad_mode": "valid", "stride": 1}, "window of 3 must be at most the stride, .* 1"),
        ("Conv2D", IMAGES, ((1, 1, 4, 1), (1, 1, 1, 1)), {"pad_mode": "same", "stride": 4},
         "multiple of the stride 4, but 8 elements in 4 slices are 2"),
        ("Conv2D", IMAGES, ((1, 1, 8, 1), (1, 1, 1, 1)), {"pad_mode": "same", "dilation": 2},
         "reaches 4 elements further than its stride, and slices are 1 long"),
        ("Conv2D", IMAGES, ((1, 2, 1, 1), (1, 2, 1, 1)), {"group": 2}, "dimension 1 of tensor 0 must stay whole"),
        ("Conv2D", IMAGES, ((1, 1, 1, 1), (2, 1, 1, 1)), {"group": 2}, "dimension 0 of tensor 1 must stay whole"),
        ("Conv2D", [(8, 4, 8, 8), (4, 4, 4, 4)], ((1, 1, 1, 1), (1, 1, 2, 1)), {}, "dimension 2 of tensor 1"),
        ("MaxPool", [(4, 4, 8, 8)], ((1, 1, 2, 1),), {"kernel_size": 3, "strides": 2}, "window of 3 .* stride, but that is 2"),
        ("AvgPool", [(4, 4, 8, 8)], ((1, 1, 1, 8),), {"kernel_size": 2, "strides": 2}, "multiple of the stride 2"),
        ("MaxPool3D", [(4, 4, 8, 8, 8)], ((1, 1, 1, 1, 2),), {}, "dimension 4 of tensor 0 must stay whole"),
        # lookups
        ("Gather", [(16, 8), (8, 4)], ((4, 2), (2, 1)), {"axis": 0}, "divide the 8 devices, .* = 16"),
        ("Gather", [(16, 8), (8, 4)], ((2, 2), (2, 1)), {"axis": 0},
         r"table, which they point into, is sharded into 2, but they are sharded into \(2, 1\)"),
        ("Gather", [(16, 8), (8, 4)], ((2, 1), (2, 1)), {"axis": 0}, "all numbers multiply to 8"),
        ("Gather", [(16, 8), (8, 4)], ((4, 1), (1, 2)), {"axis": 0}, r"but they are sharded into \(1, 2\)"),
        ("Gather", [(16, 8), (8, 4)], ((1, 4), (1, 1)), {"axis": 1}, "must use all 8 devices, but they use 4"),
        ("Gather", [(16, 8, 2), (8, 4)], ((8, 1, 1), (1, 1)), {"axis": 0}, "must have 1 or 2 dimensions"),
        ("Gather", [(16, 8), ()], ((8, 1), ()), {"axis": 0}, "indices at least 1"),
        ("Gather", [(4, 8, 2), (4, 6)], ((4, 2, 1), (4, 1)), {"axis": 1, "batch_dims": 1}, "dimension 1 of tensor 0"),
    ],
)  # fmt: skip
def test_a_strategy_that_does_not_fit_is_refused_at_its_operator(name, shapes, strategy, attributes, words):
    with pytest.raises(SporaxRuntimeError, match=rf"For 'Net.block.op \({name}\)'.*{words}"):
        placed(name, shapes, strategy, **attributes)


@pytest.mark.parametrize(
    ("name", "shapes", "strategy", "words"),
    [
        ("ReLU", [(16, 8)], (Layout(SMALL, ((0,), ())),), "must have 8 devices"),
        ("ReLU", [(6, 8)], (Layout(GRID, ((1,), ())),), "does not fit"),
        ("MatMul", [(16, 8), (8, 8)], (Layout(GRID, ((0,), ())), Layout(TURNED, ((), (0,)))), "one device matrix"),
        (
            "MatMul",
            [(16, 8), (8, 8)],
            (Layout(GRID, ((0,), (1,))), Layout(GRID, ((), ()))),
            "is sharded into 1 .* into 4",
        ),
        ("MatMul", [(16, 8), (8, 8)], (Layout(GRID, ((0,), ())), Layout(GRID, ((), (0,)))), "along different axes"),
        ("Softmax", [(16, 8)], (Layout(GRID, ((), (1,))),), "dimension 1 of tensor 0 must stay whole"),
        ("Add", [(16, 8), (16, 8)], (Layout(GRID, ((0,), (1,))), (2, 4)), "Layouts alone or of tuples alone"),
    ],
)
def test_layouts_that_do_not_fit_are_refused(name, shapes, strategy, words):
    with pytest.raises(SporaxRuntimeError, match=words):
        placed(name, shapes, strategy)


def test_a_virtual_axis_leaves_slices_as_they_are():
    matrix = DeviceMatrix((2, 4, 2), ("dp", "mp", "interleaved_parallel"), range(8))
    shapes = [(16, 8), (8, 8)]
    with pytest.warns(UserWarning, match="'interleaved_parallel' has no effect"):
        actual = placed("MatMul", shapes, (Layout(matrix, ((0, 2), (1,))), Layout(matrix, ((1,), ()))))
    assert actual == placed("MatMul", shapes, (Layout(GRID, ((0,), (1,))), Layout(GRID, ((1,), ()))))
