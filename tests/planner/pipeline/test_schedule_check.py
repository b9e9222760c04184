"""What is wrong with a schedule is said with the two tasks in conflict."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from sporax.base.errors import SporaxValueError
from sporax.ir.pipeline_schedule import PipelineSchedule
from sporax.planner.pipeline.generators import generate
from sporax.planner.pipeline.schedule_check import check_schedule


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("F0 F1 B0 B1\nF0 B0 B1", "F1 of stage 1 is missing"),
        ("F0 F0 B0\nF0 B0", "F0 of stage 0 is there 2 times"),
        ("F0 B0\nB0 F0", "B0 of stage 1 must come after F0 of stage 1|waits for"),
        ("F0 I0\nF0 I0 W0", "in one task B or in the two tasks I and W"),
    ],
)
def test_conflicts_are_named(text, message):
    with pytest.raises(SporaxValueError, match=message):
        check_schedule(PipelineSchedule.from_text(text))


def test_stages_that_wait_for_each_other():
    with pytest.raises(SporaxValueError, match="can never start"):
        PipelineSchedule.from_text("F0 B0 F1 B1\nF1 B1 F0 B0")


def test_transfers_in_an_order_that_deadlocks():
    schedule = generate("1f1b", 2, 4)
    with pytest.raises(SporaxValueError, match="wait for each other"):
        check_schedule(replace(schedule, transfers=schedule.transfers[::-1]))


def test_a_transfer_that_is_missing():
    schedule = generate("gpipe", 2, 4)
    check_schedule(schedule)
    with pytest.raises(SporaxValueError, match="missing"):
        check_schedule(replace(schedule, transfers=schedule.transfers[1:]))


def test_json_and_text_are_read_again():
    schedule = generate("zero_bubble_h1", 3, 4)
    assert PipelineSchedule.from_json(schedule.to_json()) == schedule
    again = PipelineSchedule.from_text(str(schedule), schedule.name)
    assert again == schedule
    with pytest.raises(SporaxValueError, match="a saved schedule"):
        PipelineSchedule.from_json("{}")
    with pytest.raises(SporaxValueError, match="stage 0 has 'X1'"):
        PipelineSchedule.from_text("X1")


@given(st.integers(1, 4), st.integers(1, 5), st.randoms())
def test_any_order_that_keeps_dependencies_is_valid(stages, micro, random):
    done, lists = set(), [[] for _ in range(stages)]

    def ready(stage, kind, number):
        if kind == "F":
            return stage == 0 or (stage - 1, "F", number) in done
        return (stage, "F", number) in done and (stage == stages - 1 or (stage + 1, "B", number) in done)

    left = {(stage, kind, number) for stage in range(stages) for kind in "FB" for number in range(micro)}
    while left:
        task = random.choice(sorted(item for item in left if ready(*item)))
        left.remove(task)
        done.add(task)
        lists[task[0]].append(f"{task[1]}{task[2]}")
    check_schedule(PipelineSchedule.from_text("\n".join(" ".join(words) for words in lists)))
