"""Repeated blocks: what is tied, what tying costs, and that depth does not add decisions."""

import gc

import networks
import pytest
from running import assert_same_results

from sporax.base.errors import SporaxValueError
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.hardware import load_profile
from sporax.planner.cost import Roofline, link_costs
from sporax.planner.memory.peak import memory_of
from sporax.planner.memory.xla_cpu.kernel_fusion import XLA_CPU
from sporax.planner.plan_check import check_plan
from sporax.planner.search import MODES, SearchOptions, ilp, recursive, repeated, search
from sporax.planner.search.limit.limit import fit, lagrangian_plan, smallest
from sporax.planner.search.space.candidates import Catalogue
from sporax.planner.search.space.measured_plan import measured
from sporax.planner.search.space.problem import ProblemBuilder
from sporax.planner.solver.portfolio.quick_choice import choose, lower_bound

EIGHT = DeviceMatrix((2, 2, 2))
MODEL = Roofline(load_profile("cpu"), link_costs(load_profile("cpu"), EIGHT))


@pytest.fixture
def work(monkeypatch):
    """What searches choose from, bound and work out: names with numbers of decisions, and bundles by their structure."""
    seen = []

    def noted(reference):
        def noting(graph, *args, **keywords):
            seen.append((reference.__name__, graph.num_nodes))
            return reference(graph, *args, **keywords)

        return noting

    def worked_out(catalogue, task):
        seen.append(("bundle", task.structure))
        return reference(catalogue, task)

    reference = Catalogue._enumerate_bundle
    monkeypatch.setattr(Catalogue, "_enumerate_bundle", worked_out)
    monkeypatch.setattr("sporax.planner.search.space.repeated_blocks.choose", noted(choose))
    monkeypatch.setattr("sporax.planner.search.block_search.lower_bound", noted(lower_bound))
    return seen


def work_of(work, search, layers):
    work.clear()
    search(networks.mlp(layers, 32, 1024).graph, EIGHT, MODEL, SearchOptions(fully_use_devices=True))
    return [*work]


def test_depth_adds_nothing_to_work_out(work):
    few, many = (work_of(work, repeated, layers) for layers in (12, 20))

    assert {name for name, _ in few} == {"bundle", "choose", "lower_bound"}
    assert few == many


def test_the_fast_search_decides_as_much_for_many_layers_as_for_few(work):
    few, many = ([item for item in work_of(work, recursive, layers) if item[0] == "choose"] for layers in (12, 20))

    assert few
    assert few == many


@pytest.mark.parametrize("step", [networks.mlp(12, 32, 1024), networks.mlp(12, 1024, 128)])
def test_the_price_of_tying_is_small_and_certified(step):
    """The narrow network's best plan alternates from layer to layer."""
    best = ilp(step.graph, EIGHT, MODEL)
    actual = repeated(step.graph, EIGHT, MODEL)

    check_plan(step.graph, actual.plan)
    assert actual.bound_seconds <= best.cost_seconds * (1 + 1e-9)
    assert actual.cost_seconds <= 1.015 * best.cost_seconds


def test_a_bound_that_comes_up_to_the_cost_says_so():
    """Messages are sent until the bound does, or rises no more; either way no plan is below it."""
    graph, options = networks.mixture(16, 64, 64, 8, 128).graph, SearchOptions(fully_use_devices=True)
    problem = ProblemBuilder(graph, EIGHT, MODEL, options, approximate=True).build()
    whole = lower_bound(problem.cost_graph())
    actual = repeated(graph, EIGHT, MODEL, options)

    assert actual.optimal
    assert lower_bound(problem.cost_graph(), reached=whole) <= whole * (1 + 1e-9)
    assert lower_bound(problem.cost_graph(), reached=whole) >= whole * (1 - 1e-4)


def test_a_plan_runs_as_on_one_device():
    step = networks.mlp(6, 32, 256)
    assert_same_results(step, repeated(step.graph, EIGHT, MODEL, SearchOptions(fully_use_devices=True)).plan)


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_finds_a_plan(mode):
    graph = networks.mlp(2, 64, 64).graph
    actual = search(graph, EIGHT, MODEL, mode)

    check_plan(graph, actual.plan)
    assert actual.cost_seconds > 0
    assert actual.seconds > 0
    assert str(actual).startswith("SearchResult(")


