"""Blocks that repeat are decided alike."""

import numpy as np
import pytest
from planner_graphs import layers, mesh_of, problem_of, product
from rows import row_of_blocks

from sporax.planner.search.limit.block_tying import choose_tied, choose_tied_within, labels, tied_choice, tied_problem
from sporax.planner.search.limit.local_search import measured
from sporax.planner.search.limit.message_passing import choose
from sporax.planner.search.space.repeated_blocks import find_repeats
from sporax.planner.solver import CostGraph, evaluate

MESH = mesh_of(2, 2)


def graph_of(costs, edges):
    return CostGraph.build(costs, [[0] * len(candidates) for candidates in costs], [(0, 0)] * len(costs), edges, None)


def repeats_in(costs, edges):
    return find_repeats([candidates.tobytes() for candidates in costs], edges)


def test_without_blocks_that_repeat_the_choice_is_that_of_message_passing():
    problem = problem_of(product(), MESH)
    assert find_repeats(labels(problem), problem.edges) is None
    assert choose_tied(problem) == choose(problem.cost_graph())


def test_every_other_block_is_decided_alike():
    problem = problem_of(layers(12), MESH)
    repeats = find_repeats(labels(problem), problem.edges)
    chosen, variables = tied_choice(problem, repeats, turns=2)
    rows = [[chosen[decision] for decision in block] for block in repeats.blocks]
    assert rows[2:] == rows[:-2]
    assert variables == len(repeats.outside) + 2 * len(repeats.blocks[0]) < len(problem.costs)


def test_decisions_with_equal_candidates_and_costs_have_equal_labels():
    problem = problem_of(layers(2), MESH)
    first, second, other = (labels(problem)[problem.decisions.heavy[number]] for number in (0, 2, 0))
    assert first == second == other
    assert len(set(labels(problem))) < len(problem.costs)


def test_a_plan_that_fits_is_not_changed_by_its_limit():
    problem = problem_of(layers(12), MESH)
    chosen = choose_tied(problem)
    plan = choose_tied_within(problem, measured(problem, chosen).peak_bytes)
    assert plan.chosen == chosen


def test_prices_on_memory_make_the_plan_smaller():
    problem = problem_of(layers(12), MESH)
    free = measured(problem, choose_tied(problem))
    tight = choose_tied_within(problem, int(0.7 * free.peak_bytes))
    assert tight.peak_bytes < free.peak_bytes
    assert problem.seconds(tight.chosen) >= problem.seconds(free.chosen)
    assert choose_tied_within(problem, int(0.7 * free.peak_bytes)) is tight  # kept with the problem


@pytest.mark.parametrize("turns", [1, 2, 3, 5])
@pytest.mark.parametrize("readers", [0, 1])
def test_tied_blocks_cost_what_they_cost_untied(turns, readers):
    costs, edges = row_of_blocks(3, 13, readers=readers)
    small, variable = tied_problem(costs, repeats_in(costs, edges), turns)
    random = np.random.default_rng(0)
    for _ in range(20):
        few = np.array([random.integers(size) for size in small.sizes])

        assert evaluate(small, few).cost == evaluate(graph_of(costs, edges), few[variable]).cost
