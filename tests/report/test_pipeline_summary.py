"""What `sporax plan` tells of a pipeline."""

import json

import pytest

from sporax.planner.pipeline.generators import generate
from sporax.planner.pipeline.simulate import simulate, uniform_costs
from sporax.report.pipeline_summary import PipelineSummary, decimal_bytes


def outcome(name, chunks=1):
    schedule = generate(name, 2, 4, chunks)
    return simulate(schedule, uniform_costs(schedule))


SLOW, QUICK = outcome("1f1b"), outcome("1f1b", 2)


def test_every_stage_has_a_row_below_the_totals():
    lines = str(PipelineSummary(SLOW, 4, reason="as the user says")).splitlines()
    assert lines[0].startswith(f"Pipeline of 2 stages, 4 micro batches, schedule {SLOW.schedule.name}:")
    assert "bubble 20.0%" in lines[0]  # one of five slots per stage
    assert lines[1] == "as the user says"
    assert lines[2].split() == ["stage", "tasks", "bubble", "peak", "memory", "sent", "per", "step"]
    assert [line.split()[0] for line in lines[3:]] == ["0", "1"]


def test_other_schedules_are_compared_the_quickest_first():
    other = outcome("gpipe")
    summary = PipelineSummary(SLOW, 4, (other,))
    text = str(summary)
    assert summary.best in (SLOW, other)
    assert summary.best.seconds == min(SLOW.seconds, other.seconds)
    assert text.splitlines()[-1] == f"Best: {summary.best.schedule.name} with 4 micro batches."


def test_of_equally_quick_schedules_that_of_less_memory_is_best():
    """With one cost for all tasks, GPipe is as quick as 1F1B and keeps all micro batches."""
    gpipe = outcome("gpipe")
    assert gpipe.seconds == pytest.approx(SLOW.seconds)
    assert [max(stage.peak_bytes for stage in entry.stages) for entry in (SLOW, gpipe)] == [2, 4]
    assert PipelineSummary(gpipe, 4, (SLOW,)).best is SLOW


def test_the_json_has_the_same_numbers():
    document = json.loads(PipelineSummary(SLOW, 4, (QUICK,)).to_json())
    assert document["seconds"] == SLOW.seconds
    assert [stage["busy_seconds"] for stage in document["stages"]] == [stage.busy_seconds for stage in SLOW.stages]
    assert document["num_micro"] == 4


@pytest.mark.parametrize(("size", "text"), [(12, "12 B"), (1500, "1.50 KB"), (2.5e6, "2.50 MB"), (3e9, "3.00 GB")])
def test_bytes_are_in_powers_of_a_thousand(size, text):
    assert decimal_bytes(size) == text
