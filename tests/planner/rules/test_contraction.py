"""Products that are summed over shared indices."""

from types import SimpleNamespace

import pytest
from planner_graphs import mesh_of, operation

from sporax.planner.rules import is_legal, local_operation, rule_for

CHANNELS_FIRST = SimpleNamespace(lhs_spec=(0, 1, 2, 3), rhs_spec=(0, 1, 2, 3), out_spec=(0, 1, 2, 3))


def convolution(features=4, groups=1, batch_groups=1, stride=1, size=16):
    operands = [(8, features, size, size), (6, features // groups, 3, 3)]
    result = (8 // batch_groups, 6, size // stride, size // stride)
    return operation(
        "conv_general_dilated",
        operands,
        [result],
        dimension_numbers=CHANNELS_FIRST,
        feature_group_count=groups,
        batch_group_count=batch_groups,
        window_strides=(stride, stride),
        lhs_dilation=(1, 1),
        rhs_dilation=(1, 1),
        padding=((1, 1), (1, 1)),
    )


@pytest.mark.parametrize(("shapes", "numbers", "text"), [
    ([(4, 8), (8, 6), (4, 6)], (((1,), (0,)), ((), ())), "a b, b c -> a c"),
    ([(8, 4), (6, 8), (4, 6)], (((0,), (1,)), ((), ())), "a b, c a -> b c"),
    ([(2, 4, 8), (2, 8, 6), (2, 4, 6)], (((2,), (1,)), ((0,), (0,))), "a b c, a c d -> a b d"),
    ([(4, 8), (6, 5), (4, 8, 6, 5)], (((), ()), ((), ())), "a b, c d -> a b c d"),
])  # fmt: skip
def test_batch_and_free_dimensions_are_mapped_and_contracted_ones_reduced(shapes, numbers, text):
    rule = rule_for(operation("dot_general", shapes[:2], shapes[2:], dimension_numbers=numbers))
    assert str(rule).startswith(f"{text} (")
    assert str(rule).count("reduce") == len(numbers[0][0])
    assert str(rule).endswith("partial (0,) sum, partial (1,) sum)")
    assert rule.flops_per_point == 2.0


def test_ragged_products_keep_the_ragged_dimension_and_the_groups_whole():
    numbers = SimpleNamespace(
        dot_dimension_numbers=(((1,), (1,)), ((), ())), lhs_ragged_dimensions=(0,), rhs_group_dimensions=(0,)
    )
    rule = rule_for(
        operation("ragged_dot_general", [(8, 4), (3, 4, 6), (3,)], [(8, 6)], ragged_dot_dimension_numbers=numbers)
    )
    assert str(rule).startswith("a b, e b d, e -> a d (blocked a=8, reduce b=4 sum,")
    assert "blocked e=3" in str(rule)


def test_convolutions_map_batch_and_outputs_reduce_inputs_and_exchange_borders():
    rule = rule_for(convolution())
    assert str(rule).startswith(
        "a b d f, c b e g -> a c d f (map a=8, reduce b=4 sum, map c=6, halo d=16, blocked e=3,"
    )
    assert rule.recipe == "convolution"


def test_feature_groups_are_the_major_factor_of_both_kinds_of_features():
    rule = rule_for(convolution(groups=2))
    assert str(rule).startswith("b (ac) e g, (ad) c f h -> b (ad) e g (map a=2, map b=8, reduce c=2 sum, map d=3,")


def test_batch_groups_are_the_major_factor_of_batch_and_output_features():
    rule = rule_for(convolution(batch_groups=2))
    assert str(rule).startswith("(ab) c e g, (ad) c f h -> b (ad) e g (map a=2, map b=4, reduce c=4 sum, map d=3,")


def test_group_counts_of_slices_follow_from_their_shapes():
    whole, mesh = convolution(groups=2), mesh_of(2)
    rule = rule_for(whole)
    by_group = tuple((0,) if number == 0 else () for number in range(len(rule.factors)))
    assert local_operation(whole, rule, by_group, mesh).params["feature_group_count"] == 1
    by_batch = tuple((0,) if number == 1 else () for number in range(len(rule.factors)))
    assert local_operation(whole, rule, by_batch, mesh).params["feature_group_count"] == 2


def test_slices_shorter_than_the_border_are_refused():
    rule, mesh = rule_for(convolution(size=4)), mesh_of(4, 2)
    height = next(number for number, factor in enumerate(rule.factors) if factor.kind.value == "halo")

    def legal(*axes):
        return is_legal(rule, tuple(axes if number == height else () for number in range(len(rule.factors))), mesh)

    assert legal(0)  # slices of 1, borders of 1
    assert legal(1)
    assert not legal(0, 1)
