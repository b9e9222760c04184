import numpy as np
from hypothesis import given, settings, strategies as st
from lagrangian import MultiplierAscent
from solver_graphs import whole

SEEDS = st.integers(0, 10**9)


@settings(deadline=None, max_examples=80)
@given(seed=SEEDS)
def test_bounds_never_exceed_the_truth(seed, tiny_graph, least):
    graph = tiny_graph(seed, forbidden=0.0)
    expected = least(graph)
    if expected == np.inf:
        return
    core = whole(graph)
    ascent = MultiplierAscent(core)
    for _ in range(30):
        assert ascent.sweep() <= expected + 1e-6
    assert ascent.bound <= expected + 1e-6


@settings(deadline=None, max_examples=80)
@given(seed=SEEDS, limited=st.booleans())
def test_strategies_without_partners_leave_bounds_numbers(seed, limited, tiny_graph, least):
    """Reduction, which takes them out, may run out of time."""
    graph = tiny_graph(seed, forbidden=0.6, limited=limited)
    ascent = MultiplierAscent(whole(graph))
    for _ in range(10):
        assert ascent.sweep() <= least(graph) + 1e-6


def test_decoded_choices_are_measured_by_the_core(tiny_graph):
    core = whole(tiny_graph(5, forbidden=0.0, limited=False))
    ascent = MultiplierAscent(core)
    ascent.sweep()
    positions = ascent.decode()
    assert core.fits(positions)
    assert core.cost(positions) >= ascent.bound - 1e-9
