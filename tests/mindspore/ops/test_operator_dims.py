"""Names of the dimensions of the facade's operators."""

import pytest

from operator_marks import operator_mark as mark
from sporax.ir.operator_dims import is_undivided, lookup_axis
from sporax.mindspore.ops._core.dims import along
from sporax.planner.pins.strategies import dims_of


def names(name, shapes, **attributes):
    """The inputs' dimensions as text."""
    return [" ".join(dims) for dims in dims_of(mark(name, **attributes), shapes).inputs]


@pytest.mark.parametrize(("name", "shapes", "attributes", "expected"), [
    ("MatMul", [(16, 8), (8, 4)], {}, ["i k", "k j"]),
    ("MatMul", [(8, 16), (4, 8)], {"transpose_a": True, "transpose_b": True}, ["k i", "j k"]),
    ("BatchMatMul", [(2, 16, 8), (3, 2, 8, 4)], {}, ["b1 i k", "b0 b1 k j"]),
    ("MatMulExt", [(16, 8), (8, 4)], {}, ["i k", "k j"]),
    ("SplitWithSize", [(16, 8)], {"dim": 1}, ["d0 d1!"]),
    ("SliceExt", [(16, 8)], {"dim": 1}, ["d0 d1!"]),
    ("Cdist", [(16, 8), (12, 8)], {}, ["p m!", "r m!"]),
    ("Cdist", [(2, 16, 8), (2, 12, 8)], {}, ["b0 p m!", "b0 r m!"]),
    ("TraceV2", [(2, 16, 8)], {"axis1": -2, "axis2": -1}, ["d0 d1! d2!"]),
    ("SolveTriangular", [(2, 8, 8), (2, 8)], {}, ["d0 d1! d2!", "d0 d1!"]),
    ("DCT", [(2, 16, 8)], {"axis": 1}, ["d0 d1! d2"]),
    ("DCTN", [(2, 16, 8)], {"axes": (-1, 1)}, ["d0 d1! d2!"]),
    ("DCTN", [(2, 16)], {}, ["d0! d1!"]),
    ("Convolution", [(8, 4, 8, 8), (6, 4, 3, 3), (6,)], {}, ["n in x0! x1!", "out in k0! k1!", "out"]),
    ("Convolution", [(8, 4, 8), (4, 6, 3)], {"transposed": True}, ["n in x0!", "in out k0!"]),
    ("Convolution", [(8, 4, 8), (6, 2, 3)], {"groups": 2}, ["n in! x0!", "out! in! k0!"]),
    ("DropoutDoMask", [(16, 8), (128,), ()], {}, ["d0 d1", "0.0!", ""]),
    ("_bits", [(), ()], {"shape": (16, 8)}, ["", ""]),
    ("_grouped_rows", [(16, 8), (3, 8, 4), (3,)], {}, ["m! k", "g! k n", "g!"]),
    ("dense", [(16, 8), (4, 8), (4,)], {}, ["i k", "j k", "j"]),
    ("Add", [(8,), (16, 8)], {}, ["d1", "d0 d1"]),
    ("Softmax", [(16, 8)], {"axis": -1}, ["d0 d1!"]),
    ("Concat", [(16, 8), (16, 4)], {"axis": 1}, ["d0 d1!", "d0 d1!"]),
    ("split", [(16, 8)], {}, ["d0! d1"]),
    ("LayerNorm", [(16, 4, 8), (8,)], {"begin_norm_axis": 2}, ["d0 d1 d2!", "d2!"]),
    ("BiasAdd", [(16, 8, 4), (8,)], {}, ["d0 c d2", "c"]),
    ("Conv2D", [(8, 4, 8, 8), (6, 4, 3, 3)], {}, ["n c s0 s1", "o c k0! k1!"]),
    ("Conv2D", [(8, 8, 8, 4), (6, 3, 3, 4)], {"data_format": "NHWC"}, ["n s0 s1 c", "o k0! k1! c"]),
    ("Conv2D", [(8, 4, 8, 8), (6, 2, 3, 3)], {"group": 2}, ["n c! s0 s1", "o! c! k0! k1!"]),
    ("MaxPool3D", [(8, 4, 8, 8, 8)], {}, ["n c s0 s1 s2!"]),
    ("Gather", [(16, 8), (4, 6)], {"axis": 0}, ["p0 p1", "x0 x1"]),
    ("Gather", [(4, 8, 2), (4, 6)], {"axis": 1, "batch_dims": 1}, ["x0 p1! p2", "x0 x1"]),
    ("embedding", [(4, 6), (16, 8)], {}, ["x0 x1", "p0 p1"]),
    ("GatherD", [(8, 16), (8, 4)], {"dim": 1}, ["d0 d1", "d0 d1!"]),
    ("MaxDim", [(4, 8)], {"dim": 1}, ["d0 d1!"]),
    ("_mint_sort", [(4, 8)], {}, ["d0 d1!"]),
    ("rfft", [(4, 8, 16)], {"dim": 0}, ["d0! d1 d2"]),
    ("hfft2", [(4, 8, 16)], {}, ["d0 d1! d2!"]),
    ("fftn", [(4, 8)], {}, ["d0! d1!"]),
    ("ifftshift", [(4, 8, 16)], {"dim": (1, 2)}, ["d0 d1! d2!"]),
    ("GatherNd", [(8, 8), (16, 2)], {}, ["p0! p1!", "x0 x1!"]),
    ("ScatterUpdate", [(8, 4), (4,), (4, 4)], {}, ["d0! d1", "x0!", "x0! d1"]),
    ("UnsortedSegmentSum", [(16, 4), (16,)], {}, ["d0 d1", "d0"]),
    ("cross_entropy", [(16, 8), (16,), (8,)], {}, ["n c!", "n", "c!"]),
    ("ROIAlign", [(2, 2, 8, 8), (4, 5)], {}, ["n c h! w!", "r five!"]),
    ("Unique", [(16,)], {}, ["d0!"]),
])  # fmt: skip
def test_equal_names_are_sharded_equally_and_marked_ones_stay_whole(name, shapes, attributes, expected):
    assert names(name, shapes, **attributes) == expected


