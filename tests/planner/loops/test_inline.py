"""Loops written into one graph, and plans of it translated back."""

from dataclasses import replace

from planner_graphs import GraphBuilder, layers, mesh_of, placement, problem_of, product, scan

from sporax.ir.graph import Role
from sporax.ir.plan import Resharding
from sporax.planner.loops.inline import inline_loops, loops_around
from sporax.planner.plan_check import check_plan
from sporax.planner.propagation.propagate import plan_by_propagation
from sporax.planner.search.space.plan_assembly import plan_of, replicated_plan
from sporax.planner.solver.portfolio.quick_choice import choose

MESH = mesh_of(2)


def test_a_graph_without_loops_is_itself():
    graph = layers(2)
    out = inline_loops(graph)
    assert out.graph is graph
    assert out.owners == tuple(range(len(graph.operators)))
    plan = replicated_plan(graph, MESH)
    assert out.folded(plan) is out.unfolded(plan) is plan


def test_operators_of_a_body_say_how_often_they_run():
    out = inline_loops(scan(rounds=5))
    times = {operator.name: operator.times for operator in out.graph.operators}
    assert times == {
        "loop_enter": 1,
        "loop_argument": 5,
        "loop_slice": 5,
        "dot_general": 5,
        "tanh": 5,
        "loop_carry": 1,
        "loop_stack": 1,
    }
    assert set(out.owners) == {0}
    assert not any(operator.bodies for operator in out.graph.operators)


def test_a_plan_unfolded_and_folded_is_the_plan():
    graph = scan()
    out = inline_loops(graph)
    problem = problem_of(out.graph, MESH)
    for chosen in (choose(problem.cost_graph()), [0] * len(problem.costs)):
        folded = out.folded(plan_of(problem, chosen))
        check_plan(graph, folded)
        again = out.folded(out.unfolded(folded))
        assert again == folded


def test_the_whole_plan_survives_both_ways():
    graph = scan()
    out, plan = inline_loops(graph), replicated_plan(graph, MESH)
    unfolded = out.unfolded(plan)
    check_plan(out.graph, unfolded)
    assert out.folded(unfolded).operators == plan.operators
    assert unfolded.graph == out.graph.fingerprint()


def test_what_takes_the_results_of_a_loop_is_in_it():
    graph = inline_loops(scan()).graph
    names = [operator.name for operator in graph.operators]
    around = loops_around(graph)
    (loop,) = {*around} - {()}
    assert [name for name, loops in zip(names, around, strict=True) if loops == loop] == [
        "loop_argument",
        "loop_slice",
        "dot_general",
        "tanh",
        "loop_carry",
        "loop_stack",
    ]
    assert loops_around(product()) == [()]


def test_a_resharding_inside_a_body_is_the_same_in_the_inlined_step():
    """Tensor 3 is the activation inside the body; the step itself has a tensor 3, too, the stacked result."""
    graph = scan()
    plan = replicated_plan(graph, MESH)
    resharding = Resharding(placement("0 -"), "read there by several")
    (loop,) = plan.operators
    body = replace(loop.bodies[0], reshardings={3: resharding})
    plan = replace(plan, operators=(replace(loop, bodies=(body,)),))
    out = inline_loops(graph)
    unfolded = out.unfolded(plan)
    (tensor,) = unfolded.reshardings
    (activation,) = [operator for operator in out.graph.operators if tensor in operator.results]
    assert (activation.name, unfolded.reshardings[tensor]) == ("tanh", resharding)
    folded = out.folded(unfolded)
    assert folded.reshardings == {}
    assert folded.operators[0].bodies[0].reshardings == {3: resharding}


def test_a_while_loop_whose_body_turns_its_value_survives_both_ways():
    """The body makes columns of rows, and its result must be rows again for the next round."""
    test, step = GraphBuilder(), GraphBuilder()
    value = test.argument(8, 8, role=Role.CONSTANT)
    test_graph = test.graph(test.add("gt", [test.reduce_sum(value, 0, 1), 0.0], (), dtype="bool"))
    step_graph = step.graph(step.transpose(step.argument(8, 8, role=Role.CONSTANT), 1, 0))
    builder = GraphBuilder()
    x = builder.argument(8, 8)
    params = {"cond_nconsts": 0, "body_nconsts": 0}
    graph = builder.graph(builder.add("while", [x], (8, 8), params=params, bodies=(test_graph, step_graph)))
    plan = plan_by_propagation(graph, MESH, {x: placement("0 -")})
    out = inline_loops(graph)
    folded = out.folded(out.unfolded(plan))
    assert folded.operators == plan.operators
    _, rounds = folded.operators[0].bodies
    assert rounds.outputs == rounds.inputs == (placement("0 -"),)
    assert rounds.operators[0].results == (placement("- 0"),)
