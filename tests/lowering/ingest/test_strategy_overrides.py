"""Strategies from a file replace those in the program, also inside of loops and for derivatives."""

import jax
import jax.numpy as jnp
from jax import lax

from sporax.ir.marks import FIXED, DerivativeMark, GradientMark, OperatorMark, Side
from sporax.lowering.ingest.ingest import ingest
from sporax.lowering.ingest.strategy_overrides import with_strategies
from sporax.lowering.marks.mark_primitive import apply_mark

X = jnp.ones((4, 4))
OWN, NEW = ((2, 1),), ((1, 4),)


def marked(x, number):
    return apply_mark([x], OperatorMark("ReLU", number, Side.IN, OWN, attributes=(("primitive", "relu"),)))[0]


def marks(graph):
    return [operator.mark for operator in graph.walk() if operator.mark is not None]


def test_only_the_named_calls_have_new_strategies():
    step = ingest(jax.make_jaxpr(lambda x: jnp.sin(marked(x, 1)) + marked(x, 2))(X))
    changed = with_strategies(step, {2: NEW})
    first, second = marks(changed.graph)
    assert first == marks(step.graph)[0]
    assert (second.in_strategy, second.get(FIXED), second.get("primitive")) == (NEW, True, "relu")
    assert [operator.operands for operator in changed.graph.operators] == [
        operator.operands for operator in step.graph.operators
    ]


def test_derivatives_pass_the_new_mark_too():
    step = ingest(jax.make_jaxpr(jax.grad(lambda x: jnp.sin(marked(x, 7)).sum()))(X))
    changed = marks(with_strategies(step, {7: NEW}).graph)
    derivatives = [mark.of for mark in changed if isinstance(mark, DerivativeMark)]
    assert derivatives
    assert all(mark.in_strategy == NEW for mark in derivatives)


def test_calls_inside_of_loops_are_found_in_graph_and_equations():
    def loop(x):
        return lax.scan(lambda c, _: (jnp.sin(marked(c, 3)), None), x, None, length=2)[0]

    changed = with_strategies(ingest(jax.make_jaxpr(loop)(X)), {3: NEW})
    (mark,) = marks(changed.graph)
    assert mark.in_strategy == NEW
    ((body,),) = (equation.bodies for equation in changed.equations)
    assert body.graph == changed.graph.operators[0].bodies[0]


def test_other_marks_stay():
    gradient = GradientMark(("w",), (0,))
    step = ingest(jax.make_jaxpr(lambda x: apply_mark([x], gradient))(X))
    assert marks(with_strategies(step, {0: NEW}).graph) == [gradient]
