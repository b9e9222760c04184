import copy

import pytest

from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.ir.layout import HasLayout
from sporax.mindspore.parallel import Layout


def mesh():
    return Layout((2, 2, 2), ("dp", "sp", "mp"))


def test_a_call_gives_a_copy_that_stays():
    layout = mesh()
    first = layout("mp", ("sp", "dp"))
    second = layout("dp", "None")
    assert first.to_dict()["tensor_map"] == (0, (1, 2))
    assert second.to_dict()["tensor_map"] == layout.to_dict()["tensor_map"] == (2, -1)
    assert first is not layout
    assert first != second


def test_as_a_dict():
    assert mesh()("dp", "None").to_dict() == {
        "device_matrix": (2, 2, 2),
        "tensor_map": (2, -1),
        "interleaved_parallel": False,
        "alias_name": ("dp", "sp", "mp"),
        "rank_list": list(range(8)),
    }
    assert Layout((2,), ("a",), [3, 5])("a").to_dict()["rank_list"] == [3, 5]


@pytest.mark.parametrize(
    ("entries", "tensor_map"),
    [
        ((), ()),
        (((),), ((),)),
        ((("mp",),), ((0,),)),
        ((("mp", "None"), "None"), ((0, -1), -1)),
        (("None", "None"), (-1, -1)),
    ],
)
def test_the_tensor_map_keeps_the_form_it_was_given_in(entries, tensor_map):
    assert mesh()(*entries).to_dict()["tensor_map"] == tensor_map


def test_the_value_behind_it():
    layout = mesh()("mp", ("sp", "dp"))
    value = layout.__layout__()
    assert isinstance(layout, HasLayout)
    assert (value.shardings, value.slice_of(2, (8, 8))) == (((2,), (1, 0)), (slice(0, 4), slice(4, 6)))
    assert copy.deepcopy(layout).__layout__() == value
    assert repr(layout) == "Layout (mp, sp·dp) on [dp=2, sp=2, mp=2]"
    assert repr(mesh()) == "Layout[dp=2, sp=2, mp=2]"


def test_the_virtual_axis():
    layout = Layout((2, 2, 2), ("dp", "mp", "interleaved_parallel"))(("dp", "interleaved_parallel"), "mp")
    assert layout.to_dict()["interleaved_parallel"] is True
    assert layout.to_dict()["tensor_map"] == ((2, 0), 1)
    assert layout.__layout__().split == (2, 2)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (([2], ("a",)), SporaxTypeError),
        (((2,), ["a"]), SporaxTypeError),
        (((2.0,), ("a",)), SporaxTypeError),
        (((True,), ("a",)), SporaxTypeError),
        (((2,), (3,)), SporaxTypeError),
        (((2,), ("a",), (0, 1)), SporaxTypeError),
        (((2,), ("a",), ["0", "1"]), SporaxTypeError),
        (((2,), ("a", "b")), SporaxValueError),
        (((2, 2), ("a", "a")), SporaxValueError),
        (((2,), ("None",)), SporaxValueError),
        (((2,), ("",)), SporaxValueError),
        (((0,), ("a",)), SporaxValueError),
        (((-2,), ("a",)), SporaxValueError),
        (((2,), ("a",), [0]), SporaxValueError),
        (((2,), ("a",), [0, 0]), SporaxValueError),
        (((2, 2), ("interleaved_parallel", "a")), SporaxValueError),
        (((2, 3), ("a", "interleaved_parallel")), SporaxValueError),
    ],
)
def test_layouts_that_make_no_sense_are_refused(arguments, error):
    with pytest.raises(error, match=r"For '(Layout|DeviceMatrix)'"):
        Layout(*arguments)


@pytest.mark.parametrize(
    "entries", [("xp",), (3,), (None,), (["dp"],), (("dp", 3),), ("dp", "dp"), (("dp", "dp"),), (("dp", ("sp",)),)]
)
def test_refused_calls_change_nothing(entries):
    layout = mesh()
    layout("sp")
    with pytest.raises(SporaxValueError, match="For 'Layout'"):
        layout(*entries)
    assert layout.to_dict()["tensor_map"] == (1,)


def test_a_layout_that_was_not_called_has_no_shardings():
    with pytest.raises(SporaxValueError, match="tensor map must be set before"):
        mesh().to_dict()
