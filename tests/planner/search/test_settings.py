"""What a search may be set to: aligned slices, cuts that are followed, approximation."""

from dataclasses import replace
from functools import partial

import networks
import numpy as np
import pytest

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.hardware import load_profile
from sporax.planner.cost import Roofline, link_costs
from sporax.planner.plan_check import check_plan
from sporax.planner.search import SearchOptions, dynamic, recursive
from sporax.planner.search.exact import by_elimination
from sporax.planner.search.space.problem import ProblemBuilder

EIGHT = DeviceMatrix((2, 2, 2))
MODEL = Roofline(load_profile("h200"), link_costs(load_profile("h200"), EIGHT))
GRAPH = networks.mlp(3, 64, 96).graph


def slices(graph, plan):
    """Sizes of the last two dimensions of all slices of products that are cut."""
    for operator, planned in zip(graph.operators, plan.operators, strict=True):
        if operator.name == "dot_general":
            specs = (*operator.operation.operands, *operator.operation.results)
            for spec, where in zip(specs, (*planned.operands, *planned.results), strict=True):
                pairs = zip(spec.shape, where.parts(plan.mesh), strict=True)
                yield from (size // parts for size, parts in pairs if parts > 1)


@pytest.mark.parametrize("search", [dynamic, recursive])
def test_slices_of_products_are_aligned(search):
    free = search(GRAPH, EIGHT, MODEL, SearchOptions(fully_use_devices=True))
    actual = search(GRAPH, EIGHT, MODEL, SearchOptions(fully_use_devices=True, align=16))

    check_plan(GRAPH, actual.plan)
    assert any(size % 16 for size in slices(GRAPH, free.plan))
    cut = list(slices(GRAPH, actual.plan))
    assert cut
    assert all(size % 16 == 0 for size in cut)
    assert actual.cost_seconds >= free.cost_seconds


def test_what_follows_is_sharded_like_its_producer():
    options = SearchOptions(fully_use_devices=True, follow=True)
    actual, free = dynamic(GRAPH, EIGHT, MODEL, options), dynamic(GRAPH, EIGHT, MODEL)
    problem = ProblemBuilder(GRAPH, EIGHT, MODEL, options).build()
    forbidden = sum(int(np.isinf(table).sum()) for *_, table in problem.edges)

    check_plan(GRAPH, actual.plan)
    assert forbidden > 0
    assert not any(
        np.isinf(table).any() for *_, table in ProblemBuilder(GRAPH, EIGHT, MODEL, SearchOptions()).build().edges
    )
    assert np.isfinite(actual.cost_seconds)
    assert actual.cost_seconds >= free.cost_seconds
    result = {
        tensor: where
        for item, plan in zip(GRAPH.operators, actual.plan.operators, strict=True)
        if item.name == "dot_general"
        for tensor, where in zip(item.results, plan.results, strict=True)
    }
    for item, plan in zip(GRAPH.operators, actual.plan.operators, strict=True):
        if item.name in ("max", "select_n", "mul"):
            for tensor, where in zip(item.operands, plan.operands, strict=True):
                assert tensor not in result or where.dims == result[tensor].dims


def test_an_approximate_search_says_how_far_it_may_be_off():
    graph = networks.transformer(1, 8, 16, 64, 8).graph
    best = dynamic(graph, EIGHT, MODEL)
    actual = replace(dynamic, decide=partial(by_elimination, largest_table=10))(
        graph, EIGHT, MODEL, SearchOptions(epsilon=0.3)
    )

    check_plan(graph, actual.plan)
    assert actual.bound_seconds <= best.cost_seconds * (1 + 1e-9)
    assert best.cost_seconds * (1 - 1e-9) <= actual.cost_seconds <= 1.3 * best.cost_seconds
