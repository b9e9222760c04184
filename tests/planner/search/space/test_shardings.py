"""Shardings of operators and placements of tensors."""

from math import comb

import pytest
from planner_graphs import mesh_of, placement, product

from every_placement import every_placement
from sporax.base.errors import SporaxValueError
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.hardware import load_profile
from sporax.ir.placement import Placement
from sporax.planner.communication.moves import LinkCosts
from sporax.planner.cost import link_costs
from sporax.planner.rules import assignments, rule_for
from sporax.planner.search.space.operator_rules import (
    assignments_of,
    check_units,
    default_units,
    link_runs,
    natural_units,
    placements_of,
    refined,
    restricted,
    with_partial_sums,
)

MESH = mesh_of(2, 2)
AXES = ((0,), (1,))
RULE = rule_for(product(8, 8, 8).operators[0].operation)


def test_with_one_unit_per_axis_all_assignments_are_there():
    complete = {assignment for assignment in assignments(RULE, MESH, ()) if not any(assignment[3:])}
    assert set(assignments_of(RULE, MESH, AXES)) == complete


def test_a_unit_goes_to_one_factor_as_a_whole():
    for assignment in assignments_of(RULE, MESH, ((0, 1),)):
        assert all(axes in ((), (0, 1)) for axes in assignment)


def test_rounds_extend_what_was_decided():
    base = ((0,), (), (), (), ())
    extended = list(assignments_of(RULE, MESH, ((1,),), base))
    assert ((0, 1), (), (), (), ()) in extended
    assert base in extended
    assert all(assignment[0][:1] == (0,) for assignment in extended)


def test_placements_are_all_in_which_axes_keep_their_order():
    ascending = [where for where in every_placement(2, 2) if all(list(axes) == sorted(axes) for axes in where.dims)]
    assert set(placements_of((8, 8), MESH, AXES)) == set(ascending)


def test_dimensions_that_do_not_divide_stay_whole():
    assert all(where.dims[1] == () for where in placements_of((8, 3), MESH, AXES))
    assert list(placements_of((3, 5), MESH, AXES)) == [Placement.replicated(2)]


def test_partial_sums_come_along_free_units():
    (base,) = placements_of((3,), MESH, AXES)
    texts = {str(where) for where in with_partial_sums([base], AXES)}
    assert texts == {"[-]", "[-] + sum over 0", "[-] + sum over 1", "[-] + sum over 0·1"}
    assert len(texts) == sum(comb(2, count) for count in range(3))
    (only,) = with_partial_sums([placement("0 -"), placement("- 0")][:1], ((0,),))
    assert only == placement("0 -")


def test_a_restriction_forgets_the_other_axes():
    assert restricted(placement("01 - +2"), frozenset([1])) == placement("1 -")
    assert restricted(placement("01 - +2"), frozenset([0, 2])) == placement("0 - +2")


@pytest.mark.parametrize("units", [((0,), (0,)), ((2,),), ((0, 1, 1),)])
def test_every_axis_may_be_in_one_unit(units):
    with pytest.raises(SporaxValueError, match=r"For 'units', every axis must be one of the 2 axes of .* but got"):
        check_units(units, MESH)


def test_units_may_leave_axes_out():
    check_units(((1,),), MESH)
    assert natural_units(MESH, LinkCosts()) == default_units(MESH) == AXES


@pytest.mark.parametrize(("shape", "units"), [
    ((2, 2, 2), ((0,), (1, 2))),
    ((2, 3, 2, 2), ((0, 1), (2, 3))),
    ((1, 4), ((1,),)),
    ((), ()),
])  # fmt: skip
def test_axes_are_handed_out_in_two_runs(shape, units):
    assert default_units(DeviceMatrix(shape)) == units


def test_axes_within_nodes_stay_together():
    mesh = DeviceMatrix((2,) * 5)
    links = link_costs(load_profile("h100"), mesh)

    assert link_runs(mesh, links) == natural_units(mesh, links) == ((0, 1), (2, 3, 4))


@pytest.mark.parametrize(
    ("used", "units"),
    [
        ([], ((0, 1, 2), (3, 4, 5))),
        ([(0, 1, 2), (3, 4, 5)], ((0, 1, 2), (3, 4, 5))),
        ([(0, 1, 2, 3, 4), (5,)], ((0, 1, 2), (3, 4), (5,))),
        ([(0, 1), (2, 3, 4, 5)], ((0, 1), (2,), (3, 4, 5))),
        ([(axis,) for axis in range(6)], ((0, 1, 2), (3, 4, 5))),
    ],
)
def test_strategies_divide_units_while_they_are_few(used, units):
    assert refined(((0, 1, 2), (3, 4, 5)), used) == units
