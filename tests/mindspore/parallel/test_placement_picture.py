import pytest

from sporax.base.errors import SporaxValueError
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.layout import Layout
from sporax.mindspore.parallel._placement_picture import picture


def drawn(shape, cuts):
    return picture(Layout(DeviceMatrix(shape), cuts).holders()).splitlines()


def test_two_dimensions_are_a_grid_with_the_first_downwards():
    assert drawn((2, 2, 2), ((0,), (1,))) == [
        "┌─────┬─────┐",
        "│ 0,1 │ 2,3 │",
        "├─────┼─────┤",
        "│ 4,5 │ 6,7 │",
        "└─────┴─────┘",
    ]


@pytest.mark.parametrize("cuts", [((1, 0),), ((), (1, 0)), ((), (), (1, 0))])
def test_the_last_dimension_alone_is_a_row(cuts):
    assert drawn((2, 2), cuts)[1] == "│ 0 │ 2 │ 1 │ 3 │"


@pytest.mark.parametrize("cuts", [((1, 0), ()), ((), (1, 0), ())])
def test_another_dimension_alone_is_a_column(cuts):
    assert drawn((2, 2), cuts)[1::2] == ["│ 0 │", "│ 2 │", "│ 1 │", "│ 3 │"]


def test_a_whole_tensor_is_one_box():
    assert drawn((8,), ((), ()))[1] == "│ 0-7 │"
    assert drawn((8,), ())[1] == "│ 0-7 │"


def test_many_ranks_are_counted():
    assert drawn((16, 2), ((1,),))[1] == "│ 0,2,… (16) │ 1,3,… (16) │"


def test_three_dimensions_cannot_be_drawn():
    with pytest.raises(SporaxValueError, match="at most two dimensions"):
        drawn((2, 2, 2), ((0,), (1,), (2,)))
