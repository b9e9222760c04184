"""The search problem of a graph: decisions, candidates and their costs."""

from functools import partial

import networks
import numpy as np
import pytest
from planner_graphs import (
    every_choice,
    layers,
    mesh_of,
    placement,
    problem_builder,
    problem_of,
    product,
    roofline,
    training_step,
)

from sporax.base.errors import SporaxValueError
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.hardware import load_profile
from sporax.planner.cost import Roofline, Symbolic, link_costs
from sporax.planner.search.space.problem import NANOSECONDS, ProblemBuilder, SearchOptions, check_fixed
from sporax.planner.solver import evaluate

TWO = mesh_of(2)
EIGHT = DeviceMatrix((2, 2, 2))


def model(mesh, hardware="cpu"):
    return Roofline(load_profile(hardware), link_costs(load_profile(hardware), mesh))


def test_the_solvers_graph_has_the_same_cost_for_every_choice():
    problem = problem_of(product(), TWO)
    graph = problem.cost_graph()
    for chosen in every_choice(problem):
        assert evaluate(graph, chosen).cost == pytest.approx(problem.seconds(chosen) * NANOSECONDS)


def test_costs_are_nanoseconds_of_the_candidates_work():
    problem = problem_of(product(), TWO)
    heavy = problem.decisions.heavy[0]
    np.testing.assert_allclose(problem.costs[heavy], problem.choices[heavy].seconds * 1e9)


def test_weighted_bytes_are_not_scaled():
    graph = product()
    problem = ProblemBuilder(graph, TWO, Symbolic(), SearchOptions()).build()
    assert problem.scale == 1.0


def test_other_costs_forget_plans_and_keep_what_does_not_depend_on_them():
    problem = problem_of(product(), TWO)
    problem.plans["plan"], problem.cache["usage"] = object(), object()
    other = problem.with_costs([2 * costs for costs in problem.costs])
    assert other.plans == {}
    assert other.cache is problem.cache
    chosen = [0] * len(problem.costs)
    assert other.seconds(chosen) >= problem.seconds(chosen)


def test_a_choice_that_is_decided_again_costs_the_same_by_exact_prices():
    builder = problem_builder(layers(1), TWO)
    problem = builder.build()
    for chosen in list(every_choice(problem))[::7]:
        final = builder.costed(problem.bases(chosen))
        assert [len(costs) for costs in final.costs] == [1] * len(problem.costs)
        assert final.seconds([0] * len(problem.costs)) == pytest.approx(problem.seconds(chosen))


def test_sizes_are_counted():
    problem = problem_of(product(), TWO)
    assert problem.statistics() == {"decisions": 4, "candidates": 3 + 3 + 4 + 4, "edges": 3}
    assert str(problem) == "Problem(4 decisions, 14 candidates, 3 edges)"


@pytest.mark.parametrize(("fixed", "message"), [
    ({9: "-"}, r"For 'fixed', the tensor must be one of the 3 of the graph, but got 9\."),
    ({0: "- - +0"}, r"For 'fixed', the placement of tensor 0 must be complete and divide its shape \(8, 16\)"),
    ({0: "1 -"}, r"For 'fixed', the placement of tensor 0 must be complete and divide its shape \(8, 16\)"),
])  # fmt: skip
def test_given_placements_must_fit(fixed, message):
    with pytest.raises(SporaxValueError, match=message):
        check_fixed(product(), TWO, {tensor: placement(text) for tensor, text in fixed.items()})


def test_given_placements_of_a_variable_and_its_update_must_agree():
    graph = training_step()
    weight, updated = graph.inputs[1].tensor, graph.outputs[0]
    check_fixed(graph, TWO, {weight: placement("0 -"), updated: placement("0 -")})
    with pytest.raises(
        SporaxValueError, match=r"For 'fixed', result 0 replaces w1 and must have its placement, but got"
    ):
        check_fixed(graph, TWO, {weight: placement("0 -"), updated: placement("- 0")})


def test_followers_that_would_be_sharded_otherwise_are_forbidden():
    build = partial(problem_of, layers(1), TWO)
    assert any(np.isinf(table).any() for *_, table in build(follow=True).edges)
    assert not any(np.isinf(table).any() for *_, table in build().edges)


def test_the_model_decides_what_work_costs():
    graph = product(512, 512, 512)
    slow, fast = (ProblemBuilder(graph, TWO, roofline(TWO, name), SearchOptions()).build() for name in ("cpu", "h200"))
    chosen = [0] * len(slow.costs)
    assert slow.seconds(chosen) > fast.seconds(chosen)


def test_problems_of_one_builder_do_not_depend_on_those_before():
    """Rounds of a search, and its orders, share what is the same for all of them."""
    graph, costs = networks.transformer(1, 8, 8, 32, 4).graph, model(EIGHT)

    def builder():
        return ProblemBuilder(graph, EIGHT, costs, SearchOptions(), approximate=True)

    def rounds(builder):
        problem = builder.build(((0,),))
        later = builder.build(((1, 2),), problem.bases([0] * len(problem.costs)))
        costed = builder.costed(later.bases([len(costs) - 1 for costs in later.costs]))
        return [(built.costs, built.edges) for built in (problem, later, costed)]

    used = builder()
    used.costed(used.build().bases([0] * len(used.decisions.nodes)))
    for (costs, edges), (fresh_costs, fresh_edges) in zip(rounds(used), rounds(builder()), strict=True):
        assert all(map(np.array_equal, costs, fresh_costs))
        assert all(map(np.array_equal, (edge[2] for edge in edges), (edge[2] for edge in fresh_edges)))
