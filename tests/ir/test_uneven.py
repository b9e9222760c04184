"""Parts of a table and the blocks that hold them."""

from sporax.ir.uneven import UnevenRows


def test_blocks_are_as_long_as_the_longest_part():
    parts = UnevenRows((4, 2, 3))
    assert (parts.num_rows, parts.block, parts.num_stored, parts.starts) == (9, 4, 12, (0, 4, 6))
    assert not parts.is_even


def test_equal_parts_need_no_spare_rows():
    parts = UnevenRows((3, 3))
    assert parts.is_even
    assert parts.num_stored == parts.num_rows
