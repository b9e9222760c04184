"""Primitives that rename, join, split, repeat or leave out dimensions."""

import pytest
from hypothesis import given, strategies as st
from planner_graphs import operation

from sporax.ir.device_matrix import DeviceMatrix
from sporax.planner.rules import FactorKind, local_operation, rule_for

MESH = DeviceMatrix((2, 4))


def matmul(m=8, k=16, n=32):
    numbers = (((1,), (0,)), ((), ()))
    return operation("dot_general", [(m, k), (k, n)], [(m, n)], dimension_numbers=numbers)


@given(sizes=st.lists(st.integers(1, 12), min_size=1, max_size=4), cuts=st.lists(st.integers(0, 3), max_size=2))
def test_reshape_factors(sizes, cuts):
    """Both sides have factors that multiply to their dimensions (checked when the rule is made), shared from the left."""
    merged = list(sizes)
    for cut in cuts:
        if cut + 1 < len(merged):
            merged[cut : cut + 2] = [merged[cut] * merged[cut + 1]]
    rule = rule_for(operation("reshape", [tuple(sizes)], [tuple(merged)], new_sizes=tuple(merged)))
    assert all(factor.kind is not FactorKind.BLOCKED for factor in rule.factors), "joining dimensions blocks nothing"


@pytest.mark.parametrize(("name", "operands", "result", "params", "text"), [
    ("broadcast_in_dim", [(8, 1)], (4, 8, 6), {"shape": (4, 8, 6), "broadcast_dimensions": (1, 2)}, "b 1 -> a b c"),
    ("reshape", [(4, 6)], (8, 3), {"new_sizes": (8, 3)}, "a (bc) -> (ab) c"),
    ("reshape", [(2, 3, 5)], (6, 5), {"new_sizes": (6, 5)}, "a b c -> (ab) c"),
    ("transpose", [(4, 6)], (6, 4), {"permutation": (1, 0)}, "a b -> b a"),
    ("tile", [(4, 6)], (8, 6), {"reps": (2, 1)}, "a b -> (ca) b"),
    ("squeeze", [(4, 1)], (4,), {"dimensions": (1,)}, "a 1 -> a"),
    ("concatenate", [(4, 6), (2, 6)], (6, 6), {"dimension": 0}, "b a, c a -> d a"),
    ("stack", [(4,), (4,)], (2, 4), {"axis": 0}, "a, a -> b a"),
    ("pad", [(4, 6), ()], (4, 8), {"padding_config": ((0, 0, 0), (1, 1, 0))}, "a b,  -> a c"),
    ("slice", [(8, 6)], (4, 3), {"start_indices": (0, 0), "limit_indices": (8, 3), "strides": (2, 1)}, "(ab) d -> a c"),
])  # fmt: skip
def test_dimensions_keep_their_factors_and_pass_sums_and_maxima(name, operands, result, params, text):
    rule = rule_for(operation(name, operands, [result], **params))
    assert str(rule).startswith(f"{text} (")
    reductions = [factor.reduction for factor in rule.factors if factor.kind is FactorKind.PARTIAL]
    assert reductions == ["sum", "max", "min"]
    assert rule.flops_per_point == 0


def test_a_reshape_in_another_order_is_a_transpose_before():
    rule = rule_for(operation("reshape", [(4, 2, 6)], [(2, 24)], new_sizes=(2, 24), dimensions=(1, 0, 2)))
    assert str(rule).startswith("b a c -> a (bc) (map a=2, map b=4, map c=6")


def test_dimensions_without_a_common_factor_stay_whole():
    rule = rule_for(operation("reshape", [(3, 4)], [(2, 6)], new_sizes=(2, 6)))
    assert {factor.kind for factor in rule.factors if factor.size} == {FactorKind.BLOCKED}


def test_what_is_joined_or_padded_stays_whole():
    joined = rule_for(operation("concatenate", [(4, 6), (2, 6)], [(6, 6)], dimension=0))
    assert [factor.size for factor in joined.factors if factor.kind is FactorKind.BLOCKED] == [4, 2, 6]


def test_a_reversed_dimension_changes_ranks():
    rule = rule_for(operation("rev", [(4, 6)], [(4, 6)], dimensions=(1,)))
    assert [factor.kind for factor in rule.factors[:2]] == [FactorKind.MAP, FactorKind.PERMUTE]
    assert rule.recipe == "reverse"


@pytest.mark.parametrize(("name", "operand", "result", "params", "local"), [
    ("reshape", (8, 6), (48,), {"new_sizes": (48,)}, {"new_sizes": (24,)}),
    ("tile", (4, 6), (8, 6), {"reps": (2, 1)}, {"reps": (1, 1)}),
    ("slice", (8, 6), (8, 3), {"start_indices": (0, 0), "limit_indices": (8, 3), "strides": None},
     {"start_indices": (0, 0), "limit_indices": (4, 3), "strides": None}),
])  # fmt: skip
def test_parameters_that_name_shapes_are_those_of_the_slice(name, operand, result, params, local):
    whole = operation(name, [operand], [result], **params)
    rule = rule_for(whole)
    first = tuple((0,) if number == rule.results[0][0][0] else () for number in range(len(rule.factors)))
    assert local_operation(whole, rule, first, MESH).params == local


def test_an_empty_tensor_is_not_sharded():
    rule = rule_for(operation("reshape", [(0, 4)], [(4, 0)], new_sizes=(4, 0)))
    assert rule.opaque == "an empty tensor has nothing to shard"
