import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from sporax.planner.solver import CostGraph, evaluate
from sporax.planner.solver.graph.core import Core
from sporax.planner.solver.graph.cost_graph import Moments
from sporax.planner.solver.graph.network import Network
from sporax.planner.solver.graph.reductions import reduce

SEEDS = st.integers(0, 10**9)


def core_of(graph):
    network = reduce(Network.of(graph, Moments.of(graph.intervals)))
    return Core.of(network), network.infeasible


def least_on_core(core):
    """Least cost of the core by trying every choice, and that choice."""
    best, kept = np.inf, None
    for flat in np.ndindex(*np.diff(core.offsets)):
        positions = np.array(flat, dtype=np.int64)
        if core.fits(positions) and core.cost(positions) < best:
            best, kept = core.cost(positions), positions
    return best, kept


@settings(deadline=None, max_examples=150)
@given(seed=SEEDS, limited=st.booleans())
def test_reduction_keeps_the_optimum(seed, limited, tiny_graph, least):
    graph = tiny_graph(seed, limited=limited)
    expected = least(graph)
    core, infeasible = core_of(graph)
    if infeasible:
        assert expected == np.inf
        return
    actual, positions = least_on_core(core)
    assert actual == expected
    if positions is not None:
        measured = evaluate(graph, core.expand(positions))
        assert measured.feasible
        assert measured.cost == expected


@settings(deadline=None, max_examples=60)
@given(seed=SEEDS)
def test_every_choice_on_the_core_expands_to_its_cost_and_memory(seed, tiny_graph):
    graph = tiny_graph(seed, forbidden=0.0)
    core, infeasible = core_of(graph)
    if infeasible:
        return
    rng = np.random.default_rng(seed)
    positions = rng.integers(0, np.diff(core.offsets)).astype(np.int64)
    measured = evaluate(graph, core.expand(positions))
    assert measured.cost == core.cost(positions)
    assert (measured.peak <= graph.limit) == core.fits(positions)


@settings(deadline=None, max_examples=60)
@given(seed=SEEDS, rows=st.sets(st.integers(0, 5)))
def test_leaving_rows_out_is_a_relaxation(seed, rows, tiny_graph, least):
    graph = tiny_graph(seed)
    timeline = Moments.of(graph.intervals)
    kept = np.array(sorted(row for row in rows if row < timeline.num_rows), dtype=np.int64)
    network = reduce(Network.of(graph, timeline).restricted(kept))
    if not network.infeasible:
        assert least_on_core(Core.of(network))[0] <= least(graph)


def chain(length, limit, usage):
    """A chain whose table forces equal strategies all along it."""
    equal = np.where(np.eye(3) > 0, 0.0, 1e18)
    return CostGraph.build(
        [[3, 2, 1]] * length,
        [usage] * length,
        [(i, i + 2) for i in range(length)],
        [(i, i + 1, equal) for i in range(length - 1)],
        limit,
    )


def test_a_chain_that_forces_equal_strategies_becomes_one_node_with_all_the_memory():
    core, _ = core_of(chain(50, 7, [1, 2, 4]))
    assert core.num_nodes == 0  # strategy 2 does not fit, then strategy 1 dominates
    core, _ = core_of(chain(50, 8, [1, 2, 4]))
    assert core.constant == 50


def test_an_impossible_limit_is_noticed():
    assert core_of(chain(3, 1, [1, 2, 4]))[1]


def test_a_separable_table_disconnects_its_nodes():
    table = np.add.outer([0.0, 5.0, 1.0], [7.0, 0.0, 2.0])
    graph = CostGraph.build([[1, 2, 3]] * 2, [[3, 2, 1]] * 2, [(0, 1)] * 2, [(0, 1, table)], 4)
    core, _ = core_of(graph)
    assert len(core.edges) == 0


@pytest.mark.parametrize("limit", [None, 100])
def test_a_tree_without_binding_memory_is_solved_by_reduction_alone(limit):
    rng = np.random.default_rng(0)
    edges = [(int(rng.integers(0, i)), i, rng.integers(0, 99, (3, 3)).astype(float)) for i in range(1, 30)]
    graph = CostGraph.build(rng.integers(0, 99, (30, 3)).tolist(), [[1, 1, 1]] * 30, [(0, 9)] * 30, edges, limit)
    core, _ = core_of(graph)
    assert core.num_nodes == 0
    assert evaluate(graph, core.expand(np.zeros(0, np.int64))).cost == core.constant
