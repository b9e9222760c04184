"""The team: starts workers on a core, passes results on between them, and stops them on time.

Problem: proving a bound and finding good choices profit from each other, and HiGHS cannot be stopped from inside.

Method: what `sporax.planner.solver` leaves open goes to one process per worker (`team_worker`), joined to this one by pipes.
A thread per pipe and direction keeps both sides from blocking each other. What one worker finds goes to all others. When the
time is over the processes are killed.
"""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np
from team_roles import BestKnown
from team_worker import Failure, News, WorkerTask

from sporax.base.errors import SporaxValueError
from sporax.planner.budget import Budget
from sporax.planner.solver.graph.core import Core
from sporax.planner.solver.graph.cost_graph import CostGraph
from sporax.planner.solver.portfolio.solution import (
    Incumbent,
    Solution,
    answer,
    attempt,
    is_small,
    reduced,
    small_part,
    start_with_descent,
)

_ENTRY = "import sys; sys.path[:] = {path!r}; from team_worker import main; main()"
"""Program of a worker: the same import path as here, which ``python -m`` would not give to a source checkout."""


@dataclass(slots=True)
class _Member:
    process: subprocess.Popen[bytes]
    outbox: queue.Queue[bytes | None] = field(default_factory=queue.Queue)
    threads: list[threading.Thread] = field(default_factory=list)


_GRACE_SECONDS = 2.0
"""Overtime for finishing the reduction."""


def solve(
    graph: CostGraph,
    *,
    seconds: float = 60.0,
    threads: int = 1,
    seed: int = 0,
    progress: Callable[[float, float, float], None] | None = None,
) -> Solution:
    """As `sporax.planner.solver.solve`, with a team for graphs that are not solved at once.

    Args:
        graph: the problem.
        seconds: wall-clock budget, kept to within a few seconds; an optimal answer comes earlier.
        threads: worker processes.
        seed: seed of the random choices in the search.
        progress: called with (seconds so far, best cost, bound) on every improvement.

    Raises:
        SporaxValueError: `seconds` or `threads` is not positive.
    """
    if not seconds > 0 or threads < 1:
        raise SporaxValueError(
            f"For 'solve', seconds and threads must be positive, but got seconds={seconds} and threads={threads}."
        )
    budget = Budget.of(seconds)
    core, infeasible = reduced(graph, budget.longer(_GRACE_SECONDS))
    found = Incumbent(bound=np.inf, method="reduction", is_final=True) if infeasible else Incumbent()
    if not infeasible and is_small(core):
        attempt(core, found, small_part(budget))
    if found.positions is None and not found.is_final:
        start_with_descent(core, found, budget)
    board = BestKnown(lambda *news: None, found.cost, found.positions, found.bound)
    if progress is not None:
        report = progress
        board.post = lambda *news: report(budget.used, board.cost, board.bound)
        if found.positions is not None:
            report(budget.used, board.cost, board.bound)
    if not found.is_final and not budget.is_over:
        run_team(core, board, budget=budget, threads=threads, seed=seed)
        found = Incumbent(board.positions, board.cost, board.bound, "team")
    return answer(graph, core, found, budget)


def run_team(core: Core, board: BestKnown, *, budget: Budget, threads: int, seed: int) -> None:
    """Works on `core` with `threads` processes until the board is closed or the budget is over.

    The first worker bounds; the others search. A single worker does both in turn. Results go to `board`.
    """
    inbox: queue.Queue[tuple[int, News | Failure | None]] = queue.Queue()
    network = core.as_network()
    start = None if board.positions is None else (board.cost, board.positions)
    members: list[_Member] = []
    try:
        for number in range(threads):
            # The first bounds; the others search. One worker alone does both.
            task = WorkerTask(network, budget, seed + number, number == 0, number > 0 or threads == 1, start)
            members.append(_start(task, number, inbox))
        alive = set(range(threads))
        while alive and not board.closed and not budget.is_over:
            try:
                number, news = inbox.get(timeout=budget.left)
            except queue.Empty:
                break
            if news is None:
                alive.discard(number)
            elif isinstance(news, Failure):
                warnings.warn(f"A worker of the solver failed; the others go on. {news.text}", RuntimeWarning)
            else:
                _relay(news, number, board, members)
    finally:
        for member in members:
            # Killed and not stopped: a worker may be inside HiGHS for minutes.
            member.process.kill()
            # Wakes the writing thread, which then closes its pipe.
            member.outbox.put(None)
        for member in members:
            member.process.wait()
            for thread in member.threads:
                thread.join()


def _relay(news: News, sender: int, board: BestKnown, members: list[_Member]) -> None:
    """Updates the board and notifies the others what is new."""
    better = news.positions is not None and news.cost < board.cost
    board.bounded(news.bound, news.marginals)
    if better and news.positions is not None:
        board.post_choice(news.cost, news.positions)
    elif news.marginals is None:
        return
    # Positions that others have already are not sent again: they are the large part of a message.
    data = pickle.dumps(replace(news, positions=news.positions if better else None))
    for number, member in enumerate(members):
        if number != sender:
            member.outbox.put(data)


def _start(task: WorkerTask, number: int, inbox: queue.Queue[tuple[int, News | Failure | None]]) -> _Member:
    # One thread of linear algebra each: the workers already fill the cores.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", _ENTRY.format(path=sys.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # HiGHS talks
        env=environment,
    )
    member = _Member(process)
    member.outbox.put(pickle.dumps(task))
    for target, arguments in ((_write, (member,)), (_read, (member, number, inbox))):
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        thread.start()
        member.threads.append(thread)
    return member


def _write(member: _Member) -> None:
    """Feeds a worker's standard input, so that a busy worker never blocks the team."""
    stream = member.process.stdin
    assert stream is not None
    with suppress(OSError), stream:  # a worker that is gone leaves a broken pipe, and its reader says so
        while (data := member.outbox.get()) is not None:
            stream.write(data)
            stream.flush()


def _read(member: _Member, number: int, inbox: queue.Queue[tuple[int, News | Failure | None]]) -> None:
    stream = member.process.stdout
    assert stream is not None
    with stream:
        while True:
            # Each pickle comes from our own worker, so loading it is safe; the pipe ends with the process.
            try:
                inbox.put((number, pickle.load(stream)))
            except (EOFError, pickle.UnpicklingError, OSError):
                inbox.put((number, None))
                return
