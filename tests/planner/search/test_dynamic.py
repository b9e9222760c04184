"""Elimination finds the optimum: beside enumeration, and beside the integer program."""

import itertools

import networks
import numpy as np
import pytest
from running import assert_same_results

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.hardware import load_profile
from sporax.planner.check import check_plan
from sporax.planner.cost import Roofline, link_costs
from sporax.planner.search.dynamic import dynamic
from sporax.planner.search.elimination import eliminate
from sporax.planner.search.ilp import ilp
from sporax.planner.solver import CostGraph, evaluate
from sporax.planner.solver.core import Core
from sporax.planner.solver.network import Network
from sporax.planner.solver.timeline import Timeline

EIGHT = DeviceMatrix((2, 2, 2))
MODEL = Roofline(load_profile("cpu"), link_costs(load_profile("cpu"), EIGHT))


def random_graph(seed, nodes=7, edges=12):
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 4, nodes).tolist()
    pairs = [random.choice(nodes, 2, replace=False).tolist() for _ in range(edges)]
    tables = [(a, b, random.integers(0, 20, (sizes[a], sizes[b])).astype(float)) for a, b in pairs]
    costs = [random.integers(0, 20, size).tolist() for size in sizes]
    return CostGraph.build(costs, [[0] * size for size in sizes], [(0, 0)] * nodes, tables, None)


@pytest.mark.parametrize("seed", range(12))
def test_elimination_finds_what_enumeration_finds(seed):
    graph = random_graph(seed)
    core = Core.of(Network.of(graph, Timeline.of(graph.intervals)))
    chosen, largest = eliminate(core, 10**6)
    every = itertools.product(*(range(size) for size in graph.sizes.tolist()))

    assert evaluate(graph, core.expand(chosen).tolist()).cost == min(evaluate(graph, each).cost for each in every)
    assert largest >= 1


def test_elimination_stops_before_a_table_too_large():
    graph = random_graph(0)
    core = Core.of(Network.of(graph, Timeline.of(graph.intervals)))

    assert eliminate(core, 2) is None


@pytest.mark.parametrize("largest_table", [500_000, 10])
@pytest.mark.parametrize("step", [networks.mlp(3, 16, 512), networks.mlp(3, 64, 32)])
def test_the_optimum_of_the_integer_program_is_found(step, largest_table):
    found = dynamic(step.graph, EIGHT, MODEL, largest_table=largest_table)
    best = ilp(step.graph, EIGHT, MODEL)

    check_plan(step.graph, found.plan)
    assert found.optimal
    assert found.cost_seconds == pytest.approx(best.cost_seconds, rel=1e-9)
    assert found.statistics["method"] == ("elimination" if largest_table > 10 else "integer program")
    assert_same_results(step, found.plan)
