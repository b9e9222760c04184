import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sporax.planner.solver import CostGraph, evaluate
from sporax.planner.solver.core import Core
from sporax.planner.solver.lagrangian import PriceAscent
from sporax.planner.solver.network import Network
from sporax.planner.solver.timeline import Timeline
from sporax.planner.solver.trws import MessagePassing

SEEDS = st.integers(0, 10**9)


def whole(graph):
    return Core.of(Network.of(graph, Timeline.of(graph.intervals)))


@settings(deadline=None, max_examples=80)
@given(seed=SEEDS)
def test_bounds_and_marginals_never_exceed_the_truth(seed, tiny_graph, least):
    graph = tiny_graph(seed, forbidden=0.0)
    expected = least(graph)
    if expected == np.inf:
        return
    core = whole(graph)
    ascent = PriceAscent(core)
    for _ in range(30):
        assert ascent.sweep() <= expected + 1e-6
    assert ascent.bound <= expected + 1e-6
    useless = ascent.useless(expected)
    for choices in np.ndindex(*graph.sizes):
        measured = evaluate(graph, choices)
        if measured.feasible and measured.cost == expected:
            assert not useless[core.offsets[:-1] + np.array(choices)].any()


@settings(deadline=None, max_examples=40)
@given(seed=SEEDS)
def test_without_prices_messages_only_raise_the_bound(seed, tiny_graph, least):
    graph = tiny_graph(seed, forbidden=0.0, limited=False)
    core = whole(graph)
    messages = MessagePassing(core)
    bounds = [messages.sweep(core.costs)[1] for _ in range(10)]
    assert all(later >= earlier - 1e-6 for earlier, later in zip(bounds, bounds[1:], strict=False))
    assert bounds[-1] + core.constant <= least(graph) + 1e-6


@settings(deadline=None, max_examples=80)
@given(seed=SEEDS, limited=st.booleans())
def test_strategies_without_partners_leave_bounds_numbers(seed, limited, tiny_graph, least):
    """Reduction, which takes them out, may run out of time."""
    graph = tiny_graph(seed, forbidden=0.6, limited=limited)
    ascent = PriceAscent(whole(graph))
    for _ in range(10):
        assert ascent.sweep() <= least(graph) + 1e-6
    assert not np.isnan(ascent.marginals[1]).any()


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


@settings(deadline=None, max_examples=40)
@given(seed=SEEDS)
def test_priced_costs_charge_the_load(seed, tiny_graph):
    core = whole(tiny_graph(seed, forbidden=0.0))
    rng = np.random.default_rng(seed)
    prices = rng.random(len(core.room))
    positions = rng.integers(0, np.diff(core.offsets)).astype(np.int64)
    picked = core.offsets[:-1] + positions
    charged = (core.priced(prices) - core.costs)[picked].sum()
    np.testing.assert_allclose(charged, prices @ core.loads(positions), atol=1e-9)


def test_decoded_choices_are_measured_by_the_core(tiny_graph):
    core = whole(tiny_graph(5, forbidden=0.0, limited=False))
    ascent = PriceAscent(core)
    ascent.sweep()
    positions = ascent.decode()
    assert core.fits(positions)
    assert core.cost(positions) >= ascent.bound - 1e-9
