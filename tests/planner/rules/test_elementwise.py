"""Primitives in which every element comes from the elements at the same place."""

import math

import pytest
from planner_graphs import operation

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.operation import Operation, TensorSpec
from sporax.planner.rules import FactorKind, local_operation, rule_for

MESH = DeviceMatrix((2, 4))


def matmul(m=8, k=16, n=32):
    numbers = (((1,), (0,)), ((), ()))
    return operation("dot_general", [(m, k), (k, n)], [(m, n)], dimension_numbers=numbers)


def test_narrowing_does_not_pass_parts():
    def convert(source, target):
        op = Operation(
            "convert_element_type", (TensorSpec((4,), source[0], source[1]),), (TensorSpec((4,), target[0], target[1]),)
        )
        return any(factor.kind is FactorKind.PARTIAL for factor in rule_for(op).factors)

    assert convert(("bfloat16", 2), ("float32", 4))
    assert not convert(("float32", 4), ("bfloat16", 2))
    assert not convert(("float32", 4), ("int32", 4))
    assert not convert(("bfloat16", 2), ("float16", 2))


def passed(name, num_operands=1, dtype="float32", **params):
    """Which operands may be partial together, and in which way."""
    spec = TensorSpec((4, 6), dtype)
    rule = rule_for(Operation(name, (spec,) * num_operands, (spec,), params))
    return {(factor.operands, factor.reduction) for factor in rule.factors if factor.kind is FactorKind.PARTIAL}


@pytest.mark.parametrize(("name", "operands", "expected"), [
    ("exp", 1, set()),
    ("neg", 1, {((0,), "sum")}),
    ("copy", 1, {((0,), "sum"), ((0,), "max"), ((0,), "min")}),
    ("add", 2, {((0, 1), "sum")}),
    ("max", 2, {((0, 1), "max")}),
    ("mul", 2, {((0,), "sum"), ((1,), "sum")}),
    ("div", 2, set()),
    ("select_n", 3, {((1, 2), "sum"), ((1, 2), "max"), ((1, 2), "min")}),
])  # fmt: skip
def test_partial_operands_pass_where_the_function_is_linear(name, operands, expected):
    assert passed(name, operands) == expected


def with_literals(name, *constants, params=None, dtype="float32"):
    """What may be partial of an operation on scalars, of which some are literals."""
    specs = tuple(TensorSpec((), dtype, 4, constant) for constant in constants)
    rule = rule_for(Operation(name, specs, (TensorSpec((), dtype),), params or {}))
    return {(factor.operands, factor.reduction) for factor in rule.factors if factor.kind is FactorKind.PARTIAL}


@pytest.mark.parametrize(("name", "constants", "expected"), [
    ("add", (None, 1), set()),
    ("sub", (1, None), set()),
    ("add", (None, 0), {((0,), "sum")}),
    ("max", (0, None), {((1,), "max")}),
    ("add", (1, 2), set()),
    ("mul", (2, None), {((1,), "sum")}),
    ("mul", (math.inf, None), set()),
    ("div", (None, 0), set()),
    ("div", (None, 2), {((0,), "sum")}),
    ("select_n", (None, None, 0), {((1,), "sum"), ((1,), "max"), ((1,), "min")}),
    ("select_n", (None, 1, None), {((2,), "max"), ((2,), "min")}),
    ("copy", (1,), {((0,), "max"), ((0,), "min")}),
    ("copy", (0,), {((0,), "sum"), ((0,), "max"), ((0,), "min")}),
])  # fmt: skip
def test_a_literal_counts_once(name, constants, expected):
    assert with_literals(name, *constants) == expected


def test_quotients_of_integers_are_not_linear():
    assert passed("div", 2, "int32") == set()
    assert passed("mul", 2, "int32") == {((0,), "sum"), ((1,), "sum")}


def test_scalars_and_stretched_dimensions_are_never_sharded():
    rule = rule_for(operation("add", [(4, 6), ()], [(4, 6)]))
    assert str(rule) == "a b,  -> a b (map a=4, map b=6)"  # a scalar would be added once per device
    assert str(rule_for(operation("clamp", [(), (4, 1), ()], [(4, 6)]))).startswith(", a 1,  -> a b")


def test_transcendental_functions_are_work_and_copies_are_none():
    assert [rule_for(operation(name, [(4,)], [(4,)])).flops_per_point for name in ("tanh", "abs", "copy")] == [10, 1, 0]


def test_tensors_side_by_side_pass_each_by_itself():
    rule = rule_for(operation("optimization_barrier", [(4,), (6,)], [(4,), (6,)]))
    assert str(rule).startswith("a, b -> a, b (map a=4, map b=6, partial (0,) sum")
    assert {factor.results for factor in rule.factors if factor.operands == (1,)} == {(1,)}


def test_keys_keep_their_words_whole():
    whole = operation("random_split", [(4,)], [(4, 2)], shape=(2,))
    rule = rule_for(whole)
    assert str(rule) == "a -> a b (map a=4, blocked b=2)"
    assert local_operation(whole, rule, ((0,), ()), MESH).params["shape"] == (2,)
