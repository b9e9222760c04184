"""Windows that slide over dimensions."""

import pytest
from planner_graphs import mesh_of, operation

from sporax.planner.rules import is_legal, rule_for


def windows(name, operands, result, extent, stride=1, padding=(0, 0), base=1):
    """Windows along the second of two dimensions."""
    return operation(
        name,
        operands,
        [result],
        window_dimensions=(1, extent),
        window_strides=(1, stride),
        padding=((0, 0), padding),
        base_dilation=(1, base),
        window_dilation=(1, 1),
    )


def legal(rule, size):
    """Whether the second dimension may be sharded by a mesh axis of this size."""
    return is_legal(rule, tuple((0,) if number == 1 else () for number in range(len(rule.factors))), mesh_of(size))


@pytest.mark.parametrize(("name", "passes"), [("reduce_window_sum", True), ("reduce_window_max", False)])
def test_a_single_element_is_mapped_and_a_window_slides(name, passes):
    rule = rule_for(windows(name, [(8, 16)], (8, 8), 2, 2))
    assert str(rule).startswith("a b -> a b (map a=8, halo b=8")
    assert ("partial (0,) sum" in str(rule)) == passes


def test_overlapping_windows_fetch_borders_only_where_the_primitive_can():
    named = rule_for(windows("reduce_window_max", [(8, 16)], (8, 16), 3, padding=(1, 1)))
    general = rule_for(windows("reduce_window", [(8, 16), ()], (8, 16), 3, padding=(1, 1)))
    assert legal(named, 2)
    assert not legal(general, 2)


def test_windows_that_stay_inside_slices_may_be_sharded_by_all():
    general = rule_for(windows("reduce_window", [(8, 16), ()], (8, 8), 2, 2))
    assert legal(general, 4)
    assert not legal(general, 16)  # half a window per device


def test_a_dilated_base_stays_whole():
    rule = rule_for(windows("reduce_window_sum", [(8, 16)], (8, 31), 1, base=2))
    assert str(rule).startswith("a 1 -> a 1 (map a=8")


def test_gradients_of_pooling_are_linear_in_what_is_spread():
    scattered = rule_for(windows("select_and_scatter_add", [(8, 8), (8, 16)], (8, 16), 2, 2))
    assert str(scattered) == "a b, a b -> a b (map a=8, halo b=8, partial (0,) sum)"
    gathered = rule_for(windows("select_and_gather_add", [(8, 16), (8, 16)], (8, 8), 2, 2))
    assert str(gathered) == "a b, a b -> a b (map a=8, halo b=8, partial (0,) sum)"


def test_the_general_scatter_needs_a_scalar_to_start_from():
    reference = rule_for(windows("select_and_scatter", [(8, 16), (8, 8), ()], (8, 16), 2, 2))
    assert str(reference) == "a b, a b,  -> a b (map a=8, halo b=8)"
    assert (
        rule_for(windows("select_and_scatter", [(8, 16), (8, 8), (1,)], (8, 16), 2, 2)).opaque
        == "its form is not known"
    )
