"""The terms of gradients that are sums."""

from dataclasses import replace

import pytest
from planner_graphs import GraphBuilder, mesh_of, placement

from sporax.ir.graph import MARK
from sporax.ir.marks import GradientMark
from sporax.ir.plan import Resharding
from sporax.planner.communication.gradient_fusion import TERM, Delay, gradient_terms, term_order
from sporax.planner.search.space.plan_assembly import replicated_plan


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


def two_terms(cast=False):
    """A weight with two products in its gradient; the graph, the terms, and the second product's position."""
    builder = GraphBuilder()
    builder.weight(8, 4, name="w")
    terms = []
    for _ in range(2):
        product = builder.matmul(builder.argument(8, 16), builder.argument(16, 4))
        terms.append(builder.unary("convert_element_type", product) if cast else product)
    gradient = add(builder, *terms)
    done = builder.add(MARK, [gradient], (8, 4), params={"mark": GradientMark(("w",), (1,))})
    graph = builder.graph(done)
    return graph, terms, [place for place, operator in enumerate(graph.operators) if operator.name == "dot_general"][1]


def planned(graph, terms, reason):
    plan = replicated_plan(graph, mesh_of(2))
    return replace(plan, reshardings={tensor: Resharding(placement("0 -"), reason) for tensor in terms})


@pytest.mark.parametrize("cast", [False, True])
def test_each_term_waits_for_the_one_before_it(cast):
    graph, terms, second = two_terms(cast)
    order = term_order(graph, planned(graph, terms, f"{TERM} w"))
    # Of the operands 8 x 16 and 16 x 4 the second one is the smaller.
    assert order == {second: Delay(1, terms[0], placement("0 -"))}


def test_terms_that_are_not_reduced_by_themselves_wait_for_nothing():
    graph, terms, _ = two_terms()
    assert term_order(graph, planned(graph, terms, "result of MatMul")) == {}
    assert term_order(graph, planned(graph, [], "")) == {}
