"""What tests cost: CPU seconds of each, with those of the processes that it waited for, by folder, next to a budget that only falls.

A worker measures every phase of a test and attaches the seconds to its report; the process that collects reports adds them up. CPU
seconds depend on the machine, so a folder is compared with the others: it is over its budget where it takes more than `SLACK` times
the seconds that its budget says, counted in the session's own unit (its CPU seconds over those of all budgets).

`make quick` leaves out what `tests/slow_tests.txt` names: a copy of the tests that the last run of `make test` measured as slow.
"""

from __future__ import annotations

import json
import resource
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from session_order import MEASURED, WAITING, scope

BUDGET: dict[str, float] = json.loads((Path(__file__).parent / "cpu_budget.json").read_text())
"""CPU seconds of each folder's tests in `make test` on the machine of `docs/decisions.md`."""

SLACK = 2.0
"""Compiled programs that are stored already save some folders half of their time, and others nothing."""
LEAST = 5.0
"""CPU seconds that a folder may always take more: short folders are measured with much noise."""

SLOW_TESTS = MEASURED.with_name("slow_tests.txt")
"""Where the tests that are slow are written."""
SLOW = 0.12
"""CPU seconds from which a test is slow."""


@dataclass
class Cost:
    """What the tests of a folder or file took."""

    tests: int = 0
    cpu: float = 0.0
    wall: float = 0.0

    def add(self, cpu: float, wall: float, ends: bool) -> None:
        """Count a phase of a test."""
        self.tests, self.cpu, self.wall = self.tests + ends, self.cpu + cpu, self.wall + wall


def folder(nodeid: str) -> str:
    """The folder under which a test is counted: a package, or a package of the planner or of MindSpore's names."""
    parts = nodeid.partition("::")[0].split("/")[1:-1]
    return "/".join(parts[: 2 if parts[:1] in (["mindspore"], ["planner"]) else 1]) or "house"


def over_budget(measured: dict[str, float], budget: dict[str, float]) -> list[str]:
    """A line for each folder that takes more than its share of the session, or that has no budget."""
    shared = [name for name in measured if name in budget]
    unit = sum(measured[name] for name in shared) / max(sum(budget[name] for name in shared), 1e-9)
    lines = [f"{name}: no budget in tests/cpu_budget.json" for name in measured if name not in budget]
    return lines + [
        f"{name}: {measured[name]:.1f} CPU seconds, which are {measured[name] / unit:.1f} on the machine of the budget; at most "
        f"{SLACK:g} × {budget[name]:.1f} + {LEAST:g}"
        for name in shared
        if measured[name] > unit * (SLACK * budget[name] + LEAST)
    ]


def slow_tests(measured: Mapping[str, float]) -> Iterator[str]:
    """The slow ones of tests: a test function of which half the parameter sets are, else each set; of those that wait for processes
    all that share jobs.

    Args:
        measured: CPU seconds of each test, by its node id.
    """
    functions: defaultdict[str, list[str]] = defaultdict(list)
    for name in measured:
        functions[name.partition("[")[0]].append(name)
    together = set[str]()
    for function, names in functions.items():
        slow = [name for name in names if measured[name] >= SLOW]
        if slow and function.startswith(WAITING):  # its tests share jobs: another test would have to start them
            together.add(scope(function))
        elif 2 * len(slow) >= len(names):
            yield function
        else:
            yield from slow
    yield from together


def cpu_seconds() -> float:
    """CPU seconds of this process and of the processes that it waited for."""
    uses = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(use.ru_utime + use.ru_stime for use in uses)


class SessionCosts:
    """The plugin. In a worker it measures, in the process that collects reports it counts.

    Attributes:
        files: what the tests of each file took.
        tests: CPU seconds of each test.
        begun: CPU seconds of each worker before its first test: imports and collecting.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.files: defaultdict[str, Cost] = defaultdict(Cost)
        self.tests: defaultdict[str, float] = defaultdict(float)
        self.begun = 0.0
        self._mark = (0.0, 0.0)

    def pytest_collection_finish(self) -> None:
        """Note what came before the first test."""
        self.begun = cpu_seconds()
        if hasattr(self.config, "workerinput"):
            self.config.workeroutput["begun"] = self.begun

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Add what a worker spent before its first test."""
        self.begun += getattr(node, "workeroutput", {}).get("begun", 0.0)

    def pytest_runtest_logstart(self) -> None:
        """Begin to measure a test."""
        self._mark = (cpu_seconds(), time.monotonic())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> object:
        """Attach what the phase took to its report; workers send reports with all their attributes."""
        report = yield
        now = (cpu_seconds(), time.monotonic())
        report.cpu, report.wall = now[0] - self._mark[0], now[1] - self._mark[1]
        self._mark = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a phase."""
        self.tests[report.nodeid] += getattr(report, "cpu", 0.0)
        cost = self.files[report.nodeid.partition("::")[0]]
        cost.add(getattr(report, "cpu", 0.0), getattr(report, "wall", 0.0), report.when == "teardown")

    def folders(self) -> dict[str, Cost]:
        """What the tests of each folder took."""
        folders: defaultdict[str, Cost] = defaultdict(Cost)
        for file, cost in self.files.items():
            into = folders[folder(file)]
            into.tests, into.cpu, into.wall = into.tests + cost.tests, into.cpu + cost.cpu, into.wall + cost.wall
        return dict(sorted(folders.items()))

    def over(self) -> list[str]:
        """The folders over their budgets, of a run of all folders."""
        measured = {name: cost.cpu for name, cost in self.folders().items()}
        return over_budget(measured, BUDGET) if BUDGET.keys() <= measured.keys() else []

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Store what files took, which orders the next run, and which tests are slow; fail where a folder is over its budget."""
        if hasattr(self.config, "workerinput"):
            return
        MEASURED.parent.mkdir(parents=True, exist_ok=True)
        MEASURED.write_text(json.dumps({file: round(cost.wall, 2) for file, cost in sorted(self.files.items())}))
        SLOW_TESTS.write_text("\n".join(sorted(slow_tests(self.tests))) + "\n")
        if self.over() and not session.exitstatus:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show a table by folder, and what is over its budget."""
        folders = self.folders()
        terminalreporter.section("tests, CPU seconds and seconds by folder")
        for name, cost in folders.items():
            terminalreporter.line(f"{name:30} {cost.tests:6} {cost.cpu:8.1f} {cost.wall:8.1f}")
        tests, cpu = sum(cost.tests for cost in folders.values()), sum(cost.cpu for cost in folders.values())
        terminalreporter.line(f"{'imports and collecting':30} {'':6} {self.begun:8.1f}")
        terminalreporter.line(f"{'all':30} {tests:6} {cpu + self.begun:8.1f}")
        for line in self.over():
            terminalreporter.line(f"over its budget: {line}", red=True)
