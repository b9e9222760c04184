"""Training in pipeline stages on eight devices of one process gives the losses of one device."""

import json

import pytest
from pipeline_cases import (
    IDS,
    LABELS,
    ClippedStep,
    Loss,
    RowLoss,
    SummingStep,
    assert_same_training,
    folded,
    interleaved,
    losses,
    on_one_device,
    scaled_and_clipped,
    settings,
    straight,
    values,
)

from sporax.base.errors import SporaxRuntimeError
from sporax.ir.pipeline_schedule import PipelineSchedule
from sporax.mindspore import Tensor, context, nn
from sporax.planner.pipeline.generators import generate
from sporax.report.render.pipeline_timeline import chrome_trace, times_of


@pytest.fixture(autouse=True)
def graph_mode():
    context.set_context(mode=context.GRAPH_MODE)


def assert_as_on_one_device(places, stages, micro, schedule="1f1b", settings_=None, cells=None, **options):
    """`options` are of the step, and `cells` those of the network that change where it runs and not its results."""
    expected = on_one_device(len(places), micro, **options)
    settings(stages, schedule, **(settings_ or {}))
    got, net, _ = losses(places, micro, **options, **(cells or {}))
    assert_same_training((got, values(net)), expected)


@pytest.fixture(scope="module")
def two_stages():
    """Losses and Parameters of training in two stages, the net and the step."""
    mode = context.get_context("mode")
    context.set_context(mode=context.GRAPH_MODE)
    settings(2)
    got, net, step = losses(straight(2), 4)
    context.reset_auto_parallel_context()
    context.set_context(mode=mode)
    return (got, values(net)), net, step


SOAK = pytest.mark.soak
"""The whole matrix of schedules, stages and micro batches takes minutes; representatives run always."""


def test_tied_embedding_and_dropout_in_two_stages(two_stages):
    assert_same_training(two_stages[0], on_one_device(2, 4))


@pytest.mark.parametrize(
    ("stages", "micro", "schedule"),
    [
        pytest.param(2, 8, "1f1b", marks=SOAK),
        pytest.param(4, 4, "1f1b", marks=SOAK),
        pytest.param(4, 8, "1f1b", marks=SOAK),
        pytest.param(2, 4, "gpipe", marks=SOAK),
        pytest.param(2, 8, "gpipe", marks=SOAK),
        (4, 4, "gpipe"),
        pytest.param(4, 8, "gpipe", marks=SOAK),
    ],
)
@pytest.mark.full
def test_tied_embedding_and_dropout(stages, micro, schedule):
    assert_as_on_one_device(straight(stages), stages, micro, schedule)


@pytest.mark.parametrize(
    ("stages", "micro"), [(2, 4), (4, 4), *(pytest.param(*item, marks=SOAK) for item in [(2, 8), (4, 8)])]
)
@pytest.mark.sampled(1)
def test_interleaved_segments(stages, micro):
    more = {"interleave": True, "pipeline_segments": 2}
    assert_as_on_one_device(interleaved(stages, 2), stages, micro, settings_=more)
    if stages == 2:
        assert_as_on_one_device(interleaved(stages, 2), stages, micro, "gpipe", {"pipeline_segments": 2})


@pytest.mark.parametrize("more", [{"interleave": True}, {"pipeline_segments": 2}], ids=str)
@pytest.mark.sampled(1)
def test_segments_that_only_the_order_of_stages_says(more):
    in_turn = [(stage, 0) for stage, _ in interleaved(2, 2)]
    assert_as_on_one_device(in_turn, 2, 4, settings_=more)


def test_a_number_of_segments_that_the_network_does_not_have_is_refused():
    settings(2, pipeline_segments=3)
    with pytest.raises(SporaxRuntimeError, match=r"'pipeline_segments' is 3, but the Cells .* are in 2 segment\(s\)"):
        losses(interleaved(2, 2), 4, steps=1)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("stages", "micro"), [(2, 4), pytest.param(2, 8, marks=SOAK), (4, 8)])
def test_zero_bubble_v(stages, micro):
    assert_as_on_one_device(folded(stages), stages, micro, "zero_bubble_v")


def test_clip_by_global_norm_crosses_stages():
    assert_as_on_one_device(straight(2), 2, 4, step_class=ClippedStep)


def test_gradients_are_added_to_the_parameters_made_for_their_sums():
    settings(2)
    results, net, step = losses(straight(2), 4, step_class=SummingStep)
    assert_same_training((results, values(net)), on_one_device(2, 4))
    assert not any(total.asnumpy().any() for total in step.sums)


def scaled(cell, optimizer):
    manager = nn.DynamicLossScaleUpdateCell(2.0**10, 2, 2)
    return nn.TrainOneStepWithLossScaleCell(cell, optimizer, manager)


@pytest.mark.parametrize("loss", [Loss, RowLoss])
@pytest.mark.sampled(1)
def test_dynamic_loss_scale(loss):
    assert_as_on_one_device(straight(2), 2, 4, make=scaled, optimizer=nn.SGD, loss=loss)


