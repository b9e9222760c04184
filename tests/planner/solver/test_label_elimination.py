"""Elimination with labels: beside trying every choice, and beside the integer program."""

import time
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sporax.planner.solver import CostGraph, solve
from sporax.planner.solver.core import Core
from sporax.planner.solver.exact import solve_exactly
from sporax.planner.solver.integer_program import Answer
from sporax.planner.solver.label_elimination import Allowance, Elimination, TooManyLabels, numbered, undominated
from sporax.planner.solver.label_rounds import ByLabels
from sporax.planner.solver.network import Network
from sporax.planner.solver.reductions import reduce
from sporax.planner.solver.timeline import Timeline
from sporax.planner.solver.trws import MessagePassing

SEEDS = st.integers(0, 10**9)


def tied_graph(seed, nodes=6, strategies=4, limit=None):
    """Nodes of which about half are joined in pairs, and many live together: reduction leaves much of it."""
    random = np.random.default_rng(seed)
    sizes = random.integers(2, strategies + 1, nodes).tolist()
    costs = [random.integers(0, 30, size).tolist() for size in sizes]
    usages = [random.integers(0, 9, size).tolist() for size in sizes]
    spans = [(begin, begin + int(random.integers(1, 4))) for begin in random.integers(0, 3, nodes).tolist()]
    edges = []
    for first, second in product(range(nodes), repeat=2):
        if first < second and random.random() < 0.5:
            table = random.integers(0, 30, (sizes[first], sizes[second])) * random.choice([1, 0.7])
            edges.append((first, second, np.where(random.random(table.shape) < 0.1, 1e18, table)))
    return CostGraph.build(costs, usages, spans, edges, limit or int(random.integers(nodes, 4 * nodes)), f"tied {seed}")


def least_of_all(graph):
    """The least cost of a choice that fits, by trying them all at once; inf where none does."""
    choices = np.array(list(product(*map(range, graph.sizes.tolist()))))
    strategies = graph.offsets[:-1] + choices
    costs = graph.costs[strategies].sum(axis=1)
    for (first, second), table in zip(graph.edges.tolist(), graph.edge_tables.tolist(), strict=True):
        costs = costs + graph.tables[table][choices[:, first], choices[:, second]]
    for moment in range(graph.horizon):
        live = (graph.intervals[:, 0] <= moment) & (moment < graph.intervals[:, 1])
        costs = np.where(graph.usages[strategies][:, live].sum(axis=1) <= graph.limit, costs, np.inf)
    return costs.min()


def whole(graph):
    return Core.of(Network.of(graph, Timeline.of(graph.intervals)))


def test_hundreds_of_graphs_have_the_optimum_that_trying_every_choice_finds():
    counted = with_labels = infeasible = 0
    for seed in range(240):
        graph = tied_graph(seed)
        expected, rounds = least_of_all(graph), ByLabels()
        outcome = solve_exactly(whole(graph), time.monotonic() + 60, rounds=rounds)
        counted, with_labels = counted + 1, with_labels + (rounds.labels > 0)
        if expected == np.inf:
            infeasible += 1
            assert outcome.positions is None, seed
            assert outcome.bound == np.inf, seed
        else:
            assert outcome.optimal, seed
            assert whole(graph).cost(outcome.positions) == pytest.approx(expected, abs=1e-7), seed
            assert whole(graph).fits(outcome.positions), seed
            assert outcome.bound == pytest.approx(expected, abs=1e-7), seed
        assert not rounds.left
    assert with_labels > counted / 4
    assert infeasible > 10


def elimination_of(core, sweeps=4):
    """The elimination of a core without prices, and its bound."""
    messages = MessagePassing(core)
    bound = [messages.sweep(core.costs)[1] for _ in range(sweeps)][-1]
    return Elimination(core, np.zeros(len(core.room)), *messages.slacks(), abs(bound) + 1), bound + core.constant


@settings(deadline=None, max_examples=60)
@given(seed=SEEDS)
def test_slacks_and_bound_are_the_costs_of_every_choice(seed):
    core = Core.of(reduce(Network.of(tied_graph(seed), Timeline.of(tied_graph(seed).intervals))))
    if core.network.infeasible:
        return
    messages = MessagePassing(core)
    bound = [messages.sweep(core.costs)[1] for _ in range(3)][-1]
    nodes, edges = messages.slacks()
    random = np.random.default_rng(seed)
    for _ in range(20):
        chosen = random.integers(0, np.diff(core.offsets))
        parts = [slacks[each] for slacks, each in zip(nodes, chosen, strict=True)]
        parts += [table[chosen[first], chosen[second]] for first, second, table in edges]
        assert min(parts, default=0.0) >= -1e-9
        assert core.constant + bound + sum(parts) == pytest.approx(core.cost(chosen), abs=1e-7)
    assert sorted((first, second) for first, second, _ in edges) == sorted(map(tuple, core.edges.tolist()))


