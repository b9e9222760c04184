import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from solver_graphs import random_positions, whole

from sporax.planner.solver import CostGraph
from sporax.planner.solver.graph.core import Core, subproblem

SEEDS = st.integers(0, 10**9)


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
