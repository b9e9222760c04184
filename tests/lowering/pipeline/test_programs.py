"""The programs of a chunk: what each computes, where its values come from, and what it may overwrite."""

import jax
import jax.numpy as jnp
import pytest
from small_pipelines import ROUTE, on, opened, prediction, summed, tied, training, two_products

from sporax.ir.config.parallel_config import ParallelConfig
from sporax.ir.config.plan_settings import PlanSettings
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.hardware import load_profile
from sporax.lowering.pipeline.assign import assign
from sporax.lowering.pipeline.chunk import chunk_graphs
from sporax.lowering.pipeline.programs import PER_MICRO, Slot, programs_of, update_levels
from sporax.planner import PlanRequest, make_plan

MESH = DeviceMatrix((2,))


def programs(step, gather_each_time=False, sharded=False, **options):
    """The programs of both chunks."""
    assigned = assign(opened(step, **options), ROUTE)
    chunks = chunk_graphs(assigned)
    levels = update_levels(assigned, chunks)
    config = ParallelConfig(
        device_num=2,
        parallel_mode="semi_auto_parallel",
        enable_parallel_optimizer=sharded,
        parallel_optimizer_threshold=0,
    )
    return [
        programs_of(
            chunk,
            make_plan(PlanRequest(chunk.step.graph, MESH, PlanSettings(config), load_profile("cpu"))).plan,
            assigned,
            levels,
            1 + max(levels.values(), default=0),
            gather_each_time,
        )
        for chunk in chunks
    ]


def kinds(entries):
    return [slot.kind for slot, _ in entries]


def names(program):
    return [operator.name for operator in program.step.graph.operators]


def test_every_task_finds_what_earlier_tasks_have_left():
    """The programs in the order of a step: what one reads lies where another one, or the step, has put it."""
    for chunk in programs(training(tied, clip=True)):
        there = {}
        order = [chunk.prepare, chunk.forward, chunk.backward, *chunk.updates]
        for program in order:
            for slot, place in program.inputs:
                if slot.kind in ("sum", "kept", "ready", "step"):
                    assert there[slot].dims == place.dims, (program.name, slot)
            there.update(program.outputs)
            assert program.plan.inputs[len(program.step.constants) :] == tuple(
                place for _, place in program.inputs[program.num_sums :]
            )


def test_the_forward_program_sends_and_keeps_and_the_backward_program_adds():
    first, second = programs(training())
    assert names(first.forward).count("dot_general") == 1
    assert sorted(set(kinds(first.forward.outputs))) == ["kept", "sent"]
    assert first.backward.num_sums == 1
    assert kinds(first.backward.inputs)[0] == kinds(first.backward.outputs)[0] == "sum"
    assert "received" in kinds(first.backward.inputs)
    assert sorted(set(kinds(second.backward.outputs))) == ["sent", "sum"]
    assert all(kind in PER_MICRO for kind in ("kept", "received", "sent", "micro"))


def read_by_name(w0, w1, x, y):
    """Several operators read one activation, each by a name of its own, as marks of strategies have it."""
    with on(0):
        hidden = x @ w0
        one, other = (jax.lax.optimization_barrier(hidden) for _ in range(2))
        product = one * other
    with on(1):
        return ((product @ w1 - y) ** 2).sum()


def test_what_has_several_names_is_kept_once():
    first, _ = programs(training(read_by_name))
    assert kinds(first.forward.outputs).count("kept") == 1
    read = [slot for slot, _ in first.backward.inputs if slot.kind == "kept"]
    assert len(read) > len(set(read)) == 1


def gated(w0, w1, x, y):
    """A product of two activations of one product."""
    with on(0):
        hidden = x @ w0
        product = jax.nn.silu(hidden) * jnp.tanh(hidden)
    with on(1):
        return ((product @ w1 - y) ** 2).sum()


