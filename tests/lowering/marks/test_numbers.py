"""Marks and tags of a process are distinguished by their numbers."""

from sporax.ir.marks import next_number
from sporax.lowering.marks.tags import KEEP, new_tag


def test_numbers_of_marks_ascend():
    first = next_number()
    assert next_number() > first


def test_no_tag_has_the_number_of_a_mark_or_of_keep():
    mark, tag = next_number(), new_tag()
    assert len({KEEP.number, mark, tag.number}) == 3
