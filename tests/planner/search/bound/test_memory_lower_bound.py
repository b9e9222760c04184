"""What every plan surely needs is never more than what is measured, and what it proves holds."""

import random

import networks
import planner_graphs
import pytest

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.hardware import load_profile
from sporax.planner.budget import Budget
from sporax.planner.cost import Roofline, link_costs
from sporax.planner.memory.peak import memory_of
from sporax.planner.memory.xla_cpu.kernel_fusion import XLA_CPU
from sporax.planner.search.bound import memory_lower_bound as memory_lower_bound_module
from sporax.planner.search.bound.bound_problem import bounding_graph
from sporax.planner.search.bound.memory_lower_bound import memory_lower_bound
from sporax.planner.search.limit.exact import solve_within
from sporax.planner.search.space.measured_plan import measured
from sporax.planner.search.space.plan_assembly import plan_of
from sporax.planner.search.space.problem import ProblemBuilder, SearchOptions
from sporax.planner.solver import solve
from sporax.planner.solver.portfolio.quick_choice import choose

MESHES = {"8": DeviceMatrix((8,)), "2x4": DeviceMatrix((2, 4))}
NETWORKS = {
    "mlp": networks.mlp(4, 64, 256),
    "transformer": networks.transformer(1, 8, 16, 64, 8),
    "mixture of experts": networks.mixture(16, 64, 64, 8, 128),
    "residual": networks.residual(16, 32, 8, 1),
    "recommendation": networks.recommendation(256, 4096),
    "convolutional": networks.convolutional(64),
    "layers": networks.layers(2, 8, 16, 64, loop=False),
}


def problem_of(name, mesh, limit=None):
    return built(NETWORKS[name], mesh, limit)


def built(step, mesh, limit=None):
    profile = load_profile("h200")
    options = SearchOptions(fully_use_devices=True, memory_bytes=limit)
    return ProblemBuilder(step.graph, mesh, Roofline(profile, link_costs(profile, mesh)), options).build()


def choices_of(problem, count):
    """The cheapest choice, some that differ from it in a few decisions, and some that have nothing to do with it."""
    cheapest, chance = choose(problem.cost_graph()), random.Random(0)
    yield cheapest
    for number in range(count):
        chosen = [*cheapest]
        changed = (
            range(len(chosen))
            if number % 4 == 0
            else chance.sample(range(len(chosen)), min(len(chosen), chance.randrange(1, 9)))
        )
        for node in changed:
            chosen[node] = chance.randrange(len(problem.costs[node]))
        yield chosen


def shares_of(problem, count):
    """How much of what is measured is surely needed."""
    plans = [(chosen, plan_of(problem, chosen)) for chosen in choices_of(problem, count)]
    return [
        memory_lower_bound(problem).bytes_of(chosen) / memory_of(problem.graph, plan, XLA_CPU).peak_bytes
        for chosen, plan in plans
    ]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("name", [item for item in NETWORKS if item != "layers"])
def test_no_plan_needs_less_than_it_surely_does(name, mesh):
    problem = problem_of(name, MESHES[mesh])
    shares = shares_of(problem, 16)

    assert max(shares) <= 1
    assert shares[0] > 0.3


@pytest.mark.parametrize("count", [1, 2, 3])
def test_buffers_of_results_serve_others_until_they_are_written(count):
    """A step that replaces no argument, whose result is as large as what lies between."""
    problem = planner_graphs.problem_of(planner_graphs.layers(count, 256, 256), planner_graphs.mesh_of(2))
    bound = memory_lower_bound(problem)
    for chosen in choices_of(problem, 60):
        peak = memory_of(problem.graph, plan_of(problem, chosen), XLA_CPU).peak_bytes
        assert bound.bytes_of(chosen) <= peak, chosen


def test_parts_that_are_wanted_again_after_they_were_combined_are_arrays_of_their_own():
    """Or an array would wait for itself, and nobody could tell the order of the kernels."""
    problem = problem_of("layers", MESHES["2x4"])
    for chosen in choices_of(problem, 20):
        plan = plan_of(problem, chosen)
        assert memory_of(problem.graph, plan, XLA_CPU).peak_bytes > 0


@pytest.mark.parametrize("name", ["mlp", "mixture of experts"])
def test_the_solver_is_told_of_all_that_is_surely_needed(name):
    problem = problem_of(name, MESHES["8"])
    reference = memory_lower_bound(problem)
    free = reference.bytes_of(choose(problem.cost_graph()))
    solution = solve(bounding_graph(problem, int(0.9 * free)), seconds=60)

    assert solution.optimal
    assert reference.bytes_of(solution.choices.tolist()[: len(problem.costs)]) == solution.peak <= 0.9 * free
    for chosen in choices_of(problem, 40):
        if reference.bytes_of(chosen) <= 0.9 * free:
            assert problem.seconds(chosen) * problem.scale >= solution.bound * (1 - 1e-9)


def test_what_is_proven_within_a_limit_holds_for_plans_that_fit():
    problem = problem_of("mixture of experts", MESHES["8"])
    limit = int(0.9 * measured(problem, choose(problem.cost_graph())).peak_bytes)
    actual, proof = solve_within(problem, limit, Budget.of(30.0))

    assert actual.peak_bytes <= limit
    assert problem.seconds(actual.chosen) * problem.scale >= proof.bound * (1 - 1e-9)
    for chosen in choices_of(problem, 40):
        if measured(problem, chosen).peak_bytes <= limit:
            assert problem.seconds(chosen) * problem.scale >= proof.bound * (1 - 1e-9)


def test_what_repeats_is_worked_out_once(monkeypatch):
    """How a tensor comes to its reader is the same in every layer, however many there are."""
    asked = []
    expected = memory_lower_bound_module._LowerBoundBuilder._between

    def between(counter, ends):
        asked.append(ends)
        return expected(counter, ends)

    monkeypatch.setattr(memory_lower_bound_module._LowerBoundBuilder, "_between", between)
    counts = []
    for layers in (8, 12):
        asked.clear()
        memory_lower_bound(built(networks.mlp(layers, 64, 256), MESHES["8"]))
        counts.append(len(asked))

    assert counts[0] == counts[1] == len({*asked})


def test_large_graphs_are_looked_at_fewer_times(monkeypatch):
    problem = problem_of("transformer", MESHES["8"])
    monkeypatch.setattr(memory_lower_bound_module, "_LOOKS", 6 * len(problem.graph.operators))
    few = memory_lower_bound(problem)
    problem.cache.clear()
    monkeypatch.undo()
    many = memory_lower_bound(problem)

    assert len(few.moments) == 6 + 1 < len(many.moments), "six operators, and the end of the step"
    chosen = choose(problem.cost_graph())
    assert 0.9 * many.bytes_of(chosen) <= few.bytes_of(chosen) <= many.bytes_of(chosen)


@pytest.mark.parametrize("name", ["mlp", "recommendation"])
def test_on_meshes_of_many_axes_no_way_is_looked_for(name, monkeypatch):
    """Finding one takes a tenth of a second there. What is known of all ways is less, and holds."""
    monkeypatch.setattr(memory_lower_bound_module, "redistribute", None)
    problem = problem_of(name, DeviceMatrix((2, 2, 2, 2, 2)))
    shares = shares_of(problem, 8)

    assert max(shares) <= 1
    assert shares[0] > 0.15
