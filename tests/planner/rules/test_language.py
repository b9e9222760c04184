"""Factors, windows and the checks of a rule."""

import pytest
from planner_graphs import operation

from sporax.base.errors import SporaxValueError
from sporax.planner.rules import Window, replicate
from sporax.planner.rules.language import Draft


def test_windows_need_borders_as_wide_as_they_overlap():
    same = Window(size=16, num_outputs=16, extent=3, pad_low=1)
    assert (same.border(4).left, same.border(4).right) == (1, 1)
    assert same.border(3) is None
    apart = Window(size=16, num_outputs=8, extent=2, stride=2)
    assert (apart.border(4).left, apart.border(4).right) == (0, 0)
    valid = Window(size=16, num_outputs=14, extent=3)
    assert valid.border(2) is None
    assert Window(16, 16, 3, pad_low=1, exchanges=False).border(4) is None


def test_every_dimension_must_be_indexed_and_have_its_size():
    draft = Draft(operation("mine", [(4, 6)], [(4,)]))
    rows = draft.map(4)
    with pytest.raises(
        SporaxValueError, match=r"For 'mine', the rule must index all dimensions of a tensor of shape \(4, 6\)"
    ):
        draft.finish([(rows,)], [(rows,)])
    with pytest.raises(
        SporaxValueError, match=r"dimension 1 of a tensor of shape \(4, 6\) must multiply to 6, but got \[4\]"
    ):
        draft.finish([(rows, rows)], [(rows,)])


def test_a_rule_without_factors_says_why():
    rule = replicate(operation("mine", [(4, 6)], [(4,)]), "nothing is known of it")
    assert rule.opaque == "nothing is known of it"
    assert (rule.operands, rule.results) == ((((), ()),), (((),),))
