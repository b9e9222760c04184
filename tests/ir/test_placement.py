"""Placements: values, slices, and the way to Layouts and back."""

import pickle

import pytest
from hypothesis import given, strategies as st

from every_placement import every_placement
from sporax.base.errors import SporaxValueError
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.layout import Layout
from sporax.ir.placement import Placement, placed, prime_mesh

MESH = DeviceMatrix((2, 2, 3), ("dp", "sp", "mp"))


def test_is_a_value():
    first = Placement(((0,), ()), (2, 1))
    assert first == Placement(((0,), ()), (1, 2), "sum")
    assert len({first, Placement(((0,), ()), (1, 2), "sum")}) == 1
    assert str(first) == "[0, -] + sum over 1·2"
    assert first.on(MESH) == "[dp, -] + sum over sp·mp"
    assert Placement(((0,),), (), "max").reduction == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((((0,), (0,)),), "every axis must be used once at most"),
        ((((0,),), (0,)), "every axis must be used once at most"),
        ((((),), (0,), "mean"), "'reduction' must be one of .* but got 'mean'"),
    ],
)
def test_bad_values(arguments, message):
    with pytest.raises(SporaxValueError, match=message):
        Placement(*arguments)


@pytest.mark.parametrize("placement", list(every_placement(2, 3)))
def test_slices_are_those_of_the_layout(placement):
    layout = placement.to_layout(MESH)
    shape = (12, 24)
    assert [placement.block(shape, MESH, rank) for rank in range(12)] == [
        layout.slice_of(rank, shape) for rank in range(12)
    ]
    assert placement.local_shape(shape, MESH) == layout.slice_shape(shape)
    assert Placement.from_layout(layout, MESH) == placement


@given(split=st.tuples(*[st.sampled_from([1, 2, 4, 8])] * 2).filter(lambda split: 16 % (split[0] * split[1]) == 0))
def test_from_any_matrix(split):
    """MindSpore's device matrix for a split, on the mesh of primes: the same slices."""
    layout = Layout.from_split(split, 16)
    mesh = prime_mesh(layout.device_matrix)
    assert mesh.shape == (2, 2, 2, 2)
    placement = Placement.from_layout(layout, mesh)
    assert [placement.block((16, 16), mesh, rank) for rank in range(16)] == [
        layout.slice_of(rank, (16, 16)) for rank in range(16)
    ]


def test_layouts_that_do_not_fit():
    with pytest.raises(SporaxValueError, match="must refine"):
        Placement.from_layout(Layout.from_split((3, 2), 6), DeviceMatrix((2, 3)))
    with pytest.raises(SporaxValueError, match="ranks of the mesh"):
        Placement.from_layout(Layout.from_split((2,), 2), DeviceMatrix((2,), (), (2, 3)))
    with pytest.raises(SporaxValueError, match="interleaved"):
        Placement.from_layout(
            Layout(DeviceMatrix((2, 2), ("dp", "interleaved_parallel")), ((0, 1),)), DeviceMatrix((2,))
        )
    with pytest.raises(SporaxValueError, match="complete tensor"):
        Placement(((),), (0,)).to_layout(MESH)


def test_every_placement():
    """Two dimensions, two axes: nothing, one axis (2 x 2), both apart (2), both in one dimension in two orders (4)."""
    actual = list(every_placement(2, 2))
    assert len(actual) == len(set(actual)) == 1 + 4 + 2 + 4


def test_uneven_sharding():
    with pytest.raises(SporaxValueError, match=r"shape \(5, 4\) must be divisible .* \[dp, -\], which makes \(2, 1\)"):
        Placement(((0,), ())).local_shape((5, 4), MESH)


def test_placements_that_are_requested_again_are_one_object():
    again = placed(((0,), ()), (2, 1))

    assert again is placed(((0,), ()), (2, 1))
    assert again == Placement(((0,), ()), (1, 2), "sum")
    assert hash(again) == hash(Placement(((0,), ()), (1, 2), "sum"))
    assert pickle.loads(pickle.dumps(again)) == again
    assert again.complete() is again.complete().complete()
