"""The Lagrangian loop: the cheapest plan that fits, the smallest, and the error where nothing fits."""

import re

import networks
import numpy as np
import pytest
from msgspec import structs
from planner_graphs import cheapest_cost, every_choice, layers, mesh_of, problem_of, product, training_step

from sporax.base.errors import SporaxRuntimeError
from sporax.base.units import parse_bytes
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.hardware import load_profile
from sporax.planner.cost import Roofline, link_costs
from sporax.planner.memory.peak import memory_of
from sporax.planner.memory.xla_cpu.kernel_fusion import XLA_CPU
from sporax.planner.search.limit import limit as limits
from sporax.planner.search.limit.limit import fit, is_large, lagrangian_plan, least_cost, smallest
from sporax.planner.search.space.measured_plan import measured
from sporax.planner.search.space.plan_assembly import plan_of
from sporax.planner.search.space.problem import ProblemBuilder, SearchOptions
from sporax.planner.search.space.repeated_blocks import choose_tied
from sporax.planner.solver.portfolio.quick_choice import choose

MESH = mesh_of(2, 2)
H200 = load_profile("h200")
RATES = structs.replace(
    H200, compute_efficiency=0.79, memory_efficiency=0.9, link_efficiency=1.0, flops={**H200.flops, "float32": 494e12}
)
"""The rates for which limits were found at which one plan is a little too large."""


def test_without_a_limit_the_cheapest_choice_wins():
    problem = problem_of(product(), MESH)
    worst = max(every_choice(problem), key=problem.seconds)
    assert problem.seconds(least_cost(problem, [worst])) == pytest.approx(cheapest_cost(problem))


def test_a_known_choice_that_is_cheapest_and_fits_is_taken_as_it_is():
    free = problem_of(product(), MESH)
    best = list(min(every_choice(free), key=free.seconds))
    limit = measured(free, best).peak_bytes
    assert least_cost(problem_of(product(), MESH, memory_bytes=limit), [best]) == best


def test_a_limit_is_kept():
    free = problem_of(layers(3), MESH)
    limit = int(0.8 * measured(free, least_cost(free, [])).peak_bytes)
    problem = problem_of(layers(3), MESH, memory_bytes=limit)
    chosen = least_cost(problem, [])
    assert memory_of(problem.graph, plan_of(problem, chosen), XLA_CPU).peak_bytes <= limit
    assert problem.seconds(chosen) >= free.seconds(least_cost(free, []))


def test_where_nothing_fits_the_error_says_what_would():
    with pytest.raises(
        SporaxRuntimeError, match=r"For 'memory', the plan must fit into 10 B per device, but"
    ) as caught:
        least_cost(problem_of(product(), MESH, memory_bytes=10), [])
    stated = parse_bytes(re.search(r"but (\S+ \S+) is the smallest plan", str(caught.value)).group(1), "the limit")
    problem = problem_of(product(), MESH, memory_bytes=stated)
    assert measured(problem, least_cost(problem, [])).peak_bytes <= stated


def test_a_search_that_may_give_up_says_no_more_than_that_it_found_nothing_soon():
    with pytest.raises(
        SporaxRuntimeError, match=r"^For 'search', a plan must be found soon .* 10 bytes .* got none\.$"
    ):
        least_cost(problem_of(product(), MESH, memory_bytes=10, is_quick=True), [])


def test_a_known_choice_that_fits_is_taken_before_giving_up(monkeypatch):
    mesh = mesh_of(2)
    free = problem_of(training_step(), mesh)
    known = smallest(free)
    assert known.peak_bytes < measured(free, least_cost(free, [])).peak_bytes
    monkeypatch.setattr(limits, "fit", lambda problem, limit: measured(problem, [0] * len(problem.costs)))
    problem = problem_of(training_step(), mesh, memory_bytes=known.peak_bytes, is_quick=True)
    assert least_cost(problem, [known.chosen]) == known.chosen


def test_the_smallest_plan_is_no_larger_than_the_cheapest_and_remembered():
    problem = problem_of(layers(2), mesh_of(2))
    plan = smallest(problem)
    assert plan.peak_bytes <= measured(problem, choose(problem.cost_graph())).peak_bytes
    assert smallest(problem) is plan


