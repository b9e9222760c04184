"""A worker: one process with a role or two, driven through its standard input and output.

Workers are separate interpreters (not forks: the caller may run threads; and HiGHS may overrun its time limit, so that
only a process can be stopped on time). The first pickle on standard input is the `WorkerTask`; after it come better choices
and marginals that other workers found. Pickles on standard output are `News`, or a `Failure` at the end. What libraries
print goes to standard error.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import traceback
from dataclasses import dataclass
from typing import BinaryIO

from team_roles import BestKnown, Bounder, Searcher

from sporax.planner.budget import Budget
from sporax.planner.solver.graph.core import Core
from sporax.planner.solver.graph.cost_graph import Floats, Ints
from sporax.planner.solver.graph.network import Network


@dataclass(frozen=True, slots=True)
class WorkerTask:
    """What a worker is started with.

    Attributes:
        network: the core as a network; positions in `News` are strategies of its nodes.
        budget: how long to work; its clock is that of all processes of the machine.
        seed: seed of the worker's randomness.
        bounds: work on the bound.
        start: cost and positions of a choice to begin with, if one is known.
        searches: search for better choices from the start; otherwise only once the bound has converged.
    """

    network: Network
    budget: Budget
    seed: int
    bounds: bool
    searches: bool
    start: tuple[float, Ints] | None = None


@dataclass(frozen=True, slots=True)
class News:
    """An improvement: a choice with its cost, a bound, marginals; what is absent is None or infinite."""

    positions: Ints | None
    cost: float
    bound: float
    marginals: tuple[float, Floats] | None


@dataclass(frozen=True, slots=True)
class Failure:
    """Last words of a worker that met an error."""

    text: str


def work(task: WorkerTask, board: BestKnown) -> None:
    """Runs the task's roles, the one that used least of its share first, until all is proven or time is up."""
    core = Core.of(task.network)
    bounder = Bounder(core, board) if task.bounds else None
    searcher = Searcher(core, board, task.seed)
    used = {"bounder": 0.0, "searcher": 0.0}
    converged = False
    while not task.budget.is_over and not board.closed:
        # A bounder that has converged rarely improves, so both roles start their accounts again at that point.
        if bounder is not None and bounder.converged != converged:
            converged, used = bounder.converged, {"bounder": 0.0, "searcher": 0.0}
        bounding = bounder is not None and not bounder.finished and _bounder_turn(task, converged, used)
        turn = Budget.unlimited()
        if bounding and bounder is not None:
            bounder.step(task.budget)
        else:
            searcher.step(task.budget)
        used["bounder" if bounding else "searcher"] += turn.used


def _bounder_turn(task: WorkerTask, converged: bool, used: dict[str, float]) -> bool:
    """A converged bounder gets a fifth of the time, a rising one half or all."""
    if not converged:
        return not task.searches or used["bounder"] <= used["searcher"]
    return 4 * used["bounder"] <= used["searcher"]


def _listen(source: BinaryIO, board: BestKnown) -> None:
    """Takes in what others found, until the other side closes; then the process ends."""
    while True:
        try:
            news: News = pickle.load(source)
        except (EOFError, pickle.UnpicklingError):
            os._exit(0)
        if news.positions is not None:
            board.take(news.cost, news.positions)
        board.bound = max(board.bound, news.bound)
        board.marginals = news.marginals or board.marginals


def main() -> None:
    """Entry point of the worker process."""
    # The real standard output carries pickles; whatever libraries print goes to standard error.
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    source = sys.stdin.buffer
    task: WorkerTask = pickle.load(source)

    def post(positions: Ints | None, cost: float, bound: float, marginals: tuple[float, Floats] | None) -> None:
        pickle.dump(News(positions, cost, bound, marginals), output)
        output.flush()

    board = BestKnown(post)
    if task.start is not None:
        board.take(*task.start)
    threading.Thread(target=_listen, args=(source, board), daemon=True).start()
    try:
        work(task, board)
    except Exception:
        pickle.dump(Failure(traceback.format_exc()), output)
    # A normal exit would wait for the lock on standard input, which the listening thread holds.
    output.close()
    os._exit(0)
