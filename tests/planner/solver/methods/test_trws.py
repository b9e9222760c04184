import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from solver_graphs import least_of_all, whole

from sporax.planner.solver import CostGraph
from sporax.planner.solver.methods.trws import MessagePassing

SEEDS = st.integers(0, 10**9)


@settings(deadline=None, max_examples=40)
@given(seed=SEEDS)
def test_without_prices_messages_only_raise_the_bound(seed, tiny_graph, least):
    graph = tiny_graph(seed, forbidden=0.0, limited=False)
    core = whole(graph)
    messages = MessagePassing(core)
    bounds = [messages.sweep(core.costs)[1] for _ in range(10)]
    assert all(later >= earlier - 1e-6 for earlier, later in zip(bounds, bounds[1:], strict=False))
    assert bounds[-1] + core.constant <= least(graph) + 1e-6


def test_where_nothing_is_possible_the_bound_says_so():
    graph = CostGraph.build([[1, 2]] * 2, [[0, 0]] * 2, [(0, 0)] * 2, [(0, 1, [np.inf] * 4)], None)

    assert MessagePassing(whole(graph)).sweep(graph.costs) == (np.inf, np.inf)


@settings(deadline=None, max_examples=40)
@given(seed=SEEDS)
def test_shares_leave_the_bound(seed, tiny_graph):
    """What is left of nodes and tables, each at its least, is what the last sweep says."""
    core = whole(tiny_graph(seed, forbidden=0.0, limited=False))
    messages = MessagePassing(core)
    bound = [messages.sweep(core.costs)[1] for _ in range(3)][-1]
    shares = messages.shares()
    left = 0.0
    for node, (begin, end) in enumerate(zip(core.offsets, core.offsets[1:], strict=False)):
        left += (core.costs[begin:end] + sum(shares[node, other] for other, _ in core.links[node])).min()
        for other, table in core.links[node]:
            if node < other:
                left += (table - shares[node, other][:, None] - shares[other, node]).min()
    np.testing.assert_allclose(left, bound, atol=1e-9)


@settings(deadline=None, max_examples=25)
@given(seed=SEEDS)
def test_on_a_tree_the_bound_is_the_optimum(seed):
    random = np.random.default_rng(seed)
    edges = [(int(random.integers(0, node)), node, random.integers(0, 20, (3, 3)).astype(float)) for node in (1, 2, 3)]
    graph = CostGraph.build(random.integers(0, 20, (4, 3)).tolist(), [[0] * 3] * 4, [(0, 1)] * 4, edges, 1)
    core = whole(graph)
    messages = MessagePassing(core)
    bound = [messages.sweep(core.costs)[1] for _ in range(8)][-1]
    assert bound == pytest.approx(least_of_all(graph))
    assert core.cost(messages.decode(core.costs)) == pytest.approx(bound)


def test_each_node_alone_guesses_its_cheapest_strategy():
    core = whole(CostGraph.build([[3, 1], [2, 5, 4]], [[0] * 2, [0] * 3], [(0, 0)] * 2, [], None))
    messages = MessagePassing(core)
    assert messages.sweep(core.costs) == (1 + 2, 1 + 2)
    assert [int(marginal.argmin()) for marginal in messages.marginals] == [1, 0]
    assert [marginal.tolist() for marginal in messages.marginals] == [[2, 0], [0, 3, 2]]


def test_decoded_choices_keep_to_the_memory():
    core = whole(CostGraph.build([[1, 2]] * 2, [[5, 1]] * 2, [(0, 1)] * 2, [], 6))
    messages = MessagePassing(core)
    messages.sweep(core.costs)
    positions = messages.decode(core.costs)
    assert core.fits(positions)
    assert sorted(positions.tolist()) == [0, 1]
