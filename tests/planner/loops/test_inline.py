"""Loops written into one graph, and plans of it translated back."""

from planner_graphs import layers, mesh_of, problem_of, product, scan

from sporax.planner.check import check_plan
from sporax.planner.loops.inline import inline_loops, spans
from sporax.planner.search.message_passing import choose
from sporax.planner.search.plan_assembly import plan_of, whole_plan

MESH = mesh_of(2)


def test_a_graph_without_loops_is_itself():
    graph = layers(2)
    out = inline_loops(graph)
    assert out.graph is graph
    assert out.owners == tuple(range(len(graph.operators)))
    plan = whole_plan(graph, MESH)
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
    out, plan = inline_loops(graph), whole_plan(graph, MESH)
    unfolded = out.unfolded(plan)
    check_plan(out.graph, unfolded)
    assert out.folded(unfolded).operators == plan.operators
    assert unfolded.graph == out.graph.fingerprint()


def test_spans_name_what_a_loop_reads_and_stacks():
    out = inline_loops(scan())
    names = [operator.name for operator in out.graph.operators]
    (span,) = spans(out.graph)
    assert [names[number] for number in range(span.first, span.last + 1)] == [
        "loop_argument",
        "loop_slice",
        "dot_general",
        "tanh",
    ]
    assert [names[number] for number in span.enter] == ["loop_argument", "loop_slice"]
    assert [names[number] for number in span.leave] == ["loop_stack"]
    assert list(spans(product())) == []
