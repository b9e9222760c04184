"""The terms of gradients that are sums."""

from planner_graphs import GraphBuilder

from sporax.ir.graph import MARK
from sporax.ir.marks import GradientMark
from sporax.planner.propagation.gradient_terms import gradient_terms


def step(build, name="w"):
    """The terms of a gradient that `build` makes of three tensors."""
    builder = GraphBuilder()
    weight = builder.weight(4, name="w")
    terms = [builder.argument(4) for _ in range(3)]
    gradient, *others = build(builder, *terms)
    done = builder.add(MARK, [gradient], (4,), params={"mark": GradientMark((name,), (1,))})
    return gradient_terms(builder.graph(done, *others)), weight, terms


def add(builder, x, y):
    return builder.binary("add_any", x, y)


def test_a_sum_of_sums_has_all_its_terms():
    terms_of, weight, terms = step(lambda builder, a, b, c: [add(builder, add(builder, a, b), c)])
    assert terms_of == dict.fromkeys(terms, weight)


def test_a_gradient_that_is_no_sum_has_none():
    terms_of, _, _ = step(lambda builder, a, b, c: [builder.unary("neg", a)])
    assert terms_of == {}


def test_a_sum_that_others_read_too_is_a_term_itself():
    def build(builder, a, b, c):
        inner = add(builder, a, b)
        return [add(builder, inner, c), builder.unary("neg", inner)]

    terms_of, _, (a, b, c) = step(build)
    assert c in terms_of
    assert a not in terms_of
    assert b not in terms_of
    assert len(terms_of) == 2


def test_gradients_of_what_is_no_parameter_are_left_alone():
    terms_of, _, _ = step(lambda builder, a, b, c: [add(builder, a, b)], name="unknown")
    assert terms_of == {}
