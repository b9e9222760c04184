"""How long a search may take."""

import math

import pytest

from sporax.planner import budget
from sporax.planner.budget import Budget


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that the budget reads, to be changed."""
    now = [100.0]
    monkeypatch.setattr(budget.time, "monotonic", lambda: now[0])
    return now


def test_a_budget_is_used_up_with_time(clock: list[float]) -> None:
    whole = Budget.of(10.0)
    clock[0] += 4.0
    assert (whole.seconds, whole.used, whole.left, whole.is_over) == (10.0, 4.0, 6.0, False)
    clock[0] += 7.0
    assert (whole.used, whole.left, whole.is_over) == (11.0, 0.0, True)


def test_a_part_ends_no_later_than_the_whole(clock: list[float]) -> None:
    whole = Budget.of(10.0)
    clock[0] += 4.0
    assert whole.part(0.5).end == 107.0
    assert whole.at_most(2.0).end == 106.0
    assert whole.at_most(60.0).end == whole.end
    assert whole.longer(2.0).end == 112.0


def test_no_limit_never_ends(clock: list[float]) -> None:
    endless = Budget.unlimited()
    clock[0] += 1e9
    assert not endless.is_over
    assert math.isinf(endless.left)
    assert endless.used == 1e9
