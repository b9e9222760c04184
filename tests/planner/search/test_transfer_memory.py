"""What collectives and replaced arguments do to the predicted memory of plans, beside what XLA says."""

import jax
import networks
import pytest
from running import arguments_of, compiled

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.hardware import load_profile
from sporax.ir.placement import Placement
from sporax.planner.cost import Roofline, cost_of, link_costs
from sporax.planner.memory.backend import combined_all_reduces
from sporax.planner.memory.peak import MemoryProfile, memory_of
from sporax.planner.memory.step_events import Timeline
from sporax.planner.memory.xla_cpu.instructions import Instructions
from sporax.planner.memory.xla_cpu.kernel_fusion import XLA_CPU, copied_arguments, kernels_of
from sporax.planner.search import dynamic
from sporax.planner.search.space.plan_assembly import replicated_plan
from sporax.planner.search.space.problem import SearchOptions

LAYERS, BATCH, WIDTH = 4, 64, 256
PARAMETER = WIDTH * WIDTH * 4
MESH = DeviceMatrix((2, 2, 2))
MODEL = Roofline(load_profile("h200"), link_costs(load_profile("h200"), MESH))
WHOLE, BY_BATCH, BY_ROWS = Placement(((), ())), Placement(((0, 1, 2), ())), Placement(((0, 1, 2), ()))


@pytest.fixture
def _optimized():
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


def cut(step, parameters, data, model=MODEL):
    inputs = [item.tensor for item in step.graph.inputs][len(step.constants) :]
    fixed = {tensor: parameters if tensor not in inputs[-2:] else data for tensor in inputs}
    return dynamic(step.graph, MESH, model, SearchOptions(fully_use_devices=True, fixed=fixed)).plan


def compiled_bytes(step, plan):
    donated = tuple(argument - len(step.constants) for _, argument in step.graph.aliases)
    program = jax.jit(compiled(step, plan), donate_argnums=donated).lower(*arguments_of(step)).compile()
    used = program.memory_analysis()
    return used.argument_size_in_bytes + used.temp_size_in_bytes + used.output_size_in_bytes - used.alias_size_in_bytes


def copied_in(step, plan):
    """Tensors of the arguments that a plan's program copies."""
    instructions = Instructions(Timeline(step.graph, plan))
    numbers = instructions.number
    inputs, outputs = instructions.timeline.inputs, instructions.timeline.outputs
    kernels = kernels_of(instructions, [numbers[value] for value in outputs])
    replaced = {numbers[inputs[argument]]: numbers[outputs[result]] for result, argument in step.graph.aliases}
    tensors = {number: tensor for (tensor, _), number in numbers.items()}
    return {tensors[argument] for argument in copied_arguments(kernels, replaced)}


@pytest.mark.usefixtures("_optimized")
@pytest.mark.parametrize(("parameters", "data"), [(WHOLE, BY_BATCH), (BY_ROWS, BY_BATCH), (WHOLE, WHOLE)])
def test_prediction_is_near_the_compiled_program(parameters, data):
    step = networks.mlp(LAYERS, BATCH, WIDTH)
    plan = cut(step, parameters, data)
    assert memory_of(step.graph, plan, XLA_CPU).peak_bytes == pytest.approx(compiled_bytes(step, plan), rel=0.1)


@pytest.mark.usefixtures("_optimized")
def test_what_is_lost_between_arrays_of_different_sizes_is_predicted():
    """Gathered parameters are four times as large as activations: a seventh of the program's memory is gaps."""
    step = networks.mlp(3, 256, 128)
    slow = Roofline(load_profile("cpu"), link_costs(load_profile("cpu"), MESH))  # parameters travel, activations do not
    plan = cut(step, BY_ROWS, BY_BATCH, slow)
    predicted = memory_of(step.graph, plan, XLA_CPU)
    assert predicted.peak_bytes == pytest.approx(compiled_bytes(step, plan), rel=0.01)
    assert sum(predicted.by_use.values()) == predicted.peak_bytes