def test_what_is_made_element_by_element_of_what_is_kept_is_made_again():
    first, _ = programs(training(gated))
    made = {tensor: entry.name for entry in first.forward.step.graph.operators for tensor in entry.results}
    kept = [made[slot.number] for slot, _ in first.forward.outputs if slot.kind == "kept"]
    assert kept == ["dot_general"]
    assert {"logistic", "tanh"} <= {*names(first.backward)} & {*names(first.forward)}


def test_sums_start_as_zeros_and_are_overwritten():
    for chunk in programs(training()):
        assert chunk.prepare.zeros == kinds(chunk.prepare.outputs).count("sum")
        sums = {slot for slot, _ in chunk.backward.inputs if slot.kind == "sum"}
        assert chunk.backward.donated >= sums
        assert Slot("variable", 0) in chunk.updates[-1].donated or Slot("variable", 1) in chunk.updates[-1].donated


def test_gradients_of_weights_can_wait():
    second = programs(training())[1]
    assert "sent" in kinds(second.inputs.outputs)
    assert second.inputs.num_sums == 0
    assert "sent" not in kinds(second.weights.outputs)
    assert second.weights.num_sums == second.backward.num_sums == 1
    assert sorted(names(second.inputs) + names(second.weights)) == sorted(names(second.backward))
    assert names(second.weights).count("dot_general") == names(second.inputs).count("dot_general") == 1
    made_before = {slot for slot, _ in second.forward.outputs}
    assert made_before.issuperset(slot for slot, _ in second.inputs.inputs if slot.kind == "kept")


def test_what_gradients_of_several_cells_need_does_not_wait():
    def loss_of(w0, w1, x, y):
        with on(0):
            with jax.named_scope("a"):
                hidden = jnp.tanh(x @ w0)
            with jax.named_scope("b"):
                hidden = jnp.tanh(hidden @ w1)
        with on(1):
            return ((hidden - y) ** 2).sum()

    first = programs(training(loss_of))[0]
    assert first.weights.num_sums == 2
    assert names(first.inputs)  # the cotangent of b's product, which both gradients read
    assert "sent" not in kinds(first.inputs.outputs)


@pytest.mark.parametrize(("clip", "num_levels"), [(False, 1), (True, 3)])
def test_the_update_has_a_level_for_each_exchange_between_chunks(clip, num_levels):
    for chunk in programs(training(clip=clip)):
        assert len(chunk.updates) == num_levels
        updated = [level for level, program in enumerate(chunk.updates) if "variable" in kinds(program.outputs)]
        assert len(updated) == 1
    assert programs(training())[1].updates[0].name == "chunk1_update0"


def test_a_weight_that_a_later_level_reads_is_not_overwritten():
    def step(w0, w1, x, y):
        _, (g0, g1) = jax.value_and_grad(lambda *weights: summed(two_products, *weights, x, y), (0, 1))(w0, w1)
        return [w0 - g0, w1 - g1, g0 * (g1 * g1).sum() + w0]

    first = programs(step)[0]
    assert Slot("variable", 0) in {slot for slot, _ in first.updates[0].outputs}
    assert Slot("variable", 0) in {slot for slot, _ in first.updates[1].inputs}
    assert Slot("variable", 0) not in first.updates[0].donated


@pytest.mark.parametrize("each_time", [False, True])
def test_weights_in_shards_are_gathered_once_per_step_or_by_every_task(each_time):
    first = programs(training(), gather_each_time=each_time, sharded=True)[0]
    assert ("ready" in kinds(first.prepare.outputs)) is not each_time
    assert ("ready" in kinds(first.forward.inputs)) is not each_time
    assert ("variable" in kinds(first.forward.inputs)) is each_time
    assert "variable" in kinds(first.updates[0].inputs)


def test_a_forward_pass_alone_gives_its_results_and_has_no_other_work():
    first, second = programs(prediction, num_updated=0)
    assert kinds(second.forward.outputs) == ["result"]
    assert first.backward.is_empty
    assert second.updates[0].is_empty
    assert second.backward.is_empty
