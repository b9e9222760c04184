"""Loops and branches in a plan by propagation."""

from planner_graphs import GraphBuilder, mesh_of, placement, scan

from sporax.ir.graph import Role
from sporax.planner.loops.inline import inline_loops
from sporax.planner.plan_check import check_plan
from sporax.planner.propagation.loop_bodies import Fixed
from sporax.planner.propagation.propagate import plan_by_propagation

TWO = mesh_of(2)


def body(build, *shapes):
    inside = GraphBuilder()
    tensors = [inside.argument(*shape, role=Role.CONSTANT) for shape in shapes]
    return inside.graph(*build(inside, *tensors))


def planned(graph, places, **options):
    plan = plan_by_propagation(graph, TWO, places, **options)
    check_plan(graph, plan)
    return plan


def test_a_carried_value_ends_a_round_as_it_starts_it():
    """The body prefers columns for its result, and the value was given by rows."""
    graph = scan()
    for where in (placement("0 -"), placement("- 0")):
        (loop,) = planned(graph, {graph.inputs[0].tensor: where}).operators
        assert loop.bodies[0].inputs[0] == loop.bodies[0].outputs[0] == loop.operands[0] == loop.results[0]


def test_stacked_operands_keep_the_dimension_of_the_rounds_whole():
    graph = scan()
    (loop,) = planned(graph, {graph.inputs[1].tensor: placement("- - 0")}).operators
    assert loop.operands[1].dims[0] == ()
    assert loop.bodies[0].inputs[1].dims == loop.operands[1].dims[1:]


def test_a_while_loop_has_one_placement_of_what_it_carries():
    test = body(lambda inside, x: [inside.add("gt", [inside.reduce_sum(x, 0, 1), 0.0], (), dtype="bool")], (8, 8))
    step = body(lambda inside, x: [inside.unary("tanh", x)], (8, 8))
    builder = GraphBuilder()
    x = builder.argument(8, 8)
    result = builder.add("while", [x], (8, 8), params={"cond_nconsts": 0, "body_nconsts": 0}, bodies=(test, step))
    (loop,) = planned(builder.graph(result), {x: placement("0 -")}).operators
    condition, rounds = loop.bodies
    assert condition.inputs == rounds.inputs == rounds.outputs == loop.results == (placement("0 -"),)
    assert condition.outputs == (placement(""),)  # every device must decide the same


def turning_while():
    """A while loop whose body transposes what it carries, and that tensor."""
    test = body(lambda inside, x: [inside.add("gt", [inside.reduce_sum(x, 0, 1), 0.0], (), dtype="bool")], (8, 8))
    step = body(lambda inside, x: [inside.transpose(x, 1, 0)], (8, 8))
    builder = GraphBuilder()
    x = builder.argument(8, 8)
    result = builder.add("while", [x], (8, 8), params={"cond_nconsts": 0, "body_nconsts": 0}, bodies=(test, step))
    return builder.graph(result), x


def test_the_body_of_a_while_loop_gives_its_results_back_as_it_got_them():
    """Left to itself, the transposed value would end the round sharded by columns."""
    graph, x = turning_while()
    (loop,) = planned(graph, {x: placement("0 -")}).operators
    rounds = loop.bodies[1]
    assert rounds.operators[0].results == (placement("- 0"),)
    assert rounds.outputs == rounds.inputs == loop.results == (placement("0 -"),)


def test_a_while_loop_that_a_search_has_planned_keeps_the_ends_of_its_rounds():
    graph, x = turning_while()
    searched = planned(graph, {x: placement("0 -")})
    fixed = Fixed(control={0: searched.operators[0]}, bodies={0: (Fixed(), Fixed())})
    again = planned(graph, {x: placement("0 -")}, fixed=fixed)
    assert again.operators[0].bodies[1].outputs == (placement("0 -"),)
    assert again.operators == searched.operators


def test_branches_agree_on_arguments_and_results():
    first, second = (
        body(build, (8, 8), (8, 8))
        for build in (lambda inside, x, w: [inside.matmul(x, w)], lambda inside, x, w: [inside.binary("add", x, w)])
    )
    builder = GraphBuilder()
    index, x, w = builder.argument(dtype="int32"), builder.argument(8, 8), builder.weight(8, 8)
    result = builder.add("cond", [index, x, w], (8, 8), bodies=(first, second))
    (branch,) = planned(builder.graph(result), {x: placement("0 -")}).operators
    assert branch.bodies[0].inputs == branch.bodies[1].inputs == branch.operands[1:]
    assert branch.bodies[0].outputs == branch.bodies[1].outputs == branch.results


def test_a_loop_that_a_search_has_planned_keeps_its_edges():
    graph = scan()
    searched = planned(graph, {graph.inputs[0].tensor: placement("- 0")})
    assignments = {n: operator.assignment for n, operator in enumerate(searched.operators[0].bodies[0].operators)}
    fixed = Fixed(control={0: searched.operators[0]}, bodies={0: (Fixed(assignments),)})
    again = planned(graph, {graph.inputs[0].tensor: placement("- 0")}, fixed=fixed)
    assert again.operators[0].operands == searched.operators[0].operands
    assert again.operators[0].bodies[0].operators == searched.operators[0].bodies[0].operators
    assert len(inline_loops(graph).unfolded(again).operators) == 7
