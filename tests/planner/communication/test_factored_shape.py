"""The shape on which a redistribution is planned."""

import itertools
import math

import pytest
from planner_graphs import mesh_of, placement

from every_placement import every_placement
from sporax.planner.communication.factored_shape import comparable, factor_shape

MESH = mesh_of(2, 2, 2, 2)


def factored(shape, source, target, mesh=MESH):
    return factor_shape(shape, placement(source), placement(target), mesh)


def test_dimensions_are_split_where_source_or_target_shard_them():
    """The example of the module: axes 0 and 1 stay with the rows, and are left out."""
    shape = factored((64, 32), "01 23", "012 3")
    assert shape.units == ((2,), (3,))
    assert shape.shape == (2, 8, 2, 2, 8)
    assert shape.start.dims == ((), (), (0,), (1,), ())
    assert shape.goal.dims == ((0,), (), (1,), (), ())


def test_axes_that_are_adjacent_on_both_sides_move_as_one_unit():
    assert factored((64, 32), "01 -", "- 01").units == ((0, 1),)
    assert factored((64, 32), "01 -", "- 10").units == ((0,), (1,))
    assert factored((64, 32), "01 -", "- -").units == ((0, 1),)


def test_partial_axes_are_parts_at_the_start_and_masked_at_the_goal():
    shape = factored((64, 32), "- - +01", "0 -")
    assert (shape.start.parts, shape.goal.masked) == ((0, 1), ())
    shape = factored((64, 32), "- -", "- - +0")
    assert (shape.start.parts, shape.goal.masked) == ((), (0,))


def test_axes_that_stay_partial_are_left_out():
    assert factored((64, 32), "0 - +1", "- 0 +1").units == ((0,),)


def test_sizes_that_do_not_divide_each_other_share_one_piece():
    """Rows by 2 and then by 3 have no common points, so both axes are in one piece."""
    shape = factored((12, 6), "01 -", "10 -", mesh_of(2, 3))
    assert shape.shape == (6, 2, 6)
    assert shape.start.dims[0] == (0, 1)
    assert shape.goal.dims[0] == (1, 0)


@pytest.mark.parametrize("mesh", [(2, 2, 2), (2, 3)])
def test_a_device_holds_as_much_on_the_factored_shape_as_on_the_tensor(mesh):
    mesh, shape = mesh_of(*mesh), (24, 36)
    placements = [where for where in every_placement(2, mesh.num_axes) if where.fits(shape, mesh)]
    for source, target in itertools.product(placements[::3], placements[::4]):
        factors = factor_shape(shape, source, target, mesh)
        for state, where in ((factors.start, source), (factors.goal, target)):
            assert math.prod(factors.local_shape(state)) == math.prod(where.local_shape(shape, mesh))


def test_tasks_are_comparable_when_only_names_of_equal_axes_differ():
    def task(shape, source, target, kinds=(0, 0, 0)):
        return comparable(factored(shape, source, target, mesh_of(2, 2, 2)), kinds, 8)

    one = task((8, 16), "01 -", "1 2")

    assert one == task((8, 16), "20 -", "0 1")
    assert one == task((16, 7, 8), "- - 12", "0 - 2")
    assert one != task((8, 16), "01 -", "0 2")
    assert one != task((8, 16), "01 -", "1 2", kinds=(0, 0, 2))
