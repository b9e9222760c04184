"""Cost graphs for the tests of the solver, the whole graph as a core, and the optimum by trying every choice."""

from itertools import product

import numpy as np

from sporax.planner.solver import CostGraph
from sporax.planner.solver.graph.core import Core
from sporax.planner.solver.graph.cost_graph import Moments
from sporax.planner.solver.graph.network import Network


def network_of(graph):
    """The graph as a network over all its memory rows."""
    return Network.of(graph, Moments.of(graph.intervals))


def whole(graph):
    """The graph as a core, without any reduction."""
    return Core.of(network_of(graph))


def random_positions(core, seed):
    """Any choice on a core."""
    return np.random.default_rng(seed).integers(0, np.diff(core.offsets)).astype(np.int64)


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
    for moment in range(int(graph.intervals.max(initial=0))):
        live = (graph.intervals[:, 0] <= moment) & (moment < graph.intervals[:, 1])
        costs = np.where(graph.usages[strategies][:, live].sum(axis=1) <= graph.limit, costs, np.inf)
    return costs.min()


def random_graph(seed, nodes=8, limit=None):
    """Decisions of three candidates; about a third of the pairs is joined; all live at once."""
    random = np.random.default_rng(seed)
    pairs = [(a, b) for b in range(nodes) for a in range(b) if random.random() < 0.35]
    edges = [(a, b, random.integers(0, 20, (3, 3)).astype(float)) for a, b in pairs]
    costs, usages = random.integers(0, 20, (nodes, 3)).tolist(), random.integers(0, 9, (nodes, 3)).tolist()
    return CostGraph.build(costs, usages, [(0, 1)] * nodes, edges, limit)
