"""The prime axes of a mesh stand so that the strategies of a step find their runs."""

from dataclasses import replace

import pytest

from operator_marks import operator_mark
from sporax.base.errors import SporaxRuntimeError
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import MARK, Operator, OperatorGraph
from sporax.ir.layout import Layout
from sporax.ir.marks import LayoutMark, Side
from sporax.ir.operation import Operation, TensorSpec
from sporax.ir.operator_dims import Dims, OperatorDims
from sporax.ir.placement import prime_mesh
from sporax.planner.pins.data_placement import arranged, arranged_for
from sporax.planner.pins.strategies import placements_for

MESH = prime_mesh(DeviceMatrix((24,)))
SPEC = TensorSpec((48, 48), "float32", 4)


def graph(*marks):
    operators = tuple(
        Operator(Operation(MARK, (SPEC, SPEC), (SPEC, SPEC), {"mark": item}), (0, 1), (0, 1)) for item in marks
    )
    return OperatorGraph((SPEC, SPEC), operators, (), ())


def matmul(*cuts):
    return operator_mark("MatMul", 0, Side.IN, cuts)


@pytest.mark.parametrize(
    ("strategy", "shape"),
    [
        (((3, 1), (1, 8)), (3, 2, 2, 2)),
        (((8, 1), (1, 3)), (2, 2, 2, 3)),
        (((3, 8), (8, 1)), (3, 2, 2, 2)),
        (((6, 1), (1, 4)), (2, 3, 2, 2)),
        (((2, 3), (3, 4)), (2, 3, 2, 2)),
        (((3, 1), (1, 1)), (3, 2, 2, 2)),
        (((4, 1), (1, 6)), (2, 2, 2, 3)),
        (((1, 1), (1, 1)), (2, 2, 2, 3)),
    ],
)
def test_every_strategy_that_divides_the_devices_has_its_runs(strategy, shape):
    mark = matmul(*strategy)
    mesh = arranged_for(graph(mark), MESH, "full_batch")
    assert mesh.shape == shape
    actual = placements_for(mark, (SPEC, SPEC), mesh)
    assert tuple(placement.parts(mesh) for placement in actual) == strategy


def test_ranks_hold_what_the_device_matrix_of_the_strategy_says():
    mark = matmul((3, 1), (1, 8))
    mesh = arranged_for(graph(mark), MESH, "full_batch")
    left, right = placements_for(mark, (SPEC, SPEC), mesh)
    for rank in range(24):
        place = mesh.coordinates(rank)
        row = place[left.dims[0][0]]
        column = sum(place[axis] << shift for axis, shift in zip(right.dims[1], (2, 1, 0), strict=True))
        assert (row, column) == divmod(rank, 8)


def test_strategies_that_fit_one_grid_share_it():
    mesh = arranged_for(graph(matmul((2, 1), (1, 12)), matmul((6, 1), (1, 4))), MESH, "full_batch")
    assert mesh.shape == (2, 3, 2, 2)


def test_of_strategies_without_a_common_grid_the_first_decides_and_the_other_is_refused():
    first, second = matmul((3, 1), (1, 8)), matmul((8, 1), (1, 3))
    mesh = arranged_for(graph(first, second), MESH, "full_batch")
    assert mesh.shape == (3, 2, 2, 2)
    with pytest.raises(SporaxRuntimeError, match=r"For 'MatMul', the device matrix .* no run of axes makes 8"):
        placements_for(second, (SPEC, SPEC), mesh)


@pytest.mark.parametrize("entry", [(3, 1), Layout(DeviceMatrix((3, 8), ("a", "b")), ((0,), ()))])
def test_the_strategy_of_the_data_counts_as_well(entry):
    assert arranged_for(graph(), MESH, (entry,)).shape == (3, 2, 2, 2)


def test_layouts_of_reshard_count_as_well():
    layout = Layout(DeviceMatrix((3, 8), ("a", "b")), ((0,), (1,)))
    assert arranged_for(graph(LayoutMark("reshard", 0, (layout,))), MESH, "full_batch").shape == (3, 2, 2, 2)


def test_a_strategy_that_does_not_fit_leaves_the_order_alone():
    assert arranged_for(graph(matmul((5, 1), (1, 1))), MESH, "full_batch") == MESH


def test_the_exit_of_an_operator_says_nothing():
    def three(call, shapes):
        assert len(shapes) == 3
        return Dims((("a", "b"),) * 3)

    mark = replace(matmul((3, 1)), side=Side.OUT, dims=OperatorDims(three))
    assert arranged_for(graph(mark), MESH, "full_batch") == MESH


def test_the_ranks_stay_where_they_are():
    ranks = tuple(range(24, 48))
    mesh = arranged(prime_mesh(DeviceMatrix((24,), (), ranks)), [(3, 8)])
    assert tuple(mesh.ranks) == ranks
