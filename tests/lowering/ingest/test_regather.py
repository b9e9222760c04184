"""Weights are gathered a second time for the backward pass: from their slices, not before a cotangent is there."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import LITERAL, MARK, Role
from sporax.ir.marks import GradientMark, WeightMark
from sporax.lowering.execute.rank_program import rank_program
from sporax.lowering.ingest.ingest import ingest
from sporax.lowering.ingest.regather import late_copy, regather_weights
from sporax.lowering.marks.mark_primitive import apply_mark
from sporax.planner.propagation.propagate import plan_by_propagation

X, W = jnp.ones((4, 3)), jnp.arange(9.0).reshape(3, 3)


def ingested(learns=True):
    """Two products with one weight, cast and transposed on its way, and its gradient."""

    def step(w, x):
        def loss(w):
            half = w.astype(jnp.bfloat16).T
            return (jnp.tanh(jnp.tanh(x @ w) @ half.astype(jnp.float32)) ** 2).sum()

        gradient = jax.grad(loss)(w)
        return [*apply_mark([gradient], GradientMark(("w",), (0,)))] if learns else [gradient]

    return ingest(jax.make_jaxpr(step)(W, X), [(Role.PARAMETER, "w"), (Role.DATA, "x")])


def backward_reads(step):
    """Tensors that come from the weight without work, and operators of the backward pass that read them."""
    graph = step.graph
    weights = {entry.tensor for entry in graph.inputs if entry.role is Role.PARAMETER}
    reading = []
    for operator in graph.operators:
        if weights & set(operator.operands):
            if operator.backward:
                reading.append(operator)
            elif operator.name in ("convert_element_type", "transpose"):
                weights.update(operator.results)
    return reading


def test_the_backward_pass_reads_copies_alone():
    before, after = ingested(), regather_weights(ingested())
    assert backward_reads(before)
    assert [operator.mark for operator in backward_reads(after)] == [WeightMark("w")]


def test_casts_and_transpositions_on_the_way_are_done_again():
    before, after = ingested().graph, regather_weights(ingested()).graph

    def light(graph):
        return [op.name for op in graph.operators if op.name in ("convert_element_type", "transpose")]

    assert len(light(after)) > len(light(before))
    result = {LITERAL, *(entry.tensor for entry in after.inputs)}
    for operator in after.operators:
        assert result.issuperset(operator.operands), operator
        result.update(operator.results)


def test_a_copy_waits_for_a_cotangent():
    graph = regather_weights(ingested()).graph
    makers = graph.producers()
    (copy,) = (
        operator for operator in graph.operators if operator.name == MARK and isinstance(operator.mark, WeightMark)
    )
    weight, cotangent = copy.operands
    assert graph.operators[makers[cotangent]].backward
    assert weight not in makers


def test_the_step_computes_the_same():
    expected = None
    for step in (ingested(), regather_weights(ingested())):
        plan = plan_by_propagation(step.graph, DeviceMatrix((1,)), {})
        mesh = jax.make_mesh((1,), ("a",), axis_types=(jax.sharding.AxisType.Auto,))
        spec = jax.sharding.PartitionSpec()
        program = jax.shard_map(
            rank_program(step, plan, ("a",)), mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False
        )
        (gradient,) = jax.jit(program)(*step.constants, W, X)
        expected = gradient if expected is None else expected
        np.testing.assert_allclose(gradient, expected, rtol=1e-6)


def test_weights_without_gradients_and_forward_passes_stay():
    step = ingested(learns=False)
    assert regather_weights(step).graph == step.graph


def copied(step):
    """Names of the weights that the backward pass reads from copies."""
    marks = [operator.mark for operator in regather_weights(step).graph.operators]
    return {mark.parameter for mark in marks if isinstance(mark, WeightMark)}


def test_frozen_weights_are_copied_as_well_unless_the_step_writes_them():
    def step(w, frozen, x):
        gradient = jax.grad(lambda w: jnp.tanh(jnp.tanh(x @ w) @ frozen).sum())(w)
        return apply_mark([gradient], GradientMark(("w",), (0,)))

    roles = [(Role.PARAMETER, "w"), (Role.PARAMETER, "frozen"), (Role.DATA, "x")]
    step_of_two = ingest(jax.make_jaxpr(step)(W, W, X), roles)
    assert copied(step_of_two) == {"frozen"}  # the gradient of `w` reads no `w`
    written = replace(step_of_two, graph=replace(step_of_two.graph, aliases=((0, 1),)))
    assert copied(written) == set()


@pytest.mark.parametrize("value", [1.0, 0.0, float("nan"), float("inf")])
def test_a_late_copy_is_the_weight_whatever_the_cotangent_is(value):
    np.testing.assert_array_equal(late_copy(W, jnp.full((2, 2), value)), W)
