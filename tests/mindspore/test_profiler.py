"""`Profiler`: a recording of the JAX profiler is written; what has no counterpart is refused or named."""

import gzip
import json
import logging

import pytest

import sporax.mindspore as ms
from sporax.launch.cli import main as profile_command
from sporax.mindspore import ops
from sporax.mindspore.profiler import (
    AicoreMetrics,
    ExportType,
    ProfilerAction,
    ProfilerActivity,
    ProfilerLevel,
    _ExperimentalConfig,
    analyse,
    mstx,
    profile,
    schedule,
    tensorboard_trace_handler,
)


def test_a_recording_is_written(tmp_path, capsys):
    profiler = ms.Profiler(output_path=str(tmp_path / "run"), start_profile=False)
    profiler.start()
    with pytest.raises(RuntimeError, match="must not be recording"):
        profiler.start()
    with pytest.raises(RuntimeError, match="no other profiler"):
        ms.Profiler(output_path=str(tmp_path / "other"))
    ops.ones((2, 2)).asnumpy()
    profiler.analyse()
    assert list((tmp_path / "run").rglob("*.xplane.pb"))
    with pytest.raises(RuntimeError, match="must be recording"):
        profiler.stop()
    assert profile_command(["profile", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out.startswith("recording: ")


@pytest.mark.parametrize("with_stack", [False, True])
def test_python_frames_are_recorded_on_request(tmp_path, with_stack):
    with ms.Profiler(str(tmp_path), with_stack=with_stack):
        ops.ones((2, 2)).asnumpy()
    trace = gzip.decompress(next(tmp_path.rglob("*.trace.json.gz")).read_bytes())
    assert (b".py:" in trace) is with_stack
    with pytest.raises(TypeError, match="'with_stack' must be a bool, but got 3"):
        ms.Profiler(str(tmp_path), False, with_stack=3)


def test_what_has_no_counterpart(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        profiler = ms.Profiler(str(tmp_path), False, profiler_level=ProfilerLevel.Level0)
    with pytest.raises(TypeError, match="no argument 'speed'"):
        ms.Profiler(str(tmp_path), False, speed=1)
    with pytest.raises(TypeError, match="'schedule' must be callable"):
        ms.Profiler(str(tmp_path), False, schedule=3)
    with pytest.raises(RuntimeError, match="For 'Profiler.step', there must be a 'schedule'"):
        profiler.step()
    for use in (lambda: profiler.op_analyse("MatMul"), lambda: profiler.analyse(offline_path="x")):
        with pytest.raises(NotImplementedError):
            use()


def test_a_schedule_says_what_to_do_in_a_step():
    plan = schedule(wait=1, warmup=1, active=2, repeat=2, skip_first=1)
    none, warm, record, save = ProfilerAction
    cycle = [none, warm, record, save]
    assert [plan(step) for step in range(11)] == [none, *cycle, *cycle, none, none]
    assert plan.to_dict() == {"wait": 1, "warmup": 1, "active": 2, "repeat": 2, "skip_first": 1}
    assert repr(plan) == "Schedule(wait=1, active=2, warmup=1, repeat=2, skip_first=1)"
    assert schedule(wait=-1, active=0).to_dict()["active"] == 1
    with pytest.raises(ValueError, match="'step' must be >= 0"):
        plan(-1)


def test_each_cycle_of_a_schedule_is_a_recording(tmp_path):
    written = []

    def ready(profiler):
        written.append((profiler.step_num, len(list(tmp_path.rglob("*.xplane.pb")))))

    profiler = ms.Profiler(str(tmp_path), schedule=schedule(wait=1, active=1, repeat=2), on_trace_ready=ready)
    with profiler:
        for _ in range(6):
            ops.ones((2, 2)).asnumpy()
            profiler.step()
    assert [step for step, _ in written] == [1, 3]
    assert written[0][1] >= 1


def test_the_newer_signature(tmp_path, caplog):
    folder = tmp_path / "run"
    config = _ExperimentalConfig(ProfilerLevel.Level1, AicoreMetrics.AiCoreNone, export_type=[ExportType.Text])
    with (
        caplog.at_level(logging.WARNING),
        profile(
            activities=[ProfilerActivity.CPU],
            schedule=schedule(wait=0, active=1, repeat=1),
            on_trace_ready=tensorboard_trace_handler(str(folder), "worker"),
            experimental_config=config,
        ) as profiler,
    ):
        profiler.add_metadata_json("sizes", "[1, 2]")
        number = mstx.range_start("part")
        ops.ones((2, 2)).asnumpy()
        mstx.range_end(number)
        profiler.step()
    analyse(str(folder / "worker"))
    assert json.loads((folder / "worker" / "profiler_metadata.json").read_text()) == {"sizes": [1, 2]}
    with pytest.raises(ValueError, match="must be JSON"):
        profiler.add_metadata_json("sizes", "[1")
    with pytest.raises(ValueError, match="must be a recording"):
        analyse(str(tmp_path / "nothing"))
    with pytest.raises(TypeError, match="no argument 'speed'"):
        _ExperimentalConfig(speed=1)
