"""The fast search, round by round."""

import gc
import sys

import pytest
from planner_graphs import cheapest_cost, layers, mesh_of, problem_of, product, roofline, training_step

from sporax.planner.cost import cost_of
from sporax.planner.memory.peak import memory_of
from sporax.planner.memory.xla_cpu.kernel_fusion import XLA_CPU
from sporax.planner.plan_check import check_plan
from sporax.planner.search.recursive import recursive
from sporax.planner.search.space.problem import SearchOptions

TWO, FOUR = mesh_of(2), mesh_of(2, 2)


@pytest.mark.parametrize("graph", [product(), layers(2), training_step()], ids=["product", "layers", "training step"])
def test_on_one_axis_the_plan_is_the_best_of_all(graph):
    result = recursive(graph, TWO, roofline(TWO))
    check_plan(graph, result.plan)
    assert result.cost_seconds == pytest.approx(cheapest_cost(problem_of(graph, TWO)))


def test_the_cost_is_that_of_the_plan_and_nothing_is_proven():
    result = recursive(layers(3), FOUR, roofline(FOUR))
    assert result.cost_seconds == pytest.approx(cost_of(layers(3), result.plan, roofline(FOUR)).seconds)
    assert result.method == "recursive"
    assert (result.optimal, result.bound_seconds) == (False, None)


def test_axis_by_axis_and_all_at_once_are_tried_unless_units_are_given():
    graph = layers(2)
    assert recursive(graph, FOUR, roofline(FOUR)).statistics["orders"] == 2
    given = recursive(graph, FOUR, roofline(FOUR), SearchOptions(units=((0, 1),)))
    assert given.statistics["orders"] == 1
    for operator in given.plan.operators:
        assert all(axes in ((), (0, 1)) for axes in operator.assignment)


def test_a_memory_limit_is_kept():
    graph = layers(3)
    free = memory_of(graph, recursive(graph, FOUR, roofline(FOUR)).plan, XLA_CPU).peak_bytes
    tight = recursive(graph, FOUR, roofline(FOUR), SearchOptions(memory_bytes=int(0.8 * free)))
    assert memory_of(graph, tight.plan, XLA_CPU).peak_bytes <= 0.8 * free


def test_many_decisions_are_made_in_one_round_where_messages_prove_it_good_enough(monkeypatch):
    graph = layers(3)
    small = recursive(graph, FOUR, roofline(FOUR))
    module = sys.modules["sporax.planner.search.recursive"]
    monkeypatch.setattr(module, "_FEW", 0)
    large = recursive(graph, FOUR, roofline(FOUR))
    assert (small.statistics["orders"], large.statistics["orders"]) == (2, 1)
    assert large.statistics["candidates"] < small.statistics["candidates"]
    assert large.cost_seconds <= 1.01 * small.cost_seconds
    # Nothing is proven good enough: all orders are tried.
    monkeypatch.setattr(module, "_GAP", -0.5)
    assert recursive(graph, FOUR, roofline(FOUR)).statistics["orders"] == 2


def test_the_collector_rests_in_the_search():
    graph, model, looked = layers(2), roofline(FOUR), []

    def note(phase, info):
        looked.append(phase)

    gc.callbacks.append(note)
    try:
        recursive(graph, FOUR, model)
    finally:
        gc.callbacks.remove(note)
    assert looked == []
    assert gc.isenabled()
