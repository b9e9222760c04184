"""A pipelined step with the surface of a step of one stage."""

import numpy as np
import pytest
from small_pipelines import ARGUMENTS, MICRO, ROLES, WIDTH, assert_same

from sporax.ir.config.plan_settings import SCHEDULE
from sporax.ir.pipeline_schedule import Task, TaskKind
from sporax.runtime.devices.global_view import Argument
from sporax.runtime.pipeline.pipelined_step import PipelinedStep, sharding_of_first
from sporax.runtime.session import SESSION


class Variable:
    def __init__(self, raw):
        self.raw = raw


@pytest.fixture(scope="module")
def step(planned, settings):
    arguments = tuple(Argument(role, name, array) for (role, name), array in zip(ROLES, ARGUMENTS, strict=True))
    return PipelinedStep(planned, arguments, 2, settings())


def test_variables_are_brought_to_their_stages_and_updated(step, compiled, expected):
    variables = [Variable(np.array(argument)) for argument in ARGUMENTS[:2]]
    step.bring(variables, [])
    storage = step.stored(variables, [])
    assert [variable.raw.sharding for variable in variables] == [step.storage(0), step.storage(1)]
    outputs = step.run(compiled, storage.fetch()[0], ARGUMENTS[2:])
    storage.store(outputs[:2])
    assert_same([variable.raw for variable in variables], expected[:2])
    assert_same(outputs[2:], expected[2:])


def test_variables_that_no_one_reads_are_on_the_first_stage(step):
    assert {device.id for device in sharding_of_first(step).device_set} == {0, 1}
    assert sharding_of_first(step).is_fully_replicated


def test_steps_that_are_only_planned_give_zeros(step, monkeypatch):
    assert step.unrun() is None
    monkeypatch.setattr(SESSION, "plan_only", True)
    assert [output.shape for output in step.unrun()] == [(WIDTH, WIDTH), (WIDTH, WIDTH), ()]


def test_the_summary_compares_schedules_where_the_environment_requests_it(step, monkeypatch):
    assert step.summary().others == ()
    monkeypatch.setenv(SCHEDULE, "gpipe")
    assert [outcome.schedule.name for outcome in step.summary().others] == ["gpipe"]
    assert "Pipeline of 2 stages, 4 micro batches, schedule 1f1b" in " ".join(str(step.summary()).split())


def test_measured_times_are_replayed(step):
    times = {
        Task(stage, 0, micro, kind): (0.0, seconds)
        for stage in range(2)
        for micro in range(MICRO)
        for kind, seconds in ((TaskKind.FORWARD, 1.0), (TaskKind.BACKWARD, 2.0))
    }
    outcome = step.replayed(times)
    assert outcome.seconds == pytest.approx(3 * (MICRO + 1), rel=1e-3)  # 1F1B: (micro + stages - 1) pairs of tasks
    assert step.simulate().seconds < 1


def test_a_page_shows_the_table_and_the_timeline(step, tmp_path):
    step.report(tmp_path / "pipeline.html")
    page = (tmp_path / "pipeline.html").read_text()
    assert "simulated, 1f1b" in page
    assert "<svg" in page
    assert "Pipeline of 2 stages" in page


def test_a_pipeline_was_not_searched_for(step):
    assert step.search is None
    assert step.lower() is step
    assert step.plan is step.pipeline.chunks[0].plan
