"""Elimination finds the optimum: beside enumeration, and beside the integer program."""

import networks
import pytest
from running import assert_same_results

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.hardware import load_profile
from sporax.planner.cost import Roofline, link_costs
from sporax.planner.plan_check import check_plan
from sporax.planner.search.dynamic import dynamic
from sporax.planner.search.ilp import ilp
from sporax.planner.search.limit.exact import limited_graph
from sporax.planner.search.space.measured_plan import measured
from sporax.planner.search.space.problem import ProblemBuilder, SearchOptions
from sporax.planner.solver import solve
from sporax.planner.solver.methods.exact import BY_PROGRAM, ByProgram
from sporax.planner.solver.portfolio.quick_choice import choose

EIGHT = DeviceMatrix((2, 2, 2))
MODEL = Roofline(load_profile("cpu"), link_costs(load_profile("cpu"), EIGHT))


@pytest.mark.parametrize("largest_table", [500_000, 10])
@pytest.mark.parametrize("step", [networks.mlp(3, 16, 512), networks.mlp(3, 64, 32)])
def test_the_optimum_of_the_integer_program_is_found(step, largest_table):
    actual = dynamic(step.graph, EIGHT, MODEL, largest_table=largest_table)
    best = ilp(step.graph, EIGHT, MODEL)

    check_plan(step.graph, actual.plan)
    assert actual.optimal
    assert actual.cost_seconds == pytest.approx(best.cost_seconds, rel=1e-9)
    assert actual.statistics["method"] == ("elimination" if largest_table > 10 else "messages")
    assert_same_results(step, actual.plan)


HOW = {
    "elimination": {},
    "integer program": {"largest_table": 10},
}


def test_all_ways_to_decide_find_the_same():
    graph, mesh = networks.residual(16, 32, 8, 1).graph, DeviceMatrix((8,))
    model = Roofline(load_profile("cpu"), link_costs(load_profile("cpu"), mesh))
    actual = {method: dynamic(graph, mesh, model, **how) for method, how in HOW.items()}

    assert [item.statistics["method"] for item in actual.values()] == list(HOW)
    assert all(item.optimal for item in actual.values())
    assert len({round(item.cost_seconds, 12) for item in actual.values()}) == 1


LIMITED = {
    "mlp": (networks.mlp(6, 32, 256), 0.4),
    "mixture of experts": (networks.mixture(16, 64, 64, 8, 128), 0.6),
    "recommendation": (networks.recommendation(256, 4096), 0.4),
}
MESHES = {"8": DeviceMatrix((8,)), "2x4": DeviceMatrix((2, 4))}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("name", LIMITED)
def test_messages_first_say_of_a_limit_what_the_integer_program_says(name, mesh):
    """The tensors alone, for which either is exact."""
    (step, share), devices = LIMITED[name], MESHES[mesh]
    model = Roofline(load_profile("h200"), link_costs(load_profile("h200"), devices))
    problem = ProblemBuilder(step.graph, devices, model, SearchOptions(fully_use_devices=True)).build()
    free = measured(problem, choose(problem.cost_graph())).peak_bytes
    graph = limited_graph(problem, int(share * free))
    actual = solve(graph, seconds=60, rounds=ByProgram(after_messages=True))
    expected = solve(graph, seconds=120, rounds=BY_PROGRAM)

    assert actual.optimal
    assert expected.optimal
    assert actual.cost == pytest.approx(expected.cost, rel=1e-6)
