"""Blocks that repeat: that they are found where they are, and nowhere else."""

import networks
import numpy as np
import pytest
from planner_graphs import layers, mesh_of, problem_of, product
from rows import row_of_blocks

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.hardware import load_profile
from sporax.planner.cost import Roofline, link_costs
from sporax.planner.search.space.problem import ProblemBuilder, SearchOptions
from sporax.planner.search.space.repeated_blocks import choose_tied, find_repeats, labels, tied_choice, tied_problem
from sporax.planner.solver import CostGraph, evaluate
from sporax.planner.solver.portfolio.quick_choice import choose

FOUR = mesh_of(2, 2)
EIGHT = DeviceMatrix((2, 2, 2))
MODEL = Roofline(load_profile("cpu"), link_costs(load_profile("cpu"), EIGHT))


def repeats_of(step):
    problem = ProblemBuilder(step.graph, EIGHT, MODEL, SearchOptions(), approximate=True).build()
    return problem, find_repeats(labels(problem), problem.edges)


def assert_alike(costs, edges, repeats):
    """Every edge of the problem is where the repeats say it is, with the table that they say, and none is left over."""
    place = {decision: (block, at) for block, item in enumerate(repeats.blocks) for at, decision in enumerate(item)}
    assert sorted([*place, *repeats.outside]) == list(range(len(costs)))
    for row in zip(*repeats.blocks, strict=True):
        assert all((costs[item] == costs[row[0]]).all() for item in row)
    tables = {}
    for first, second, table in edges:
        pair, table = ((first, second), table) if first < second else ((second, first), table.T)
        tables[pair] = tables.get(pair, 0) + table
    report = {}

    def add(first, second, table):
        pair, table = ((first, second), table) if first < second else ((second, first), table.T)
        report[pair] = report.get(pair, 0) + table

    for edge in repeats.others:
        add(*edge)
    for number, block in enumerate(repeats.blocks):
        for (here, there, later), table in repeats.wires.items():
            if number + later < len(repeats.blocks):
                add(block[here], repeats.blocks[number + later][there], table)
        for (here, decision), table in repeats.shared.items():
            add(block[here], decision, table)
    for number, wire, is_first, decision in repeats.ends:
        inside = repeats.blocks[number][wire[0 if is_first else 1]]
        add(*((inside, decision) if is_first else (decision, inside)), repeats.wires[wire])
    assert report.keys() == tables.keys()
    for pair, table in tables.items():
        np.testing.assert_allclose(report[pair], table)


@pytest.mark.parametrize("step", [
    networks.mlp(12, 32, 1024),
    networks.transformer(9, 8, 16, 64, 4),
    networks.bare_transformer(9, 8, 16, 64),
], ids=["products", "transformer, Adam", "transformer, SGD"])  # fmt: skip
def test_what_repeats_is_the_whole_of_the_problem(step):
    problem, repeats = repeats_of(step)

    assert len(repeats.blocks) >= 4
    assert_alike(problem.costs, problem.edges, repeats)


def test_depth_adds_blocks_and_nothing_else():
    (_, few), (_, many) = (repeats_of(networks.transformer(layers, 8, 16, 64, 4)) for layers in (9, 12))

    assert len(many.blocks) == len(few.blocks) + 3
    assert len(many.blocks[0]) == len(few.blocks[0])
    assert len(many.outside) == len(few.outside)
    assert many.wires.keys() == few.wires.keys()
    assert len(many.ends) == len(few.ends)


def test_a_row_has_all_layers_but_the_first_and_the_last():
    """Also those next to blocks of another size, where the first and the last layer are."""
    problem = problem_of(layers(12), FOUR)
    assert len(find_repeats(labels(problem), problem.edges).blocks) == 10


@pytest.mark.parametrize("kinds", [1, 2, 3])
def test_layers_of_several_kinds_take_turns(kinds):
    costs, edges = row_of_blocks(0, 6 * kinds + 2, size=3, kinds=kinds)
    repeats = find_repeats([cost.tobytes() for cost in costs], edges)

    assert len(repeats.blocks[0]) == 3 * kinds
    assert_alike(costs, edges, repeats)


def test_what_all_layers_read_belongs_to_none():
    costs, edges = row_of_blocks(1, 12, size=3, readers=2)
    repeats = find_repeats([item.tobytes() for item in costs], edges)

    assert {decision for _, decision in repeats.shared} == {len(costs) - 2, len(costs) - 1}
    assert_alike(costs, edges, repeats)


def test_a_layer_that_differs_ends_the_row():
    costs, edges = row_of_blocks(2, 16, size=3)
    costs[3 * 11] = costs[3 * 11] + 1
    repeats = find_repeats([item.tobytes() for item in costs], edges)

    assert not {33, 34, 35} & {item for block in repeats.blocks for item in block}
    assert_alike(costs, edges, repeats)


@pytest.mark.parametrize(
    "step", [networks.mlp(2, 32, 64), networks.convolutional()], ids=["two layers", "convolutions"]
)
def test_few_layers_are_no_row(step):
    assert repeats_of(step)[1] is None
    assert find_repeats([], []) is None


def graph_of(costs, edges):
    return CostGraph.build(costs, [[0] * len(candidates) for candidates in costs], [(0, 0)] * len(costs), edges, None)


def repeats_in(costs, edges):
    return find_repeats([candidates.tobytes() for candidates in costs], edges)


def test_without_blocks_that_repeat_the_choice_is_that_of_message_passing():
    problem = problem_of(product(), FOUR)
    assert find_repeats(labels(problem), problem.edges) is None
    assert choose_tied(problem) == choose(problem.cost_graph())


def test_every_other_block_is_decided_alike():
    problem = problem_of(layers(12), FOUR)
    repeats = find_repeats(labels(problem), problem.edges)
    chosen, variables = tied_choice(problem, repeats, turns=2)
    rows = [[chosen[decision] for decision in block] for block in repeats.blocks]
    assert rows[2:] == rows[:-2]
    assert variables == len(repeats.outside) + 2 * len(repeats.blocks[0]) < len(problem.costs)


def test_decisions_with_equal_candidates_and_costs_have_equal_labels():
    problem = problem_of(layers(2), FOUR)
    first, second, other = (labels(problem)[problem.decisions.heavy[number]] for number in (0, 2, 0))
    assert first == second == other
    assert len(set(labels(problem))) < len(problem.costs)


@pytest.mark.parametrize("turns", [1, 2, 3, 5])
@pytest.mark.parametrize("readers", [0, 1])
def test_tied_blocks_cost_what_they_cost_untied(turns, readers):
    costs, edges = row_of_blocks(3, 13, readers=readers)
    small, variable = tied_problem(costs, repeats_in(costs, edges), turns)
    random = np.random.default_rng(0)
    for _ in range(20):
        few = np.array([random.integers(size) for size in small.sizes])

        assert evaluate(small, few).cost == evaluate(graph_of(costs, edges), few[variable]).cost
