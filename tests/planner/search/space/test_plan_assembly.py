"""Plans made of chosen candidates."""

import pytest
from planner_graphs import (
    GraphBuilder,
    every_choice,
    layers,
    mesh_of,
    placement,
    problem_of,
    product,
    roofline,
    scan,
    training_step,
)

from sporax.planner.cost import cost_of
from sporax.planner.plan_check import check_plan
from sporax.planner.search.space.plan_assembly import plan_of, replicated_plan
from sporax.planner.solver.portfolio.quick_choice import choose

TWO = mesh_of(2)


@pytest.mark.parametrize("graph", [product(), layers(2), training_step()], ids=["product", "layers", "training step"])
def test_any_choice_makes_a_plan_that_can_run(graph):
    problem = problem_of(graph, TWO)
    for chosen in list(every_choice(problem))[::211]:
        plan = plan_of(problem, chosen)
        check_plan(graph, plan)
        assert plan.graph == graph.fingerprint()


def test_the_plan_of_the_best_choice_costs_what_the_problem_says_and_no_plan_costs_more():
    """A plan may cost less: a reader takes a tensor from the nearest place to which it was brought for others."""
    problem = problem_of(layers(2), TWO)
    best = min(every_choice(problem), key=problem.seconds)
    for chosen in (best, *list(every_choice(problem))[::397]):
        cost = cost_of(problem.graph, plan_of(problem, chosen), roofline(TWO)).seconds
        assert cost <= problem.seconds(chosen) * (1 + 1e-9)
        assert chosen != best or cost == pytest.approx(problem.seconds(chosen))


@pytest.mark.parametrize("graph", [product(), training_step(), scan()], ids=["product", "training step", "loop"])
def test_the_whole_plan_shards_nothing(graph):
    plan = replicated_plan(graph, TWO)
    check_plan(graph, plan)
    assert all(where.is_replicated for where in (*plan.inputs, *plan.outputs))
    assert not any(any(operator.assignment) for operator in plan.operators)
    assert [len(operator.bodies) for operator in plan.operators] == [len(entry.bodies) for entry in graph.operators]


def test_updated_variables_keep_the_placement_of_their_argument():
    problem = problem_of(training_step(), TWO, fully_use_devices=True)
    for chosen in list(every_choice(problem))[::331]:
        plan = plan_of(problem, chosen)
        assert plan.outputs[0] == plan.inputs[1]


def test_a_tensor_that_several_read_elsewhere_is_resharded_once():
    builder = GraphBuilder()
    x, w = builder.argument(16, 16), builder.weight(16, 16)
    y = builder.matmul(x, w)
    results = [builder.unary(name, y) for name in ("tanh", "exp")]
    problem = problem_of(builder.graph(*results), TWO, fixed={y: placement("0 -")})
    for chosen in list(every_choice(problem)):
        plan = plan_of(problem, chosen)
        if plan.operators[0].results[0] != placement("0 -"):
            assert plan.reshardings[y].placement == placement("0 -")
            assert plan.reshardings[y].reason == "given"


def test_operators_that_cannot_be_sharded_are_reported_with_their_path():
    builder = GraphBuilder()
    x = builder.argument(8, 8)
    y = builder.unary("rng_bit_generator", x, path="net.noise")
    plan = replicated_plan(builder.graph(y), TWO)
    (note,) = plan.notes
    assert note.startswith("'rng_bit_generator' is not sharded: ")
    assert note.endswith("(net.noise)")


def test_reads_of_one_relayed_tensor_are_brought_there_once():
    builder = GraphBuilder()
    x = builder.unary("tanh", builder.argument(16, 16))
    first, second = (builder.matmul(x, builder.weight(16, 16)) for _ in range(2))
    problem = problem_of(builder.graph(first, second), TWO)
    (relay,) = problem.decisions.relays.values()
    plan = plan_of(problem, choose(problem.cost_graph()))
    check_plan(problem.graph, plan)
    assert problem.decisions.nodes[relay].is_relay
