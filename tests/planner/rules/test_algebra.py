"""Linear algebra: batches are independent, matrices stay whole."""

import pytest
from planner_graphs import operation

from sporax.planner.rules import rule_for


@pytest.mark.parametrize(("name", "results", "text"), [
    ("cholesky", [(4, 8, 8)], "a 1 1 -> a 1 1 (map a=4, blocked b=8, blocked c=8)"),
    ("lu", [(4, 8, 8), (4, 8), (4, 8)], "a 1 1 -> a 1 1, a 1, a 1 (map a=4, blocked b=8, blocked c=8)"),
    ("eigh", [(4, 8, 8), (4, 8)], "a 1 1 -> a 1 1, a 1 (map a=4, blocked b=8, blocked c=8)"),
])  # fmt: skip
def test_factorizations_are_sharded_by_their_batch_alone(name, results, text):
    assert str(rule_for(operation(name, [(4, 8, 8)], results))) == text


@pytest.mark.parametrize(("lengths", "mapped"), [((8,), 2), ((8, 8), 1)])
def test_fourier_transforms_keep_the_transformed_dimensions_whole_and_pass_sums(lengths, mapped):
    rule = rule_for(operation("fft", [(4, 8, 8)], [(4, 8, 8)], fft_lengths=lengths))
    assert [bool(dim) for dim in rule.operands[0]] == [True] * mapped + [False] * (3 - mapped)
    assert str(rule).count("partial (0,) sum") == 1


@pytest.mark.parametrize(("left", "rhs", "text"), [
    (True, (4, 8, 6), "a 1 1, a 1 b -> a 1 b"),  # the unknown is on the left: columns are independent
    (False, (4, 6, 8), "a 1 1, a b 1 -> a b 1"),
])  # fmt: skip
def test_right_hand_sides_of_triangular_systems_are_independent(left, rhs, text):
    rule = rule_for(operation("triangular_solve", [(4, 8, 8), rhs], [rhs], left_side=left))
    assert str(rule) == f"{text} (map a=4, map b=6, partial (1,) sum)"
    assert rule.flops_per_point == 8.0**2


def test_tridiagonal_systems_take_sums_of_right_hand_sides():
    rule = rule_for(operation("tridiagonal_solve", [(4, 8)] * 3 + [(4, 8, 2)], [(4, 8, 2)]))
    assert str(rule) == "a 1, a 1, a 1, a 1 b -> a 1 b (map a=4, map b=2, partial (3,) sum)"
