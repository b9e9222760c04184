"""The best plans, one after another."""

import itertools
from dataclasses import replace

import jax
import jax.numpy as jnp
import networks
import numpy as np
import pytest

import sporax
from sporax.base.errors import SporaxValueError
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.hardware import load_profile
from sporax.planner.budget import Budget
from sporax.planner.cost import Roofline, cost_of, link_costs
from sporax.planner.memory.peak import memory_of
from sporax.planner.memory.xla_cpu.kernel_fusion import XLA_CPU
from sporax.planner.plan_check import check_plan
from sporax.planner.search import SearchOptions, alternatives, dynamic, replicated_plan, trade_offs
from sporax.planner.search.alternatives import _choice_of, _Subspaces
from sporax.planner.search.sharding_propagation import heaviest_first
from sporax.planner.search.space.measured_plan import measured
from sporax.planner.search.space.problem import ProblemBuilder
from sporax.planner.search.task import SearchTask
from sporax.planner.solver import solve
from sporax.report.questions import PlannedGraph

MESH = DeviceMatrix((2, 2))
MODEL = Roofline(load_profile("cpu"), link_costs(load_profile("cpu"), MESH))
GRAPH = networks.mlp(2, 32, 512).graph


def answer(question, *step, budget=None, **settings):
    return question(SearchTask.of(*step, budget=budget), **settings)


@pytest.fixture(scope="module")
def reference():
    """The best plan without a limit."""
    return dynamic(GRAPH, MESH, MODEL)


@pytest.fixture(scope="module")
def all_trade_offs():
    """Plans from the fastest to the smallest, with as much time as they take."""
    return answer(trade_offs, GRAPH, MESH, MODEL, count=3, budget=Budget.of(600.0))


def best_of(problem, pinned):
    """Cost of the best plan with these candidates, by integer program."""
    costs = [cost.copy() for cost in problem.costs]
    for node, candidate in pinned.items():
        costs[node][np.arange(len(costs[node])) != candidate] = np.inf
    choices = solve(replace(problem, costs=tuple(costs)).cost_graph(), seconds=60).choices
    return np.inf if choices is None else problem.seconds(choices.tolist())


def test_they_are_the_cheapest_by_brute_force():
    problem = ProblemBuilder(GRAPH, MESH, MODEL, SearchOptions()).build()
    heavy = heaviest_first(problem)[:2]
    assignments = itertools.product(*(range(len(problem.costs[node])) for node in heavy))
    costs = sorted(best_of(problem, dict(zip(heavy, candidates, strict=True))) for candidates in assignments)

    actual = answer(alternatives, GRAPH, MESH, MODEL, count=12, decisions=2)

    assert [item.cost_seconds for item in actual] == pytest.approx(costs[:12], rel=1e-9)
    assert all(item.statistics["proven"] for item in actual)


def test_each_is_another_plan_that_can_run_and_costs_what_it_says():
    actual = answer(alternatives, GRAPH, MESH, MODEL, count=4)

    assert actual[0].cost_seconds == pytest.approx(dynamic(GRAPH, MESH, MODEL).cost_seconds)
    assert actual[0].optimal
    assert len({item.plan.operators for item in actual}) == 4
    for item in actual:
        check_plan(GRAPH, item.plan)
        assert cost_of(GRAPH, item.plan, MODEL).seconds == pytest.approx(item.cost_seconds, rel=1e-6)
        assert item.bound_seconds == actual[0].cost_seconds


def test_without_time_nothing_is_proven():
    actual = answer(alternatives, GRAPH, MESH, MODEL, count=3, budget=Budget.of(0.0))

    assert len(actual) == 3
    assert not any(item.statistics["proven"] or item.optimal for item in actual)
    assert actual[0].bound_seconds is None
    costs = [item.cost_seconds for item in actual]
    assert min(costs) >= dynamic(GRAPH, MESH, MODEL).cost_seconds * (1 - 1e-9)


@pytest.mark.full
def test_few_parts_are_decided_and_bounds_keep_the_others_out(monkeypatch):
    """The best plan and what messages leave open are solved; the bounds of all others are above what was found."""
    graph = networks.transformer(2, 8, 16, 64, 4).graph
    solved, looked_at = [], []
    exactly, look = _Subspaces._exactly, _Subspaces._looked_at
    monkeypatch.setattr(_Subspaces, "_exactly", lambda *item: solved.append(item) or exactly(*item))
    monkeypatch.setattr(_Subspaces, "_looked_at", lambda *item: looked_at.append(look(*item)) or looked_at[-1])
    actual = answer(alternatives, graph, MESH, MODEL, count=3, budget=Budget.of(300.0))

    assert all(item.statistics["proven"] and not item.statistics["cut_short"] for item in actual)
    assert len(solved) < len(looked_at) / 2
    assert all(item.bound <= item.seconds * (1 + 1e-9) for item in looked_at)


