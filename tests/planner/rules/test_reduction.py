"""Reductions and running reductions."""

from types import SimpleNamespace

import pytest
from planner_graphs import operation

from sporax.ir.operation import Operation, TensorSpec
from sporax.planner.rules import rule_for
from sporax.planner.rules.reduction import monoid


def function(name, *, swapped=False, repeated=False):
    """A combining function of two scalars as the planner sees it."""
    first, second = "xy"
    operands = (first, first) if repeated else (second, first) if swapped else (first, second)
    equation = SimpleNamespace(invars=operands, primitive=SimpleNamespace(name=name))
    return SimpleNamespace(jaxpr=SimpleNamespace(eqns=[equation], invars=(first, second)))


@pytest.mark.parametrize(("name", "text"), [
    ("reduce_sum", "a b -> a (map a=4, reduce b=8 sum, partial (0,) sum)"),
    ("reduce_max", "a b -> a (map a=4, reduce b=8 max, partial (0,) max)"),
    ("reduce_prod", "a b -> a (map a=4, reduce b=8 prod)"),
    ("reduce_and", "a b -> a (map a=4, reduce b=8 and)"),
    ("argmax", "a b -> a (map a=4, blocked b=8)"),
])  # fmt: skip
def test_reduced_dimensions_leave_partial_results_that_combine_likewise(name, text):
    assert str(rule_for(operation(name, [(4, 8)], [(4,)], axes=(1,)))) == text


@pytest.mark.parametrize(
    ("name", "passes"), [("cumsum", " partial (0,) sum"), ("cummax", " partial (0,) max"), ("cumprod", "")]
)
def test_running_reductions_stay_whole_along_their_dimension(name, passes):
    text = f"a b -> a b (map a=4, blocked b=8{',' if passes else ''}{passes})"
    assert str(rule_for(operation(name, [(4, 8)], [(4, 8)], axis=1))) == text


@pytest.mark.parametrize(("name", "initial", "reduction"), [
    ("add", 0, "sum"),
    ("add", 1, ""),  # every device would count the 1
    ("mul", 1, "prod"),
    ("max", 3, "max"),  # a maximum may count it several times
    ("xor", 0, "xor"),
    ("sub", 0, ""),
])  # fmt: skip
def test_known_functions_are_recognized_by_their_equation_and_initial_value(name, initial, reduction):
    assert monoid(function(name), initial) == reduction
    assert monoid(function(name, swapped=True), initial) == reduction


def test_functions_of_one_argument_alone_are_unknown():
    assert monoid(function("add", repeated=True), 0) == ""


@pytest.mark.parametrize(
    ("name", "text"), [("add", "a b,  -> a (map a=4, reduce b=8 sum)"), ("sub", "a b,  -> a (map a=4, blocked b=8)")]
)
def test_general_reductions_shard_what_they_know(name, text):
    specs = (TensorSpec((4, 8)), TensorSpec((), constant=0))
    reduce = Operation("reduce", specs, (TensorSpec((4,)),), {"jaxpr": function(name), "dimensions": (1,)})
    assert str(rule_for(reduce)) == text
