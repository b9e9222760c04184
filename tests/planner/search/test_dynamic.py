"""Elimination finds the optimum: beside enumeration, and beside the integer program."""

from dataclasses import replace
from functools import partial

import networks
import pytest
from running import assert_same_results

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.hardware import load_profile
from sporax.planner.cost import Roofline, link_costs
from sporax.planner.plan_check import check_plan
from sporax.planner.search import dynamic, ilp
from sporax.planner.search.exact import by_elimination

EIGHT = DeviceMatrix((2, 2, 2))
MODEL = Roofline(load_profile("cpu"), link_costs(load_profile("cpu"), EIGHT))


def with_tables(largest_table):
    return replace(dynamic, decide=partial(by_elimination, largest_table=largest_table))


@pytest.mark.parametrize("largest_table", [500_000, 10])
@pytest.mark.parametrize("step", [networks.mlp(3, 16, 512), networks.mlp(3, 64, 32)])
def test_the_optimum_of_the_integer_program_is_found(step, largest_table):
    actual = with_tables(largest_table)(step.graph, EIGHT, MODEL)
    best = ilp(step.graph, EIGHT, MODEL)

    check_plan(step.graph, actual.plan)
    assert actual.optimal
    assert actual.cost_seconds == pytest.approx(best.cost_seconds, rel=1e-9)
    assert actual.statistics["method"] == ("elimination" if largest_table > 10 else "messages")
    assert_same_results(step, actual.plan)


HOW = {"elimination": 500_000, "messages": 10}


def test_all_ways_to_decide_find_the_same():
    graph, mesh = networks.residual(16, 32, 8, 1).graph, DeviceMatrix((8,))
    model = Roofline(load_profile("cpu"), link_costs(load_profile("cpu"), mesh))
    actual = {method: with_tables(entries)(graph, mesh, model) for method, entries in HOW.items()}

    assert [item.statistics["method"] for item in actual.values()] == list(HOW)
    assert all(item.optimal for item in actual.values())
    assert len({round(item.cost_seconds, 12) for item in actual.values()}) == 1
