"""Plans that spread from seeds."""

import networks
import pytest
from planner_graphs import (
    GraphBuilder,
    cheapest_cost,
    layers,
    mesh_of,
    placement,
    problem_of,
    product,
    roofline,
    training_step,
)

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.hardware import load_profile
from sporax.ir.placement import Placement
from sporax.planner.cost import Roofline, link_costs
from sporax.planner.memory.peak import memory_of
from sporax.planner.memory.xla_cpu.kernel_fusion import XLA_CPU
from sporax.planner.plan_check import check_plan
from sporax.planner.search import propagation
from sporax.planner.search.sharding_propagation import heaviest_first
from sporax.planner.search.space.problem import SearchOptions

TWO, FOUR = mesh_of(2), mesh_of(2, 2)
EIGHT = DeviceMatrix((2, 2, 2))


def model(mesh, hardware="cpu"):
    return Roofline(load_profile(hardware), link_costs(load_profile(hardware), mesh))


@pytest.mark.parametrize("graph", [product(), layers(2), training_step()], ids=["product", "layers", "training step"])
def test_small_networks_get_the_best_plan_of_all(graph):
    result = propagation(graph, TWO, roofline(TWO))
    check_plan(graph, result.plan)
    assert result.cost_seconds == pytest.approx(cheapest_cost(problem_of(graph, TWO)))


def test_the_users_operator_is_the_only_seed():
    graph = product()
    problem = problem_of(graph, TWO)
    for candidate in problem.choices[problem.decisions.heavy[0]].steps:
        assignment = candidate[0].assignment
        result = propagation(graph, TWO, roofline(TWO), SearchOptions(assignments={0: assignment}))
        assert result.plan.operators[0].assignment == assignment
        assert result.statistics["seedings"] == 1


def test_placements_of_inputs_alone_leave_room_for_automatic_seeds():
    graph = product()
    options = SearchOptions(fixed={graph.inputs[0].tensor: placement("0 -")})
    result = propagation(graph, TWO, roofline(TWO), options)
    assert result.plan.inputs[0] == placement("0 -")
    assert result.statistics["seedings"] > 1


def test_the_operator_of_most_arithmetic_comes_first():
    builder = GraphBuilder()
    x, small, large = builder.argument(8, 8), builder.weight(8, 8), builder.weight(8, 64)
    first = builder.matmul(x, small)
    builder.matmul(first, large)
    looped = builder.matmul(first, small, times=100)
    problem = problem_of(builder.graph(looped, 4), TWO)
    order = [problem.decisions.nodes[number].producer for number in heaviest_first(problem)]
    assert order == [2, 1, 0]  # a hundred small products, one large, one small


def test_a_memory_limit_is_kept():
    graph = layers(3)
    free = propagation(graph, FOUR, roofline(FOUR))
    limit = int(0.8 * free.statistics["peak_bytes"])
    tight = propagation(graph, FOUR, roofline(FOUR), SearchOptions(memory_bytes=limit))
    assert memory_of(graph, tight.plan, XLA_CPU).peak_bytes == tight.statistics["peak_bytes"] <= limit


def test_a_seed_spreads():
    """Columns of the first weight cut by the user: the next weight's rows follow, as Megatron has it."""
    graph = networks.mlp(2, 32, 1024).graph
    columns = Placement(((), (0, 1, 2)))
    fixed = {graph.inputs[0].tensor: columns}
    plan = propagation(graph, EIGHT, model(EIGHT), SearchOptions(fixed=fixed, units=((0, 1, 2),))).plan

    assert plan.inputs[:2] == (columns, Placement(((0, 1, 2), ())))