@pytest.mark.parametrize(("name", "shapes", "attributes", "entry", "sizes"), [
    ("OneHot", [(16,), (), ()], {"depth": 8}, ("x0", "depth"), (16, 8)),
    ("OneHot", [(16,)], {"depth": 8, "axis": 0}, ("depth", "x0"), (8, 16)),
    ("Tile", [(16, 8)], {"dims": (1, 4)}, ("d0", "m1"), (16, 4)),
    ("LinSpace", [(), ()], {"num": 12}, ("n",), (12,)),
    ("Gamma", [(2,), (3,)], {"shape": (4,)}, ("d0",), (4,)),
])  # fmt: skip
def test_some_strategies_are_of_results_or_attributes(name, shapes, attributes, entry, sizes):
    dims = dims_of(mark(name, **attributes), shapes)
    assert (dims.entries[0].names, dims.entries[0].sizes) == (entry, sizes)


def test_shapes_that_do_not_broadcast_share_their_batch_alone():
    assert names("Unknown", [(16, 8), (16, 5)]) == ["batch 0.1", "batch 1.1"]
    assert names("MatMul", [(16,), (16,)]) == ["batch", "batch"]  # vectors have no rows and columns


def test_operators_that_cannot_read_their_attributes_fall_back():
    assert dims_of(mark("OneHot", depth="eight"), [(16,)]).entries is None
    assert dims_of(mark("Tile", dims=(2,)), [(16, 8)]).entries is None


@pytest.mark.parametrize(
    ("value", "rank", "dims"), [(-1, 3, {2}), ((0, -1), 2, {0, 1}), ("last", 2, set()), (1, 0, set())]
)
def test_attributes_name_dimensions_from_either_end(value, rank, dims):
    assert along(mark("Softmax", axis=value), "axis", 0, rank) == dims


def test_whole_dimensions_and_the_axis_of_a_lookup():
    assert is_undivided("d0!")
    assert not is_undivided("d0")
    assert lookup_axis(mark("Gather", axis=-1), 3) == 2
    assert lookup_axis(mark("Gather"), 3) == 0