SLOW = Roofline(load_profile("cpu"), link_costs(load_profile("cpu"), MESH))
"""Links over which it pays to reduce parts of gradients, and to gather them after that."""


@pytest.mark.usefixtures("_optimized")
@pytest.mark.parametrize(("batch", "width", "data"), [(512, 480, BY_BATCH), (128, 512, WHOLE)])
def test_gradients_that_are_reduced_in_parts_and_gathered_are_predicted(batch, width, data):
    """Gathered gradients come in turn, and the first ones lie where arguments were that have been copied."""
    step = networks.mlp(3, batch, width)
    plan = cut(step, WHOLE, data, SLOW)
    assert memory_of(step.graph, plan, XLA_CPU).peak_bytes == pytest.approx(compiled_bytes(step, plan), rel=0.01)


def test_reductions_that_are_one_of_several_moves_are_merged():
    """Gradients of parameters that half of an axis' devices keep: scattered in pairs, then reduced over the pairs."""
    step = networks.mlp_by_batch(3, 8192, 256, MESH.shape)
    plan = cut(step, Placement(((2,), ())), BY_BATCH, SLOW)
    instructions = Instructions(Timeline(step.graph, plan)).instructions

    (together,) = (group for group in combined_all_reduces(instructions) if len(group) > 1)
    assert [instructions[number].combines for number in together] == [(0, 1, "sum", "float32")] * 3
    made_by = {array: instruction for instruction in instructions for array in instruction.writes}
    scattered = [made_by[array] for number in together for array in instructions[number].reads]
    # The dimension that is scattered comes first in the buffer, so a copy brings it back.
    assert sum(made_by[array].sends for copy in scattered for array in copy.reads) == 3
    assert cost_of(step.graph, plan, SLOW).collectives["reduce_scatter"][0] == 3


def test_gradients_that_are_reduced_together_are_all_there_twice():
    step = networks.mlp(LAYERS, BATCH, WIDTH)
    plan = cut(step, WHOLE, BY_BATCH)
    together = combined_all_reduces(Instructions(Timeline(step.graph, plan)).instructions)

    assert [len(members) for members in together if len(members) > 1] == [LAYERS + 1]  # and the loss
    assert memory_of(step.graph, plan, XLA_CPU).peak_bytes >= (LAYERS + 2 * LAYERS) * PARAMETER
    assert not copied_in(step, plan)  # the one collective makes all readers come before the updates


def test_reductions_that_need_each_other_stay_apart():
    step = networks.mlp(LAYERS, 32, 1024)  # narrow enough for weights to stay where they are
    columns, rows = Placement(((), (0, 1, 2))), BY_ROWS
    inputs = [item.tensor for item in step.graph.inputs][len(step.constants) :]
    fixed = dict(zip(inputs, [columns, rows, columns, rows, WHOLE, WHOLE], strict=True))
    plan = dynamic(step.graph, MESH, MODEL, SearchOptions(fully_use_devices=True, fixed=fixed)).plan

    instructions = Instructions(Timeline(step.graph, plan)).instructions
    reductions = [instruction for instruction in instructions if instruction.combines]
    assert len(reductions) >= 3
    assert len(combined_all_reduces(instructions)) == len(reductions)


def test_arguments_that_are_read_beside_their_update_are_copied():
    step = networks.mlp(LAYERS, BATCH, WIDTH)
    copied = copied_in(step, replicated_plan(step.graph, MESH))

    _, *others = [item.tensor for item in step.graph.inputs][len(step.constants) :][:LAYERS]
    assert copied == {*others}  # nobody needs a gradient of the data, so `first` is read once


def test_memory_over_time_has_one_figure_per_position():
    step = networks.mlp(LAYERS, BATCH, WIDTH)
    plan = cut(step, WHOLE, BY_BATCH)
    report = MemoryProfile(step.graph, plan, XLA_CPU).history

    positions = [position for position, _ in report]
    assert positions == sorted({*positions})
    assert positions[0] == -1
    assert max(sum(uses.values()) for _, uses in report) == memory_of(step.graph, plan, XLA_CPU).peak_bytes