@SOAK
@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved", "zero_bubble_v"])
def test_clip_and_dynamic_loss_scale_with_every_schedule(schedule, stages):
    more = {"interleave": True, "pipeline_segments": 2} if schedule == "interleaved" else {}
    name = "1f1b" if schedule == "interleaved" else schedule
    places = {"interleaved": interleaved(stages, 2), "zero_bubble_v": folded(stages)}.get(schedule, straight(stages))
    assert_as_on_one_device(places, stages, 8, name, settings_=more, make=scaled_and_clipped)


@SOAK
def test_batch_norm_statistics():
    assert_as_on_one_device(straight(2), 2, 4, norm=True, optimizer=nn.SGD)


@SOAK
def test_recomputation_changes_no_result_of_a_pipeline():
    assert_as_on_one_device(straight(2, 2), 2, 4, cells={"recompute": True})


def test_stages_sharded_inside():
    assert_as_on_one_device(straight(2), 2, 4, cells={"sharded": True})


@pytest.mark.parametrize("level", [pytest.param("level1", marks=SOAK), "level2", pytest.param("level3", marks=SOAK)])
def test_optimizer_parallel(level):
    more = {
        "enable_parallel_optimizer": True,
        "parallel_optimizer_config": {"parallel_optimizer_threshold": 0, "optimizer_level": level},
    }
    assert_as_on_one_device(straight(2), 2, 4, settings_=more)


@pytest.mark.parametrize(
    ("places", "stages", "schedule", "frozen"),
    [
        (straight(2), 2, "1f1b", (0, 1)),
        pytest.param(straight(2), 2, "gpipe", (2, 3), marks=SOAK),
        (straight(4), 4, "1f1b", (2, 3)),
        pytest.param(folded(2), 2, "zero_bubble_v", (2, 3), marks=SOAK),
    ],
)
def test_stages_in_which_nothing_is_trained(places, stages, schedule, frozen):
    level = {"enable_parallel_optimizer": True, "parallel_optimizer_config": {"parallel_optimizer_threshold": 0}}
    assert_as_on_one_device(places, stages, 4, schedule, level, frozen=frozen)


@pytest.mark.parametrize(
    "search",
    [
        "recursive_programming",
        pytest.param("dynamic_programming", marks=SOAK),
        pytest.param("sharding_propagation", marks=SOAK),
    ],
)
def test_automatic_strategies_inside_stages(search):
    assert_as_on_one_device(straight(2), 2, 4, settings_={"mode": "auto_parallel", "search_mode": search})


@SOAK
def test_one_device_per_stage():
    assert_as_on_one_device(straight(2), 2, 4, settings_={"devices": 2})


def test_stages_chosen_by_the_planner():
    assert_as_on_one_device(straight(1, 4), 2, 4, settings_={"auto_pipeline": True})


def test_a_schedule_of_ones_own():
    own = PipelineSchedule.from_text("F0 F1 B0 F2 F3 B1 B2 B3\nF0 F1 B0 B1 F2 I2 F3 I3 W2 W3", "own")
    assert_as_on_one_device(straight(2), 2, 4, settings_={"pipeline_schedule": own})


@SOAK
def test_zero_bubble_h1():
    own = generate("zero_bubble_h1", 2, 4)
    assert_as_on_one_device(straight(2, 2), 2, 4, settings_={"pipeline_schedule": own})


def test_a_schedule_that_does_not_fit():
    settings(2, pipeline_schedule=generate("1f1b", 2, 8))
    with pytest.raises(SporaxRuntimeError, match=r"must be for .*\(2, 2, 4\), but '1f1b' is for \(2, 2, 8\)"):
        losses(straight(2), 4, steps=1)


def test_a_stage_keeps_its_weights_on_its_own_devices(two_stages):
    _, net, _ = two_stages
    assert {device.id for device in net.blocks[0].fc.weight.array.devices()} == {0, 1, 2, 3}
    assert {device.id for device in net.blocks[1].fc.weight.array.devices()} == {4, 5, 6, 7}


def test_tables_timelines_and_measured_times(two_stages, tmp_path):
    settings(2)
    _, _, step = two_stages
    planned = step.program.plan(Tensor(IDS), Tensor(LABELS))
    assert "Pipeline of 2 stages, 4 micro batches, schedule 1f1b" in str(planned.summary())
    planned.report(tmp_path / "page.html")
    assert "<svg" in (tmp_path / "page.html").read_text()
    times = planned.measure(step, Tensor(IDS), Tensor(LABELS))
    outcome = planned.replayed(times)
    assert outcome.seconds > 0
    trace = json.loads(chrome_trace([("simulated", times_of(planned.simulate())), ("measured", times)]))
    assert len([event for event in trace["traceEvents"] if event["ph"] == "X"]) >= 2 * 16
