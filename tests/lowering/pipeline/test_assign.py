"""Every operator gets its chunk: by its Cell, its cotangents, or most of its bytes."""

import jax
import jax.numpy as jnp
import pytest
from small_pipelines import (
    ARGUMENTS,
    ROUTE,
    WIDTH,
    assert_same,
    on,
    opened,
    prediction,
    run_flat,
    tied,
    training,
    two_products,
)

from sporax.base.errors import SporaxRuntimeError
from sporax.ir.marks import GradientMark
from sporax.lowering.pipeline.assign import assign, stage_of_cell
from sporax.lowering.pipeline.flat import Phase


def assigned(step, route=ROUTE, **options):
    return assign(opened(step, **options), route)


def chunks(result, phase, *names):
    """The chunks of the operators of a phase, by name."""
    rows = zip(result.micro.step.graph.operators, result.micro.phases, result.chunks, strict=True)
    return [(operator.name, chunk) for operator, here, chunk in rows if here is phase and operator.name in names]


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("loss_of", [two_products, tied])
def test_the_assigned_step_computes_what_the_step_does(loss_of, clip):
    step = training(loss_of, clip)
    result = assigned(step)
    assert result.micro.sums == ()
    assert_same(run_flat(result.micro, added=result.summed), step(*ARGUMENTS))


def test_forward_operators_are_where_their_cells_say_and_cotangents_go_back():
    result = assigned(training())
    assert chunks(result, Phase.FORWARD, "dot_general", "tanh") == [("dot_general", 0), ("tanh", 0), ("dot_general", 1)]
    backward = chunks(result, Phase.BACKWARD, "dot_general")
    assert [chunk for _, chunk in backward] == [
        1,
        1,
        0,
    ]  # both products of the second stage, then the first one's weight


def test_an_operator_without_a_cell_follows_what_it_reads():
    def forward(w0, w1, x, y):
        with on(0):
            hidden = x @ w0
        first = jnp.sin(hidden)
        with on(1):
            hidden = first @ w1
        return [jnp.cos(hidden - y), jnp.exp(first + hidden)]

    result = assigned(forward, num_updated=0)
    assert chunks(result, Phase.FORWARD, "sin", "cos", "exp") == [("sin", 0), ("cos", 1), ("exp", 1)]


def test_cotangents_of_two_stages_are_added_in_the_earlier_one():
    def loss_of(w0, w1, x, y):
        with on(0):
            hidden = jnp.exp(x @ w0)
            other = jnp.sin(hidden)
        with on(1):
            return ((hidden @ w1 - y + other) ** 2).sum()

    assert chunks(assigned(training(loss_of)), Phase.BACKWARD, "add_any") == [("add_any", 0)]


def test_the_mark_of_all_gradients_becomes_one_for_each_chunk():
    result = assigned(training())
    rows = zip(result.micro.step.graph.operators, result.chunks, strict=True)
    marks = [(operator.mark.parameters, chunk) for operator, chunk in rows if isinstance(operator.mark, GradientMark)]
    assert marks == [(("w0",), 0), (("w1",), 1)]


def test_a_weight_of_two_stages_has_a_sum_in_each_and_its_owner_adds_them():
    result = assigned(training(tied))
    graph, shape = result.micro.step.graph, (WIDTH, WIDTH)
    places = sorted(result.chunk_of[tensor] for tensor in result.summed if graph.tensors[tensor].shape == shape)
    assert places == [0, 1, 1]  # w0 in both stages, w1 in its own
    assert ("add_any", 0) in chunks(result, Phase.UPDATE, "add_any", "add")


def test_a_factor_of_one_number_travels_and_gradients_stay():
    result = assigned(training(clip=True))
    graph = result.micro.step.graph
    for operator, phase, chunk in zip(graph.operators, result.micro.phases, result.chunks, strict=True):
        if phase is not Phase.UPDATE:
            continue
        crossing = [tensor for tensor in operator.operands if result.chunk_of.get(tensor, chunk) != chunk]
        assert all(graph.tensors[tensor].shape == () for tensor in crossing), operator


