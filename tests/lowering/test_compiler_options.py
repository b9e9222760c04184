"""Tests of `sporax.lowering.compiler_options`."""

from sporax.lowering.compiler_options import merged_options


def test_lists_of_passes_are_joined_and_other_options_replaced():
    first = {"xla_disable_hlo_passes": "a", "level": 1}
    second = {"xla_disable_hlo_passes": "b", "level": 2}
    assert merged_options(first, second) == {"xla_disable_hlo_passes": "a,b", "level": 2}
    assert merged_options(first, {}) == first
    assert merged_options({}, {}) == {}
