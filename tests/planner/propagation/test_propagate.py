"""Placements of a few tensors decide all others."""

import pytest
from planner_graphs import GraphBuilder, layers, mesh_of, placement, product, scan

from sporax.ir.graph import MARK, Role
from sporax.ir.marks import GradientMark
from sporax.planner.plan_check import check_plan
from sporax.planner.propagation.loop_bodies import Fixed
from sporax.planner.propagation.propagate import plan_by_propagation

TWO, FOUR = mesh_of(2), mesh_of(2, 2)
ROWS, COLUMNS, WHOLE = placement("0 -"), placement("- 0"), placement("- -")


def planned(graph, mesh=TWO, **inputs):
    """The plan that follows from placements of inputs by their position (``x0``)."""
    places = {graph.inputs[int(name[1:])].tensor: where for name, where in inputs.items()}
    plan = plan_by_propagation(graph, mesh, places)
    check_plan(graph, plan)
    return plan


def test_rows_of_the_data_go_through_a_chain_and_weights_stay_whole():
    plan = planned(layers(3), x0=ROWS)
    assert [operator.results for operator in plan.operators] == [(ROWS,)] * 6
    assert plan.inputs == (ROWS, WHOLE, WHOLE, WHOLE)
    assert plan.outputs == (ROWS,)


def test_columns_of_a_weight_shard_the_result_and_then_the_rows_of_the_next_one():
    plan = planned(layers(2), x1=COLUMNS)
    assert plan.operators[0].results == plan.operators[1].results == (COLUMNS,)
    assert plan.inputs == (WHOLE, COLUMNS, placement("0 -"))
    assert plan.operators[2].results == (placement("- - +0"),)
    assert plan.operators[3].operands == (WHOLE,)  # tanh of parts is no part of tanh
    assert plan.reshardings[plan_by_position(layers(2), 2)].placement == WHOLE


def plan_by_position(graph, number):
    """The result of an operator."""
    return graph.operators[number].results[0]


def test_partial_sums_pass_linear_operators():
    builder = GraphBuilder()
    x, w = builder.argument(8, 16), builder.weight(16, 8)
    y = builder.unary("neg", builder.matmul(x, w))
    plan = planned(builder.graph(y), x0=COLUMNS)
    assert plan.operators[1].operands == plan.operators[1].results == (placement("- - +0"),)
    assert plan.outputs == (WHOLE,)


def test_where_operands_disagree_the_cheaper_one_moves():
    builder = GraphBuilder()
    large, small = builder.argument(64, 64), builder.argument(64)
    y = builder.binary("add", large, builder.broadcast(small, 64, 64, dims=(1,)))
    plan = planned(builder.graph(y), x0=ROWS, x1=placement("0"))
    assert plan.operators[-1].operands[0] == ROWS


def test_tensors_of_a_barrier_say_nothing_of_each_other():
    """What is known passes at once, and what is not waits for a later reader."""
    builder = GraphBuilder()
    x, w, other = builder.argument(8, 16), builder.weight(8, 16), builder.argument(8, 16)
    passed, weight = builder.add("optimization_barrier", [x, w], (8, 16), (8, 16))
    y = builder.binary("mul", weight, other)
    plan = planned(builder.graph(builder.unary("neg", passed), y), x0=ROWS, x2=COLUMNS)
    assert plan.inputs == (ROWS, COLUMNS, COLUMNS)
    assert plan.operators[0].operands == plan.operators[0].results == (ROWS, COLUMNS)
    assert not plan.reshardings


def test_what_no_reader_decides_is_whole():
    assert planned(product()).inputs == (WHOLE, WHOLE)


def test_constants_are_made_where_their_reader_wants_them():
    builder = GraphBuilder()
    x, bias = builder.argument(8, 16), builder.argument(16, role=Role.STATE)
    y = builder.binary("add", x, builder.broadcast(bias, 8, 16, dims=(1,)))
    plan = planned(builder.graph(y), x0=COLUMNS)
    assert plan.operators[0].results == (COLUMNS,)
    assert plan.inputs[1] == placement("0")


def test_state_of_the_optimizer_is_stored_like_its_parameter():
    builder = GraphBuilder()
    x, w = builder.argument(8, 16), builder.weight(16, 8, name="w")
    momentum = builder.argument(16, 8, role=Role.STATE, name="moments.w")
    y = builder.matmul(x, w)
    gradient = builder.matmul(builder.transpose(x, 1, 0), y, backward=True)
    done = builder.add(MARK, [gradient], (16, 8), params={"mark": GradientMark(("w",), (1,))})
    updated = builder.binary("add", w, done)
    graph = builder.graph(updated, momentum, aliases=[(0, 1), (1, 2)])
    plan = planned(graph, x1=COLUMNS)
    assert plan.inputs[1] == plan.inputs[2] == plan.outputs[0] == COLUMNS


def test_given_assignments_are_taken_and_the_rest_follows():
    graph = layers(1)
    assignment = ((), (), (0,), (), ())
    plan = plan_by_propagation(graph, TWO, {}, fixed=Fixed({0: assignment}))
    check_plan(graph, plan)
    assert plan.operators[0].assignment == assignment
    assert plan.operators[1].results == (COLUMNS,)


def test_a_loop_carries_rows_from_round_to_round():
    graph = scan()
    plan = planned(graph, x0=ROWS)
    (loop,) = plan.operators
    assert loop.operands[0] == loop.results[0] == ROWS
    assert loop.results[1] == placement("- 0 -")  # stacked: the dimension of the rounds is whole
    assert loop.bodies[0].inputs[0] == ROWS


@pytest.mark.parametrize("alltoall", [True, False])
def test_the_plan_says_whether_all_to_all_may_be_used(alltoall):
    assert plan_by_propagation(product(), TWO, {}, alltoall=alltoall).alltoall == alltoall


def test_operators_that_cannot_be_sharded_are_reported():
    builder = GraphBuilder()
    x = builder.argument(8, 8)
    graph = builder.graph(builder.unary("rng_bit_generator", x, path="net.noise"))
    plan = planned(graph, x0=ROWS)
    assert plan.notes == (
        "'rng_bit_generator' is not sharded: its random numbers depend on the whole shape (net.noise)",
    )
    assert plan.operators[0].operands == (WHOLE,)
