"""The bound from one of many blocks: below every choice, and as good as that from all of them."""

import networks
import numpy as np
import pytest
from rows import row_of_blocks

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.hardware import load_profile
from sporax.planner.cost import Roofline, link_costs
from sporax.planner.search.block_search import bound_of
from sporax.planner.search.space.problem import ProblemBuilder, SearchOptions
from sporax.planner.search.space.repeated_blocks import find_repeats, labels
from sporax.planner.solver import CostGraph, solve
from sporax.planner.solver.portfolio.quick_choice import lower_bound

EIGHT = DeviceMatrix((2, 2, 2))
MODEL = Roofline(load_profile("cpu"), link_costs(load_profile("cpu"), EIGHT))


def graph_of(costs, edges):
    return CostGraph.build(costs, [[0] * len(cost) for cost in costs], [(0, 0)] * len(costs), edges, None)


def found_in(costs, edges):
    return find_repeats([item.tobytes() for item in costs], edges)


@pytest.mark.parametrize("readers", [0, 1])
@pytest.mark.parametrize("kinds", [1, 2])
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.sampled(12)
def test_no_choice_is_below_the_bound(seed, kinds, readers):
    costs, edges = row_of_blocks(seed, 16, kinds=kinds, readers=readers)
    graph = graph_of(costs, edges)
    best, repeats = solve(graph, seconds=60), found_in(costs, edges)

    assert best.optimal
    assert bound_of(costs, repeats) <= best.cost * (1 + 1e-9)
    assert bound_of(costs, repeats) >= 0.9 * lower_bound(graph)


def test_forbidden_pairs_leave_numbers():
    """A table may forbid pairs, and a candidate altogether."""
    costs, edges = row_of_blocks(5, 12)
    forbidden = edges[0][2].copy()
    forbidden[0], forbidden[1, 2] = np.inf, np.inf
    edges = [(first, second, forbidden if table is edges[0][2] else table) for first, second, table in edges]
    best = solve(graph_of(costs, edges), seconds=60)

    assert 0.9 * best.bound <= bound_of(costs, found_in(costs, edges)) <= best.cost


@pytest.mark.parametrize("step", [
    networks.mlp(12, 32, 1024),
    networks.mlp(12, 1024, 128),
    networks.bare_transformer(9, 8, 16, 64),
], ids=["wide", "narrow", "transformer"])  # fmt: skip
def test_one_block_says_as_much_as_all(step):
    options = SearchOptions(fully_use_devices=True)
    problem = ProblemBuilder(step.graph, EIGHT, MODEL, options, approximate=True).build()
    repeats = find_repeats(labels(problem), problem.edges)

    assert bound_of(problem.costs, repeats) >= 0.999 * lower_bound(problem.cost_graph())
