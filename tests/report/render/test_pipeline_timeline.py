"""A pipeline's timeline as a picture and as a trace."""

from xml.etree import ElementTree

from sporax.planner.pipeline.generators import generate
from sporax.planner.pipeline.simulate import simulate, uniform_costs
from sporax.report.render.pipeline_timeline import svg, times_of

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
