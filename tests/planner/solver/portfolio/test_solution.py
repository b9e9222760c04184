from pathlib import Path

import numpy as np
import pytest
from contest_graphs import read_graph
from hypothesis import given, settings, strategies as st
from solver_graphs import random_graph
from synthetic_graphs import training_step

from sporax.base.errors import SporaxValueError
from sporax.planner.solver import CostGraph, evaluate, solve
from sporax.planner.solver.methods.exact import Answer

DATA = Path(__file__).parents[3] / "data" / "iopddl"
SEEDS = st.integers(0, 10**9)


@settings(deadline=None, max_examples=60)
@given(seed=SEEDS, limited=st.booleans())
def test_tiny_graphs_are_solved_to_proven_optimality(seed, limited, tiny_graph, least):
    graph = tiny_graph(seed, limited=limited)
    expected = least(graph)
    solution = solve(graph, seconds=30)
    if expected == np.inf:
        assert solution.choices is None
        assert solution.infeasible
        assert not solution.optimal
        return
    assert solution.optimal
    assert solution.cost == solution.bound == expected
    assert solution.gap == 0
    assert evaluate(graph, solution.choices).feasible


@pytest.mark.parametrize(("name", "least_cost"), [("G", 217_039), ("B", 532_843)])
@pytest.mark.sampled(1)
def test_contest_graphs_are_solved_to_proven_optimality(name, least_cost):
    graph = read_graph(DATA / f"{name}.json.gz")
    solution = solve(graph, seconds=120)
    assert (solution.cost, solution.bound, solution.optimal) == (least_cost, least_cost, True)
    assert solution.peak <= graph.limit
    assert evaluate(graph, solution.choices).cost == least_cost


def test_large_graphs_without_memory_are_solved_by_messages_first(monkeypatch):
    graph = random_graph(3, nodes=14, limit=None)
    expected = solve(graph, seconds=60)
    assert expected.statistics["method"] == "integer program"
    monkeypatch.setattr("sporax.planner.solver.portfolio.solution._SMALL_ENTRIES", -1)
    solution = solve(graph, seconds=60)
    assert solution.statistics["method"] in ("elimination", "messages", "integer program")
    assert (solution.cost, solution.optimal) == (expected.cost, True)


def test_what_the_program_leaves_open_is_closed_otherwise(monkeypatch):
    graph = random_graph(3, nodes=14, limit=None)
    expected = solve(graph, seconds=60)
    monkeypatch.setattr("sporax.planner.solver.portfolio.solution._SMALL_SECONDS", 0.0)
    solution = solve(graph, seconds=60)
    assert (solution.cost, solution.optimal) == (pytest.approx(expected.cost), True)


@pytest.mark.parametrize("limit", [None, 10**9])
def test_without_the_program_there_is_a_choice_with_a_bound(limit, monkeypatch):
    graph = random_graph(3, nodes=14, limit=limit)
    best = solve(graph).cost
    monkeypatch.setattr(
        "sporax.planner.solver.methods.exact.solve_program", lambda *_, **__: Answer(None, -np.inf, False)
    )
    solution = solve(graph)
    assert evaluate(graph, solution.choices).cost == solution.cost <= 1.1 * best
    assert solution.bound <= best + 1e-6


def test_when_time_runs_out_the_best_so_far_is_returned(monkeypatch):
    graph = training_step(layers=6, mesh=(2, 4, 4), choices=20, width=32)
    monkeypatch.setattr("sporax.planner.solver.portfolio.solution._SMALL_ENTRIES", -1)
    solution = solve(graph, seconds=0.01)
    assert evaluate(graph, solution.choices).cost == solution.cost
    assert solution.bound is None
    assert not solution.optimal


def test_large_graphs_are_proven_to_fit_nothing_too(monkeypatch):
    # Three nodes pairwise forbidden to agree on two strategies: no reduction sees it, memory binds nowhere.
    differ = [1e18, 0, 0, 1e18]
    edges = [(0, 1, differ), (1, 2, differ), (0, 2, differ)]
    graph = CostGraph.build([[1, 2]] * 3, [[1, 1]] * 3, [(0, 1)] * 3, edges, None)
    assert solve(graph).infeasible
    monkeypatch.setattr("sporax.planner.solver.portfolio.solution._SMALL_ENTRIES", -1)
    solution = solve(graph, seconds=60)
    assert solution.infeasible
    assert solution.choices is None


def test_an_empty_graph_costs_nothing():
    solution = solve(CostGraph.build([], [], [], [], None))
    assert (solution.cost, solution.optimal, solution.peak) == (0, True, 0)


def test_the_memory_limit_is_what_makes_it_dear():
    graph = CostGraph.build([[1, 5]], [[9, 2]], [(0, 1)], [], limit=4)
    assert solve(graph).choices.tolist() == [1]


@pytest.mark.parametrize("arguments", [{"seconds": 0}, {"seconds": float("nan")}])
def test_wrong_budgets_are_refused(arguments):
    with pytest.raises(SporaxValueError, match="seconds must be positive"):
        solve(CostGraph.build([], [], [], [], None), **arguments)
