"""Clocks that jump, name servers that stop answering, and a rank that comes a minute late: the numbers stay the same."""

import re
from pathlib import Path

import pytest

STEPS = Path(__file__).parent / "programs" / "steps.py"
RANKS = Path(__file__).parents[1] / "mindspore" / "communication" / "programs"
SOURCE = Path(__file__).parents[2] / "src" / "sporax"


def losses(output: str) -> list[str]:
    return sorted(re.findall(r"step \d+ of rank \d+: \S+", output))


@pytest.fixture
def expected(make_machines, start_job) -> list[str]:
    """Losses on one machine."""
    alone = start_job(make_machines(1), 2, STEPS, 12, 0, -1)
    assert alone.codes() == [0], alone.output()
    return losses(alone.output())


@pytest.mark.full
def test_names_that_are_known_no_more_change_nothing(make_machines, start_job, expected):
    """A job that was started with a name needs it no more."""
    made = make_machines(2)
    job = start_job(made, 2, STEPS, 12, 0.1, -1, master_addr="node0")
    job.wait_for("step 1 of")
    for machine in made:
        machine.set_hosts([])
    assert job.codes() == [0, 0], job.output()
    assert losses(job.output()) == expected
    assert len(expected) == 24


def test_no_time_out_is_counted_by_the_time_of_day():
    """A clock that jumps moves no deadline of members, launchers and servers. It decides ages of files alone."""
    packages = [SOURCE / name for name in ("cluster", "launch", "ps")]
    lines = [
        (path, line) for package in packages for path in package.rglob("*.py") for line in path.read_text().splitlines()
    ]
    assert len(lines) > 10_000
    users = [line for _, line in lines if re.search(r"time\.time\(|time_ns\(\)|datetime\.now", line)]
    assert all("st_mtime" in line for line in users), users
    assert any("time.monotonic()" in line for _, line in lines)


@pytest.mark.soak
def test_a_rank_that_comes_a_minute_late_ends_no_job(make_machines, start_job):
    """As one that compiles so much longer; XLA's own reduce-scatter would give up after 30 s."""
    job = start_job(make_machines(2), 2, RANKS / "late_to_scatter.py", 60)
    assert job.codes(300) == [0, 0], job.output()
    assert job.output().count("all is well") == 2
