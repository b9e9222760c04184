"""What tasks cost: bytes by their shapes, seconds by the cost model or by measurement."""

import pytest
from small_pipelines import MICRO, ROWS, WIDTH

from sporax.base.errors import SporaxValueError
from sporax.ir.hardware import load_profile
from sporax.ir.pipeline_schedule import Task, TaskKind
from sporax.planner import cost_model
from sporax.planner.pipeline.simulate import simulate
from sporax.runtime.pipeline import costs

PROFILE = load_profile("cpu")
ACTIVATION = ROWS // MICRO * WIDTH * 4 // 2
"""Bytes of one device's half of a micro batch."""


@pytest.fixture(scope="module")
def model(planned, settings):
    return cost_model(settings(), planned.chunks[0].plan.mesh, PROFILE)


def test_bytes_are_those_of_one_devices_slices(planned, model):
    priced = costs.pipeline_costs(planned, model, PROFILE)
    first, second = priced.chunks[0, 0], priced.chunks[1, 0]
    assert (first.sent_bytes, second.sent_bytes) == (ACTIVATION, 0)
    assert first.saved_bytes >= 2 * ACTIVATION  # the input, and tanh's result; cotangents that arrive come on top
    weight = WIDTH * WIDTH * 4
    assert priced.base_bytes[0] == 2 * weight  # the weight, and the sum of its gradients
    assert priced.base_bytes[1] == 2 * weight + 4  # and the sum of the losses
    assert (priced.link_seconds, priced.link_bytes_per_second) == (
        PROFILE.links[-1].alpha_seconds,
        PROFILE.links[-1].bandwidth,
    )


def test_a_backward_task_takes_longer_than_a_forward_task(planned, model):
    chunk = costs.pipeline_costs(planned, model, PROFILE).chunks[1, 0]
    assert 0 < chunk.of(TaskKind.FORWARD) < chunk.of(TaskKind.BACKWARD)
    assert chunk.of(TaskKind.UPDATE) > 0
    assert chunk.working_bytes[TaskKind.FORWARD] > 0


def test_a_step_is_simulated_with_these_costs(planned, model):
    outcome = costs.simulated(planned, model, PROFILE)
    assert outcome.seconds == simulate(planned.schedule, costs.pipeline_costs(planned, model, PROFILE)).seconds
    assert outcome.stages[0].sent_bytes == MICRO * ACTIVATION
    assert outcome.stages[0].peak_bytes >= outcome.stages[0].peak_saved * ACTIVATION


def test_measured_tasks_count_with_their_median(planned, model):
    priced = costs.pipeline_costs(planned, model, PROFILE)
    lengths = {0: 5.0, 1: 1.0, 2: 2.0}
    times = {Task(0, 0, micro, TaskKind.FORWARD): (10.0, 10.0 + length) for micro, length in lengths.items()}
    measured = costs.with_measured(priced, times)
    assert dict(measured.chunks[0, 0].seconds) == {TaskKind.FORWARD: 2.0}
    assert measured.chunks[1, 0] == priced.chunks[1, 0]  # nothing was measured there
    assert measured.chunks[0, 0].saved_bytes == priced.chunks[0, 0].saved_bytes


def test_schedules_are_compared_where_they_have_the_same_chunks(planned, model):
    summary = costs.summarize_pipeline(planned, model, PROFILE, "all", "because")
    assert {outcome.schedule.name for outcome in summary.others} == {"gpipe", "zero_bubble_h1"}
    assert (summary.num_micro, summary.reason) == (MICRO, "because")
    assert costs.summarize_pipeline(planned, model, PROFILE).others == ()
    (other,) = costs.summarize_pipeline(planned, model, PROFILE, "gpipe").others
    assert other.schedule.name == "gpipe"


def test_an_unknown_schedule_is_refused(planned, model):
    with pytest.raises(
        SporaxValueError, match=r"^For 'sporax plan', --schedule must be 'all' or one of \[.*\], but got 'pipedream'\.$"
    ):
        costs.summarize_pipeline(planned, model, PROFILE, "pipedream")
