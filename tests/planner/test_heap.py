"""Arrays in one piece of memory: nothing overlaps, gaps are used, and what is left over is as much as XLA needs."""

from hypothesis import given
from hypothesis import strategies as st

from sporax.planner.heap import Tenant, places


def most(tenants):
    """Bytes that are there at a time, at most."""
    times = range(1 + max(each.end for each in tenants))
    return max(sum(each.num_bytes for each in tenants if each.begin <= time <= each.end) for time in times)


def tenant(begin, end, num_bytes):
    return Tenant(begin, end, end, num_bytes)


def test_arrays_that_follow_each_other_share_their_place():
    assert places([]) == []
    assert places([tenant(0, 1, 640), tenant(2, 3, 640), tenant(3, 4, 64)]) == [0, 0, 640]


def test_arrays_begin_at_multiples_of_the_alignment():
    assert places([tenant(0, 2, 100), tenant(0, 2, 10), tenant(0, 1, 1)]) == [0, 128, 192]


def test_the_smallest_gap_that_fits_is_taken():
    """When the last one comes, 320 bytes are free above the first array, and 128 below the top."""
    spans = [(0, 9, 512), (0, 4, 320), (0, 9, 256), (0, 4, 128), (0, 9, 64), (5, 9, 60)]
    assert places([tenant(*span) for span in spans]) == [0, 512, 832, 1088, 1216, 1088]


def test_what_does_not_fit_between_others_needs_more_than_there_is_at_a_time():
    tenants = [tenant(3, 6, 192), tenant(2, 3, 128), tenant(0, 2, 128), tenant(1, 1, 192)]
    assert most(tenants) == 320
    assert places(tenants) == [0, 320, 192, 0]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 8), st.integers(1, 1000)), min_size=1, max_size=25))
def test_nothing_lies_over_anything_else(spans):
    tenants = [tenant(begin, begin + length, size) for begin, length, size in spans]
    starts = places(tenants)
    for one, (first, start) in enumerate(zip(tenants, starts, strict=True)):
        assert start % 64 == 0
        for other, begin in list(zip(tenants, starts, strict=True))[:one]:
            together = first.begin <= other.end and other.begin <= first.end
            assert not together or start + first.num_bytes <= begin or begin + other.num_bytes <= start
    assert most(tenants) <= max(start + each.num_bytes for start, each in zip(starts, tenants, strict=True))