def test_problems_are_large_from_a_few_hundred_decisions_on():
    assert not is_large(problem_of(layers(4), mesh_of(2)))
    assert is_large(problem_of(layers(140), mesh_of(2)))


def test_a_plan_that_fits_is_not_changed_by_its_limit():
    problem = problem_of(layers(12), MESH)
    chosen = choose_tied(problem)
    plan = lagrangian_plan(problem, measured(problem, chosen).peak_bytes, tied=True)
    assert plan.chosen == chosen


def test_prices_on_memory_make_the_plan_smaller():
    problem = problem_of(layers(12), MESH)
    free = measured(problem, choose_tied(problem))
    tight = lagrangian_plan(problem, int(0.7 * free.peak_bytes), tied=True)
    assert tight.peak_bytes < free.peak_bytes
    assert problem.seconds(tight.chosen) >= problem.seconds(free.chosen)
    assert lagrangian_plan(problem, int(0.7 * free.peak_bytes), tied=True) is tight  # cached with the problem


def test_the_loop_finds_what_tensors_alone_do_not_show():
    """Arguments are resharded at once where that saves memory, which the bytes of the tensors leave out."""
    mesh = DeviceMatrix((8,))
    model = Roofline(load_profile("h200"), link_costs(load_profile("h200"), mesh))
    graph = networks.recommendation(256, 4096).graph
    problem = ProblemBuilder(graph, mesh, model, SearchOptions(fully_use_devices=True)).build()
    limit = int(0.5 * measured(problem, choose(problem.cost_graph())).peak_bytes)

    assert fit(problem, limit).peak_bytes <= limit
    assert fit(problem, limit) is fit(problem, limit)


@pytest.mark.full
def test_a_plan_that_is_a_little_too_large_is_repaired_to_one_that_fits_and_takes_less_time():
    mesh = DeviceMatrix((2, 4))
    model = Roofline(RATES, link_costs(RATES, mesh))
    options = SearchOptions(fully_use_devices=True, platform="gpu")
    problem = ProblemBuilder(networks.mlp(6, 4096, 4096).graph, mesh, model, options).build()
    limit = 300_000_000

    larger, repaired = lagrangian_plan(problem, limit), fit(problem, limit)
    assert repaired.peak_bytes <= limit < larger.peak_bytes
    assert problem.seconds(repaired.chosen) < 0.95 * problem.seconds(larger.chosen)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("graph", "shape", "limit", "share"),
    [
        (networks.mlp(4, 256, 64).graph, (2, 4), 110_000, 0.9),
        (networks.mlp(6, 512, 64).graph, (2, 4), 275_000, 0.65),
        (networks.mixture(16, 64, 64, 8, 128).graph, (8,), 1_000_000, 0.995),
    ],
    ids=["four layers", "six layers", "experts"],
)
def test_plans_that_were_smaller_than_they_need_to_be_lead_to_better_ones(monkeypatch, graph, shape, limit, share):
    """Plans for lower limits take less time than that for this one, which is the first that is found."""
    mesh = DeviceMatrix(shape)
    model = Roofline(RATES, link_costs(RATES, mesh))
    problem = ProblemBuilder(graph, mesh, model, SearchOptions(fully_use_devices=True, platform="gpu")).build()
    best = fit(problem, limit)
    problem.plans.clear()
    monkeypatch.setattr(limits, "_SHRUNK", ())
    once = fit(problem, limit)
    assert max(best.peak_bytes, once.peak_bytes) <= limit
    assert problem.seconds(best.chosen) < share * problem.seconds(once.chosen)


def test_forbidden_candidates_are_not_taken_for_their_memory():
    free = problem_of(layers(3), MESH)
    least = smallest(free)
    forbidden = free.with_costs(
        [
            np.where(np.arange(len(costs)) == candidate, np.inf, costs) if len(costs) > 1 else costs
            for costs, candidate in zip(free.costs, least.chosen, strict=True)
        ]
    )
    plan = lagrangian_plan(forbidden, least.peak_bytes)
    assert np.isfinite(forbidden.seconds(plan.chosen))
    assert plan.chosen != least.chosen
