"""The edges of loops and branches."""

import pytest
from planner_graphs import operation

from sporax.planner.rules import FactorKind, rule_for
from sporax.planner.rules.loop_rules import ARGUMENT, CARRY, ENTER, JOIN, RULES, SLICE, STACK


def passes(rule):
    return [
        factor.operands for factor in rule.factors if factor.kind is FactorKind.PARTIAL and factor.reduction == "sum"
    ]


@pytest.mark.parametrize("name", [ENTER, ARGUMENT])
def test_what_comes_in_is_the_same_tensor(name):
    rule = rule_for(operation(name, [(4, 6)], [(4, 6)]))
    assert rule.operands == rule.results
    assert passes(rule) == [(0,)]


def test_a_round_ends_with_the_placement_with_which_it_started():
    rule = rule_for(operation(CARRY, [(4, 6), (4, 6)], [(4, 6)]))
    assert rule.operands[0] == rule.operands[1] == rule.results[0]
    assert passes(rule) == [(0, 1)]


def test_branches_agree_and_give_complete_results():
    rule = rule_for(operation(JOIN, [(), (4, 6), (4, 6)], [(4, 6)]))
    assert rule.operands == ((), rule.results[0], rule.results[0])
    assert passes(rule) == []


def test_the_dimension_of_the_rounds_is_whole():
    sliced, stacked = rule_for(operation(SLICE, [(3, 4)], [(4,)])), rule_for(operation(STACK, [(4,)], [(3, 4)]))
    assert str(sliced) == "a b -> b (blocked a=3, map b=4)"
    assert str(stacked).startswith("b -> a b (blocked a=3, map b=4, partial (0,) sum")


def test_edges_cost_nothing():
    shapes = {SLICE: ([(3, 4)], [(4,)]), STACK: ([(4,)], [(3, 4)]), JOIN: ([(), (4,)], [(4,)])}
    for name in RULES:
        assert rule_for(operation(name, *shapes.get(name, ([(4,)], [(4,)])))).flops_per_point == 0
