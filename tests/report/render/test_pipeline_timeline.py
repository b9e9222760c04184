"""A pipeline's timeline as a picture and as a trace."""

import json
from xml.etree import ElementTree

import pytest

from sporax.planner.pipeline.generators import generate
from sporax.planner.pipeline.simulate import simulate, uniform_costs
from sporax.report.render.pipeline_timeline import chrome_trace, svg, times_of

SCHEDULE = generate("1f1b", 2, 4)
OUTCOME = simulate(SCHEDULE, uniform_costs(SCHEDULE))
TIMES = times_of(OUTCOME)
NAMESPACE = "{http://www.w3.org/2000/svg}"


def test_every_task_has_its_simulated_times():
    assert set(TIMES) == set(SCHEDULE)
    assert max(end for _, end in TIMES.values()) == OUTCOME.seconds


def test_every_task_is_a_box_in_the_row_of_its_stage():
    tree = ElementTree.fromstring(svg([("simulated <1>", TIMES)]))
    boxes = tree.findall(f".//{NAMESPACE}rect")
    assert len(boxes) == len(TIMES)
    assert len({box.get("y") for box in boxes}) == 2
    assert tree.find(f"{NAMESPACE}text").text == "simulated <1>"
    assert max(float(box.get("x")) + float(box.get("width")) for box in boxes) <= 900


def test_timelines_stand_below_each_other():
    one, two = (ElementTree.fromstring(svg([("t", TIMES)] * count)) for count in (1, 2))
    assert int(two.get("height")) == 2 * int(one.get("height"))


def test_a_trace_has_a_process_per_timeline_and_a_thread_per_stage():
    events = json.loads(chrome_trace([("simulated", TIMES), ("measured", TIMES)]))["traceEvents"]
    assert [event["args"]["name"] for event in events if event["ph"] == "M"] == ["simulated", "measured"]
    tasks = [event for event in events if event["ph"] == "X"]
    assert {(event["pid"], event["tid"]) for event in tasks} == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert len(tasks) == 2 * len(TIMES)
    longest = max(event["ts"] + event["dur"] for event in tasks)
    assert longest == pytest.approx(OUTCOME.seconds * 1e6)  # microseconds
