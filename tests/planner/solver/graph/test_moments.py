import numpy as np
from hypothesis import given, strategies as st

from sporax.planner.solver.graph.cost_graph import Moments

INTERVALS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6)).map(lambda p: (p[0], p[0] + p[1])), max_size=10)


@given(INTERVALS)
def test_rows_are_exactly_the_maximal_live_sets(intervals):
    timeline = Moments.of(np.array(intervals, np.int64).reshape(-1, 2))
    live = {frozenset(i for i, (a, b) in enumerate(intervals) if a <= t < b) for t in range(20)}
    maximal = {s for s in live if s and not any(s < other for other in live)}
    rows = [
        frozenset(np.flatnonzero((timeline.spans[:, 0] <= r) & (r < timeline.spans[:, 1])))
        for r in range(timeline.num_rows)
    ]
    assert set(rows) == maximal
    assert [frozenset(i for i, (a, b) in enumerate(intervals) if a <= t < b) for t in timeline.times] == rows


def test_nothing_live_means_no_rows():
    assert Moments.of(np.zeros((0, 2), np.int64)).num_rows == 0
    assert Moments.of(np.array([[3, 3]])).num_rows == 0
