"""Schedules in their published order."""

import pytest

from sporax.base.errors import SporaxRuntimeError, SporaxValueError
from sporax.planner.pipeline.generators import SCHEDULES, forward_only, generate
from sporax.planner.pipeline.schedule_check import check_schedule


def lines(schedule):
    return [line.removesuffix(" R U") for line in str(schedule).splitlines()]


def test_gpipe_runs_all_forward_tasks_first():
    assert lines(generate("gpipe", 2, 3)) == ["F0 F1 F2 B0 B1 B2"] * 2
    two_chunks = [line.split(" R")[0] for line in str(generate("gpipe", 2, 2, 2)).splitlines()]
    assert two_chunks == ["F0 F1 F0.1 F1.1 B0.1 B1.1 B0 B1"] * 2


def test_1f1b_alternates_after_a_warmup():
    assert lines(generate("1f1b", 4, 4)) == [
        "F0 F1 F2 F3 B0 B1 B2 B3",
        "F0 F1 F2 B0 F3 B1 B2 B3",
        "F0 F1 B0 F2 B1 F3 B2 B3",
        "F0 B0 F1 B1 F2 B2 F3 B3",
    ]


def test_interleaved_goes_through_chunks_in_groups_of_micro_batches():
    first, last = (line.split(" R U")[0] for line in str(generate("1f1b", 2, 2, 2)).splitlines())
    assert first == "F0 F1 F0.1 F1.1 B0.1 B1.1 B0 B1"
    assert last == "F0 F1 F0.1 B0.1 F1.1 B1.1 B0 B1"


def test_zero_bubble_h1_delays_gradients_of_weights():
    assert lines(generate("zero_bubble_h1", 3, 3)) == [
        "F0 F1 F2 I0 W0 I1 W1 I2 W2",
        "F0 F1 I0 F2 I1 W0 I2 W1 W2",
        "F0 I0 F1 I1 F2 I2 W0 W1 W2",
    ]


def test_zero_bubble_v_folds_the_network():
    schedule = generate("zero_bubble_v", 2, 4)
    assert schedule.route == ((0, 0), (1, 0), (1, 1), (0, 1))


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("stages", "micro"), [(1, 2), (2, 4), (4, 8), (3, 9)])
def test_all_can_be_executed(name, stages, micro):
    check_schedule(generate(name, stages, micro, 2 if name == "zero_bubble_v" else 1))


def test_forward_only_for_evaluation():
    assert str(forward_only(((0, 0), (1, 0)), 2)) == "F0 F1\nF0 F1"


def test_what_cannot_be_done_says_so():
    with pytest.raises(SporaxRuntimeError, match="'seqvpp' splits micro batches along the sequence"):
        generate("seqvpp", 2, 4)
    with pytest.raises(SporaxRuntimeError, match="at least 8 micro batches for 4 stages, but got 4"):
        generate("zero_bubble_v", 4, 4)
    with pytest.raises(SporaxRuntimeError, match="multiple of the 2 stages, but got 3"):
        generate("1f1b", 2, 3, 2)
    with pytest.raises(SporaxValueError, match="must be one of"):
        generate("nothing", 2, 4)
