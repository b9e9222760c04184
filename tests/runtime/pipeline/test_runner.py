"""A compiled pipeline: the step of one device in instructions, which donate, free and overlap."""

import jax.numpy as jnp
import pytest
from small_pipelines import ARGUMENTS, MICRO, W0, assert_same, on, prediction, tied, training

from sporax.ir.pipeline_schedule import Task, TaskKind
from sporax.runtime.pipeline.runner import StageInstruction, _free, compile_pipeline


def arguments():
    """Fresh ones: a step overwrites its variables."""
    return [jnp.array(argument) for argument in ARGUMENTS]


def results_of(compiled, num_outputs, args=None):
    updated, results = compiled(args or arguments())
    return [{**updated, **results}[position] for position in range(num_outputs)]


def test_two_steps_are_those_of_one_device(compiled, expected):
    w0, w1, loss = results_of(compiled, 3)
    assert_same([w0, w1, loss], expected)
    again = training()(*expected[:2], *ARGUMENTS[2:])
    assert_same(results_of(compiled, 3, [w0, w1, *ARGUMENTS[2:]]), again)


def test_variables_stay_on_the_devices_of_their_stage(compiled):
    updated, _ = compiled(arguments())
    assert {device.id for device in updated[0].devices()} == {0, 1}
    assert {device.id for device in updated[1].devices()} == {2, 3}


def test_tied_weights_and_clipped_gradients_cross_stages(plan, settings):
    step = training(tied, clip=True)
    compiled = compile_pipeline(plan(step), settings().parallel)
    assert_same(results_of(compiled, 3), step(*ARGUMENTS))


def test_what_is_equal_for_all_micro_batches_counts_for_each(plan, settings):
    def loss_of(w0, w1, x, y):
        with on(0):
            hidden = jnp.tanh(x @ w0)
        with on(1):
            return hidden.mean() + (w1 * 0.1).sum() + (w0 * w1).sum()

    step = training(loss_of)
    compiled = compile_pipeline(plan(step), settings().parallel)
    assert_same(results_of(compiled, 3), step(*ARGUMENTS))


def test_halves_of_the_backward_pass_give_the_same(plan, settings, expected):
    config = {"pipeline_scheduler": "zero_bubble_h1"}
    compiled = compile_pipeline(plan(**config), settings(**config).parallel)
    kinds = {instruction.label.kind for instruction in compiled.instructions if isinstance(instruction.label, Task)}
    assert {TaskKind.BACKWARD_INPUT, TaskKind.BACKWARD_WEIGHT} <= kinds
    assert_same(results_of(compiled, 3), expected)


def test_prediction_in_stages(plan, settings):
    compiled = compile_pipeline(plan(prediction, num_updated=0), settings().parallel)
    assert_same(results_of(compiled, 1), prediction(*ARGUMENTS))


def test_instructions_follow_the_schedule_and_read_only_what_is_there(planned, compiled):
    for stage in range(2):
        labels = [instruction.label for instruction in compiled.instructions]
        tasks = [label for label in labels if isinstance(label, Task) and label.stage == stage and label.micro >= 0]
        assert tasks == [task for task in planned.schedule.stages[stage] if task.micro >= 0]
    there = {number for number, *_ in compiled.variables} | {n for numbers, *_ in compiled.parts for n in numbers}
    for instruction in compiled.instructions:
        assert there.issuperset(instruction.inputs), instruction.label
        there.update(instruction.outputs)
        there.difference_update(instruction.frees)
    assert there.issuperset({*compiled.updated.values(), *compiled.results.values()})


def test_a_measured_step_has_a_time_for_every_task_and_a_peak_for_every_stage(planned, compiled):
    compiled.measuring = True
    try:
        results_of(compiled, 3)
    finally:
        compiled.measuring = False
    assert set(compiled.times) >= {task for task in planned.schedule if task.micro >= 0}
    assert all(start <= end for start, end in compiled.times.values())
    assert set(compiled.peaks) == {0, 1}
    assert min(compiled.peaks.values()) > W0.nbytes
    assert len(compiled.parts[0][0]) == MICRO


def test_a_value_is_freed_by_its_last_reader_or_by_its_maker():
    instructions = [
        StageInstruction(None, (0,), (1, 2)),  # nobody reads 2
        StageInstruction(None, (0, 1), (3,)),
        StageInstruction(None, (1, 3), (4,)),
    ]
    _free(instructions, needed={4})
    assert [set(instruction.frees) for instruction in instructions] == [{2}, {0}, {1, 3}]


def test_an_instruction_hands_values_on_and_forgets_them():
    values = [1, 2, None, None]
    outputs = StageInstruction(lambda a, b: (a + b, a - b), (0, 1), (2, 3), frees=(0, 3)).execute(values)
    assert outputs == (3, -1)
    assert values == [None, 2, 3, None]
    with pytest.raises(ValueError, match="zip"):
        StageInstruction(lambda: (1,), (), (2, 3)).execute(values)
