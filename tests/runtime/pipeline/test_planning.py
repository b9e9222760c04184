"""Steps become pipelines: chunks on their stages' devices, schedules by name, and steps that do not fit."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from small_pipelines import MICRO, on, prediction, summed, tied, training, two_products

from sporax.base.errors import SporaxRuntimeError
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.marks import GradientMark, LayoutMark, next_number
from sporax.ir.pipeline_schedule import PipelineSchedule
from sporax.ir.placement import Placement
from sporax.lowering.marks.mark_primitive import apply_mark
from sporax.lowering.pipeline.flat import Phase
from sporax.planner import make_plan
from sporax.planner.pipeline.generators import generate
from sporax.runtime.pipeline.planning import stage_mesh


def test_a_stage_has_a_row_of_ranks():
    assert stage_mesh(2, (2, 2)) == DeviceMatrix((2, 2), (), (8, 9, 10, 11))


def test_chunks_are_planned_on_the_devices_of_their_stages(planned):
    assert [tuple(chunk.plan.mesh.ranks) for chunk in planned.chunks] == [(0, 1), (2, 3)]
    assert (planned.schedule.name, planned.micro.num_micro, planned.num_levels) == ("1f1b", MICRO, 1)
    assert planned.schedule.route == ((0, 0), (1, 0))


def test_a_micro_batch_is_sharded_over_its_stage_and_arrives_as_it_was_sent(planned):
    first, second = planned.chunks
    (tensor,) = first.chunk.micro_inputs
    place = {entry.tensor: place for entry, place in zip(first.chunk.step.graph.inputs, first.plan.inputs, strict=True)}
    assert place[tensor] == Placement(((0,), ()))
    sent = {slot.number: place for slot, place in first.programs.forward.outputs if slot.kind == "sent"}
    received = {slot.number: place for slot, place in second.programs.forward.inputs if slot.kind == "received"}
    assert sent == received


def test_an_activation_arrives_at_the_next_stage_as_it_was_sent(plan):
    def columns(w0, w1, x, y):
        with jax.named_scope("first"), on(0):
            (hidden,) = apply_mark([jnp.tanh(x @ w0)], LayoutMark("reshard", next_number(), ((1, 2),)))
        with jax.named_scope("second"), on(1):
            return ((hidden - y) ** 2 * w1[:1]).sum()

    first, second = plan(training(columns)).chunks
    (arrived,) = (place for slot, place in second.programs.forward.inputs if slot.kind == "received")
    assert arrived == Placement(((), (0,)))
    assert arrived in [place for slot, place in first.programs.forward.outputs if slot.kind == "sent"]


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_the_schedule_is_the_one_of_that_name(plan, name):
    assert plan(pipeline_scheduler=name).schedule == generate(name, 2, MICRO)


def test_users_may_bring_a_schedule_that_fits(plan):
    own = replace(generate("gpipe", 2, MICRO), name="mine")
    assert plan(pipeline_schedule=own).schedule is own
    other = PipelineSchedule.from_text("F0 B0\nF0 B0")
    with pytest.raises(
        SporaxRuntimeError,
        match=r"^For 'pipeline_schedule', the schedule must be for \(stages, chunks, micro batches\) \(2, 2, 4\), but '.*' is "
        r"for \(2, 2, 1\)\.$",
    ):
        plan(pipeline_schedule=other)


def test_prediction_runs_forward_once(plan):
    pipeline = plan(prediction, num_updated=0)
    assert pipeline.micro.num_micro == 1
    assert {task.kind.value for task in pipeline.schedule} == {"F"}


def test_every_chunk_is_planned_by_one_request_and_searched_where_the_mode_says_so(plan):
    results = []

    def plan_of(request):
        results.append(make_plan(request))
        return results[-1]

    plan(plan_of=plan_of)
    assert [result.request.is_searched for result in results] == [False, False]
    results.clear()
    pipeline = plan(plan_of=plan_of, parallel_mode="auto_parallel", search_mode="dynamic_programming")
    assert [result.request.is_searched for result in results] == [True, True]
    assert [chunk.plan for chunk in pipeline.chunks] == [result.plan for result in results]


def test_optimizer_shards_leave_out_parameters_that_stay_whole(plan):
    options = {"enable_parallel_optimizer": True, "parallel_optimizer_threshold": 0}
    for whole, used in ((frozenset(), (True, True)), (frozenset({"w0"}), (False, True))):
        pipeline = plan(whole=whole, **options)
        homes = []
        for chunk in pipeline.chunks:
            inputs = zip(chunk.chunk.step.graph.inputs, chunk.plan.inputs, strict=True)
            homes += [bool(place.used) for entry, place in inputs if entry.tensor in chunk.chunk.arguments]
        assert tuple(homes) == used


def without_loop(w0, w1, x, y):
    loss, gradients = jax.value_and_grad(two_products, (0, 1))(w0, w1, x, y)
    return [*apply_mark(gradients, GradientMark(("w0", "w1"), (0, 0))), loss]


def in_one_stage(w0, w1, x, y):
    with on(0):
        return ((jnp.tanh(x @ w0) @ w1 - y) ** 2).sum()


@pytest.mark.parametrize(
    ("step", "config", "words"),
    [
        (
            without_loop,
            {},
            "'set_auto_parallel_context', pipeline_stages=2 must be trained with micro batches, but the step has",
        ),
        (
            training(micro=1),
            {},
            "'PipelineCell', 'micro_size' must not be smaller than the 2 pipeline stages, but got 1",
        ),
        (
            training(),
            {"loss_repeated_mean": False},
            "'set_auto_parallel_context', 'loss_repeated_mean' must be True with several",
        ),
        (
            training(in_one_stage),
            {},
            r"'set_auto_parallel_context', 'pipeline_stages' is 2, but .* in 1 stage\(s\), \[0\]",
        ),
        (
            training(),
            {"pipeline_stages": 1},
            "'.*', 'pipeline_stage' must be smaller than the 1 pipeline stages, but got 1",
        ),
    ],
    ids=["no micro batches", "too few", "loss_repeated_mean", "one stage", "stage too large"],
)
def test_steps_that_make_no_pipeline_are_refused(plan, step, config, words):
    with pytest.raises(SporaxRuntimeError, match=f"^For {words}"):
        plan(step, **config)


def test_a_stage_that_learns_nothing_has_no_backward_pass(plan):
    def step(w0, w1, x, y):
        loss, gradient = jax.value_and_grad(lambda w1: summed(two_products, w0, w1, x, y))(w1)
        return [w0, w1 - apply_mark([gradient], GradientMark(("w1",), (0,)))[0], loss]

    first, second = (set(planned.chunk.phases) for planned in plan(step).chunks)
    assert first == {Phase.FORWARD} and Phase.UPDATE in second


def test_numbers_that_chunks_exchange_after_the_loop_make_levels(plan):
    assert plan(training(clip=True)).num_levels == 3
    assert plan(training(tied)).num_levels == 2  # the second stage's part of a gradient goes to the first
