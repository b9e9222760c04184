"""The best plans, one after another."""

import itertools

import jax
import jax.numpy as jnp
import networks
import pytest

import sporax
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.errors import SporaxValueError
from sporax.ir.hardware import load_profile
from sporax.planner.check import check_plan
from sporax.planner.cost import Roofline, cost_of, link_costs
from sporax.planner.memory import memory_of
from sporax.planner.planned import PlannedGraph
from sporax.planner.search import SearchOptions, alternatives, dynamic, trade_offs, whole_plan
from sporax.planner.search.alternatives import _best
from sporax.planner.search.problem import ProblemBuilder
from sporax.planner.search.seeds import heaviest_first

MESH = DeviceMatrix((2, 2))
MODEL = Roofline(load_profile("cpu"), link_costs(load_profile("cpu"), MESH))
GRAPH = networks.mlp(2, 32, 512).graph


def test_they_are_the_cheapest_by_brute_force():
    problem = ProblemBuilder(GRAPH, MESH, MODEL, SearchOptions()).build()
    heavy = heaviest_first(problem)[:2]
    graph = problem.cost_graph()
    ways = itertools.product(*(range(len(problem.costs[node])) for node in heavy))
    pinned = ({node: (each,) for node, each in zip(heavy, way, strict=True)} for way in ways)
    costs = sorted(_best(problem, graph, each, float("inf")).seconds for each in pinned)

    found = alternatives(GRAPH, MESH, MODEL, count=12, decisions=2)

    assert [each.cost_seconds for each in found] == pytest.approx(costs[:12], rel=1e-9)
    assert all(each.statistics["proven"] for each in found)


def test_each_is_another_plan_that_can_run_and_costs_what_it_says():
    found = alternatives(GRAPH, MESH, MODEL, count=4)

    assert found[0].cost_seconds == pytest.approx(dynamic(GRAPH, MESH, MODEL).cost_seconds)
    assert found[0].optimal
    assert len({each.plan.operators for each in found}) == 4
    for each in found:
        check_plan(GRAPH, each.plan)
        assert cost_of(GRAPH, each.plan, MODEL).seconds == pytest.approx(each.cost_seconds, rel=1e-6)
        assert each.bound_seconds == found[0].cost_seconds


def test_without_time_nothing_is_proven():
    found = alternatives(GRAPH, MESH, MODEL, count=3, seconds=0.0)

    assert len(found) == 3
    assert not any(each.statistics["proven"] or each.optimal for each in found)
    assert found[0].bound_seconds is None
    costs = [each.cost_seconds for each in found]
    assert min(costs) >= dynamic(GRAPH, MESH, MODEL).cost_seconds * (1 - 1e-9)


def test_there_are_no_more_than_there_are():
    """On one device there is one way to cut everything."""
    alone = DeviceMatrix((1,))
    model = Roofline(load_profile("cpu"), link_costs(load_profile("cpu"), alone))

    assert len(alternatives(GRAPH, alone, model, count=5)) == 1


def test_bad_numbers_are_refused():
    with pytest.raises(SporaxValueError, match="'count' and 'decisions' must be at least 1, but got 0 and 6"):
        alternatives(GRAPH, MESH, MODEL, count=0)
    with pytest.raises(SporaxValueError, match="'count' must be at least 1, but got 0"):
        trade_offs(GRAPH, MESH, MODEL, count=0)


@pytest.mark.parametrize(("share", "least"), [(0.95, 2), (0.9, 1)])
def test_they_keep_a_memory_limit(share, least):
    free = dynamic(GRAPH, MESH, MODEL)
    limit = int(share * free.statistics["peak_bytes"])
    found = alternatives(GRAPH, MESH, MODEL, SearchOptions(memory_bytes=limit), count=2, decisions=2)

    assert len(found) >= least
    assert all(memory_of(GRAPH, each.plan).peak_bytes <= limit for each in found)
    assert found[0].cost_seconds >= free.cost_seconds


def test_trade_offs_go_from_the_fastest_to_the_smallest():
    found = trade_offs(GRAPH, MESH, MODEL, count=3)
    times, sizes = [each.cost_seconds for each in found], [each.statistics["peak_bytes"] for each in found]

    assert len(found) > 1
    assert times == sorted(times)
    assert sizes == sorted(sizes, reverse=True)
    assert times[0] == pytest.approx(dynamic(GRAPH, MESH, MODEL).cost_seconds)
    assert all(memory_of(GRAPH, each.plan).peak_bytes == size for each, size in zip(found, sizes, strict=True))


def test_trade_offs_of_a_jax_function_can_be_run():
    shape = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    planned = sporax.plan(lambda w, x: w - x @ w, shape, shape, devices=8, carry={0: 0})
    found = planned.trade_offs(2)

    assert all(type(each) is type(planned) for each in found)
    assert found[-1].search.statistics["peak_bytes"] <= memory_of(planned.graph, planned.plan).peak_bytes
    assert found[-1].in_shardings


def test_a_plan_that_was_not_searched_has_none():
    unsearched = PlannedGraph(GRAPH, whole_plan(GRAPH, MESH), None, MODEL)
    with pytest.raises(SporaxValueError, match="'trade_offs', the plan must come from a search"):
        unsearched.trade_offs()
    with pytest.raises(SporaxValueError, match="'alternatives', the plan must come from a search"):
        unsearched.alternatives()
