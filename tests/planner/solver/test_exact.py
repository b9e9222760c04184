import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sporax.planner.solver import evaluate
from sporax.planner.solver.core import Core
from sporax.planner.solver.exact import ByProgram, peaks, solve_exactly
from sporax.planner.solver.integer_program import build_program, compress
from sporax.planner.solver.label_rounds import ByLabels
from sporax.planner.solver.network import Network
from sporax.planner.solver.timeline import Timeline

SEEDS = st.integers(0, 10**9)


@pytest.mark.parametrize("make", [ByProgram, ByLabels])
@settings(deadline=None, max_examples=60)
@given(seed=SEEDS)
def test_agrees_with_trying_every_choice(make, seed, tiny_graph, least):
    graph = tiny_graph(seed)
    expected = least(graph)
    bounds = []
    core = Core.of(Network.of(graph, Timeline.of(graph.intervals)))
    outcome = solve_exactly(core, time.monotonic() + 30, report=bounds.append, rounds=make())
    if expected == np.inf:
        assert outcome.positions is None
        assert outcome.bound == np.inf
        return
    assert outcome.optimal
    assert evaluate(graph, core.expand(outcome.positions)).cost == expected
    assert bounds == sorted(bounds)
    assert abs(outcome.bound - expected) < 1e-6 * max(1, expected)


def test_no_time_means_no_answer(tiny_graph):
    graph = tiny_graph(1)
    core = Core.of(Network.of(graph, Timeline.of(graph.intervals)))
    outcome = solve_exactly(core, time.monotonic() - 1)
    assert outcome.positions is None
    assert not outcome.optimal
    assert outcome.bound == -np.inf


@given(seed=SEEDS)
def test_compressed_tables_are_the_tables(seed):
    rng = np.random.default_rng(seed)
    table = rng.integers(0, 3, (5, 4)).astype(float) + rng.integers(0, 9, (5, 1))
    table[rng.random(table.shape) < 0.2] = np.inf
    table[:, 0], table[0] = 1.0, 2.0
    packed = compress(table)
    rebuilt = (
        packed.first_costs[:, None] + packed.second_costs + packed.core[packed.first[:, None], packed.second[None, :]]
    )
    np.testing.assert_array_equal(rebuilt, table)
    assert packed.core.min() >= 0


def test_equal_rows_share_edge_columns(tiny_graph):
    table = np.array([[0.0, 3.0], [5.0, 8.0], [1.0, 0.0]])  # rows 0 and 1 differ by a constant
    assert compress(table).core.shape == (2, 2)


def test_memory_rows_are_in_the_program(tiny_graph):
    graph = tiny_graph(3)
    network = Network.of(graph, Timeline.of(graph.intervals))
    program = build_program(network)
    assert np.isinf(program.lower).sum() == len(network.base)


def test_peaks_are_apart_and_worst_first():
    excess = np.array([0.0, 3.0, 2.9, -1.0, 0.5, 1.0, 0.0])
    assert peaks(excess, most=2).tolist() == [1, 5]
    assert peaks(-excess[:1]).tolist() == []
