"""The loop over micro batches is opened: the flat graph of one micro batch, run as described, is the step."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from small_pipelines import (
    ARGUMENTS,
    MICRO,
    ROLES,
    ROWS,
    WIDTH,
    assert_same,
    ingested,
    opened,
    prediction,
    run_flat,
    summed,
    tied,
    training,
    two_products,
)

from sporax.base.errors import SporaxRuntimeError
from sporax.ir.graph import MICRO_LOOP, Role
from sporax.lowering.pipeline.flat import Phase
from sporax.lowering.pipeline.micro_step import open_micro_loop


@pytest.mark.parametrize("loss_of", [two_products, tied])
@pytest.mark.parametrize("clip", [False, True])
def test_the_flat_graph_run_for_every_micro_batch_is_the_step(loss_of, clip):
    step = training(loss_of, clip)
    micro = opened(step)
    assert (micro.num_micro, micro.trains, micro.looped) == (MICRO, True, True)
    assert "scan" not in {operator.name for operator in micro.step.graph.operators}
    assert_same(run_flat(micro), step(*ARGUMENTS))


def test_loss_and_gradients_are_sums_over_the_micro_batches():
    micro = opened(training())
    shapes = sorted(micro.step.graph.tensors[total.total].shape for total in micro.sums)
    assert shapes == [(), (WIDTH, WIDTH), (WIDTH, WIDTH)]
    assert micro.carries == ()
    producers = micro.step.graph.producers()
    assert all(total.total not in producers for total in micro.sums)


def test_inputs_are_split_into_micro_batches_by_their_first_dimension():
    micro = opened(training())
    shapes = {position: micro.step.graph.tensors[tensor].shape for tensor, position in micro.micro_inputs.items()}
    assert shapes == {2: (ROWS // MICRO, WIDTH), 3: (ROWS // MICRO, WIDTH)}


def test_what_changes_from_one_micro_batch_to_the_next_is_carried():
    def step(w0, w1, x, y):
        rows = tuple(array.reshape(MICRO, -1, WIDTH) for array in (x, y))

        def body(state, row):
            total, count = state
            return (total + two_products(w0, w1 * count, *row), count * 2), None

        with jax.named_scope(MICRO_LOOP):
            total, count = lax.scan(body, (jnp.float32(0), jnp.float32(1)), rows)[0]
        return [total, count]

    micro = opened(step, num_updated=0)
    assert len(micro.carries) == 1
    results = run_flat(micro)
    assert_same(results, step(*ARGUMENTS))
    assert float(results[1]) == 2**MICRO


def test_a_total_that_does_not_start_with_zero_is_carried():
    def step(w0, w1, x, y):
        rows = tuple(array.reshape(MICRO, -1, WIDTH) for array in (x, y))
        with jax.named_scope(MICRO_LOOP):
            return [lax.scan(lambda total, row: (total + two_products(w0, w1, *row), None), w0.sum(), rows)[0]]

    micro = opened(step, num_updated=0)
    assert (len(micro.sums), len(micro.carries)) == (0, 1)
    assert_same(run_flat(micro), step(*ARGUMENTS))


def test_zeros_may_pass_barriers_on_their_way_to_the_loop():
    def step(w0, w1, x, y):
        rows = tuple(array.reshape(MICRO, -1, WIDTH) for array in (x, y))
        (total,), _ = lax.optimization_barrier(([jnp.zeros(2)], w0))
        with jax.named_scope(MICRO_LOOP):
            return [
                lax.scan(lambda total, row: (total + jnp.full(2, two_products(w0, w1, *row)), None), total, rows)[0]
            ]

    micro = opened(step, num_updated=0)
    assert (len(micro.sums), len(micro.carries)) == (1, 0)
    assert_same(run_flat(micro), step(*ARGUMENTS))


def test_the_backward_pass_reads_a_copy_of_what_is_carried():
    def step(w0, w1, x, y):
        rows = tuple(array.reshape(MICRO, -1, WIDTH) for array in (x, y))

        def total(w0):
            def add(state, row):
                loss, count = state
                return (loss + two_products(w0 * count, w1, *row), count + 1), None

            with jax.named_scope(MICRO_LOOP):
                return lax.scan(add, (jnp.float32(0), jnp.float32(1)), rows)[0][0]

        return [jax.grad(total)(w0)]

    micro = opened(step, num_updated=0)
    assert_same(run_flat(micro), step(*ARGUMENTS))
    (carry,) = micro.carries
    rows = list(zip(micro.step.graph.operators, micro.phases, strict=True))
    assert not [operator for operator, phase in rows if phase is Phase.BACKWARD and carry.before in operator.operands]
    copies = [operator for operator, _ in rows if operator.name == "optimization_barrier"]
    assert [operator.operands for operator in copies] == [(carry.before,)]


def test_a_cast_before_the_loop_runs_on_every_micro_batch():
    def step(w0, w1, x, y):
        return [summed(two_products, w0, w1, x.astype(jnp.float16).astype(jnp.float32), y)]

    micro = opened(step, num_updated=0)
    assert_same(run_flat(micro), step(*ARGUMENTS))
    rows = zip(micro.step.graph.operators, micro.phases, strict=True)
    casts = [
        operator.operation.operands[0].shape
        for operator, phase in rows
        if phase is Phase.FORWARD and "float16" in str(operator.operation)
    ]
    assert casts == [(ROWS // MICRO, WIDTH)] * 2


def test_branches_around_the_update_become_choices():
    def step(w0, w1, x, y):
        new = training()(w0, w1, x, y)
        return [*lax.cond(new[2] > 0, lambda: (new[0], new[1]), lambda: (w0, w1)), new[2]]

    micro = opened(step)
    assert "cond" not in {operator.name for operator in micro.step.graph.operators}
    assert_same(run_flat(micro), step(*ARGUMENTS))


def test_without_a_loop_there_is_one_forward_pass():
    micro = opened(prediction, num_updated=0)
    assert (micro.num_micro, micro.looped, micro.trains) == (1, False, False)
    assert set(micro.phases) == {Phase.FORWARD}
    assert_same(run_flat(micro), prediction(*ARGUMENTS))


def assert_refused(step, words, **options):
    with pytest.raises(SporaxRuntimeError, match=f"^For 'PipelineCell', {words}"):
        opened(step, **options)


def test_two_loops_in_a_step_are_refused():
    def step(*arguments):
        return [summed(two_products, *arguments) * summed(tied, *arguments)]

    assert_refused(step, "there must be one in a step, but this step runs 2 of them", num_updated=0)


def test_values_of_single_micro_batches_stay_inside():
    def step(w0, w1, x, y):
        with jax.named_scope(MICRO_LOOP):
            total, parts = lax.scan(
                lambda total, row: (total + row.sum(), row.sum()), jnp.float32(0), x.reshape(MICRO, -1, WIDTH)
            )
        return [total, parts * 2]

    assert_refused(
        step, r"only the sum over the micro batches .* something reads a stacked value of shape \(4,\)", num_updated=0
    )


def test_data_that_is_computed_before_the_loop_is_refused():
    def step(w0, w1, x, y):
        return [summed(two_products, w0, w1, jnp.sin(x), y)]

    assert_refused(step, "input .* must be an input of the step, but it is computed from others by sin", num_updated=0)


def test_gradients_that_are_no_sums_are_refused():
    def step(w0, w1, x, y):
        def total(w0):
            with jax.named_scope(MICRO_LOOP):
                return lax.scan(lambda state, row: ((state * row).sum(), None), w0.sum(), x.reshape(MICRO, -1, WIDTH))[
                    0
                ]

        return [jax.grad(total)(w0)]

    assert_refused(
        step, "gradients must be sums over the micro batches, but the backward pass hands something else", num_updated=0
    )


def test_arguments_that_are_no_data_are_not_split():
    roles = (*ROLES[:2], (Role.STATE, "buffer"), ROLES[3])
    with pytest.raises(SporaxRuntimeError, match="must be an input of the step"):
        open_micro_loop(ingested(training(), roles=roles))
