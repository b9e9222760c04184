import numpy as np
from hypothesis import given, settings, strategies as st
from solver_graphs import network_of, random_positions, whole

from sporax.planner.solver import CostGraph, evaluate
from sporax.planner.solver.graph.core import Core, subproblem
from sporax.planner.solver.graph.reductions import reduce

SEEDS = st.integers(0, 10**9)


@settings(deadline=None, max_examples=40)
@given(seed=SEEDS)
def test_priced_costs_charge_the_load(seed, tiny_graph):
    core = whole(tiny_graph(seed, forbidden=0.0))
    rng = np.random.default_rng(seed)
    multipliers = rng.random(len(core.room))
    positions = rng.integers(0, np.diff(core.offsets)).astype(np.int64)
    picked = core.offsets[:-1] + positions
    charged = core.charges(multipliers)[picked].sum()
    np.testing.assert_allclose(charged, multipliers @ core.loads(positions), atol=1e-9)


@settings(deadline=None, max_examples=40)
@given(seed=SEEDS)
def test_cost_and_fit_are_those_of_the_checker(seed, tiny_graph):
    graph = tiny_graph(seed)
    core = whole(graph)
    positions = random_positions(core, seed)
    measured = evaluate(graph, core.expand(positions))
    assert core.cost(positions) == measured.cost
    assert core.fits(positions) == (measured.peak <= graph.limit)


@settings(deadline=None, max_examples=40)
@given(seed=SEEDS)
def test_loads_are_the_sums_of_the_nodes_loads(seed, tiny_graph):
    core = whole(tiny_graph(seed))
    positions = random_positions(core, seed)
    apart = [core.loads(positions, np.arange(core.num_nodes) == node) for node in range(core.num_nodes)]
    np.testing.assert_array_equal(sum(apart), core.loads(positions))


@settings(deadline=None, max_examples=20)
@given(seed=SEEDS)
def test_as_a_network_it_is_the_same_problem(seed, tiny_graph):
    core = Core.of(reduce(network_of(tiny_graph(seed, forbidden=0.0))))
    again = Core.of(core.as_network())
    positions = random_positions(core, seed)
    assert again.cost(positions) == core.cost(positions)
    assert again.fits(positions) == core.fits(positions)


def test_equal_tables_take_room_once():
    table = [0, 1, 2, 3]
    graph = CostGraph.build([[0, 0]] * 4, [[0, 0]] * 4, [(0, 0)] * 4, [(0, 1, table), (2, 3, table)], None)
    core = whole(graph)
    assert core.pool.tolist() == table
    assert core.pool_starts.tolist() == [0, 0]
    assert core.cost(np.array([1, 0, 1, 1])) == 2 + 3


def test_nodes_that_are_gone_are_numbered_past():
    network = network_of(CostGraph.build([[1, 2], [3, 4], [5, 6]], [[0, 0]] * 3, [(0, 0)] * 3, [], None))
    network.keep(2, np.array([False, True]))
    network.remove(0)
    core = Core.of(network)
    assert core.nodes.tolist() == [1, 2]
    assert core.strategies(1).tolist() == [1]  # a position of the core is a strategy number of the graph
    assert core.expand(np.array([1, 0])).tolist() == [0, 1, 1]


def test_a_nodes_rows_are_counted_between_the_given_ends():
    graph = CostGraph.build([[0, 0], [0]], [[0, 5], [1]], [(2, 6), (0, 9)], [], 9)
    core = whole(graph)
    assert core.memory_of(0, np.array([0, 1])).spans.tolist() == [[0, 1]]
    assert len(core.memory_of(1, np.array([0, 1]))) == 0


@settings(deadline=None, max_examples=60)
@given(seed=SEEDS)
def test_costs_differ_as_on_the_core_and_what_fits_fits_the_core(seed, tiny_graph):
    core = whole(tiny_graph(seed, forbidden=0.0))
    kept, other = random_positions(core, seed), random_positions(core, seed + 1)
    free = np.flatnonzero(np.random.default_rng(seed).random(core.num_nodes) < 0.6)
    if not len(free):
        return
    part = Core.of(subproblem(core, kept, free))
    changed = kept.copy()
    changed[free] = other[free]
    difference = part.cost(other[free]) - part.cost(kept[free])
    assert difference == core.cost(changed) - core.cost(kept)
    if core.fits(kept):
        assert part.fits(other[free]) == core.fits(changed)


def test_fixed_nodes_take_their_memory_first():
    core = whole(CostGraph.build([[0, 0]] * 2, [[0, 4], [0, 3]], [(0, 1)] * 2, [], 5))
    network = subproblem(core, np.array([0, 1]), np.array([0]))
    assert network.capacity.tolist() == [5 - 3]
    assert not Core.of(network).fits(np.array([1]))
