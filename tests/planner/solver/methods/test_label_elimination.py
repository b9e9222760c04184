"""Elimination with labels: beside trying every choice, and beside the integer program."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from solver_graphs import hard_graph, least_of_all, tied_graph

from sporax.planner.budget import Budget
from sporax.planner.solver.graph.core import Core
from sporax.planner.solver.graph.cost_graph import Moments
from sporax.planner.solver.graph.network import Network
from sporax.planner.solver.graph.reductions import reduce
from sporax.planner.solver.methods.label_elimination import Allowance, Elimination, TooManyLabels, numbered, undominated
from sporax.planner.solver.methods.trws import MessagePassing

SEEDS = st.integers(0, 10**9)


def elimination_of(core, sweeps=4):
    """The elimination of a core without prices, and its bound."""
    messages = MessagePassing(core)
    bound = [messages.sweep(core.costs)[1] for _ in range(sweeps)][-1]
    return Elimination(core, np.zeros(len(core.room)), *messages.slacks(), abs(bound) + 1), bound + core.constant


@settings(deadline=None, max_examples=60)
@given(seed=SEEDS, share=st.floats(0.0, 1.5))
def test_what_costs_up_to_the_cutoff_is_found_and_nothing_else_is_promised(seed, share):
    graph = tied_graph(seed)
    network = reduce(Network.of(graph, Moments.of(graph.intervals)))
    core, expected = Core.of(network), least_of_all(graph)
    if network.infeasible or not core.num_nodes or expected == np.inf:
        return
    elimination, bound = elimination_of(core)
    assert bound <= expected + 1e-7
    cutoff = share * (expected - bound)
    actual = elimination.run(cutoff + 1e-7, Allowance(10**6))
    if actual is not None:
        assert core.fits(actual)
        assert core.cost(actual) >= expected - 1e-7
    if share >= 1:
        assert core.cost(actual) == pytest.approx(expected, abs=1e-6)


@settings(deadline=None, max_examples=100)
@given(seed=SEEDS, rows=st.integers(0, 3))
def test_labels_that_are_kept_are_those_that_nothing_dominates(seed, rows):
    random = np.random.default_rng(seed)
    entries, costs = random.integers(0, 4, 40), random.integers(0, 6, 40).astype(float)
    loads = random.integers(0, 6, (40, rows))
    kept = set(undominated(entries, costs, loads).tolist())

    def beats(one, other):
        no_worse = costs[one] <= costs[other] and (loads[one] <= loads[other]).all()
        equal = costs[one] == costs[other] and (loads[one] == loads[other]).all()
        return one != other and entries[one] == entries[other] and no_worse and (not equal or one in kept)

    for label in range(40):
        assert (label in kept) == (not any(beats(other, label) for other in range(40)))


@pytest.mark.parametrize("nodes", [0, 3, 40])
def test_rows_of_choices_are_told_apart_however_many_there_could_be(nodes):
    choices = np.random.default_rng(0).integers(0, 30, (50, nodes))
    choices[25:] = choices[:25]
    numbers = numbered(choices)
    alike = (choices[:, None] == choices[None]).all(axis=-1)

    assert ((numbers[:, None] == numbers[None]) == alike).all()


def test_nobody_joins_more_than_is_allowed():
    elimination, _ = elimination_of(Core.of(reduce(Network.of(hard_graph(), Moments.of(hard_graph().intervals)))))
    with pytest.raises(TooManyLabels):
        elimination.run(elimination.most, Allowance(50))
    with pytest.raises(TooManyLabels):
        elimination.run(elimination.most, Allowance(10**9, budget=Budget.of(-1)))