@settings(deadline=None, max_examples=60)
@given(seed=SEEDS, share=st.floats(0.0, 1.5))
def test_what_costs_up_to_the_cutoff_is_found_and_nothing_else_is_promised(seed, share):
    graph = tied_graph(seed)
    network = reduce(Network.of(graph, Timeline.of(graph.intervals)))
    core, expected = Core.of(network), least_of_all(graph)
    if network.infeasible or not core.num_nodes or expected == np.inf:
        return
    elimination, bound = elimination_of(core)
    assert bound <= expected + 1e-7
    cutoff = share * (expected - bound)
    found = elimination.run(cutoff + 1e-7, Allowance(10**6))
    if found is not None:
        assert core.fits(found)
        assert core.cost(found) >= expected - 1e-7
    if share >= 1:
        assert core.cost(found) == pytest.approx(expected, abs=1e-6)


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

    for each in range(40):
        assert (each in kept) == (not any(beats(other, each) for other in range(40)))


@settings(deadline=None, max_examples=15)
@given(seed=SEEDS)
def test_larger_graphs_agree_with_the_integer_program(seed):
    graph = tied_graph(seed, nodes=11)
    rounds = ByLabels()
    found, expected = solve(graph, seconds=60, rounds=rounds), solve(graph, seconds=60)
    assert found.infeasible == expected.infeasible
    if not expected.infeasible:
        assert found.optimal
        assert expected.optimal
        assert found.cost == pytest.approx(expected.cost, rel=1e-6)
        assert found.statistics["method"] == rounds.method


@pytest.mark.parametrize("nodes", [0, 3, 40])
def test_rows_of_choices_are_told_apart_however_many_there_could_be(nodes):
    choices = np.random.default_rng(0).integers(0, 30, (50, nodes))
    choices[25:] = choices[:25]
    numbers = numbered(choices)
    alike = (choices[:, None] == choices[None]).all(axis=-1)

    assert ((numbers[:, None] == numbers[None]) == alike).all()


def hard_graph():
    """A graph that messages and reduction alone do not solve."""
    return tied_graph(0, nodes=12, strategies=5)


def test_too_many_labels_are_left_to_the_integer_program():
    full, capped = ByLabels(), ByLabels(most_joins=10)
    expected, found = solve(hard_graph(), seconds=60, rounds=full), solve(hard_graph(), seconds=60, rounds=capped)

    assert full.method == "labels"
    assert 0 < full.largest <= full.labels
    assert capped.method == found.statistics["method"] == "integer program"
    assert found.optimal
    assert found.cost == pytest.approx(expected.cost, rel=1e-6)


def test_bounds_hold_where_there_is_no_time_for_anybody_else(monkeypatch):
    graph = hard_graph()
    expected = solve(graph, seconds=60).cost
    network = reduce(Network.of(graph, Timeline.of(graph.intervals)))
    monkeypatch.setattr("sporax.planner.solver.label_rounds.BY_PROGRAM", lambda *_: Answer(None, -np.inf, False))
    for most_joins in (0, 100, 1000, 10_000):
        answer = ByLabels(most_joins)(network, 60.0, 0.0)
        assert answer.bound <= expected + 1e-6
        assert answer.positions is None or Core.of(network).cost(answer.positions) >= expected - 1e-6
        assert not answer.finished or answer.bound == pytest.approx(expected, rel=1e-9)


def test_nobody_joins_more_than_is_allowed():
    elimination, _ = elimination_of(Core.of(reduce(Network.of(hard_graph(), Timeline.of(hard_graph().intervals)))))
    with pytest.raises(TooManyLabels):
        elimination.run(elimination.most, Allowance(50))
    with pytest.raises(TooManyLabels):
        elimination.run(elimination.most, Allowance(10**9, deadline=time.monotonic() - 1))


@settings(deadline=None, max_examples=30)
@given(seed=SEEDS, gap=st.sampled_from([0.02, 0.1, 0.5]))
def test_a_gap_that_is_good_enough_is_kept_and_told(seed, gap):
    graph = tied_graph(seed)
    expected = least_of_all(graph)
    found = solve(graph, seconds=60, rounds=ByLabels(), gap=gap)
    if expected == np.inf:
        assert found.infeasible
        return
    assert expected - 1e-7 <= found.cost <= (1 + gap) * found.bound + 1e-6
    assert found.bound <= expected + 1e-7
    assert not found.optimal or found.cost == pytest.approx(expected, rel=1e-8, abs=1e-7)
