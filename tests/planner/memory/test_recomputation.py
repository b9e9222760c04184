"""The choice of what is computed again: the fastest that fits, and why."""

import pytest

from sporax.base.errors import SporaxRuntimeError
from sporax.planner.memory.recomputation import Level, RecomputeOutcome, Saving, choose, knapsack

BLOCK = {Level.ATTENTION: Saving(40, 1.0), Level.EVERYTHING: Saving(90, 4.0)}
KEPT_BYTES, KEPT_SECONDS = 400.0, 10.0


def evaluate(levels, is_quick=False):
    """A step whose peak is what all blocks keep."""
    taken = [BLOCK.get(level, Saving(0, 0)) for level in levels]
    return RecomputeOutcome(
        KEPT_SECONDS + sum(item.seconds for item in taken), KEPT_BYTES - sum(item.num_bytes for item in taken)
    )


def chosen(limit, **settings):
    return choose([BLOCK] * 4, evaluate, limit, **settings)


def test_nothing_is_computed_again_where_all_fits():
    decision = chosen(400)
    assert decision.levels == (Level.NOTHING,) * 4
    assert len(decision.trials) == 1


@pytest.mark.parametrize("limit", [60, 100, 150, 200, 250, 300, 350, 390])
def test_a_mixture_is_never_slower_than_a_uniform_choice_that_fits(limit):
    decision = chosen(limit)
    assert decision.trials[decision.levels].peak_bytes <= limit
    uniform = [evaluate((level,) * 4) for level in (Level.NOTHING, Level.ATTENTION, Level.EVERYTHING)]
    assert decision.trials[decision.levels].seconds <= min(
        outcome.seconds for outcome in uniform if outcome.peak_bytes <= limit
    )


def test_blocks_are_mixed_where_that_is_faster():
    """330 bytes: two blocks give up their attention; three or four would fit as well and take longer."""
    decision = chosen(330)
    assert sorted(level.value for level in decision.levels) == ["attention"] * 2 + ["nothing"] * 2


def test_what_fits_nowhere_is_an_error():
    with pytest.raises(SporaxRuntimeError, match="must fit the 30 B of a device, but the least .* 4 blocks .* is 40 B"):
        chosen(30)


def test_free_layouts_are_compared_though_all_fits():
    """A search may find a faster sharding for a step that keeps less."""

    def faster_with_less(levels, is_quick):
        outcome = evaluate(levels)
        return RecomputeOutcome(20.0 - outcome.seconds, outcome.peak_bytes)

    decision = choose([BLOCK] * 2, faster_with_less, 1000, layout_is_free=True)
    assert decision.levels == (Level.EVERYTHING,) * 2


def test_where_all_searches_gave_up_one_that_does_not_decides():
    requests = []

    def thorough_alone(levels, is_quick):
        requests.append((levels, is_quick))
        return RecomputeOutcome(float("inf"), float("inf")) if is_quick else evaluate(levels)

    decision = choose([BLOCK] * 2, thorough_alone, 300, layout_is_free=True)
    assert decision.levels == (Level.EVERYTHING,) * 2
    assert [levels for levels, is_quick in requests if not is_quick] == [decision.levels]


def test_notes_say_what_was_taken_and_what_the_uniform_choices_need():
    notes = chosen(330).notes([f"net.blocks.{number}" for number in range(4)])
    assert "attention of net.blocks" in notes[0] and "320 B of 330 B and 12 s a step are predicted" in notes[0]
    assert "recompute='auto', of every block nothing: 400 B would not fit" in notes
    assert "recompute='auto', of every block everything: 40 B and 26 s" in notes


def test_the_knapsack_saves_enough_for_the_least_time():
    """Four attentions save 160; more needs whole blocks."""
    assert knapsack([BLOCK] * 4, 150).count(Level.ATTENTION) == 4
    levels = knapsack([BLOCK] * 4, 170)
    saved = sum(BLOCK[level].num_bytes for level in levels if level is not Level.NOTHING)
    assert saved >= 170 and levels.count(Level.EVERYTHING) == 1


def test_the_knapsack_saves_what_it_can():
    assert knapsack([BLOCK] * 2, 1e6) == (Level.EVERYTHING,) * 2
