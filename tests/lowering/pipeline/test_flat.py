"""The graph of one micro batch: what leaves the loop, what every micro batch adds, and parts of marks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_pipelines import ARGUMENTS, X, assert_same, ingested, on, opened, run_flat, training, two_products

from operator_marks import operator_mark
from sporax.ir.graph import Operator
from sporax.ir.marks import DerivativeMark, GradientMark, LayoutMark, Side
from sporax.ir.operation import Operation, TensorSpec
from sporax.lowering.ingest.ingest import Equation
from sporax.lowering.pipeline.flat import BARRIER, Phase, invariant_tensors, part_of_identity


def test_what_depends_on_variables_alone_depends_on_no_micro_batch():
    def loss_of(w0, w1, x, y):
        return two_products(jnp.sin(w0), w1, x, y)

    micro = opened(training(loss_of))
    phases = dict(zip((operator.name for operator in micro.step.graph.operators), micro.phases, strict=True))
    assert phases["sin"] is Phase.INVARIANT
    assert phases["tanh"] is Phase.FORWARD
    invariant = invariant_tensors(micro)
    assert not invariant & set(micro.micro_inputs)
    first = len(micro.step.constants)
    assert {entry.tensor for entry in micro.step.graph.inputs[first : first + 2]} <= invariant


def linear(w0, w1, x, y):
    """Every micro batch has the same gradient of the second weight, and the same cotangent of the hidden rows."""
    with jax.named_scope("first"), on(0):
        hidden = jnp.tanh(x @ w0)
    with jax.named_scope("second"), on(1):
        return hidden.mean() + w1.sum()


def penalized(w0, w1, x, y):
    return two_products(w0, w1, x, y) + (w0**2).sum() * 0.1


def products(w0, w1, x, y):
    """An activation is itself the gradient of the second weight."""
    with jax.named_scope("first"), on(0):
        hidden = jnp.tanh(x @ w0)
    with jax.named_scope("second"), on(1):
        return (hidden * w1[:2]).sum()


@pytest.mark.parametrize("loss_of", [linear, penalized, products])
def test_terms_of_sums_are_made_by_every_micro_batch_and_read_by_nothing_else(loss_of):
    step = training(loss_of)
    micro = opened(step)
    assert_same(run_flat(micro), step(*ARGUMENTS))
    makers = micro.step.graph.producers()
    invariant = invariant_tensors(micro)
    terms = [term for micro_sum in micro.sums for term in micro_sum.terms]
    assert len(set(terms)) == len(terms) >= 3
    for term in terms:
        assert micro.phases[makers[term]] in (Phase.FORWARD, Phase.BACKWARD)
        assert term not in invariant
        assert not [operator for operator in micro.step.graph.operators if term in operator.operands]


def test_a_part_of_a_mark_speaks_of_its_own_tensors():
    graph = ingested(training())
    number = next(n for n, operator in enumerate(graph.graph.operators) if isinstance(operator.mark, GradientMark))
    operator, equation = part_of_identity(graph.graph.operators[number], graph.equations[number], [1])
    assert operator.mark == equation.params["mark"] == GradientMark(("w1",), (0,))
    assert operator.operands == graph.graph.operators[number].operands[1:]
    results = equation.primitive.bind(X, **equation.params)
    np.testing.assert_array_equal(results[0], X)


CALL = operator_mark("MatMul", 1, Side.IN, ((2, 1), (1, 2)))
HALVES = (2, 1)


@pytest.mark.parametrize(
    ("mark", "part"),
    [
        (DerivativeMark(CALL, (0, 1), True), DerivativeMark(CALL, (1,), True)),
        (LayoutMark("reshard", 2, (None, HALVES)), LayoutMark("reshard", 2, (HALVES,))),
        (CALL, None),  # a barrier is left
    ],
)
def test_what_a_mark_says_of_each_tensor_stays_with_it(mark, part):
    spec = TensorSpec((2, 2), "float32", 4)
    whole = Operator(Operation("mark", (spec, spec), (spec, spec), {"mark": mark}), (0, 1), (2, 3))
    operator, equation = part_of_identity(whole, Equation(None, {"mark": mark}), [1])
    assert operator.mark == equation.params.get("mark") == part
    assert part or (equation.primitive, operator.name) == (BARRIER, BARRIER.name)
    assert (operator.operands, operator.results) == ((1,), (3,))
