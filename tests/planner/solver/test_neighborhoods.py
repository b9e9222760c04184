import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from neighborhoods import Neighbourhoods, keep_allowed, resolve
from solver_graphs import whole
from synthetic_graphs import training_step

from sporax.planner.budget import Budget
from sporax.planner.solver import CostGraph
from sporax.planner.solver.graph.core import Core, subproblem
from sporax.planner.solver.graph.cost_graph import Moments
from sporax.planner.solver.graph.network import Network
from sporax.planner.solver.graph.reductions import reduce
from sporax.planner.solver.methods.coordinate_descent import first_positions

SEEDS = st.integers(0, 10**9)


@pytest.fixture(scope="module")
def step_core():
    graph = training_step(layers=2, mesh=(2, 4), choices=8, width=16)
    return Core.of(reduce(Network.of(graph, Moments.of(graph.intervals))))


@settings(deadline=None, max_examples=40)
@given(seed=SEEDS)
def test_freeing_every_node_solves_the_whole(seed, tiny_graph, least):
    graph = tiny_graph(seed, forbidden=0.0)
    core = whole(graph)
    start = first_positions(core, Budget.of(10))
    if start is None:
        return
    outcome, chosen = resolve(core, start, np.arange(core.num_nodes), Budget.of(10))
    assert outcome.optimal
    assert core.cost(chosen) == least(graph)


@settings(deadline=None, max_examples=40)
@given(seed=SEEDS)
def test_a_neighbourhood_changes_only_its_nodes_and_fits(seed, tiny_graph):
    core = whole(tiny_graph(seed, forbidden=0.0))
    start = first_positions(core, Budget.of(10))
    if start is None:
        return
    rng = np.random.default_rng(seed)
    free = np.flatnonzero(rng.random(core.num_nodes) < 0.5)
    if not len(free):
        return
    _, chosen = resolve(core, start, free, Budget.of(10))
    fixed = np.setdiff1d(np.arange(core.num_nodes), free)
    np.testing.assert_array_equal(chosen[fixed], start[fixed])
    assert core.fits(chosen)
    assert core.cost(chosen) <= core.cost(start)


def test_search_reaches_cheaper_choices_on_a_made_up_step(step_core):
    start = first_positions(step_core, Budget.of(10))
    search = Neighbourhoods(step_core, start, np.random.default_rng(0))
    for _ in range(6):
        search.step(Budget.of(5))
    assert step_core.fits(search.positions)
    assert step_core.cost(search.positions) < step_core.cost(start)


def test_only_allowed_strategies_are_offered(step_core):
    start = first_positions(step_core, Budget.of(10))
    nothing = np.zeros(len(step_core.costs), dtype=np.bool_)
    _, chosen = resolve(step_core, start, np.arange(step_core.num_nodes), Budget.of(5), nothing)
    np.testing.assert_array_equal(chosen, start)


def test_only_allowed_strategies_and_the_present_ones_are_left():
    core = whole(CostGraph.build([[1, 2, 3], [4, 5]], [[0] * 3, [0] * 2], [(0, 0)] * 2, [], None))
    positions, free = np.array([2, 1]), np.array([0, 1])
    network = subproblem(core, positions, free)
    keep_allowed(network, core, positions, free, np.array([True, False, False, False, True]))
    assert [ids.tolist() for ids in network.ids] == [[0, 2], [1]]
