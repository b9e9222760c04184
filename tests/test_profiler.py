"""`Profiler`: a recording of the JAX profiler is written; what has no counterpart is refused or named."""

import logging

import pytest

import sporax as ms
from sporax import ops
from sporax.profiler import ProfilerLevel


def test_a_recording_is_written(tmp_path):
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


def test_what_has_no_counterpart(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        profiler = ms.Profiler(str(tmp_path), False, profiler_level=ProfilerLevel.Level0)
    with pytest.raises(TypeError, match="no argument 'speed'"):
        ms.Profiler(str(tmp_path), False, speed=1)
    with pytest.raises(NotImplementedError, match="schedule"):
        ms.Profiler(str(tmp_path), False, schedule=len)
    for use in (profiler.step, lambda: profiler.op_analyse("MatMul"), lambda: profiler.analyse(offline_path="x")):
        with pytest.raises(NotImplementedError):
            use()
