import numpy as np
import pytest
from solver_graphs import whole

from sporax.planner.budget import Budget
from sporax.planner.solver import CostGraph
from sporax.planner.solver.graph.core import Core
from sporax.planner.solver.graph.cost_graph import Moments
from sporax.planner.solver.graph.network import Network
from sporax.planner.solver.portfolio.roles import BestKnown
from sporax.planner.solver.portfolio.team import run_team


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
