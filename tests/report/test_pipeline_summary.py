"""What `sporax plan` reports of a pipeline."""

import json
import re

import pytest

from sporax.base.text_tables import time_text
from sporax.planner.pipeline.generators import generate
from sporax.planner.pipeline.simulate import simulate, uniform_costs
from sporax.report.comparison import comparison_text, read_pipeline
from sporax.report.pipeline_summary import PipelineSummary
from sporax.report.view.plan_view import Headline, TimePart


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
    assert [line.split()[0] for line in lines[4:]] == ["0", "1"]


def test_the_time_of_a_step_is_split_with_the_bubble():
    text = str(PipelineSummary(SLOW, 4, parts=(TimePart("products", 3.0), TimePart("bubble", 1.0))))
    assert re.search(r"part .*\n.*\nproducts +3 s +75.0%\nbubble +1 s +25.0%\n", text)


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


def test_the_headline_stands_above_the_stages_and_in_json():
    head = Headline(hardware="h100", seconds=2.0, samples=64, samples_per_second=32.0, mfu=0.25, peak_bytes=10**6)
    summary = PipelineSummary(SLOW, 4, num_devices=8, headline=head).under(2 * 10**6)
    text = str(summary)
    assert text.index("hardware") < text.index("32 samples/s") < text.index("25.0%") < text.index("stage  ")
    assert re.search(r"peak memory of a device +1(\.0+)? MB of 2(\.0+)? MB", text)
    document = json.loads(summary.to_json())
    assert (document["num_devices"], document["headline"]["limit_bytes"]) == (8, 2 * 10**6)


def test_the_row_of_a_pipeline_is_read_from_its_json(tmp_path):
    file = tmp_path / "plan.json"
    head = Headline(hardware="h100", seconds=2.0, samples_per_second=32.0)
    file.write_text(PipelineSummary(SLOW, 4, num_devices=8, headline=head).to_json())
    row = read_pipeline(file)
    assert (row.title, row.seconds, row.samples_per_second) == ("h100 × 8", 2.0, 32.0)
    assert row.device_hours == pytest.approx(8 * 1e6 / 32 / 3600)
    assert "h100 × 8" in comparison_text([row, row])
    file.write_text("{}")
    assert read_pipeline(file) is None


def test_the_script_is_named_below_the_first_line_and_in_json():
    summary = PipelineSummary(SLOW, 4).of_script("train.py")
    assert str(summary).splitlines()[1] == "Script: train.py"
    assert json.loads(summary.to_json())["script"] == "train.py"


def test_the_page_has_the_tables_and_the_timeline():
    page = PipelineSummary(SLOW, 4, notes=("a < b",)).to_html()
    assert "Pipeline of 2 stages" in page
    assert "a &lt; b" in page
    assert page.count("<rect") == len(list(SLOW.schedule))
    assert "<th>stage</th>" in page
    assert f"{time_text(SLOW.seconds)} from left to right" in page
