import io
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from solver_graphs import whole
from synthetic_graphs import training_step
from team_roles import BestKnown
from team_worker import Failure, News, WorkerTask, work

from sporax.planner.budget import Budget
from sporax.planner.solver import CostGraph
from sporax.planner.solver.graph.core import Core
from sporax.planner.solver.graph.cost_graph import Moments
from sporax.planner.solver.graph.network import Network
from sporax.planner.solver.graph.reductions import reduce

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "iopddl"


@pytest.mark.parametrize("searches", [True, False])
def test_a_task_is_worked_until_the_board_is_closed(board, searches):
    graph = training_step(layers=1, mesh=(2, 4), choices=6, width=16)
    core = Core.of(reduce(Network.of(graph, Moments.of(graph.intervals))))
    work(WorkerTask(core.as_network(), Budget.of(60.0), 0, True, searches), board)
    assert board.closed
    assert core.cost(board.positions) == board.cost


def easy_core():
    return whole(CostGraph.build([[1, 2], [3, 4]], [[1, 1]] * 2, [(0, 1)] * 2, [(0, 1, [1, 0, 0, 1])], None))


def test_no_work_is_done_past_the_deadline(board):
    work(WorkerTask(easy_core().as_network(), Budget.of(-1.0), 0, True, True), board)
    assert board.positions is None
    assert board.bound == -np.inf


def test_a_board_that_is_closed_needs_no_work(board):
    board.take(4.0, np.array([0, 1]))
    board.bounded(4.0)
    work(WorkerTask(easy_core().as_network(), Budget.of(60.0), 0, True, True), board)
    assert board.positions.tolist() == [0, 1]


def run_worker(task):
    """The messages of a worker process that is given this task, and an end of its input only after it is done."""
    command = [sys.executable, "-c", "from team_worker import main; main()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=BENCHMARK) as process:
        pickle.dump(task, process.stdin)
        process.stdin.flush()
        output = io.BytesIO(process.stdout.read())
    messages = []
    while output.tell() < len(output.getvalue()):
        messages.append(pickle.load(output))
    return messages


def test_a_worker_process_posts_the_optimum_and_ends():
    messages = run_worker(WorkerTask(easy_core().as_network(), Budget.of(60.0), 0, True, True))
    assert all(isinstance(message, News) for message in messages)
    assert messages[-1].cost == min(1 + 3 + 1, 1 + 4, 2 + 3, 2 + 4 + 1)
    assert messages[-1].bound == pytest.approx(messages[-1].cost)


def test_a_worker_process_that_meets_an_error_says_which():
    network = easy_core().as_network()
    network.links[0][1] = np.zeros((5, 5))  # not the shape of its nodes
    *_, last = run_worker(WorkerTask(network, Budget.of(60.0), 0, True, True))
    assert isinstance(last, Failure)
    assert "Traceback" in last.text


@pytest.fixture
def board():
    return BestKnown(lambda *news: None)
