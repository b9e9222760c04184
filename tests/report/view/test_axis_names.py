"""Axes have one name each, whatever reports them."""

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.placement import Placement
from sporax.ir.plan import Plan
from sporax.report.view.axis_names import names_of

MESH = DeviceMatrix((2, 2, 2, 3))
PLAN = Plan(MESH, (Placement(((0, 1, 2), (3,))),), (), ())


def test_axes_that_go_together_have_a_letter():
    names = names_of(PLAN)
    assert names.legend() == "a = 8, b = 3"
    assert names.sizes == (("a", 8), ("b", 3))
    assert names.layout(Placement(((0, 1, 2), ()))) == "[a, -]"
    assert names.layout(Placement(((), (3,)), (0, 1, 2))) == "[-, b] + sum over a"
    assert names.layout(Placement(((0, 1, 2, 3), ()))) == "[a·b, -]"


def test_what_others_take_apart_is_numbered_and_the_letter_means_the_whole():
    names = names_of(PLAN, [Placement(((0,), (1, 2)))])
    assert names.legend() == "a = 8 (a1 = 2, a2 = 4), b = 3"
    assert names.layout(Placement(((0, 1, 2), (3,)))) == "[a, b]"
    assert names.layout(Placement(((0,), (1, 2)))) == "[a1, a2]"
    assert names.layout(Placement(((1, 2, 0), ()))) == "[a2·a1, -]"
