"""Which tests are slow, which are variants of others, which worker runs which, and in which order.

A file's tests run on one worker: they share jobs, references and programs that were traced, which every other worker would make
again. Long files begin, as the last run measured them, so that no worker is left alone with one at the end; a long file whose tests
share nothing is divided. Files whose tests start processes and wait for them run beside others that compute, on two workers at a time.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter, defaultdict
from pathlib import Path

import pytest

MEASURED = Path(__file__).parents[1] / ".cache" / "test_seconds.json"
"""Seconds of wall time of each file in the last run; `session_costs` writes them."""

SLOW_LIST = Path(__file__).with_name("slow_tests.txt")
"""Names of slow tests, a line each, as `session_costs` measured them."""

TOGETHER = "tests/mindspore/communication/"
TOGETHER_FILES = frozenset(f"test_{name}.py" for name in "placed collectives mint data_parallel dry_run".split())
"""Files whose tests look at the same two jobs (`TOGETHER` in their conftest)."""

WAITING = tuple(
    f"tests/{name}/" for name in "several_machines ps launch examples mindspore/communication runtime/process".split()
)
"""Folders whose tests wait for processes of their own for most of their time."""

WAITERS = 2
"""Workers that may have such files at a time."""

PARTS = {
    "tests/mindspore/golden/test_facts.py": 8,
    "tests/mindspore/mint/test_recorded.py": 4,
    "tests/mindspore/ops/test_recorded.py": 4,
}
"""Long files whose tests share nothing, by the number of their parts."""


def scope(nodeid: str) -> str:
    """The tests with which a test runs on one worker."""
    file = nodeid.partition("::")[0]
    if file.startswith(TOGETHER) and file.removeprefix(TOGETHER) in TOGETHER_FILES:
        return TOGETHER
    return f"{file} {zlib.crc32(nodeid.encode()) % PARTS[file]}" if file in PARTS else file


def mark_further_samples(items: list[pytest.Item]) -> None:
    """Mark as `full` what `@pytest.mark.sampled(count)` leaves out: of a test's parameter sets `count` stay, spread evenly."""
    sets = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sampled"):
            sets[item.nodeid.partition("[")[0]].append(item)
    for variants in sets.values():
        (count,) = variants[0].get_closest_marker("sampled").args
        chosen = {number * len(variants) // count for number in range(count)}
        for number, item in enumerate(variants):
            if number not in chosen:
                item.add_marker("full")


def mark_slow(items: list[pytest.Item]) -> None:
    """Mark as `slow` what the list of slow tests names: a test, all sets of parameters of one, or all that share jobs."""
    slow = frozenset(SLOW_LIST.read_text().splitlines())
    for item in items:
        if not slow.isdisjoint((item.nodeid, item.nodeid.partition("[")[0], scope(item.nodeid))):
            item.add_marker("slow")


def order(items: list[pytest.Item]) -> None:
    """Sort the tests in place: longer files before shorter ones; tests of a file stay in order."""
    try:
        seconds = json.loads(MEASURED.read_text())
    except (OSError, ValueError):  # the first run: files are as long as they have tests
        seconds = Counter(item.nodeid.partition("::")[0] for item in items)

    def key(item: pytest.Item) -> tuple[float, str]:
        return -seconds.get(item.nodeid.partition("::")[0], 0.0), scope(item.nodeid)

    items.sort(key=key)


def scheduler(config: pytest.Config, log: object) -> object:
    """The scheduler of pytest-xdist that deals whole scopes, in the order of the tests."""
    from xdist.scheduler import LoadScopeScheduling  # where tests run in one process, xdist may be missing

    class ByScope(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope(nodeid)

        def _assign_work_unit(self, node: object) -> None:
            """Take the next scope of the kind, waiting or computing, that is not there enough."""
            units = [unit for workload in self.assigned_work.values() for unit in workload.items()]
            waiters = sum(name.startswith(WAITING) and not all(tests.values()) for name, tests in units)
            wanted = (name for name in self.workqueue if name.startswith(WAITING) == (waiters < WAITERS))
            if first := next(wanted, None):
                self.workqueue.move_to_end(first, last=False)
            super()._assign_work_unit(node)

    config.option.loadscopereorder = False
    return ByScope(config, log)
