"""What a soak declares, what it gets for a case, and how it disturbs processes.

A scenario is a declaration and a body: the declaration says how cases are drawn, and the body runs one, returns how it went, and
raises where it went wrong. `tools/soak.py` counts, reports and repeats, the same for all.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RUNNER = Path(__file__).parents[1] / "soak.py"
SURVIVED = "survived"
_BUSY = "import numpy as np\nx = np.random.rand(300, 300)\nwhile True: x = x @ x; x /= abs(x).max()"


class NotCountedError(Exception):
    """A case says nothing here: something that it needs is not installed, or it is too small."""


class UnavailableError(Exception):
    """No case can be run on this computer."""


class Faults:
    """Signals to processes, which are counted; stopped ones go on after a while.

    Args:
        counts: how often each fault happened, by its name.
    """

    def __init__(self, counts: Counter[str]) -> None:
        self.counts = counts
        self._stopped: dict[int, float] = {}

    def send(self, process: int, what: str, signum: signal.Signals = signal.SIGKILL, seconds: float = 0.0) -> None:
        """Send a signal to a process, if it still runs.

        Args:
            process: its id; 0 for one that does not run.
            what: it is, for the counts.
            signum: SIGKILL, or SIGSTOP for some seconds.
            seconds: after which a stopped process goes on.
        """
        with suppress(ProcessLookupError):
            if process:
                os.kill(process, signum)
                self.counts[f"{signum.name} {what}"] += 1
                if signum == signal.SIGSTOP:
                    self.wake_later(process, seconds)

    def wake_later(self, process: int, seconds: float) -> None:
        """Let a process that is stopped go on after a while; for one that waits for it already, nothing changes."""
        self._stopped.setdefault(process, time.monotonic() + seconds)

    def wake(self) -> None:
        """Let those go on whose time is over; to be called again and again."""
        for process, until in list(self._stopped.items()):
            if time.monotonic() >= until:
                del self._stopped[process]
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGCONT)


@dataclass(slots=True)
class Trial:
    """What the body of a scenario gets for one case.

    Attributes:
        seed, number: of the case.
        draw: of what the body draws itself.
        folder: for files, the same for all cases of a run.
        size: of a case; the scenario says what is counted by it.
        faults: disturbs processes.
        memory: what cases of one run share, such as results of a job that nothing disturbs.
    """

    seed: int
    number: int
    draw: random.Random
    folder: Path
    size: int
    faults: Faults
    memory: dict[Any, Any]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One soak.

    Attributes:
        name: on the command line.
        body: runs a case; returns how it went. An exception is a failure.
        cases: so many are run by default.
        case: (seed, number) -> what is tried, whose text is shown and chosen by.
        kind: (case) -> the row of the report that counts it.
        kinds: all rows there may be, in order; () for those that come.
        size: of a case by default.
        unit: what a size counts; "" where cases have none.
        load: processes that keep cores busy meanwhile; -1 for one on every core.
        tolerated: the share of cases that may fail.
    """

    name: str
    body: Callable[[Trial, Any], str]
    cases: int
    case: Callable[[int, int], Any] = lambda seed, number: ""
    kind: Callable[[Any], str] = str
    kinds: tuple[str, ...] = ()
    size: int = 0
    unit: str = ""
    load: int = 0
    tolerated: float = 0.0

    def trial(self, seed: int, number: int, folder: Path, size: int | None = None, **shared: Any) -> Trial:
        """For a case; `shared`: the `faults` and the `memory` of other cases."""
        draw = random.Random(f"{self.name} {seed} {number}")
        shared = {"faults": Faults(Counter()), "memory": {}, **shared}
        return Trial(seed, number, draw, folder, size or self.size, **shared)


@dataclass(slots=True)
class Row:
    """Counts of one kind of cases."""

    tried: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    failed: list[int] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """For a file."""
        return {"tried": self.tried, "outcomes": dict(self.outcomes), "failed": self.failed}


@contextmanager
def busy_cores(count: int) -> Iterator[None]:
    """Context in which processes do arithmetic and touch memory; -1: one on every core."""
    count = len(os.sched_getaffinity(0)) if count < 0 else count
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    busy = [subprocess.Popen([sys.executable, "-c", _BUSY], env=environ) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()
