import numpy as np
import pytest
from solver_graphs import whole
from synthetic_graphs import training_step
from team import run_team, solve
from team_roles import BestKnown

from sporax.base.errors import SporaxValueError
from sporax.planner.budget import Budget
from sporax.planner.solver import CostGraph
from sporax.planner.solver.graph.core import Core
from sporax.planner.solver.graph.cost_graph import Moments
from sporax.planner.solver.graph.network import Network


def test_a_team_closes_the_board(tiny_graph, least):
    graph = tiny_graph(7, forbidden=0.0, limited=False)
    core, board = whole(graph), BestKnown(lambda *news: None)
    run_team(core, board, budget=Budget.of(60), threads=2, seed=0)
    assert board.closed
    assert core.cost(board.positions) == board.cost == least(graph)


def test_a_worker_that_fails_is_reported():
    graph = CostGraph.build([[1, 2], [3, 4]], [[1, 1]] * 2, [(0, 1)] * 2, [(0, 1, [1, 0, 0, 1])], None)
    network = Network.of(graph, Moments.of(graph.intervals))
    network.links[0][1] = np.zeros((5, 5))  # not the shape of its nodes
    with pytest.warns(RuntimeWarning, match="A worker of the solver failed"):
        run_team(Core.of(network), BestKnown(lambda *news: None), budget=Budget.of(60), threads=1, seed=0)


def test_a_deadline_in_the_past_returns_at_once(tiny_graph):
    core, board = whole(tiny_graph(7)), BestKnown(lambda *news: None)
    run_team(core, board, budget=Budget.of(-1), threads=1, seed=0)
    assert board.positions is None


@pytest.mark.parametrize("threads", [1, 2])
def test_workers_agree_with_the_integer_program(threads, monkeypatch):
    graph = training_step(layers=2, mesh=(2, 4), choices=8, width=16)
    expected = solve(graph, seconds=60)
    assert expected.optimal
    monkeypatch.setattr("sporax.planner.solver.portfolio.solution._SMALL_ENTRIES", -1)
    improvements = []
    solution = solve(graph, seconds=60, threads=threads, progress=lambda *news: improvements.append(news))
    assert solution.statistics["method"] == "team"
    assert solution.cost == expected.cost
    assert solution.optimal
    assert improvements[-1][1] == expected.cost


def test_workers_prove_that_nothing_fits(monkeypatch):
    # Three nodes pairwise forbidden to agree on two strategies: no reduction sees it, memory binds nowhere.
    differ = [1e18, 0, 0, 1e18]
    edges = [(0, 1, differ), (1, 2, differ), (0, 2, differ)]
    graph = CostGraph.build([[1, 2]] * 3, [[1, 1]] * 3, [(0, 1)] * 3, edges, None)
    assert solve(graph).infeasible
    monkeypatch.setattr("sporax.planner.solver.portfolio.solution._SMALL_ENTRIES", -1)
    solution = solve(graph, seconds=60)
    assert solution.infeasible
    assert solution.choices is None


@pytest.mark.parametrize("arguments", [{"seconds": 0}, {"threads": 0}])
def test_wrong_budgets_are_refused(arguments):
    with pytest.raises(SporaxValueError, match="seconds and threads must be positive"):
        solve(CostGraph.build([], [], [], [], None), **arguments)
