"""From jaxprs to operator graphs: calls written out, bodies kept, paths and literals right."""

import jax
import jax.numpy as jnp
import pytest

from sporax.ir.graph import LITERAL, Role
from sporax.ir.marks import DerivativeMark, GradientMark, LayoutMark, next_number
from sporax.lowering.ingest.ingest import ingest
from sporax.lowering.marks.mark_primitive import apply_mark

X = jnp.ones((4, 8))


def graph_of(function, *args, **options):
    return ingest(jax.make_jaxpr(function)(*args), **options)


def names(step):
    return [operator.name for operator in step.graph.operators]


def test_calls_are_written_out_with_the_path_of_the_callers():
    @jax.jit
    def inner(x):
        with jax.named_scope("deep"):
            return jax.nn.relu(x) * 2

    def outer(x):
        with jax.named_scope("net"):
            return inner(x)

    step = graph_of(outer, X)
    assert names(step) == ["max", "mul"]
    assert [operator.path for operator in step.graph.operators] == ["net.deep", "net.deep"]
    assert step.graph.operators[1].operands == (step.graph.operators[0].results[0], LITERAL)
    assert step.equations[1].literals == {1: 2.0}


def test_backward_operators_know_that_they_are():
    step = graph_of(jax.grad(lambda x: jnp.sin(x).sum()), X)
    assert {operator.name: operator.backward for operator in step.graph.operators}["cos"] is False
    assert step.graph.operators[-1].backward


def test_inputs_have_roles_and_constants_come_first():
    table = jnp.arange(8.0)
    step = graph_of(lambda x: x + table, X, inputs=[(Role.PARAMETER, "w")], aliases=[(0, 0)])
    assert [(item.role, item.name) for item in step.graph.inputs] == [
        (Role.CONSTANT, "constant 0"),
        (Role.PARAMETER, "w"),
    ]
    assert step.graph.aliases == ((0, 1),)
    assert len(step.constants) == 1


def test_bodies_of_control_flow_are_graphs():
    def loop(x):
        x, _ = jax.lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=3)
        x = jax.lax.while_loop(lambda c: c.sum() > 1, lambda c: c / 2, x)
        return jax.lax.cond(x.sum() > 0, jnp.cos, jnp.tan, x)

    step = graph_of(loop, X)
    bodies = {operator.name: operator.bodies for operator in step.graph.operators if operator.bodies}
    assert {name: len(graphs) for name, graphs in bodies.items()} == {"scan": 1, "while": 2, "cond": 2}
    assert [operator.name for operator in bodies["scan"][0].operators] == ["sin"]
    assert sum(1 for _ in step.graph.walk()) > len(step.graph.operators)


def test_a_recomputation_stands_behind_a_barrier():
    step = graph_of(jax.grad(lambda x: jax.checkpoint(lambda y: jnp.sin(jnp.sin(y)))(x).sum()), X)
    assert "optimization_barrier" in names(step)


def test_results_may_be_literals_and_arguments():
    step = graph_of(lambda x: (x, 3.0), X)
    assert step.graph.outputs == (step.graph.inputs[0].tensor, LITERAL)
    assert step.literal_outputs == {1: 3.0}


def test_fingerprints_distinguish_graphs():
    same = [graph_of(lambda x: jnp.sin(x) + 1, X).graph.fingerprint() for _ in range(2)]
    assert same[0] == same[1]
    assert same[0] != graph_of(lambda x: jnp.cos(x) + 1, X).graph.fingerprint()


# -------------------------------------------------------------------------------------------------------------- marks

MARK = LayoutMark("test", next_number(), (None, None))


def marked(x, y):
    x, y = apply_mark([x, y], MARK)
    return (x * y).sum()


def test_marks_change_nothing():
    y = X * 3
    assert marked(X, y) == (X * y).sum()
    assert jax.jit(marked)(X, y) == (X * y).sum()
    assert jax.vmap(marked)(X, y).shape == (4,)
    for own, plain in zip(jax.grad(marked, (0, 1))(X, y), (y, X), strict=True):
        assert (own == plain).all()
    assert jax.jvp(marked, (X, y), (X, y))[1] == pytest.approx(float(2 * (X * y).sum()))


def test_cotangents_pass_the_mark_of_their_tensors():
    step = graph_of(jax.grad(marked, 1), X, X * 3)
    actual = [operator.operation.params["mark"] for operator in step.graph.operators if operator.name == "mark"]
    assert actual == [MARK, DerivativeMark(MARK, (1,), backward=True)]


def test_gradient_marks_are_left_alone_by_derivatives():
    def twice(x):
        return (apply_mark([jax.grad(lambda v: (v**3).sum())(x)], GradientMark(("w",), (1,)))[0]).sum()

    assert jnp.allclose(jax.grad(twice)(X), 6 * X)
