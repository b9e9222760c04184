"""Regions decided anew, measured."""

import networks
import pytest

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.hardware import load_profile
from sporax.planner.cost import Roofline, link_costs
from sporax.planner.memory.peak import memory_of
from sporax.planner.memory.xla_cpu.kernel_fusion import XLA_CPU
from sporax.planner.plan_check import check_plan
from sporax.planner.search import SearchOptions, search
from sporax.planner.search.limit import local_search
from sporax.planner.search.limit.limit import smallest
from sporax.planner.search.limit.local_search import _improved, _Regions, improved, reduce_memory
from sporax.planner.search.space.measured_plan import measured
from sporax.planner.search.space.problem import ProblemBuilder
from sporax.planner.solver.portfolio.quick_choice import choose

MESH = DeviceMatrix((8,))
MODEL = Roofline(load_profile("h200"), link_costs(load_profile("h200"), MESH))
OPTIONS = SearchOptions(fully_use_devices=True)
LIMIT = 1_090_000


@pytest.fixture(scope="module")
def problem():
    return ProblemBuilder(networks.mixture(16, 64, 64, 8, 128).graph, MESH, MODEL, OPTIONS).build()


@pytest.fixture(scope="module")
def fastest(problem):
    return measured(problem, choose(problem.cost_graph()))


def test_regions_find_what_no_decision_finds_alone(problem, fastest, monkeypatch):
    monkeypatch.setattr(local_search, "_LARGEST_REGION", 1)  # below the smallest: there are no regions
    alone = improved(problem, reduce_memory(problem, fastest, LIMIT), LIMIT)
    monkeypatch.undo()
    together = improved(problem, alone, LIMIT)

    assert fastest.peak_bytes > LIMIT
    assert problem.seconds(together.chosen) < 0.8 * problem.seconds(alone.chosen)
    check_plan(problem.graph, together.plan)
    assert memory_of(problem.graph, together.plan, XLA_CPU).peak_bytes == together.peak_bytes <= LIMIT


def test_the_fastest_plan_stays_where_it_fits(problem, fastest):
    assert improved(problem, fastest, fastest.peak_bytes).chosen == fastest.chosen


@pytest.mark.full
def test_all_searches_end_at_plans_that_cost_nearly_the_same(problem):
    within = SearchOptions(fully_use_devices=True, memory_bytes=LIMIT)
    modes = ("dynamic_programming", "recursive_programming", "sharding_propagation")
    costs = [search(problem.graph, MESH, MODEL, mode, within).cost_seconds for mode in modes]
    assert max(costs) < 1.05 * min(costs)


@pytest.mark.full
def test_with_a_penalty_on_bytes_a_region_is_found_that_fits():
    """Those of least cost are too large; others cost less than those that there are, and fit."""
    mesh = DeviceMatrix((2, 4))
    model = Roofline(load_profile("h200"), link_costs(load_profile("h200"), mesh))
    problem = ProblemBuilder(networks.mlp(4, 1024, 128, False).graph, mesh, model, SearchOptions()).build()
    least = smallest(problem)
    limit = least.peak_bytes * 7 // 5
    free, left = _improved(problem, least, limit, _Regions(problem), 400)
    cheap = improved(problem, least, limit)

    assert left > 0
    assert cheap.peak_bytes <= limit
    assert problem.seconds(cheap.chosen) < 0.95 * problem.seconds(free.chosen)
