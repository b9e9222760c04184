"""What the solver is told of memory, beside what finished plans take."""

import networks
import numpy as np
import pytest

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.hardware import load_profile
from sporax.planner.cost import Roofline, link_costs
from sporax.planner.search.deciding import choose, choose_within
from sporax.planner.search.limit import bounding_graph, limited_graph, measured
from sporax.planner.search.problem import ProblemBuilder, SearchOptions
from sporax.planner.search.transients import usage_of
from sporax.planner.solver import solve

MESH = DeviceMatrix((8,))
MODEL = Roofline(load_profile("h200"), link_costs(load_profile("h200"), MESH))


def problem_of(graph):
    return ProblemBuilder(graph, MESH, MODEL, SearchOptions(fully_use_devices=True)).build()


def told_peak(problem, chosen, copies):
    """The most that a choice takes at a time, as the solver is told."""
    told = usage_of(problem)
    taken = [
        (span, sizes[each]) for pieces, each in zip(told.pieces, chosen, strict=True) for span, sizes in pieces.items()
    ]
    for copy in told.copies if copies else ():
        agree = copy.tables[0][chosen[copy.first]] + copy.tables[1][chosen[copy.second]]
        taken.append((copy.span, copy.sizes[int(agree.argmin())]))
    changes = np.zeros(2 * len(problem.graph.operators) + 8, np.int64)
    for (begin, end), size in taken:
        changes[begin] += size
        changes[end] -= size
    return int(np.cumsum(changes).max())


@pytest.mark.parametrize(
    ("graph", "near"),
    [
        (networks.mlp(4, 64, 256).graph, 0.8),
        (networks.mlp(6, 1024, 128).graph, 0.8),
        (networks.recommendation(256, 4096).graph, 0.95),
    ],
    ids=["square", "tall", "recommendation"],
)
def test_what_the_solver_is_told_is_near_what_plans_take_and_not_above(graph, near):
    problem = problem_of(graph)
    free = measured(problem, choose(problem.cost_graph()))
    shares = []
    for share in (1.0, 0.75, 0.6, 0.45):
        chosen = choose_within(limited_graph(problem, int(share * free.peak_bytes)))
        if chosen is not None:
            plan = measured(problem, chosen)
            shares.append(told_peak(problem, plan.chosen, copies=True) / plan.peak_bytes)
            assert told_peak(problem, plan.chosen, copies=False) <= told_peak(problem, plan.chosen, copies=True)

    assert max(shares) <= 1.02
    assert min(shares) >= near


def test_copies_raise_the_bound():
    """Weights that are gathered to be read are there twice: a limit that holds the slices alone is not enough."""
    problem = problem_of(networks.mlp(4, 16, 256).graph)
    free = measured(problem, choose(problem.cost_graph())).peak_bytes
    limit = int(0.7 * free)
    without, told = (solve(make(problem, limit), seconds=20).bound for make in (limited_graph, bounding_graph))

    assert told >= 1.1 * without