def test_an_unknown_mode_is_refused():
    with pytest.raises(SporaxValueError, match="'mode' must be one of .* but got 'magic'"):
        search(networks.mlp(2, 64, 64).graph, EIGHT, MODEL, "magic")


def test_garbage_is_collected_again_after_a_search_and_after_one_that_fails():
    graph = networks.mlp(2, 64, 64).graph
    search(graph, EIGHT, MODEL, "recursive")
    assert gc.isenabled()

    with pytest.raises(SporaxValueError, match="every axis must be one of the 3 axes"):
        search(graph, EIGHT, MODEL, "recursive", SearchOptions(units=((7,),)))
    assert gc.isenabled()


@pytest.fixture
def counted(monkeypatch):
    """How many plans were decided alike, and how many measured, under a limit."""
    seen = {"choose": 0, "measured": 0}

    def counting(expected):
        def count(*args, **keywords):
            seen[expected.__name__] += 1
            return expected(*args, **keywords)

        return count

    monkeypatch.setattr("sporax.planner.search.space.repeated_blocks.choose", counting(choose))
    monkeypatch.setattr("sporax.planner.search.limit.limit.measured", counting(measured))
    return seen


def limited(layers, share):
    """A network and the options with a share of the memory of its fastest plan."""
    graph = networks.mlp(layers, 256, 256).graph
    fastest = repeated(graph, EIGHT, MODEL)
    peak = memory_of(graph, fastest.plan, XLA_CPU).peak_bytes
    return graph, fastest, SearchOptions(memory_bytes=int(share * peak))


def test_a_price_on_bytes_leaves_blocks_alike(counted):
    """So that what it takes to keep a limit does not grow with depth."""
    counts = []
    for layers in (12, 20):
        graph, fastest, options = limited(layers, 0.9)
        counted.update(choose=0, measured=0)
        problem = ProblemBuilder(graph, EIGHT, MODEL, options).build()
        actual = lagrangian_plan(problem, options.memory_bytes, tied=True)
        counts.append(counted["measured"])

        check_plan(graph, actual.plan)
        assert memory_of(graph, actual.plan, XLA_CPU).peak_bytes == actual.peak_bytes <= options.memory_bytes
        assert problem.seconds(actual.chosen) >= fastest.bound_seconds * (1 - 1e-9)
        assert lagrangian_plan(problem, options.memory_bytes, tied=True) is actual

    assert counts[0] == counts[1] == counted["choose"]


@pytest.mark.full
def test_where_blocks_that_are_alike_do_not_fit_decisions_are_freed(monkeypatch):
    monkeypatch.setattr("sporax.planner.search.limit.limit._LARGE", 0)
    problem = ProblemBuilder(
        networks.mlp(5, 64, 256).graph, EIGHT, MODEL, SearchOptions(fully_use_devices=True)
    ).build()
    alike, free = lagrangian_plan(problem, 0, tied=True), smallest(problem)

    assert free.peak_bytes < 0.9 * alike.peak_bytes
    assert fit(problem, alike.peak_bytes).peak_bytes <= alike.peak_bytes


@pytest.mark.parametrize("mode", ["recursive", "repeated_blocks"])
@pytest.mark.sampled(1)
def test_large_problems_are_decided_alike_and_query_no_rank(mode, counted, monkeypatch):
    """Messages that look at every decision by itself take minutes where there are thousands."""
    monkeypatch.setattr("sporax.planner.search.limit.limit._LARGE", 0)
    monkeypatch.setattr("sporax.planner.search.limit.limit.reduce_memory", None)
    monkeypatch.setattr("sporax.planner.search.limit.limit.improved", None)
    graph, _, options = limited(12, 0.9)
    actual = search(graph, EIGHT, MODEL, mode, options)

    assert counted["choose"] > 0
    assert memory_of(graph, actual.plan, XLA_CPU).peak_bytes <= options.memory_bytes
