"""A recording names the tasks of a pipeline on the devices of their stages."""

import gzip
import json

import jax.numpy as jnp
from small_pipelines import ARGUMENTS

from sporax.runtime.process import recording
from sporax.runtime.session import SESSION


def test_tasks_of_a_recorded_step(monkeypatch, compiled, tmp_path):
    monkeypatch.setattr(SESSION, "recording", None)  # so that it is restored
    arguments = [jnp.array(argument) for argument in ARGUMENTS]
    recording.begin({"SPORAX_PROFILE": str(tmp_path), "SPORAX_PROFILE_STEPS": "0:1"})
    SESSION.recording.around(lambda: compiled(arguments), ends_step=True)
    events = json.loads(gzip.decompress((tmp_path / "rank_0" / "perfetto.json.gz").read_bytes()))["traceEvents"]
    tasks = {(event["name"], event["pid"]) for event in events if event.get("cat") == "pipeline task"}
    # Stage 0 is on devices 0 and 1, stage 1 on devices 2 and 3.
    assert {("F0 of stage 0", 1), ("F0 of stage 0", 2), ("B1 of stage 1", 3), ("B1 of stage 1", 4)} <= tasks
    times = json.loads((tmp_path / "rank_0" / "step_times.json").read_text())
    names = {task["name"] for task in times["tasks"]}
    assert {"stage 0: forward", "stage 1: backward", "stage 0: update"} <= names