def test_a_plan_says_which_choice_it_was_made_of():
    actual = dynamic(GRAPH, MESH, MODEL)
    problem = ProblemBuilder(GRAPH, MESH, MODEL, SearchOptions()).build()
    chosen = _choice_of(problem, actual.plan)

    assert measured(problem, chosen).plan == actual.plan
    whole = replicated_plan(GRAPH, MESH)
    moved = replace(whole, operators=(replace(whole.operators[0], assignment=((9,), (), ())), *whole.operators[1:]))
    assert _choice_of(problem, moved) is None


@pytest.mark.full
def test_a_known_plan_is_the_first_under_a_memory_limit():
    limit = int(0.95 * dynamic(GRAPH, MESH, MODEL).statistics["peak_bytes"])
    options = SearchOptions(memory_bytes=limit)
    reference = dynamic(GRAPH, MESH, MODEL, options)
    actual = answer(alternatives, GRAPH, MESH, MODEL, options, count=1, incumbent=reference.plan)

    assert actual[0].plan == reference.plan
    fastest, *_ = answer(
        trade_offs, GRAPH, MESH, MODEL, options, count=2, budget=Budget.of(0.0), incumbent=reference.plan
    )
    assert fastest.plan == reference.plan


def test_there_are_no_more_than_there_are():
    """On one device there is one way to cut everything."""
    alone = DeviceMatrix((1,))
    model = Roofline(load_profile("cpu"), link_costs(load_profile("cpu"), alone))

    assert len(answer(alternatives, GRAPH, alone, model, count=5)) == 1


def test_bad_numbers_are_refused():
    with pytest.raises(SporaxValueError, match="'count' and 'decisions' must be at least 1, but got 0 and 6"):
        answer(alternatives, GRAPH, MESH, MODEL, count=0)
    with pytest.raises(SporaxValueError, match="'count' must be at least 1, but got 0"):
        answer(trade_offs, GRAPH, MESH, MODEL, count=0)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("share", "least"), [(0.97, 2), (0.945, 1)])
def test_they_keep_a_memory_limit(share, least, reference):
    limit = int(share * reference.statistics["peak_bytes"])
    actual = answer(alternatives, GRAPH, MESH, MODEL, SearchOptions(memory_bytes=limit), count=2, decisions=2)

    assert len(actual) >= least
    assert all(memory_of(GRAPH, item.plan, XLA_CPU).peak_bytes <= limit for item in actual)
    assert actual[0].cost_seconds >= reference.cost_seconds


def test_trade_offs_go_from_the_fastest_to_the_smallest(all_trade_offs, reference):
    actual = all_trade_offs
    times, sizes = [item.cost_seconds for item in actual], [item.statistics["peak_bytes"] for item in actual]

    assert len(actual) > 1
    assert times == sorted(times)
    assert sizes == sorted(sizes, reverse=True)
    assert times[0] == pytest.approx(reference.cost_seconds)
    assert all(
        memory_of(GRAPH, item.plan, XLA_CPU).peak_bytes == size for item, size in zip(actual, sizes, strict=True)
    )


def test_trade_offs_say_what_they_left_out_for_want_of_time(all_trade_offs):
    (only,) = answer(trade_offs, GRAPH, MESH, MODEL, count=3, budget=Budget.of(0.0))

    assert only.statistics["cut_short"] > 0
    assert [item.statistics["cut_short"] for item in all_trade_offs] == [0] * len(all_trade_offs)
    assert only.cost_seconds == all_trade_offs[0].cost_seconds


def test_trade_offs_of_a_jax_function_can_be_run():
    shape = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    planned = sporax.plan(lambda w, x: w - x @ w, shape, shape, devices=8, carry={0: 0})
    actual = planned.trade_offs(2)

    assert all(type(item) is type(planned) for item in actual)
    assert actual[-1].search.statistics["peak_bytes"] <= memory_of(planned.graph, planned.plan, XLA_CPU).peak_bytes
    assert actual[-1].in_shardings


def test_a_plan_that_was_not_searched_has_none():
    unsearched = PlannedGraph(GRAPH, replicated_plan(GRAPH, MESH), None, MODEL)
    with pytest.raises(SporaxValueError, match="'trade_offs', a search must make the plan"):
        unsearched.trade_offs()
    with pytest.raises(SporaxValueError, match="'alternatives', a search must make the plan"):
        unsearched.alternatives()
