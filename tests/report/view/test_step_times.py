"""Totals of recorded steps, and their table, picture and trace."""

import json
import xml.etree.ElementTree as ElementTree

import pytest

from sporax.report.render.step_times import headline, perfetto, svg, text
from sporax.report.view.step_times import COLLECTIVE, COMPUTE, COPY, ELSEWHERE, OperatorRun, by_depth, step_times

RUNS = (
    OperatorRun(0, 3, 0.0, 4.0, "net.layers.0.up", COMPUTE, "dot_general", "jit_step"),
    OperatorRun(0, 3, 4.0, 5.0, "net.layers.0.up", COMPUTE, "tanh", "jit_step"),
    OperatorRun(0, 4, 4.5, 7.0, "net.layers.1.up", COLLECTIVE, "all-reduce (gradient of w)", "jit_step"),
    OperatorRun(0, 3, 8.0, 8.5, "", COPY, "copy-start", "jit_step"),
    OperatorRun(1, 5, 0.0, 4.0, "net.layers.0.up", COMPUTE, "dot_general", "jit_step"),
)
TASKS = (
    OperatorRun(0, 3, 0.0, 1.0, "a", COMPUTE, "dot", "jit_f", "F0 of stage 0", 7),
    OperatorRun(0, 3, 1.0, 3.0, "a", COMPUTE, "dot", "jit_f", "F0 of stage 0", 7),
    OperatorRun(1, 3, 0.5, 3.5, "a", COMPUTE, "dot", "jit_f", "F0 of stage 0", 7),
    OperatorRun(0, 3, 3.0, 4.0, "a", COMPUTE, "dot", "jit_f", "F1 of stage 0", 8),
    OperatorRun(1, 3, 3.5, 4.5, "a", COMPUTE, "dot", "jit_f", "F1 of stage 0", 8),
)


@pytest.fixture
def times():
    return step_times(RUNS, first=5, num_steps=2, seconds=10.0)


def test_times_are_added_by_path_and_kind(times):
    found = {(entry.path, entry.kind): (entry.seconds, entry.count) for entry in times.paths}
    assert found == {
        ("net.layers.0.up", COMPUTE): (9.0, 3),
        ("net.layers.1.up", COLLECTIVE): (2.5, 1),
        (ELSEWHERE, COPY): (0.5, 1),
    }
    assert times.paths[0].path == "net.layers.0.up"  # the longest first


def test_a_moment_counts_once_and_the_rest_is_waiting(times):
    # The all-reduce is half a second behind tanh, which costs nothing.
    assert times.busy_seconds == {COMPUTE: 9.0, COLLECTIVE: 2.0, COPY: 0.5}
    assert (times.num_devices, times.device_seconds, times.waiting_seconds) == (2, 20.0, 8.5)
    assert headline(times) == (
        "steps 5 to 6: 5 s each; 2 devices: compute 45 %, collective 10 %, copy 2 %, waiting 42 %"
    )


def test_paths_are_shortened_and_rows_added_up(times):
    shorter = by_depth(times.paths, 2)
    assert [(entry.path, entry.kind, entry.seconds) for entry in shorter[:2]] == [
        ("net.layers", COMPUTE, 9.0),
        ("net.layers", COLLECTIVE, 2.5),
    ]
    table = text(times, top=1).splitlines()
    assert "net.layers.0.up" in table[4]
    assert table[4].split()[-2:] == ["45.0", "%"]
    assert "(2 more)" in table[5]
    assert text(step_times((), 0, 1, 1.0)).endswith("No operator was recorded on a device.")


def test_tasks_of_a_pipeline():
    times = step_times(TASKS, 0, 1, 5.0, rank=1, ranks=2)
    (task,) = times.tasks
    # Two tasks of two devices: 3 + 1 seconds on both.
    assert (task.name, task.seconds, task.count) == ("stage 0: forward", 4.0, 2)
    assert "stage 0: forward       2          2 s" in text(times)
    assert text(times).startswith("rank 1, step 0: 5 s; 2 devices: ")


def test_the_picture_has_the_times(times):
    picture = ElementTree.fromstring(svg(times))
    words = "".join(picture.itertext())
    for part in ("net.layers.0.up", "compute 45.0 %", "waiting 42.5 %", "collective 625 ms"):
        assert part in words


def test_the_trace_has_cells_collectives_and_tasks():
    events = json.loads(perfetto((*RUNS, *TASKS), [("step 5", 0.0, 9.0)], rank=2))["traceEvents"]
    slices = {event["name"]: event for event in events if event["ph"] == "X"}
    product = slices["net.layers.0.up: dot_general"]
    assert (product["pid"] // 1000, product["args"]["cell"], product["dur"]) == (2, "net.layers.0.up", 4e6)
    assert slices["net.layers.1.up: all-reduce (gradient of w)"]["cat"] == COLLECTIVE
    assert (slices["F0 of stage 0"]["cat"], slices["F0 of stage 0"]["dur"]) == ("pipeline task", 3e6)
    assert slices["step 5"]["dur"] == 9e6
