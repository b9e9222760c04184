"""Sorting and selecting the largest."""

import pytest
from planner_graphs import operation

from sporax.planner.rules import rule_for


@pytest.mark.parametrize("dimension", [0, 1])
def test_the_sorted_dimension_stays_whole_in_all_tensors(dimension):
    rule = rule_for(operation("sort", [(4, 8), (4, 8)], [(4, 8), (4, 8)], dimension=dimension))
    assert [factor.kind.value for factor in rule.factors[:2]] == [["blocked", "map"], ["map", "blocked"]][dimension]
    assert rule.operands[0] == rule.operands[1]
    assert all(result[1 - dimension] == rule.operands[0][1 - dimension] for result in rule.results)


@pytest.mark.parametrize(("params", "result", "text"), [
    ({"k": 2}, (4, 2), "a b -> a c, a d (map a=4, blocked b=8, blocked c=2, blocked d=2)"),
    ({"k": 2, "axis": 0}, (2, 8), "a b -> c b, d b (blocked a=4, map b=8, blocked c=2, blocked d=2)"),
])  # fmt: skip
def test_the_largest_are_selected_within_one_device(params, result, text):
    assert str(rule_for(operation("top_k", [(4, 8)], [result, result], **params))) == text


def test_negative_dimensions_count_from_the_right():
    rule = rule_for(operation("approx_top_k", [(4, 8)], [(4, 2)], reduction_dimension=-1))
    assert str(rule) == "a b -> a c (map a=4, blocked b=8, blocked c=2)"


def test_sorting_costs_the_logarithm_of_its_length_per_element():
    assert rule_for(operation("sort", [(4, 8)], [(4, 8)], dimension=1)).flops_per_point == 3.0
    assert rule_for(operation("sort", [(4, 1)], [(4, 1)], dimension=1)).flops_per_point == 1.0