def test_what_depends_on_variables_alone_belongs_nowhere():
    def loss_of(w0, w1, x, y):
        return two_products(jnp.sin(w0), w1, x, y)

    result = assigned(training(loss_of))
    assert chunks(result, Phase.INVARIANT, "sin") == [("sin", None)]


def test_a_backward_operator_on_labels_alone_goes_to_the_stage_that_reads_it():
    """Its result is no cotangent: no stage has made one yet, so it waits for its reader instead of leading it."""

    @jax.custom_vjp
    def weighted(hidden, y):
        return hidden * jnp.sin(y)

    def backward(y, cotangent):
        return cotangent * jnp.sin(y), jnp.zeros_like(y)

    weighted.defvjp(lambda hidden, y: (weighted(hidden, y), y), backward)

    def loss_of(w0, w1, x, y):
        with jax.named_scope("first"), on(0):
            hidden = x @ w0
        hidden = weighted(hidden, y)
        with jax.named_scope("second"), on(1):
            return ((hidden @ w1) ** 2).sum()

    step = training(loss_of)
    result = assigned(step)
    (sine,) = chunks(result, Phase.BACKWARD, "sin")
    assert sine == ("sin", 1)
    assert_same(run_flat(result.micro, added=result.summed), step(*ARGUMENTS))


def outside(w0, w1, x, y):
    """A product that is in no stage, between the first and the last of three."""
    with jax.named_scope("first"), on(0):
        hidden = jnp.tanh(x @ w0)
    with jax.named_scope("second"), on(1):
        hidden = jnp.sin(hidden)
    with jax.named_scope("between"):
        hidden = hidden @ w1
    with jax.named_scope("third"), on(2):
        return (jnp.cos(hidden) - y).sum()


def test_a_backward_operator_is_where_the_forward_operators_of_its_cell_are():
    step = training(outside)
    result = assigned(step, ((0, 0), (1, 0), (2, 0)))
    assert chunks(result, Phase.FORWARD, "dot_general") == [("dot_general", 0), ("dot_general", 1)]
    assert sorted(chunk for _, chunk in chunks(result, Phase.BACKWARD, "dot_general")) == [0, 1, 1]
    assert_same(run_flat(result.micro, added=result.summed), step(*ARGUMENTS))


def test_a_backward_pass_begins_in_the_last_chunk():
    def loss_of(w0, w1, x, y):
        with jax.named_scope("first"), on(0):
            hidden = jnp.tanh(x @ w0)
        with jax.named_scope("second"), on(1):
            hidden = jnp.sin(hidden)
        return (hidden * w1[:2]).sum()

    step = training(loss_of)
    result = assigned(step)
    gradients = [result.chunk_of[tensor] for tensor in result.summed if result.micro.step.graph.tensors[tensor].shape]
    assert sorted(gradients) == [0, 1]  # the second weight is read in the last stage alone
    assert_same(run_flat(result.micro, added=result.summed), step(*ARGUMENTS))


def test_a_forward_pass_alone_has_chunks_too():
    result = assigned(prediction, num_updated=0)
    assert chunks(result, Phase.FORWARD, "dot_general") == [("dot_general", 0), ("dot_general", 1)]


def test_a_stage_that_reads_from_a_later_one_is_refused():
    def loss_of(w0, w1, x, y):
        with jax.named_scope("first"), on(1):
            hidden = x @ w0
        with jax.named_scope("second"), on(0):
            return ((hidden @ w1 - y) ** 2).sum()

    with pytest.raises(
        SporaxRuntimeError,
        match=r"^For '.*second', the pipeline stage must not be smaller than that of what it reads, but it is in stage 0 "
        r"\(segment 0\) and reads from '.*first', PreNode, whose stage 1 \(segment 0\) is larger\.$",
    ):
        assigned(training(loss_of))


def test_a_stage_that_the_pipeline_does_not_have_is_refused():
    with pytest.raises(
        SporaxRuntimeError,
        match=r"must be among the stages and segments of the pipeline, \[\(0, 0\)\], but got stage 1",
    ):
        assigned(training(), route=((0, 0),))


def test_a_stage_without_segment_is_its_first():
    operators = opened(training()).step.graph.operators
    assert {stage_of_cell(operator) for operator in operators} == {None, (0, 0), (1, 0)}
