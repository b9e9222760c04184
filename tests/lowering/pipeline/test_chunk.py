"""Chunks as graphs of their own: what they take, send and receive, and what no pipeline allows."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from small_pipelines import MICRO, ROUTE, ROWS, WIDTH, on, opened, prediction, summed, tied, training, two_products

from sporax.base.errors import SporaxRuntimeError
from sporax.ir.graph import LITERAL, MICRO_LOOP, Role
from sporax.lowering.pipeline.assign import assign
from sporax.lowering.pipeline.chunk import chunk_graphs
from sporax.lowering.pipeline.flat import Phase


def chunks_of(step, **options):
    return chunk_graphs(assign(opened(step, **options), ROUTE))


@pytest.mark.parametrize("step", [training(), training(tied, clip=True)], ids=["plain", "tied and clipped"])
def test_a_chunk_reads_nothing_but_its_inputs_and_what_it_makes(step):
    for chunk in chunks_of(step):
        graph = chunk.step.graph
        there = {entry.tensor for entry in graph.inputs}
        for operator in graph.operators:
            assert there.issuperset(set(operator.operands) - {LITERAL}), operator
            there.update(operator.results)
        assert there.issuperset(graph.outputs)


def test_an_activation_goes_forward_and_its_cotangent_back():
    first, second = chunks_of(training())
    shape = (ROWS // MICRO, WIDTH)
    assert [*first.received.values()] == [Phase.BACKWARD]
    assert [*second.received.values()] == [Phase.FORWARD]
    assert first.sent == second.received
    assert second.sent == first.received
    for chunk in (first, second):
        assert [chunk.step.graph.tensors[tensor].shape for tensor in chunk.sent] == [shape]


def test_each_chunk_has_its_own_arguments_updates_and_results():
    first, second = chunks_of(training())
    assert (first.name, second.name) == ("chunk0", "chunk1")
    assert set(first.arguments.values()) == {0}
    assert set(second.arguments.values()) == {1}
    assert set(first.micro_inputs.values()) == {2}
    assert set(second.micro_inputs.values()) == {3}
    assert (set(first.updates), set(second.updates)) == ({0}, {1})
    assert (set(first.results), set(second.results)) == (set(), {2})  # the loss is made in the last stage
    for chunk in (first, second):
        ((output, position),) = chunk.step.graph.aliases
        assert chunk.step.graph.inputs[position].role is Role.PARAMETER
        assert chunk.step.graph.outputs[output] in chunk.updates.values()


def test_factors_of_the_update_arrive_once_per_step():
    received = [phase for chunk in chunks_of(training(clip=True)) for phase in chunk.received.values()]
    assert Phase.UPDATE in received


def test_what_depends_on_variables_alone_is_computed_by_every_chunk_that_needs_it():
    def loss_of(w0, w1, x, y):
        shared = jnp.sin(w0)
        return two_products(shared, w1 * shared, x, y)

    for chunk in chunks_of(training(loss_of)):
        rows = zip(chunk.step.graph.operators, chunk.phases, strict=True)
        assert [phase for operator, phase in rows if operator.name == "sin"] == [Phase.INVARIANT]


def test_what_any_chunk_can_make_is_made_by_the_first_that_reads_the_variable():
    def step(w0, w1, x, y):
        return [w0, w1 * 0.5, summed(two_products, w1, w1, x, y)]  # both stages read w1

    first, second = chunks_of(step)
    assert (set(first.updates), set(second.updates)) == ({1}, set())


def with_counter(read_in, written_in):
    """A step whose counter is read in one stage and changed in another one by an activation."""

    def step(w0, w1, x, y):
        rows = tuple(array.reshape(MICRO, -1, WIDTH) for array in (x, y))

        def body(state, row):
            total, count = state
            with on(0):
                hidden = row[0] @ (w0 * count if read_in == 0 else w0)
            with on(1):
                loss = (hidden @ (w1 * count if read_in == 1 else w1)).sum() + row[1].sum()
            with on(written_in):
                count = count + (hidden.sum() if written_in == 0 else loss)
            return (total + loss, count), None

        with jax.named_scope(MICRO_LOOP):
            return [*lax.scan(body, (jnp.float32(0), jnp.float32(1)), rows)[0]]

    return step


def test_a_carry_belongs_to_the_stage_that_reads_and_writes_it():
    first, second = chunks_of(with_counter(1, 1), num_updated=0)
    assert (len(first.carries), len(second.carries)) == (0, 1)


def test_a_carry_between_stages_is_refused():
    with pytest.raises(
        SporaxRuntimeError,
        match=r"^For 'PipelineCell', a variable that a micro batch hands to the next must be read and written in one stage, "
        r"but carry \d+ is read in chunk 0 and written in chunk 1\.$",
    ):
        chunks_of(with_counter(0, 1), num_updated=0)


def test_a_forward_pass_alone_sends_forward_only():
    first, second = chunks_of(prediction, num_updated=0)
    assert [*second.received.values()] == [Phase.FORWARD]
    assert first.received == {}
    assert set(second.results) == {0}
