"""Training steps of two small stages in plain JAX, as `PipelineCell` traces them, and a reference that runs their flat form."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from sporax.ir.graph import LITERAL, MICRO_LOOP, Role
from sporax.ir.marks import GradientMark
from sporax.lowering.ingest.ingest import ingest
from sporax.lowering.marks.mark_primitive import apply_mark
from sporax.lowering.pipeline.flat import Phase
from sporax.lowering.pipeline.micro_step import open_micro_loop

MICRO, ROWS, WIDTH = 4, 8, 4
RATE = 0.25
ROUTE = ((0, 0), (1, 0))
"""Two stages of one chunk each."""

_DRAW = np.random.default_rng(0)
W0, W1 = (_DRAW.normal(size=(WIDTH, WIDTH)).astype(np.float32) for _ in range(2))
X, Y = (_DRAW.normal(size=(ROWS, WIDTH)).astype(np.float32) for _ in range(2))
ARGUMENTS = (W0, W1, X, Y)
ROLES = ((Role.PARAMETER, "w0"), (Role.PARAMETER, "w1"), (Role.DATA, "input 0"), (Role.DATA, "input 1"))


def on(stage):
    """Where the operators inside belong."""
    return jax.named_scope(f"stage:{stage}")


def two_products(w0, w1, x, y):
    """The loss of a micro batch, half of it in each stage."""
    with jax.named_scope("first"), on(0):
        hidden = jnp.tanh(x @ w0)
    with jax.named_scope("second"), on(1):
        return ((hidden @ w1 - y) ** 2).sum()


def tied(w0, w1, x, y):
    """The first weight is read again in the second stage."""
    return two_products(w0, w1 + w0 * 0.5, x, y)


def summed(loss_of, w0, w1, x, y, micro=MICRO):
    """The loss summed over the micro batches, in one loop."""
    rows = tuple(array.reshape(micro, -1, *array.shape[1:]) for array in (x, y))

    def add(total, row):
        return total + loss_of(w0, w1, *row), None

    with jax.named_scope(MICRO_LOOP):
        return lax.scan(add, jnp.float32(0), rows)[0]


def training(loss_of=two_products, clip=False, micro=MICRO):
    """A step: new weights and the loss. With `clip` gradients are divided by the norm of all of them."""

    def step(w0, w1, x, y):
        loss, gradients = jax.value_and_grad(lambda *weights: summed(loss_of, *weights, x, y, micro), (0, 1))(w0, w1)
        g0, g1 = apply_mark(gradients, GradientMark(("w0", "w1"), (0, 0)))
        scale = RATE
        if clip:
            scale = RATE * lax.rsqrt((g0 * g0).sum() + (g1 * g1).sum())
        return [w0 - scale * g0, w1 - scale * g1, loss]

    return step


def prediction(w0, w1, x, y):
    """No micro batches and no gradients."""
    return [two_products(w0, w1, x, y)]


def ingested(step, arguments=ARGUMENTS, roles=ROLES, num_updated=2):
    """A step as an operator graph; its first results take the places of its first arguments."""
    return ingest(jax.make_jaxpr(step)(*arguments), roles, [(number, number) for number in range(num_updated)])


def opened(step, **options):
    """The flat form of a step."""
    return open_micro_loop(ingested(step, **options))


def run_flat(micro, arguments=ARGUMENTS, added=()):
    """The results of a flat step: every micro batch by itself, sums over all of them, then the update.

    Args:
        micro: the flat step.
        arguments: of the step.
        added: further tensors that the update has summed over the micro batches.
    """
    graph, first = micro.step.graph, len(micro.step.constants)
    numbers = [entry.tensor for entry in graph.inputs]
    whole = dict(zip(numbers[:first], micro.step.constants, strict=True))
    whole.update(zip(numbers[first:], arguments, strict=False))
    state = {carry.before: None for carry in micro.carries}
    totals = {}
    for number in range(micro.num_micro):
        values = dict(whole)
        for tensor, position in micro.micro_inputs.items():
            parts = np.reshape(arguments[position], (micro.num_micro, *graph.tensors[tensor].shape))
            values[tensor] = parts[number]
        for carry in micro.carries:
            if number == 0:
                _evaluate(micro, values, (Phase.INVARIANT,))
            values[carry.before] = values[carry.start] if number == 0 else state[carry.before]
        _evaluate(micro, values, (Phase.INVARIANT, Phase.FORWARD, Phase.BACKWARD))
        state = {carry.before: values[carry.after] for carry in micro.carries}
        addends = {total.total: sum(values[term] for term in total.terms) for total in micro.sums}
        addends.update((tensor, values[tensor]) for tensor in added)
        totals = {tensor: totals.get(tensor, 0) + addend for tensor, addend in addends.items()}
    after = {carry.after: state[carry.before] for carry in micro.carries}
    values = {**(values if not micro.looped else whole), **totals, **after}
    _evaluate(micro, values, (Phase.INVARIANT, Phase.UPDATE))
    literals = micro.step.literal_outputs
    return [literals[place] if tensor == LITERAL else values[tensor] for place, tensor in enumerate(graph.outputs)]


def _evaluate(micro, values, phases):
    """Run the operators of some phases, as far as what they read is there."""
    for operator, equation, phase in zip(micro.step.graph.operators, micro.step.equations, micro.phases, strict=True):
        if phase not in phases:
            continue
        operands = [
            equation.literals[place] if tensor == LITERAL else values[tensor]
            for place, tensor in enumerate(operator.operands)
        ]
        results = equation.primitive.bind(*operands, **equation.params)
        results = results if equation.primitive.multiple_results else [results]
        values.update(zip(operator.results, results, strict=True))


def assert_same(results, expected):
    """Two lists of results agree up to rounding."""
    assert len(results) == len(expected)
    for result, required in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, required, rtol=2e-5, atol=1e-6)
