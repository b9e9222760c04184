"""A plan that does not fit its graph is refused, with what disagrees."""

from dataclasses import replace

import pytest

from sporax.base.errors import SporaxValueError
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import Input, Operator, OperatorGraph
from sporax.ir.operation import Operation, TensorSpec
from sporax.ir.placement import Placement
from sporax.ir.plan import OperatorPlan, Plan, Resharding
from sporax.planner.plan_check import check_plan

MESH = DeviceMatrix((2, 2))
WHOLE = Placement(((), ()))
ROWS, COLUMNS = Placement(((0,), ())), Placement(((), (0,)))
PARTS = Placement(((), ()), (0,))
SPEC = TensorSpec((4, 4))
NUMBERS = {"dimension_numbers": (((1,), (0,)), ((), ()))}
GRAPH = OperatorGraph(
    (SPEC,) * 3,
    (Operator(Operation("dot_general", (SPEC, SPEC), (SPEC,), NUMBERS), (0, 1), (2,)),),
    (Input(0, name="w"), Input(1, name="x")),
    (2,),
    ((0, 0),),
)
CUT_K = OperatorPlan(((), (0,), (), (), ()), (COLUMNS, ROWS), (PARTS,))
GOOD = Plan(MESH, (COLUMNS, ROWS), (COLUMNS,), (CUT_K,), graph=GRAPH.fingerprint())


def test_a_plan_that_fits_passes():
    check_plan(GRAPH, GOOD)


@pytest.mark.parametrize(("change", "message"), [
    ({"operators": (replace(CUT_K, assignment=((), (9,), (), (), ())),)}, r"must be sharded by axes of \[2, 2\], but got the assign"),
    ({"operators": (replace(CUT_K, assignment=((), (-1,), (), (), ())),)}, r"must be sharded by axes of \[2, 2\], but got the assi"),
    ({"operators": ()}, "must be 1 operators as in the graph, but got 0"),
    ({"inputs": (WHOLE,)}, "must be 2 inputs"),
    ({"graph": "other"}, "the graph must be the one it was made for, other"),
    ({"outputs": (ROWS,)}, r"output 0 must have the placement of the input that it replaces, w at \[-, 0\], but got \[0, -\]"),
    ({"inputs": (PARTS, ROWS), "outputs": (PARTS,)}, "input w must be complete"),
    ({"inputs": (Placement(((0, 1), (2,))), ROWS)}, "must be sharded by axes of"),
    ({"inputs": (Placement(((0,),)), ROWS)}, r"input w of shape \(4, 4\) must be divisible"),
    ({"reshardings": {9: Resharding(WHOLE)}}, "a resharded tensor must be one of 3"),
    ({"reshardings": {2: Resharding(Placement(((0,),)))}}, "resharded tensor 2"),
    ({"operators": (replace(CUT_K, assignment=((0,), (0,), (), (), ())),)}, "every axis must be assigned to one factor"),
    ({"operators": (replace(CUT_K, operands=(ROWS, ROWS)),)}, r"operands must have the placements \['\[-, 0\]', '\[0, -\]'\]"),
    ({"operators": (replace(CUT_K, results=(WHOLE,)),)}, "results must have the placements"),
    ({"operators": (replace(CUT_K, bodies=(GOOD,)),)}, "there must be 0 plans of bodies, but got 1"),
])  # fmt: skip
def test_what_disagrees_is_named(change, message):
    with pytest.raises(SporaxValueError, match=message):
        check_plan(GRAPH, replace(GOOD, **change))
