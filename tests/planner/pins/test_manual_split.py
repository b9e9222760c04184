"""MindSpore's conditions for a table that is split by hand."""

import pytest

from operator_marks import operator_mark
from sporax.base.errors import SporaxRuntimeError
from sporax.ir.uneven import split_of
from sporax.planner.pins.manual_split import check_split, is_split

SHAPES = ((9, 2), (8, 3))


def mark(strategy=((3, 1), (1, 3)), **attributes):
    return operator_mark("Gather", 1, strategy=strategy, **attributes)


def test_parts_start_where_the_part_before_ends():
    split = split_of({"manual_split": (4, 2, 3)})
    assert split.rows.rows == (4, 2, 3)
    assert split.offsets == (0, 4, 6)


def test_pairs_give_the_offsets():
    assert split_of({"manual_split_with_offset": ((4, 0), (2, 7))}).offsets == (0, 7)


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"manual_split": [4, 2]},
        {"manual_split": (4, 0)},
        {"manual_split": (True, 2)},
        {"manual_split_with_offset": (4, 2)},
    ],
)
def test_what_names_no_parts_gives_none(attributes):
    assert split_of(attributes) is None


def test_a_lookup_that_fits_gives_its_parts():
    assert check_split(mark(manual_split=(4, 2, 3)), SHAPES, 3).rows.num_rows == 9


@pytest.mark.parametrize(
    ("lookup", "devices", "words"),
    [
        (mark(manual_split=(4, 2)), 3, "must sum up to the 9 rows of the table, but got 6"),
        (mark(manual_split=(4, 2, 3), axis=1), 3, "'axis' must be 0, but got 1"),
        (mark(manual_split=(4, 2, 3)), 6, "must use all 6 devices.* but got 3"),
        (mark(None, manual_split=(4, 2, 3)), 3, "needs a strategy"),
        (mark(((3, 1), (2, 3)), manual_split=(4, 2, 3)), 3, "last dimension of the indices only"),
    ],
)
def test_a_lookup_that_does_not_fit_is_refused(lookup, devices, words):
    with pytest.raises(SporaxRuntimeError, match=words):
        check_split(lookup, SHAPES, devices)


def test_only_lookups_are_split():
    assert is_split(mark(manual_split=(4, 2, 3)))
    assert not is_split(mark())
